//! Reads ELF files of 64 bits that may be damaged or malicious, in little memory: headers and small sections at once, tables
//! of symbols piece by piece. A program may have hundreds of megabytes.

use std::cell::Cell;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use object::elf::{
    ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC,
    STT_GNU_IFUNC,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::read::{ReadCache, ReadRef, SectionIndex};
use object::{Endian, Endianness};

/// The longest section that is read, in bytes.
pub(crate) const MAX_SECTION: u64 = 256 << 20;
/// The longest build id, in bytes.
pub const MAX_BUILD_ID: usize = 64;
/// The most symbols of a file.
const MAX_SYMBOLS: usize = 4_000_000;
/// The most bytes to read of a file for its headers and small sections, since the headers of a damaged file may refer
/// to the same bytes many times.
const MAX_HEADERS: u64 = 8 << 20;
/// The size of a piece, in bytes.
const PIECE: usize = 64 << 10;
/// Bytes of a symbol in a file.
const SYMBOL_ENTRY: usize = 24;
/// How many bytes each read of a section's name counts as.
const NAME_READ: u64 = 4_096;
/// The most segments of a file.
const MAX_SEGMENTS: usize = 256;

/// A function: addresses as the file states them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub start: u64,
    pub end: u64,
    /// Where its name is, from the beginning of the table of names.
    pub name: u32,
}

/// A part of the file that is mapped into memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedSegment {
    pub offset: u64,
    pub address: u64,
    pub length: u64,
    pub is_executed: bool,
}

/// A table of symbols in the file, and the place of its names.
#[derive(Clone, Debug)]
pub(crate) struct SymbolTable {
    pub place: Range<u64>,
    pub names: Range<u64>,
    /// It also has symbols that are not exported.
    pub is_full: bool,
    endian: Endianness,
}

/// A section of the file: its stated address, and its place.
#[derive(Clone, Debug)]
pub(crate) struct SectionPlace {
    pub address: u64,
    pub place: Range<u64>,
}

/// What the headers of a file say.
#[derive(Debug)]
pub(crate) struct ElfHeaders {
    /// The kind of processor (`e_machine`).
    pub machine: u16,
    pub segments: Vec<LoadedSegment>,
    pub build_id: Option<Vec<u8>>,
    /// The name of the file that has its symbols, without a folder.
    pub debug_link: Option<String>,
    /// The full table, and the one of what is exported.
    pub symbols: [Option<SymbolTable>; 2],
    /// `.eh_frame`, `.eh_frame_hdr`.
    pub unwind: [Option<SectionPlace>; 2],
}

/// Reads of the headers: they set the length of each section, up to that of the file, and a sparse file may be very long.
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
        Ok(())
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

impl ElfHeaders {
    /// Reads them; gives the file back.
    ///
    /// # Errors
    /// It is no ELF file of 64 bits, or it is damaged, in words.
    pub fn read<R: Read + Seek>(file: R) -> Result<(Self, R), String> {
        let cache = ReadCache::new(file);
        let headers = Self::of(&cache)?;
        Ok((headers, cache.into_inner()))
    }

    fn of<R: Read + Seek>(cache: &ReadCache<R>) -> Result<Self, String> {
        let left = Cell::new(MAX_HEADERS);
        let file = BoundedReads { cache, left: &left };
        let words = |error: object::read::Error| error.to_string();
        let header = FileHeader64::<Endianness>::parse(file).map_err(words)?;
        let endian = header.endian().map_err(words)?;
        let headers = header.program_headers(endian, file).map_err(words)?.iter().take(MAX_SEGMENTS);
        let loaded = headers.filter(|header| header.p_type(endian) == PT_LOAD);
        let segments = loaded.map(|header| LoadedSegment {
            offset: header.p_offset(endian),
            address: header.p_vaddr(endian),
            length: header.p_filesz(endian),
            is_executed: header.p_flags(endian).0 & PF_X.0 != 0,
        });
        let segments = segments.collect();
        let sections = header.sections(endian, file).map_err(words)?;
        let named =
            |name: &str| sections.section_by_name(endian, name.as_bytes()).map(|(_, section)| section);
        let place = |section: &<FileHeader64<Endianness> as FileHeader>::SectionHeader| {
            let (start, length) = section.file_range(endian)?;
            Some(start..start.checked_add(length)?)
        };
        let symbols = [(SHT_SYMTAB, true), (SHT_DYNSYM, false)].map(|(kind, is_full)| {
            let table = sections.iter().find(|section| section.sh_type(endian) == kind)?;
            let strings = sections.section(SectionIndex(table.sh_link(endian) as usize)).ok()?;
            Some(SymbolTable { place: place(table)?, names: place(strings)?, is_full, endian })
        });
        // Sections that are loaded are never compressed.
        let unwind = [".eh_frame", ".eh_frame_hdr"].map(|name| {
            let section = named(name)?;
            Some(SectionPlace { address: section.sh_addr(endian), place: place(section)? })
        });
        let debug_link = named(".gnu_debuglink").and_then(|section| section.data(endian, file).ok());
        let debug_link = debug_link.and_then(|data| data.split(|byte| *byte == 0).next());
        let debug_link = debug_link.and_then(|name| String::from_utf8(name.to_vec()).ok());
        // It becomes a part of a path.
        let is_name = |name: &String| {
            !name.is_empty() && name.len() < 256 && !name.contains('/') && !name.starts_with('.')
        };
        Ok(Self {
            machine: header.e_machine(endian).0,
            segments,
            build_id: build_id(&sections, endian, file),
            debug_link: debug_link.filter(is_name),
            symbols,
            unwind,
        })
    }
}

