//! Finds the paths of the files that are accessed, and decides which of them were asked for.
//!
//! At the first access the kernel reports device, inode and the last part of the path. The rest is found afterwards,
//! while the process runs on: by then the file may have been closed, renamed, replaced or deleted. So each way to its
//! folder is tried, and the file keeps the name that it had at that access. Paths are those of the mount namespace of
//! the process.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_sys::Host;
use sonar_sys::ebpf::{FileKey, PseudoFolders};
use sonar_sys::host::namespace;
use sonar_sys::host::regular::CachedStat;

/// Bytes of a name that the kernel reports; a longer one is cut.
const NAME_BYTES: usize = 95;
/// The most open files and folders to cache for a process; others are searched each time.
const MAX_KEPT: usize = 65_536;
/// The most bytes of what is cached of all processes. Each gets half of what the others have left, so that one with many
/// files, or with long paths, leaves room for those that come later.
const MAX_KEPT_BYTES: usize = 8 << 20;
/// About what a cached path takes beside its bytes: its place in a table that may be half empty, and that of its memory.
const ENTRY_BYTES: usize = 96;
/// The most folders in which to try a name, the most recently used first.
const TRIED_FOLDERS: usize = 64;
/// How deep a folder may hold others as links: in itself, and with directoryPerDB in each folder below.
const LINK_DEPTH: u32 = 2;
/// The most linked folders.
const MAX_LINKS: usize = 4_096;
/// The most processes to cache.
const MAX_PROCESSES: usize = 1_024;
/// Searches through all open files and folders may take one part in this many of the time: meanwhile nobody reads the
/// records of the kernel.
const SHARE: u32 = 10;
/// The longest search at once.
const MOST_SEARCH: Duration = Duration::from_millis(500);
/// Suffix of a link of `/proc` to a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// A folder whose files are wanted: as seen from here, or as seen by a process in another mount namespace. Folders that
/// it holds as symbolic links belong to it, like a journal on its own disk.
#[derive(Clone)]
pub struct Folder {
    given: PathBuf,
    real: Option<PathBuf>,
    /// Device and inode of the folder as seen from here, and of the folders that it links to.
    identities: HashSet<(u64, u64)>,
}

impl Folder {
    /// The folder with this path, here or in the mount namespace of one of these processes.
    pub fn new(path: &Path, processes: &[u32]) -> Result<Self> {
        let given = absolute(path).with_context(|| format!("cannot look into {}", path.display()))?;
        let failed = match fs::metadata(&given) {
            Ok(found) if found.is_dir() => {
                let mut identities = HashSet::from([(found.dev(), found.ino())]);
                links(&given, LINK_DEPTH, &mut identities);
                return Ok(Self { real: fs::canonicalize(&given).ok(), given, identities });
            }
            Ok(_) => "it is no folder".to_string(),
            Err(error) => error.to_string(),
        };
        if processes.iter().any(|process| namespace::inside(*process, &given).is_dir()) {
            return Ok(Self { given, real: None, identities: HashSet::new() });
        }
        bail!("cannot look into {}: {failed}, and no traced process has it as a folder", path.display());
    }

    /// Whether a path, as the process sees it, is this folder or lies in it.
    pub fn holds(&self, process: u32, path: &Path) -> bool {
        self.holds_by_path(path) || self.holds_itself(process, path)
    }

    /// The same, by path alone: in another mount namespace it may be another folder.
    pub fn holds_by_path(&self, path: &Path) -> bool {
        path.starts_with(&self.given) || self.real.as_ref().is_some_and(|real| path.starts_with(real))
    }

    /// The same, by device and inode, wherever it is mounted.
    pub fn holds_itself(&self, process: u32, path: &Path) -> bool {
        let is = |path| {
            let found = CachedStat::at(&namespace::inside(process, path));
            found.is_ok_and(|found| self.identities.contains(&(found.device, found.inode)))
        };
        !self.identities.is_empty() && path.is_absolute() && path.ancestors().any(is)
    }

    /// Whether a file is on the file system of this folder.
    fn is_beside(&self, key: FileKey, process: u32) -> bool {
        if self.identities.is_empty() {
            let there = CachedStat::at(&namespace::inside(process, &self.given));
            return there.is_ok_and(|found| FileKey::device_of_stat(found.device) == key.device);
        }
        self.identities.iter().any(|(dev, _)| FileKey::device_of_stat(*dev) == key.device)
    }
}

