//! Opens the files that another process names, as that process itself could: below its root folder, with the rights of
//! its user, and nothing but regular files.
//!
//! Who starts a process chooses its arguments and the links that they lead to. mongosonar has rights that this person may
//! not have, and must not use them on that person's behalf. So it goes from folder to folder itself, checks each, and
//! follows a symbolic link by its text only: a link of the kernel (`/proc/PID/root`) leads nowhere else than its text. It
//! does not use `openat2`, which Linux 4.18 lacks, and which cannot check the rights of another user.
//!
//! Permissions and the access control list of a file count as they do for the kernel: with a list, the bits of the group
//! are only the most that the list may give.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::process::Process;
use super::regular::{itself, reopen};
use super::text::small;

/// The most symbolic links on the way to a file, as in the kernel.
const MAX_LINKS: usize = 40;
/// The most folders on the way to a file.
const MAX_DEPTH: usize = 256;
/// The longest path, in parts that are still to go.
const MAX_PARTS: usize = 1_024;
/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// The longest access control list, in bytes: some 500 entries.
const MAX_LIST: usize = 4_096;

/// Who a process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessUser {
    user: u32,
    groups: Vec<u32>,
    /// It passes over permissions.
    reads_all: bool,
}

/// Rights to a file or a folder, in the bits of a mode.
const READ: u32 = 4;
const SEARCH: u32 = 1;

impl ProcessUser {
    /// From `/proc/PID/status`: the ids that count for files. `None` if they are not those of the user who started it: a
    /// program that is set-uid or set-gid has rights that this user has not.
    fn parse(status: &str) -> Option<Self> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // Real, effective, saved, of the file system.
        let id = |name: &str| {
            let mut ids = line(name)?.split_ascii_whitespace();
            let real = ids.next()?;
            let is_one = ids.clone().count() == 3 && ids.all(|other| other == real);
            real.parse::<u32>().ok().filter(|_| is_one)
        };
        let user = id("Uid")?;
        let mut groups = vec![id("Gid")?];
        let others = line("Groups").unwrap_or_default().split_ascii_whitespace();
        groups.extend(others.filter_map(|group| group.parse::<u32>().ok()));
        // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH. Those of another user count in a namespace of that user only.
        let effective = u64::from_str_radix(line("CapEff").unwrap_or_default().trim(), 16).unwrap_or(0);
        Some(Self { user, groups, reads_all: user == 0 && effective & 0b110 != 0 })
    }

    fn may(&self, file: &impl AsRawFd, right: u32) -> io::Result<bool> {
        let found = rustix::fs::stat(itself(file))?;
        let allows = |class: u32| found.st_mode >> class & right == right;
        if self.reads_all {
            return Ok(true);
        }
        if found.st_uid == self.user {
            return Ok(allows(6));
        }
        let mut list = [0; MAX_LIST];
        match rustix::fs::getxattr(itself(file), "system.posix_acl_access", &mut list) {
            Ok(length) => Ok(self.list_allows(&list[..length], found.st_gid, right)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {
                Ok(allows(if self.groups.contains(&found.st_gid) { 3 } else { 0 }))
            }
            // It has one that cannot be read.
            Err(_) => Ok(false),
        }
    }

    /// What the access control list of a file of this group says of this user, who does not own the file:
    /// linux/posix_acl_xattr.h, and `posix_acl_permission` in fs/posix_acl.c.
    fn list_allows(&self, list: &[u8], file_group: u32, right: u32) -> bool {
        const VERSION: [u8; 4] = 2u32.to_le_bytes();
        let Some(entries) = list.strip_prefix(&VERSION) else { return false };
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return false;
        }
        let each = entries.iter().map(|&[tag, tag_high, rights, _, a, b, c, d]| {
            (u16::from_le_bytes([tag, tag_high]), u32::from(rights), u32::from_le_bytes([a, b, c, d]))
        });
        let mask = each.clone().find(|(tag, ..)| *tag == 0x10).map_or(7, |(_, rights, _)| rights);
        let (mut is_in_group, mut group_allows) = (false, false);
        for (tag, rights, id) in each {
            match tag {
                // A user.
                0x02 if id == self.user => return rights & mask & right == right,
                // The group of the file, and another one.
                0x04 | 0x08 if self.groups.contains(if tag == 0x04 { &file_group } else { &id }) => {
                    is_in_group = true;
                    group_allows |= rights & mask & right == right;
                }
                // Others.
                0x20 if !is_in_group => return rights & right == right,
                _ => {}
            }
        }
        group_allows
    }
}

