//! The file with the token of a page, in the folder of the store and readable by its owner only.

use std::path::Path;

use anyhow::{Context, Result};
use sonar_serve::AccessToken;
use sonar_sys::kept_file::KeptFile;
use sonar_sys::trust;

fn file(folder: &Path) -> KeptFile {
    KeptFile::new(folder, "page-token")
}

/// The token; `None` if there is none yet.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read(folder: &Path) -> Result<Option<AccessToken>> {
    let file = file(folder);
    let shown = file.path().display();
    let Some(text) = file.read().with_context(|| format!("cannot read {shown}"))? else { return Ok(None) };
    let token = AccessToken::parse(&text);
    token
        .map(Some)
        .with_context(|| format!("{shown} holds no token: `mongosonar open --new-token` makes one"))
}

/// The token, which is made if there is none yet.
///
/// # Errors
/// As [`read`] and [`make`].
pub fn obtain(folder: &Path) -> Result<AccessToken> {
    match read(folder)? {
        Some(token) => Ok(token),
        None => make(folder),
    }
}

/// Makes a new token, in place of the one before.
///
/// # Errors
/// The file cannot be written, or others can put files into its folder.
pub fn make(folder: &Path) -> Result<AccessToken> {
    let file = file(folder);
    let cannot = || format!("cannot write the token of the page into {}", file.path().display());
    trust::check_folder(folder).with_context(cannot)?;
    let token = AccessToken::random()?;
    file.write(&token.text()).with_context(cannot)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_its_owner_alone_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(read(folder).unwrap().is_none());
        let first = obtain(folder).unwrap().text();
        assert_eq!(obtain(folder).unwrap().text(), first);
        let mode = fs::metadata(file(folder).path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = make(folder).unwrap().text();
        assert_ne!(second, first);
        assert_eq!(read(folder).unwrap().unwrap().text(), second);
        fs::write(file(folder).path(), "no token").unwrap();
        assert!(obtain(folder).unwrap_err().to_string().contains("--new-token"));
        assert_eq!(make(folder).unwrap().text(), read(folder).unwrap().unwrap().text());
    }

    #[test]
    fn no_token_is_put_where_others_can_change_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = obtain(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("other users can write to"), "{error:#}");
        assert!(read(folder.path()).unwrap().is_none());
    }
}
