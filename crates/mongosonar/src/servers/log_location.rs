//! Where a mongod or mongos writes its log, and whether that is a file which can be read: one answer for the agent,
//! `doctor` and `why`.
//!
//! Any user may run a program called mongod and give it any path: a log is opened with the rights of the server's user,
//! below its root folder, and only if it looks like one.

use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Component, Path, PathBuf};

use sonar_sys::Host;
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;

use crate::input::follow::{file_identity, newest_copies};
use crate::servers::configuration::{ServerConfiguration, ServerSetting, configuration_file};
use crate::servers::own_files::{descriptor, files_of, outside, working_folder};

/// The number of standard output.
const OUTPUT: u32 = 1;
/// How much of a log is looked at, at its beginning and at its end, for lines of a server.
const LOOKED_AT: usize = 64 << 10;
/// The most files beside a log that are looked at, of those that are called like it.
const MAX_COPIES_LISTED: usize = 1_000;
/// How every line of a log begins since MongoDB 4.4.
const JSON_LINE: &[u8] = br#"{"t":{"$date""#;

/// The file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLocation {
    /// At this path, as the process sees it.
    Named(PathBuf),
    /// At this path, as we see it: the configuration of the agent says so.
    Configured(PathBuf),
    /// A file that the process has open under this number.
    Descriptor(u32),
}

impl LogLocation {
    /// Where a process writes its log, by its arguments and its configuration; if these name no file, by what it has open.
    /// `configuration` is `None` if the process names a file that cannot be read.
    ///
    /// # Errors
    /// Into no file that can be read: where it goes instead, or why that is not known, in words.
    pub fn of(process: &Process, configuration: Option<&ServerConfiguration>) -> Result<Self, String> {
        let named = ServerSetting::LOG.argument(process);
        let configuration = match (configuration, named, configuration_file(process)) {
            (None, None, Some(file)) => {
                let file = file.display();
                let unknown = |_| format!("its log is not known: its configuration {file} cannot be read");
                return Self::unnamed(process).map_err(unknown);
            }
            (known, ..) => known.cloned().unwrap_or_default(),
        };
        let is_syslog = process.arguments().iter().any(|word| word == "--syslog")
            || configuration.value(&["systemLog.destination"]) == Some("syslog");
        if is_syslog {
            return Err("its log goes to syslog".to_owned());
        }
        let Some(path) = ServerSetting::LOG.of(process, &configuration) else {
            return Self::unnamed(process);
        };
        let path = working_folder(process).join(path);
        match descriptor_of(process, &path) {
            Some(number) => Self::open_as(process, number),
            None => Ok(Self::Named(path)),
        }
    }

    /// The log of a process that names none: standard output, unless that is no file or has no line of a log while another
    /// open file has one.
    fn unnamed(process: &Process) -> Result<Self, String> {
        let output = Self::open_as(process, OUTPUT);
        let Ok(files) = files_of(process) else { return output };
        let has_lines =
            |number: u32| files.open_descriptor(process, number).is_ok_and(|file| has_lines(&file));
        if output.is_ok() && has_lines(OUTPUT) {
            return output;
        }
        let mut open = process.open_files().filter(|(_, path)| is_named_as_log(path));
        match open.find(|(number, _)| has_lines(*number)) {
            Some((number, path)) => Ok(Self::of_descriptor(process, number, path)),
            None => output,
        }
    }

    /// An open file by its path, by which its successor is found after a rotation; by its number if another file, or none,
    /// is at that path now.
    fn of_descriptor(process: &Process, number: u32, path: PathBuf) -> Self {
        let named = Self::Named(path);
        let identity = |path: PathBuf| fs::metadata(path).map(|found| file_identity(&found)).ok();
        let open = identity(descriptor(process, number));
        let is_there = open.is_some() && identity(named.path(process)) == open;
        if is_there { named } else { Self::Descriptor(number) }
    }

    /// The file that a process has open under a number.
    fn open_as(process: &Process, number: u32) -> Result<Self, String> {
        let what = match number {
            OUTPUT => "standard output".to_owned(),
            2 => "standard error".to_owned(),
            other => format!("its open file {other}"),
        };
        match fs::metadata(descriptor(process, number)) {
            Ok(found) if found.is_file() => Ok(Self::Descriptor(number)),
            Ok(found) => Err(format!("its log goes to {what}, which is {}", kind_of(found.file_type()))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(format!("its log goes to {what}, but another user may not see its open files"))
            }
            Err(error) => Err(format!("its log goes to {what}, which cannot be seen: {error}")),
        }
    }

