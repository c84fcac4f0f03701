//! Text within the width of a terminal: cut, filled up, or broken into lines.

use std::fmt::Write as _;
use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use super::escape::{escape, is_safe};

/// Columns that a terminal needs for `text`, which must have been escaped.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// `text`, escaped, cut with `…` to at most `columns` columns.
pub fn fit(text: &str, columns: usize) -> String {
    let mut out = String::new();
    push_fit(&mut out, text, columns);
    out
}

/// `text`, escaped, cut with `…` at its beginning to at most `columns` columns.
pub fn fit_end(text: &str, columns: usize) -> String {
    let text = escape(text);
    if width(&text) <= columns || columns == 0 {
        return fit(&text, columns);
    }
    let fits = text.char_indices().rev().take_while(|(at, _)| width(&text[*at..]) < columns);
    let start = fits.last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[start..])
}

/// Appends [`fit`] of `text`; returns the columns it took. Reads no more of a long text than fits.
pub fn push_fit(out: &mut String, text: &str, columns: usize) -> usize {
    let begin = out.len();
    let (mut used, mut last_that_leaves_room, mut used_there) = (0, begin, 0);
    let mut escaped = String::new();
    for c in text.chars() {
        escaped.clear();
        if is_safe(c) {
            escaped.push(c);
        } else {
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
        }
        let needs = width(&escaped);
        if used + needs > columns {
            out.truncate(last_that_leaves_room);
            if columns > 0 {
                out.push('…');
                return used_there + 1;
            }
            return used_there;
        }
        out.push_str(&escaped);
        used += needs;
        if used < columns {
            (last_that_leaves_room, used_there) = (out.len(), used);
        }
    }
    used
}

/// Appends `text`, escaped and cut to `columns`, and fills up with spaces: after it, or before it
/// when `right`.
pub fn push_padded(out: &mut String, text: &str, columns: usize, right: bool) {
    let begin = out.len();
    let used = push_fit(out, text, columns);
    let fill = columns.saturating_sub(used);
    if right {
        out.insert_str(begin, &" ".repeat(fill));
    } else {
        out.extend(std::iter::repeat_n(' ', fill));
    }
}

/// Whether a word is the address of a page, which is of no use in two parts. A value in a shape that contains an address
/// is none.
fn is_address(word: &str) -> bool {
    let word = word.strip_prefix('(').unwrap_or(word);
    word.starts_with("https://") || word.starts_with("http://")
}

/// Breaks an escaped text into lines of at most `columns` columns, at a space where there is one in
/// the last third of the line. The address of a page is never broken, even where a line gets too long.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for (at, c) in text.char_indices() {
        let needs = c.width().unwrap_or(0);
        if used + needs > columns && !line.is_empty() {
            let begins = text[..at].rfind(' ').map_or(0, |space| space + 1);
            let is_address = c != ' ' && is_address(text[begins..].split(' ').next().unwrap_or_default());
            if is_address && !line.contains(' ') {
                line.push(c);
                used += needs;
                continue;
            }
            let rest = match line.rfind(' ').filter(|_| c != ' ') {
                Some(at) if is_address || at > line.len() * 2 / 3 => {
                    let rest = line.split_off(at + 1);
                    line.truncate(at);
                    rest
                }
                _ => String::new(),
            };
            lines.push(std::mem::replace(&mut line, rest));
            used = width(&line);
            if c == ' ' && line.is_empty() {
                continue;
            }
        }
        line.push(c);
        used += needs;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A writer that breaks long lines between words and indents continuation lines by two more than the line itself.
/// Text must have been escaped.
#[derive(Debug)]
pub struct Fitting<W: Write> {
    out: W,
    width: Option<usize>,
    line: Vec<u8>,
}

impl<W: Write> Fitting<W> {
    /// The narrowest width; a narrower one is taken as this.
    const NARROWEST: usize = 20;

    /// Breaks at `width` columns; `None` breaks nothing.
    pub fn new(out: W, width: Option<usize>) -> Self {
        Self { out, width: width.map(|width| width.max(Self::NARROWEST)), line: Vec::new() }
    }

    /// The width; `None`: any.
    pub const fn width(&self) -> Option<usize> {
        self.width
    }