/// The folders that a folder, or one in it, links to.
fn links(folder: &Path, depth: u32, identities: &mut HashSet<(u64, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_KEPT) {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 1 {
            links(&entry.path(), depth - 1, identities);
        } else if kind.is_symlink()
            && let Ok(found) = fs::metadata(entry.path())
            && found.is_dir()
            && identities.len() < MAX_LINKS
        {
            identities.insert((found.dev(), found.ino()));
        }
    }
}

/// The known files of one process.
struct KnownFiles {
    /// Where its paths begin, as seen from here.
    root: PathBuf,
    /// Files that it had open, by inode.
    open: HashMap<u64, PathBuf>,
    /// Folders in which it has files, the one of the last file last.
    folders: Vec<PathBuf>,
    every_folder: HashSet<PathBuf>,
    /// About the bytes of all of these, and the most that they may be.
    bytes: usize,
    most_bytes: usize,
}

/// About what a cached path takes.
fn kept_bytes(path: &Path) -> usize {
    path.as_os_str().len() + ENTRY_BYTES
}

impl KnownFiles {
    fn new(process: u32, folder: Option<&Folder>, most_bytes: usize) -> Self {
        let root = namespace::root(process);
        let (open, folders, every_folder) = (HashMap::new(), Vec::new(), HashSet::new());
        let mut known = Self { root, open, folders, every_folder, bytes: 0, most_bytes };
        for path in folder.iter().flat_map(|folder| [Some(&folder.given), folder.real.as_ref()]).flatten() {
            known.learn(path);
        }
        known
    }

    fn here(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn learn(&mut self, folder: &Path) {
        // It is kept twice.
        let bytes = 2 * kept_bytes(folder);
        let has_room = self.every_folder.len() < MAX_KEPT && self.bytes + bytes <= self.most_bytes;
        if has_room && self.every_folder.insert(folder.into()) {
            self.bytes += bytes;
            self.folders.push(folder.into());
        }
    }

    /// Keeps an open file, if there is room.
    fn keep(&mut self, inode: u64, path: PathBuf) {
        let bytes = kept_bytes(&path);
        if self.open.len() < MAX_KEPT && self.bytes + bytes <= self.most_bytes {
            self.bytes += bytes;
            // It may be open twice.
            self.bytes -= self.open.insert(inode, path).map_or(0, |path| kept_bytes(&path));
        }
    }

    /// Forgets the open files.
    fn forget_open(&mut self) {
        let bytes: usize = self.open.values().map(|path| kept_bytes(path)).sum();
        self.bytes -= bytes;
        self.open.clear();
    }

    /// Searches the folders where files were found last.
    fn among_folders(&mut self, key: FileKey, name: &OsStr) -> Option<PathBuf> {
        let is_it =
            |path: &PathBuf| CachedStat::not_followed(path).is_ok_and(|found| found.inode == key.inode);
        let tried = self.folders.iter().rev().take(TRIED_FOLDERS);
        let back = tried.map(|folder| self.here(folder).join(name)).position(|path| is_it(&path))?;
        let at = self.folders.len() - 1 - back;
        let folder = self.folders.remove(at);
        let path = folder.join(name);
        self.folders.push(folder);
        Some(path)
    }

    /// Searches all open files of the process, and all folders in which it had files.
    fn search(&mut self, key: FileKey, process: u32, folder: Option<&Folder>) -> Option<PathBuf> {
        let (mut exactly, mut perhaps) = (None, None);
        self.forget_open();
        for entry in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let Ok(path) = fs::read_link(entry.path()) else { continue };
            let Ok(found) = CachedStat::at(&entry.path()) else { continue };
            if !found.is_regular || !path.is_absolute() {
                continue;
            }
            if let Some(folder) = path.parent() {
                self.learn(folder);
            }
            match is(&found, key) {
                Some(Match::Exact) => exactly = Some(path.clone()),
                Some(Match::Inode) => perhaps = Some(path.clone()),
                None => {}
            }
            self.keep(found.inode, path);
        }
        if exactly.is_some() {
            return exactly;
        }
        // Folders found on the way are searched as well.
        let mut at = 0;
        while let Some(of) = self.folders.get(at).cloned() {
            at += 1;
            let deeper = folder.is_some_and(|folder| folder.holds(process, &of));
            for entry in fs::read_dir(self.here(&of)).into_iter().flatten().flatten() {
                let path = of.join(entry.file_name());
                if entry.ino() == key.inode {
                    match CachedStat::not_followed(&entry.path()).ok().and_then(|found| is(&found, key)) {
                        Some(Match::Exact) => return Some(path),
                        Some(Match::Inode) => perhaps = Some(path),
                        None => {}
                    }
                } else if deeper && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.learn(&path);
                }
            }
        }
        perhaps
    }
}

