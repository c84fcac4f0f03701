//! Takes snapshots, turns them into stacks, and adds these up.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use sonar_core::files::ThreadRole;
use sonar_core::stacks::{StackKey, StackTable, ThreadSample, ThreadState};
use sonar_decode::stacks::{
    AddressSpace, Image, Mapping, StackView, WaitClass, WaitClasses, call_name, executable,
};
use sonar_view::stacks::StackReport;

use super::args::StacksArgs;
use super::helper::StackSource;

/// How often mappings are read again for addresses in none of them.
const MAX_RELOADS: u32 = 10;
/// The most sentences about what could not be seen.
const MAX_LIMITS: usize = 10;

/// The bytes of an executable file.
pub enum ImageFile {
    /// A file.
    Opened(File),
    /// The code that the kernel maps into each process.
    Memory(Cursor<Vec<u8>>),
}

impl Read for ImageFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Opened(file) => file.read(buffer),
            Self::Memory(bytes) => bytes.read(buffer),
        }
    }
}

impl Seek for ImageFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Opened(file) => file.seek(to),
            Self::Memory(bytes) => bytes.seek(to),
        }
    }
}

/// What was seen so far.
pub struct StackCollector<'a> {
    args: &'a StacksArgs,
    classes: WaitClasses,
    source: StackSource,
    /// The vDSO, read before privileges were dropped.
    vdso: Vec<u8>,
    space: AddressSpace<ImageFile>,
    /// Files that were read or could not be.
    known: HashSet<(String, u64, String)>,
    reloads: u32,
    table: StackTable,
    report: StackReport,
    walk_ns: u64,
}

