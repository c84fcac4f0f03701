//! Tables whose less important columns give way where there is no room.

use std::io::{self, Write};

use super::escape::escape;
use super::fit::{Fitting, fit_end, push_padded, width as wide};

/// Columns that a text column may take while others still need room.
const FIRST_SHARE_COLUMNS: usize = 28;

/// What stands above a column, and how the column gives way.
#[derive(Copy, Clone, Debug)]
pub struct Heading {
    title: &'static str,
    /// 0 always stays; of the others the one with the largest number gives way first.
    rank: u8,
    /// The fewest columns that a text may be cut to; `None`: a figure, which is never cut.
    least: Option<usize>,
    /// A column is at least so wide, so that tables of consecutive intervals look alike.
    at_least: usize,
    /// A text is cut at its beginning.
    keeps_end: bool,
}

impl Heading {
    /// A column of figures, aligned right.
    pub const fn figure(title: &'static str, rank: u8) -> Self {
        Self { title, rank, least: None, at_least: 0, keeps_end: false }
    }

    /// A column of text, aligned left, that may be cut to `least` columns.
    pub const fn text(title: &'static str, rank: u8, least: usize) -> Self {
        Self { least: Some(least), ..Self::figure(title, rank) }
    }

    /// A column of text that is never cut.
    pub const fn whole(title: &'static str, rank: u8) -> Self {
        Self::text(title, rank, usize::MAX)
    }

    /// A column of paths, of which the end says most.
    pub const fn path(title: &'static str, rank: u8, least: usize) -> Self {
        Self { keeps_end: true, ..Self::text(title, rank, least) }
    }

    /// The same column, at least `columns` wide.
    pub const fn wide(self, columns: usize) -> Self {
        Self { at_least: columns, ..self }
    }
}

/// A table: headings and rows of cells, neither escaped nor cut.
#[derive(Clone, Debug)]
pub struct TextTable {
    headings: Vec<Heading>,
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
    gap: usize,
}

/// A table that has been laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaidOutTable {
    /// The line of titles.
    pub head: String,
    /// A line for each row.
    pub rows: Vec<String>,
    /// What had no room, as a line to stand below.
    pub left_out: Option<String>,
}

impl TextTable {
    /// Without rows yet, and with one space between columns.
    pub fn new(headings: &[Heading]) -> Self {
        let titles = headings.iter().map(|heading| heading.title.to_owned()).collect();
        Self { headings: headings.to_vec(), titles, rows: Vec::new(), gap: 1 }
    }

    /// The same with two spaces between columns, for titles of several words.
    pub fn spaced(self) -> Self {
        Self { gap: 2, ..self }
    }

    /// The same with another title above the column titled `before`.
    pub fn titled(mut self, before: &str, title: String) -> Self {
        self.titles.iter_mut().filter(|one| *one == before).for_each(|one| one.clone_from(&title));
        self
    }

    /// Adds a row; cells that are missing are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Removes the columns of whose titles `keep` is false.
    pub fn keep(&mut self, keep: impl Fn(&str) -> bool) {
        let kept: Vec<usize> = (0..self.headings.len()).filter(|&at| keep(&self.titles[at])).collect();
        self.headings = kept.iter().map(|&at| self.headings[at]).collect();
        self.titles = kept.iter().map(|&at| self.titles[at].clone()).collect();
        for row in &mut self.rows {
            *row = kept.iter().map(|&at| row.get(at).cloned().unwrap_or_default()).collect();
        }
    }