/// How a file was recognised.
enum Match {
    /// By inode and device.
    Exact,
    /// By its inode alone.
    Inode,
}

/// Whether this is the file of the key. Device numbers of overlays and subvolumes differ from the kernel's, so the right
/// inode on another device may be it.
fn is(found: &CachedStat, key: FileKey) -> Option<Match> {
    let sure = FileKey::device_of_stat(found.device) == key.device;
    (found.is_regular && found.inode == key.inode).then_some(if sure { Match::Exact } else { Match::Inode })
}

/// Finds the paths of files, and decides which are wanted.
pub struct Paths {
    folder: Option<Folder>,
    processes: HashMap<u32, KnownFiles>,
    /// Files of pseudo file systems.
    pub pseudo: PseudoPaths,
    /// Time that searches may take.
    credit: Duration,
    searched: Instant,
    unplaced: u64,
}

/// The path of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its path in the mount namespace of the process; only its name if no more can be found.
    pub path: PathBuf,
    /// Whether it is wanted.
    pub wanted: bool,
}

/// Finds the paths of files of pseudo file systems, which needs no privileges, and decides which are wanted.
#[derive(Clone)]
pub struct PseudoPaths {
    folder: Option<Folder>,
    /// Where pseudo file systems are mounted, by their devices.
    points: HashMap<u64, PathBuf>,
}

impl PseudoPaths {
    /// As [`Paths::of`], by the folders that the kernel reports and the mount point here.
    pub fn of(&mut self, key: FileKey, folders: PseudoFolders<'_>, name: &[u8]) -> FoundFile {
        let point = self.points.entry(key.device).or_insert_with(|| {
            let mounts = Host::live().mounts("self").unwrap_or_default();
            let mount = mounts.into_iter().find(|mount| mount.device == key.device_number());
            // It is mounted in another namespace only.
            mount.map_or_else(|| PathBuf::from("/proc"), |mount| mount.point)
        });
        let mut path = point.clone();
        path.extend(folders.names().chain([name]).map(OsStr::from_bytes));
        let wanted = self.folder.as_ref().is_none_or(|folder| folder.holds_by_path(&path));
        FoundFile { path, wanted }
    }
}

/// What is known of a process, among what is known of all.
fn known_files<'a>(
    all: &'a mut HashMap<u32, KnownFiles>,
    process: u32,
    folder: Option<&Folder>,
) -> &'a mut KnownFiles {
    let others = all.iter().filter(|(other, _)| **other != process);
    let taken: usize = others.map(|(_, known)| known.bytes).sum();
    let most_bytes = MAX_KEPT_BYTES.saturating_sub(taken) / 2;
    let known = all.entry(process).or_insert_with(|| KnownFiles::new(process, folder, most_bytes));
    known.most_bytes = most_bytes;
    known
}

impl Paths {
    /// For files in this folder, or for all; `processes` may end soon.
    pub fn new(folder: Option<Folder>, processes: &[u32]) -> Self {
        let pseudo = PseudoPaths { folder: folder.clone(), points: HashMap::new() };
        let mut known = HashMap::new();
        for process in processes {
            known_files(&mut known, *process, folder.as_ref());
        }
        let (credit, searched, unplaced) = (MOST_SEARCH, Instant::now(), 0);
        Self { folder, processes: known, pseudo, credit, searched, unplaced }
    }

    /// Files that were left out because they were closed and deleted before their folder was found, and may have been
    /// in the wanted folder.
    pub fn unplaced(&self) -> u64 {
        self.unplaced
    }

    /// Finds the path of a file that a process accesses: by its descriptor (negative if unknown) and the last part of its
    /// path (empty if unknown).
    pub fn of(&mut self, key: FileKey, process: u32, fd: i32, name: &[u8]) -> FoundFile {
        let path = self.path_of(key, process, fd, name);
        let wanted = self.folder.as_ref().is_none_or(|folder| {
            // A file that is not found is not in the folder now.
            self.unplaced += u64::from(!path.is_absolute() && folder.is_beside(key, process));
            folder.holds(process, &path)
        });
        FoundFile { path, wanted }
    }

