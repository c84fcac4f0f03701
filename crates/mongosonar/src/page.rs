//! How a page is made: the web app (`web/`), which `build.rs` embeds, with the JSON document of a command inside.
//!
//! The page draws the document that `--json` gives. It holds all it needs, and its content security policy lets the
//! browser run the app's own script and nothing else.

use std::io::{self, Write};

/// The web app, with a placeholder for the document.
const APP: &str = include_str!(concat!(env!("OUT_DIR"), "/report.html"));
/// The placeholder.
const PLACE: &str = "{{REPORT}}";
/// What stands before its content security policy.
const POLICY: &str = "http-equiv=\"Content-Security-Policy\" content=\"";

/// Writes a page that draws the document that `document` writes as JSON.
///
/// # Errors
/// Those of `out` and of `document`.
pub fn write<W: Write>(
    mut out: W,
    document: impl FnOnce(&mut Inert<&mut W>) -> io::Result<()>,
) -> io::Result<()> {
    let (before, after) = APP.split_once(PLACE).unwrap_or((APP, ""));
    out.write_all(before.as_bytes())?;
    document(&mut Inert(&mut out))?;
    out.write_all(after.as_bytes())?;
    out.flush()
}

/// The app for a server, which it asks for documents; and the content security policy for the header.
pub fn live() -> (String, String) {
    let (before, after) = APP.split_once(PLACE).unwrap_or((APP, ""));
    let policy = before.split_once(POLICY).and_then(|(_, rest)| rest.split_once('"')).unwrap_or_default().0;
    let allowed = format!("{policy}; connect-src 'self'");
    let html = format!("{}{{\"kind\":\"live\"}}{after}", before.replacen(policy, &allowed, 1));
    // A page cannot say this of itself.
    (html, format!("{allowed}; frame-ancestors 'none'"))
}

/// Writes JSON so that no text in it can end the element that it stands in, or begin a comment there.
pub struct Inert<W>(W);

impl<W: Write> Write for Inert<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        // In JSON these characters stand in texts only.
        while let Some(at) = memchr::memchr3(b'<', b'>', b'&', rest) {
            self.0.write_all(&rest[..at])?;
            write!(self.0, "\\u{:04x}", rest[at])?;
            rest = &rest[at + 1..];
        }
        self.0.write_all(rest)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_app_of_a_server_may_ask_it_and_do_nothing_else() {
        let (html, policy) = live();
        let written = html.split_once(POLICY).unwrap().1.split_once('"').unwrap().0;
        assert_eq!(policy, format!("{written}; frame-ancestors 'none'"));
        assert!(written.starts_with("default-src 'none'; script-src 'sha256-"), "{written}");
        assert!(written.ends_with("form-action 'none'; connect-src 'self'"), "{written}");
        assert!(html.contains("{\"kind\":\"live\"}") && !html.contains(PLACE));
    }

    #[test]
    fn the_page_is_small_enough_to_be_sent_by_mail() {
        assert!(APP.len() < 250_000, "{} bytes", APP.len());
    }

    #[test]
    fn the_document_stands_in_the_page_as_it_was() {
        let text = "</script><!--<img src=x onerror=alert(1)> & {{REPORT}} \u{2028}";
        let document = serde_json::json!({ "kind": text });
        let mut page = Vec::new();
        write(&mut page, |out| serde_json::to_writer(out, &document).map_err(io::Error::from)).unwrap();
        let page = String::from_utf8(page).unwrap();
        let (_, rest) = page.split_once(r#"<script id="data" type="application/json">"#).unwrap();
        let (inside, after) = rest.split_once("</script>").unwrap();
        assert!(!inside.contains(['<', '>', '&']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(inside).unwrap(), document);
        assert!(after.trim_end().ends_with("</html>"));
        // The data, and the app's own script.
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.starts_with("<!doctype html>") && page.contains("script-src 'sha256-"));
        for licence in ["Jason Miller", "Leon Sorokin"] {
            assert!(page.contains(licence), "the licence of {licence}");
        }
    }
}
