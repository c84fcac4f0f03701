//! Text within the width of a terminal: tables whose less important columns give way, and lines that are broken
//! between words.

use std::io::{self, Write};

use crate::text::{escape, push_padded, width as wide, wrap};

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

/// A writer that breaks lines longer than a width between words, and indents what goes on below by two more than
/// the line itself. Text must have been escaped.
#[derive(Debug)]
pub struct Fitting<W: Write> {
    out: W,
    width: Option<usize>,
    line: Vec<u8>,
}

impl<W: Write> Fitting<W> {
    /// The narrowest width that is kept to.
    const NARROWEST: usize = 20;

    /// Breaks at `width` columns; `None` breaks nothing.
    pub fn new(out: W, width: Option<usize>) -> Self {
        Self { out, width: width.map(|width| width.max(Self::NARROWEST)), line: Vec::new() }
    }

    /// The width that it keeps to; `None`: any.
    pub const fn width(&self) -> Option<usize> {
        self.width
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        match self.width {
            Some(width) if wide(&text) > width => {
                for part in fold(&text, width) {
                    writeln!(self.out, "{part}")?;
                }
            }
            _ => {
                self.out.write_all(&line)?;
                self.out.write_all(b"\n")?;
            }
        }
        self.line = line;
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for Fitting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.width.is_none() {
            return self.out.write(bytes);
        }
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            self.line.extend_from_slice(&rest[..at]);
            self.end_line()?;
            rest = &rest[at + 1..];
        }
        self.line.extend_from_slice(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        self.out.flush()
    }
}

/// A line in parts of at most `width` columns, broken between words where there are any.
pub fn fold(line: &str, width: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    let own = (line.len() - text.len()).min(width / 2);
    let below = (own + 2).min(width / 2);
    let (mut parts, mut part) = (Vec::new(), " ".repeat(own));
    let mut is_empty = true;
    for word in text.split(' ') {
        let gap = usize::from(!is_empty);
        if wide(&part) + gap + wide(word) <= width {
            part.push_str(&" ".repeat(gap));
            part.push_str(word);
            is_empty = false;
            continue;
        }
        if !is_empty {
            parts.push(std::mem::replace(&mut part, " ".repeat(below)));
        }
        // A word that has no room on a line of its own is broken; what goes on below has another indent.
        let first = wrap(word, width - wide(&part)).into_iter().next().unwrap_or_default();
        part.push_str(&first);
        for piece in wrap(&word[first.len()..], width - below) {
            parts.push(std::mem::replace(&mut part, " ".repeat(below)));
            part.push_str(&piece);
        }
        is_empty = false;
    }
    parts.push(part);
    parts.iter().map(|part| part.trim_end().to_owned()).collect()
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

    #[test]
    fn a_long_line_goes_on_indented() {
        let mut out = Vec::new();
        let mut fitting = Fitting::new(&mut out, Some(20));
        writeln!(fitting, "  one two three four five six").unwrap();
        write!(fitting, "short").unwrap();
        fitting.flush().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  one two three four\n    five six\nshort\n");
    }

    #[test]
    fn a_word_longer_than_a_line_keeps_to_the_width_below_too() {
        assert_eq!(
            fold("abcdefghijklmnopqrstuvwxyz0123456789", 20),
            ["abcdefghijklmnopqrst", "  uvwxyz0123456789"]
        );
        let word = "x".repeat(100);
        assert!(fold(&word, 20).iter().all(|part| wide(part) <= 20));
    }

    proptest! {
        #[test]
        fn no_line_is_longer(text in "[ a-z日é{}:,]{0,200}", width in 20usize..100) {
            let parts = fold(&text, width);
            prop_assert!(parts.iter().all(|part| wide(part) <= width), "{parts:?}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }

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