    fn path_of(&mut self, key: FileKey, process: u32, fd: i32, name: &[u8]) -> PathBuf {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        let folder = self.folder.as_ref();
        let known = known_files(&mut self.processes, process, folder);
        // The descriptor may have been closed, or given to another file, since.
        let link = PathBuf::from(format!("/proc/{process}/fd/{fd}"));
        let open = (fd >= 0).then(|| fs::read_link(&link).ok()).flatten().filter(|path| path.is_absolute());
        let same = open.is_some() && CachedStat::at(&link).is_ok_and(|found| is(&found, key).is_some());
        let (sure, unsure) = if same { (open, None) } else { (None, open) };
        let found = sure
            .or_else(|| {
                known.open.get(&key.inode).filter(|path| !name.is_empty() && ends(path, name)).cloned()
            })
            .or_else(|| (!name.is_empty()).then(|| known.among_folders(key, OsStr::from_bytes(name)))?)
            .or_else(|| if name.is_empty() { namespace::mapped_file(process, key) } else { None })
            .or_else(|| {
                let begun = Instant::now();
                let earned = begun.duration_since(self.searched) / SHARE;
                self.credit = (self.credit + earned).min(MOST_SEARCH);
                self.searched = begun;
                if self.credit.is_zero() {
                    return None;
                }
                let found = known.search(key, process, folder);
                self.credit = self.credit.saturating_sub(begun.elapsed());
                found
            })
            // The descriptor is another file of this name: it was replaced meanwhile.
            .or_else(|| unsure.filter(|path| !name.is_empty() && ends(path, name)));
        let Some(found) = found else { return PathBuf::from(OsStr::from_bytes(name)) };
        let path = named(found, name, &known.root);
        if let Some(folder) = path.parent() {
            known.learn(folder);
        }
        path
    }
}

/// A path with the name that the file had, without the kernel's mark of deleted files.
fn named(path: PathBuf, name: &[u8], root: &Path) -> PathBuf {
    if !name.is_empty() && name.len() < NAME_BYTES {
        return path.with_file_name(OsStr::from_bytes(name));
    }
    let Some(plain) = path.as_os_str().as_bytes().strip_suffix(DELETED) else { return path };
    // A file may really be called that.
    let there = root.join(path.strip_prefix("/").unwrap_or(&path));
    if CachedStat::at(&there).is_ok() { path } else { PathBuf::from(OsStr::from_bytes(plain)) }
}

