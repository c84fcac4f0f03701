//! Accesses to files of recordings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use sonar_core::history::CollectorKind;
use sonar_core::observation::{WIDTH_NS, WindowCutter};
use sonar_core::{Endpoint, Timestamp};
use sonar_decode::io_file::RecordingBlock;

use super::inputs::ReplayInputs;
use super::source_end::SourceEnd;
use crate::agent::file_work::{FileWork, WorkTime};
use crate::agent::servers::local;
use crate::input;
use crate::io::report::blocks;

/// The most files of a recording; accesses to others are counted.
const MAX_FILES: usize = 65_536;

/// Reads a recording.
struct AccessReading<'a> {
    inputs: &'a ReplayInputs,
    windows: &'a mut WindowCutter,
    files: HashMap<u32, (Endpoint, String)>,
    /// By the start of the window, then by file.
    work: BTreeMap<Timestamp, HashMap<u32, FileWork>>,
    first: Option<Timestamp>,
    last: Timestamp,
}

impl AccessReading<'_> {
    fn block(&mut self, block: RecordingBlock<'_>) {
        match block {
            RecordingBlock::Files(files) => {
                for file in files {
                    if self.files.len() < MAX_FILES || self.files.contains_key(&file.file) {
                        let server = self.inputs.server_of_file(file.path).map(local).unwrap_or_default();
                        self.files.insert(file.file, (server, file.path.to_owned()));
                    }
                }
            }
            RecordingBlock::Accesses(accesses) => {
                for access in accesses {
                    let end = access.end();
                    self.first = Some(self.first.map_or(access.start, |first| first.min(access.start)));
                    self.last = self.last.max(end);
                    let window = self.work.entry(end.floor_to(WIDTH_NS)).or_default();
                    if window.len() < MAX_FILES || window.contains_key(&access.file) {
                        window.entry(access.file).or_default().add(&access);
                    }
                }
                self.close(self.last);
            }
            _ => {}
        }
    }

    /// Hands over the windows that ended a while before `now`.
    fn close(&mut self, now: Timestamp) {
        while let Some(oldest) = self.work.first_entry()
            && now.since(*oldest.key()) >= 2 * WIDTH_NS
        {
            let (start, work) = oldest.remove_entry();
            self.hand_over(start, &work);
        }
    }

    fn hand_over(&mut self, start: Timestamp, work: &HashMap<u32, FileWork>) {
        let from = self.first.map_or(start, |first| first.max(start));
        let to = start.plus_ns(WIDTH_NS).min(self.last);
        let at = to.minus_ns(1).max(start);
        let time = WorkTime { at, seconds: to.since(from).max(1) as f64 / 1e9 };
        for (number, work) in work {
            if let Some((server, path)) = self.files.get(number) {
                time.add(self.windows, *server, path, work);
            }
        }
        self.windows.observe(CollectorKind::Files, from, to);
    }
}

/// Reads recordings one after another.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(inputs: &ReplayInputs, windows: &mut WindowCutter, stop: &Arc<AtomicBool>) -> Result<SourceEnd> {
    let mut end = SourceEnd::default();
    for path in &inputs.recordings {
        let (files, work) = (HashMap::new(), BTreeMap::new());
        let mut reading =
            AccessReading { inputs, windows, files, work, first: None, last: Timestamp::default() };
        let damage = blocks(path, |block| {
            if !stop.load(Ordering::Relaxed) {
                reading.block(block);
            }
        })?;
        while let Some((start, work)) = reading.work.pop_first() {
            reading.hand_over(start, &work);
        }
        windows.finish();
        if let Some(damage) = damage {
            end.damaged.push(format!("{}: {damage}; all before that has been read", input::name(path)));
        }
    }
    Ok(end)
}
