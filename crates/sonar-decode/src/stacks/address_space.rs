//! The executable files of a process: unwinds its stacks and names the addresses in them.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;

use framehop::{
    CacheNative, Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use sonar_core::stacks::{Registers, ThreadSample};

use super::function_name::FunctionName;
use super::image::Image;
use super::maps::Mapping;
use super::shared::{SharedImage, TableBudget, TakenBytes};

/// The most frames of a stack.
const MAX_FRAMES: usize = 512;
/// The most addresses whose names are remembered.
const MAX_NAMES: usize = 200_000;
/// What a name takes in addition to its texts, in bytes: a table has room for up to twice as many as it has.
const NAME_PLACE: usize = 2 * size_of::<(u64, (NamedFrame, TakenBytes))>();
/// The most executable mappings of a process.
const MAX_MODULES: usize = 4_096;

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFrame {
    /// Its name; `None` if no symbol covers the address.
    pub name: Option<FunctionName>,
    /// The file name of the library; `None` in the program itself.
    pub library: Option<Arc<str>>,
}

/// Why a stack ends where it does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// It is whole: its last frame is the one where the thread began.
    Complete,
    /// The thread ran on a processor, and no sample hit it.
    NotSampled,
    /// The thread ran while its stack was copied.
    Changed,
    /// Nothing was copied: it cannot be read, or there was no room.
    NotCopied,
    /// It goes on beyond the bytes that were copied.
    Deeper,
    /// It has more frames than are kept.
    TooManyFrames,
    /// An address on it cannot be unwound.
    Lost,
}

impl StackEnd {
    /// Why the stack is cut, for people; `None` if it is whole.
    pub const fn cut_reason(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::NotSampled => Some("it ran, and no sample hit it"),
            Self::Changed => Some("it ran while its stack was copied"),
            Self::NotCopied => Some("its stack was not copied"),
            Self::Deeper => Some("it is deeper than what was copied"),
            Self::TooManyFrames => Some("it has more than 512 frames"),
            Self::Lost => Some("an address cannot be unwound"),
        }
    }
}

/// A stack: the innermost function first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwoundStack {
    /// Its functions.
    pub frames: Vec<NamedFrame>,
    /// Why it ends.
    pub end: StackEnd,
}

/// An executable mapping and its file.
struct ModuleOfProcess {
    range: Range<u64>,
    /// Device and number of the file.
    inode: (String, u64),
    bias: u64,
    /// Its number in `images`.
    image: usize,
    library: Option<Arc<str>>,
}

/// An image that is mapped.
struct MappedImage<R> {
    image: Arc<SharedImage<R>>,
    /// Its mappings.
    modules: usize,
}

/// The images of a process.
pub struct AddressSpace<R> {
    /// By number. One is dropped with its last mapping.
    images: HashMap<usize, MappedImage<R>>,
    /// The number of the next image.
    next_image: usize,
    modules: Vec<ModuleOfProcess>,
    /// Room for the tables of all images.
    budget: TableBudget,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Names that were looked up, with the room that each takes.
    names: HashMap<u64, (NamedFrame, TakenBytes)>,
}

impl<R: Read + Seek> Default for AddressSpace<R> {
    fn default() -> Self {
        Self::within(TableBudget::default())
    }
}

impl<R: Read + Seek> AddressSpace<R> {
    /// An empty one, whose tables take their room from this.
    pub fn within(budget: TableBudget) -> Self {
        Self {
            images: HashMap::new(),
            next_image: 0,
            modules: Vec::new(),
            budget,
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            names: HashMap::new(),
        }
    }

    /// Adds a file with its mappings. `is_program` is true for the file from which the process was started. Leaves out
    /// mappings of parts that are not executable, and those beyond 4,096 of all files. Returns what another address space
    /// may [share](Self::share); `None` if there is no room for the file.
    pub fn add(
        &mut self,
        image: Image<R>,
        mappings: &[Mapping],
        is_program: bool,
    ) -> Option<Arc<SharedImage<R>>> {
        // It may have its room.
        self.replace(mappings);
        if self.budget.left() < image.bytes() {
            // Names can be looked up again.
            self.names.clear();
        }
        let image = Arc::new(SharedImage::new(image, &self.budget)?);
        self.share(image.clone(), mappings, is_program);
        Some(image)
    }

