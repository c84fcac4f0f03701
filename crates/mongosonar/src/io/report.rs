//! `io report`: what a recording says.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sonar_core::io::{Analysis, Density, IoAccess, IoLosses};
use sonar_decode::io_file::{Block, Parser, Step};
use sonar_view::io::{Recording, json, svg, text};

use crate::cli::{IoReportArgs, OK, TRUNCATED};

/// Names that are kept; more are left out, their files shown by number.
const MAX_NAMES: usize = 65_536;

/// A recording, read to its end or as far as it goes.
pub struct Loaded {
    pub analysis: Analysis,
    pub files: HashMap<u32, String>,
    pub threads: HashMap<u32, String>,
    pub losses: IoLosses,
    pub info: Vec<(String, String)>,
    pub damage: Option<String>,
}

impl Loaded {
    /// As the views want it.
    pub fn recording(&self) -> Recording<'_> {
        Recording {
            analysis: &self.analysis,
            files: &self.files,
            threads: &self.threads,
            losses: self.losses,
            damage: self.damage.as_deref(),
            info: &self.info,
        }
    }
}

/// Runs the command; gives the exit code.
pub fn run(args: &IoReportArgs) -> Result<u8> {
    let loaded = load(&args.file)?;
    let out = BufWriter::new(io::stdout());
    let limit = args.limit.unwrap_or(20);
    if args.json {
        json(&loaded.recording(), limit, out)?;
    } else {
        text(&loaded.recording(), limit, out)?;
    }
    if let Some(path) = &args.svg {
        draw(&args.file, &loaded, path)?;
    }
    if let Some(damage) = &loaded.damage {
        eprintln!("mongosonar: {}: {damage}; all before that is shown", args.file.display());
        return Ok(TRUNCATED);
    }
    Ok(OK)
}

/// Cells of the picture.
const COLUMNS: usize = 320;
const ROWS: usize = 160;

/// Draws the reads of the file that the verdict is about. Reads the recording again, as only now the
/// ends of both axes are known.
fn draw(recording: &Path, loaded: &Loaded, picture: &Path) -> Result<()> {
    if recording == Path::new("-") {
        bail!("--svg reads the recording twice, which standard input cannot be: give it as a file");
    }
    let verdict = loaded.recording().verdict().0;
    let analysis = &loaded.analysis;
    let pattern = verdict.file.and_then(|id| Some((id, analysis.file(id)?)));
    let (Some((id, pattern)), Some(span)) = (pattern, analysis.span()) else {
        bail!("nothing was read, so there is nothing to draw");
    };
    let mut density = Density::new(COLUMNS, ROWS, span, pattern.reads.reach);
    load_each(recording, |access| {
        if access.file == id && access.kind.is_read() && access.given > 0 {
            density.record(access);
        }
    })?;
    let name = loaded.files.get(&id).map_or("", String::as_str);
    let file = File::create(picture).with_context(|| format!("cannot make {}", picture.display()))?;
    let mut out = BufWriter::new(file);
    svg(&density, name, &mut out).and_then(|()| io::Write::flush(&mut out))?;
    Ok(())
}

/// Reads a recording.
pub fn load(path: &Path) -> Result<Loaded> {
    load_each(path, |_| {})
}

/// The same; `each` is handed every access.
pub fn load_each(path: &Path, mut each: impl FnMut(&IoAccess)) -> Result<Loaded> {
    let name = path.display();
    let mut input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot open {name}"))?)
    };
    let mut loaded = Loaded {
        analysis: Analysis::new(),
        files: HashMap::new(),
        threads: HashMap::new(),
        losses: IoLosses::default(),
        info: Vec::new(),
        damage: None,
    };
    let mut parser = Parser::new();
    let mut buffer = vec![0; 256 * 1024];
    let (mut start, mut end) = (0, 0);
    let mut foreign = true;
    loop {
        match parser.next(&buffer[start..end]) {
            Ok(Step::Block { block, consumed }) => {
                foreign = false;
                loaded.block(block, &mut each);
                start += consumed;
            }
            Ok(Step::Need { at_least }) => {
                buffer.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                if buffer.len() < at_least {
                    buffer.resize(at_least, 0);
                }
                let got = input.read(&mut buffer[end..]).with_context(|| format!("cannot read {name}"))?;
                end += got;
                if got == 0 {
                    if let Err(error) = parser.finish(end) {
                        if foreign {
                            return Err(error).with_context(|| name.to_string());
                        }
                        loaded.damage = Some(error.to_string());
                    }
                    break;
                }
            }
            Err(error) if foreign => return Err(error).with_context(|| name.to_string()),
            Err(error) => {
                loaded.damage = Some(error.to_string());
                break;
            }
        }
    }
    loaded.analysis.end_runs();
    Ok(loaded)
}

impl Loaded {
    fn block(&mut self, block: Block<'_>, each: &mut impl FnMut(&IoAccess)) {
        let mut damaged = false;
        match block {
            Block::Other => {}
            Block::Info(mut info) => {
                let room = 256usize.saturating_sub(self.info.len());
                self.info.extend((&mut info).take(room).map(|(key, value)| (key.into(), value.into())));
                damaged = info.is_damaged();
            }
            Block::Files(mut files) => {
                for file in &mut files {
                    if self.files.len() < MAX_NAMES || self.files.contains_key(&file.file) {
                        self.files.insert(file.file, file.path.into());
                    }
                }
                damaged = files.is_damaged();
            }
            Block::Threads(mut threads) => {
                for thread in &mut threads {
                    if self.threads.len() < MAX_NAMES || self.threads.contains_key(&thread.thread) {
                        self.threads.insert(thread.thread, thread.name.into());
                    }
                }
                damaged = threads.is_damaged();
            }
            Block::Accesses(mut accesses) => {
                for access in &mut accesses {
                    self.analysis.record(&access);
                    each(&access);
                }
                damaged = accesses.is_damaged();
            }
            Block::Lost(lost) => self.losses = lost.losses(),
            Block::End { accesses } => {
                if accesses != self.analysis.accesses() {
                    self.damage.get_or_insert_with(|| {
                        format!(
                            "its end tells of {accesses} accesses, and it holds {}",
                            self.analysis.accesses()
                        )
                    });
                }
            }
        }
        if damaged {
            self.damage.get_or_insert_with(|| "an entry in it cannot be".to_string());
        }
    }
}
