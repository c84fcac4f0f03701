//! Symbols and unwind information of an ELF file.

use std::cell::Cell;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile, ElfFile64, ProgramHeader, SectionHeader, Sym};
use object::read::{Object, ObjectSection, ReadCache, ReadRef};

/// The most symbols of a file.
const MAX_SYMBOLS: usize = 4_000_000;
/// The longest section that is read, in bytes.
const MAX_SECTION: u64 = 256 << 20;
/// The most bytes to read of a file for its sections and tables, since a damaged file may name the same bytes many
/// times.
const MAX_READ: u64 = 1 << 30;
/// Bytes that reading the name of a section counts for.
const NAME_READ: u64 = 4_096;
/// The longest name of a function, in bytes; a longer one is cut.
const MAX_NAME: usize = 8_192;
/// The most segments of a file.
const MAX_SEGMENTS: usize = 256;
/// The longest build id, in bytes.
pub const MAX_BUILD_ID: usize = 64;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is no ELF file of 64 bits, or it is damaged.
    #[error("no readable ELF file of 64 bits: {0}")]
    Format(String),
}

/// A function: addresses as the file states them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Symbol {
    start: u64,
    end: u64,
    /// Where its name is, from the beginning of the table of names.
    name: u32,
}

/// A part of the file that is mapped into memory to be executed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct ExecutedSegment {
    offset: u64,
    address: u64,
    length: u64,
}

/// A section that unwinding needs: its stated addresses and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) addresses: Range<u64>,
    pub(super) bytes: Arc<[u8]>,
}

/// Reads of a file that may be damaged or malicious: its headers set the length of each section, up to that of the
/// file, and a sparse file may be very long.
struct BoundedReads<'a, R: Read + Seek> {
    cache: &'a ReadCache<R>,
    /// Bytes that may still be read.
    left: &'a Cell<u64>,
}

impl<R: Read + Seek> Clone for BoundedReads<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Read + Seek> Copy for BoundedReads<'_, R> {}

impl<R: Read + Seek> BoundedReads<'_, R> {
    fn take(self, bytes: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(())?);
        if bytes > MAX_SECTION { Err(()) } else { Ok(()) }
    }
}

impl<'a, R: Read + Seek> ReadRef<'a> for BoundedReads<'a, R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.take(NAME_READ)?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

/// What is used of an ELF file. Names are read from it when they are asked for.
#[derive(Debug)]
pub struct Image<R> {
    file: R,
    segments: Vec<ExecutedSegment>,
    symbols: Vec<Symbol>,
    /// The place of the table of names in the file.
    names: Range<u64>,
    has_symtab: bool,
    build_id: Option<Vec<u8>>,
    debug_link: Option<String>,
    pub(super) unwind: [Option<Section>; 2],
}

/// Whether `.eh_frame_hdr` has the form that all linkers write, and points only into the frames. Unwinding relies on
/// both.
fn is_search_table(table: &Section, frames: &Range<u64>) -> bool {
    /// Version 1; the frames relative to their field, the count absolute, the table relative to the section.
    const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let word = |bytes: &[u8]| bytes.first_chunk().copied().map(i32::from_le_bytes);
    let base = table.addresses.start;
    let Some((&FORM, rest)) = table.bytes.split_first_chunk() else { return false };
    let Some((head, entries)) = rest.split_at_checked(8) else { return false };
    let frames_at = word(head).and_then(|offset| (base + 4).checked_add_signed(offset.into()));
    let count = word(&head[4..]).and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|count| frames_at == Some(frames.start) && *count <= entries.len() / 8)
    else {
        return false;
    };
    entries.chunks_exact(8).take(count).all(|entry| {
        let place = word(&entry[4..]).and_then(|offset| base.checked_add_signed(offset.into()));
        place.is_some_and(|place| frames.contains(&place))
    })
}

/// The sections of [`Image::unwind`], in this order.
pub(super) const EH_FRAME: [&str; 2] = [".eh_frame", ".eh_frame_hdr"];

