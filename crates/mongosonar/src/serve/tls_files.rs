//! The files of a certificate and of its key. They are opened with the privileges of the start, and read once: the process
//! that serves may open neither later.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sonar_serve::PageTls;
use sonar_sys::host::regular;
use sonar_sys::trust;

/// The most bytes of a file: a chain of certificates has a few thousand.
const MAX_BYTES: u64 = 1 << 20;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// The certificate, and those of authorities between.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsPaths {
    /// Both files; `None` if one is not named.
    pub fn both(certificate: Option<&Path>, key: Option<&Path>) -> Option<Self> {
        Some(Self { certificate: certificate?.to_owned(), key: key?.to_owned() })
    }

    /// Opens both files.
    ///
    /// # Errors
    /// One cannot be opened, or every user may read the key.
    pub fn open(&self) -> Result<TlsFiles> {
        let certificate = TlsFile::open(&self.certificate)?;
        let key = TlsFile::open(&self.key)?;
        if trust::is_for_others(&key.file.metadata().with_context(|| key.cannot_read())?) {
            let path = key.path.display();
            bail!("every user can use the key of the page, {path}; fix: chmod o= {path}");
        }
        Ok(TlsFiles { certificate, key })
    }
}

/// A certificate and its key, open.
#[derive(Debug)]
pub struct TlsFiles {
    certificate: TlsFile,
    key: TlsFile,
}

impl TlsFiles {
    /// What a helper inherits that reads them.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.certificate.file.as_fd(), self.key.file.as_fd()]
    }

    /// Reads both files, once.
    ///
    /// # Errors
    /// They cannot be read, or are no certificate and its key.
    pub fn read(&self) -> Result<PageTls> {
        let (certificate, key) = (self.certificate.read()?, self.key.read()?);
        PageTls::from_pem(&certificate, &key).map_err(|error| {
            let file = if error.is_about_key() { &self.key } else { &self.certificate };
            let context = format!("cannot serve by TLS with {}", file.path.display());
            anyhow::Error::new(error).context(context)
        })
    }
}

#[derive(Debug)]
struct TlsFile {
    path: PathBuf,
    file: File,
}

impl TlsFile {
    fn open(path: &Path) -> Result<Self> {
        let file = regular::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn cannot_read(&self) -> String {
        format!("cannot read {}", self.path.display())
    }

    fn read(&self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        (&self.file).take(MAX_BYTES + 1).read_to_end(&mut content).with_context(|| self.cannot_read())?;
        if content.len() as u64 > MAX_BYTES {
            let large = io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than any certificate");
            return Err(large).with_context(|| self.cannot_read());
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::exit;

    /// The certificate of the tests and a key, as files of a folder.
    fn files(folder: &Path, key: &str) -> TlsPaths {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/page-tls");
        let paths = TlsPaths { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") };
        fs::copy(fixtures.join("certificate.pem"), &paths.certificate).unwrap();
        fs::copy(fixtures.join(key), &paths.key).unwrap();
        fs::set_permissions(&paths.key, Permissions::from_mode(0o600)).unwrap();
        paths
    }

    #[test]
    fn a_certificate_is_read_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let paths = files(folder.path(), "key.pem");
        let open = paths.open().unwrap();
        // Whoever takes their place, what was opened is read.
        fs::remove_file(&paths.key).unwrap();
        assert!(open.read().is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_path_and_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let paths = files(folder.path(), "other-key.pem");
        let said =
            |paths: &TlsPaths| exit::message(&paths.open().and_then(|files| files.read()).unwrap_err());
        let key = paths.key.display().to_string();
        let expected =
            format!("cannot serve by TLS with {key}: its key is not that of the first certificate");
        assert_eq!(said(&paths), expected);
        fs::set_permissions(&paths.key, Permissions::from_mode(0o644)).unwrap();
        let expected = format!("every user can use the key of the page, {key}; fix: chmod o= {key}");
        assert_eq!(said(&paths), expected);
        let swapped = TlsPaths { certificate: folder.path().join("nothing.pem"), ..paths.clone() };
        assert!(said(&swapped).starts_with(&format!("cannot open {}", swapped.certificate.display())));
        let large = folder.path().join("large.pem");
        fs::write(&large, vec![b' '; 1 + MAX_BYTES as usize]).unwrap();
        fs::set_permissions(&paths.key, Permissions::from_mode(0o600)).unwrap();
        let error = said(&TlsPaths { certificate: large.clone(), ..paths.clone() });
        assert_eq!(error, format!("cannot read {}: it is larger than any certificate", large.display()));
        let none = TlsPaths { certificate: paths.key.clone(), ..paths };
        assert!(said(&none).contains("it has no certificate in PEM"));
    }
}
