//! The digest as one self-contained page with charts: it asks nothing of the network, and what came from
//! a server reaches it as text only.

use std::io::{self, Write};

use super::View;

/// What stands around the data.
const PAGE: &str = include_str!("page.html");
/// Where the data goes.
const PLACE: &str = "__DATA__";

/// Writes the page.
///
/// # Errors
/// Those of `out`.
pub fn write(view: &View<'_>, mut out: impl Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(PLACE).unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    out.write_all(b"{\"digest\":")?;
    super::json::write(view, Inert(&mut out))?;
    out.write_all(b",\"zone\":")?;
    let totals = &view.digest.totals;
    // The page shows its times by the offset at the beginning and at the end.
    let offsets = [totals.first_seen, totals.last_seen].map(|at| view.zone.offset_at(at));
    super::super::json::line(&(view.zone.to_string(), offsets), Inert(&mut out))?;
    out.write_all(b",\"lost\":")?;
    super::super::json::line(&view.losses(), &mut out)?;
    // Rows of the table by their index in the digest, and the points as time, latency and row.
    write!(
        out,
        ",\"precision_ns\":{},\"points_seen\":{},\"row_of\":{{",
        view.source.precision_ns(),
        view.digest.points_seen,
    )?;
    for (place, (index, _)) in view.rows.iter().enumerate() {
        write!(out, "{}\"{index}\":{place}", if place > 0 { "," } else { "" })?;
    }
    let first = view.digest.totals.first_seen;
    write!(out, "}},\"points\":[")?;
    for (at, point) in view.digest.points.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Microseconds are enough for a pixel.
        write!(out, "{comma}{},{},{}", point.end.since(first) / 1_000, point.latency_ns / 1_000, point.row)?;
    }
    out.write_all(b"]}")?;
    out.write_all(after.as_bytes())
}

/// Writes JSON so that no text in it ends the element that it stands in.
pub(super) struct Inert<W>(pub W);

impl<W: Write> Write for Inert<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
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
