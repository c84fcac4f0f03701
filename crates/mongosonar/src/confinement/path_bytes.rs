//! Paths in questions, answers and kept files: as text, or as bytes if they are no UTF-8. Without this, one such path would
//! make all else in the same answer impossible to write.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl WrittenPath {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    fn into_path(self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// Writes a path, for `#[serde(with)]`.
///
/// # Errors
/// Those of the writer.
pub fn serialize<S: Serializer>(path: &Path, writer: S) -> Result<S::Ok, S::Error> {
    WrittenPath::of(path).serialize(writer)
}

/// Reads a path.
///
/// # Errors
/// It is something else.
pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<PathBuf, D::Error> {
    Ok(WrittenPath::deserialize(reader)?.into_path())
}

/// Writes a path, if there is one.
///
/// # Errors
/// Those of the writer.
pub fn serialize_optional<S: Serializer>(path: &Option<PathBuf>, writer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(WrittenPath::of).serialize(writer)
}

/// Reads a path, if there is one.
///
/// # Errors
/// It is something else.
pub fn deserialize_optional<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<WrittenPath>::deserialize(reader)?.map(WrittenPath::into_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Both {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(serialize_with = "serialize_optional", deserialize_with = "deserialize_optional")]
        other: Option<PathBuf>,
    }

    #[test]
    fn any_path_is_written_and_read_again() {
        let latin = PathBuf::from(OsString::from_vec(b"/data/\xe9".to_vec()));
        for (one, other, written) in [
            (
                "/data/a\"b".into(),
                Some(PathBuf::from("/data/é")),
                r#"{"one":"/data/a\"b","other":"/data/é"}"#,
            ),
            (latin.clone(), None, r#"{"one":[47,100,97,116,97,47,233],"other":null}"#),
            (PathBuf::new(), Some(latin), r#"{"one":"","other":[47,100,97,116,97,47,233]}"#),
        ] {
            let both = Both { one, other };
            assert_eq!(serde_json::to_string(&both).unwrap(), written);
            assert_eq!(serde_json::from_str::<Both>(written).unwrap(), both);
        }
        assert!(serde_json::from_str::<Both>(r#"{"one":7,"other":null}"#).is_err());
    }
}
