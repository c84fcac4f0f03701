//! Follows where the time of operations goes inside the servers, for as long as a command runs.
//!
//! Two sources see each operation: the wire, which knows its shape, and the thread that executes it, of which the
//! kernel knows where its time goes. They meet in a [`SplitMeeting`] by connection and request id. A [`SplitSink`]
//! receives what both saw.

mod in_progress;
mod meeting;
mod open_files;
mod trace;
mod waits;

pub use self::meeting::{SplitMeeting, SplitSink, WireSide, lock};
pub use self::open_files::FileId;
pub use self::trace::{SplitHelpers, SplitTrace};
