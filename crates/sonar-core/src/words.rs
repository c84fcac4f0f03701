//! Numbers in sentences and texts of a bounded length, for the messages of all crates.

use std::fmt::Display;

/// A number and its noun: `1 client`, `2 clients`, `1.20k entries`. The number is formatted as its type does.
pub fn plural(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Processors, also parts of them, to two decimals: `1 processor`, `0.5 processors`.
pub fn processors(count: f64) -> String {
    plural((count * 100.0).round() / 100.0, "processor")
}

/// Bytes in MiB, or in GiB where there are more than one: `812.0 MiB`, `1.5 GiB`.
pub fn binary_size(bytes: u64) -> String {
    let (divisor, unit) = if bytes < 1 << 30 { (1 << 20, "MiB") } else { (1 << 30, "GiB") };
    format!("{:.1} {unit}", bytes as f64 / f64::from(divisor))
}

/// The first `bytes` bytes of a text at most, cut at the end of a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The text as one word for a POSIX shell.
pub fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        for (text, quoted) in [
            ("2026-11-21T21:24:02Z", "2026-11-21T21:24:02Z"),
            ("shop.users", "shop.users"),
            ("shop.old carts", "'shop.old carts'"),
            ("a$(b).c;d", "'a$(b).c;d'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_quoted(text), quoted);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|bytes| cut("aüb", bytes)), ["", "a", "a", "aü", "aüb", "aüb"]);
    }

    #[test]
    fn one_is_singular_and_all_else_is_plural() {
        let clients = [0, 1, 2, 11].map(|count| plural(count, "client"));
        assert_eq!(clients, ["0 clients", "1 client", "2 clients", "11 clients"]);
        assert_eq!(
            [plural(2, "index"), plural(3, "access"), plural(1, "access")],
            ["2 indexes", "3 accesses", "1 access"]
        );
        assert_eq!(
            [plural(2, "entry"), plural(2, "day"), plural("1.20k", "row")],
            ["2 entries", "2 days", "1.20k rows"]
        );
    }

    #[test]
    fn parts_of_processors_are_shown() {
        assert_eq!(
            [2.0, 1.0, 0.5, 1.004, 3.999].map(processors),
            ["2 processors", "1 processor", "0.5 processors", "1 processor", "4 processors"]
        );
    }

    #[test]
    fn sizes_are_in_units_that_people_read() {
        let sizes = [4_096, 812 << 20, 3 << 29, 5 << 40].map(binary_size);
        assert_eq!(sizes, ["0.0 MiB", "812.0 MiB", "1.5 GiB", "5120.0 GiB"]);
    }
}
