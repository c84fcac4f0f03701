//! Log lines inside the lines of other programs: behind a prefix (kubectl, docker, CRI, journald, syslog), or
//! as a string in a JSON object.

use std::borrow::Cow;

/// The most lines of other programs around a line.
pub(super) const MAX_DEPTH: u8 = 3;
/// Some programs begin a file with this.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Begins a sequence that sets a colour.
const ESCAPE: u8 = 0x1b;
/// The longest prefix.
const MAX_PREFIX: usize = 1_024;
/// The most places in a line that are tried as the beginning of a log line.
const MAX_PLACES: usize = 16;

/// The keys under which programs keep a line that they forward.
pub(super) fn is_key(key: &[u8]) -> bool {
    matches!(key, b"log" | b"message" | b"MESSAGE" | b"msg" | b"line" | b"textPayload" | b"_raw")
}

/// The line behind the prefix of another program. `is_head`: whether a text begins as a line of 4.2 and earlier.
pub(super) fn behind_prefix(line: &[u8], is_head: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
    let reach = line.len().min(MAX_PREFIX);
    let is_boundary = |byte: u8| matches!(byte, b' ' | b'\t' | b':' | b'|' | b']' | b'=' | b'm' | 0xbf);
    let mut places = 0;
    for at in 1..reach {
        let rest = &line[at..];
        let found = match rest[0] {
            // The labels of Loki stand in braces too.
            b'{' if rest[1..].trim_ascii_start().first() == Some(&b'"') => {
                places += 1;
                looks_like_json(rest) || looks_like_envelope(rest)
            }
            // The year of a date, or its day of the week.
            b'1' | b'2' | b'F' | b'M' | b'S' | b'T' | b'W' if is_boundary(line[at - 1]) => {
                places += 1;
                is_head(rest)
            }
            _ => false,
        };
        if found {
            return Some(rest);
        }
        if places >= MAX_PLACES {
            break;
        }
    }
    None
}

/// The text behind a prefix like `prefix`, which another line has: with other digits, such as those of a time.
pub(super) fn behind_like<'a>(prefix: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (mut prefix, mut rest) = (prefix, line);
    while let Some((byte, behind)) = prefix.split_first() {
        match (digits(prefix), digits(rest)) {
            (0, _) if rest.first() == Some(byte) => (prefix, rest) = (behind, &rest[1..]),
            // An empty text without its space.
            (0, _) if rest.is_empty() && prefix.trim_ascii().is_empty() => return Some(rest),
            (wanted @ 1.., found @ 1..) => (prefix, rest) = (&prefix[wanted..], &rest[found..]),
            _ => return None,
        }
    }
    Some(rest)
}

/// Whether a line may have colours: it begins or ends with a sequence that sets one.
pub(super) fn may_be_coloured(line: &[u8]) -> bool {
    line.first() == Some(&ESCAPE) || line.last() == Some(&b'm') && memchr::memchr(ESCAPE, line).is_some()
}

/// A line without the sequences that set colours, wherever they stand.
pub(super) fn uncoloured(line: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(ESCAPE, line) {
        Some(_) => without_colours(line).into(),
        None => line.into(),
    }
}

/// A line without the sequences that set colours.
pub(super) fn without_colours(line: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(line.len()), line);
    while let Some(at) = memchr::memchr(ESCAPE, rest) {
        plain.extend_from_slice(&rest[..at]);
        let sequence = rest.get(at + 1..).and_then(|after| after.strip_prefix(b"["));
        let length = sequence.and_then(|codes| {
            let end = codes.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'))?;
            Some(2 + end + 1)
        });
        rest = &rest[(at + length.unwrap_or(1)).min(rest.len())..];
    }
    plain.extend_from_slice(rest);
    plain
}

/// A text in quotes, perhaps with a comma behind it, as a shell prints an element of a list of lines.
pub(super) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let (quote, rest) = line.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\''))?;
    let rest = rest.strip_suffix(b",").unwrap_or(rest);
    let inside = rest.strip_suffix(std::slice::from_ref(quote))?;
    let mut text = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        match (byte, byte == &b'\\') {
            (_, true) => match bytes.next()? {
                b'n' => text.push(b'\n'),
                b't' => text.push(b'\t'),
                // Rare in a line; what stands there is no key.
                b'u' | b'x' => text.push(b'?'),
                other => text.push(*other),
            },
            (byte, false) if byte == quote => return None,
            (byte, false) => text.push(*byte),
        }
    }
    Some(text)
}

/// The text of an array of bytes, as `journalctl -o json` writes one that is not plain.
pub(super) fn byte_text(array: &[u8]) -> Option<Vec<u8>> {
    let inside = array.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if !inside.trim_ascii_start().first()?.is_ascii_digit() {
        return None;
    }
    let byte = |number: &[u8]| std::str::from_utf8(number.trim_ascii()).ok()?.parse::<u8>().ok();
    inside.split(|byte| *byte == b',').map(byte).collect()
}

/// The line behind a marker in braces, as mlogfilter writes one for each of several files: `{1} …`.
pub(super) fn behind_marker(line: &[u8]) -> Option<&[u8]> {
    const MAX_MARKER: usize = 64;
    let inside = line.strip_prefix(b"{")?;
    let close = memchr::memchr(b'}', &inside[..inside.len().min(MAX_MARKER)])?;
    let is_marker = !inside[..close].iter().any(|byte| matches!(byte, b'"' | b':' | b','));
    inside[close + 1..].strip_prefix(b" ").filter(|rest| is_marker && !rest.is_empty())
}

/// Whether JSON, complete or not, looks like a line of 4.4 or later, or like an envelope of one.
pub(super) fn looks_like_json(line: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(line, what).is_some();
    // In an envelope its quotes are escaped.
    (has(b"\"$date\"") || has(b"$date\\\""))
        && (has(b"\"ctx\"") || has(b"\"msg\"") || has(b"ctx\\\"") || has(b"msg\\\""))
}

/// Whether JSON has a key under which programs keep a forwarded line.
fn looks_like_envelope(line: &[u8]) -> bool {
    let keys: [&[u8]; 3] = [b"\"log\"", b"\"message\"", b"\"MESSAGE\""];
    keys.iter().any(|key| memchr::memmem::find(line, key).is_some())
}

/// Whether a line without a head looks like a part of one of 4.2 or earlier.
pub(super) fn looks_like_text(line: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(line, what).is_some();
    let in_context =
        memchr::memmem::find(line, b"[conn").and_then(|at| line.get(at + 5)).is_some_and(u8::is_ascii_digit);
    let of_operation = || (has(b" locks:{") || has(b" locks(micros)")) && line.ends_with(b"ms");
    in_context || of_operation() || looks_like_json(line)
}

/// Whether a line is a field that `journalctl -o export` writes beside the message.
pub(super) fn is_journal_field(line: &[u8]) -> bool {
    let name = line.iter().take(65).position(|byte| *byte == b'=').map(|end| &line[..end]);
    let part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    name.is_some_and(|name| {
        name.first().is_some_and(|first| *first == b'_' || first.is_ascii_uppercase())
            && name.iter().all(part)
            && !matches!(name, b"MESSAGE")
    })
}
