//! `mongosonar compare A B`.

use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use sonar_core::{Digest, DigestSettings, Execution, GroupBy, Identity, Operation, Outcome, Role, Timestamp};
use sonar_decode::capture_file::{Parser, Step};
use sonar_decode::{Decoder, Settings, Shared};
use sonar_view::digest::Source;
use sonar_view::digest::compare::{self, Comparison, Side};
use sonar_view::digest::saved::{self, Read};
use sonar_view::{Classes, Zone};

use super::{Collect, CompareArgs, Gathered, Span, read_logs, read_profiles, whole};
use crate::cli::{ClassArg, OK, TRUNCATED, WORSE};
use crate::content::{self, Content};
use crate::exit::usage;
use crate::outfile;
use crate::queries::input;
use crate::screen;

/// Runs the command; gives the exit code.
pub fn run(args: &CompareArgs) -> Result<u8> {
    if args.a == Path::new("-") || args.b == Path::new("-") {
        return Err(usage!("compare reads files twice, so it takes none from standard input"));
    }
    let stop = super::stop()?;
    let by = args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default();
    let settings = DigestSettings { by, points: false };
    let wanted = ClassArg::classes(&args.class);
    let (a, b) = (load(&args.a, settings, wanted, &stop)?, load(&args.b, settings, wanted, &stop)?);
    let is_damaged = a.damaged || b.damaged;
    let zone = args.zone.asked();
    let side = |loaded: &Loaded, path: &Path| Side {
        name: input::name(path),
        source: loaded.source,
        zone: zone.clone().unwrap_or_else(|| loaded.zone.clone()),
    };
    let sides = [side(&a, &args.a), side(&b, &args.b)];
    let (from_a, from_b) = (a.source, b.source);
    let (a, b) = (a.digest, b.digest);
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
        compare::text(&comparison, &sides, screen::width(), &mut out)?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| compare::html(&comparison, &sides, out))?;
    }
    // What is missing may be what is worse, so that a script must know of it first.
    Ok(match (is_damaged, comparison.is_worse()) {
        (true, _) => TRUNCATED,
        (_, true) => WORSE,
        _ => OK,
    })
}

/// What a file came to.
pub struct Loaded {
    /// The digest.
    pub digest: Digest,
    /// What it is of.
    pub source: Source,
    /// No rows were left out of it.
    pub is_whole: bool,
    /// The file was cut or damaged; all before that is in it.
    pub damaged: bool,
    /// In which zone its times are.
    pub zone: Zone,
}

/// The digest of a file, whatever it is.
///
/// # Errors
/// It cannot be read, or holds nothing that can be compared.
pub fn load(
    path: &Path,
    settings: DigestSettings,
    classes: Classes,
    stop: &Arc<AtomicBool>,
) -> Result<Loaded> {
    const READABLE: [Content; 5] =
        [Content::Digest, Content::Capture, Content::ProfileBson, Content::ProfileText, Content::Log];
    let files: [PathBuf; 1] = [path.to_owned()];
    let name = input::name(path);
    let content = content::peek(input::open(path, &name, stop)?.0, &name)?.content;
    content::refuse_foreign(&name, content, &READABLE)?;
    let (gathered, source) = match content {
        Content::Digest => {
            let saved = saved::read(&whole(path, stop)?).with_context(|| input::name(path))?;
            let Read { digest, source, is_whole } = saved;
            return Ok(Loaded { digest, source, is_whole, damaged: false, zone: Zone::utc() });
        }
        Content::Capture => {
            let (digest, damaged) = capture(path, Collect::new(settings, classes), stop)?;
            let source = Source::Wire;
            return Ok(Loaded { digest, source, is_whole: !damaged, damaged, zone: Zone::utc() });
        }
        Content::ProfileBson | Content::ProfileText => {
            (read_profiles(&files, Collect::new(settings, classes), stop)?, Source::Profile)
        }
        _ => (read_logs(&files, Collect::new(settings, classes), &Span::default(), stop)?, Source::Log),
    };
    gathered.refuse_nothing(&files)?;
    // What is missing in one that is cut cannot be called new.
    let Gathered { digest, damaged, zone, .. } = gathered;
    Ok(Loaded { digest, source, is_whole: !damaged, damaged, zone })
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

/// The digest of a capture, and whether the file is cut or damaged further on.
fn capture(path: &Path, collect: Collect, stop: &Arc<AtomicBool>) -> Result<(Digest, bool)> {
    let name = input::name(path);
    let (mut reader, _) = input::open(path, &name, stop)?;
    let (mut parser, mut buffer) = (Parser::new(), vec![0u8; 4 << 20]);
    let (mut begin, mut end, mut last) = (0, 0, Timestamp::default());
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut heard = Heard(collect);
    let wrong = loop {
        match parser.next(&buffer[begin..end]) {
            // What came before the damage is good.
            Err(error) if last > Timestamp::default() => break Some(error.to_string()),
            Err(error) => return Err(error).with_context(|| name.clone()),
            Ok(Step::Packet { packet, consumed }) => {
                if packet.time.since(last) > 1_000_000_000 {
                    decoder.tick(packet.time, &mut heard);
                }
                last = last.max(packet.time);
                decoder.packet(&packet, &mut heard);
                begin += consumed;
            }
            Ok(Step::Skip { consumed }) => begin += consumed,
            Ok(Step::Need { at_least }) => {
                buffer.copy_within(begin..end, 0);
                (begin, end) = (0, end - begin);
                if buffer.len() < at_least {
                    buffer.resize(at_least, 0);
                }
                if stop.load(Ordering::Relaxed) {
                    break None;
                }
                match reader.read(&mut buffer[end..]) {
                    Ok(0) => break parser.end(end).err().map(|error| error.to_string()),
                    Ok(got) => end += got,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if last > Timestamp::default() => {
                        break Some(format!("cannot be read further: {error}"));
                    }
                    Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
                }
            }
        }
    };
    decoder.finish(last, &mut heard);
    if let Some(wrong) = &wrong {
        eprintln!("mongosonar: {name}: {wrong}; all before it has been read");
    }
    Ok((heard.0.digest, wrong.is_some()))
}
