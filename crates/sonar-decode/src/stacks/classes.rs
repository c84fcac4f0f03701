//! Decides what a thread waits for, by the functions on its stack: a table of patterns, which users can extend.

use std::sync::Arc;

use sonar_core::stacks::{ThreadState, without_namespace};

/// The table for MongoDB.
const TABLE: &str = include_str!("wait_classes.txt");
/// The most rules of a file.
const MAX_RULES: usize = 10_000;
/// Classes of threads that do not wait in a system call.
const ON_CPU: &str = "on CPU";
const RUNNABLE: &str = "waiting for a CPU";
const FAULT: &str = "page fault";
const STOPPED: &str = "stopped";
const OTHER: &str = "other wait";

/// What a thread does, in MongoDB's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitClass {
    /// Its name.
    pub name: Arc<str>,
    /// The thread has nothing to do, so this is no wait.
    pub idle: bool,
}

/// What decides the class of a sample.
#[derive(Copy, Clone, Debug)]
pub struct StackView<'a> {
    /// What the thread did.
    pub state: ThreadState,
    /// Its system call; `None` outside of one.
    pub call: Option<&'a str>,
    /// Plain names of its functions ([`super::FunctionName::plain`]), the innermost first.
    pub functions: &'a [&'a str],
}

/// A file of classes that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ClassFileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// A function in a rule.
#[derive(Debug)]
struct FunctionPattern {
    /// What its name is like.
    name: String,
    /// Whether the one before calls it directly.
    is_direct: bool,
}

/// A line of the table.
#[derive(Debug)]
struct ClassRule {
    class: usize,
    /// From the caller to the callee.
    functions: Vec<FunctionPattern>,
    /// The system call; `Some(None)` is none.
    call: Option<Option<String>>,
}

/// The table: the first rule that matches decides.
#[derive(Debug)]
pub struct WaitClasses {
    classes: Vec<WaitClass>,
    rules: Vec<ClassRule>,
}

impl Default for WaitClasses {
    fn default() -> Self {
        Self::of_text(TABLE).unwrap_or(Self { classes: Vec::new(), rules: Vec::new() })
    }
}

impl WaitClasses {
    /// The table with the rules of a file before its own.
    ///
    /// # Errors
    /// [`ClassFileError`], with the line that is wrong.
    pub fn with(text: &str) -> Result<Self, ClassFileError> {
        let mut table = Self::of_text(text)?;
        let own = Self::default();
        let first = table.classes.len();
        table.classes.extend(own.classes);
        table.rules.extend(own.rules.into_iter().map(|rule| ClassRule { class: rule.class + first, ..rule }));
        Ok(table)
    }

    fn of_text(text: &str) -> Result<Self, ClassFileError> {
        let mut table = Self { classes: Vec::new(), rules: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            let wrong = |what| ClassFileError { line: at + 1, what };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(header) = line.strip_prefix('[') {
                table.classes.push(class(header).ok_or_else(|| wrong("a class is [name] or [name | idle]"))?);
                continue;
            }
            if table.classes.is_empty() {
                return Err(wrong("a rule stands below the [name] of its class"));
            }
            if table.rules.len() >= MAX_RULES {
                return Err(wrong("too many rules: 10,000 at most"));
            }
            let pattern = line.split_once("  ").map(|(_, pattern)| pattern.trim_start());
            let pattern =
                pattern.ok_or_else(|| wrong("a rule is its versions, two or more spaces, a pattern"))?;
            let rule = rule(pattern, table.classes.len() - 1);
            table.rules.push(rule.ok_or_else(|| wrong("a pattern has an empty part"))?);
        }
        Ok(table)
    }

