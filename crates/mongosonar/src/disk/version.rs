//! Finds the version of mongod without running it: from its own files, the path of its program, or the installed
//! packages.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sonar_core::disk::check::Version;
use sonar_core::files::naming::DIAGNOSTIC_DATA;
use sonar_sys::host::process_files::ProcessFiles;

use crate::servers::own_files::OwnFiles;

/// The most bytes to read of Debian's list of packages.
const MOST_PACKAGES_BYTES: u64 = 64 << 20;
/// The most bytes to read of a log, from its end.
const MOST_LOG_BYTES: u64 = 64 << 20;
/// The first document of a file of `diagnostic.data` is shorter than this.
const MOST_METADATA_BYTES: u64 = 256 << 10;
/// The most files of a folder of `diagnostic.data`: a server keeps some twenty.
const MAX_SAMPLES: usize = 1_000;
/// Debian's list of packages.
const DPKG: &str = "/var/lib/dpkg/status";
/// Folders of the list of RPM packages.
const RPM: [&str; 2] = ["/var/lib/rpm", "/usr/lib/sysimage/rpm"];
/// The list itself, in the formats that it has had.
const RPM_LISTS: [&str; 3] = ["rpmdb.sqlite", "Packages.db", "Packages"];
/// How long rpm may take to answer.
const RPM_PATIENCE: Duration = Duration::from_secs(5);

const PACKAGES: [&str; 6] = [
    "mongodb-org-server",
    "mongodb-enterprise-server",
    "percona-server-mongodb-server",
    "mongodb-server-core",
    "mongodb-server",
    "mongodb-org-unstable-server",
];
/// Where links to a mongod without a package are.
const LINKS: [&str; 4] = [
    "/usr/local/bin/mongod",
    "/usr/bin/mongod",
    "/home/linuxbrew/.linuxbrew/bin/mongod",
    "/opt/mongodb/bin/mongod",
];

/// Where to look.
pub struct Places {
    /// The files of the machine, or of its copy.
    pub machine: Option<ProcessFiles>,
    /// What rpm says.
    pub rpm: Option<Version>,
    /// The files of the running mongod, if there is one.
    pub own: Option<OwnFiles>,
    /// The same, but only those below its root folder.
    pub below_root: Option<OwnFiles>,
    /// Its program.
    pub program: Option<PathBuf>,
    /// Its folder of data.
    pub dbpath: Option<PathBuf>,
    /// Its log.
    pub log: Option<String>,
}

/// The version and its source in words; or the places that were checked in vain.
pub fn find(places: &Places) -> Result<(Version, String), String> {
    let mut tried = Vec::new();
    let running = places.own.is_some();
    if let Some(path) = places.dbpath.as_ref().filter(|_| running).map(|path| path.join(DIAGNOSTIC_DATA)) {
        match places.own(&path, of_diagnostic_data) {
            Ok(Some(version)) => return Ok((version, "its diagnostic.data".to_owned())),
            Ok(None) => tried.push(format!("{} holds no file with it", path.display())),
            Err(error) => tried.push(describe(&path, &error)),
        }
    }
    if let Some(path) = places.log.as_ref().filter(|_| running).map(PathBuf::from) {
        match places.own(&path, |files, path| of_log(files.open(path)?)) {
            Ok(Some(version)) => return Ok((version, "its log".to_owned())),
            Ok(None) => tried.push(format!("{} has no start in its last 64 MiB", path.display())),
            Err(error) => tried.push(describe(&path, &error)),
        }
    }
    let linked = || {
        LINKS.iter().find_map(|link| {
            let link = Path::new(link);
            let target = places.machine.as_ref()?.read_link(link).ok()?;
            of_path(&link.parent().map_or_else(|| target.clone(), |folder| folder.join(&target)))
        })
    };
    match &places.program {
        Some(program) => {
            if let Some(version) = of_path(program) {
                return Ok((version, format!("the path of its program, {}", program.display())));
            }
        }
        None if running => tried.push("the path of its program may not be read".to_owned()),
        None => {
            if let Some(version) = linked() {
                return Ok((version, "the folder that mongod is linked to".to_owned()));
            }
        }
    }
    // A program elsewhere is not from a package.
    if places
        .program
        .as_ref()
        .is_none_or(|path| path.starts_with("/usr/bin") || path.starts_with("/usr/sbin"))
    {
        let list = |files: &ProcessFiles| files.open(Path::new(DPKG));
        let own = || of_debian(places.below_root.as_ref()?.find(list).ok()?);
        let of_machine = || of_debian(list(places.machine.as_ref()?).ok()?);
        if let Some(version) = own().or_else(of_machine) {
            return Ok((version, "the package that is installed".to_owned()));
        }
        if let Some(version) = places.rpm {
            return Ok((version, "the package that is installed (rpm)".to_owned()));
        }
        tried.push("no package of it is installed (dpkg, rpm)".to_owned());
    } else {
        tried.push("its program did not come out of a package, and the path names no version".to_owned());
    }
    Err(tried.join("; "))
}

