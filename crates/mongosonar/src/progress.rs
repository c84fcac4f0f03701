//! Progress of long work, on standard error and only where that is a terminal.

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides the bars that are made from now on: several at once, of several threads, would overwrite each other.
pub fn hide_others() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// A bar of `total` units, drawn as `template` says in the words of `indicatif`; `finish_and_clear` takes it away.
pub fn bar(total: u64, template: &str) -> ProgressBar {
    if HIDDEN.load(Ordering::Relaxed) {
        return ProgressBar::hidden();
    }
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
