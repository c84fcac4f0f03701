//! The functions of a process by their addresses, and what its threads wait for.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sonar_core::stacks::{ThreadSample, is_machinery, without_namespace};
use sonar_decode::stacks::{
    AddressSpace, Image, ImageError, Mapping, SharedImage, StackView, UnwoundStack, WaitClass, WaitClasses,
    call_name, executable,
};
use sonar_sys::host::regular;

use super::helper::StackSource;
use super::shared::{FileVersion, ImageFile, SharedSymbols};
use crate::large::{MemoryInUse, TakenMemory};

/// Time between two reads of the mappings because of an address in none of their files. Addresses in code that the
/// process generates never are in one.
const RELOAD_PERIOD: Duration = Duration::from_secs(5);
/// The most files to read of a process.
const MAX_FILES: usize = 4_096;
/// How long a file waits for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(2);

/// The built-in wait classes, after those of `file`.
///
/// # Errors
/// The file cannot be read, or a line of it is wrong.
pub fn wait_classes(file: Option<&Path>) -> Result<WaitClasses> {
    let Some(path) = file else { return Ok(WaitClasses::default()) };
    let text = regular::open_no_device(path).and_then(io::read_to_string);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    WaitClasses::with(&text).map_err(|error| crate::exit::usage!("--classes {}: {error}", path.display()))
}

/// What a thread does or waits for, and the name of its system call.
pub fn classify(
    classes: &WaitClasses,
    sample: &ThreadSample,
    stack: &UnwoundStack,
) -> (WaitClass, Option<Arc<str>>) {
    let functions: Vec<&str> =
        stack.frames.iter().map(|frame| frame.name.as_ref().map_or("?", |name| &*name.plain)).collect();
    let name = |number| call_name(number).map_or_else(|| format!("call {number}"), str::to_owned);
    let call = sample.call.map(name);
    let view = StackView { state: sample.state, call: call.as_deref(), functions: &functions };
    (classes.classify(&view), call.map(Arc::from))
}

/// What a thread on a processor computes: the innermost function that does not only pass a call on.
pub fn computation(stack: &UnwoundStack) -> Arc<str> {
    let mut names = stack.frames.iter().filter_map(|frame| frame.name.as_ref()).map(|name| &*name.plain);
    match names.find(|name| !is_machinery(name)) {
        Some(name) => format!("in {}", without_namespace(name)).into(),
        None => "in functions without a name".into(),
    }
}

/// A file that is mapped: its device and number, and its path.
type MappingFile = (String, u64, String);

/// The file of a mapping, and where it is mapped.
fn key_of(mapping: &Mapping) -> (MappingFile, u64) {
    let file = (mapping.inode.0.clone(), mapping.inode.1, mapping.path.clone());
    (file, mapping.range.start)
}

/// The files of mappings that are not known: one that was unmapped and mapped elsewhere is not known there.
fn unknown(
    mappings: Vec<Mapping>,
    known: &HashSet<(MappingFile, u64)>,
) -> BTreeMap<MappingFile, Vec<Mapping>> {
    let mut files = BTreeMap::<MappingFile, Vec<Mapping>>::new();
    for mapping in mappings {
        let key = key_of(&mapping);
        if mapping.path.starts_with(['/', '[']) && !known.contains(&key) {
            files.entry(key.0).or_default().push(mapping);
        }
    }
    files
}

/// A file that a process has mapped.
enum FoundImage {
    /// Another process has it mapped, too.
    Shared(Arc<SharedImage<ImageFile>>),
    /// It was read.
    Read {
        image: Box<Image<ImageFile>>,
        /// `None` for what is no file.
        version: Option<FileVersion>,
        /// The memory that it takes until its tables are counted.
        taken: Option<TakenMemory<'static>>,
    },
}

