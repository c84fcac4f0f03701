//! Notices from the threads that capture and write to the one that shows.

use sonar_view::queries::{PacketOrigin, ServerState};

/// A message during the capture.
pub enum Notice {
    /// What has changed, and where the packets come from now.
    Source { news: String, source: String, origin: PacketOrigin },
    /// The state of the servers of this host, by port.
    Servers(Vec<ServerState>),
    /// An interface went down. The capture goes on once it is up again.
    InterfaceDown,
    /// An error; the capture continues.
    Complaint(String),
    /// Why nothing more is written to the file of `--write`; the capture continues.
    WritingEnded(String),
}

/// What to say of [`Notice::InterfaceDown`] where the capture does not follow an interface that is created again.
pub const INTERFACE_DOWN: &str = "an interface went down; capture resumes once it is up, but not if it is removed and \
                                  created again: then restart mongosonar";
