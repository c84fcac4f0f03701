//! Text that came from the wire, made safe to show.
//!
//! Database, collection, field and application names are chosen by whoever opens a connection. A
//! terminal takes control characters as orders (move, clear, set the title, paste), and bidirectional
//! marks make a line read as something else; both are written as `\u{…}` here. Nothing from the wire
//! is written to a terminal but through this module.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use unicode_width::UnicodeWidthChar;

/// Whether a character may be shown as it is. What may not: controls (C0, DEL, C1, which holds the
/// eight-bit form of the escape sequence introducer), line and paragraph separators, and the
/// invisible marks that change direction or hide text.
pub const fn is_safe(c: char) -> bool {
    !matches!(c,
        '\0'..='\x1f'
        | '\x7f'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}'
    )
}

/// Displays a string with every unsafe character (see [`is_safe`]) as `\u{…}`.
#[derive(Copy, Clone, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c| !is_safe(c)) {
            let (before, from) = rest.split_at(at);
            f.write_str(before)?;
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                write!(f, "\\u{{{:x}}}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

/// `text` with every unsafe character as `\u{…}`; borrowed when there is none.
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_safe) { Cow::Borrowed(text) } else { Cow::Owned(Escaped(text).to_string()) }
}

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

/// Breaks an escaped text into lines of at most `columns` columns, at a space where there is one in
/// the last third of the line.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        let needs = c.width().unwrap_or(0);
        if used + needs > columns && !line.is_empty() {
            let rest = match line.rfind(' ') {
                Some(at) if at > line.len() * 2 / 3 => {
                    let rest = line.split_off(at + 1);
                    line.truncate(at);
                    rest
                }
                _ => String::new(),
            };
            lines.push(std::mem::replace(&mut line, rest));
            used = width(&line);
        }
        line.push(c);
        used += needs;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_are_disarmed() {
        assert_eq!(escape("a\x1b[2Jb\u{9b}0m\r\n"), "a\\u{1b}[2Jb\\u{9b}0m\\u{d}\\u{a}");
        assert_eq!(escape("\u{202e}evil\u{2066}"), "\\u{202e}evil\\u{2066}");
        assert!(matches!(escape("shop.заказы"), Cow::Borrowed(_)));
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
            prop_assert_eq!(wrap(&escaped, columns.max(2)).iter().filter(|l| width(l) > columns.max(2)).count(), 0);
        }
    }
}