/// The executable files of a process, read when an address in them is first seen.
pub struct ProcessSymbols {
    /// Where files and mappings come from.
    pub source: StackSource,
    /// The name of the program.
    program: String,
    /// The vDSO, read before privileges were dropped.
    vdso: Vec<u8>,
    space: AddressSpace<ImageFile>,
    /// Files that were read or could not be, and where they are mapped now.
    known: HashSet<(MappingFile, u64)>,
    /// When mappings may be read again; `None` if they were not read again yet.
    next_reload: Option<Instant>,
    limits: Vec<String>,
    /// Whether a file had no room for its tables.
    lacks_room: bool,
    shared: SharedSymbols,
}

impl ProcessSymbols {
    /// No file is read yet. `vdso` is what [`own_vdso`] read.
    pub fn new(source: StackSource, program: String, vdso: Vec<u8>) -> Self {
        Self {
            source,
            program,
            vdso,
            space: AddressSpace::default(),
            known: HashSet::new(),
            next_reload: None,
            limits: Vec::new(),
            lacks_room: false,
            shared: SharedSymbols::default(),
        }
    }

    /// The same, with files and room that several processes share.
    pub fn within(self, shared: SharedSymbols) -> Self {
        Self { space: AddressSpace::within(shared.budget.clone()), shared, ..self }
    }

    /// Takes the sentences about files that could not be read.
    pub fn take_limits(&mut self) -> Vec<String> {
        std::mem::take(&mut self.limits)
    }

    /// Unwinds a sample.
    pub fn unwind(&mut self, sample: &ThreadSample) -> UnwoundStack {
        self.space.unwind(sample)
    }

    /// Reads the newly mapped files if a sample is in no known file, but not more often than every five seconds.
    ///
    /// # Errors
    /// The process or the helper has ended.
    pub fn load_for(&mut self, samples: &[ThreadSample]) -> Result<()> {
        self.load_for_at(samples, Instant::now())
    }

    fn load_for_at(&mut self, samples: &[ThreadSample], now: Instant) -> Result<()> {
        if self.lacks_at(samples, now) { self.load() } else { Ok(()) }
    }

    /// Whether newly mapped files are to be read, because a sample is in no known file: `true` at most once in five seconds.
    pub fn lacks(&mut self, samples: &[ThreadSample]) -> bool {
        self.lacks_at(samples, Instant::now())
    }

    fn lacks_at(&mut self, samples: &[ThreadSample], now: Instant) -> bool {
        let is_new = |sample: &ThreadSample| {
            sample.registers.is_some_and(|registers| !self.space.covers(registers.ip))
        };
        let lacks = self.next_reload.is_none_or(|next| now >= next) && samples.iter().any(is_new);
        if lacks {
            self.next_reload = Some(now + RELOAD_PERIOD);
        }
        lacks
    }

    /// Reads the newly mapped files, and forgets those that are no longer mapped.
    ///
    /// # Errors
    /// The process or the helper has ended, or the helper stands still, or another thread has the memory that a file
    /// takes.
    pub fn load(&mut self) -> Result<()> {
        let mappings = executable(&self.source.maps()?);
        self.space.keep(&mappings);
        let mapped: HashSet<_> = mappings.iter().map(key_of).collect();
        self.known.retain(|key| mapped.contains(key));
        for (file, mappings) in unknown(mappings, &self.known) {
            if self.known.len() >= MAX_FILES {
                continue;
            }
            let path = file.2.clone();
            for mapping in mappings.iter().take(MAX_FILES - self.known.len()) {
                self.known.insert((file.clone(), mapping.range.start));
            }
            if self.known.len() == MAX_FILES {
                self.limits.push(format!(
                    "the process has mapped {MAX_FILES} files: functions of further ones have no names"
                ));
            }
            let is_program = mappings[0].file_name() == self.program;
            match self.image(&mappings) {
                Ok(Some(FoundImage::Shared(image))) => self.space.share(image, &mappings, is_program),
                // The memory is given back once its tables are counted.
                Ok(Some(FoundImage::Read { image, version, taken: _taken })) => {
                    let added = self.space.add(*image, &mappings, is_program);
                    match (added, version) {
                        (Some(image), Some(version)) => self.shared.remember(version, &image),
                        (Some(_), None) => {}
                        (None, _) => self.note_lack_of_room(&path),
                    }
                }
                Ok(None) => {}
                Err(error) if self.source.has_ended() => return Err(error),
                Err(error) if self.source.is_late() || error.is::<MemoryInUse>() => {
                    // It is read when it is needed next.
                    self.known.retain(|(known, _)| *known != file);
                    return Err(error);
                }
                Err(why) if matches!(why.downcast_ref(), Some(ImageError::TooLarge(_))) => {
                    self.note_lack_of_room(&path);
                }
                Err(why) => self.limits.push(format!("{path}: {why}, so its functions have no names")),
            }
        }
        Ok(())
    }