    /// How the log is called here.
    pub fn path(&self, process: &Process) -> PathBuf {
        match self {
            Self::Named(path) => outside(process, path),
            Self::Configured(path) => path.clone(),
            Self::Descriptor(number) => descriptor(process, *number),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is not there, the user of the process may not read it, or it does not look like a log. A path that the
    /// administrator names counts as a log.
    pub fn open(&self, process: &Process, files: &ProcessFiles) -> io::Result<File> {
        match self {
            Self::Named(path) => checked(files.open(path)?),
            Self::Configured(path) => files.open(path),
            Self::Descriptor(number) => checked(files.open_descriptor(process, *number)?),
        }
    }

    /// Opens logs beside it whose names begin with its name, as rotation leaves them, the newest first, and at most `most`.
    pub fn copies(&self, files: &ProcessFiles, most: usize) -> Vec<File> {
        let (Self::Named(path) | Self::Configured(path)) = self else { return Vec::new() };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
        let is_named = |other: &OsStr| other.as_bytes().starts_with(name.as_bytes());
        let listed = files.list(folder, MAX_COPIES_LISTED, &is_named).unwrap_or_default();
        let changed = listed.into_iter().filter_map(|(name, found)| Some((found.modified().ok()?, name)));
        let open = |name| checked(files.open(&folder.join(name)).ok()?).ok();
        newest_copies(name, changed, most).into_iter().filter_map(open).collect()
    }
}

/// The log of a process, in a file.
#[derive(Clone, Debug)]
pub struct LocatedLog {
    process: Process,
    place: LogLocation,
}

impl LocatedLog {
    /// That of a running mongod or mongos.
    ///
    /// # Errors
    /// It writes none into a file that can be read: where it goes instead, in words.
    pub fn of_process(host: &Host, process: &Process) -> Result<Self, String> {
        let configuration = ServerConfiguration::of_process(host, process);
        let place = LogLocation::of(process, configuration.as_ref())?;
        Ok(Self { process: process.clone(), place })
    }

    /// Its path: as the process sees it where it has one.
    pub fn path(&self) -> PathBuf {
        match &self.place {
            LogLocation::Named(path) => path.clone(),
            place => place.path(&self.process),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`LogLocation::open`].
    pub fn open(&self) -> io::Result<File> {
        self.place.open(&self.process, &files_of(&self.process)?)
    }

    /// Opens logs beside it, as [`LogLocation::copies`].
    pub fn copies(&self, most: usize) -> Vec<File> {
        files_of(&self.process).map(|files| self.place.copies(&files, most)).unwrap_or_default()
    }
}

/// A log that cannot be read, in words.
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path} does not exist"),
        _ => format!("{path} cannot be read: {error}"),
    }
}

/// Whether an open file is called like a log: `mongod.log`, `mongod.log.1`, `mongod.log (deleted)`.
fn is_named_as_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split([' ', '.']).skip(1).any(|part| part == "log")
}

/// The number under which a process has the file open that a path names by a descriptor: `/dev/stdout`,
/// `/proc/self/fd/1`, or `/proc/1/fd/1`, as the start script of MongoDB's container image writes it.
fn descriptor_of(process: &Process, path: &Path) -> Option<u32> {
    let parts: Vec<&OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let parts: Vec<&str> = parts.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let number = match *parts {
        ["dev", "stdout"] => return Some(OUTPUT),
        ["dev", "stderr"] => return Some(2),
        ["dev", "fd", number] | ["proc", "self", "fd", number] => return number.parse().ok(),
        ["proc", owner, "fd", number] if owner.parse::<u32>().is_ok() => number.parse().ok()?,
        _ => return None,
    };
    // Of another process, by its number in the container: the server has opened the same file under a number of its own.
    let Ok(named) = fs::metadata(outside(process, path)) else { return Some(number) };
    let is_it = |number: &u32| {
        let open = fs::metadata(descriptor(process, *number));
        open.is_ok_and(|found| file_identity(&found) == file_identity(&named))
    };
    let open = process.open_files().map(|(number, _)| number);
    Some(std::iter::once(number).chain(open).find(is_it).unwrap_or(number))
}

fn kind_of(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() {
        "a terminal or another device"
    } else {
        "no file"
    }
}

fn checked(file: File) -> io::Result<File> {
    match is_log(&file)? {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not look like a log of MongoDB")),
    }
}

