//! Series of capture files: `kept.pcapng` becomes `kept-00001.pcapng`, `kept-00002.pcapng`, and so on.
//!
//! The thread that writes may not open files. A helper process creates them, with privileges if that takes any, and
//! a thread of this process waits for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_sys::privileges::{Duty, limit_files};

use crate::confinement::helper_capabilities::ROTATING;
use crate::confinement::helper_channel::{self, HelperChannel, answer_with};
use crate::confinement::privileges::{self, HelperTask};
use crate::outfile::cannot_create;

/// When the next file begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// When the file has this many bytes.
    Bytes(u64),
    /// After this time.
    Time(Duration),
}

/// Where the files of a series are and how they are named.
#[derive(Clone, Debug)]
struct Series {
    folder: PathBuf,
    stem: String,
    /// With its dot; empty if there is none.
    extension: String,
    /// What each file begins with.
    header: Vec<u8>,
    /// How many files to keep; `None` for all.
    keep: Option<u64>,
}

impl Series {
    fn new(path: &Path, keep: Option<u64>, header: &[u8]) -> Result<Self> {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("--write names no file")?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(Self {
            folder: folder.unwrap_or(Path::new(".")).to_path_buf(),
            stem: stem.to_owned(),
            extension: extension.map(|extension| format!(".{extension}")).unwrap_or_default(),
            header: header.to_vec(),
            keep,
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number:05}{}", self.stem, self.extension))
    }

    /// The numbers of the existing regular files, in ascending order.
    fn files(&self) -> Vec<u64> {
        self.numbers(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
    }

    /// The numbers that these entries of the folder have in their names, in ascending order.
    fn numbers(&self, counts: impl Fn(&fs::DirEntry) -> bool) -> Vec<u64> {
        let number = |name: &str| {
            let digits = name.strip_prefix(&self.stem)?.strip_prefix('-')?.strip_suffix(&self.extension)?;
            let is_number = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse().ok().filter(|_| is_number)?;
            (self.path(number).file_name()?.to_str()? == name).then_some(number)
        };
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().filter(counts);
        let mut numbers: Vec<u64> = entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Creates the file of this number, and removes the oldest ones where more than `keep` are left. If that fails, the
    /// file is there all the same, and the error of the removal stands beside it.
    ///
    /// # Errors
    /// It cannot be created.
    fn create(&self, number: u64) -> io::Result<(File, Option<io::Error>)> {
        let file = new_file(&self.path(number), &self.header)?;
        Ok((file, self.remove_oldest(number).err()))
    }

    /// Removes the oldest files before `newest` where more than `keep` are there.
    fn remove_oldest(&self, newest: u64) -> io::Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        let numbers = self.files();
        let surplus = numbers.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX).max(1));
        let mut result = Ok(());
        for old in numbers.into_iter().filter(|old| *old < newest).take(surplus) {
            match fs::remove_file(self.path(old)) {
                // Somebody else was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => result = Err(error),
                Ok(()) => {}
            }
        }
        result
    }
}

/// A new file of the series.
pub struct Next {
    pub file: File,
    pub path: PathBuf,
    /// What to complain about: older files that stay.
    pub complaint: Option<String>,
}

/// A new file, or why there is none.
type NewFile = io::Result<Next>;

fn complaint(error: &io::Error) -> String {
    format!("more files than --keep says: an older one cannot be removed: {error}")
}

/// Hands over the files of a series.
pub struct SeriesFiles {
    ask: SyncSender<()>,
    made: Receiver<NewFile>,
    asked: bool,
}

impl SeriesFiles {
    /// The files of the series of `path`, each beginning with `header`, from the number after the highest that
    /// exists. Call it before any thread is started.
    ///
    /// # Errors
    /// The path has no file name, or a file has the highest number.
    pub fn prepare(path: &Path, keep: Option<u64>, header: &[u8], with_helper: bool) -> Result<Preparation> {
        let series = Series::new(path, keep, header)?;
        // After whatever has such a name, so that each file is new.
        let number = match series.numbers(|_| true).last() {
            None => 1,
            Some(last) => after(*last).with_context(|| series.path(*last).display().to_string())?,
        };
        let serving = series.clone();
        let helper = if with_helper {
            let what = "writing more than one file";
            let memory = privileges::HELPER_BYTES;
            let task = HelperTask { name: "sonar-rotate", what, memory, keep: ROTATING, duty: Duty::Writing };
            HelperChannel::start(task, move |socket| {
                // It stays root. A kernel without Landlock is named where the command gives up its own privileges.
                let _ = limit_files(&[], &[&serving.folder]);
                serve(&serving, socket)
            })
        } else {
            None
        };
        Ok(Preparation { series, number, helper })
    }

