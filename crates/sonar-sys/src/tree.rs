//! A folder of small files that stands for /proc or /sys in a test.

use std::fs;
use std::path::PathBuf;

/// Removed with its content when dropped.
pub(crate) struct TempTree(pub(crate) PathBuf);

impl TempTree {
    /// `name` distinguishes the trees of one process; the files are paths with their text.
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("sonar-sys-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }
}

impl Drop for TempTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
