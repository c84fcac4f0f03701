//! Formats of other tools: that of pt-pmp, and the input of flame graphs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::report::{StackFrame, StackReport, StackRow};
use crate::kit::escape;

/// Writes the stacks as pt-pmp prints them: a line for each, with the count in seven columns, and the functions from the
/// innermost on.
///
/// # Errors
/// Those of `out`.
pub fn pmp(report: &StackReport, mut out: impl Write) -> io::Result<()> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for row in &report.stacks {
        let functions: Vec<String> = row.frames.iter().map(pmp_name).collect();
        *counts.entry(functions.join(",")).or_default() += row.samples;
    }
    // As `sort -r -n -k 1,1` orders them: equal counts from the last line to the first.
    let mut lines: Vec<(u64, String)> = counts.into_iter().map(|(stack, count)| (count, stack)).collect();
    lines.sort_by(|a, b| b.cmp(a));
    for (count, stack) in lines {
        writeln!(out, "{count:7} {}", escape(&stack))?;
    }
    out.flush()
}

/// As pt-pmp shortens a frame of gdb.
fn pmp_name(frame: &StackFrame) -> String {
    let name: String = frame.function.chars().filter(|c| !c.is_whitespace()).collect();
    // gdb names no library for memory without a file.
    let library = frame.library.as_deref().filter(|library| !library.starts_with('['));
    match (library, name.as_str()) {
        (None, "?") => "::??".to_owned(),
        (None, _) => name,
        (Some(library), "?") => format!("{}::??({library})", library.split('.').next().unwrap_or(library)),
        (Some(library), _) => format!("{name}({library})"),
    }
}

/// Writes the stacks for a flame graph: a line for each, with the class, the role and the functions from the outermost
/// on, joined by semicolons, and the count.
///
/// # Errors
/// Those of `out`.
pub fn folded(report: &StackReport, mut out: impl Write) -> io::Result<()> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for row in &report.stacks {
        let path = path(row, report.full_names);
        *counts.entry(path.join(";")).or_default() += row.samples;
    }
    for (path, count) in counts {
        writeln!(out, "{} {count}", escape(&path))?;
    }
    out.flush()
}

/// The boxes of a flame graph, from the root on.
pub(super) fn path(row: &StackRow, is_full: bool) -> Vec<String> {
    let role = row.role.as_deref().unwrap_or("other threads").to_owned();
    let functions = shown(&row.frames, is_full).into_iter().rev();
    let functions = functions.map(|frame| frame.function.replace(';', ":"));
    [role].into_iter().chain(functions).chain([format!("[{}]", row.class)]).collect()
}

/// Leaves out frames that only pass a call on, except the innermost one; `is_full` keeps all.
pub(super) fn shown(frames: &[StackFrame], is_full: bool) -> Vec<&StackFrame> {
    let is_kept = |(at, frame): &(usize, &StackFrame)| *at == 0 || is_full || !frame.machinery;
    frames.iter().enumerate().filter(is_kept).map(|(_, frame)| frame).collect()
}