    /// Says so once: further files of the process mostly have no room, either.
    fn note_lack_of_room(&mut self, path: &str) {
        if !std::mem::replace(&mut self.lacks_room, true) {
            self.limits.push(format!(
                "the tables of functions of all servers may take {} MiB: functions of {path}, and of further files \
                 for which there is no room, have no names",
                self.shared.budget.most() >> 20
            ));
        }
    }

    /// Reads the file of these mappings, with its separate file of symbols; `None` if there is nothing to read.
    fn image(&mut self, mappings: &[Mapping]) -> Result<Option<FoundImage>> {
        let mapping = &mappings[0];
        if mapping.path.starts_with('[') {
            let is_vdso = mapping.path == "[vdso]" && !self.vdso.is_empty();
            // It may be mapped again elsewhere.
            let bytes = is_vdso.then(|| ImageFile::Memory(Cursor::new(self.vdso.clone())));
            let image = bytes.map(Image::read).transpose()?;
            return Ok(image.map(|image| FoundImage::Read {
                image: Box::new(image),
                version: None,
                taken: None,
            }));
        }
        let file = self.source.mapped_file(mapping)?.ok_or_else(|| anyhow!("it cannot be opened"))?;
        let version = FileVersion::of(&file)?;
        if let Some(image) = self.shared.file(&version) {
            return Ok(Some(FoundImage::Shared(image)));
        }
        // Not earlier: the helper may take its time.
        let taken = match self.shared.large {
            Some(large) => Some(large.take(MEMORY_WAIT).ok_or(MemoryInUse)?),
            None => None,
        };
        let mut image = Image::read_within(ImageFile::Opened(file.into()), self.shared.budget.left())?;
        if !image.has_symtab() {
            let id = image.build_id().unwrap_or_default().to_vec();
            let name = image.debug_link().unwrap_or_default().to_owned();
            if let Some(file) = self.source.symbol_file(mapping, &id, &name)?
                && let Ok(symbols) =
                    Image::read_within(ImageFile::Opened(file.into()), self.shared.budget.left())
            {
                image.with_symbols_of(symbols);
            }
        }
        Ok(Some(FoundImage::Read { image: Box::new(image), version: Some(version), taken }))
    }
}

/// The code that the kernel maps into this process; it is the same in every process. Empty if it cannot be read. Call
/// it before dropping privileges.
pub fn own_vdso() -> Vec<u8> {
    read_own_vdso().unwrap_or_default()
}

