//! Files that `--html` names.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use sonar_sys::host::regular;
use sonar_sys::trust;
use sonar_view::problem;

use crate::locking::lock;
use crate::page;

/// Reads the argument of `--html`: a new file, or one that holds a page already.
///
/// Any other file is refused: `logs report --html a.log b.log` must not overwrite `a.log`.
pub fn parse(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text == "-" {
        return Err("a page needs a file of its own: name one, like report.html".to_owned());
    }
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => Err(format!("{text} is a folder")),
        Ok(found) if found.is_file() && found.len() > 0 && !is_page(&path) => {
            Err(format!("{text} exists and is not a page: name another file"))
        }
        _ => Ok(path),
    }
}

/// Whether a file begins as HTML does.
fn is_page(path: &Path) -> bool {
    let mut first = [0u8; 1];
    regular::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *b"<"
}

/// Writes the file; what it held before is replaced.
///
/// # Errors
/// The file cannot be created or written.
pub fn write(path: &Path, body: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    OutFile::open(path)?.write(body)
}

/// Why a file that must be new cannot be created, and what to do.
pub fn cannot_create(path: &Path, error: io::Error) -> anyhow::Error {
    let name = path.display();
    match (error.kind(), path.parent()) {
        (ErrorKind::AlreadyExists, _) => {
            anyhow!("{name} already exists and is not overwritten: name another file")
        }
        (ErrorKind::NotFound, Some(folder)) => {
            anyhow!("cannot create {name}: there is no folder {}", folder.display())
        }
        _ => anyhow::Error::new(error).context(format!("cannot create {name}")),
    }
}

/// Every regular file that was opened here. Whoever reads a pipe waits until nobody has it open.
static OPENED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// States in each file that was opened and is still empty why there is no report: a file that was made while the command
/// still might cannot be removed any more.
pub fn explain_failure(why: &str) {
    let opened = std::mem::take(&mut *lock(&OPENED));
    for file in opened {
        if file.metadata().is_ok_and(|found| found.len() == 0) {
            // Whoever reads the messages learns it anyway.
            let _ = page::write(BufWriter::new(file), |out| problem::page(why, out));
        }
    }
}

/// The file that [`prepare`] opened.
static PREPARED: Mutex<Option<OutFile>> = Mutex::new(None);

/// Opens a file that the command will write, while it still may.
///
/// # Errors
/// As [`OutFile::open`].
pub fn prepare(path: &Path) -> Result<()> {
    let file = OutFile::open(path)?;
    *lock(&PREPARED) = Some(file);
    Ok(())
}

/// A file that is opened early and written at the end, when a command that captures can no longer open one.
pub struct OutFile {
    path: PathBuf,
    file: File,
}

impl OutFile {
    /// Opens the file, or makes it; what it holds stays until it is written.
    ///
    /// # Errors
    /// It cannot be created, or another user may have prepared it.
    pub fn open(path: &Path) -> Result<Self> {
        let is_it = |file: &mut Self| file.path == path;
        if let Some(prepared) = lock(&PREPARED).take_if(is_it) {
            return Ok(prepared);
        }
        let file = trust::open_to_replace(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        if file.metadata().is_ok_and(|found| found.is_file()) {
            lock(&OPENED).extend(file.try_clone());
        }
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Writes it; what it held before is replaced.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, body: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let written = self.clear().and_then(|()| self.file.try_clone()).and_then(|file| {
            let mut out = BufWriter::new(file);
            body(&mut out)?;
            out.flush()
        });
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Removes what the file holds. A pipe, a terminal and `/dev/null` hold nothing.
    fn clear(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_go_into_a_pipe_or_a_device() {
        use std::os::fd::AsRawFd;

        let (mut reader, writer) = io::pipe().unwrap();
        // As a shell names it for `--html >(wc -c)`, and as /dev/stdout is one.
        let path = parse(&format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
        write(&path, |out| out.write_all(b"<p>")).unwrap();
        drop(writer);
        let mut page = Vec::new();
        reader.read_to_end(&mut page).unwrap();
        assert_eq!(page, b"<p>");
        write(&parse("/dev/null").unwrap(), |out| out.write_all(b"<p>")).unwrap();
    }

    #[test]
    fn a_log_is_not_overwritten_by_a_page() {
        let folder = std::env::temp_dir().join(format!("mongosonar-outfile-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = |file: &str| folder.join(file).to_str().unwrap().to_owned();
        fs::write(name("mongod.log"), "{\"t\":{}}\n").unwrap();
        fs::write(name("old.html"), "<!doctype html>\n").unwrap();
        fs::write(name("empty"), "").unwrap();
        assert!(parse(&name("mongod.log")).unwrap_err().contains("name another file"));
        assert!(parse(&name("")).unwrap_err().contains("folder"));
        assert!(parse("-").is_err());
        for good in ["old.html", "empty", "new.html"] {
            assert_eq!(parse(&name(good)), Ok(folder.join(good)));
        }
        write(&folder.join("old.html"), |out| out.write_all(b"<p>")).unwrap();
        assert_eq!(fs::read(name("old.html")).unwrap(), b"<p>");
        let error = write(&folder.join("no/such.html"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("no/such.html"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
