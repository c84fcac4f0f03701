//! Files and folders that other users may have prepared: what this process writes must not end up where they choose.
//!
//! Whoever may change a folder can put a link to another file where one is to be written. A program with the rights of
//! root that follows it overwrites that file on their behalf.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, openat, readlinkat};

/// Bits of a mode: others may write, the group may write, only the owner of an entry may remove it.
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;
/// All rights of users who are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// Why a path is not safe to write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted {
    /// The part of the path that others can change.
    pub path: PathBuf,
    why: UntrustedKind,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum UntrustedKind {
    /// It belongs to this user.
    Owner(u32),
    /// Others may write there.
    Writable,
    /// It is a symbolic link that this user has made.
    Link(u32),
    /// The file has another name too.
    Names,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.why {
            UntrustedKind::Owner(user) => write!(f, "{path} belongs to another user (id {user})"),
            UntrustedKind::Writable => write!(f, "other users can write to {path}"),
            UntrustedKind::Link(user) => write!(f, "{path} is a symbolic link of another user (id {user})"),
            UntrustedKind::Names => write!(f, "{path} has a second name elsewhere"),
        }
    }
}

impl std::error::Error for Untrusted {}

impl From<Untrusted> for io::Error {
    fn from(why: Untrusted) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, why)
    }
}

/// Users who may decide where this process writes: itself, root, and who called `sudo`.
struct TrustedUsers {
    own: u32,
    group: u32,
    caller: Option<u32>,
}

impl TrustedUsers {
    fn now() -> Self {
        let own = rustix::process::geteuid().as_raw();
        let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
        let caller = if own == 0 { caller() } else { None };
        Self { own, group: rustix::process::getegid().as_raw(), caller }
    }

    fn has(&self, user: u32) -> bool {
        user == 0 || user == self.own || Some(user) == self.caller
    }

    /// A folder above the one that is used: others must not be able to replace an entry of somebody else. A group may,
    /// since `/var/log` is writable for the group `syslog` on Debian and Ubuntu; docs/security.md says so.
    fn check_above(&self, path: &Path, found: &Metadata) -> Result<(), Untrusted> {
        let kept_apart = found.mode() & STICKY != 0;
        match found.uid() {
            owner if !self.has(owner) => Err(UntrustedKind::Owner(owner)),
            _ if found.mode() & OTHERS_WRITE != 0 && !kept_apart => Err(UntrustedKind::Writable),
            _ => Ok(()),
        }
        .map_err(|why| Untrusted { path: path.to_owned(), why })
    }

    /// The folder that is used: nobody else may put anything there.
    fn check_folder(&self, path: &Path, found: &Metadata) -> Result<(), Untrusted> {
        let of_group = found.mode() & GROUP_WRITES != 0 && ![0, self.group].contains(&found.gid());
        match found.uid() {
            owner if !self.has(owner) => Err(UntrustedKind::Owner(owner)),
            _ if of_group || found.mode() & OTHERS_WRITE != 0 => Err(UntrustedKind::Writable),
            _ => Ok(()),
        }
        .map_err(|why| Untrusted { path: path.to_owned(), why })
    }
}

