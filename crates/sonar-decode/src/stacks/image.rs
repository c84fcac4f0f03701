//! Symbols and unwind information of an ELF file.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

pub use crate::elf::MAX_BUILD_ID;
use crate::elf::{ElfHeaders, LoadedSegment, MAX_SECTION, SectionPlace, Symbol, SymbolTable};

/// The most bytes that the tables of a file take unless the caller sets a lower limit.
const MAX_TABLES: usize = 1 << 30;
/// The longest name of a function, in bytes; a longer one is cut.
const MAX_NAME: usize = 8_192;
/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is no ELF file of 64 bits, or it is damaged.
    #[error("no readable ELF file of 64 bits: {0}")]
    Format(String),
    /// Its tables take more bytes than they may.
    #[error("its tables of functions take more than {0} MiB")]
    TooLarge(usize),
}

/// A section that unwinding needs: its stated addresses and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) addresses: Range<u64>,
    pub(super) bytes: Arc<[u8]>,
}

/// What is used of an ELF file. Names are read from it when they are asked for.
#[derive(Debug)]
pub struct Image<R> {
    file: R,
    /// Those that are executed.
    segments: Vec<LoadedSegment>,
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

impl<R: Read + Seek> Image<R> {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ImageError`]. A section for unwinding that is too large or damaged is left out.
    pub fn read(file: R) -> Result<Self, ImageError> {
        Self::read_within(file, MAX_TABLES)
    }

    /// The same, with at most `most` bytes for its tables, which are all that is kept of it; reading it takes a few more.
    /// A program of some hundred megabytes has tables of some ten: of its symbols only functions are kept, and no names.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn read_within(file: R, most: usize) -> Result<Self, ImageError> {
        let (headers, mut file) = ElfHeaders::read(file).map_err(ImageError::Format)?;
        let mut left = most;
        let unwind = headers.unwind.map(|place| read_section(&mut file, place?, &mut left));
        // If the search table contradicts the frames, stacks are walked by frame pointers.
        let unwind = match unwind {
            [Some(frames), Some(table)] if !is_search_table(&table, &frames.addresses) => [None, None],
            other => other,
        };
        let mut found = (Vec::new(), 0..0, false);
        for table in headers.symbols.into_iter().flatten() {
            let symbols = read_functions(&mut file, &table, left).ok_or(ImageError::TooLarge(most >> 20))?;
            if !symbols.is_empty() {
                found = (symbols, table.names, table.is_full);
                break;
            }
        }
        let (symbols, names, has_symtab) = found;
        let ElfHeaders { segments, build_id, debug_link, .. } = headers;
        let segments = segments.into_iter().filter(|segment| segment.is_executed).collect();
        Ok(Self { file, segments, symbols, names, has_symtab, build_id, debug_link, unwind })
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
        let holds = |segment: &&LoadedSegment| {
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

/// Reads a section into the bytes that are `left`; `None` if there is no room for it, or it cannot be read.
fn read_section(file: &mut (impl Read + Seek), at: SectionPlace, left: &mut usize) -> Option<Section> {
    let SectionPlace { address, place } = at;
    let length = place.end - place.start;
    if length > MAX_SECTION || place.end > file.seek(SeekFrom::End(0)).ok()? {
        return None;
    }
    let length = usize::try_from(length).ok()?;
    *left = left.checked_sub(length)?;
    let addresses = address..address.checked_add(length as u64)?;
    file.seek(SeekFrom::Start(place.start)).ok()?;
    // Into its place at once: it may have tens of megabytes.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    file.read_exact(Arc::get_mut(&mut bytes)?).ok()?;
    Some(Section { addresses, bytes })
}

/// The functions of a table by address, of which there may be as many as fit into `left` bytes; `None` if there are more.
fn read_functions(file: &mut (impl Read + Seek), table: &SymbolTable, left: usize) -> Option<Vec<Symbol>> {
    if table.is_too_long() {
        return None;
    }
    let (mut functions, most) = (Vec::new(), left / size_of::<Symbol>());
    let mut has_room = true;
    table.functions(file, |symbol| {
        has_room = functions.len() < most;
        functions.push(symbol);
        has_room
    });
    functions.sort_unstable_by_key(|symbol: &Symbol| (symbol.start, symbol.end, symbol.name));
    functions.shrink_to_fit();
    has_room.then_some(functions)
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
    fn tables_take_no_more_than_they_may_and_names_none_of_it() {
        let whole = own();
        let bytes = whole.bytes();
        assert!(bytes > 1 << 20, "this program has many functions: {bytes}");
        let open = || File::open(std::env::current_exe().unwrap()).unwrap();
        let enough = Image::read_within(open(), bytes).unwrap();
        assert_eq!((enough.bytes(), enough.symbols.len()), (bytes, whole.symbols.len()));
        assert_eq!(enough.symbols.capacity(), whole.symbols.len());
        let error = Image::read_within(open(), bytes - 1).err();
        assert_eq!(error, Some(ImageError::TooLarge((bytes - 1) >> 20)));
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
