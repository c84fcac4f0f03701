//! `io report`: analyses a recording.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sonar_core::files::{Analysis, Density, IoAccess, IoLosses};
use sonar_core::history::Span;
use sonar_decode::io_file::{RecordingBlock, RecordingParser, RecordingStep};
use sonar_sys::host::regular;
use sonar_view::files::{DiskBench, Recording, each, json, text};
use sonar_view::kit::plural;

use super::args::IoReportArgs;
use super::recording::{DEVICE, HOLDS};
use crate::exit::{self, usage};
use crate::input;
use crate::input::content::{self, FileContent};
use crate::report_output::fitted;

/// The most names to keep; further files are shown by number.
const MAX_NAMES: usize = 65_536;

/// A recording, read to its end or as far as it goes.
#[derive(Default)]
pub struct LoadedRecording {
    /// The name of its file.
    pub source: String,
    pub analysis: Analysis,
    pub files: HashMap<u32, String>,
    pub labels: HashMap<u32, String>,
    pub threads: HashMap<u32, String>,
    pub losses: IoLosses,
    pub info: Vec<(String, String)>,
    pub devices: HashMap<u32, u64>,
    pub device_names: HashMap<u64, String>,
    pub bench: Option<DiskBench>,
    pub damage: Option<String>,
    /// Accesses to files of pseudo file systems, which no other figure includes.
    left_out: u64,
    /// Devices of pseudo file systems, and files on them; `None` if they are shown like others.
    pseudo: Option<(HashSet<u64>, HashSet<u32>)>,
    /// A device turned out to be of a pseudo file system after a file on it had been taken for another one.
    is_pseudo_late: bool,
}

/// Whether a file is on a pseudo file system: by its path, and because its device has no disk. By default a recording
/// holds none.
fn is_pseudo(path: &str, device: u64) -> bool {
    let major = device >> 20;
    major == 0 && ["/proc/", "/sys/"].iter().any(|point| path.starts_with(point))
}

impl LoadedRecording {
    /// For the views.
    pub fn recording(&self) -> Recording<'_> {
        Recording {
            source: &self.source,
            analysis: &self.analysis,
            files: &self.files,
            labels: &self.labels,
            threads: &self.threads,
            losses: self.losses,
            damage: self.damage.as_deref(),
            info: &self.info,
            devices: &self.devices,
            device_names: &self.device_names,
            bench: self.bench.as_ref(),
            left_out: self.left_out,
        }
    }
}

/// Runs the command; returns the exit code.
pub fn run(args: &IoReportArgs) -> Result<u8> {
    if args.each {
        return list(&args.file);
    }
    // Errors in it are reported before a long recording is read.
    let bench = args.bench.as_deref().map(bench).transpose()?;
    let mut loaded = load_as(&args.file, args.pseudo_filesystems)?;
    loaded.bench = bench;
    let pictures = if args.output.html.is_some() { pictures(&args.file, &loaded)? } else { Vec::new() };
    let limit = args.limit.unwrap_or(20);
    args.output.write(
        |out| json(&loaded.recording(), limit, &pictures, out),
        fitted(|out| text(&loaded.recording(), limit, out)),
    )?;
    Ok(code_of(&args.file, loaded.damage.as_deref()))
}

/// The exit code of a recording that was read as far as it goes; says why not to its end.
pub fn code_of(recording: &Path, damage: Option<&str>) -> u8 {
    exit::of_damage(&recording.to_string_lossy(), damage, "all before that is shown")
}

