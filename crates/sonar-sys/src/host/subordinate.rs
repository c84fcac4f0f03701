//! User ids that belong to other users (subuid(5)).
//!
//! Whoever has a range of them can run processes under each, in a user namespace or by programs with the set-user-id bit. So
//! where each user has a share, all of a user's ids have one share together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use super::text::small;

/// The number of root. It can run processes under any id, and gives each container ids of its own out of its ranges.
const ROOT: u32 = 0;

static KNOWN: OnceLock<SubordinateIds> = OnceLock::new();

/// Reads the ranges of this host. Until then, and of ranges that are given later, each id counts for itself. Call it before
/// privileges are dropped: later the files may not be reached.
pub fn load() {
    KNOWN.get_or_init(|| {
        let text = |path| small(Path::new(path)).unwrap_or_default();
        SubordinateIds::parse(&text("/etc/subuid"), &text("/etc/passwd"))
    });
}

/// The user to whom a user id belongs: mostly the one with this number.
pub(super) fn owner(user: u32) -> u32 {
    KNOWN.get().map_or(user, |known| known.owner(user))
}

/// The ranges of a host.
#[derive(Debug, Default, PartialEq, Eq)]
struct SubordinateIds {
    /// The one that begins first comes first.
    ranges: Vec<SubordinateRange>,
}

/// Ids that belong to a user.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubordinateRange {
    first: u32,
    last: u32,
    /// The number of the user. Of one whose name is not in passwd(5), the first id of the first range.
    owner: u32,
}

impl SubordinateIds {
    /// From subuid(5), with the names of passwd(5). Leaves out lines that make no sense, and the ranges of root.
    fn parse(subuid: &str, passwd: &str) -> Self {
        let user = |line: &'_ str| -> Option<(String, u32)> {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((name, fields.nth(1)?.parse().ok()?))
        };
        let mut owners: HashMap<String, u32> = passwd.lines().filter_map(user).collect();
        let mut ranges = Vec::new();
        for line in subuid.lines() {
            let mut fields = line.trim().split(':');
            let (Some(name), Some(first), Some(count)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let (Ok(first), Ok(count)) = (first.parse::<u32>(), count.parse::<u32>()) else { continue };
            let Some(last) = count.checked_sub(1).map(|more| first.saturating_add(more)) else { continue };
            let number = name.parse().ok();
            let owner = number.unwrap_or_else(|| *owners.entry(name.to_owned()).or_insert(first));
            if owner != ROOT {
                ranges.push(SubordinateRange { first, last, owner });
            }
        }
        ranges.sort_unstable();
        Self { ranges }
    }

    /// The user to whom an id belongs. Of ranges that overlap, that of the one which begins last counts.
    fn owner(&self, user: u32) -> u32 {
        let until = self.ranges.partition_point(|range| range.first <= user);
        let range = self.ranges[..until].iter().rev().find(|range| user <= range.last);
        range.map_or(user, |range| range.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\n";

    #[test]
    fn all_ids_of_a_user_are_those_of_one_user() {
        let subuid = "anna:100000:65536\n1001:165536:65536\nanna:300000:10\nguest:400000:5\nguest:500000:5\n";
        let known = SubordinateIds::parse(subuid, PASSWD);
        for (user, owner) in [
            (0, 0),
            (1_000, 1_000),
            (99_999, 99_999),
            (100_000, 1_000),
            (165_535, 1_000),
            (165_536, 1_001),
            (231_071, 1_001),
            (231_072, 231_072),
            (300_009, 1_000),
            (300_010, 300_010),
            // Nobody of this host has that name.
            (400_004, 400_000),
            (500_000, 400_000),
        ] {
            assert_eq!(known.owner(user), owner, "{user}");
        }
    }

    #[test]
    fn containers_of_root_count_each_for_itself_and_what_makes_no_sense_for_nobody() {
        let subuid = "root:1000000:1000000000\n0:1:9\nanna:5\nanna:x:5\nanna:7:0\nanna:4294967290:100\n\n";
        let known = SubordinateIds::parse(subuid, PASSWD);
        let last = SubordinateRange { first: 4_294_967_290, last: u32::MAX, owner: 1_000 };
        assert_eq!(known.ranges, [last]);
        assert_eq!((known.owner(1_000_000), known.owner(7)), (1_000_000, 7));
        assert_eq!(SubordinateIds::default().owner(5), 5);
    }
}