/// The files of a process.
#[derive(Debug)]
pub struct ProcessFiles {
    root: OwnedFd,
    /// Whose rights count; `None`: only those that this process has itself.
    user: Option<ProcessUser>,
    /// Paths come from the administrator: the rights of the user count only where a symbolic link leads elsewhere.
    trusts_paths: bool,
}

impl ProcessFiles {
    /// Those of a process.
    ///
    /// # Errors
    /// It has ended or executed another program, or its root folder cannot be seen.
    pub fn of(process: &Process) -> io::Result<Self> {
        Self::as_found(process, &process.folder().join("root"), false)
    }

    /// Those of whichever process has this number now.
    ///
    /// # Errors
    /// There is none, or its root folder cannot be seen.
    pub fn of_number(process: u32) -> io::Result<Self> {
        let folder = Path::new("/proc").join(process.to_string());
        Self::below(&folder.join("root"), &folder, false)
    }

    /// The same by paths as they are seen from here: for a process whose root folder cannot be seen, and is probably ours.
    ///
    /// # Errors
    /// It has ended or executed another program.
    pub fn in_our_root(process: &Process) -> io::Result<Self> {
        Self::as_found(process, Path::new("/"), false)
    }

    /// Those that the administrator of this host names for a process, by paths as they are seen from here.
    ///
    /// # Errors
    /// It has ended or executed another program.
    pub fn named_for(process: &Process) -> io::Result<Self> {
        Self::as_found(process, Path::new("/"), true)
    }

