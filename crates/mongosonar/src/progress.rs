//! Progress of long work, on standard error and only where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `total` units, drawn as `template` says in the words of `indicatif`; `finish_and_clear` takes it away.
pub fn bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A line that says what is being done: the message of the bar.
pub fn line() -> ProgressBar {
    bar(0, "{msg}")
}
