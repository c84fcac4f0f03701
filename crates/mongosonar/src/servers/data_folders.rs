//! Which server a file is of: the one in whose data folder it is.

use std::cmp::Reverse;
use std::path::Path;

/// Of servers with their data folders, the one that has a file, and the path of the file in that folder. Of nested folders
/// the innermost counts.
pub fn of_file<'a, 'b, S>(
    path: &'a Path,
    servers: impl IntoIterator<Item = (S, &'b Path)>,
) -> Option<(S, &'a Path)> {
    let has_it =
        servers.into_iter().filter_map(|(server, folder)| Some((server, path.strip_prefix(folder).ok()?)));
    has_it.max_by_key(|(_, within)| Reverse(within.as_os_str().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_server_with_the_folder_it_is_in() {
        let servers = [(1, "/data/db"), (2, "/data/db/inner/"), (3, "/data")];
        let found = |path: &'static str| {
            of_file(Path::new(path), servers.map(|(server, folder)| (server, Path::new(folder))))
        };
        assert_eq!(found("/data/db/collection-1.wt"), Some((1, Path::new("collection-1.wt"))));
        assert_eq!(found("/data/db/inner/a/b.wt"), Some((2, Path::new("a/b.wt"))));
        assert_eq!(found("/data/dbs/a.wt"), Some((3, Path::new("dbs/a.wt"))));
        assert_eq!((found("/databases/a.wt"), found("a.wt")), (None, None));
    }
}