impl<'a> StackCollector<'a> {
    /// Starts with nothing seen.
    pub fn new(args: &'a StacksArgs, source: StackSource, report: StackReport) -> Result<Self> {
        let classes = match &args.classes {
            None => WaitClasses::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                WaitClasses::with(&text)
                    .map_err(|error| crate::exit::usage!("--classes {}: {error}", path.display()))?
            }
        };
        let mut collector = Self {
            args,
            classes,
            source,
            vdso: own_vdso().unwrap_or_default(),
            space: AddressSpace::default(),
            known: HashSet::new(),
            reloads: 0,
            table: StackTable::default(),
            report,
            walk_ns: 0,
        };
        if !collector.source.samples_processors() {
            collector.limit(
                "the kernel refuses timers (perf events): threads on a processor have no stack".into(),
            );
        }
        Ok(collector)
    }

    fn limit(&mut self, sentence: String) {
        if self.report.limits.len() < MAX_LIMITS && !self.report.limits.contains(&sentence) {
            self.report.limits.push(sentence);
        }
    }

    /// Looks at all threads once; returns `false` if the process has ended.
    ///
    /// # Errors
    /// The kernel cannot be read.
    pub fn look(&mut self) -> Result<bool> {
        let bytes = self.source.snapshot()?;
        let snapshot =
            sonar_sys::stacks::parse(&bytes).ok_or_else(|| anyhow!("a snapshot of the kernel is cut"))?;
        if snapshot.threads.is_empty() {
            return Ok(false);
        }
        let report = &mut self.report;
        report.snapshots += 1;
        report.threads = report.threads.max(snapshot.threads.len() as u64);
        report.samples += snapshot.threads.len() as u64;
        report.lost = snapshot.lost;
        self.walk_ns += snapshot.cost_ns;
        let is_new = |sample: &ThreadSample| {
            sample.registers.is_some_and(|registers| !self.space.covers(registers.ip))
        };
        if snapshot.threads.iter().any(is_new) && self.reloads < MAX_RELOADS {
            self.reloads += 1;
            self.load()?;
        }
        for sample in &snapshot.threads {
            self.add(sample);
        }
        Ok(true)
    }

    /// Reads the files that are mapped now and were not before.
    fn load(&mut self) -> Result<()> {
        let maps = self.source.maps()?;
        let mut files: BTreeMap<(String, u64, String), Vec<Mapping>> = BTreeMap::new();
        for mapping in executable(&maps) {
            let key = (mapping.inode.0.clone(), mapping.inode.1, mapping.path.clone());
            if mapping.path.starts_with(['/', '[']) {
                files.entry(key).or_default().push(mapping);
            }
        }
        for (key, mappings) in files {
            if self.known.contains(&key) {
                continue;
            }
            let path = key.2.clone();
            self.known.insert(key);
            match self.image(&mappings) {
                Ok(Some(image)) => {
                    let is_program = mappings[0].file_name() == self.report.process.name;
                    self.space.add(image, &mappings, is_program);
                }
                Ok(None) => {}
                Err(why) => self.limit(format!("{path}: {why}, so its functions have no names")),
            }
        }
        Ok(())
    }

    /// Reads the file of these mappings, with the symbols that were split off it; `None` if it needs none.
    fn image(&mut self, mappings: &[Mapping]) -> Result<Option<Image<ImageFile>>> {
        let mapping = &mappings[0];
        if mapping.path.starts_with('[') {
            let is_vdso = mapping.path == "[vdso]" && !self.vdso.is_empty();
            let bytes = is_vdso.then(|| ImageFile::Memory(Cursor::new(std::mem::take(&mut self.vdso))));
            return Ok(bytes.map(Image::read).transpose()?);
        }
        let file = self.source.mapped_file(mapping).ok_or_else(|| anyhow!("it cannot be opened"))?;
        let mut image = Image::read(ImageFile::Opened(file))?;
        if !image.has_symtab() {
            let id = image.build_id().unwrap_or_default().to_vec();
            let name = image.debug_link().unwrap_or_default().to_owned();
            let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
            if let Some(file) = self.source.symbol_file(path, &id, &name)
                && let Ok(symbols) = Image::read(ImageFile::Opened(file))
            {
                image.with_symbols_of(symbols);
            }
        }
        Ok(Some(image))
    }

    fn add(&mut self, sample: &ThreadSample) {
        let stack = self.space.unwind(sample);
        let plain: Vec<&str> =
            stack.frames.iter().map(|frame| frame.name.as_ref().map_or("?", |name| &*name.plain)).collect();
        let call = sample
            .call
            .map(|number| call_name(number).map_or_else(|| format!("call {number}"), str::to_owned));
        let view = StackView { state: sample.state, call: call.as_deref(), functions: &plain };
        let WaitClass { name: class, idle } = self.classes.classify(&view);
        let role = ThreadRole::of(&sample.name);
        let is_running = sample.state == ThreadState::OnCpu;
        let is_asked = self.args.threads.is_none_or(|asked| asked == role)
            && (!self.args.on_cpu || is_running)
            && (!self.args.waiting || !is_running);
        if !is_asked {
            self.report.not_asked += 1;
            return;
        }
        if idle && !self.args.all {
            self.report.idle += 1;
            return;
        }
        let full = self.args.full_names;
        let frames = stack.frames.iter().map(|frame| {
            let name = frame.name.as_ref().map_or_else(
                || Arc::from("?"),
                |name| {
                    if full { name.full.clone() } else { name.plain.clone() }
                },
            );
            (name, frame.library.clone())
        });
        let key = StackKey {
            class,
            idle,
            role,
            state: sample.state,
            call: call.map(Arc::from),
            frames: frames.collect(),
            cut: stack.end.reason().map(Arc::from),
        };
        self.table.add(key, sample.thread);
    }

    /// What was seen; `cpu_seconds` is what it took this process.
    pub fn finish(mut self, cpu_seconds: f64) -> StackReport {
        let report = &mut self.report;
        report.walk_ns_per_thread = self.walk_ns.checked_div(report.samples);
        report.cpu_seconds = cpu_seconds + self.walk_ns as f64 / 1e9;
        self.report.with(self.table)
    }
}

/// The code that the kernel maps into this process, which is the same in every process.
fn own_vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let vdso = executable(&maps).into_iter().find(|mapping| mapping.path == "[vdso]")?;
    let length = usize::try_from(vdso.range.end - vdso.range.start).ok()?;
    let mut bytes = vec![0; length.min(1 << 20)];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, vdso.range.start).ok()?;
    Some(bytes)
}