/// Whether a line at the beginning or the end of a file looks like one of a server's log. An empty file is a log that
/// has just begun.
pub fn is_log(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.len() == 0 || find_line(file)?)
}

/// The same of a file that is not empty; `false` if it cannot be read.
fn has_lines(file: &File) -> bool {
    find_line(file).unwrap_or(false)
}

fn find_line(file: &File) -> io::Result<bool> {
    let size = file.metadata()?.len();
    let part = |at: u64| -> io::Result<bool> {
        let mut bytes = vec![0; LOOKED_AT];
        let read = file.read_at(&mut bytes, at)?;
        Ok(bytes[..read].split(|byte| *byte == b'\n').any(is_log_line))
    };
    Ok(part(0)? || part(size.saturating_sub(LOOKED_AT as u64))?)
}

/// `{"t":{"$date"…`, `2018-11-21T21:26:53…`, or `Wed Nov 21 21:26:53…`.
fn is_log_line(line: &[u8]) -> bool {
    const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    let fits = |pattern: &[u8]| {
        line.len() >= pattern.len()
            && pattern.iter().zip(line).all(|(wanted, byte)| match wanted {
                b'0' => byte.is_ascii_digit(),
                b'a' => byte.is_ascii_alphabetic(),
                b'_' => *byte == b' ' || byte.is_ascii_digit(),
                other => other == byte,
            })
    };
    let is_ctime = || DAYS.iter().any(|day| line.starts_with(day)) && fits(b"aaa aaa _0 00:00:00");
    line.starts_with(JSON_LINE) || fits(b"0000-00-00T00:00:00") || is_ctime()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn lines_of_every_kind_of_log_are_recognised_and_those_of_other_files_are_not() {
        for line in [
            r#"{"t":{"$date":"2026-11-21T21:26:53.420+00:00"},"s":"I",  "c":"COMMAND""#,
            "2018-11-21T21:26:53.420+0000 I COMMAND  [conn7] command stats.daily",
            "Wed Nov 21 21:26:53.420 [conn7] query stats.daily",
            "Sun Nov  1 01:26:53 [initandlisten] connection accepted",
        ] {
            assert!(is_log_line(line.as_bytes()), "{line}");
        }
        for line in [
            "root:$6$salt$hash:19000:0:99999:7:::",
            "-----BEGIN PRIVATE KEY-----",
            r#"{"password":"x","t":{"$date":1}}"#,
            "2018-11-21 21:26:53 not a server's",
            "Wed Nov",
            "",
        ] {
            assert!(!is_log_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn what_stands_before_and_after_the_lines_of_a_log_does_not_matter() {
        let looks = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            is_log(&file).unwrap()
        };
        let line = b"\n2018-11-21T21:26:53.420+0000 I COMMAND\n".to_vec();
        let long = vec![b'x'; 3 * LOOKED_AT];
        assert!(looks(b"") && looks(&[b"starting".as_slice(), &line].concat()));
        assert!(looks(&[long.as_slice(), &line].concat()));
        assert!(looks(&[&line, long.as_slice()].concat()));
        assert!(!looks(b"root:$6$salt$hash:19000:0:99999:7:::\n"));
    }

    #[test]
    fn a_log_on_an_output_that_may_not_be_seen_says_so() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return println!("skipped: who is not root may see all processes of the test");
        }
        let (mut child, process) = running(&["mongod", "--logpath", "/dev/stderr"], Stdio::null());
        let located = std::thread::spawn(move || {
            // What a process with capabilities has open is seen only by who has them, too.
            sonar_sys::privileges::drop_capabilities(&[]).unwrap();
            LogLocation::of(&process, None)
        });
        let place = located.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let said = "its log goes to standard error, but another user may not see its open files";
        assert_eq!(place, Err(said.to_owned()));
    }

    /// A process that is called like a server, with these arguments, and this standard output.
    fn running(arguments: &[&str], output: Stdio) -> (std::process::Child, Process) {
        let mut command = Command::new("sleep");
        let child = command.args(["60"]).stdout(output).spawn().unwrap();
        let mut process = Host::live().process(child.id(), &["sleep"]).unwrap();
        process.set_arguments(arguments.iter().map(|word| (*word).to_owned()).collect());
        (child, process)
    }

    #[test]
    fn a_log_on_standard_output_is_a_file_or_says_what_it_is() {
        let folder = std::env::temp_dir().join(format!("mongosonar-located-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out");
        let line = b"2018-11-21T21:26:53.420+0000 I COMMAND\n";
        fs::write(&path, line).unwrap();
        let to_file = || Stdio::from(File::options().append(true).open(&path).unwrap());
        let names = [
            vec![],
            vec!["--logpath", "/dev/stdout"],
            vec!["--logpath=/proc/self/fd/1"],
            vec!["--logpath", "PID"],
        ];
        for arguments in names {
            for (output, expected) in [
                (to_file(), Ok(LogLocation::Descriptor(1))),
                (Stdio::piped(), Err("its log goes to standard output, which is a pipe".to_owned())),
                (
                    Stdio::null(),
                    Err("its log goes to standard output, which is a terminal or another device".to_owned()),
                ),
            ] {
                let (mut child, mut process) = running(&arguments, output);
                let own = format!("/proc/{}/fd/1", child.id());
                let of_own = |word: &String| if word == "PID" { own.clone() } else { word.clone() };
                process.set_arguments(process.arguments().iter().map(of_own).collect());
                let place = LogLocation::of(&process, None);
                let read = LocatedLog::of_process(&Host::live(), &process).map(|log| log.open().is_ok());
                child.kill().unwrap();
                child.wait().unwrap();
                assert_eq!(read, expected.as_ref().map(|_| true).map_err(Clone::clone), "{arguments:?}");
                assert_eq!(place, expected, "{arguments:?}");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_open_log_is_found_where_standard_output_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let line = "2018-11-21T21:26:53.420+0000 I COMMAND\n";
        let path = |name: &str| folder.path().join(name);
        let put = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        put("out", "ready\n");
        put("logged.out", line);
        // Other files that a server has open.
        put("audit.log", "{ \"atype\" : \"authenticate\" }\n");
        put("collection-0.wt", line);
        let to_file = |name: &str| Stdio::from(File::options().append(true).open(path(name)).unwrap());
        let named = || Ok(LogLocation::Named(path("mongod.log")));
        let pipe = || Err("its log goes to standard output, which is a pipe".to_owned());
        let (output, number) = (Ok(LogLocation::Descriptor(OUTPUT)), Ok(LogLocation::Descriptor(6)));
        for (to, opens, [expected, after_removal]) in [
            (to_file("out"), "6>>mongod.log", [named(), number.clone()]),
            (Stdio::piped(), "6>>mongod.log", [named(), number]),
            (to_file("logged.out"), "6>>mongod.log", [output.clone(), output.clone()]),
            (to_file("out"), "", [output.clone(), output]),
            (Stdio::piped(), "", [pipe(), pipe()]),
        ] {
            put("mongod.log", line);
            let script = format!("exec 4>>audit.log 5>>collection-0.wt {opens}; /bin/echo >&2; read line");
            let mut command = Command::new("bash");
            command.args(["-c", &script]).current_dir(folder.path());
            let mut child = command.stdin(Stdio::piped()).stdout(to).stderr(Stdio::piped()).spawn().unwrap();
            child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let mut process = Host::live().process(child.id(), &["bash"]).unwrap();
            process.set_arguments(vec!["mongod".to_owned()]);
            let place = LogLocation::of(&process, Some(&ServerConfiguration::parse("")));
            let unread = LogLocation::of(&process, None);
            fs::remove_file(path("mongod.log")).unwrap();
            let removed = LogLocation::of(&process, None);
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!((&place, &unread), (&expected, &expected), "{opens}");
            assert_eq!(removed, after_removal, "{opens}");
        }
    }

    #[test]
    fn a_log_has_the_name_of_its_configuration_or_none() {
        let (mut child, process) = running(&["mongod", "--logpath", "logs/a.log"], Stdio::null());
        let working = fs::read_link(process.folder().join("cwd")).unwrap();
        let place =
            |process: &Process, text| LogLocation::of(process, Some(&ServerConfiguration::parse(text)));
        assert_eq!(place(&process, ""), Ok(LogLocation::Named(working.join("logs/a.log"))));
        let mut plain = process;
        plain.set_arguments(Vec::new());
        assert_eq!(place(&plain, "systemLog:\n  path: /b.log\n"), Ok(LogLocation::Named("/b.log".into())));
        assert!(place(&plain, "systemLog:\n  destination: syslog\n").unwrap_err().contains("syslog"));
        plain.set_arguments(["mongod", "-f", "/etc/mongod.conf"].map(str::to_owned).to_vec());
        assert_eq!(
            LogLocation::of(&plain, None).unwrap_err(),
            "its log is not known: its configuration /etc/mongod.conf cannot be read"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
