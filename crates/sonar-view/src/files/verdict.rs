//! The verdict on a recording, in sentences.

use sonar_core::files::verdict::{Finding, MIN_READS};
use sonar_core::files::{FilePattern, FilesVerdict, judge};

use super::Recording;
use super::bench::by_whom;
use crate::kit::{Bytes, Grouped, Nanos, Percent, plural};

/// A verdict mentions bytes that readahead fetched for nothing if they are at least this share of all bytes,
const LARGE_WASTE: f64 = 0.25;
/// and at least this many bytes.
const LEAST_WASTE: u64 = 1 << 20;
/// A lower bound of that share is shown if it is at least this.
const SHOWN_WASTE: f64 = 0.01;

impl Recording<'_> {
    /// The verdict, and its sentences, one a line.
    pub fn verdict(&self) -> (FilesVerdict, Vec<String>) {
        let verdict = judge(self.analysis, |file| self.role(file), |thread| self.thread_role(thread));
        let mut words = Vec::new();
        let Some(file) = verdict.file else {
            words.push("Nothing was read.".to_string());
            return (verdict, words);
        };
        let name = self.name(file);
        let role = match self.role(file).name() {
            "" => String::new(),
            role => format!(", a file of the kind {role}"),
        };
        let by = by_whom(verdict.thread_role, verdict.role_threads);
        if !verdict.is_evident() {
            let comma = if role.is_empty() { "" } else { "," };
            words.push(self.no_verdict(&verdict, &format!("{name}{role}{comma}")));
            words.extend(self.bench.into_iter().flat_map(|bench| bench.words(self, &verdict)));
            return (verdict, words);
        }
        words.push(match verdict.finding {
            Finding::TooFewReads | Finding::FromCache => self.no_verdict(&verdict, &name),
            Finding::SequentialPass => {
                format!("A sequential pass{by}: {name}{role}, was read in the order in which it lies on the disk.")
            }
            Finding::IndexFetch { index } => format!(
                "A fetch through an index whose order is not the disk's{by}: while it walked {}, the same thread read {name}{role}, at random.",
                self.name(index)
            ),
            Finding::RandomReads => {
                format!("Random reads of {name}{role}{by}; no index was walked at the same time, so the recording does not show why.")
            }
            Finding::ReadAgain => format!(
                "Blocks read again and again, in the order of the disk{by}: {name}{role}, was read in the order in which it lies there, but what was read was not kept. A larger cache helps; another order does not."
            ),
            Finding::Mixed => format!("Partly in order, partly not{by}: {name}{role}."),
        });
        if let (Some(times), Some(randomness)) = (verdict.amplification, verdict.randomness) {
            words.push(format!(
                "Evidence: {} for {}, {times:.1} bytes read for each byte of the file that was touched, randomness {randomness:.2} (jumps among consecutive reads).",
                plural(Grouped(verdict.reads), "read"),
                plural(Grouped(verdict.blocks), "different block"),
            ));
        }
        words.extend(
            self.analysis.file(file).and_then(readahead).filter(|(_, large)| *large).map(|found| found.0),
        );
        if let (Some(thread), Some(share)) = (verdict.thread, verdict.thread_read_share) {
            let judged = match share {
                share if share >= 0.5 => "it is bound by I/O",
                share if share >= 0.2 => "I/O is a good part of its time",
                _ => "it is not bound by I/O",
            };
            let role = verdict.thread_role.name();
            words.push(format!(
                "Thread {}{} waited in reads for {} of the time from its first access to its last: {judged}.",
                self.thread(thread),
                if role.is_empty() { String::new() } else { format!(", {role},") },
                Percent(share)
            ));
        }
        if let Some(share) = verdict.role_share.filter(|_| verdict.role_threads > 1 && !by.is_empty()) {
            words.push(format!("{} of the reads were made{by}.", Percent(share)).replace(", by", " by"));
        }
        words.extend(self.estimates(&verdict));
        (verdict, words)
    }

    /// Why nothing can be concluded from the reads of a file.
    fn no_verdict(&self, verdict: &FilesVerdict, name: &str) -> String {
        let share = Percent(verdict.device_per_touched.unwrap_or_default());
        match (verdict.finding, verdict.device_reads) {
            (Finding::FromCache, _) => format!(
                "No verdict: most of {name} came from the page cache, {share} of what was touched from the device. The times are those of memory, so the order on the disk does not matter here{}.",
                if self.bench.is_some() {
                    ""
                } else {
                    " (--bench takes the disk's times from a run of disk bench)"
                },
            ),
            (_, Some(device)) if verdict.reads >= MIN_READS => format!(
                "No verdict: too few reads of {name} waited for the device: {} of {}.",
                Grouped(device),
                Grouped(verdict.reads)
            ),
            _ => format!("No verdict: too few reads of {name}, {}.", verdict.reads),
        }
    }

    /// What other orders would take.
    fn estimates(&self, verdict: &FilesVerdict) -> Vec<String> {
        let mut words = Vec::new();
        let took = u64::try_from(verdict.read_ns).unwrap_or(u64::MAX);
        let slow =
            matches!(verdict.finding, Finding::IndexFetch { .. } | Finding::RandomReads | Finding::Mixed);
        match (verdict.in_order_ns, verdict.in_order_rate) {
            _ if !slow => {}
            (Some(ns), Some(_)) if ns >= took => words.push(
                "Reading in the order of the disk would not be faster: most of this came from the page cache, which has no order."
                    .to_string(),
            ),
            (Some(ns), Some(rate)) => words.push(format!(
                "Reading each touched byte once in the order of the disk would wait for about {} instead of {}, at the {}/s at which this recording's own reads in order were served{}.",
                Nanos(ns),
                Nanos(took),
                Bytes(rate),
                match verdict.is_of_memory() {
                    Some(_) => "",
                    None => " (by the device or by the page cache: that is not known here)",
                }
            )),
            _ if self.bench.is_some() => {}
            _ => words.push(
                "What reading in the order of the disk would take is not known: the recording holds too few reads in order that came from the device."
                    .to_string(),
            ),
        }
        words.extend(self.bench.into_iter().flat_map(|bench| bench.words(self, verdict)));
        words
    }
}

/// What readahead fetched for nothing, as a sentence, and whether that is a large part of what it fetched; `None`
/// where that is not known, or nothing.
pub(super) fn readahead(file: &FilePattern) -> Option<(String, bool)> {
    if let Some(pages) = file.page_ins.as_deref() {
        let share = pages.wasted_share()?;
        let words = format!(
            "Readahead: {} came into the page cache, {} of it ({}) were not read while recording.",
            Bytes(pages.bytes as f64),
            Bytes(pages.wasted() as f64),
            Percent(share)
        );
        return Some((words, share >= LARGE_WASTE && pages.wasted() >= LEAST_WASTE));
    }
    let wasted = file.reads.wasted_at_least().filter(|wasted| *wasted > 0)?;
    let share = wasted as f64 / file.reads.device_bytes as f64;
    let words = format!(
        "Readahead: at least {} ({}) of the {} from the device were not read (a lower bound; io record --readahead measures it).",
        Bytes(wasted as f64),
        Percent(share),
        Bytes(file.reads.device_bytes as f64)
    );
    (share >= SHOWN_WASTE).then_some((words, share >= LARGE_WASTE && wasted >= LEAST_WASTE))
}
