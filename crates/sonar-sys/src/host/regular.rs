//! Opens regular files at paths that others may have chosen.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, and refuses anything else. It never waits, even if somebody puts a FIFO at the path.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a regular file; or it cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // Only an open file is certain to stay what it is.
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
    fn anything_but_a_regular_file_is_refused_at_once() {
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
