//! Operations that run now, as long as somebody looks at the page: what collectors list, and how it gets there.
//!
//! Whoever asks, the main thread asks the capture threads, takes what other collectors have put on the [`board`], and
//! sends one list through the [`channel`]. It never waits, and nobody lists anything while nobody looks.

pub mod board;
pub mod channel;
pub mod round;