    /// The class of a sample.
    pub fn classify(&self, view: &StackView<'_>) -> WaitClass {
        let named = |name: &str| WaitClass { name: name.into(), idle: false };
        match view.state {
            ThreadState::OnCpu => return named(ON_CPU),
            ThreadState::Runnable => return named(RUNNABLE),
            ThreadState::Stopped => return named(STOPPED),
            // It sleeps outside of a system call.
            _ if view.call.is_none() => return named(FAULT),
            ThreadState::Sleeping | ThreadState::Disk => {}
        }
        let functions: Vec<&str> = view.functions.iter().map(|name| without_namespace(name)).collect();
        let rule = self.rules.iter().find(|rule| rule.matches(view.call, &functions));
        rule.and_then(|rule| self.classes.get(rule.class)).cloned().unwrap_or_else(|| named(OTHER))
    }

    /// Names of all classes, each once, in the order of the table.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for class in &self.classes {
            if !names.contains(&&*class.name) {
                names.push(&class.name);
            }
        }
        names
    }
}

impl ClassRule {
    /// Whether the functions stand on the stack in this order; `functions` has the innermost first.
    fn matches(&self, call: Option<&str>, functions: &[&str]) -> bool {
        if self.call.as_ref().is_some_and(|wanted| wanted.as_deref() != call) {
            return false;
        }
        if matches!(&self.functions[..], [only] if only.name == "*") {
            return true;
        }
        are_called(&self.functions, functions)
    }
}

/// Whether functions like these stand on the stack in this order; `functions` has the innermost first.
fn are_called(patterns: &[FunctionPattern], functions: &[&str]) -> bool {
    let Some((first, rest)) = patterns.split_first() else { return true };
    let direct = rest.iter().take_while(|pattern| pattern.is_direct).count();
    let (together, rest) = (&rest[..direct], &rest[direct..]);
    // Where the first one stands outermost, most are left for the rest.
    let stands = |at: &usize| {
        let callees = functions[..*at].iter().rev();
        is_like(&first.name, functions[*at])
            && *at >= direct
            && together.iter().zip(callees).all(|(pattern, name)| is_like(&pattern.name, name))
    };
    let found = (0..functions.len()).rev().find(stands);
    found.is_some_and(|at| are_called(rest, &functions[..at - direct]))
}

/// The class of a header without its first bracket.
fn class(header: &str) -> Option<WaitClass> {
    let inside = header.strip_suffix(']')?;
    let (name, idle) = match inside.split_once('|') {
        Some((name, mark)) if mark.trim() == "idle" => (name.trim(), true),
        Some(_) => return None,
        None => (inside.trim(), false),
    };
    (!name.is_empty()).then(|| WaitClass { name: name.into(), idle })
}

fn rule(pattern: &str, class: usize) -> Option<ClassRule> {
    let (functions, call) = match pattern.split_once(" call ") {
        Some((functions, call)) => (functions, Some(call.trim())),
        None => (pattern, None),
    };
    let together = |part: &str| -> Vec<FunctionPattern> {
        let names = part.split(" >> ").enumerate();
        names.map(|(at, name)| FunctionPattern { name: name.trim().to_owned(), is_direct: at > 0 }).collect()
    };
    let functions: Vec<FunctionPattern> = functions.split(" > ").flat_map(together).collect();
    let call = call.map(|call| (call != "none").then(|| call.to_owned()));
    let is_empty = functions.iter().any(|pattern| pattern.name.is_empty())
        || matches!(&call, Some(Some(name)) if name.is_empty());
    (!is_empty).then_some(ClassRule { class, functions, call })
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn is_like(pattern: &str, name: &str) -> bool {
    // Functions that late WiredTiger made internal have another prefix.
    let (prefix, name) = name.strip_prefix("__wti_").map_or(("", name), |rest| ("__wt_", rest));
    let name: Vec<u8> = prefix.bytes().chain(name.bytes()).collect();
    let pattern = pattern.as_bytes();
    let (mut p, mut n) = (0, 0);
    // The last star, and the part of the name that it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, end)) = star {
            star = Some((at, end + 1));
            (p, n) = (at + 1, end + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