fn read_own_vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let vdso = executable(&maps).into_iter().find(|mapping| mapping.path == "[vdso]")?;
    let length = usize::try_from(vdso.range.end - vdso.range.start).ok()?;
    let mut bytes = vec![0; length.min(1 << 20)];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, vdso.range.start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use sonar_core::stacks::{Registers, ThreadState};
    use sonar_decode::stacks::TableBudget;

    use crate::large::LargeMemory;

    use super::*;

    fn sample_at(ip: u64) -> ThreadSample {
        ThreadSample {
            thread: 1,
            name: "conn1".into(),
            state: ThreadState::OnCpu,
            call: None,
            registers: Some(Registers { ip, sp: 0x7000, fp: 0x7100, lr: 0 }),
            stack: Vec::new(),
            changed: false,
        }
    }

    #[test]
    fn a_file_that_is_mapped_elsewhere_is_not_known_there() {
        let maps = |start: &str, other: &str| {
            format!(
                "{start}-{start}f r-xp 00001000 08:01 7 /lib/a.so\n{other}-{other}f r-xp 00001000 08:01 8 /lib/b.so\n"
            )
        };
        let mut known = HashSet::new();
        let mut found = |maps: &str| {
            let files = unknown(executable(maps), &known);
            let starts: Vec<_> = files
                .iter()
                .flat_map(|(file, all)| all.iter().map(|one| (file.clone(), one.range.start)))
                .collect();
            known.extend(starts.iter().cloned());
            starts.into_iter().map(|(file, start)| (file.1, start)).collect::<Vec<_>>()
        };
        assert_eq!(found(&maps("1000", "5000")), [(7, 0x1000), (8, 0x5000)]);
        assert_eq!(found(&maps("1000", "5000")), []);
        assert_eq!(found(&maps("2000", "5000")), [(7, 0x2000)]);
        // In the place of the other one.
        assert_eq!(found(&maps("5000", "6000")), [(7, 0x5000), (8, 0x6000)]);
    }

    #[test]
    fn a_file_that_a_helper_opens_too_late_is_read_later() {
        let (go, may_open) = std::sync::mpsc::channel();
        let process = std::process::id();
        let source = StackSource::in_slow_thread(process, may_open);
        let mut symbols = ProcessSymbols::new(source, String::new(), Vec::new());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let program = std::env::current_exe().unwrap();
        let code = executable(&maps).into_iter().find(|map| Path::new(&map.path) == program).unwrap();
        for _ in 0..2 {
            assert!(symbols.load().is_err() && symbols.source.is_late());
        }
        assert!(!symbols.space.covers(code.range.start) && !symbols.source.has_ended());
        // One for the late answer, and more than there are files.
        const MAX_LOOKS: usize = 10_000;
        (0..MAX_LOOKS).for_each(|_| go.send(()).unwrap());
        let comes = (0..MAX_LOOKS).any(|_| {
            let loaded = symbols.load();
            assert!(loaded.is_ok() || symbols.source.is_late());
            loaded.is_ok()
        });
        assert!(comes, "the helper may answer, and does not");
        assert!(symbols.space.covers(code.range.start));
        assert!(symbols.take_limits().is_empty());
    }

    #[test]
    fn a_file_for_which_there_is_no_memory_now_is_read_later() {
        let large: &LargeMemory = Box::leak(Box::new(LargeMemory::new()));
        let source = StackSource::in_thread(std::process::id());
        let symbols = ProcessSymbols::new(source, String::new(), Vec::new());
        let mut symbols = symbols.within(SharedSymbols::new(TableBudget::default(), Some(large)));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let program = std::env::current_exe().unwrap();
        let code = executable(&maps).into_iter().find(|map| Path::new(&map.path) == program).unwrap();
        let taken = large.take(Duration::ZERO).unwrap();
        assert!(symbols.load().unwrap_err().is::<MemoryInUse>());
        assert!(!symbols.space.covers(code.range.start));
        drop(taken);
        symbols.load().unwrap();
        assert!(symbols.space.covers(code.range.start));
        assert!(large.take(Duration::ZERO).is_some(), "it is given back");
        assert!(symbols.take_limits().is_empty());
    }

    #[test]
    fn processes_of_the_same_program_have_its_tables_once() {
        let shared = SharedSymbols::default();
        let mut symbols = [(), ()].map(|()| {
            let source = StackSource::in_thread(std::process::id());
            ProcessSymbols::new(source, String::new(), Vec::new()).within(shared.clone())
        });
        symbols[0].load().unwrap();
        let used = shared.budget.used();
        symbols[1].load().unwrap();
        assert_eq!(shared.budget.used(), used);
        let code = processes_of_the_same_program_have_its_tables_once as fn() as usize as u64;
        assert!(symbols.iter().all(|one| one.space.covers(code)));
        drop(symbols);
        assert_eq!(shared.budget.used(), 0);
    }

    #[test]
    fn a_lack_of_room_is_told_once_for_each_process() {
        let shared = SharedSymbols::new(TableBudget::new(3 << 20), None);
        let source = StackSource::in_thread(std::process::id());
        let mut symbols = ProcessSymbols::new(source, String::new(), Vec::new()).within(shared);
        for _ in 0..2 {
            symbols.note_lack_of_room("/usr/bin/mongod");
        }
        let [limit] = &symbols.take_limits()[..] else { panic!("one sentence") };
        assert!(limit.contains("3 MiB") && limit.contains("/usr/bin/mongod"), "{limit}");
    }

    #[test]
    fn who_waits_for_a_helper_holds_no_memory() {
        let large: &LargeMemory = Box::leak(Box::new(LargeMemory::new()));
        let (go, may_open) = std::sync::mpsc::channel();
        let source = StackSource::in_slow_thread(std::process::id(), may_open);
        let symbols = ProcessSymbols::new(source, String::new(), Vec::new());
        let mut symbols = symbols.within(SharedSymbols::new(TableBudget::default(), Some(large)));
        let taken = large.take(Duration::ZERO).unwrap();
        // The helper is asked, and does not answer, before any memory is needed.
        assert!(symbols.load().is_err() && symbols.source.is_late());
        drop((taken, go));
    }

    #[test]
    fn generated_code_does_not_hide_files_that_are_mapped_later() {
        // It maps the code of one program as the kernel does, and later that of another one instead.
        const MAPS: &str = "
import mmap, struct, sys
def code(path):
    with open(path, 'rb') as file:
        header = file.read(64)
        (begin,), (count,) = struct.unpack_from('<Q', header, 32), struct.unpack_from('<H', header, 56)
        for number in range(count):
            file.seek(begin + 56 * number)
            kind, flags, offset, _, _, size = struct.unpack('<IIQQQQ', file.read(40))
            if kind == 1 and flags & 1:
                rights = mmap.PROT_READ | mmap.PROT_EXEC
                return mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, rights, offset=offset)
