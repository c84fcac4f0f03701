//! `mongosonar compare A B`.

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use sonar_core::{Digest, DigestSettings, Execution, GroupBy, Identity, Operation, Outcome, Role, Timestamp};
use sonar_decode::capture_file::{Parser, Step};
use sonar_decode::{Decoder, Settings, Shared};
use sonar_view::Classes;
use sonar_view::digest::compare::{self, Comparison};
use sonar_view::digest::{Source, saved};

use super::{Collect, CompareArgs, FileKind, kind, read_logs, read_profiles, whole};
use crate::cli::{ClassArg, OK, WORSE};
use crate::exit::usage;
use crate::queries::input;

/// Runs the command; gives the exit code.
pub fn run(args: &CompareArgs) -> Result<u8> {
    if args.a == Path::new("-") || args.b == Path::new("-") {
        return Err(usage!("compare reads files twice, so it takes none from standard input"));
    }
    let stop = super::stop()?;
    let by = args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default();
    let settings = DigestSettings { by, points: false };
    let wanted = ClassArg::classes(&args.class);
    let Loaded { digest: a, source: from_a, .. } = load(&args.a, settings, wanted, &stop)?;
    let Loaded { digest: b, source: from_b, .. } = load(&args.b, settings, wanted, &stop)?;
    if a.settings.by != b.settings.by {
        bail!("rows are by {} in one and by {} in the other", a.settings.by.name(), b.settings.by.name());
    }
    if from_a != from_b {
        eprintln!(
            "mongosonar: one is of a {}, the other of a {}: latencies of different sources are not set beside each other",
            from_a.name(),
            from_b.name(),
        );
    }
    let comparison = Comparison::new(&a, &b, from_a == from_b);
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        compare::json(&comparison, &mut out)?;
    } else {
        let width = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        compare::text(&comparison, width.map(|(columns, _)| usize::from(columns)), &mut out)?;
    }
    out.flush()?;
    Ok(if comparison.is_worse() { WORSE } else { OK })
}

/// What a file came to.
pub struct Loaded {
    /// The digest.
    pub digest: Digest,
    /// What it is of.
    pub source: Source,
    /// No rows were left out of it.
    pub is_whole: bool,
}

/// The digest of a file, whatever it is.
pub fn load(
    path: &Path,
    settings: DigestSettings,
    classes: Classes,
    stop: &Arc<AtomicBool>,
) -> Result<Loaded> {
    let files: [PathBuf; 1] = [path.to_owned()];
    let (digest, source) = match kind(path, stop)? {
        FileKind::Saved => {
            let saved = saved::read(&whole(path, stop)?).with_context(|| input::name(path))?;
            return Ok(Loaded { digest: saved.digest, source: saved.source, is_whole: saved.is_whole });
        }
        FileKind::Profile => {
            (read_profiles(&files, Collect::new(settings, classes), stop)?.digest, Source::Profile)
        }
        FileKind::Log => (read_logs(&files, settings, classes, None, None, stop)?.digest, Source::Log),
        FileKind::Capture => (capture(path, Collect::new(settings, classes), stop)?, Source::Wire),
    };
    Ok(Loaded { digest, source, is_whole: true })
}

/// Operations of the wire, for a digest: those that were served.
struct Heard(Collect);

impl sonar_decode::Sink for Heard {
    fn operation(&mut self, op: &Operation<'_>) {
        if op.role == Role::Served && op.outcome != Outcome::InFlight {
            use sonar_decode::entry::Sink as _;
            self.0.operation(op, Identity::Exact, &Execution::default(), 1);
        }
    }
}

fn capture(path: &Path, collect: Collect, stop: &Arc<AtomicBool>) -> Result<Digest> {
    let name = input::name(path);
    let (mut reader, _) = input::open(path, &name, stop)?;
    let (mut parser, mut buffer) = (Parser::new(), vec![0u8; 4 << 20]);
    let (mut begin, mut end, mut last) = (0, 0, Timestamp::default());
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut heard = Heard(collect);
    loop {
        match parser.next(&buffer[begin..end]).with_context(|| name.clone())? {
            Step::Packet { packet, consumed } => {
                if packet.time.since(last) > 1_000_000_000 {
                    decoder.tick(packet.time, &mut heard);
                }
                last = last.max(packet.time);
                decoder.packet(&packet, &mut heard);
                begin += consumed;
            }
            Step::Skip { consumed } => begin += consumed,
            Step::Need { at_least } => {
                buffer.copy_within(begin..end, 0);
                (begin, end) = (0, end - begin);
                if buffer.len() < at_least {
                    buffer.resize(at_least, 0);
                }
                let got = reader.read(&mut buffer[end..]).with_context(|| format!("cannot read {name}"))?;
                if got == 0 || stop.load(Ordering::Relaxed) {
                    break;
                }
                end += got;
            }
        }
    }
    decoder.finish(last, &mut heard);
    Ok(heard.0.digest)
}
