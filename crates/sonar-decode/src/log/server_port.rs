//! The words of the server itself in a line, and its port, which some of them state.

use memchr::memmem;

/// Begins the attributes of a line, which a client may have chosen.
const ATTRIBUTES: &[u8] = b"\"attr\":{";
/// Begins the message of a line, which is the server's own.
const MESSAGE: &[u8] = b"\"msg\":\"";
/// The beginning of a line of 4.4 and later.
const JSON_LINE: &[u8] = b"{\"t\":{\"$date\"";
/// The most bytes before such a line in the line of another program, and before the words of a server of 4.2 and earlier.
const MAX_HEAD: usize = 120;

/// The message of a line of 4.4 and later, and where its attributes begin.
pub(super) fn json_message(line: &[u8]) -> Option<(&[u8], usize)> {
    let end = memmem::find(line, ATTRIBUTES).unwrap_or(line.len());
    // What comes before the attributes is the server's own; what a client chose comes after.
    let head = &line[..end];
    let message = &head[memmem::find(head, MESSAGE)? + MESSAGE.len()..];
    Some((&message[..memchr::memchr(b'"', message)?], line.len().min(end + ATTRIBUTES.len())))
}

/// The message of a line of 4.2 and earlier, with all that follows it.
pub(super) fn text_message(line: &[u8]) -> Option<&[u8]> {
    // The context is the server's own, and comes near the beginning.
    Some(&line[memmem::find(&line[..line.len().min(MAX_HEAD)], b"] ")? + 2..])
}

/// The port of a server, if this is one of the lines in which its log states it: at its start, with its options, and
/// after each rotation.
pub fn server_port(line: &[u8]) -> Option<u16> {
    // The line may stand behind the prefix of another program.
    let head = &line[..line.len().min(MAX_HEAD + JSON_LINE.len())];
    let line = memmem::find(head, JSON_LINE).map_or(line, |at| &line[at..]);
    if line.first() == Some(&b'{') {
        let (message, attributes) = json_message(line)?;
        return match message {
            b"MongoDB starting"
            | b"MongoS starting"
            | b"Process Details"
            | b"Options set by command line" => number_behind(&line[attributes..], b"\"port\":"),
            _ => None,
        };
    }
    let message = text_message(line)?;
    let is_start = || {
        let beginnings: [&[u8]; 4] =
            [b"MongoDB starting", b"MongoS starting", b"MongoS version", b"options: {"];
        beginnings.iter().any(|words| message.starts_with(words))
    };
    let is_rotation = || message.starts_with(b"pid=") && memmem::find(message, b"-bit host=").is_some();
    if !is_start() && !is_rotation() {
        return None;
    }
    number_behind(message, b" port=").or_else(|| number_behind(message, b" port: "))
}

/// The number behind a field.
fn number_behind(text: &[u8], field: &[u8]) -> Option<u16> {
    let digits = text[memmem::find(text, field)? + field.len()..].trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_log_is_found_in_the_lines_that_state_it() {
        for (line, port) in [
            (
                r#"{"t":{},"id":4615611,"msg":"MongoDB starting","attr":{"pid":12309,"port":27117,"dbPath":"/d"}}"#,
                Some(27_117),
            ),
            (
                r#"{"id":20721,"msg":"Process Details","attr":{"pid":"12309","port":27118,"host":"vm"}}"#,
                Some(27_118),
            ),
            (
                r#"{"id":21951,"msg":"Options set by command line","attr":{"options":{"net":{"port":5}}}}"#,
                Some(5),
            ),
            (
                r#"| {"t":{"$date":"2024-05-01T10:00:00Z"},"msg":"MongoDB starting","attr":{"port":27017}}"#,
                Some(27_017),
            ),
            (
                "2026-11-21T00:39:39.510+0000 I CONTROL  [initandlisten] MongoDB starting : pid=1 port=27019 dbpath=/d 64-bit host=vm",
                Some(27_019),
            ),
            ("2026-11-21T00:39:39.510+0000 I CONTROL  [conn1] pid=1 port=27020 64-bit host=vm", Some(27_020)),
            (
                r#"2026-11-21T00:39:39.510+0000 I CONTROL  [main] options: { net: { bindIp: "::1", port: 27021 } }"#,
                Some(27_021),
            ),
            (
                "Tue Jan  6 10:00:00.000 [mongosMain] MongoS version 2.4.14 starting: pid=5 port=27022 64-bit host=vm",
                Some(27_022),
            ),
            (r#"{"msg":"Slow query","attr":{"command":{"find":"c","filter":{"port":9}}}}"#, None),
            // Chosen by a client.
            (
                r#"{"msg":"Slow query","attr":{"command":{"find":"c","filter":{"a":"MongoDB starting","port":9}}}}"#,
                None,
            ),
            (
                r#"2026-11-21T00:39:39.510+0000 I COMMAND  [conn1] command a.b appName: "] MongoDB starting port=9" 5ms"#,
                None,
            ),
            (r#"{"msg":"MongoDB starting","attr":{"port":99999}}"#, None),
            (r#"{"msg":"MongoDB starting","attr":{"port":"#, None),
            (r#"{"msg":"MongoDB starting""#, None),
            ("", None),
        ] {
            assert_eq!(server_port(line.as_bytes()), port, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_panics(
            at in 0usize..120,
            byte in proptest::num::u8::ANY,
            cut in 0usize..120,
            is_json in proptest::bool::ANY,
        ) {
            let line = match is_json {
                true => r#"{"t":{"$date":"2024-05-01T10:00:00Z"},"msg":"MongoDB starting","attr":{"port":27017}}"#,
                false => "2026-11-21T00:39:39.510+0000 I CONTROL  [conn1] pid=1 port=27020 64-bit host=vm",
            };
            let mut line = line.as_bytes().to_vec();
            if let Some(place) = line.get_mut(at) {
                *place = byte;
            }
            line.truncate(cut);
            server_port(&line);
        }
    }
}