first = code(sys.argv[1])
print(end='x', flush=True)
sys.stdin.readline()
first.close()
second = code(sys.argv[2])
print(end='x', flush=True)
sys.stdin.read()
";
        let [before, program] = ["/bin/cat", "/bin/ls"].map(|path| std::fs::canonicalize(path).unwrap());
        let mut command = Command::new("python3");
        command.args(["-c", MAPS]).args([&before, &program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return println!("skipped: python3 is not installed") };
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let process = child.id();
        let mut symbols = ProcessSymbols::new(StackSource::in_thread(process), "python3".into(), Vec::new());
        let begin = Instant::now();
        // No file is mapped there, as at generated code.
        for turn in 0..100 {
            symbols.load_for_at(&[sample_at(0x10)], begin + RELOAD_PERIOD * turn).unwrap();
        }
        let knows = |symbols: &ProcessSymbols, path: &Path| {
            symbols.known.iter().any(|((.., known), _)| Path::new(known) == path)
        };
        assert!(knows(&symbols, &before));
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let code = executable(&maps).into_iter().find(|map| Path::new(&map.path) == program).unwrap();
        let sample = [sample_at(code.range.start)];
        symbols.load_for_at(&sample, begin + RELOAD_PERIOD * 100 - Duration::from_millis(1)).unwrap();
        assert!(!symbols.space.covers(code.range.start), "too soon");
        symbols.load_for_at(&sample, begin + RELOAD_PERIOD * 100).unwrap();
        assert!(symbols.space.covers(code.range.start));
        assert!(knows(&symbols, &program) && !knows(&symbols, &before), "it is no longer mapped");
        drop(input);
        child.wait().unwrap();
    }
}