/// The reads that a run of `disk bench` measured.
fn bench(path: &Path) -> Result<DiskBench> {
    let run = crate::disk::compare::read(path)?;
    DiskBench::of(&run).map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// Prints every access, one per line.
fn list(recording: &Path) -> Result<u8> {
    let mut out = BufWriter::new(io::stdout());
    let mut failed = None;
    let mut files: HashMap<u32, String> = HashMap::new();
    each::heading(&mut out)?;
    let damage = blocks(recording, |block| match block {
        RecordingBlock::Files(mut entries) => {
            for file in (&mut entries).filter(|file| !file.path.is_empty()) {
                if files.len() < MAX_NAMES || files.contains_key(&file.file) {
                    files.insert(file.file, file.path.into());
                }
            }
        }
        RecordingBlock::Accesses(mut accesses) if failed.is_none() => {
            let path = |access: &IoAccess| files.get(&access.file).map_or("", String::as_str);
            failed = accesses.try_for_each(|access| each::access(&access, path(&access), &mut out)).err();
        }
        _ => {}
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    out.flush()?;
    Ok(code_of(recording, damage.as_deref()))
}

/// Columns and rows of a picture in the page.
const CELLS: (usize, usize) = (240, 120);
/// The most files with a picture in the page.
const PICTURES: usize = 6;

/// Pictures of the files on which most time was spent in reads, for the page. Reads the recording again, as only now
/// the ends of both axes are known.
fn pictures(recording: &Path, loaded: &LoadedRecording) -> Result<Vec<(u32, Density)>> {
    if !input::is_rereadable(recording) {
        return Err(usage!("a page reads the recording twice, which no pipe can be: give it as a file"));
    }
    let Some((from, to)) = loaded.analysis.span() else { return Ok(Vec::new()) };
    let mut pictures: Vec<_> = loaded
        .recording()
        .ranked()
        .into_iter()
        .take(PICTURES)
        .filter(|(_, file)| file.reads.reach > 0)
        .map(|(id, file)| (id, Density::new(CELLS.0, CELLS.1, Span { from, to }, file.reads.reach)))
        .collect();
    each_access(recording, |access| {
        if access.kind.is_read()
            && access.given > 0
            && let Some((_, density)) = pictures.iter_mut().find(|(file, _)| *file == access.file)
        {
            density.record(access);
        }
    })?;
    Ok(pictures)
}

/// Reads a recording; files of pseudo file systems are left out.
pub fn load(path: &Path) -> Result<LoadedRecording> {
    load_as(path, false)
}

fn load_as(path: &Path, with_pseudo: bool) -> Result<LoadedRecording> {
    let loaded = load_without(path, (!with_pseudo).then(HashSet::new))?;
    match loaded.pseudo {
        // Read again: now all of these devices are known from the first access on.
        Some((devices, _)) if loaded.is_pseudo_late && input::is_rereadable(path) => {
            load_without(path, Some(devices))
        }
        _ => Ok(loaded),
    }
}

/// Leaves out files on these devices, and on those that turn out to be of a pseudo file system.
fn load_without(path: &Path, devices: Option<HashSet<u64>>) -> Result<LoadedRecording> {
    let mut loaded = LoadedRecording {
        source: path.display().to_string(),
        pseudo: devices.map(|devices| (devices, HashSet::new())),
        ..LoadedRecording::default()
    };
    let damage = blocks(path, |block| loaded.block(block))?;
    loaded.damage = loaded.damage.or(damage);
    loaded.analysis.finish();
    Ok(loaded)
}

/// Passes on every access of a recording, up to where it is cut.
pub fn each_access(path: &Path, mut each: impl FnMut(&IoAccess)) -> Result<()> {
    blocks(path, |block| {
        if let RecordingBlock::Accesses(accesses) = block {
            accesses.for_each(|access| each(&access));
        }
    })?;
    Ok(())
}

/// Passes on the blocks of a recording; returns why it is cut, if it is.
///
/// # Errors
/// The file cannot be opened, or holds something else.
pub fn blocks(path: &Path, mut each: impl FnMut(RecordingBlock<'_>)) -> Result<Option<String>> {
    let name = path.display();
    let mut input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(regular::open_no_device(path).with_context(|| format!("cannot open {name}"))?)
    };
    let mut parser = RecordingParser::new();
    let mut buffer = vec![0; 256 * 1024];
    let (mut start, mut end) = (0, 0);
    let mut foreign = true;
    loop {
        match parser.next(&buffer[start..end]) {
            Ok(RecordingStep::Block { block, consumed }) => {
                foreign = false;
                each(block);
                start += consumed;
            }
            Ok(RecordingStep::Need { at_least }) => {
                buffer.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                if buffer.len() < at_least {
                    buffer.resize(at_least, 0);
                }
                let got = input.read(&mut buffer[end..]).with_context(|| format!("cannot read {name}"))?;
                end += got;
                if got == 0 {
                    if let Err(error) = parser.finish(end) {
                        if foreign && end == 0 {
                            bail!("{name}: this is an empty file");
                        }
                        if foreign {
                            bail!(
                                "{name}: {}",
                                content::instead(&buffer[..end], &mut input, FileContent::Accesses, &error)
                            );
                        }
                        return Ok(Some(error.to_string()));
                    }
                    return Ok(None);
                }
            }
            Err(error) if foreign => {
                bail!(
                    "{name}: {}",
                    content::instead(&buffer[start..end], &mut input, FileContent::Accesses, &error)
                )
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
}

impl LoadedRecording {
    /// Whether accesses to this file are left out.
    fn leaves_out(&mut self, file: u32, path: &str, device: u64) -> bool {
        let Some((devices, files)) = &mut self.pseudo else { return false };
        if is_pseudo(path, device) && devices.len() < MAX_NAMES && devices.insert(device) {
            self.is_pseudo_late |= self.devices.values().any(|known| *known == device);
        }
        // A file without a folder in its name is judged by the others on its device.
        let out = devices.contains(&device) && (files.len() < MAX_NAMES || files.contains(&file));
        if out {
            files.insert(file);
        }
        out
    }

    fn block(&mut self, block: RecordingBlock<'_>) {
        let mut damaged = false;
        match block {
            RecordingBlock::Other => {}
            RecordingBlock::Info(mut info) => {
                for (key, value) in &mut info {
                    if let Some(file) = key.strip_prefix(HOLDS).and_then(|file| file.parse().ok()) {
                        if self.labels.len() < MAX_NAMES {
                            self.labels.insert(file, value.into());
                        }
                    } else if let Some(device) = key.strip_prefix(DEVICE).and_then(|n| n.parse().ok()) {
                        if self.device_names.len() < MAX_NAMES {
                            self.device_names.insert(device, value.into());
                        }
                    } else if let Some(known) = self.info.iter_mut().find(|(known, _)| known == key) {
                        // Recorded again because it has changed.
                        known.1 = value.into();
                    } else if self.info.len() < 256 {
                        self.info.push((key.into(), value.into()));
                    }
                }
                damaged = info.is_damaged();
            }
            RecordingBlock::Files(mut files) => {
                for file in &mut files {
                    if self.leaves_out(file.file, file.path, file.device) {
                        continue;
                    }
                    if self.files.len() < MAX_NAMES || self.files.contains_key(&file.file) {
                        self.files.insert(file.file, file.path.into());
                        self.devices.insert(file.file, file.device);
                    }
                }
                damaged = files.is_damaged();
            }
            RecordingBlock::Threads(mut threads) => {
                for thread in &mut threads {
                    if self.threads.len() < MAX_NAMES || self.threads.contains_key(&thread.thread) {
                        self.threads.insert(thread.thread, thread.name.into());
                    }
                }
                damaged = threads.is_damaged();
            }
            RecordingBlock::Accesses(mut accesses) => {
                for access in &mut accesses {
                    if self.pseudo.as_ref().is_some_and(|(_, files)| files.contains(&access.file)) {
                        self.left_out += 1;
                    } else {
                        self.analysis.record(&access);
                    }
                }
                damaged = accesses.is_damaged();
            }
            RecordingBlock::Lost(lost) => self.losses = lost.losses(),
            RecordingBlock::End { accesses } => {
                let held = self.analysis.accesses() + self.left_out;
                if accesses != held {
                    self.damage.get_or_insert_with(|| {
                        format!("its end counts {}, and it holds {held}", plural(accesses, "access"))
                    });
                }
            }
        }
        if damaged {
            self.damage.get_or_insert_with(|| "an entry in it cannot be".to_string());
        }
    }
}