/// Whether the last part of a path is this name, which may be cut.
fn ends(path: &Path, name: &[u8]) -> bool {
    let last = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let plain = last.strip_suffix(DELETED).unwrap_or(last);
    last == name || plain == name || name.len() == NAME_BYTES && last.starts_with(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mongosonar-paths-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(fs::canonicalize(path).unwrap())
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(path: &Path) -> FileKey {
        let found = fs::metadata(path).unwrap();
        FileKey { inode: found.ino(), device: FileKey::device_of_stat(found.dev()), generation: 0 }
    }

    const SELF: fn() -> u32 = std::process::id;

    #[test]
    fn a_file_is_found_open_closed_renamed_and_deleted() {
        let dir = Dir::new("found");
        let db = dir.0.join("db");
        fs::create_dir_all(db.join("journal")).unwrap();
        let (one, two) = (db.join("one.wt"), db.join("journal/two.log"));
        let opened = File::create(&one).unwrap();
        fs::write(&two, "x").unwrap();
        let (of_one, of_two) = (key(&one), key(&two));
        let folder = Folder::new(&db, &[]).unwrap();
        let found = |paths: &mut Paths, key, fd, name: &str| paths.of(key, SELF(), fd, name.as_bytes());
        let new = || Paths::new(Some(folder.clone()), &[SELF()]);
        let wanted = |path: &Path| FoundFile { path: path.into(), wanted: true };
        // By its number, by number that is wrong, and by none.
        for fd in [opened.as_raw_fd(), 0, -1] {
            assert_eq!(found(&mut new(), of_one, fd, "one.wt"), wanted(&one));
        }
        // Closed, in a folder that is not known yet.
        assert_eq!(found(&mut new(), of_two, -1, "two.log"), wanted(&two));
        // Renamed since: it keeps the name that it had.
        fs::rename(&two, db.join("journal/three.log")).unwrap();
        assert_eq!(found(&mut new(), of_two, -1, "two.log"), wanted(&two));
        fs::remove_file(&one).unwrap();
        for fd in [opened.as_raw_fd(), 0, -1] {
            assert_eq!(found(&mut new(), of_one, fd, "one.wt"), wanted(&one));
            // Whose name the kernel did not give.
            if fd > 0 {
                assert_eq!(found(&mut new(), of_one, fd, ""), wanted(&one));
            }
        }
        // Deleted and closed: nobody knows where it was.
        drop(opened);
        let mut paths = new();
        assert_eq!(
            found(&mut paths, of_one, -1, "one.wt"),
            FoundFile { path: "one.wt".into(), wanted: false }
        );
        assert_eq!(paths.unplaced(), 1);
        let mut all = Paths::new(None, &[]);
        assert_eq!(found(&mut all, of_one, -1, "one.wt"), FoundFile { path: "one.wt".into(), wanted: true });
        // Another file system's is none of the folder's.
        found(&mut paths, FileKey { device: of_one.device + 1, ..of_one }, -1, "one.wt");
        assert_eq!(paths.unplaced(), 1);
    }

    #[test]
    fn of_many_files_with_long_paths_as_many_are_kept_as_there_is_room_for() {
        let path = |number: u64| PathBuf::from(format!("/{}/{number}", "x".repeat(4_000)));
        let mut all = HashMap::new();
        // Numbers that no process has.
        for process in u32::MAX - 9..=u32::MAX {
            let known = known_files(&mut all, process, None);
            for inode in 0..MAX_KEPT as u64 {
                known.keep(inode, path(inode));
                known.learn(&path(inode));
            }
            assert!(known.bytes > 0 && known.bytes <= known.most_bytes);
        }
        let held = |known: &KnownFiles| -> usize {
            let paths = known.open.values().chain(&known.folders).chain(&known.every_folder);
            paths.map(|path| path.as_os_str().len()).sum()
        };
        assert!(all.values().map(held).sum::<usize>() <= MAX_KEPT_BYTES);
        // What is forgotten makes room, and what is open twice counts once.
        let mut all = HashMap::new();
        let known = known_files(&mut all, u32::MAX, None);
        for _ in 0..2 {
            known.keep(0, path(0));
            known.keep(0, path(0));
            assert_eq!((known.open.len(), known.bytes), (1, kept_bytes(&path(0))));
            known.forget_open();
            assert_eq!(known.bytes, 0);
        }
    }

    #[test]
    fn a_file_called_deleted_keeps_its_name() {
        let dir = Dir::new("deleted");
        let path = dir.0.join("notes (deleted)");
        let opened = File::create(&path).unwrap();
        for name in ["notes (deleted)", ""] {
            let found = Paths::new(None, &[]).of(key(&path), SELF(), opened.as_raw_fd(), name.as_bytes());
            assert_eq!(found.path, path);
        }
    }

    #[test]
    fn a_folder_is_known_by_each_of_its_paths() {
        let dir = Dir::new("folder");
        let (real, link) = (dir.0.join("real"), dir.0.join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        fs::write(real.join("x"), "").unwrap();
        // A journal, and a database's indexes, on other disks.
        for (linked, at) in [("journal", "real/journal"), ("index", "real/shop/index")] {
            fs::create_dir_all(dir.0.join("real/shop")).unwrap();
            fs::create_dir(dir.0.join(linked)).unwrap();
            std::os::unix::fs::symlink(dir.0.join(linked), dir.0.join(at)).unwrap();
        }
        let folder = Folder::new(&link, &[]).unwrap();
        assert!(folder.holds(SELF(), &dir.0.join("journal/WiredTigerLog.1")));
        assert!(folder.holds(SELF(), &dir.0.join("index/deeper/x.wt")));
        for path in [real.join("x"), link.join("x"), real.clone()] {
            assert!(folder.holds(SELF(), &path), "{}", path.display());
        }
        assert!(!folder.holds(SELF(), &dir.0.join("real-not/x")));
        assert!(!folder.holds(SELF(), &dir.0));
        assert!(!folder.holds(SELF(), Path::new("x")), "a name alone says nothing");
        assert!(Folder::new(&real.join("x"), &[SELF()]).is_err(), "a file is no folder");
        assert!(Folder::new(&dir.0.join("none"), &[SELF()]).is_err());
    }
}
