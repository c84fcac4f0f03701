//! Text from outside, made safe to show.
//!
//! Database, collection, field and application names are chosen by whoever opens a connection. A
//! terminal obeys control characters (move, clear, set the title, paste), and bidirectional marks make a
//! line read as something else; both are written as `\u{…}` here. Text from outside reaches a terminal
//! through this module only.

use std::borrow::Cow;
use std::fmt;

/// Whether a character may be shown as it is. Unsafe are controls (C0, DEL, C1, which holds the
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_disarmed() {
        assert_eq!(escape("a\x1b[2Jb\u{9b}0m\r\n"), "a\\u{1b}[2Jb\\u{9b}0m\\u{d}\\u{a}");
        assert_eq!(escape("\u{202e}evil\u{2066}"), "\\u{202e}evil\\u{2066}");
        assert!(matches!(escape("shop.заказы"), Cow::Borrowed(_)));
    }
}