    /// Writes it within the width of `out`, with a line that names what had no room.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let laid = self.lay(out.width());
        let lines = std::iter::once(&laid.head).filter(|head| !head.is_empty());
        lines.chain(&laid.rows).chain(&laid.left_out).try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Lays it out within `width`; `None` gives all columns in full.
    pub fn lay(&self, width: Option<usize>) -> LaidOutTable {
        let (headings, rows) = (&self.headings, &self.rows);
        let natural: Vec<usize> = headings
            .iter()
            .enumerate()
            .map(|(at, heading)| {
                let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| wide(&escape(cell)));
                cells.max().unwrap_or(0).max(wide(&self.titles[at])).max(heading.at_least)
            })
            .collect();
        let least = |at: usize| headings[at].least.map_or(natural[at], |least| natural[at].min(least));
        let mut shown: Vec<usize> = (0..headings.len()).collect();
        let room = |shown: &[usize]| {
            shown.iter().map(|&at| least(at) + self.gap).sum::<usize>().saturating_sub(self.gap)
        };
        while width.is_some_and(|width| room(&shown) > width) {
            let giving_way = shown.iter().copied().filter(|&at| headings[at].rank > 0);
            let Some(next) = giving_way.max_by_key(|&at| headings[at].rank) else { break };
            shown.retain(|&at| at != next);
        }
        let mut widths: Vec<usize> = natural.clone();
        if let Some(width) = width {
            let mut left = width.saturating_sub(room(&shown));
            for (at, column) in widths.iter_mut().enumerate() {
                *column = least(at);
            }
            let texts: Vec<usize> =
                shown.iter().copied().filter(|&at| headings[at].least.is_some()).collect();
            // With only columns left that always stay, texts are cut further.
            let mut over = room(&shown).saturating_sub(width);
            for &at in texts.iter().rev() {
                let less = over.min(widths[at].saturating_sub(1));
                widths[at] -= less;
                over -= less;
            }
            // First a fair part for each, then the rest to whoever needs it, the last column first.
            let fair = texts.iter().map(|&at| (at, natural[at].min(FIRST_SHARE_COLUMNS)));
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
                    line.push_str(&" ".repeat(self.gap));
                }
                push_padded(&mut line, &cell(at), widths[at], headings[at].least.is_none());
            }
            line.trim_end().to_owned()
        };
        let cell = |row: &[String], at: usize| match row.get(at) {
            Some(cell) if headings[at].keeps_end => fit_end(cell, widths[at]),
            cell => cell.cloned().unwrap_or_default(),
        };
        // A column without a title is a picture of another one.
        let hidden: Vec<&str> = (0..headings.len())
            .filter(|at| !shown.contains(at))
            .map(|at| &*self.titles[at])
            .filter(|title| !title.is_empty())
            .collect();
        LaidOutTable {
            head: line(&|at| self.titles[at].clone()),
            rows: rows.iter().map(|row| line(&|at| cell(row, at))).collect(),
            left_out: (!hidden.is_empty())
                .then(|| format!("(no room for: {}; --width shows more)", hidden.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADINGS: [Heading; 5] = [
        Heading::figure("calls", 0),
        Heading::figure("p50", 3),
        Heading::figure("p99", 1),
        Heading::text("plan", 2, 8),
        Heading::text("shape", 0, 10),
    ];

    fn shown(width: Option<usize>) -> String {
        let row =
            ["12", "1.00ms", "2.00ms", "IXSCAN { country: 1 }", "{filter: {city: ?string, age: ?number}}"];
        let mut table = TextTable::new(&HEADINGS);
        table.row(row.map(str::to_owned));
        let mut out = Vec::new();
        table.write(&mut Fitting::new(&mut out, width)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_least_important_columns_give_way() {
        let all = shown(None);
        assert!(all.contains("IXSCAN { country: 1 } {filter: {city: ?string, age: ?number}}"), "{all}");
        let narrow = shown(Some(34));
        assert_eq!(narrow.lines().next(), Some("calls    p99 plan       shape"));
        assert!(narrow.contains("\n   12 2.00ms IXSCAN { … {filter: …\n"), "{narrow}");
        assert!(narrow.contains("(no room for: p50; --width shows"), "{narrow}");
        let least = shown(Some(20));
        assert_eq!(least.lines().next(), Some("calls shape"));
    }

    #[test]
    fn columns_keep_their_width_and_paths_their_end() {
        let mut table = TextTable::new(&[
            Heading::figure("r/s", 0).wide(6),
            Heading::path("file", 0, 8),
            Heading::whole("thread", 0),
        ]);
        table.row(["1", "collection-0-123.wt", "conn1"].map(str::to_owned));
        let laid = table.spaced().titled("file", "file in /data".to_owned()).lay(Some(26));
        assert_eq!(laid.head, "   r/s  file in /…  thread");
        assert_eq!(laid.rows, ["     1  …-0-123.wt  conn1"]);
    }

    #[test]
    fn a_column_that_is_not_kept_leaves_no_trace() {
        let mut table = TextTable::new(&HEADINGS);
        table.row(["12", "1ms"].map(str::to_owned));
        table.keep(|title| title != "calls");
        assert_eq!(table.lay(None).rows, ["1ms"]);
        assert_eq!(table.lay(None).head, "p50 p99 plan shape");
    }

    #[test]
    fn a_column_without_a_title_gives_way_silently() {
        let mut table = TextTable::new(&[
            Heading::figure("share", 0),
            Heading::whole("", 9),
            Heading::whole("over time", 8),
        ]);
        table.row(["50%", "#####", "..."].map(str::to_owned));
        assert_eq!(table.lay(Some(15)).left_out, None);
        assert_eq!(table.lay(Some(9)).left_out.unwrap(), "(no room for: over time; --width shows more)");
    }

    proptest! {
        #[test]
        fn no_row_is_wider_than_asked(
            cells in proptest::collection::vec("\\PC{0,40}", 5), width in 40usize..120
        ) {
            let mut table = TextTable::new(&HEADINGS);
            // A figure is never cut; the caller keeps it short.
            table.row(cells.iter().enumerate().map(|(at, cell)| if at < 3 { "1".to_owned() } else { cell.clone() }));
            let laid = table.lay(Some(width));
            prop_assert!(wide(&laid.head) <= width && wide(&laid.rows[0]) <= width, "{laid:?}");
        }
    }
}