    /// Adds a file that another address space has added, as [`Self::add`] does.
    pub fn share(&mut self, image: Arc<SharedImage<R>>, mappings: &[Mapping], is_program: bool) {
        self.replace(mappings);
        let known = image.lock();
        let (number, mut modules) = (self.next_image, 0);
        for mapping in mappings {
            let Some(bias) = known.bias(mapping.range.start, mapping.offset) else { continue };
            if self.modules.len() >= MAX_MODULES {
                break;
            }
            let [frames, header] = known.unwind.clone().map(|section| match section {
                Some(section) => (Some(section.addresses), Some(section.bytes)),
                None => (None, None),
            });
            let sections = ExplicitModuleSectionInfo {
                eh_frame_svma: frames.0,
                eh_frame: frames.1,
                eh_frame_hdr_svma: header.0,
                eh_frame_hdr: header.1,
                ..ExplicitModuleSectionInfo::default()
            };
            let name = mapping.file_name();
            self.unwinder.add_module(Module::new(name.to_owned(), mapping.range.clone(), bias, sections));
            self.modules.push(ModuleOfProcess {
                range: mapping.range.clone(),
                inode: mapping.inode.clone(),
                bias,
                image: number,
                library: (!is_program).then(|| name.into()),
            });
            modules += 1;
        }
        drop(known);
        if modules > 0 {
            self.next_image += 1;
            self.images.insert(number, MappedImage { image, modules });
        }
        self.names.clear();
    }

    /// Forgets what was in the place of these mappings: it no longer exists.
    fn replace(&mut self, mappings: &[Mapping]) {
        for mapping in mappings {
            let new = &mapping.range;
            self.remove(|one| one.range.start < new.end && new.start < one.range.end);
        }
    }

    /// Forgets what is not among these mappings, which are all of the process: it was unmapped. Its tables are freed.
    pub fn keep(&mut self, mappings: &[Mapping]) {
        let mapped: HashSet<(&(String, u64), u64)> =
            mappings.iter().map(|mapping| (&mapping.inode, mapping.range.start)).collect();
        self.remove(|one| !mapped.contains(&(&one.inode, one.range.start)));
    }

    /// Forgets mappings that no longer exist, and the images without any.
    fn remove(&mut self, is_gone: impl Fn(&ModuleOfProcess) -> bool) {
        for gone in self.modules.extract_if(.., |one| is_gone(one)) {
            self.unwinder.remove_module(gone.range.start);
            self.names.clear();
            if let Some(known) = self.images.get_mut(&gone.image) {
                known.modules -= 1;
                if known.modules == 0 {
                    self.images.remove(&gone.image);
                }
            }
        }
    }

    /// Whether the address is in a mapping that was added.
    pub fn covers(&self, address: u64) -> bool {
        self.modules.iter().any(|module| module.range.contains(&address))
    }

    /// Unwinds a sample.
    pub fn unwind(&mut self, sample: &ThreadSample) -> UnwoundStack {
        let Some(registers) = sample.registers else {
            return UnwoundStack { frames: Vec::new(), end: StackEnd::NotSampled };
        };
        if sample.changed {
            return UnwoundStack { frames: Vec::new(), end: StackEnd::Changed };
        }
        let (addresses, end) = self.addresses(registers, &sample.stack);
        let frames = addresses.into_iter().map(|address| self.frame(address)).collect();
        UnwoundStack { frames, end }
    }

