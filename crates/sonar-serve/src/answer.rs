//! The bytes of an answer: so many at most, in pieces, compressed if the client takes that, and with a tag by which it asks
//! later whether they are still the same.

use std::convert::Infallible;
use std::io::{self, BufWriter, Write};

use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use ring::digest::{Context, SHA256};

use crate::hex;

/// Bytes of a piece. What a client has taken of an answer is freed by pieces.
const PIECE: usize = 64 << 10;
/// Bytes of a tag, as the beginning of a hash.
const TAG: usize = 16;
/// What stands behind the tag of the same answer in compressed form: its bytes are other ones.
const OF_GZIP: &str = "-gzip";

/// Tells a browser to keep an answer for itself, and to ask each time whether it is still the same.
const KEPT: (HeaderName, HeaderValue) = (CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
/// Tells it that another form may be sent.
const VARIED: (HeaderName, HeaderValue) = (VARY, HeaderValue::from_static("accept-encoding"));

/// In which form an answer is made.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AnswerForm {
    /// Compressed by gzip.
    pub is_packed: bool,
    /// With a tag.
    pub is_tagged: bool,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct MadeAnswer {
    pieces: Vec<Bytes>,
    is_packed: bool,
    /// The same for the same bytes before compression; `None` if it is not wanted.
    tag: Option<String>,
}

impl MadeAnswer {
    /// Bytes to send.
    pub fn length(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// The answer for a client that sent these headers: nothing of it, if the client has it.
    pub fn respond(self, media_type: &'static str, asked: &HeaderMap) -> Response {
        let Some(tag) = &self.tag else { return self.send(media_type) };
        if let Some(known) = known_tag(asked, tag).and_then(|tag| HeaderValue::from_str(tag).ok()) {
            return (StatusCode::NOT_MODIFIED, [(ETAG, known), KEPT, VARIED]).into_response();
        }
        let end = if self.is_packed { OF_GZIP } else { "" };
        // Hexadecimal digits stand in any header.
        let tag = HeaderValue::from_str(&format!("\"{tag}{end}\"")).ok().map(|tag| (ETAG, tag));
        let mut response = self.send(media_type);
        response.headers_mut().extend(tag.into_iter().chain([KEPT]));
        response
    }

    fn send(self, media_type: &'static str) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(media_type)),
            (CONTENT_LENGTH, HeaderValue::from(self.length())),
            VARIED,
        ];
        let mut response = (headers, Body::empty()).into_response();
        if self.is_packed {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        *response.body_mut() =
            Body::from_stream(stream::iter(self.pieces.into_iter().map(Ok::<_, Infallible>)));
        response
    }
}

/// The tag in quotes of an answer, in either form, that a client says it has.
fn known_tag<'a>(asked: &'a HeaderMap, tag: &str) -> Option<&'a str> {
    let is_it = |text: &&str| {
        let known = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default();
        known.strip_suffix(OF_GZIP).unwrap_or(known) == tag
    };
    // A reverse proxy that compresses makes weak tags of strong ones.
    let strong = |text: &'a str| text.trim().trim_start_matches("W/");
    let texts = asked.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(strong).find(is_it)
}

/// Whether a client that sent these headers takes answers that gzip has compressed.
pub(crate) fn takes_gzip(asked: &HeaderMap) -> bool {
    let texts = asked.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>() == Ok(0.0));
        is_gzip && !parts.any(is_refused)
    })
}

/// Bytes that become an answer, up to so many.
pub(crate) struct AnswerBytes {
    out: AnswerOutput,
    hash: Option<Context>,
    left: usize,
    is_full: bool,
}

enum AnswerOutput {
    Plain(Pieces),
    Packed(Box<BufWriter<GzEncoder<Pieces>>>),
}

impl AnswerBytes {
    /// At most this number of bytes, before compression.
    pub fn new(most: usize, form: AnswerForm) -> Self {
        let out = if form.is_packed {
            let encoder = GzEncoder::new(Pieces::default(), Compression::fast());
            AnswerOutput::Packed(Box::new(BufWriter::with_capacity(PIECE, encoder)))
        } else {
            AnswerOutput::Plain(Pieces::default())
        };
        // Another version may compress the same bytes in another way.
        let hash = form.is_tagged.then(|| {
            let mut hash = Context::new(&SHA256);
            hash.update(env!("CARGO_PKG_VERSION").as_bytes());
            hash
        });
        Self { out, hash, left: most, is_full: false }
    }

    /// Whether something was not written because it was too much.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The answer.
    ///
    /// # Errors
    /// It cannot be compressed.
    pub fn finish(self) -> io::Result<MadeAnswer> {
        let (pieces, is_packed) = match self.out {
            AnswerOutput::Plain(pieces) => (pieces, false),
            AnswerOutput::Packed(packed) => {
                let encoder = (*packed).into_inner().map_err(io::IntoInnerError::into_error)?;
                (encoder.finish()?, true)
            }
        };
        let tag = self.hash.map(|hash| hex::encode(hash.finish().as_ref().get(..TAG).unwrap_or_default()));
        Ok(MadeAnswer { pieces: pieces.finish(), is_packed, tag })
    }
}

