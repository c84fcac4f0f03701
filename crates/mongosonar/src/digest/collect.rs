//! What is read of a source: the operations that were asked for, and what was left out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use sonar_core::{
    Class, Digest, DigestSettings, Execution, GroupBy, Identity, InFlightOperations, LogNotices,
    ObservedParts, Operation, Reading, Record, Role, Source, Timestamp,
};
use sonar_decode::entry::EntrySink;
use sonar_decode::log::Bound;
use sonar_view::kit::{Hidden, Reason, Zone, plural};
use sonar_view::queries::ClassSet;

use super::args::DigestArgs;
use super::routers::RoutedFiles;
use crate::args::values::ClassArg;
use crate::args::when::bound_in_zone;
use crate::exit::usage;
use crate::input;

/// Collects the operations that the arguments select.
pub struct OperationCollector {
    /// Their digest.
    pub digest: Digest,
    source: Source,
    classes: ClassSet,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// Operations that ended outside of the time range.
    outside: u64,
    /// Operations of other classes.
    pub hidden: Hidden,
    /// Users and comments were asked for.
    pub shows_values: bool,
    /// Which logs are of routers.
    pub routed: RoutedFiles,
}

impl OperationCollector {
    /// A collector of operations of these classes from `source`.
    pub fn new(source: Source, settings: DigestSettings, classes: ClassSet) -> Self {
        let (digest, hidden, routed) = (Digest::new(settings), Hidden::default(), RoutedFiles::default());
        Self {
            digest,
            source,
            classes,
            from: None,
            to: None,
            outside: 0,
            hidden,
            shows_values: false,
            routed,
        }
    }

    /// A collector of the operations of `source` that the arguments select.
    pub fn of(args: &DigestArgs, source: Source) -> Self {
        let by = args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default();
        let settings = DigestSettings { by, points: args.html.is_some() };
        let collector = Self::new(source, settings, ClassArg::classes(&args.class));
        Self { shows_values: args.show_values, ..collector }
    }

    /// Only operations that end within `span`, in which times without an offset are of the clock of `zone`.
    pub fn within(mut self, span: &TimeRange, zone: &Zone) -> Self {
        let in_zone = |bound| bound_in_zone(bound, zone);
        (self.from, self.to) = (span.from.map(in_zone), span.to.map(in_zone));
        self
    }

    /// What was read, with these counters of the source.
    pub fn gathered(self, mut reading: Reading, zone: Zone) -> SourceDigest {
        let Self { mut digest, hidden, outside, routed, .. } = self;
        digest.join_applications();
        let note = routed.note();
        if note.is_none() {
            digest.unite_roles();
        }
        reading.entries_outside += outside;
        reading.shapes_folded += digest.folded;
        let (notices, damaged, stopped, covers) = (None, false, Vec::new(), None);
        let notes = note.into_iter().collect();
        SourceDigest { digest, hidden, reading, notices, damaged, stopped, covers, zone, notes }
    }

    /// Adds operations that had not ended, if they were asked for.
    pub fn add_in_flight(&mut self, waiting: &InFlightOperations) {
        if waiting.role == Role::Served && self.classes.contains(waiting.class) {
            self.digest.add_in_flight(waiting);
        }
    }

    /// Whether the operation ended within the time range. Where its time is unknown, it is within no range that has
    /// an end.
    #[inline]
    fn is_within(&self, op: &Operation<'_>) -> bool {
        self.from.is_none_or(|from| op.end >= from)
            && self.to.is_none_or(|to| op.end < to && op.end.is_known())
    }

    /// Counts an operation that a server sent to another server, which is not shown.
    pub fn leave_out_issued(&mut self, op: &Operation<'_>) {
        if self.is_within(op) {
            let is_of_class = self.classes.contains(op.class);
            self.hidden.add(if is_of_class { Reason::Role } else { Reason::RoleAndClass }, op.class, 1);
        }
    }

    /// Adds an operation, if it was asked for.
    #[inline]
    pub fn record(&mut self, record: &Record<'_>) {
        if !self.is_within(record.op) {
            self.outside += 1;
        } else if self.classes.contains(record.op.class) {
            self.digest.record(record);
        } else {
            self.hidden.add(Reason::Class, record.op.class, record.weight);
        }
    }
}

impl EntrySink for OperationCollector {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let is_selected = op.class == Class::User && self.classes.contains(op.class) && self.is_within(op);
        let is_routed = self.source == Source::Log && is_selected && self.routed.count(execution);
        let mut record = |op: &Operation<'_>| {
            self.record(&Record::server(self.source, op, execution).read_as(identity, entries));
        };
        // A copy only where it differs.
        match is_routed {
            true => record(&Operation { role: Role::Issued, ..*op }),
            false => record(op),
        }
    }
}

