//! Packets on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Result;
use sonar_core::history::Collector;
use sonar_core::window::WindowSettings;
use sonar_core::{Table, Window};
use sonar_decode::{Settings, Shared};
use sonar_sys::{Host, PacketFilter, RingConfig};

use crate::agent::parts::{WIDTH_NS, WindowPart};
use crate::agent::servers::LocalServers;
use crate::agent::settings::QueriesTable;
use crate::queries::applications::{self, Lookup};
use crate::queries::args::{QueriesArgs, Range};
use crate::queries::live::capture::{CaptureTask, LiveCapture, RunningCapture, block_bytes};
use crate::queries::live::{Joiner, RETIRE};
use crate::queries::notice::Notice;
use crate::queries::ports::Listened;

/// A ring that is open.
pub struct OpenCapture {
    capture: LiveCapture,
    listened: Listened,
    lookup: Lookup,
    say: Sender<Notice>,
    notices: Receiver<Notice>,
}

impl OpenCapture {
    /// Opens the ring, and the logs that name the applications of open connections.
    ///
    /// # Errors
    /// A permission or an interface is missing.
    pub fn open(table: &QueriesTable, confined: bool) -> Result<Self> {
        let named: Vec<Range> = table.port.iter().map(|port| Range(port.0, port.0)).collect();
        let listened = Listened::choose(&named, &Host::live());
        let size_bytes = (table.ring_mib.0 as usize) << 20;
        let config = RingConfig {
            interfaces: table.interface.clone(),
            filter: PacketFilter { ports: listened.ranges(), ..PacketFilter::default() },
            size_bytes,
            block_bytes: block_bytes(size_bytes),
            retire: RETIRE,
            ..RingConfig::default()
        };
        let capture = LiveCapture::open(&config, 1)?;
        let args = QueriesArgs { keep_privileges: !confined, ..QueriesArgs::default() };
        let lookup = Lookup::open(&args, &Host::live())?;
        let (say, notices) = channel();
        Ok(Self { capture, listened, lookup, say, notices })
    }

    /// Starts the lookup of applications and the capture thread. They need no privileges but their own.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self, confined: bool) -> Result<QueriesCollector> {
        let Self { capture, listened, lookup, say, notices } = self;
        let (shared, stop) = (Arc::new(Shared::default()), Arc::new(AtomicBool::new(false)));
        let complaints = say.clone();
        let complain = move |what| drop(complaints.send(Notice::Complaint(what)));
        let known = lookup.start(shared.clone(), complain)?;
        known.recv_timeout(applications::PATIENCE).ok();
        let task = CaptureTask {
            settings: Settings { ports: listened.ports(), ..Settings::default() },
            shared,
            interval: Duration::from_nanos(WIDTH_NS),
            window: WindowSettings::default(),
            each: None,
            keep: None,
            say,
            stop: stop.clone(),
            confined,
        };
        let (capture, windows) = capture.start(&task)?;
        Ok(QueriesCollector { capture, joiner: Joiner::new(windows, 1), listened, notices, stop, lost: 0 })
    }
}

/// A capture that runs.
pub struct QueriesCollector {
    capture: RunningCapture,
    joiner: Joiner,
    listened: Listened,
    notices: Receiver<Notice>,
    stop: Arc<AtomicBool>,
    /// Packets that the kernel dropped so far.
    pub lost: u64,
}

impl QueriesCollector {
    /// The next window, if one comes in time.
    pub fn take(&mut self, wait: Duration, servers: &LocalServers) -> Option<WindowPart> {
        let window = self.joiner.next(wait)?;
        self.lost += window.coverage.kernel_drops;
        Some(part(&window, servers))
    }

    /// What the threads report, a line each.
    pub fn notices(&self) -> Vec<String> {
        let text = |notice| match notice {
            Notice::Complaint(what) | Notice::WritingEnded(what) => what,
            Notice::Source { news, .. } => news,
        };
        self.notices.try_iter().map(text).collect()
    }

    /// Whether the thread has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.joiner.ended
    }

    /// Captures these ports too.
    pub fn add_ports(&mut self, ports: Vec<u16>) {
        if self.listened.follows() && self.listened.add(ports).is_some() {
            let listened = Arc::new(self.listened.clone());
            for thread in &self.capture.ports {
                thread.send(listened.clone()).ok();
            }
        }
    }

    /// Ends the capture; gives the last windows, and why it failed, if it did.
    pub fn finish(mut self, servers: &LocalServers) -> (Vec<WindowPart>, Result<()>) {
        self.stop.store(true, Ordering::Relaxed);
        self.capture.wake();
        let mut last = Vec::new();
        while let Some(part) = self.take(Duration::from_secs(2), servers) {
            last.push(part);
        }
        (last, self.capture.join())
    }
}

/// A window with the names of servers in the history.
fn part(window: &Window, servers: &LocalServers) -> WindowPart {
    let mut part = WindowPart::new(window.start);
    let mut shapes = Table::of_window(window.shapes.by);
    for row in window.shapes.iter() {
        let mut row = row.clone();
        row.server = servers.name(row.server);
        shapes.add(&row);
    }
    let in_flight = servers.named_in_flight(window.in_flight.clone());
    part.window.observe(Collector::Queries, window.length_ns());
    let (start, end) = (part.window.window.start, part.window.window.end);
    part.window.window = Window { start, end, shapes, in_flight, ..window.clone() };
    part
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;

    use super::*;

    #[test]
    fn a_window_that_begins_within_ten_seconds_belongs_to_them() {
        let start = Timestamp::from_unix(1_003, 0);
        let mut window = Window::new(start, WindowSettings::default());
        window.end = Timestamp::from_unix(1_010, 0);
        window.coverage.frames = 5;
        let part = part(&window, &LocalServers::default());
        assert_eq!(part.window.window.start, Timestamp::from_unix(1_000, 0));
        assert_eq!(part.window.window.end, Timestamp::from_unix(1_010, 0));
        assert_eq!(part.window.observed_ns(Collector::Queries), 7_000_000_000);
        assert_eq!(part.window.window.coverage.frames, 5);
    }
}