impl Write for AnswerBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len()) else {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.left = left;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        match &mut self.out {
            AnswerOutput::Plain(pieces) => pieces.write_all(bytes)?,
            AnswerOutput::Packed(packed) => packed.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in pieces, so that none has to be moved when more are written.
#[derive(Debug, Default)]
struct Pieces {
    whole: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.open.shrink_to_fit();
            self.whole.push(self.open.into());
        }
        self.whole
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (now, _) = bytes.split_at(bytes.len().min(PIECE - self.open.len()));
        self.open.extend_from_slice(now);
        if self.open.len() == PIECE {
            self.whole.push(std::mem::take(&mut self.open).into());
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text that is served again and again.
#[derive(Clone, Debug)]
pub(crate) struct StaticAnswer {
    plain: MadeAnswer,
    packed: MadeAnswer,
}

impl StaticAnswer {
    /// Compresses it once.
    ///
    /// # Errors
    /// It cannot be compressed.
    pub fn new(text: &str) -> io::Result<Self> {
        let made = |is_packed| {
            let mut bytes = AnswerBytes::new(usize::MAX, AnswerForm { is_packed, is_tagged: false });
            bytes.write_all(text.as_bytes())?;
            bytes.finish()
        };
        Ok(Self { plain: made(false)?, packed: made(true)? })
    }

    /// The answer for a client that sent these headers.
    pub fn respond(&self, media_type: &'static str, asked: &HeaderMap) -> Response {
        let answer = if takes_gzip(asked) { &self.packed } else { &self.plain };
        answer.clone().respond(media_type, asked)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn made(content: &[u8], form: AnswerForm) -> MadeAnswer {
        let mut bytes = AnswerBytes::new(1 << 20, form);
        // As JSON is written.
        content.chunks(7).for_each(|part| bytes.write_all(part).unwrap());
        bytes.finish().unwrap()
    }

    fn form(is_packed: bool) -> AnswerForm {
        AnswerForm { is_packed, is_tagged: true }
    }

    fn asked(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn an_answer_is_sent_as_it_was_written_in_pieces() {
        let content: Vec<u8> = (0..PIECE * 5 / 2).map(|at| (at * at % 251) as u8).collect();
        let plain = made(&content, form(false));
        assert_eq!(plain.pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, PIECE / 2]);
        assert_eq!((plain.pieces.concat(), plain.length()), (content.clone(), content.len()));
        let packed = made(&content, form(true));
        let mut unpacked = Vec::new();
        GzDecoder::new(&*packed.pieces.concat()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, content);
        assert_eq!(packed.tag, plain.tag, "it is of the bytes before compression");
        assert_eq!(made(b"", form(false)).length(), 0);
    }

    #[test]
    fn an_answer_has_so_many_bytes_before_compression() {
        for is_packed in [false, true] {
            let mut bytes = AnswerBytes::new(100, form(is_packed));
            assert!(bytes.write_all(&[0; 100]).is_ok() && !bytes.is_full());
            assert!(bytes.write_all(&[0]).is_err() && bytes.is_full());
        }
    }

    #[test]
    fn the_same_bytes_have_the_same_tag_and_others_another_one() {
        let tag = |content: &[u8]| made(content, form(false)).tag.unwrap();
        assert_eq!((tag(b"a").len(), tag(b"a")), (2 * TAG, tag(b"a")));
        assert_ne!(tag(b"a"), tag(b"b"));
        assert_eq!(made(b"a", AnswerForm::default()).tag, None);
    }

    #[test]
    fn who_has_an_answer_gets_nothing_of_it() {
        let tag = made(b"a", form(false)).tag.unwrap();
        let respond = |is_packed, known: &str| {
            let response =
                made(b"a", form(is_packed)).respond("application/json", &asked(IF_NONE_MATCH, known));
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            (response.status().as_u16(), header(ETAG).unwrap(), header(CONTENT_LENGTH))
        };
        let (plain, packed) = (format!("\"{tag}\""), format!("\"{tag}-gzip\""));
        for known in [&plain, &packed] {
            assert_eq!(respond(true, known), (304, known.clone(), None));
            assert_eq!(respond(false, &format!("\"x\", W/{known}")), (304, known.clone(), None));
        }
        for other in ["", "*", &tag, "\"\"", "\"0\"", &format!("\"{tag}-br\"")] {
            assert_eq!(respond(false, other), (200, plain.clone(), Some("1".to_owned())), "{other}");
            assert_eq!(respond(true, other).1, packed, "{other}");
        }
        let untagged = made(b"a", AnswerForm::default()).respond("text/html", &asked(IF_NONE_MATCH, &plain));
        assert_eq!((untagged.status(), untagged.headers().get(ETAG)), (StatusCode::OK, None));
    }

    #[test]
    fn only_who_takes_gzip_gets_it() {
        for taken in ["gzip", "GZIP", "deflate, gzip;q=0.5", "gzip; q=1, br"] {
            assert!(takes_gzip(&asked(ACCEPT_ENCODING, taken)), "{taken}");
        }
        for refused in ["", "identity", "gzip;q=0", "gzip; q=0.000", "br, zstd", "gzipped"] {
            assert!(!takes_gzip(&asked(ACCEPT_ENCODING, refused)), "{refused}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