fn build_id<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, FileHeader64<Endianness>, R>,
    endian: Endianness,
    file: R,
) -> Option<Vec<u8>> {
    for section in sections.iter() {
        let Some(mut notes) = section.notes(endian, file).ok()? else { continue };
        while let Some(note) = notes.next().ok()? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                let id = note.desc();
                return (2..=MAX_BUILD_ID).contains(&id.len()).then(|| id.to_vec());
            }
        }
    }
    None
}

impl SymbolTable {
    /// Whether it is longer than what is read.
    pub fn is_too_long(&self) -> bool {
        self.place.end - self.place.start > MAX_SECTION
    }

    /// Passes its functions to `each` until that wants no more. A table that is damaged has those before the damage.
    pub fn functions(&self, file: &mut (impl Read + Seek), mut each: impl FnMut(Symbol) -> bool) {
        let length = (self.place.end - self.place.start).min((MAX_SYMBOLS * SYMBOL_ENTRY) as u64);
        if file.seek(SeekFrom::Start(self.place.start)).is_err() {
            return;
        }
        let mut entries = file.take(length);
        let mut buffer = Vec::with_capacity(PIECE);
        loop {
            buffer.clear();
            let whole_ones = (PIECE / SYMBOL_ENTRY * SYMBOL_ENTRY) as u64;
            let read = entries.by_ref().take(whole_ones).read_to_end(&mut buffer);
            let (entries, _) = buffer.as_chunks::<SYMBOL_ENTRY>();
            if read.is_err() || entries.is_empty() {
                return;
            }
            for symbol in entries.iter().filter_map(|entry| function(entry, self.endian)) {
                if !each(symbol) {
                    return;
                }
            }
        }
    }

    /// Where these names are in its table of names, from the beginning of that, each with its number; also as the end of
    /// longer names, as linkers store them. At most some hundred places.
    pub fn places_of(&self, file: &mut (impl Read + Seek), names: &[&[u8]]) -> Vec<(u32, usize)> {
        /// The most places.
        const MAX_PLACES: usize = 512;
        let longest = names.iter().map(|name| name.len() + 1).max().unwrap_or(0);
        let mut places = Vec::new();
        if self.names.end - self.names.start > MAX_SECTION
            || file.seek(SeekFrom::Start(self.names.start)).is_err()
        {
            return places;
        }
        let mut text = file.take(self.names.end - self.names.start);
        // What was read, with the end of the piece before it, and where that begins.
        let (mut piece, mut start) = (Vec::with_capacity(PIECE + longest), 0_usize);
        loop {
            let before = piece.len();
            if text.by_ref().take(PIECE as u64).read_to_end(&mut piece).is_err() || piece.len() == before {
                return places;
            }
            for (number, name) in names.iter().enumerate() {
                for at in memchr::memmem::find_iter(&piece, name) {
                    let is_whole = piece.get(at + name.len()) == Some(&0);
                    if let Ok(place) = u32::try_from(start + at)
                        && is_whole
                        && places.len() < MAX_PLACES
                        && !places.contains(&(place, number))
                    {
                        places.push((place, number));
                    }
                }
            }
            let kept = piece.len().min(longest);
            start += piece.len() - kept;
            piece.drain(..piece.len() - kept);
        }
    }
}

/// The function of a symbol (`Elf64_Sym`); `None` if it is none, or one of another file.
fn function(entry: &[u8; SYMBOL_ENTRY], endian: Endianness) -> Option<Symbol> {
    let word = |at: usize| Some(endian.read_u64(*entry.get(at..)?.first_chunk()?));
    let (section, kind) = (u16::from_ne_bytes([entry[6], entry[7]]), entry[4] & 0xf);
    let (start, size) = (word(8)?, word(16)?);
    let is_function = kind == STT_FUNC.0 || kind == STT_GNU_IFUNC.0;
    if !is_function || size == 0 || section == 0 {
        return None;
    }
    let name = endian.read_u32(*entry.first_chunk()?);
    Some(Symbol { start, end: start.checked_add(size)?, name })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn names_are_found_wherever_pieces_end_and_at_the_end_of_longer_ones() {
        let mut text = vec![b'x'; 3 * PIECE];
        let put =
            |text: &mut Vec<u8>, at: usize, name: &[u8]| text[at..at + name.len()].copy_from_slice(name);
        put(&mut text, PIECE - 4, b"\0SSL_read\0");
        put(&mut text, 2 * PIECE - 9, b"\0SSL_write\0");
        put(&mut text, 2 * PIECE + 100, b"\0my_SSL_read\0SSL_read_ex\0");
        let names = 7..7 + text.len() as u64;
        let table = SymbolTable { place: 0..0, names, is_full: true, endian: Endianness::Little };
        let mut file = Cursor::new([&[0; 7][..], &text, b"SSL_read\0"].concat());
        let mut found = table.places_of(&mut file, &[b"SSL_read", b"SSL_write"]);
        found.sort_unstable();
        let at = |place: usize| place as u32;
        assert_eq!(found, [(at(PIECE - 3), 0), (at(2 * PIECE - 8), 1), (at(2 * PIECE + 104), 0)]);
    }
}
