//! Counters of what was read from profiles and logs, and of what could not be read, by reason.

use crate::coverage::counters;

counters! {
    /// The counters of profiles and logs, in the order in which an entry passes them. They only grow. Those
    /// marked `loss` count what could not be shown in full.
    Reading {
        /// Files read, standard input included.
        files,
        /// Files that are incomplete, or could not be read to the end.
        files_damaged: loss,
        /// Files not read to their end because the command was stopped.
        files_stopped: loss,
        /// Bytes read, after decompression.
        bytes,
        /// Lines of logs.
        lines,
        /// Lines of operations.
        lines_operation,
        /// Other lines that are shown: connections, clients, starts, errors, warnings.
        lines_event,
        /// Lines about something else.
        lines_other,
        /// Lines outside of the requested time.
        lines_outside,
        /// Empty lines.
        lines_empty,
        /// Lines not recognised as those of a MongoDB log of any version.
        lines_unknown: loss,
        /// Lines above the maximum length; the rest of each was ignored.
        lines_too_long: loss,
        /// Lines that look like those of a MongoDB log but cannot be parsed: cut, damaged or changed.
        lines_malformed: loss,
        /// Log lines extracted from the line of another program, a prefix or an envelope (also counted elsewhere).
        lines_unwrapped,
        /// Last lines without a line feed that cannot be parsed: they are still being written.
        lines_unfinished: loss,
        /// Documents of profiles.
        documents,
        /// Documents that are inconsistent or incomplete.
        documents_malformed: loss,
        /// Documents that are not operations.
        documents_other,
        /// Documents of profiles outside of the requested time.
        entries_outside,
        /// Entries that represent several operations each, by Percona Server's `rateLimit`.
        entries_weighted,
        /// Statements joined to their command.
        statements_joined,
        /// Statements shown without their command, because too many were waiting for one.
        statements_unjoined: loss,
        /// Commands whose statements are missing in the source.
        statements_unsaid: loss,
        /// Operations whose shape is known exactly.
        operations_exact,
        /// Operations whose command the source cut, or whose types it lost.
        operations_partial: loss,
        /// Operations whose text is ambiguous.
        operations_ambiguous: loss,
        /// Operations without a command.
        operations_unsaid: loss,
        /// Operations without a duration.
        operations_untimed,
        /// Operations without a time: they are in the rows, but in no chart and in no range of time.
        operations_undated: loss,
        /// Operations logged while running.
        operations_in_progress,
        /// Shapes whose text was cut at the budget.
        shapes_text_cut: loss,
        /// Shapes with more distinct children, or deeper, than the caps.
        shapes_over_cap: loss,
        /// Operations counted under `other` because there were too many shapes.
        shapes_folded: loss,
        /// Operations of applications beyond the cap on applications.
        apps_folded: loss,
        /// Connections dropped because there were too many.
        connections_forgotten: loss,
    }
}

/// Lines that look like lines of a MongoDB log but could not be parsed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Unparsed {
    /// Their number.
    pub lines: u64,
    /// The number of lines that are not empty.
    pub of: u64,
    /// They are at least half of all lines, so the report does not represent the log.
    pub is_most: bool,
}

impl Reading {
    /// The lines that look like MongoDB's but could not be parsed; `None` if there are none. A report states
    /// them before anything else.
    pub fn unparsed(&self) -> Option<Unparsed> {
        let (lines, of) = (self.lines_malformed, self.lines - self.lines_empty.min(self.lines));
        (lines > 0).then(|| Unparsed { lines, of, is_most: lines >= of.div_ceil(2) })
    }

    /// The equations that do not hold, in words. Every line is counted once, so this is empty at any time.
    pub fn imbalances(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |what: &str, left: u64, right: u64| {
            if left != right {
                wrong.push(format!("{what}: {left} is not {right}"));
            }
        };
        expect(
            "lines",
            self.lines,
            self.lines_operation
                + self.lines_event
                + self.lines_other
                + self.lines_outside
                + self.lines_empty
                + self.lines_unknown
                + self.lines_too_long
                + self.lines_malformed
                + self.lines_unfinished,
        );
        wrong
    }
}