    /// The next file, once it is there; the first call asks for it.
    pub fn next(&mut self) -> Option<NewFile> {
        if !self.asked {
            self.asked = true;
            self.ask.try_send(()).ok();
        }
        match self.made.try_recv() {
            Ok(made) => {
                self.asked = false;
                Some(made)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// A series whose thread has not been started.
pub struct Preparation {
    series: Series,
    number: u64,
    helper: Option<HelperChannel>,
}

/// A series whose first file has been created.
pub struct Started {
    /// The first file.
    pub first: (File, PathBuf),
    /// Creates the others.
    pub files: SeriesFiles,
    /// What creates them: it runs in a thread of its own until `files` is dropped.
    pub work: SeriesWork,
}

/// Creates the files of a series.
pub type SeriesWork = Box<dyn FnOnce() + Send>;

impl Preparation {
    /// Creates the first file.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn start(self) -> Result<Started> {
        let (ask, asked) = sync_channel(1);
        let (give, made) = sync_channel(1);
        let path = self.series.path(self.number);
        let (file, stuck) = self.series.create(self.number).map_err(|error| cannot_create(&path, error))?;
        if let Some(error) = &stuck {
            eprintln!("mongosonar: {}", complaint(error));
        }
        let work = move || {
            let (mut number, mut complained) = (self.number, stuck.is_some());
            while asked.recv().is_ok() {
                let file = after(number).and_then(|next| {
                    number = next;
                    match &self.helper {
                        Some(helper) => ask_helper(helper, number),
                        None => self.series.create(number),
                    }
                });
                let next = file.map(|(file, stuck)| {
                    // Once is enough.
                    let complaint = stuck.filter(|_| !std::mem::replace(&mut complained, true));
                    let complaint = complaint.as_ref().map(self::complaint);
                    Next { file, path: self.series.path(number), complaint }
                });
                if give.send(next).is_err() {
                    return;
                }
            }
        };
        let files = SeriesFiles { ask, made, asked: false };
        Ok(Started { first: (file, path), files, work: Box::new(work) })
    }
}

/// The number of the next file of a series. Other users may have given a file in its folder any number.
///
/// # Errors
/// It was the last one.
fn after(number: u64) -> io::Result<u64> {
    number.checked_add(1).ok_or_else(|| io::Error::other("no file of its series can have a higher number"))
}

/// `EIO`: an error that the system has no number for.
const INPUT_OUTPUT_ERROR: i32 = 5;

/// A file that is made too late stays empty: the next question has another number.
fn ask_helper(helper: &HelperChannel, number: u64) -> io::Result<(File, Option<io::Error>)> {
    let (code, files): (Option<i32>, _) = helper.ask(&number)?;
    let error = code.map(io::Error::from_raw_os_error);
    match files.into_iter().next() {
        Some(file) => Ok((file, error)),
        None => Err(error.unwrap_or_else(|| io::ErrorKind::InvalidData.into())),
    }
}

/// In the helper: creates the file of each number that it receives. It answers with the file, if there is one, and the
/// number of the error, if there was one.
fn serve(series: &Series, socket: UnixStream) -> io::Result<()> {
    helper_channel::serve(socket, |number: u64| {
        let (file, error) = match series.create(number) {
            Ok((file, stuck)) => (Some(file), stuck),
            Err(error) => (None, Some(error)),
        };
        let code = error.map(|error| error.raw_os_error().unwrap_or(INPUT_OUTPUT_ERROR));
        answer_with(Ok(code), file.into_iter().collect())
    })
}

/// How long a file is written to, in words of a person: `100M`, `1h`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_rotation(text: &str) -> Result<Rotation, String> {
    let wrong = || format!("{text:?} is neither a size like 100M or 2G nor a time like 10m or 1h");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let shift = match unit {
        "K" | "KiB" | "k" => 10,
        "M" | "MiB" | "MB" => 20,
        "G" | "GiB" | "GB" => 30,
        _ => {
            let time = crate::args::values::parse_duration(text).map_err(|_| wrong())?;
            return match time {
                _ if unit.is_empty() => Err(wrong()),
                time if time < Duration::from_secs(1) => Err(format!("{text} is too short: at least 1s")),
                time => Ok(Rotation::Time(time)),
            };
        }
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes.ok_or_else(wrong)? {
        bytes if bytes < 64 << 10 => Err(format!("{text} is too small: at least 64K")),
        bytes => Ok(Rotation::Bytes(bytes)),
    }
}

/// Creates a file that only its owner may read, with `header` in it.
///
/// # Errors
/// A file of this name exists, or it cannot be created or written; then none is left behind.
pub fn new_file(path: &Path, header: &[u8]) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Err(error) = file.write_all(header) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_oldest_files_of_the_series_go_and_no_others() {
        let folder = std::env::temp_dir().join(format!("mongosonar-rotate-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let others =
            ["kept.pcapng", "kept-1.pcapng", "kept-0000x.pcapng", "kept-00001.pcap", "other-00001.pcapng"];
        for name in others {
            fs::write(folder.join(name), "").unwrap();
        }
        for number in 4..=7 {
            fs::write(folder.join(format!("kept-{number:05}.pcapng")), "").unwrap();
        }
        let files = SeriesFiles::prepare(&folder.join("kept.pcapng"), Some(3), b"header", false).unwrap();
        let Started { first, mut files, work } = files.start().unwrap();
        assert_eq!(first.1, folder.join("kept-00008.pcapng"), "no earlier file is touched");
        assert_eq!(kept(&folder), [6, 7, 8], "also those of an earlier run count");
        let worker = std::thread::spawn(work);
        for number in 9..=12 {
            let path = loop {
                if let Some(made) = files.next() {
                    break made.unwrap().path;
                }
                std::thread::yield_now();
            };
            assert_eq!(path, folder.join(format!("kept-{number:05}.pcapng")));
            assert_eq!(fs::read(path).unwrap(), b"header", "nothing was written into it yet");
        }
        drop(files);
        worker.join().unwrap();
        assert_eq!(kept(&folder), [10, 11, 12]);
        for name in others {
            assert!(folder.join(name).exists(), "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_with_such_a_name_is_no_file_of_the_series() {
        let folder = std::env::temp_dir().join(format!("mongosonar-rotate-folder-{}", std::process::id()));
        fs::create_dir_all(folder.join("kept-00001.pcapng")).unwrap();
        let series = Series::new(&folder.join("kept.pcapng"), Some(2), b"header").unwrap();
        for number in 2..=5 {
            series.create(number).unwrap();
        }
        assert_eq!(kept(&folder), [1, 4, 5]);
        assert!(series.create(1).is_err(), "it is not overwritten");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_series_ends_with_the_highest_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.pcapng");
        let prepare = || SeriesFiles::prepare(&path, None, b"header", false);
        let numbered = |number: u64| folder.path().join(format!("kept-{number}.pcapng"));
        fs::write(numbered(u64::MAX - 1), "").unwrap();
        let Started { first, mut files, work } = prepare().unwrap().start().unwrap();
        assert_eq!(first.1, numbered(u64::MAX));
        let worker = std::thread::spawn(work);
        let made = loop {
            if let Some(made) = files.next() {
                break made;
            }
            std::thread::yield_now();
        };
        let said = "no file of its series can have a higher number";
        assert_eq!(made.err().unwrap().to_string(), said);
        drop(files);
        worker.join().unwrap();
        let error = format!("{:#}", prepare().err().unwrap());
        assert_eq!(error, format!("{}: {said}", numbered(u64::MAX).display()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no file is written over");
    }

    #[test]
    fn a_file_that_is_made_late_is_not_taken_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let series = Series::new(&folder.path().join("kept.pcapng"), None, b"header").unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = HelperChannel::impatient(ours, Duration::from_millis(20));
        // Nobody answers yet.
        assert_eq!(ask_helper(&helper, 1).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let serving = series.clone();
        std::thread::spawn(move || serve(&serving, theirs));
        for number in 2..10_000 {
            match ask_helper(&helper, number) {
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                Ok((file, _)) => {
                    let named = fs::metadata(series.path(number)).unwrap();
                    assert_eq!(file.metadata().unwrap().ino(), named.ino());
                    break;
                }
            }
        }
        assert!(series.path(1).exists() && helper.late() > 0);
    }

    #[test]
    fn a_file_that_cannot_be_removed_ends_no_recording() {
        let folder = std::env::temp_dir().join(format!("mongosonar-rotate-stuck-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let series = Series::new(&folder.join("kept.pcapng"), Some(1), b"header").unwrap();
        series.create(1).unwrap();
        // Nobody removes a file on which something is mounted.
        let stuck = folder.join("kept-00001.pcapng");
        let is_mounted = mount(&["--bind", "/dev/null"], &stuck);
        let complaint = series.create(2).unwrap().1;
        assert_eq!(complaint.is_some(), is_mounted);
        let made = series.create(3).is_ok();
        if is_mounted {
            std::process::Command::new("umount").arg(&stuck).status().unwrap();
        }
        assert!(made);
        fs::remove_dir_all(&folder).unwrap();
    }

    fn mount(what: &[&str], at: &Path) -> bool {
        std::process::Command::new("mount").args(what).arg(at).status().is_ok_and(|status| status.success())
    }

    /// The numbers of the files of the series, in order.
    fn kept(folder: &Path) -> Vec<u64> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let number = |name: String| {
            let number = name.strip_prefix("kept-")?.strip_suffix(".pcapng")?;
            number.parse().ok().filter(|_| number.len() == 5)
        };
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_rotation_is_a_size_or_a_time() {
        assert_eq!(parse_rotation("100M"), Ok(Rotation::Bytes(100 << 20)));
        assert_eq!(parse_rotation("2G"), Ok(Rotation::Bytes(2 << 30)));
        assert_eq!(parse_rotation("10m"), Ok(Rotation::Time(Duration::from_secs(600))));
        assert_eq!(parse_rotation("1h"), Ok(Rotation::Time(Duration::from_secs(3_600))));
        for bad in ["", "M", "10", "1K", "10ms", "x", "-1M", "99999999999999G"] {
            assert!(parse_rotation(bad).is_err(), "{bad}");
        }
    }
}