impl Places {
    /// What is found at a path as the mongod sees it; of a copy, where it would be on that machine.
    fn own<T>(&self, path: &Path, look: impl Fn(&ProcessFiles, &Path) -> io::Result<T>) -> io::Result<T> {
        match self.own.as_ref().filter(|_| path.is_absolute()) {
            Some(files) => files.find(|files| look(files, path)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn describe(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{} may not be read (run as root, or as its user)", path.display())
        }
        io::ErrorKind::NotFound => format!("{} is not there, or may not be looked into", path.display()),
        _ => format!("{}: {error}", path.display()),
    }
}

/// `7.0` of `7.0.5`, `4.4.29-28`, `8.1.0-rc0`: at least two numbers at the beginning.
fn parsed(text: &str) -> Option<Version> {
    let mut parts = text.split(['.', '-', '~', '+']);
    let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (version.0 < 1_000 && version.1 < 1_000).then_some(version)
}

/// The newest file of the folder begins with a document about the server that wrote it.
fn of_diagnostic_data(files: &ProcessFiles, folder: &Path) -> io::Result<Option<Version>> {
    // Named by the time of their first document.
    let is_one = |name: &OsStr| name.as_bytes().starts_with(b"metrics.2");
    let listed = files.list(folder, MAX_SAMPLES, &is_one)?;
    let Some(newest) = listed.into_iter().map(|(name, _)| name).max() else { return Ok(None) };
    let mut head = Vec::new();
    files.open(&folder.join(newest))?.take(MOST_METADATA_BYTES).read_to_end(&mut head)?;
    Ok(of_metadata(&head))
}

/// `buildInfo.version` of the first document, which is not compressed: an element of type string (2) has its
/// name, the length of the value in four bytes, the value and a zero.
fn of_metadata(head: &[u8]) -> Option<Version> {
    const NAME: &[u8] = b"\x02version\0";
    let length = u32::from_le_bytes(head.get(..4)?.try_into().ok()?) as usize;
    let document = head.get(..length)?;
    let at = |from: usize, what: &[u8]| {
        document
            .get(from..)?
            .windows(what.len())
            .position(|bytes| bytes == what)
            .map(|at| from + at + what.len())
    };
    let value = at(at(0, b"\x03buildInfo\0")?, NAME)?;
    let length = u32::from_le_bytes(document.get(value..value + 4)?.try_into().ok()?) as usize;
    let text = document.get(value + 4..)?.get(..length.checked_sub(1)?)?;
    parsed(std::str::from_utf8(text).ok()?)
}

/// The version of the last start in a log; each rotated log begins with one.
fn of_log(mut file: File) -> io::Result<Option<Version>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_LOG_BYTES)))?;
    let mut last = None;
    let mut lines = BufReader::new(file.take(MOST_LOG_BYTES));
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(last);
        }
        last = of_line(&line).or(last);
    }
}

/// `{"t":…,"id":23403,"ctx":…,"msg":"Build Info","attr":{"buildInfo":{"version":"7.0.5",…` from 4.4 on, before
/// that `2018-…T… I CONTROL  [initandlisten] db version v3.6.8`. What a client sent stands further on.
fn of_line(line: &[u8]) -> Option<Version> {
    if line.starts_with(b"{\"t\":") {
        let head = line.get(..line.len().min(256))?;
        if !head.windows(18).any(|bytes| bytes == b"\"msg\":\"Build Info\"") {
            return None;
        }
        let value: serde_json::Value = serde_json::from_slice(line).ok()?;
        if value.get("msg")? != "Build Info" {
            return None;
        }
        return parsed(value.get("attr")?.get("buildInfo")?.get("version")?.as_str()?);
    }
    const WORDS: &[u8] = b"] db version v";
    let head = line.get(..line.len().min(128))?;
    let at = head.iter().position(|byte| *byte == b']')?;
    let rest = head.get(at..)?.strip_prefix(WORDS)?;
    let text = std::str::from_utf8(rest).ok()?;
    parsed(text.split([' ', ',', '\r', '\n']).next()?)
}

