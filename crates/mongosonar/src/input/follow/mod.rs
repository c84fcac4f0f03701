//! Follows a file that another program writes, line by line: through rotation by renaming, by copying and truncating, or
//! by reopening, and while it does not exist.
//!
//! No line is lost or repeated, if something of the file is read between two rotations. A truncated file is recognised by
//! the bytes before the position, even if it has grown beyond it again, and also if that happened while nobody followed;
//! what was not read before is taken from the copy, if that is beside the file. What a server writes between the copy and
//! the truncation is lost with the rotation itself.

mod file;
#[cfg(test)]
pub mod path;
mod place;
#[cfg(test)]
mod tests;

use std::io;

use sonar_core::observation::{FileIdentity, FollowPosition, LinePlace};

pub use self::file::{FILE_PATIENCE, FileThread, FileThreads, FollowedFile, ForeignFile, close_apart};
pub use self::place::{
    FollowedPlace, MAX_COPIES, PassedIdentity, SentIdentity, file_identity, newest_copies,
};

/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// Bytes read at once at first, and those of each buffer that is kept between two calls: there may be many files, most of
/// which have little that is new.
const FIRST_PIECE: usize = 4 << 10;
/// Bytes read by one call of [`FileFollower::poll`].
const BUDGET: usize = 4 << 20;
/// The longest line that is kept.
const MAX_LINE: usize = 4 << 20;
/// Bytes before the position that are compared each time.
const MARK: usize = 256;

/// Takes the lines of a followed file.
pub trait LineSink {
    /// Whether [`begins`](Self::begins) is called.
    const WANTS_PLACES: bool = false;

    /// Where the next line begins, also one that is too long.
    fn begins(&mut self, _place: LinePlace) {}

    /// A line, without its line feed.
    fn line(&mut self, line: &[u8]);

    /// The end of a file without a line feed, which will not get one any more.
    fn unfinished(&mut self, line: &[u8]);

    /// A line was longer than is kept.
    fn too_long(&mut self);

    /// Something happened to the file, after the lines so far.
    fn notice(&mut self, _notice: FollowNotice) {}
}

/// What happened to a followed file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FollowNotice {
    /// Another file is at its place.
    Replaced,
    /// It was truncated, and what was not read before came from its copy.
    Truncated,
    /// It was truncated, and no copy was found: what had not been read is lost.
    TruncatedWithoutCopy,
    /// No file is at its place. The one that was there is still read.
    Missing,
    /// What an earlier follower had not read is gone: neither the file in which it was nor a copy is there. All of the
    /// present file comes.
    StartLost,
}

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowStart {
    /// At the beginning of the file.
    Beginning,
    /// At its end.
    End,
    /// Where an earlier follower stopped. If the file was replaced or truncated meanwhile, the rest of the old one or of
    /// its copy comes first, and then all of the new one.
    At(FollowPosition),
}

/// The position after `before`, identified by the last bytes of it.
fn position_after(identity: FileIdentity, offset: u64, before: &[u8]) -> FollowPosition {
    FollowPosition { identity, offset, checksum: crc32c::crc32c(last(before)) }
}

/// The same position, where this line begins.
fn position_of_line(position: FollowPosition, line: &[u8]) -> FollowPosition {
    match position.offset {
        0 => FollowPosition { checksum: crc32c::crc32c(first_of_line(line)), ..position },
        _ => position,
    }
}

/// The last bytes, as many as are compared.
fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(MARK)..]
}

/// The first bytes of the line at the beginning of `bytes`, with its line feed, as many as are compared.
fn first_of_line(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(MARK)];
    memchr::memchr(b'\n', bytes).map_or(bytes, |end| &bytes[..=end])
}