impl<R: Read + Seek> Image<R> {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ImageError`]. A table that is too large or damaged is left out.
    pub fn read(file: R) -> Result<Self, ImageError> {
        let cache = ReadCache::new(file);
        let left = Cell::new(MAX_READ);
        let format = |error: object::read::Error| ImageError::Format(error.to_string());
        let bounded = BoundedReads { cache: &cache, left: &left };
        let elf = ElfFile64::<Endianness, _>::parse(bounded).map_err(format)?;
        let segments = segments(&elf);
        let (symbols, names, has_symtab) = symbols(&elf);
        let build_id = elf.build_id().ok().flatten().filter(|id| (2..=MAX_BUILD_ID).contains(&id.len()));
        let build_id = build_id.map(<[u8]>::to_vec);
        let debug_link = elf.gnu_debuglink().ok().flatten();
        let debug_link = debug_link.and_then(|(name, _)| String::from_utf8(name.to_vec()).ok());
        // It becomes a part of a path.
        let is_name = |name: &String| {
            !name.is_empty() && name.len() < 256 && !name.contains('/') && !name.starts_with('.')
        };
        let debug_link = debug_link.filter(is_name);
        let unwind = EH_FRAME.map(|name| {
            let section = elf.section_by_name(name).filter(|section| section.size() <= MAX_SECTION)?;
            // Sections that are loaded are never compressed.
            let bytes: Arc<[u8]> = section.data().ok()?.into();
            let start = section.address();
            Some(Section { addresses: start..start.checked_add(bytes.len() as u64)?, bytes })
        });
        // If the search table contradicts the frames, stacks are walked by frame pointers.
        let unwind = match unwind {
            [Some(frames), Some(table)] if !is_search_table(&table, &frames.addresses) => [None, None],
            other => other,
        };
        drop(elf);
        Ok(Self {
            file: cache.into_inner(),
            segments,
            symbols,
            names,
            has_symtab,
            build_id,
            debug_link,
            unwind,
        })
    }

    /// Approximate bytes of memory that its tables take.
    pub(super) fn bytes(&self) -> usize {
        let unwind: usize = self.unwind.iter().flatten().map(|section| section.bytes.len()).sum();
        unwind + self.symbols.len() * size_of::<Symbol>()
    }

    /// Takes the symbols of another file of the same program, which was split off when this one was stripped. Takes
    /// nothing if it is another program's.
    pub fn with_symbols_of(&mut self, mut other: Self) {
        if other.build_id.is_none() || other.build_id != self.build_id || !other.has_symtab {
            return;
        }
        std::mem::swap(&mut self.file, &mut other.file);
        self.symbols = other.symbols;
        self.names = other.names;
        self.has_symtab = true;
    }

    /// The name of the function at an address, as the file states addresses; it is mangled. `None` outside of every
    /// function: symbols are taken by their sizes, so a function without a symbol does not get its neighbour's name.
    pub fn name_at(&mut self, address: u64) -> Option<String> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        // Functions may lie within others, and several have the same start.
        let inside = self.symbols[..after].iter().rev().take(16).filter(|symbol| address < symbol.end);
        let start = inside.clone().map(|symbol| symbol.start).max()?;
        let names: Vec<u32> =
            inside.filter(|symbol| symbol.start == start).map(|symbol| symbol.name).collect();
        let names = names.into_iter().filter_map(|name| self.text(name));
        // `poll` rather than `__poll`.
        names.min_by_key(|name| {
            (name.bytes().take_while(|byte| *byte == b'_').count(), name.len(), name.clone())
        })
    }

    fn text(&mut self, name: u32) -> Option<String> {
        let start = self.names.start.checked_add(u64::from(name)).filter(|start| *start < self.names.end)?;
        let length = (self.names.end - start).min(MAX_NAME as u64);
        self.file.seek(SeekFrom::Start(start)).ok()?;
        let mut bytes = Vec::new();
        // Most names are short.
        for part in [length.min(256), length.saturating_sub(256)] {
            let before = bytes.len();
            (&mut self.file).take(part).read_to_end(&mut bytes).ok()?;
            if let Some(end) = memchr::memchr(0, &bytes[before..]) {
                bytes.truncate(before + end);
                break;
            }
        }
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The difference between the address where a part of the file is mapped and the address that the file states for
    /// it; `None` if that part is not to be executed. `offset` is the place of the part in the file.
    pub fn bias(&self, mapped: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&ExecutedSegment| {
            // A mapping begins on a page, the segment perhaps not.
            let page = segment.offset & !0xfff;
            offset >= page && offset < segment.offset.saturating_add(segment.length)
        };
        let segment = self.segments.iter().find(holds)?;
        let stated = segment.address.wrapping_add(offset).wrapping_sub(segment.offset);
        Some(mapped.wrapping_sub(stated))
    }

    /// Whether it has a full table of symbols, with those that are not exported.
    pub fn has_symtab(&self) -> bool {
        self.has_symtab
    }

    /// Its build id; `None` if it has none.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The name of the file that has its symbols, without a folder; `None` if it names none.
    pub fn debug_link(&self) -> Option<&str> {
        self.debug_link.as_deref()
    }
}

fn segments<'a, R: ReadRef<'a>>(elf: &ElfFile<'a, FileHeader64<Endianness>, R>) -> Vec<ExecutedSegment> {
    let endian = elf.endian();
    let headers = elf.elf_program_headers().iter().take(MAX_SEGMENTS);
    let executed =
        headers.filter(|header| header.p_type(endian) == PT_LOAD && header.p_flags(endian).0 & PF_X.0 != 0);
    executed
        .map(|header| ExecutedSegment {
            offset: header.p_offset(endian),
            address: header.p_vaddr(endian),
            length: header.p_filesz(endian),
        })
        .collect()
}

/// The functions by address, where their names are in the file, and whether they are from the full table.
fn symbols<'a, R: ReadRef<'a>>(
    elf: &ElfFile<'a, FileHeader64<Endianness>, R>,
) -> (Vec<Symbol>, Range<u64>, bool) {
    let endian = elf.endian();
    for (table, is_full) in [(elf.elf_symbol_table(), true), (elf.elf_dynamic_symbol_table(), false)] {
        let strings = elf.elf_section_table().section(table.string_section());
        let Ok(Some((start, length))) = strings.map(|section| section.file_range(endian)) else {
            continue;
        };
        let functions = table.iter().take(MAX_SYMBOLS).filter_map(|symbol| {
            let size = symbol.st_size(endian);
            let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
            if !is_function || size == 0 || symbol.is_undefined(endian) {
                return None;
            }
            let start = symbol.st_value(endian);
            Some(Symbol { start, end: start.checked_add(size)?, name: symbol.st_name(endian) })
        });
        let mut functions: Vec<_> = functions.collect();
        if !functions.is_empty() {
            functions.sort_unstable_by_key(|symbol| (symbol.start, symbol.end, symbol.name));
            return (functions, start..start.saturating_add(length), is_full);
        }
    }
    (Vec::new(), 0..0, false)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn own() -> Image<File> {
        Image::read(File::open(std::env::current_exe().unwrap()).unwrap()).unwrap()
    }

    #[inline(never)]
    fn named_for_this_test() -> u64 {
        std::hint::black_box(5)
    }

    #[test]
    fn a_function_of_this_program_is_found_by_its_address_and_not_beyond_its_end() {
        let mut image = own();
        assert!(image.has_symtab() && image.unwind.iter().all(Option::is_some));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = named_for_this_test as fn() -> u64 as usize as u64;
        assert_eq!(named_for_this_test(), 5);
        let mapping =
            super::super::executable(&maps).into_iter().find(|map| map.range.contains(&address)).unwrap();
        let bias = image.bias(mapping.range.start, mapping.offset).unwrap();
        let name = image.name_at(address - bias).unwrap();
        assert!(name.contains("named_for_this_test"), "{name}");
        let symbol = *image.symbols.iter().find(|symbol| symbol.start == address - bias).unwrap();
        assert_eq!(image.name_at(symbol.end - 1).unwrap(), name);
        let beyond = image.name_at(symbol.end);
        assert_ne!(beyond.as_deref(), Some(name.as_str()));
        assert_eq!(image.name_at(u64::MAX), None);
    }

    #[test]
    fn other_files_are_refused() {
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0; 4096]] {
            assert!(Image::read(Cursor::new(bytes)).is_err());
        }
        // An ELF file of 32 bits.
        let mut small = vec![0; 64];
        small[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        assert!(Image::read(Cursor::new(small)).is_err());
    }

    /// The vDSO of this process: a small file with everything in it.
    fn small() -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let vdso = super::super::executable(&maps).into_iter().find(|map| map.path == "[vdso]").unwrap();
        let mut bytes = vec![0; (vdso.range.end - vdso.range.start) as usize];
        File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, vdso.range.start).unwrap();
        bytes
    }

    #[test]
    fn the_vdso_has_exported_functions() {
        let mut image = Image::read(Cursor::new(small())).unwrap();
        assert!(!image.has_symtab());
        let symbols: Vec<u64> = image.symbols.iter().map(|symbol| symbol.start).collect();
        let names: Vec<String> = symbols.into_iter().filter_map(|start| image.name_at(start)).collect();
        assert!(names.iter().any(|name| name.ends_with("clock_gettime")), "{names:?}");
    }

    /// A file of 64 bits without segments, with these sections: type, offset, size, linked section. Number 2 has names.
    fn with_sections(sections: &[(u32, u64, u64, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..18].copy_from_slice(&3_u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
        bytes[20] = 1;
        bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
        for (at, number) in [(52, 64_u16), (54, 56), (58, 64), (60, sections.len() as u16), (62, 2)] {
            bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        for (kind, offset, size, link) in sections {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            header[56..64].copy_from_slice(&24_u64.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    /// A long sparse file, which has only zeros after its beginning.
    struct SparseFile {
        bytes: Vec<u8>,
        length: u64,
        at: u64,
    }

    impl Read for SparseFile {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(buffer.len() as u64 <= MAX_SECTION, "{} bytes at once", buffer.len());
            for byte in buffer.iter_mut() {
                *byte = usize::try_from(self.at).ok().and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
                self.at += 1;
            }
            Ok(buffer.len())
        }
    }

    impl Seek for SparseFile {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.at = match to {
                SeekFrom::Start(at) => at,
                SeekFrom::End(by) => self.length.saturating_add_signed(by),
                SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            };
            Ok(self.at)
        }
    }

    #[test]
    fn a_table_as_long_as_a_sparse_file_is_not_read() {
        const SYMTAB: u32 = 2;
        const STRTAB: u32 = 3;
        let sections = |size| [(0, 0, 0, 0), (SYMTAB, 4_096, size, 2), (STRTAB, 0, 64, 0)];
        let sparse = |size| SparseFile { bytes: with_sections(&sections(size)), length: 1 << 45, at: 0 };
        assert_eq!(Image::read(sparse(24)).err(), None, "the file is valid");
        assert!(Image::read(sparse(24 << 38)).is_err());
    }

    proptest! {
        #[test]
        fn damaged_files_do_not_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
            address in any::<u64>(),
        ) {
            let mut bytes = small();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(mut image) = Image::read(Cursor::new(bytes)) {
                let _ = (image.name_at(address), image.name_at(0xa00), image.bias(address, 0));
            }
        }
    }

    #[test]
    fn a_search_table_that_leads_out_of_the_frames_is_refused() {
        let frames = 0x2000..0x2100;
        let table = |head: [u8; 4], words: [i32; 6]| Section {
            addresses: 0x1000..0x101c,
            bytes: head
                .into_iter()
                .chain(words.into_iter().flat_map(i32::to_le_bytes))
                .collect::<Arc<[u8]>>(),
        };
        let form = [1, 0x1b, 0x03, 0x3b];
        // Frames at 0x1004 + 0xffc, two entries: where a function begins, and its frame.
        let good = [0xffc, 2, 0x100, 0x1000, 0x200, 0x10ff];
        assert!(is_search_table(&table(form, good), &frames));
        assert!(!is_search_table(&table([1, 0x1b, 0x03, 0x0b], good), &frames), "another form");
        for (at, wrong) in [(0, 0xff8), (1, 3), (1, -1), (3, 0xfff), (5, 0x1100), (5, i32::MIN)] {
            let mut words = good;
            words[at] = wrong;
            assert!(!is_search_table(&table(form, words), &frames), "{words:?}");
        }
        let cut = Section { addresses: 0x1000..0x1006, bytes: vec![1, 0x1b, 0x03, 0x3b, 0, 0].into() };
        assert!(!is_search_table(&cut, &frames));
    }
}