/// Whether nobody else can put files into a folder, or another folder in its place. Where there is none yet, the same of
/// what it would be created in, but for entries beside it.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with what others can change, or the folder cannot be looked at.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let users = TrustedUsers::now();
    let folder = std::path::absolute(folder)?;
    for part in folder.ancestors() {
        // A link in a folder of others is not ours.
        match fs::symlink_metadata(part) {
            Ok(found) if found.is_symlink() && !users.has(found.uid()) => {
                return Err(Untrusted { path: part.to_owned(), why: UntrustedKind::Link(found.uid()) }.into());
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let is_there = folder.exists();
    let existing = folder.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
    let real = existing.canonicalize()?;
    for part in real.ancestors() {
        let found = fs::metadata(part)?;
        match is_there && part == real {
            true => users.check_folder(part, &found)?,
            false => users.check_above(part, &found)?,
        }
    }
    Ok(())
}

/// Makes a folder that only its owner may use, and those above it, or takes the one that is there. Whoever made one of them
/// first, nobody else can put files into it afterwards, or another folder in its place.
///
/// # Errors
/// As [`check_folder`], or it cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    make_folder_after(folder, || {})
}

/// The same; `look_away` is what others do meanwhile.
fn make_folder_after(folder: &Path, look_away: impl FnOnce()) -> io::Result<()> {
    check_folder(folder)?;
    look_away();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_folder(folder)
}

/// Whether a file or folder belongs to the user of the calling thread.
pub fn is_own(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Whether users who are neither the owner of a file nor in its group have any right to it.
pub fn is_for_others(found: &Metadata) -> bool {
    found.mode() & OTHERS != 0
}

/// Whether the calling thread is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a user is root, the one of the calling thread, or who called sudo.
pub fn has_user(user: u32) -> bool {
    TrustedUsers::now().has(user)
}

/// Opens a file for writing, or creates it; what it holds stays. Pipes and devices may be named too. Refuses a symbolic
/// link of another user, and in a folder of others also a file or a pipe that is not ours or has a second name.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with what others can change, or it cannot be opened.
pub fn open_to_replace(path: &Path) -> io::Result<File> {
    open_to_replace_after(path, || {})
}

/// The same; `look_away` is what others do meanwhile.
fn open_to_replace_after(path: &Path, look_away: impl FnOnce()) -> io::Result<File> {
    let users = TrustedUsers::now();
    let refuse = |why| Err(Untrusted { path: path.to_owned(), why }.into());
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(CWD, path, place, Mode::empty()) {
        Ok(found) => found,
        // Whatever is put there meanwhile stays as it is.
        Err(rustix::io::Errno::NOENT) => return File::options().write(true).create_new(true).open(path),
        Err(error) => return Err(error.into()),
    };
    let about = fstat(&found)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Symlink if !users.has(about.st_uid) => return refuse(UntrustedKind::Link(about.st_uid)),
        FileType::Symlink => {
            look_away();
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            // The text of a link of /proc leads nowhere, and nobody can put another one there.
            if fstatfs(&found)?.f_type == PROC_SUPER_MAGIC {
                return options.open(path);
            }
            // Where the one leads that was looked at, whatever is at the path now.
            let target = readlinkat(&found, "", Vec::new())?.into_bytes();
            return options.open(folder.join(OsString::from_vec(target)));
        }
        _ => {
            if users.check_folder(folder, &fs::metadata(folder)?).is_err() {
                if !users.has(about.st_uid) {
                    return refuse(UntrustedKind::Owner(about.st_uid));
                }
                if about.st_nlink > 1 {
                    return refuse(UntrustedKind::Names);
                }
            }
        }
    }
    // The one that was looked at, whatever is at the path now.
    match File::options().write(true).open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
        // There is no /proc here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path)
        }
        result => result,
    }
}