/// What was read from a source.
pub struct SourceDigest {
    /// The digest.
    pub digest: Digest,
    /// Operations of other classes, which are not in the digest.
    pub hidden: Hidden,
    /// What was read.
    pub reading: Reading,
    /// What a log contains beside operations.
    pub notices: Option<LogNotices>,
    /// A file was cut or damaged.
    pub damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    pub stopped: Vec<String>,
    /// The times of the first and the last line of a log.
    pub covers: Option<(Timestamp, Timestamp)>,
    /// The zone of its times.
    pub zone: Zone,
    /// What a reader must know of it.
    pub notes: Vec<String>,
}

/// The time range of entries, and the zone in which times are shown; `None` for that of the source.
#[derive(Clone, Default)]
pub struct TimeRange {
    /// No earlier entries.
    pub from: Option<Bound>,
    /// Only earlier entries.
    pub to: Option<Bound>,
    /// The zone.
    pub zone: Option<Zone>,
}

impl TimeRange {
    /// The part of a log with these ends that was asked for.
    pub fn observed(&self, first: Timestamp, last: Timestamp, zone: &Zone) -> ObservedParts {
        let from = self.from.map_or(first, |from| first.max(bound_in_zone(from, zone)));
        let to = self.to.map_or(last, |to| last.min(bound_in_zone(to, zone)));
        ObservedParts::between(from, to)
    }

    /// What the arguments ask for.
    ///
    /// # Errors
    /// It ends before it begins, or values are asked for that no report of operations has.
    pub fn of_operations(args: &DigestArgs) -> Result<Self> {
        if args.show_values && args.by.is_none() {
            return Err(usage!(
                "--show-values needs --by user or --by comment; without it, only the output of explain has values"
            ));
        }
        Self::of(args)
    }

    /// What the arguments ask for.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn of(args: &DigestArgs) -> Result<Self> {
        let zone = args.zone.asked();
        let from = args.from.map(|from| from.bound(zone.as_ref()));
        let to = args.to.map(|to| to.bound_after(args.from, zone.as_ref()));
        if args.by.as_deref().and_then(GroupBy::from_name).is_some_and(GroupBy::shows_values)
            && !args.show_values
        {
            return Err(usage!("users and comments are shown only with --show-values"));
        }
        let is_empty = match (from, to) {
            (Some(Bound::At(from)), Some(Bound::At(to))) => to <= from,
            (Some(Bound::Clock(from)), Some(Bound::Clock(to))) => to <= from,
            // Only the log tells how far its clock is from UTC.
            _ => false,
        };
        if is_empty {
            return Err(usage!("--to must be later than --from"));
        }
        Ok(Self { from, to, zone })
    }

    /// States that no operation is within it, where it has an end.
    pub fn without_operations(&self, read: &SourceDigest) -> Option<String> {
        let show = |bound| read.zone.show(bound_in_zone(bound, &read.zone));
        let within = match (self.from, self.to) {
            (Some(from), Some(to)) => format!("between {} and {}", show(from), show(to)),
            (Some(from), None) => format!("at {} or later", show(from)),
            (None, Some(to)) => format!("before {}", show(to)),
            (None, None) => return None,
        };
        let covers = read.covers.map_or_else(String::new, |(first, last)| {
            format!("; the log covers {} to {}", read.zone.show(first), read.zone.show(last))
        });
        Some(format!("no operation {within}{covers}."))
    }
}

impl SourceDigest {
    /// Fails if the files hold no entry at all.
    ///
    /// # Errors
    /// Not one entry could be read.
    pub fn refuse_nothing(&self, files: &[PathBuf]) -> Result<()> {
        let Reading { documents, documents_malformed, documents_other, bytes, files_damaged, .. } =
            self.reading;
        let Reading { lines_operation, lines_event, lines_other, lines_outside, .. } = self.reading;
        let lines = lines_operation + lines_event + lines_other + lines_outside;
        let is_cut = bytes == 0 && files_damaged > 0;
        if is_cut
            || !self.stopped.is_empty()
            || lines > 0
            || documents > documents_malformed + documents_other
        {
            return Ok(());
        }
        let names: Vec<_> = files.iter().map(|path| input::name(path)).collect();
        let names = names.join(", ");
        let (all, what) =
            if self.notices.is_some() { (self.reading.lines, "line") } else { (documents, "document") };
        match (bytes, self.notices.is_some()) {
            (0, _) if files.len() == 1 => bail!("{names}: this is an empty file"),
            (0, _) => bail!("all {} are empty", plural(files.len(), "file")),
            (_, true) if all == 1 => bail!("{names}: its only line is not one of a MongoDB log"),
            (_, true) => bail!("{names}: no line of a MongoDB log among {}", plural(all, "line")),
            (_, false) if documents == 0 => bail!("{names}: there is no whole document in it"),
            (_, false) if documents == documents_malformed => {
                bail!("{names}: no document could be read ({} began)", plural(all, what))
            }
            (_, false) => bail!("{names}: none of {} is of system.profile", plural(all, "document")),
        }
    }
}