    /// Writes each sentence on a line, begun with a dash.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn sentences(&mut self, sentences: impl IntoIterator<Item = impl AsRef<str>>) -> io::Result<()> {
        sentences.into_iter().try_for_each(|sentence| writeln!(self, "- {}", escape(sentence.as_ref())))
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        match self.width {
            Some(columns) if width(&text) > columns => {
                for part in fold(&text, columns) {
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

/// A line in parts of at most `columns` columns, broken between words where there are any.
pub fn fold(line: &str, columns: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    let own = (line.len() - text.len()).min(columns / 2);
    let below = (own + 2).min(columns / 2);
    let (mut parts, mut part) = (Vec::new(), " ".repeat(own));
    let mut is_empty = true;
    for word in text.split(' ') {
        let gap = usize::from(!is_empty);
        if width(&part) + gap + width(word) <= columns {
            part.push_str(&" ".repeat(gap));
            part.push_str(word);
            is_empty = false;
            continue;
        }
        if !is_empty {
            parts.push(std::mem::replace(&mut part, " ".repeat(below)));
        }
        if is_address(word) {
            // With less indent it may fit.
            part.truncate(columns.saturating_sub(width(word)));
            part.push_str(word);
            is_empty = false;
            continue;
        }
        // A word that is too long for a line of its own is broken; continuation lines have another indent.
        let first = wrap(word, columns - width(&part)).into_iter().next().unwrap_or_default();
        part.push_str(&first);
        for piece in wrap(&word[first.len()..], columns - below) {
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
    use crate::kit::Escaped;
    use proptest::prelude::*;

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
        assert!(fold(&word, 20).iter().all(|part| width(part) <= 20));
    }

    #[test]
    fn an_address_is_never_broken() {
        let address = "https://www.mongodb.com/docs/manual/administration/production-notes/#kernel";
        let line = format!("         from: {address} (and more)");
        for columns in [20, 40, 60, 80] {
            for parts in [fold(&line, columns), wrap(line.trim_start(), columns)] {
                assert!(parts.iter().any(|part| part.contains(address)), "{parts:?}");
                let others = parts.iter().filter(|part| !part.contains("://"));
                assert!(others.clone().all(|part| width(part) <= columns), "{parts:?}");
            }
        }
        assert_eq!(fold("    from: http://a.b.c/d/e", 20), ["    from:", "    http://a.b.c/d/e"]);
        assert_eq!(wrap("see http://a.b/c now", 12), ["see", "http://a.b/c", "now"]);
        assert_eq!(wrap("see (http://a.b/c) now", 8), ["see", "(http://a.b/c)", "now"]);
    }

    #[test]
    fn an_address_within_a_value_is_broken() {
        for value in [r#"{url:"mongodb://a.example:27017/shop"}"#, r#"{page:"https://a.example/b/c/d/e/f"}"#]
        {
            for parts in [fold(value, 20), wrap(value, 20)] {
                assert!(parts.len() > 1 && parts.iter().all(|part| width(part) <= 20), "{parts:?}");
            }
        }
    }

    #[test]
    fn the_end_of_a_path_stays() {
        assert_eq!(fit_end("collection-7.wt", 8), "…on-7.wt");
        assert_eq!(fit_end("日本.wt", 6), "…本.wt");
        assert_eq!(fit_end("a.wt", 8), "a.wt");
        assert_eq!(fit_end("a.wt", 0), "");
    }

    #[test]
    fn sentences_go_on_below_their_beginning() {
        let mut out = Vec::new();
        let mut fitting = Fitting::new(&mut out, Some(20));
        fitting.sentences(["one two three four five six"]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "- one two three four\n  five six\n");
    }

    #[test]
    fn a_cut_says_so() {
        assert_eq!(fit("filter", 6), "filter");
        assert_eq!(fit("filter", 5), "filt…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("a\x1bb", 4), "a…");
        assert_eq!(fit("ab", 0), "");
        let mut line = String::new();
        push_padded(&mut line, "12", 5, true);
        push_padded(&mut line, "x", 3, false);
        assert_eq!(line, "   12x  ");
    }

    #[test]
    fn lines_break_at_a_space_near_their_end() {
        assert_eq!(wrap("{a: ?number, b: ?string}", 14), ["{a: ?number,", "b: ?string}"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    }

    proptest! {
        #[test]
        fn nothing_shown_is_unsafe_or_too_wide(text in any::<String>(), columns in 0usize..40) {
            let shown = fit(&text, columns);
            prop_assert!(shown.chars().all(is_safe) && width(&shown) <= columns);
            let escaped = Escaped(&text).to_string();
            prop_assert!(escaped.chars().all(is_safe));
            let is_wide = |line: &&String| width(line) > columns.max(2) && !is_address(line);
            prop_assert_eq!(wrap(&escaped, columns.max(2)).iter().filter(is_wide).count(), 0);
        }

        #[test]
        fn no_line_is_longer(text in "([ a-z日é{}:,\"]|[{\":]://){0,200}", columns in 20usize..100) {
            let parts = fold(&text, columns);
            prop_assert!(parts.iter().all(|part| width(part) <= columns), "{parts:?}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }
    }
}
