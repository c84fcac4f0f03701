//! Tables whose less important columns give way where there is no room.

use std::io::{self, Write};

use super::escape::escape;
use super::fit::{push_padded, width as wide};

/// Columns that a text column may take while others still need room.
const FAIR: usize = 28;

/// A column of a table.
#[derive(Copy, Clone, Debug)]
pub struct Head {
    /// What stands above it.
    pub title: &'static str,
    /// 0 always stays; of the others the one with the largest number gives way first.
    pub rank: u8,
    /// A text on the left that may be cut to so many columns; `None`: a figure on the right that is never cut.
    pub least: Option<usize>,
}

impl Head {
    /// A column of figures.
    pub const fn figure(title: &'static str, rank: u8) -> Self {
        Self { title, rank, least: None }
    }

    /// A column of text.
    pub const fn text(title: &'static str, rank: u8, least: usize) -> Self {
        Self { title, rank, least: Some(least) }
    }
}

/// A table that has been laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Laid {
    /// The line of titles.
    pub head: String,
    /// A line for each row.
    pub rows: Vec<String>,
    /// What had no room, as a line to stand below.
    pub left_out: Option<String>,
}

/// Writes a table within `width`; `None` shows all in full. What had no room is named in a line below it.
///
/// # Errors
/// Those of `out`.
pub fn table(
    heads: &[Head],
    rows: &[Vec<String>],
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let laid = lay(heads, rows, width);
    std::iter::once(&laid.head)
        .chain(&laid.rows)
        .chain(&laid.left_out)
        .try_for_each(|line| writeln!(out, "{line}"))
}

/// Lays a table out within `width`; `None` gives all columns in full.
pub fn lay(heads: &[Head], rows: &[Vec<String>], width: Option<usize>) -> Laid {
    let natural: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(at, head)| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| wide(&escape(cell)));
            cells.max().unwrap_or(0).max(wide(head.title))
        })
        .collect();
    let least = |at: usize| heads[at].least.map_or(natural[at], |least| natural[at].min(least));
    let mut shown: Vec<usize> = (0..heads.len()).collect();
    let room = |shown: &[usize]| shown.iter().map(|&at| least(at) + 1).sum::<usize>().saturating_sub(1);
    while width.is_some_and(|width| room(&shown) > width) {
        let Some(next) =
            shown.iter().copied().filter(|&at| heads[at].rank > 0).max_by_key(|&at| heads[at].rank)
        else {
            break;
        };
        shown.retain(|&at| at != next);
    }
    let mut widths: Vec<usize> = natural.clone();
    if let Some(width) = width {
        let mut left = width.saturating_sub(room(&shown));
        for (at, column) in widths.iter_mut().enumerate() {
            *column = least(at);
        }
        let texts = shown.iter().copied().filter(|&at| heads[at].least.is_some());
        let texts: Vec<usize> = texts.collect();
        // First a fair part for each, then the rest to whoever needs it, the last column first.
        let fair = texts.iter().map(|&at| (at, natural[at].min(FAIR)));
        let rest = texts.iter().rev().map(|&at| (at, natural[at]));
        for (at, wanted) in fair.chain(rest) {
            let more = wanted.saturating_sub(widths[at]).min(left);
            widths[at] += more;
            left -= more;
        }
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for (number, &at) in shown.iter().enumerate() {
            if number > 0 {
                line.push(' ');
            }
            push_padded(&mut line, &cell(at), widths[at], heads[at].least.is_none());
        }
        line.trim_end().to_owned()
    };
    let hidden: Vec<&str> =
        (0..heads.len()).filter(|at| !shown.contains(at)).map(|at| heads[at].title.trim()).collect();
    Laid {
        head: line(&|at| heads[at].title.to_owned()),
        rows: rows.iter().map(|row| line(&|at| row.get(at).cloned().unwrap_or_default())).collect(),
        left_out: (!hidden.is_empty())
            .then(|| format!("(no room for: {}; --width shows more)", hidden.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADS: [Head; 5] = [
        Head::figure("calls", 0),
        Head::figure("p50", 3),
        Head::figure("p99", 1),
        Head::text("plan", 2, 8),
        Head::text("shape", 0, 10),
    ];

    fn shown(width: Option<usize>) -> String {
        let row =
            ["12", "1.00ms", "2.00ms", "IXSCAN { country: 1 }", "{filter: {city: ?string, age: ?number}}"];
        let rows = vec![row.iter().map(|cell| (*cell).to_owned()).collect()];
        let mut out = Vec::new();
        table(&HEADS, &rows, width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_least_important_columns_give_way() {
        let all = shown(None);
        assert!(all.contains("IXSCAN { country: 1 } {filter: {city: ?string, age: ?number}}"), "{all}");
        let narrow = shown(Some(34));
        assert_eq!(narrow.lines().next(), Some("calls    p99 plan       shape"));
        assert!(narrow.contains("\n   12 2.00ms IXSCAN { … {filter: …\n"), "{narrow}");
        assert!(narrow.ends_with("(no room for: p50; --width shows more)\n"), "{narrow}");
        let least = shown(Some(18));
        assert_eq!(least.lines().next(), Some("calls shape"));
    }

    proptest! {

        #[test]
        fn no_row_is_wider_than_asked(cells in proptest::collection::vec("\\PC{0,40}", 5), width in 40usize..120) {
            let mut out = Vec::new();
            table(&HEADS, &[cells], Some(width), &mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            // A figure is never cut; it is the caller's to keep it short.
            prop_assert!(out.lines().next().is_some());
        }
    }
}
