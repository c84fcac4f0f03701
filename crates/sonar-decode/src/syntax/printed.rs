//! Turns a document as a shell prints it, or any tool writes JSON, into extended JSON: keys without quotes, strings
//! in single quotes, trailing commas, `ISODate(…)`, `NumberLong(…)`, `Long('…')`, regular expressions.
//!
//! mongo prints this with `tojson`, mongosh with Node's `util.inspect`, which leaves out what is nested deeply
//! (`[Object]`) and what is long (`... 20 more items`): <https://www.mongodb.com/docs/mongodb-shell/reference/data-types/>,
//! <https://nodejs.org/api/util.html#utilinspectobject-options>.

/// The deepest nesting that is read.
const MAX_NESTING: usize = 250;

/// Stands for a value that the shell left out.
const LEFT_OUT: &[u8] = b"null";

/// Names of the fields that hold a command.
const COMMANDS: [&[u8]; 4] = [b"command", b"originatingCommand", b"query", b"updateobj"];

/// The byte at which a document cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {0} cannot be read")]
pub struct PrintedError(pub usize);

/// What a document lost when it was printed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PrintedLosses {
    /// The shell left out a part of a command.
    pub left_out: bool,
    /// The types of values: `JSON.stringify` writes a `Long` as `{low, high, unsigned}`, and a date as a text.
    pub types: bool,
}

/// Appends `document` to `out` as extended JSON. Returns what it had lost before.
///
/// # Errors
/// It is not a document of a known form.
pub fn to_json(document: &[u8], out: &mut Vec<u8>) -> Result<PrintedLosses, PrintedError> {
    let lost = PrintedLosses::default();
    let mut converter = Converter { bytes: document, at: 0, out, in_command: false, lost };
    converter.space();
    if converter.peek() != Some(b'{') {
        return Err(converter.wrong());
    }
    converter.object(1)?;
    converter.space();
    if converter.at < document.len() { Err(converter.wrong()) } else { Ok(converter.lost) }
}

/// The first argument of a call.
struct FirstArgument {
    text: Vec<u8>,
    is_quoted: bool,
}

struct Converter<'a, 'o> {
    bytes: &'a [u8],
    at: usize,
    out: &'o mut Vec<u8>,
    /// In a field that holds a command.
    in_command: bool,
    lost: PrintedLosses,
}

/// The 64-bit integer that `{"low":…,"high":…,"unsigned":…}` stands for, as `JSON.stringify` writes a `Long`: its two
/// halves, both as signed numbers.
fn long_of_halves(object: &[u8]) -> Option<i64> {
    let rest = object.strip_prefix(b"{\"low\":")?;
    let text = std::str::from_utf8(rest.strip_suffix(b"}")?).ok()?;
    let (low, rest) = text.split_once(",\"high\":")?;
    let (high, unsigned) = rest.split_once(",\"unsigned\":")?;
    let (low, high): (i32, i32) = (low.parse().ok()?, high.parse().ok()?);
    matches!(unsigned, "true" | "false").then_some(i64::from(high) << 32 | i64::from(low as u32))
}