/// The version in a path as archives unpack (`mongodb-linux-x86_64-rhel80-7.0.5/bin/mongod`) and as Homebrew and
/// version managers have it (`…/Cellar/mongodb-community/7.0.5/bin/mongod`).
fn of_path(path: &Path) -> Option<Version> {
    let mut components = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    (components.next()? == "mongod" && components.next()? == "bin").then_some(())?;
    let folder = components.next()?;
    let digits =
        |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.matches('.').count() >= 2;
    if digits(folder) {
        return parsed(folder);
    }
    let known = ["mongodb-", "percona-server-mongodb-"].iter().any(|prefix| folder.starts_with(prefix));
    known.then(|| folder.split('-').find(|part| digits(part)).and_then(parsed)).flatten()
}

/// The version of the package that is installed, in the list of a Debian machine.
fn of_debian(list: File) -> Option<Version> {
    let list = list.take(MOST_PACKAGES_BYTES);
    let (mut is_server, mut is_installed) = (false, false);
    for line in BufReader::new(list).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(name) = line.strip_prefix("Package: ") {
            is_server = PACKAGES.contains(&name.trim());
            is_installed = false;
        } else if let Some(status) = line.strip_prefix("Status: ") {
            // A removed package whose configuration is still there is listed as well.
            is_installed = status.trim_end().ends_with(" installed");
        } else if let Some(version) = line.strip_prefix("Version: ").filter(|_| is_server && is_installed) {
            // An epoch may stand before it: 1:7.0.5-1.
            return parsed(version.rsplit(':').next()?);
        }
    }
    None
}

/// The same for RPM packages of this machine. Their list has had three formats, so it runs rpm: before the privileges are
/// dropped, after which no program can be started.
pub fn of_rpm() -> Option<Version> {
    let has_list = |folder: &&str| RPM_LISTS.iter().any(|list| Path::new(folder).join(list).is_file());
    // Where there is none, rpm would make an empty one: on Debian, in the home of the user.
    let folder = RPM.into_iter().find(has_list)?;
    let mut child = Command::new("rpm")
        .args(["--dbpath", folder, "-q", "--queryformat", "%{VERSION}\\n"])
        .args(PACKAGES)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let end = Instant::now() + RPM_PATIENCE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = String::new();
    child.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    of_rpm_answer(&text)
}

