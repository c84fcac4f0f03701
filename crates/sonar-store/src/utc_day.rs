//! Days in UTC: each has a file.

use std::fmt;
use std::path::{Path, PathBuf};

use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::time::NS_PER_S;

const DAY_NS: u64 = 86_400 * NS_PER_S;
/// The end of the name of a day's file.
const SUFFIX: &str = ".db";

/// A day: days since 1970-01-01.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct UtcDay(pub u64);

impl UtcDay {
    pub fn of(at: Timestamp) -> Self {
        Self(at.unix_ns() / DAY_NS)
    }

    pub fn span(self) -> Span {
        let from = Timestamp::from_unix_ns(self.0.saturating_mul(DAY_NS));
        Span { from, to: from.plus_ns(DAY_NS) }
    }

    /// The path of its file in this folder.
    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}{SUFFIX}"))
    }

    /// The day whose file has this name.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let mut numbers = name.strip_suffix(SUFFIX)?.split('-').map(|number| number.parse::<u64>().ok());
        let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if !(1970..=2554).contains(&year) || !(1..=12).contains(&month) {
            return None;
        }
        // Days before a month of a year that begins in March, so that the leap day comes last.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
        let found = Self(days.checked_sub(719_469)?);
        // Only names as this program writes them.
        (format!("{found}{SUFFIX}") == name).then_some(found)
    }
}

/// `2026-11-21`.
impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.span().from.to_string();
        f.write_str(text.split('T').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_days_are_the_same() {
        for at in [0, 951_782_400, 1_795_221_584, 4_107_542_399, 4_102_444_800, 18_000_000_000] {
            let day = UtcDay::of(Timestamp::from_unix(at, 0));
            assert_eq!(UtcDay::from_file_name(&format!("{day}.db")), Some(day), "{day}");
            assert!(day.span().contains(Timestamp::from_unix(at, 0)));
        }
        assert_eq!(UtcDay::of(Timestamp::from_unix(1_795_221_584, 0)).to_string(), "2026-11-21");
        for name in [
            "2026-11-31.db",
            "2026-1-21.db",
            "2026-11-21.db-wal",
            "2026-11-21.db.damaged-1",
            "x.db",
            "2026-11-00.db",
        ] {
            assert_eq!(UtcDay::from_file_name(name), None, "{name}");
        }
    }
}