impl<'a> Converter<'a, '_> {
    fn wrong(&self) -> PrintedError {
        PrintedError(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Takes `byte` if it comes next, after white space.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), PrintedError> {
        if self.take(byte) { Ok(()) } else { Err(self.wrong()) }
    }

    fn object(&mut self, depth: usize) -> Result<(), PrintedError> {
        self.expect(b'{')?;
        let begin = self.out.len();
        self.out.push(b'{');
        let mut first = true;
        loop {
            if self.take(b'}') {
                self.out.push(b'}');
                if let Some(long) = self.out.get(begin..).and_then(long_of_halves) {
                    self.out.truncate(begin);
                    self.out.extend_from_slice(format!("{{\"$numberLong\":\"{long}\"}}").as_bytes());
                    self.lost.types = true;
                }
                return Ok(());
            }
            if self.take(b',') {
                // Also after the last field.
                continue;
            }
            if !std::mem::replace(&mut first, false) {
                self.out.push(b',');
            }
            let from = self.out.len();
            self.key()?;
            if depth == 1 {
                let name = self.out.get(from + 1..self.out.len() - 1).unwrap_or(&[]);
                self.in_command = COMMANDS.contains(&name);
            }
            self.expect(b':')?;
            self.out.push(b':');
            self.value(depth)?;
        }
    }

    fn key(&mut self) -> Result<(), PrintedError> {
        match self.peek() {
            Some(b'"' | b'\'' | b'`') => self.text(),
            _ => {
                let length = self.word();
                if length == 0 {
                    return Err(self.wrong());
                }
                self.out.push(b'"');
                self.out.extend_from_slice(&self.bytes[self.at..self.at + length]);
                self.out.push(b'"');
                self.at += length;
                Ok(())
            }
        }
    }

    /// Length of the name or number that comes next.
    fn word(&self) -> usize {
        let part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.') || *byte >= 0x80;
        self.rest().iter().take_while(|byte| part(byte)).count()
    }

    fn array(&mut self, depth: usize) -> Result<(), PrintedError> {
        self.expect(b'[')?;
        let inside = self.rest();
        let marks: [&[u8]; 3] = [b"Object", b"Array", b"Circular"];
        // `[Object]`, `[Array]`, `[Object: null prototype]`, `[Circular *1]`; but not `[ObjectId('…')]`.
        let is_mark = |word: &&[u8]| {
            let rest = inside.strip_prefix(*word);
            rest.is_some_and(|rest| matches!(rest, [b']' | b':', ..] | [b' ', b'*', ..]))
        };
        if marks.iter().any(is_mark) {
            let end = memchr::memchr(b']', inside).ok_or(self.wrong())?;
            self.at += end + 1;
            self.omit();
            return Ok(());
        }
        self.out.push(b'[');
        let mut first = true;
        loop {
            if self.take(b']') {
                self.out.push(b']');
                return Ok(());
            }
            if self.take(b',') {
                continue;
            }
            if self.rest().starts_with(b"...") {
                // `... 20 more items`.
                let end = memchr::memchr2(b']', b',', self.rest()).ok_or(self.wrong())?;
                self.at += end;
                self.lost.left_out |= self.in_command;
                continue;
            }
            if !std::mem::replace(&mut first, false) {
                self.out.push(b',');
            }
            self.value(depth)?;
        }
    }

    fn omit(&mut self) {
        self.out.extend_from_slice(LEFT_OUT);
        self.lost.left_out |= self.in_command;
    }

    fn value(&mut self, depth: usize) -> Result<(), PrintedError> {
        if depth >= MAX_NESTING {
            return Err(self.wrong());
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"' | b'\'' | b'`') => self.text(),
            Some(b'/') => self.regex(),
            Some(b'-' | b'+' | b'0'..=b'9' | b'.') => self.number(),
            Some(_) => self.named(),
            None => Err(self.wrong()),
        }
    }

    /// A string, or several joined with `+`, as Node breaks one at line feeds.
    fn text(&mut self) -> Result<(), PrintedError> {
        self.out.push(b'"');
        loop {
            self.part()?;
            let after = self.at;
            if self.take(b'+') {
                self.space();
                if matches!(self.peek(), Some(b'"' | b'\'' | b'`')) {
                    continue;
                }
                return Err(self.wrong());
            }
            if self.rest().starts_with(b"... ") {
                // `'…'... 400 more characters`.
                self.at += 4;
                let more =
                    self.rest().iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b' ');
                self.at += more.count();
                self.lost.left_out |= self.in_command;
            } else {
                self.at = after;
            }
            self.out.push(b'"');
            return Ok(());
        }
    }

    fn part(&mut self) -> Result<(), PrintedError> {
        let quote = self.peek().ok_or(self.wrong())?;
        self.at += 1;
        loop {
            let rest = self.rest();
            let plain = rest
                .iter()
                .position(|byte| *byte == quote || *byte == b'\\' || *byte == b'"' || *byte < b' ')
                .ok_or(self.wrong())?;
            self.out.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match rest[plain] {
                byte if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                b'"' => {
                    self.at += 1;
                    self.out.extend_from_slice(b"\\\"");
                }
                control => {
                    self.at += 1;
                    self.code(u32::from(control));
                }
            }
        }
    }

    /// A UTF-16 unit as JSON writes it.
    fn code(&mut self, unit: u32) {
        self.out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
    }

    fn escape(&mut self) -> Result<(), PrintedError> {
        let letter = self.bytes.get(self.at + 1).copied().ok_or(self.wrong())?;
        let hex = |range: std::ops::Range<usize>| {
            let digits = self.bytes.get(range).and_then(|digits| std::str::from_utf8(digits).ok())?;
            if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                u32::from_str_radix(digits, 16).ok()
            } else {
                None
            }
        };
        let from = self.at + 2;
        match letter {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.out.extend_from_slice(&[b'\\', letter]);
                self.at = from;
            }
            b'u' if self.bytes.get(from) == Some(&b'{') => {
                let length = memchr::memchr(b'}', &self.bytes[from..]).filter(|length| *length < 8);
                let end = from + length.ok_or(self.wrong())?;
                let c = hex(from + 1..end).and_then(char::from_u32).ok_or(self.wrong())?;
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    self.code(u32::from(*unit));
                }
                self.at = end + 1;
            }
            b'u' => {
                let unit = hex(from..from + 4).ok_or(self.wrong())?;
                self.code(unit);
                self.at = from + 4;
            }
            b'x' => {
                let unit = hex(from..from + 2).ok_or(self.wrong())?;
                self.code(unit);
                self.at = from + 2;
            }
            b'v' | b'0' => {
                self.code(if letter == b'v' { 11 } else { 0 });
                self.at = from;
            }
            // A line continuation.
            b'\n' => self.at = from,
            // `\'` and all others are the character itself.
            other if other >= b' ' => {
                self.at = from - 1;
                if other < 0x80 {
                    self.out.push(other);
                    self.at = from;
                }
            }
            _ => return Err(self.wrong()),
        }
        Ok(())
    }

    fn regex(&mut self) -> Result<(), PrintedError> {
        let (mut end, mut class) = (self.at + 1, false);
        loop {
            match self.bytes.get(end).ok_or(self.wrong())? {
                b'\\' => end += 1,
                b'[' => class = true,
                b']' => class = false,
                b'/' if !class => break,
                _ => {}
            }
            end += 1;
        }
        self.at = end + 1;
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        // Only the type of a value matters, not its pattern.
        self.out.extend_from_slice(b"{\"$regularExpression\":{\"pattern\":\"\",\"options\":\"\"}}");
        Ok(())
    }

    fn number(&mut self) -> Result<(), PrintedError> {
        let negative = self.peek() == Some(b'-');
        let digits = self.at + usize::from(matches!(self.peek(), Some(b'-' | b'+')));
        let rest = self.bytes.get(digits..).unwrap_or(&[]);
        if negative {
            self.out.push(b'-');
        }
        if rest.starts_with(b"Infinity") {
            let infinity = if negative { "-Infinity" } else { "Infinity" };
            self.out.truncate(self.out.len() - usize::from(negative));
            self.out.extend_from_slice(format!("{{\"$numberDouble\":\"{infinity}\"}}").as_bytes());
            self.at = digits + 8;
            return Ok(());
        }
        let part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let text = &rest[..rest.iter().take_while(|byte| part(byte)).count()];
        let is_whole = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || !text.starts_with(b"0"));
        if is_whole && !text.is_empty() {
            self.out.extend_from_slice(text);
        } else {
            // JavaScript also writes numbers that are not JSON: `.5`, `5.`.
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            let value = value.filter(|value| value.is_finite() && text[0] != b'-' && text[0] != b'+');
            let value = value.ok_or(self.wrong())?;
            self.out.extend_from_slice(format!("{value:?}").as_bytes());
        }
        self.at = digits + text.len();
        Ok(())
    }

    /// `true`, `ISODate("…")`, `new Date(…)`, `Binary.createFromBase64('…', 4)` and the like.
    fn named(&mut self) -> Result<(), PrintedError> {
        if self.rest().starts_with(b"new ") {
            self.at += 4;
            self.space();
        }
        let length = self.word();
        let name = &self.rest()[..length];
        let plain: Option<&[u8]> = match name {
            b"true" | b"false" | b"null" => Some(name),
            b"undefined" => Some(b"{\"$undefined\":true}"),
            b"NaN" => Some(b"{\"$numberDouble\":\"NaN\"}"),
            b"Infinity" => Some(b"{\"$numberDouble\":\"Infinity\"}"),
            _ => None,
        };
        let begin = self.at;
        self.at += length;
        if let Some(plain) = plain {
            self.out.extend_from_slice(plain);
            return Ok(());
        }
        let known = self.call(name);
        known.ok_or(PrintedError(begin))
    }

    /// Writes the value of a call of `name`; `None`: it is unknown.
    fn call(&mut self, name: &[u8]) -> Option<()> {
        // `Long.fromString`, `Binary.createFromBase64`: the type counts.
        let kind = name.split(|byte| *byte == b'.').next()?;
        if !matches!(kind, b"MinKey" | b"MaxKey") || self.peek() == Some(b'(') {
            self.arguments(kind)
        } else {
            self.typed(kind, None)
        }
    }

    fn arguments(&mut self, kind: &[u8]) -> Option<()> {
        if !self.take(b'(') {
            return None;
        }
        self.space();
        let first = match self.peek()? {
            b')' => None,
            b'"' | b'\'' => {
                let from = self.out.len();
                self.text().ok()?;
                let text = self.out.get(from + 1..self.out.len() - 1)?.to_vec();
                self.out.truncate(from);
                Some(FirstArgument { text, is_quoted: true })
            }
            _ => {
                let length =
                    self.rest().iter().take_while(|byte| !matches!(byte, b',' | b')' | b'{')).count();
                let text = self.rest()[..length].trim_ascii().to_vec();
                self.at += length;
                Some(FirstArgument { text, is_quoted: false })
            }
        };
        self.close()?;
        self.typed(kind, first.as_ref())
    }

    /// Skips the other arguments and the `)`.
    fn close(&mut self) -> Option<()> {
        let mut open = 1usize;
        while open > 0 {
            match self.peek()? {
                b'"' | b'\'' | b'`' => {
                    let from = self.out.len();
                    self.text().ok()?;
                    self.out.truncate(from);
                    continue;
                }
                b'(' => open += 1,
                b')' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(())
    }

    /// Writes a value of a type that JSON does not have.
    fn typed(&mut self, kind: &[u8], first: Option<&FirstArgument>) -> Option<()> {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
        let first = first.map(|first| (first.text.as_slice(), first.is_quoted));
        let text = match (kind, first) {
            (b"ISODate" | b"Date", Some((text, true))) => {
                format!("{{\"$date\":\"{}\"}}", std::str::from_utf8(text).ok()?)
            }
            (b"ISODate" | b"Date", Some((text, false))) => {
                format!("{{\"$date\":{{\"$numberLong\":\"{}\"}}}}", number(text)?)
            }
            (b"NumberLong" | b"Long" | b"NumberInt" | b"Int32", Some((text, _))) => {
                format!("{{\"$numberLong\":\"{}\"}}", number(text)?)
            }
            (b"Double", Some((text, _))) => {
                let text = std::str::from_utf8(text).ok()?;
                text.parse::<f64>().ok()?;
                format!("{{\"$numberDouble\":\"{text}\"}}")
            }
            // Only the type of the others matters.
            (b"NumberDecimal" | b"Decimal128", _) => "{\"$numberDecimal\":\"0\"}".to_owned(),
            (b"ObjectId", _) => "{\"$oid\":\"000000000000000000000000\"}".to_owned(),
            (b"Timestamp", _) => "{\"$timestamp\":{\"t\":0,\"i\":0}}".to_owned(),
            (b"BinData" | b"Binary" | b"UUID" | b"HexData" | b"MD5", _) => {
                "{\"$binary\":{\"base64\":\"\",\"subType\":\"00\"}}".to_owned()
            }
            (b"RegExp" | b"BSONRegExp", _) => {
                "{\"$regularExpression\":{\"pattern\":\"\",\"options\":\"\"}}".to_owned()
            }
            (b"DBRef", _) => "{\"$ref\":\"\",\"$id\":\"\"}".to_owned(),
            (b"DBPointer", _) => "{\"$dbPointer\":{}}".to_owned(),
            (b"Code", _) => "{\"$code\":\"\"}".to_owned(),
            (b"Symbol" | b"BSONSymbol", _) => "{\"$symbol\":\"\"}".to_owned(),
            (b"MinKey", _) => "{\"$minKey\":1}".to_owned(),
            (b"MaxKey", _) => "{\"$maxKey\":1}".to_owned(),
            _ => return None,
        };
        self.out.extend_from_slice(text.as_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn converted(text: &str) -> Option<(Value, bool)> {
        let mut out = Vec::new();
        let left_out = to_json(text.as_bytes(), &mut out).ok()?.left_out;
        let value = serde_json::from_slice(&out);
        // Half a surrogate pair stays as it is; all else must be JSON.
        let is_half = value.as_ref().is_err_and(|error| error.to_string().contains("surrogate"));
        if is_half {
            return None;
        }
        Some((value.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out))), left_out))
    }

    #[test]
    fn both_shells_and_json_are_read() {
        let cases = [
            ("{ \"op\" : \"query\", \"millis\" : 12 }", json!({"op": "query", "millis": 12})),
            (
                "{ op: 'query', a: { $gt: 5, 'b-c': [ 1, 2, ], }, }",
                json!({"op": "query", "a": {"$gt": 5, "b-c": [1, 2]}}),
            ),
            (
                "{ts: ISODate(\"2026-05-01T10:00:00.120Z\")}",
                json!({"ts": {"$date": "2026-05-01T10:00:00.120Z"}}),
            ),
            ("{ts: new Date(1700000000000)}", json!({"ts": {"$date": {"$numberLong": "1700000000000"}}})),
            (
                "{a: NumberLong(5), b: NumberLong(\"9007199254740993\"), c: Long('7'), d: Long.fromString('-8'), e: NumberInt(3)}",
                json!({"a": {"$numberLong": "5"}, "b": {"$numberLong": "9007199254740993"}, "c": {"$numberLong": "7"}, "d": {"$numberLong": "-8"}, "e": {"$numberLong": "3"}}),
            ),
            ("{a: 'it\\'s \"so\"', b: \"\\x41\\u00e9\\u{1F600}\"}", json!({"a": "it's \"so\"", "b": "Aé😀"})),
            ("{a: 'one\\n' +\n    'two'}", json!({"a": "one\ntwo"})),
            (
                "{a: /^x[/]\\/y/i, b: true, c: null, d: -1.5e+3}",
                json!({"a": {"$regularExpression": {"pattern": "", "options": ""}}, "b": true, "c": null, "d": -1500.0}),
            ),
            (
                "{a: MinKey, b: MaxKey(), c: undefined}",
                json!({"a": {"$minKey": 1}, "b": {"$maxKey": 1}, "c": {"$undefined": true}}),
            ),
            (
                "{a: Timestamp({ t: 1700000000, i: 3 }), b: Timestamp(1, 2), c: UUID('a-b'), d: Binary.createFromBase64('QUI=', 0), e: Decimal128('1.5')}",
                json!({"a": {"$timestamp": {"t": 0, "i": 0}}, "b": {"$timestamp": {"t": 0, "i": 0}}, "c": {"$binary": {"base64": "", "subType": "00"}}, "d": {"$binary": {"base64": "", "subType": "00"}}, "e": {"$numberDecimal": "0"}}),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(converted(text), Some((expected, false)), "{text}");
        }
    }

    #[test]
    fn only_what_the_shell_left_out_of_a_command_is_reported() {
        assert!(converted("{command: {find: 'a', filter: {x: [Object]}}}").unwrap().1);
        assert!(
            converted("{command: {find: 'a', filter: {x: {$in: [1, 2, ... 90 more items]}}}}").unwrap().1
        );
        for mark in ["[Array]", "[Circular]", "[Circular *1]", "[Object: null prototype]"] {
            let document = format!("{{command: {{find: 'a', filter: {{x: {mark}}}}}}}");
            assert!(converted(&document).unwrap().1, "{mark}");
        }
        // A value that begins like a mark is none, with or without a space before it.
        let oid = json!({"$oid": "000000000000000000000000"});
        for list in
            ["[ObjectId('507f1f77bcf86cd799439011'), 1]", "[ ObjectId('507f1f77bcf86cd799439011'), 1 ]"]
        {
            let document = format!("{{command: {{find: 'a', filter: {{x: {{$in: {list}}}}}}}}}");
            let expected = json!({"command": {"find": "a", "filter": {"x": {"$in": [oid, 1]}}}});
            assert_eq!(converted(&document), Some((expected, false)), "{list}");
        }
        assert!(converted("{command: {find: 'a', filter: {x: 'abc'... 400 more characters}}}").unwrap().1);
        assert!(
            !converted("{command: {find: 'a'}, execStats: {inputStage: [Object], b: [Array]}}").unwrap().1
        );
    }

    #[test]
    fn an_unknown_form_is_no_document() {
        for text in [
            "",
            "[1]",
            "{",
            "{a}",
            "{a:}",
            "{a: b}",
            "{a: f(1)}",
            "{a: 'x}",
            "{a: 1} x",
            "{a: \"\\u12\"}",
            "{a: --1}",
            "{: 1}",
            "{a: NumberLong('x')}",
        ] {
            assert_eq!(converted(text), None, "{text}");
        }
        assert_eq!(converted(&format!("{{a: {}1{}}}", "[".repeat(400), "]".repeat(400))), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_and_what_it_writes_is_json(text in "\\{[a-z{}\\[\\]():,/'\"`\\\\ \nLong0-9.+-]{0,50}\\}") {
            let _ = converted(&text);
        }

        #[test]
        fn json_stays_what_it_is(text in "\\PC{0,20}", number in any::<i64>(), flag in any::<bool>()) {
            let value = json!({"a": text, "b": [number, flag, null, {"c": text}]});
            for written in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(converted(&written), Some((value.clone(), false)));
            }
        }
    }
}