/// For a package that is not installed rpm prints a sentence.
fn of_rpm_answer(text: &str) -> Option<Version> {
    text.lines()
        .find_map(|line| line.starts_with(|c: char| c.is_ascii_digit()).then(|| parsed(line)).flatten())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_line_of_a_start_names_it_and_what_a_client_sent_does_not() {
        // As 7.0 and 4.0 write it.
        let json = br#"{"t":{"$date":"2024-01-05T10:11:12.131+00:00"},"s":"I",  "c":"CONTROL",  "id":23403,   "ctx":"initandlisten","msg":"Build Info","attr":{"buildInfo":{"version":"7.0.5","gitVersion":"7809d71e84e314b497f282ea8aa06d7ded3eb205","modules":[],"allocator":"tcmalloc","environment":{"distmod":"rhel80"}}}}"#;
        assert_eq!(of_line(json), Some((7, 0)));
        assert_eq!(
            of_line(b"2026-11-21T00:39:39.510+0000 I CONTROL  [initandlisten] db version v4.0.3\n"),
            Some((4, 0))
        );
        assert_eq!(of_line(b"Sat Nov 21 00:39:39.510 [initandlisten] db version v2.4.14\n"), Some((2, 4)));
        for other in [
            &br#"{"t":{"$date":"2024-01-05T10:11:12.131+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{"comment":"\"msg\":\"Build Info\"","buildInfo":{"version":"9.0.0"}}}"#[..],
            b"2026-11-21T00:39:39.510+0000 I COMMAND  [conn1] find { a: \"] db version v9.9.9\" }",
            b"] db version v",
            b"{\"t\":",
            b"",
        ] {
            assert_eq!(of_line(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_log_names_the_last_start() {
        let path = std::env::temp_dir().join(format!("mongosonar-version-{}.log", std::process::id()));
        fs::write(&path, "2018-01-01T00:00:00.000+0000 I CONTROL  [initandlisten] db version v3.6.8\nx\n2020-01-01T00:00:00.000+0000 I CONTROL  [initandlisten] db version v4.2.1\ny").unwrap();
        assert_eq!(of_log(File::open(&path).unwrap()).unwrap(), Some((4, 2)));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn metadata_of_diagnostic_data_names_it() {
        // {_id: Date, type: 0, doc: {start: Date, buildInfo: {start: Date, version: "6.0.12", …}}}
        let mut inner =
            b"\x09start\0\0\0\0\0\0\0\0\0\x02version\0\x07\0\0\x006.0.12\0\x02gitVersion\0\x02\0\0\0a\0\0"
                .to_vec();
        let wrap = |name: &[u8], value: Vec<u8>| {
            let mut out = (value.len() as u32 + 4).to_le_bytes().to_vec();
            out.extend(value);
            [b"\x03".as_slice(), name, b"\0", &out].concat()
        };
        inner = wrap(b"buildInfo", inner);
        inner.push(0);
        inner = wrap(b"doc", inner);
        inner.push(0);
        let mut document = (inner.len() as u32 + 4).to_le_bytes().to_vec();
        document.extend(inner);
        assert_eq!(of_metadata(&document), Some((6, 0)));
        for length in 0..document.len() {
            assert_eq!(of_metadata(&document[..length]), None);
        }
    }

    #[test]
    fn a_link_in_a_copied_machine_does_not_lead_out_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        let list = |version: &str| {
            format!("Package: mongodb-org-server\nStatus: install ok installed\nVersion: {version}\n")
        };
        let (own, host) = (copy.join("own/status"), folder.path().join("host/status"));
        for (path, version) in [(&own, "7.0.5"), (&host, "9.9.9")] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, list(version)).unwrap();
        }
        fs::create_dir_all(copy.join("var/lib/dpkg")).unwrap();
        let of_link_to = |target: &Path| {
            let link = copy.join(DPKG.trim_start_matches('/'));
            let _ = fs::remove_file(&link);
            symlink(target, &link).unwrap();
            let machine = ProcessFiles::of_machine(&copy).ok();
            let places = Places {
                machine,
                rpm: None,
                own: None,
                below_root: None,
                program: None,
                dbpath: None,
                log: None,
            };
            find(&places).map(|(version, _)| version).ok()
        };
        assert_eq!(of_link_to(Path::new("/own/status")), Some((7, 0)));
        assert_eq!(of_link_to(&host), None);
    }

    #[test]
    fn paths_of_archives_and_of_homebrew_name_it() {
        for (path, version) in [
            ("/opt/mongodb-linux-x86_64-rhel80-7.0.5/bin/mongod", Some((7, 0))),
            ("/opt/mongodb-linux-x86_64-enterprise-ubuntu2204-8.0.0-rc3/bin/mongod", Some((8, 0))),
            ("/srv/percona-server-mongodb-6.0.12-9-x86_64.glibc2.17/bin/mongod", Some((6, 0))),
            ("/home/linuxbrew/.linuxbrew/Cellar/mongodb-community@7.0/7.0.5/bin/mongod", Some((7, 0))),
            ("/usr/local/m/versions/4.4.29/bin/mongod", Some((4, 4))),
            ("/usr/bin/mongod", None),
            ("/opt/app-1.2.3/bin/mongod", None),
            ("/opt/mongodb-linux-x86_64-ubuntu2204/bin/mongod", None),
            ("/opt/mongodb-7.0.5/bin/mongos", None),
        ] {
            assert_eq!(of_path(Path::new(path)), version, "{path}");
        }
    }

    #[test]
    fn rpm_says_which_packages_are_there() {
        let answer = "package mongodb-org-server is not installed\npackage 8.0 is not installed\n6.0.12\n";
        assert_eq!(of_rpm_answer(answer), Some((6, 0)));
        assert_eq!(of_rpm_answer("package mongodb-org-server is not installed\n"), None);
    }
}
