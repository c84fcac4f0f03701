//! Opens regular files at paths that others may have chosen.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, and nothing else. It never waits: whoever may swap a FIFO in at the path cannot
/// stop the caller.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for what is no regular file; else when it cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // Only of what is open it is known that it stays what it is.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for other in [pipe.as_path(), &folder, Path::new("/dev/null")] {
            assert_eq!(open(other).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", other.display());
        }
        std::fs::write(folder.join("file"), "x").unwrap();
        assert!(open(&folder.join("file")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
