//! Files that follow each other: `kept.pcapng` becomes `kept-00001.pcapng`, `kept-00002.pcapng`, and so on.
//!
//! The thread that writes may not open files. A helper process makes them, where it has to with privileges, and
//! a thread of ours waits for it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_sys::helper::{self, Helper};
use sonar_sys::privileges::{Duty, capability};

use super::write::new_file;
use crate::privileges;

/// When the next file begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Once the file has so many bytes.
    Bytes(u64),
    /// Once so much time has passed.
    Time(Duration),
}

/// The names of a series.
#[derive(Clone, Debug)]
struct Series {
    folder: PathBuf,
    stem: String,
    /// With its dot; empty where there is none.
    extension: String,
}

impl Series {
    fn new(path: &Path) -> Result<Self> {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("--write names no file")?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(Self {
            folder: folder.unwrap_or(Path::new(".")).to_path_buf(),
            stem: stem.to_owned(),
            extension: extension.map(|extension| format!(".{extension}")).unwrap_or_default(),
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number:05}{}", self.stem, self.extension))
    }

    /// The numbers of the files that are there, the lowest first.
    fn numbers(&self) -> Vec<u64> {
        let number = |name: &str| {
            let digits = name.strip_prefix(&self.stem)?.strip_prefix('-')?.strip_suffix(&self.extension)?;
            let is_number = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse().ok().filter(|_| is_number)?;
            (self.path(number).file_name()?.to_str()? == name).then_some(number)
        };
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> = entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Makes the file of this number, and removes the oldest ones where there are more than `keep`.
    fn make(&self, number: u64, keep: Option<u64>) -> io::Result<File> {
        let file = new_file(&self.path(number))?;
        if let Some(keep) = keep {
            let numbers = self.numbers();
            let surplus = numbers.len().saturating_sub(keep.max(1) as usize);
            for old in numbers.into_iter().filter(|old| *old < number).take(surplus) {
                fs::remove_file(self.path(old))?;
            }
        }
        Ok(file)
    }
}

/// What comes of making a file.
type Made = io::Result<(File, PathBuf)>;

/// Makes the files of a series.
pub struct Files {
    first: PathBuf,
    ask: SyncSender<()>,
    made: Receiver<Made>,
    asked: bool,
}

impl Files {
    /// The files of the series of `path`, from the number after the highest that is there. Call it before any thread
    /// is started; the files are made by `start`'s thread.
    ///
    /// # Errors
    /// The path names no file.
    pub fn prepare(path: &Path, keep: Option<u64>, with_helper: bool) -> Result<Preparation> {
        let series = Series::new(path)?;
        let number = series.numbers().last().map_or(1, |last| last + 1);
        let serving = series.clone();
        let helper = if with_helper {
            let what = "writing more than one file";
            privileges::helper(what, &[capability::DAC_OVERRIDE], Duty::Writing, move |socket| {
                serve(&serving, keep, socket)
            })
        } else {
            None
        };
        Ok(Preparation { series, number, keep, helper })
    }

    /// The path of the first file.
    pub fn first(&self) -> PathBuf {
        self.first.clone()
    }

    /// The next file, once it is there; the first call asks for it.
    pub fn next(&mut self) -> Option<Made> {
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
    keep: Option<u64>,
    helper: Option<Helper>,
}

impl Preparation {
    /// Makes no file itself; gives what is asked for files, and the work that makes them, which is for a thread.
    ///
    /// # Errors
    /// The helper has gone.
    pub fn start(self) -> (Files, impl FnOnce() + Send + 'static) {
        let (ask, asked) = sync_channel(1);
        let (give, made) = sync_channel(1);
        let first = self.series.path(self.number);
        let work = move || {
            let mut number = self.number;
            while asked.recv().is_ok() {
                number += 1;
                let file = match &self.helper {
                    Some(helper) => ask_helper(helper, number),
                    None => self.series.make(number, self.keep),
                };
                if give.send(file.map(|file| (file, self.series.path(number)))).is_err() {
                    return;
                }
            }
        };
        (Files { first, ask, made, asked: false }, work)
    }
}

fn ask_helper(helper: &Helper, number: u64) -> io::Result<File> {
    let mut socket = helper.socket()?;
    socket.write_all(&number.to_le_bytes())?;
    match helper::receive_file(&socket)? {
        Some(file) => Ok(file),
        None => {
            let mut code = [0; 4];
            socket.read_exact(&mut code)?;
            Err(io::Error::from_raw_os_error(i32::from_le_bytes(code)))
        }
    }
}

/// In the helper: makes the file of each number that comes.
fn serve(series: &Series, keep: Option<u64>, mut socket: UnixStream) -> io::Result<()> {
    let mut number = [0; 8];
    loop {
        socket.read_exact(&mut number)?;
        match series.make(u64::from_le_bytes(number), keep) {
            Ok(file) => helper::send_file(&socket, &file)?,
            Err(error) => {
                socket.write_all(&[0])?;
                socket.write_all(&error.raw_os_error().unwrap_or(0).to_le_bytes())?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        fs::write(folder.join("kept-00007.pcapng"), "").unwrap();
        let files = Files::prepare(&folder.join("kept.pcapng"), Some(3), false).unwrap();
        let (mut files, work) = files.start();
        assert_eq!(files.first(), folder.join("kept-00008.pcapng"), "no earlier file is touched");
        fs::write(files.first(), "").unwrap();
        let worker = std::thread::spawn(work);
        for number in 9..=12 {
            let (_, path) = loop {
                if let Some(made) = files.next() {
                    break made.unwrap();
                }
                std::thread::yield_now();
            };
            assert_eq!(path, folder.join(format!("kept-{number:05}.pcapng")));
        }
        drop(files);
        worker.join().unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected: Vec<_> = others.map(str::to_owned).to_vec();
        expected.extend([10, 11, 12].map(|number| format!("kept-{number:05}.pcapng")));
        expected.sort();
        assert_eq!(left, expected);
        fs::remove_dir_all(&folder).unwrap();
    }
}
