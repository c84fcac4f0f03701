//! What is in a file, derived from its name.

/// The folder in that of its data that a server writes samples of itself into.
pub const DIAGNOSTIC_DATA: &str = "diagnostic.data";

/// Whether a file with this name in [`DIAGNOSTIC_DATA`] has samples.
pub fn is_sample_file(name: &str) -> bool {
    name.starts_with("metrics.")
}

/// The role of a file under a MongoDB server's dbpath, by the names that WiredTiger and the server use
/// (`collection-<n>-<random>.wt`, also in sub-folders).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FileRole {
    /// The documents of a collection.
    Collection,
    /// An index.
    Index,
    /// The journal.
    Journal,
    /// The catalogue of collections and indexes, and their sizes.
    Catalog,
    /// Older versions of documents that snapshots still need: `WiredTigerHS.wt`, before 4.4 `WiredTigerLAS.wt`.
    HistoryStore,
    /// WiredTiger's own metadata.
    Metadata,
    /// Files in `diagnostic.data`.
    Diagnostics,
    /// Any other file.
    Other,
}

impl FileRole {
    /// The role for a path or a file name.
    pub fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let folder = path.rsplit('/').nth(1).unwrap_or("");
        // With directoryForIndexes, the file of a collection is `db/collection/<n>-<random>.wt`.
        let in_folder = |wanted: &str| folder == wanted && name.ends_with(".wt");
        if name.starts_with("WiredTigerLog.") || name.starts_with("WiredTigerPreplog.") {
            Self::Journal
        } else if name == "WiredTigerHS.wt" || name == "WiredTigerLAS.wt" {
            Self::HistoryStore
        } else if name == "_mdb_catalog.wt" || name == "sizeStorer.wt" {
            Self::Catalog
        } else if name.starts_with("WiredTiger") {
            Self::Metadata
        } else if (name.starts_with("collection-") && name.ends_with(".wt")) || in_folder("collection") {
            Self::Collection
        } else if (name.starts_with("index-") && name.ends_with(".wt")) || in_folder("index") {
            Self::Index
        } else if folder == DIAGNOSTIC_DATA {
            Self::Diagnostics
        } else {
            Self::Other
        }
    }

    /// The name for display; empty for [`FileRole::Other`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Collection => "collection",
            Self::Index => "index",
            Self::Journal => "journal",
            Self::Catalog => "catalog",
            Self::HistoryStore => "history store",
            Self::Metadata => "metadata",
            Self::Diagnostics => "diagnostics",
            Self::Other => "",
        }
    }
}

/// Whether the file at this path is the one of a collection or index with this ident, which is its path under the dbpath
/// without `.wt`.
pub fn is_file_of(path: &str, ident: &str) -> bool {
    let folder = path.strip_suffix(".wt").and_then(|path| path.strip_suffix(ident));
    folder.is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_the_whole_of_its_ident() {
        for (path, ident, is_it) in [
            ("collection-7-459.wt", "collection-7-459", true),
            ("/data/db/collection-7-459.wt", "collection-7-459", true),
            ("/data/db/shop/collection/7-459.wt", "shop/collection/7-459", true),
            ("/data/db/my-collection-7-459.wt", "collection-7-459", false),
            ("/data/db/collection-7-459.wt", "collection-7-45", false),
            ("/data/db/collection-7-459", "collection-7-459", false),
        ] {
            assert_eq!(is_file_of(path, ident), is_it, "{path}");
        }
    }

    #[test]
    fn the_role_follows_from_the_name() {
        for (path, role) in [
            ("collection-7-4596081763205983475.wt", FileRole::Collection),
            ("/data/db/shop/collection-7-459.wt", FileRole::Collection),
            ("/data/db/shop/collection/7-459.wt", FileRole::Collection),
            ("/data/db/shop/index/8-459.wt", FileRole::Index),
            ("index-8-4596081763205983475.wt", FileRole::Index),
            ("/data/db/journal/WiredTigerLog.0000000007", FileRole::Journal),
            ("journal/WiredTigerPreplog.0000000001", FileRole::Journal),
            ("_mdb_catalog.wt", FileRole::Catalog),
            ("WiredTigerHS.wt", FileRole::HistoryStore),
            ("WiredTigerLAS.wt", FileRole::HistoryStore),
            ("WiredTiger.turtle", FileRole::Metadata),
            ("diagnostic.data/metrics.2026", FileRole::Diagnostics),
            ("/tmp/some.data", FileRole::Other),
            ("", FileRole::Other),
        ] {
            assert_eq!(FileRole::of(path), role, "{path}");
        }
    }
}
