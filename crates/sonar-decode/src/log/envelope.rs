//! Log lines inside the lines of other programs: behind a prefix (kubectl, docker, CRI, journald, syslog), or
//! as a string in a JSON object.

/// The most lines of other programs around a line.
pub(super) const MAX_DEPTH: u8 = 3;
/// Some programs begin a file with this.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
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
            b'{' => {
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