    /// With a look after the rights of the process were read: a program that it has executed since it was found may have
    /// those of root.
    fn as_found(process: &Process, root: &Path, trusts_paths: bool) -> io::Result<Self> {
        let files = Self::below(root, process.folder(), trusts_paths)?;
        if process.is_unchanged() { Ok(files) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Those of a machine whose root folder, or a copy of it, is this one: links stay below it, and the rights are those of
    /// this process.
    ///
    /// # Errors
    /// It is no folder, or cannot be looked at.
    pub fn of_machine(root: &Path) -> io::Result<Self> {
        Ok(Self { root: folder(root)?, user: None, trusts_paths: true })
    }

    /// The same with one of its folders as the root folder.
    ///
    /// # Errors
    /// There is none at this path, or it cannot be looked at.
    pub fn rooted_at(&self, path: &Path) -> io::Result<Self> {
        let FoundPath { descriptor: root, .. } = self.find(path)?;
        match FileType::from_raw_mode(fstat(&root)?.st_mode) {
            FileType::Directory => {
                Ok(Self { root, user: self.user.clone(), trusts_paths: self.trusts_paths })
            }
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn below(root: &Path, process: &Path, trusts_paths: bool) -> io::Result<Self> {
        let root = folder(root)?;
        let status = small(&process.join("status")).ok_or(io::ErrorKind::NotFound)?;
        let foreign = "its rights are not those of the user who started it";
        let foreign = || io::Error::new(io::ErrorKind::PermissionDenied, foreign);
        let user = Some(ProcessUser::parse(&status).ok_or_else(foreign)?);
        Ok(Self { root, user, trusts_paths })
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if the user of the process may not read it, [`io::ErrorKind::InvalidInput`] if
    /// it is not a regular file; or there is none.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let found = self.find(path)?;
        let about = fstat(&found.descriptor)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        self.check(&found)?;
        reopen(&found.descriptor, libc::O_NONBLOCK | libc::O_NOCTTY)
    }

    /// Opens a regular file that the process has open, by its number; it may be outside of its root folder.
    ///
    /// # Errors
    /// As [`ProcessFiles::open`].
    pub fn open_descriptor(&self, process: &Process, number: u32) -> io::Result<File> {
        let file = super::regular::open(&process.folder().join("fd").join(number.to_string()))?;
        match self.may(&file, READ)? {
            true => Ok(file),
            false => Err(denied()),
        }
    }

    /// The text of a symbolic link: where it leads as the process sees it.
    ///
    /// # Errors
    /// There is none, or its folder cannot be searched.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = self.find(folder)?;
        self.check_search(&folder.descriptor, folder.by_link)?;
        let target = readlinkat(&folder.descriptor, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// What is at a path; `None` if there is nothing.
    ///
    /// # Errors
    /// The path cannot be looked at.
    pub fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let found = match self.find(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        File::from(found.descriptor).metadata().map(Some)
    }

    /// Those entries of a folder whose names are wanted, at most `most`, with what they are; links are not followed. In a
    /// folder with a hundred thousand entries, the first ones.
    ///
    /// # Errors
    /// The user of the process may not read the folder, or there is none.
    pub fn list(
        &self,
        folder: &Path,
        most: usize,
        is_wanted: &dyn Fn(&OsStr) -> bool,
    ) -> io::Result<Vec<(OsString, Metadata)>> {
        let found = self.find(folder)?;
        self.check(&found)?;
        let folder = reopen(&found.descriptor, libc::O_DIRECTORY)?;
        let mut wanted = Vec::new();
        // One by one: who owns the folder may have filled it.
        for entry in fs::read_dir(itself(&folder))?.take(MAX_ENTRIES) {
            let entry = entry?;
            let name = entry.file_name();
            // One that has just been removed is not there.
            if wanted.len() < most
                && is_wanted(&name)
                && let Ok(found) = entry.metadata()
            {
                wanted.push((name, found));
            }
        }
        Ok(wanted)
    }

    fn check(&self, found: &FoundPath) -> io::Result<()> {
        let is_named = self.trusts_paths && !found.by_link;
        if is_named || self.may(&found.descriptor, READ)? { Ok(()) } else { Err(denied()) }
    }

    /// Whether the entries of a folder may be reached, to which a link has led or not.
    fn check_search(&self, folder: &OwnedFd, by_link: bool) -> io::Result<()> {
        let is_named = self.trusts_paths && !by_link;
        if is_named || self.may(folder, SEARCH)? { Ok(()) } else { Err(denied()) }
    }

    fn may(&self, file: &impl AsRawFd, right: u32) -> io::Result<bool> {
        self.user.as_ref().map_or(Ok(true), |user| user.may(file, right))
    }

    /// Goes to a path, from folder to folder.
    fn find(&self, path: &Path) -> io::Result<FoundPath> {
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut to_go = parts(path);
        let mut links = 0;
        while let Some(part) = to_go.pop() {
            let part = match part {
                PathPart::Root => {
                    folders.clear();
                    continue;
                }
                PathPart::Up => {
                    folders.pop();
                    continue;
                }
                PathPart::Name(name) => name,
            };
            let here = folders.last().unwrap_or(&self.root);
            self.check_search(here, links > 0)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(here, &part, flags, Mode::empty())?;
            if FileType::from_raw_mode(fstat(&next)?.st_mode) == FileType::Symlink {
                links += 1;
                let target = readlinkat(&next, "", Vec::new())?;
                to_go.extend(parts(Path::new(&OsString::from_vec(target.into_bytes()))));
            } else {
                folders.push(next);
            }
            if links > MAX_LINKS || folders.len() > MAX_DEPTH || to_go.len() > MAX_PARTS {
                return Err(Errno::LOOP.into());
            }
        }
        let descriptor = match folders.pop() {
            Some(found) => found,
            None => self.root.try_clone()?,
        };
        Ok(FoundPath { descriptor, by_link: links > 0 })
    }
}

/// A file or a folder that a path leads to, not opened for reading.
struct FoundPath {
    descriptor: OwnedFd,
    /// Whether there was a symbolic link on the way.
    by_link: bool,
}

/// A step on the way to a file.
enum PathPart {
    Root,
    Up,
    Name(OsString),
}

/// A folder, not opened for reading.
fn folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The steps of a path, the first one last.
fn parts(path: &Path) -> Vec<PathPart> {
    let part = |component: Component<'_>| match component {
        Component::RootDir => Some(PathPart::Root),
        Component::ParentDir => Some(PathPart::Up),
        Component::Normal(name) => Some(PathPart::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn denied() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the user of that process may not read it")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::PathBuf;
    use std::process::Command;

    use super::super::Host;
    use super::*;
    use crate::executing_shell::ExecutingShell;

    /// The user of the process.
    const USER: u32 = 65_533;
    /// Another one, who shares a group with it.
    const OTHER: u32 = 65_532;
    const GROUP: u32 = 65_531;

    /// A process of `USER` with a root folder of its own, and files of others; removed at the end.
    struct OtherUsers {
        folder: PathBuf,
        process: Process,
    }

    impl OtherUsers {
        /// `None` without root, who alone may give files to others.
        fn new(name: &str, capabilities: &str) -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                println!("skipped: only root can give files to other users");
                return None;
            }
            let folder = std::env::temp_dir().join(format!("sonar-sys-files-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(folder.join("7/root/log")).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(folder.join("7/comm"), "mongod\n").unwrap();
            let status = format!(
                "Name:\tmongod\nUid:\t{0}\nGid:\t{0}\nGroups:\t{GROUP} 5 \nCapEff:\t{capabilities}\n",
                [USER; 4].map(|id| id.to_string()).join("\t")
            );
            fs::write(folder.join("7/status"), status).unwrap();
            let process = Host::of_proc(&folder).process(7, &["mongod"]).unwrap();
            Some(Self { folder, process })
        }

        /// A file below the root of the process.
        fn file(&self, path: &str, (user, group, mode): (u32, u32, u32)) {
            let path = self.folder.join("7/root").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "content").unwrap();
            chown(&path, Some(user), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            symlink(to, self.folder.join("7/root").join(path)).unwrap();
        }

        fn opens(&self, path: &str) -> Option<io::ErrorKind> {
            ProcessFiles::of(&self.process).unwrap().open(Path::new(path)).err().map(|error| error.kind())
        }
    }

    impl Drop for OtherUsers {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    const OPENED: Option<io::ErrorKind> = None;
    const DENIED: Option<io::ErrorKind> = Some(io::ErrorKind::PermissionDenied);

    #[test]
    fn a_file_is_opened_if_the_user_of_the_process_may_read_it() {
        let Some(users) = OtherUsers::new("rights", "0000000000000000") else { return };
        for (name, about, expected) in [
            ("own", (USER, 0, 0o400), OPENED),
            ("own-but-not-for-itself", (USER, 0, 0o044), DENIED),
            ("group", (OTHER, GROUP, 0o040), OPENED),
            ("main-group", (OTHER, USER, 0o040), OPENED),
            ("not-for-the-group", (OTHER, GROUP, 0o404), DENIED),
            ("all", (OTHER, OTHER, 0o004), OPENED),
            ("shadow", (0, 0, 0o640), DENIED),
            ("written", (OTHER, OTHER, 0o622), DENIED),
        ] {
            users.file(&format!("log/{name}"), about);
            assert_eq!(users.opens(&format!("/log/{name}")), expected, "{name}");
        }
        // Everybody may read the file, and nobody but its owner may get at it.
        users.file("private/log", (OTHER, OTHER, 0o644));
        let private = users.folder.join("7/root/private");
        chown(&private, Some(OTHER), Some(OTHER)).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(users.opens("/private/log"), DENIED);
        let files = ProcessFiles::of(&users.process).unwrap();
        assert_eq!(
            files.list(Path::new("/private"), 9, &|_| true).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert!(files.metadata(Path::new("/private/log")).is_err());
        assert_eq!(files.metadata(Path::new("/log/own")).unwrap().unwrap().uid(), USER);
        assert!(files.metadata(Path::new("/log/nothing")).unwrap().is_none());
        assert_eq!(files.list(Path::new("/log"), 3, &|_| true).unwrap().len(), 3);
        let listed = files.list(Path::new("/log"), 3, &|name| name == "all").unwrap();
        assert_eq!(listed.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["all"]);
    }

    /// A user or a group, its rights in an access control list, and its number.
    type ListEntry = (u16, u16, u32);

    /// Gives a file an access control list: as `setfacl` stores it, see linux/posix_acl_xattr.h. `None` if the file system
    /// has none.
    fn with_list(path: &Path, entries: &[ListEntry]) -> Option<()> {
        let entry = |(tag, rights, id): &ListEntry| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, "system.posix_acl_access", &list, flags).ok()
    }

    #[test]
    fn a_program_that_is_set_uid_has_rights_that_its_user_has_not() {
        let status = |user: [u32; 4], group: [u32; 4]| {
            let ids = |ids: [u32; 4]| ids.map(|id| id.to_string()).join("\t");
            ProcessUser::parse(&format!("Uid:\t{}\nGid:\t{}\nCapEff:\t0\n", ids(user), ids(group)))
        };
        let (own, foreign) = ([USER; 4], [USER, 0, 0, 0]);
        let user = ProcessUser { user: USER, groups: vec![USER], reads_all: false };
        assert_eq!(status(own, own), Some(user));
        for (user, group) in
            [(foreign, own), (own, foreign), ([USER, USER, 0, USER], own), ([0, USER, USER, USER], own)]
        {
            assert_eq!(status(user, group), None, "{user:?} {group:?}");
        }
        assert_eq!(ProcessUser::parse("Uid:\t7\t7\t7\nGid:\t7\t7\t7\t7\n"), None, "it is cut");
    }

    #[test]
    fn an_access_control_list_counts_as_for_the_kernel() {
        let Some(users) = OtherUsers::new("lists", "0000000000000000") else { return };
        const NOBODY: u32 = u32::MAX;
        let (owner, mask, others) = ((0x01, 6, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY));
        let of_group = |rights| (0x04, rights, NOBODY);
        let named = |rights| (0x02, rights, USER);
        for (name, list, expected) in [
            // The bits of the group in the mode are the mask then: rw- or rwx.
            ("group-without-rights", vec![owner, (0x02, 6, OTHER - 9), of_group(0), mask, others], DENIED),
            ("group", vec![owner, (0x02, 6, OTHER - 9), of_group(4), mask, others], OPENED),
            ("named", vec![owner, named(4), of_group(0), mask, others], OPENED),
            ("named-without-rights", vec![owner, named(0), of_group(4), mask, (0x20, 4, NOBODY)], DENIED),
            ("masked", vec![owner, named(4), of_group(4), (0x10, 2, NOBODY), others], DENIED),
            ("named-group", vec![owner, of_group(0), (0x08, 4, USER), mask, others], OPENED),
            ("others", vec![owner, of_group(0), (0x08, 4, OTHER - 9), mask, (0x20, 4, NOBODY)], DENIED),
        ] {
            users.file(&format!("log/{name}"), (OTHER, GROUP, 0o640));
            let path = users.folder.join("7/root/log").join(name);
            if with_list(&path, &list).is_none() {
                return println!("skipped: no access control lists in {}", users.folder.display());
            }
            assert_eq!(users.opens(&format!("/log/{name}")), expected, "{name}");
            // What the kernel says.
            let read = Command::new("setpriv")
                .args(["--reuid", &USER.to_string(), "--regid", &USER.to_string()])
                .args(["--groups", &GROUP.to_string(), "cat"])
                .arg(&path)
                .output();
            if let Ok(read) = read {
                assert_eq!(read.status.success(), expected == OPENED, "{name}: {read:?}");
            }
        }
    }

    #[test]
    fn links_stay_below_the_root_of_the_process_and_need_the_rights_of_its_user() {
        let Some(users) = OtherUsers::new("links", "0000000000000000") else { return };
        users.file("log/own", (USER, USER, 0o600));
        users.file("etc/shadow", (0, 0, 0o600));
        let outside = users.folder.join("outside");
        fs::write(&outside, "content").unwrap();
        for (name, to, expected) in [
            ("relative", "own", OPENED),
            ("absolute", "/log/own", OPENED),
            ("up", "../../../../../log/own", OPENED),
            ("shadow", "/etc/shadow", DENIED),
            ("outside", outside.to_str().unwrap(), Some(io::ErrorKind::NotFound)),
            ("kernel", "/proc/self/root/etc/passwd", Some(io::ErrorKind::NotFound)),
        ] {
            users.link(&format!("log/{name}"), to);
            assert_eq!(users.opens(&format!("/log/{name}")), expected, "{name}");
        }
        users.link("log/loop", "loop");
        let files = ProcessFiles::of(&users.process).unwrap();
        let error = files.open(Path::new("/log/loop")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn links_of_a_copied_machine_stay_below_its_folder() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-copied-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let machine = folder.join("machine");
        fs::create_dir_all(machine.join("proc/7")).unwrap();
        fs::create_dir_all(machine.join("lib")).unwrap();
        fs::write(folder.join("outside"), "of the host").unwrap();
        fs::write(machine.join("file"), "of the copy").unwrap();
        let outside = folder.join("outside");
        for (name, to) in [
            ("proc/7/root", Path::new("/")),
            ("inside", Path::new("/file")),
            ("lib/up", Path::new("../../../file")),
            ("lib/outside", &outside),
        ] {
            symlink(to, machine.join(name)).unwrap();
        }
        let copy = ProcessFiles::of_machine(&machine).unwrap();
        let of_process = copy.rooted_at(Path::new("/proc/7/root")).unwrap();
        for files in [&copy, &of_process] {
            let read = |path: &str| files.open(Path::new(path)).and_then(io::read_to_string).ok();
            assert_eq!(read("/inside").as_deref(), Some("of the copy"));
            assert_eq!(read("/lib/up").as_deref(), Some("of the copy"));
            assert_eq!(read("/lib/outside"), None);
            let link = |path: &str| files.read_link(Path::new(path)).ok();
            assert_eq!(
                link("/proc/7/root/lib/outside").as_ref(),
                Some(&outside),
                "where it would lead there"
            );
            assert_eq!(link("/file"), None);
        }
        assert!(copy.rooted_at(Path::new("/file")).is_err() && copy.rooted_at(Path::new("/proc/8")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_of_the_kernel_leads_nowhere_but_to_its_text() {
        let Some(users) = OtherUsers::new("magic", "0000000000000000") else { return };
        // The root folder of the process is that of the host here.
        fs::remove_dir_all(users.folder.join("7/root")).unwrap();
        symlink("/", users.folder.join("7/root")).unwrap();
        let secret = users.folder.join("secret");
        fs::write(&secret, "content").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        let open = File::open(&secret).unwrap();
        fs::remove_file(&secret).unwrap();
        // The descriptor leads to a file that has no name any more; the text of the link leads to none.
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        assert!(fs::read(&path).is_ok());
        assert!(users.opens(&path).is_some());
        assert_eq!(users.opens("/etc/shadow"), DENIED);
        assert_eq!(users.opens("/etc/passwd"), OPENED);
        assert_eq!(users.opens("/proc/1/environ"), DENIED);
    }

    #[test]
    fn the_rights_of_a_program_that_a_process_has_executed_meanwhile_do_not_count() {
        let mut shell = ExecutingShell::start();
        let process = Host::live().process(shell.id(), &["sh"]).unwrap();
        assert!(ProcessFiles::of(&process).is_ok() && ProcessFiles::in_our_root(&process).is_ok());
        shell.execute();
        let kind = |files: io::Result<ProcessFiles>| files.err().map(|error| error.kind());
        let kinds = [ProcessFiles::of(&process), ProcessFiles::in_our_root(&process)].map(kind);
        shell.end();
        assert_eq!(kinds, [Some(io::ErrorKind::NotFound); 2]);
    }

    #[test]
    fn nothing_but_a_regular_file_is_opened_and_a_pipe_is_not_waited_for() {
        let Some(users) = OtherUsers::new("kinds", "0000000000000000") else { return };
        let pipe = users.folder.join("7/root/log/pipe");
        assert!(Command::new("mkfifo").arg("-m666").arg(pipe).status().unwrap().success());
        for path in ["/log/pipe", "/log", "/"] {
            assert_eq!(users.opens(path), Some(io::ErrorKind::InvalidInput), "{path}");
        }
    }

    #[test]
    fn root_in_a_namespace_of_its_own_has_no_further_rights_here() {
        let Some(users) = OtherUsers::new("namespace", "000001ffffffffff") else { return };
        users.file("log/other", (OTHER, OTHER, 0o600));
        assert_eq!(users.opens("/log/other"), DENIED);
        let status = fs::read_to_string(users.folder.join("7/status")).unwrap();
        let ids = [USER; 4].map(|id| id.to_string()).join("\t");
        let of_root = status.replace(&format!("Uid:\t{ids}"), "Uid:\t0\t0\t0\t0");
        fs::write(users.folder.join("7/status"), of_root).unwrap();
        assert_eq!(users.opens("/log/other"), OPENED, "root of the host");
        let status = fs::read_to_string(users.folder.join("7/status")).unwrap();
        fs::write(users.folder.join("7/status"), status.replace("1ffffffffff", "00000000000")).unwrap();
        assert_eq!(users.opens("/log/other"), DENIED, "root without capabilities");
    }

    #[test]
    fn a_path_of_the_administrator_counts_as_it_is_and_links_do_not() {
        let Some(users) = OtherUsers::new("named", "0000000000000000") else { return };
        users.file("log/syslog", (0, 0, 0o600));
        users.file("log/own", (USER, USER, 0o600));
        users.link("log/to-syslog", "syslog");
        users.link("log/to-own", "own");
        let files = ProcessFiles::named_for(&users.process).unwrap();
        let opens = |name: &str| {
            let path = users.folder.join("7/root/log").join(name);
            files.open(&path).err().map(|error| error.kind())
        };
        assert_eq!((opens("syslog"), opens("to-own")), (OPENED, OPENED));
        assert_eq!(opens("to-syslog"), DENIED);
    }
}
