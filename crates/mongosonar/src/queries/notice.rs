//! Notices from the threads that capture and write to the one that shows.

use sonar_view::queries::PacketOrigin;

/// A message during the capture.
pub enum Notice {
    /// What has changed, and where the packets come from now.
    Source { news: String, source: String, origin: PacketOrigin },
    /// An error; the capture continues.
    Complaint(String),
    /// Why nothing more is written to the file of `--write`; the capture continues.
    WritingEnded(String),
}