/// Follows a file. It waits for nothing: call [`poll`](Self::poll) about once a second.
pub struct FileFollower<P> {
    place: P,
    start: Option<FollowStart>,
    current: Option<OpenedFile>,
    /// Bytes read, of all files.
    read: u64,
    /// Comes after the end of `current`.
    next: Option<OpenedFile>,
    buffer: Vec<u8>,
    /// The beginning of a line.
    partial: Vec<u8>,
    /// Bytes of a line whose end was not read: those of `partial`, or of a line that is too long to be kept.
    begun: u64,
    /// The last bytes before that line.
    before_begun: Vec<u8>,
    /// The rest of the line is skipped: it is too long, or its beginning was not read.
    skipping: Option<SkipReason>,
    is_missing: bool,
    /// Where an earlier follower stopped is in no file, which was not said yet.
    has_lost_start: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum SkipReason {
    TooLong,
    JoinedLate,
}

#[derive(Debug)]
struct OpenedFile {
    file: FollowedFile,
    identity: FileIdentity,
    /// Bytes read.
    position: u64,
    /// The last bytes before the position.
    mark: Vec<u8>,
}

impl OpenedFile {
    /// From the beginning.
    fn new(file: FollowedFile) -> io::Result<Self> {
        let identity = file_identity(&file.metadata()?);
        Ok(Self { file, identity, position: 0, mark: Vec::new() })
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Goes to `position`, if the file is that long; whether it is.
    fn seek(&mut self, position: u64) -> io::Result<bool> {
        let from = position.saturating_sub(MARK as u64);
        let mut mark = vec![0; (position - from) as usize];
        match self.file.read_exact_at(&mut mark, from) {
            Ok(()) => (self.position, self.mark) = (position, mark),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Goes to where another follower stopped, if the bytes before that are the same ones; whether they are. It stays
    /// where it is if not.
    fn resume(&mut self, at: &FollowPosition) -> io::Result<bool> {
        let before = (self.position, std::mem::take(&mut self.mark));
        let is_same = self.seek(at.offset)? && self.checksum(at)? == at.checksum;
        if !is_same {
            (self.position, self.mark) = before;
        }
        Ok(is_same)
    }

    /// What [`FollowPosition::checksum`] would be here.
    fn checksum(&self, at: &FollowPosition) -> io::Result<u32> {
        if at.offset > 0 || at.checksum == 0 {
            return Ok(crc32c::crc32c(&self.mark));
        }
        let mut bytes = [0; MARK];
        let length = self.file.read_at(&mut bytes, 0)?;
        Ok(crc32c::crc32c(first_of_line(&bytes[..length])))
    }

    /// Reads what comes next into `buffer`, together with the bytes before it, which must be as they were; `None` if
    /// they are not, because the file was truncated.
    fn read(&self, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
        buffer.resize(buffer.len().max(self.mark.len() + FIRST_PIECE), 0);
        let mut length = 0;
        // One call mostly takes all that there is.
        while length < buffer.len() {
            let from = self.position - self.mark.len() as u64 + length as u64;
            match self.file.read_at(&mut buffer[length..], from) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if length == buffer.len() {
                buffer.resize(buffer.len().max(self.mark.len() + PIECE), 0);
            }
        }
        let is_same = buffer.get(..self.mark.len()).is_some_and(|bytes| bytes == self.mark);
        Ok((length >= self.mark.len() && is_same).then_some(length))
    }

    /// The bytes of `buffer` after the mark have been read.
    fn advance(&mut self, buffer: &[u8]) {
        self.position += (buffer.len() - self.mark.len()) as u64;
        self.mark.clear();
        self.mark.extend_from_slice(last(buffer));
    }
}

/// Gives up the memory of a large buffer.
fn keep_little(buffer: &mut Vec<u8>) {
    if buffer.capacity() > 2 * FIRST_PIECE {
        *buffer = Vec::new();
    }
}

impl<P: FollowedPlace> FileFollower<P> {
    /// Follows the file at a place. `file` may be that file, opened before.
    ///
    /// # Errors
    /// `file` cannot be read.
    pub fn new(place: P, file: Option<FollowedFile>, start: FollowStart) -> io::Result<Self> {
        let mut follower = Self {
            place,
            start: Some(start),
            current: None,
            read: 0,
            next: None,
            buffer: Vec::new(),
            partial: Vec::new(),
            begun: 0,
            before_begun: Vec::new(),
            skipping: None,
            is_missing: false,
            has_lost_start: false,
        };
        if let Some(file) = file {
            follower.begin(OpenedFile::new(file)?)?;
        }
        Ok(follower)
    }

    /// Where the first line begins that was not given out; `None` if no file was found yet.
    pub fn place(&self) -> Option<LinePlace> {
        let before = self.current.as_ref().map_or(&[][..], |current| &current.mark);
        self.place_of_line(before, 0)
    }

    /// Where a line begins, or where the one began whose beginning was read before; `before` ends where it begins or goes
    /// on, and `ago` bytes have been read since.
    fn place_of_line(&self, before: &[u8], ago: u64) -> Option<LinePlace> {
        let current = self.current.as_ref()?;
        let (before, ago) = match self.begun {
            0 => (before, ago),
            begun => (&self.before_begun[..], ago + begun),
        };
        let position = position_after(current.identity, current.position - ago, before);
        Some(LinePlace { position, read: self.read - ago })
    }

    /// The bytes that it holds.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.partial.capacity()
    }

    /// Gives up the beginning of a long line: the line counts as too long.
    pub fn forget_long(&mut self) {
        if self.partial.len() > PIECE {
            self.partial = Vec::new();
            self.skipping = Some(SkipReason::TooLong);
        }
    }

    /// Whether no file is at its place. The one that was there is still read.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Gives out the lines that are complete, some megabytes at most. Returns whether more are waiting.
    ///
    /// # Errors
    /// The file cannot be read, or its place cannot be looked at. Lines may have been given out before; calling again
    /// goes on.
    pub fn poll(&mut self, sink: &mut impl LineSink) -> io::Result<bool> {
        let polled = self.poll_files(sink);
        keep_little(&mut self.buffer);
        polled
    }

    fn poll_files(&mut self, sink: &mut impl LineSink) -> io::Result<bool> {
        if self.current.is_none() && !self.find_first(sink)? {
            return Ok(false);
        }
        if std::mem::take(&mut self.has_lost_start) {
            sink.notice(FollowNotice::StartLost);
        }
        let mut read = 0;
        while read < BUDGET {
            let length = self.read_piece(sink)?;
            read += length;
            if length > 0 {
                continue;
            }
            if let Some(next) = self.next.take() {
                self.end_line(sink);
                self.current = Some(next);
            } else if !self.find_next(sink)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives out the end of the file even if it has no line feed: nothing follows.
    pub fn finish(&mut self, sink: &mut impl LineSink) {
        self.end_line(sink);
    }

    /// Begins with the first file that is found.
    fn find_first(&mut self, sink: &mut impl LineSink) -> io::Result<bool> {
        if self.place.identity()?.is_none() {
            self.note_missing(sink);
            return Ok(false);
        }
        let file = self.open()?;
        self.begin(file)?;
        Ok(true)
    }

    /// Opens the file at its place.
    fn open(&mut self) -> io::Result<OpenedFile> {
        OpenedFile::new(FollowedFile::open(self.place.thread(), || self.place.open())?)
    }

    /// Opens what may be older versions of it.
    fn copies(&mut self) -> impl Iterator<Item = OpenedFile> + use<P> {
        let thread = self.place.thread();
        let followed = |copy| FollowedFile::new(copy, thread.clone());
        // All of them at once: whoever looks at some of them must not wait when the others are closed.
        let copies: Vec<FollowedFile> = self.place.copies().into_iter().map(followed).collect();
        copies.into_iter().filter_map(|copy| OpenedFile::new(copy).ok())
    }

    fn begin(&mut self, mut file: OpenedFile) -> io::Result<()> {
        self.is_missing = false;
        match self.start.take() {
            None | Some(FollowStart::Beginning) => {}
            Some(FollowStart::End) => {
                let size = file.size()?;
                file.seek(size)?;
            }
            Some(FollowStart::At(at)) => {
                if at.identity != file.identity || !file.resume(&at)? {
                    match self.old_file(&at) {
                        // The new one follows as after any rotation.
                        Some(old) => file = old,
                        None => self.has_lost_start = true,
                    }
                }
            }
        }
        self.join(file);
        Ok(())
    }

    /// The file of a position under another name, or the copy of it that was made before it was truncated, at that
    /// position.
    fn old_file(&mut self, at: &FollowPosition) -> Option<OpenedFile> {
        let mut found: Vec<OpenedFile> = self
            .copies()
            .filter_map(|mut copy| copy.resume(at).is_ok_and(|is_same| is_same).then_some(copy))
            .collect();
        // Without any bytes that are known all files are the same.
        found.retain(|copy| copy.identity == at.identity || at.offset > 0 || at.checksum != 0);
        let renamed = found.iter().position(|copy| copy.identity == at.identity);
        (!found.is_empty()).then(|| found.swap_remove(renamed.unwrap_or(0)))
    }

    /// Makes `file` the present one. If it begins within a line, the rest of that is skipped.
    fn join(&mut self, file: OpenedFile) {
        let is_within = file.mark.last().is_some_and(|last| *last != b'\n');
        self.skipping = is_within.then_some(SkipReason::JoinedLate);
        self.current = Some(file);
    }

    /// Reads a piece of the present file; returns how many bytes it has.
    fn read_piece(&mut self, sink: &mut impl LineSink) -> io::Result<usize> {
        let Some(current) = &mut self.current else { return Ok(0) };
        let Some(length) = current.read(&mut self.buffer)? else {
            self.restart(sink)?;
            return Ok(1);
        };
        let before = current.mark.len();
        current.advance(&self.buffer[..length]);
        self.read += (length - before) as u64;
        let buffer = std::mem::take(&mut self.buffer);
        self.give_lines(&buffer[..length], before, sink);
        self.buffer = buffer;
        Ok(length - before)
    }

    /// The present file was truncated: goes on with the rest of its copy, if there is one, and then at its beginning.
    fn restart(&mut self, sink: &mut impl LineSink) -> io::Result<()> {
        let copies = self.copies();
        let Some(current) = &self.current else { return Ok(()) };
        let is_copy = |copy: &OpenedFile| {
            copy.identity != current.identity && copy.read(&mut Vec::new()).is_ok_and(|read| read.is_some())
        };
        let copy = copies
            .map(|copy| OpenedFile { position: current.position, mark: current.mark.clone(), ..copy })
            .find(is_copy);
        if copy.is_none() {
            // The line has its place as long as its file is the present one.
            self.end_line(sink);
        }
        let fresh = |current| OpenedFile { position: 0, mark: Vec::new(), ..current };
        let fresh = self.current.take().map(fresh);
        match copy {
            Some(copy) => {
                (self.current, self.next) = (Some(copy), fresh);
                sink.notice(FollowNotice::Truncated);
            }
            None => {
                self.current = fresh;
                sink.notice(FollowNotice::TruncatedWithoutCopy);
            }
        }
        Ok(())
    }

    /// Whether the present file, which was read to its end, has been replaced by another one.
    fn find_next(&mut self, sink: &mut impl LineSink) -> io::Result<bool> {
        let Some(identity) = self.place.identity()? else {
            self.note_missing(sink);
            return Ok(false);
        };
        self.is_missing = false;
        if self.current.as_ref().is_some_and(|current| current.identity == identity) {
            return Ok(false);
        }
        let next = self.open()?;
        // As long as nothing is written to the new file, the server may still write to the old one.
        if next.size()? == 0 || self.current.as_ref().is_some_and(|current| current.identity == next.identity)
        {
            return Ok(false);
        }
        self.next = Some(next);
        sink.notice(FollowNotice::Replaced);
        Ok(true)
    }

    fn note_missing(&mut self, sink: &mut impl LineSink) {
        if !std::mem::replace(&mut self.is_missing, true) {
            sink.notice(FollowNotice::Missing);
        }
    }

    /// Gives out the lines of `buffer` that end from `begin` on; what comes before was given out.
    fn give_lines<S: LineSink>(&mut self, buffer: &[u8], mut begin: usize, sink: &mut S) {
        while let Some(end) = memchr::memchr(b'\n', &buffer[begin..]) {
            let line = &buffer[begin..begin + end];
            if S::WANTS_PLACES && self.skipping != Some(SkipReason::JoinedLate) {
                let place = self.place_of_line(&buffer[..begin], (buffer.len() - begin) as u64);
                let place = place.map(|place| self.at_line(place, &buffer[begin..=begin + end]));
                place.into_iter().for_each(|place| sink.begins(place));
            }
            match self.skipping.take() {
                Some(SkipReason::TooLong) => sink.too_long(),
                Some(SkipReason::JoinedLate) => {}
                None if self.partial.is_empty() => sink.line(line),
                None => {
                    self.partial.extend_from_slice(line);
                    sink.line(&self.partial);
                }
            }
            self.forget_line();
            begin += end + 1;
        }
        if self.skipping == Some(SkipReason::JoinedLate) {
            return;
        }
        if self.begun == 0 {
            self.before_begun.clear();
            self.before_begun.extend_from_slice(last(&buffer[..begin]));
        }
        self.begun += (buffer.len() - begin) as u64;
        if self.skipping.is_none() {
            self.partial.extend_from_slice(&buffer[begin..]);
            if self.partial.len() > MAX_LINE {
                self.partial = Vec::new();
                self.skipping = Some(SkipReason::TooLong);
            }
        }
    }

    /// The place of the present line, of which `rest` was just read.
    fn at_line(&self, place: LinePlace, rest: &[u8]) -> LinePlace {
        let position = match self.begun {
            0 => position_of_line(place.position, rest),
            // Of one that is too long to be kept, the beginning is not known.
            _ if self.partial.is_empty() => place.position,
            _ => {
                let begun = self.partial.iter().chain(rest).copied().take(MARK);
                position_of_line(place.position, &begun.collect::<Vec<u8>>())
            }
        };
        LinePlace { position, ..place }
    }

    /// The present line has been given out.
    fn forget_line(&mut self) {
        keep_little(&mut self.partial);
        self.partial.clear();
        self.begun = 0;
    }

    /// The present file ends here.
    fn end_line<S: LineSink>(&mut self, sink: &mut S) {
        if S::WANTS_PLACES && self.begun > 0 {
            self.place().into_iter().for_each(|place| sink.begins(place));
        }
        match self.skipping.take() {
            Some(SkipReason::TooLong) => sink.too_long(),
            Some(SkipReason::JoinedLate) => {}
            None if self.partial.is_empty() => {}
            None => sink.unfinished(&self.partial),
        }
        self.forget_line();
    }
}
