//! Opens regular files at paths that others may have chosen.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fstat, makedev, statx};

/// Opens a regular file for reading, and refuses anything else. It never waits, even if somebody puts a FIFO at the path,
/// and it opens no device: that alone starts a watchdog or rewinds a tape.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a regular file; or it cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // It stays what it is, whatever becomes of the path, and is not opened yet.
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::RegularFile {
        true => reopen(&found, libc::O_NONBLOCK | libc::O_NOCTTY),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Opens a file for reading that may be a pipe or a folder, too, but no device. It waits for whoever writes to a pipe.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is a device; or it cannot be opened.
pub fn open_no_device(path: &Path) -> io::Result<File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::CharacterDevice | FileType::BlockDevice if !is_harmless(&found)? => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a device"))
        }
        _ => reopen(&found, libc::O_NOCTTY),
    }
}

/// Whether it is one of the memory devices that do nothing when they are opened, like `/dev/null`, or a terminal.
fn is_harmless(found: &impl AsFd) -> io::Result<bool> {
    let number = fstat(found)?.st_rdev;
    let is_character = FileType::from_raw_mode(fstat(found)?.st_mode) == FileType::CharacterDevice;
    Ok(is_character && matches!(rustix::fs::major(number), 1 | 5 | 136..=143))
}

/// Which file is at a path, as far as the kernel knows without asking its file system: that may never answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CachedStat {
    /// As `st_dev` of stat(2).
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Whether it is a regular file.
    pub is_regular: bool,
}

impl CachedStat {
    /// The file to which this path leads.
    ///
    /// # Errors
    /// There is none, or it may not be reached.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::found(path, AtFlags::empty())
    }

    /// The file at this path itself, which may be a symbolic link.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn not_followed(path: &Path) -> io::Result<Self> {
        Self::found(path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn found(path: &Path, flags: AtFlags) -> io::Result<Self> {
        let asked = StatxFlags::TYPE | StatxFlags::INO;
        let found = statx(CWD, path, flags | AtFlags::STATX_DONT_SYNC, asked)?;
        Ok(Self {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            is_regular: FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile,
        })
    }
}

/// Opens for reading what a descriptor of `O_PATH` leads to.
pub(super) fn reopen(found: &impl AsRawFd, flags: i32) -> io::Result<File> {
    File::options().read(true).custom_flags(flags).open(itself(found))
}

/// The path that leads to an open descriptor.
pub(super) fn itself(descriptor: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/thread-self/fd/{}", descriptor.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::mem::MaybeUninit;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::Command;

    use rustix::fs::inotify;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_is_known_of_a_file_is_what_stat_says() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-known-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "x").unwrap();
        symlink(&file, &link).unwrap();
        for (path, stat, known) in [
            (&file, fs::metadata(&file), CachedStat::at(&file)),
            (&link, fs::metadata(&link), CachedStat::at(&link)),
            (&link, fs::symlink_metadata(&link), CachedStat::not_followed(&link)),
            (&folder, fs::metadata(&folder), CachedStat::at(&folder)),
        ] {
            let stat = stat.unwrap();
            let expected = CachedStat { device: stat.dev(), inode: stat.ino(), is_regular: stat.is_file() };
            assert_eq!(known.unwrap(), expected, "{}", path.display());
        }
        assert_eq!(CachedStat::at(&folder.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn anything_but_a_regular_file_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for other in [pipe.as_path(), &folder, Path::new("/dev/null")] {
            assert_eq!(open(other).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", other.display());
        }
        // Nor is it opened: the kernel would tell.
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut opened = || inotify::Reader::new(&watch, &mut buffer).next().map(|event| event.events());
        open(&pipe).unwrap_err();
        assert_eq!(opened(), Err(Errno::AGAIN));
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        assert_eq!(opened(), Ok(inotify::ReadFlags::OPEN));
        std::fs::write(folder.join("file"), "x").unwrap();
        assert!(open(&folder.join("file")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