    /// The addresses of a stack, by which functions are looked up.
    fn addresses(&mut self, registers: Registers, stack: &[u8]) -> (Vec<u64>, StackEnd) {
        let copied = registers.sp..registers.sp.saturating_add(stack.len() as u64);
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(copied.start).ok_or(())?).map_err(|_| ())?;
            let word = stack.get(at..).and_then(|bytes| bytes.first_chunk().copied()).ok_or(())?;
            Ok(u64::from_ne_bytes(word))
        };
        let start = unwind_registers(registers);
        let mut frames = self.unwinder.iter_frames(registers.ip, start, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        loop {
            if addresses.len() >= MAX_FRAMES {
                return (addresses, StackEnd::TooManyFrames);
            }
            match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => addresses.push(address),
                // The instruction of the call is before the address to which it returns.
                Ok(Some(FrameAddress::ReturnAddress(address))) => addresses.push(address.get() - 1),
                Ok(None) => return (addresses, StackEnd::Complete),
                Err(Error::CouldNotReadStack(_)) if copied.is_empty() => {
                    return (addresses, StackEnd::NotCopied);
                }
                Err(Error::CouldNotReadStack(address)) if address >= copied.end => {
                    return (addresses, StackEnd::Deeper);
                }
                Err(_) => return (addresses, StackEnd::Lost),
            }
        }
    }

    fn frame(&mut self, address: u64) -> NamedFrame {
        if let Some((frame, _)) = self.names.get(&address) {
            return frame.clone();
        }
        let module = self.modules.iter().find(|module| module.range.contains(&address));
        let frame = match module {
            Some(module) => {
                let known = self.images.get(&module.image);
                let at = address.wrapping_sub(module.bias);
                let name = known.and_then(|known| known.image.lock().name_at(at));
                NamedFrame {
                    name: name.map(|name| FunctionName::new(&name)),
                    library: module.library.clone(),
                }
            }
            None => NamedFrame { name: None, library: Some("[unknown]".into()) },
        };
        let texts = frame.name.as_ref().map_or(0, FunctionName::heap_bytes);
        if self.names.len() < MAX_NAMES
            && let Some(taken) = self.budget.take(NAME_PLACE + texts)
        {
            self.names.insert(address, (frame.clone(), taken));
        }
        frame
    }
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(registers: Registers) -> UnwindRegsNative {
    // Addresses of user space have 48 bits; the bits above may sign a return address.
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use sonar_core::stacks::ThreadState;

    use super::*;

    /// The file of this program.
    fn image() -> Image<File> {
        Image::read(File::open(std::env::current_exe().unwrap()).unwrap()).unwrap()
    }

    /// Where it is mapped.
    fn own_mappings() -> Vec<Mapping> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let all = super::super::executable(&maps).into_iter();
        all.filter(|map| own.ends_with(map.file_name())).collect()
    }

    #[test]
    fn a_mapping_replaces_those_in_its_place() {
        let (mut space, mappings) = (AddressSpace::default(), own_mappings());
        let ip = mappings[0].range.start + 0x100;
        let library = |space: &mut AddressSpace<File>| space.frame(ip).library;
        assert!(space.add(image(), &mappings, true).is_some());
        assert_eq!(library(&mut space), None, "it is the program");
        let later = Mapping { path: "/lib/later.so".to_owned(), ..mappings[0].clone() };
        let images = if mappings.len() > 1 { 2 } else { 1 };
        for _ in 0..3 {
            assert!(space.add(image(), std::slice::from_ref(&later), false).is_some());
            assert_eq!(library(&mut space).as_deref(), Some("later.so"));
            space.names.clear();
            assert_eq!((space.modules.len(), space.images.len()), (mappings.len(), images));
            assert_eq!(space.budget.used(), images * image().bytes(), "what was replaced is freed");
        }
    }

    #[test]
    fn what_is_no_longer_mapped_is_freed() {
        let (mut space, mappings) = (AddressSpace::default(), own_mappings());
        let other = Mapping { range: 0x10_0000..0x10_1000, ..mappings[0].clone() };
        for _ in 0..3 {
            assert!(space.add(image(), &mappings, true).is_some());
            assert!(space.add(image(), std::slice::from_ref(&other), false).is_some());
            let bytes = space.budget.used();
            space.keep(&mappings);
            assert!(space.covers(mappings[0].range.start) && !space.covers(other.range.start));
            assert_eq!((space.images.len(), space.budget.used()), (1, bytes / 2));
            space.frame(mappings[0].range.start);
            // Another file in the same place.
            let moved = Mapping { inode: ("00:00".to_owned(), 1), ..mappings[0].clone() };
            space.keep(&[moved]);
            assert_eq!(
                (space.images.len(), space.modules.len(), space.budget.used(), space.names.len()),
                (0, 0, 0, 0)
            );
        }
    }

    #[test]
    fn files_beyond_the_room_for_tables_are_refused() {
        let mappings = own_mappings();
        // Room for one of two processes.
        let budget = TableBudget::new(image().bytes() * 3 / 2);
        let [mut space, mut other] = [(), ()].map(|()| AddressSpace::within(budget.clone()));
        assert!(space.add(image(), &mappings, true).is_some());
        assert!(space.covers(mappings[0].range.start));
        assert!(other.add(image(), &mappings, true).is_none());
        assert!(!other.covers(mappings[0].range.start));
        assert_eq!(budget.left(), image().bytes().div_ceil(2));
        drop(space);
        assert_eq!(budget.used(), 0);
        assert!(other.add(image(), &mappings, true).is_some());
    }

    #[test]
    fn a_file_of_several_processes_has_its_tables_once() {
        let mappings = own_mappings();
        let budget = TableBudget::new(image().bytes() * 3 / 2);
        let [mut space, mut other] = [(), ()].map(|()| AddressSpace::within(budget.clone()));
        let shared = space.add(image(), &mappings, true).unwrap();
        other.share(shared.clone(), &mappings, true);
        let address = a_file_of_several_processes_has_its_tables_once as fn() as usize as u64;
        let used = budget.used();
        assert!(used <= image().bytes() + 1024, "{used}");
        assert_eq!(space.frame(address), other.frame(address));
        assert!(other.frame(address).name.is_some());
        drop((space, shared));
        assert!(other.frame(address + 1).name.is_some(), "the one that has it keeps it");
        drop(other);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_stack_of_which_nothing_was_copied_says_so() {
        let registers = Registers { ip: 0x1000, sp: 0x7000, fp: 0x7100, lr: 0x2000 };
        let sample = ThreadSample {
            thread: 1,
            name: "conn1".into(),
            state: ThreadState::Sleeping,
            call: Some(202),
            registers: Some(registers),
            stack: Vec::new(),
            changed: false,
        };
        let stack = AddressSpace::<File>::default().unwind(&sample);
        assert_eq!(stack.end, StackEnd::NotCopied);
        assert_eq!(stack.end.cut_reason(), Some("its stack was not copied"));
        assert_eq!(stack.frames.len(), 1);
    }
}