/// Opens a file of our own in a folder that may be shared: a regular file with this name only, which belongs to us, and
/// no link to one. Makes it if there is none; in place of anything else too.
///
/// # Errors
/// It cannot be created or opened.
pub fn open_own(path: &Path) -> io::Result<File> {
    let own = rustix::process::geteuid().as_raw();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = File::options();
    options.read(true).write(true).mode(0o600).custom_flags(flags);
    if let Ok(file) = options.open(path) {
        let found = file.metadata()?;
        if found.is_file() && found.nlink() == 1 && found.uid() == own {
            return Ok(file);
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options.create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const OTHER: u32 = 65_532;

    /// A folder like `/tmp`, removed at the end.
    struct SharedFolder(PathBuf);

    impl SharedFolder {
        /// `None` without root, who alone may give files to others.
        fn new(name: &str) -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                println!("skipped: only root can give files to other users");
                return None;
            }
            let folder = std::env::temp_dir().join(format!("sonar-sys-trust-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let shared = Self(folder);
            shared.allow("", 0o1777);
            Some(shared)
        }

        fn allow(&self, name: &str, mode: u32) {
            fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn folder(&self, name: &str, (owner, mode): (u32, u32)) -> PathBuf {
            fs::create_dir(self.0.join(name)).unwrap();
            chown(self.0.join(name), Some(owner), Some(owner)).unwrap();
            self.allow(name, mode);
            self.0.join(name)
        }

        fn link(&self, name: &str, (to, owner): (&Path, u32)) -> PathBuf {
            let path = self.0.join(name);
            symlink(to, &path).unwrap();
            lchown(&path, Some(owner), Some(owner)).unwrap();
            path
        }

        fn file(&self, name: &str, owner: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, "old").unwrap();
            chown(&path, Some(owner), Some(owner)).unwrap();
            path
        }

        /// A FIFO.
        fn pipe(&self, name: &str, owner: u32) -> PathBuf {
            let path = self.0.join(name);
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            chown(&path, Some(owner), Some(owner)).unwrap();
            path
        }
    }

    impl Drop for SharedFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn said(checked: io::Result<()>) -> Option<String> {
        checked.err().map(|error| {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            error.to_string()
        })
    }

    #[test]
    fn a_folder_that_others_can_change_or_replace_is_refused() {
        let Some(shared) = SharedFolder::new("folders") else { return };
        let own = shared.folder("own", (0, 0o755));
        assert_eq!(said(check_folder(&own)), None);
        assert_eq!(
            said(check_folder(&shared.0.join("new/store"))),
            None,
            "not there yet, beside others' files"
        );
        let others = shared.folder("others", (OTHER, 0o755));
        let belongs = format!("{} belongs to another user (id {OTHER})", others.display());
        assert_eq!(said(check_folder(&others)), Some(belongs.clone()));
        fs::create_dir(others.join("store")).unwrap();
        assert_eq!(said(check_folder(&others.join("store"))), Some(belongs.clone()), "they can replace it");
        assert_eq!(said(check_folder(&others.join("new"))), Some(belongs));
        for (name, mode, parent_is_safe) in [("all", 0o777, false), ("sticky", 0o1777, true)] {
            let open = shared.folder(name, (0, mode));
            let writable = format!("other users can write to {}", open.display());
            assert_eq!(said(check_folder(&open)), Some(writable.clone()), "{name}");
            fs::create_dir(open.join("store")).unwrap();
            let of_parent = said(check_folder(&open.join("store")));
            assert_eq!(of_parent, (!parent_is_safe).then_some(writable), "{name}");
        }
        let group = shared.folder("group", (0, 0o775));
        assert_eq!(said(check_folder(&group)), None, "the group of root");
        chown(&group, None, Some(OTHER)).unwrap();
        assert!(said(check_folder(&group)).is_some_and(|why| why.starts_with("other users can write")));
        fs::create_dir(group.join("store")).unwrap();
        assert_eq!(said(check_folder(&group.join("store"))), None, "as below /var/log");
        assert_eq!(said(check_folder(&shared.link("own-link", (&own, 0)))), None);
        let link = shared.link("link", (&own, OTHER));
        let why = format!("{} is a symbolic link of another user (id {OTHER})", link.display());
        assert_eq!(said(check_folder(&link)), Some(why.clone()));
        assert_eq!(said(check_folder(&link.join("below"))), Some(why));
    }

    #[test]
    fn a_folder_that_others_make_first_is_refused() {
        let Some(shared) = SharedFolder::new("made") else { return };
        let new = shared.0.join("new/store");
        assert_eq!(said(make_folder(&new)), None);
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
        assert_eq!(said(make_folder(&new)), None, "it is there");
        // What another user does after the first look.
        let whole = shared.0.join("store");
        let made = make_folder_after(&whole, || drop(shared.folder("store", (OTHER, 0o700))));
        assert_eq!(said(made), Some(format!("{} belongs to another user (id {OTHER})", whole.display())));
        let above = shared.0.join("above");
        let made = make_folder_after(&above.join("store"), || drop(shared.folder("above", (OTHER, 0o755))));
        assert_eq!(said(made), Some(format!("{} belongs to another user (id {OTHER})", above.display())));
        let link = shared.0.join("link");
        let made = make_folder_after(&link, || drop(shared.link("link", (&new, OTHER))));
        assert!(said(made).is_some_and(|why| why.contains("is a symbolic link of another user")));
    }

    #[test]
    fn a_file_that_others_prepared_is_not_written() {
        let Some(shared) = SharedFolder::new("files") else { return };
        let target = shared.folder("own", (0, 0o700)).join("target");
        fs::write(&target, "old").unwrap();
        let opened = |path: &Path| open_to_replace(path).map(drop);
        assert!(said(opened(&shared.link("link", (&target, OTHER)))).is_some());
        let dangling = shared.0.join("own/dangling");
        assert!(said(opened(&shared.link("to-nothing", (&dangling, OTHER)))).is_some());
        assert!(!dangling.exists());
        assert!(said(opened(&shared.file("theirs", OTHER))).is_some());
        // Who reads from it would get what is written.
        let pipe = shared.pipe("their-pipe", OTHER);
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        let why = format!("{} belongs to another user (id {OTHER})", pipe.display());
        assert_eq!(said(opened(&pipe)), Some(why));
        let second = shared.0.join("second-name");
        fs::hard_link(&target, &second).unwrap();
        let why = format!("{} has a second name elsewhere", second.display());
        assert_eq!(said(opened(&second)), Some(why));
        fs::remove_file(&second).unwrap();

        assert_eq!(said(opened(&shared.link("our-link", (&target, 0)))), None);
        assert_eq!(said(opened(&shared.file("ours", 0))), None);
        let pipe = shared.pipe("our-pipe", 0);
        let own_reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        assert_eq!(said(opened(&pipe)), None);
        drop((reader, own_reader));
        assert_eq!(said(opened(&shared.0.join("new"))), None);
        assert_eq!(said(opened(&target)), None);
        assert_eq!(said(opened(Path::new("/dev/null"))), None);
        assert_eq!(fs::read_to_string(&target).unwrap(), "old", "it is emptied later");
    }

    #[test]
    fn a_link_leads_where_it_led_when_it_was_looked_at() {
        let Some(shared) = SharedFolder::new("swapped") else { return };
        let folder = shared.folder("all", (0, 0o777));
        let [ours, theirs] = ["ours", "theirs"].map(|name| shared.file(name, 0));
        let link = shared.link("all/link", (Path::new("../ours"), 0));
        let opened = open_to_replace_after(&link, || {
            fs::remove_file(&link).unwrap();
            shared.link("all/link", (&theirs, OTHER));
        });
        let is = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(opened.unwrap().metadata().unwrap().ino(), is(&ours));
        assert_eq!(is(&folder.join("link")), is(&theirs));
    }

    #[test]
    fn a_file_of_our_own_takes_the_place_of_what_others_left_there() {
        let Some(shared) = SharedFolder::new("own") else { return };
        let target = shared.folder("own", (0, 0o700)).join("target");
        fs::write(&target, "old").unwrap();
        let second = shared.0.join("second-name");
        fs::hard_link(&target, &second).unwrap();
        let pipe = shared.pipe("pipe", 0);
        let prepared = [shared.link("link", (&target, OTHER)), shared.file("theirs", OTHER), second, pipe];
        for path in &prepared {
            use std::io::Write;

            open_own(path).unwrap().write_all(b"new").unwrap();
            let found = fs::symlink_metadata(path).unwrap();
            let about = (found.is_file(), found.uid(), found.nlink(), found.mode() & 0o777);
            assert_eq!(about, (true, 0, 1, 0o600), "{}", path.display());
            let inode = found.ino();
            open_own(path).unwrap();
            assert_eq!(fs::metadata(path).unwrap().ino(), inode, "the same one the next time");
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    }
}
