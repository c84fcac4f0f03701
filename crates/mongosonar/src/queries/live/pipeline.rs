//! From packets to windows of a live view.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, Operation, Timestamp, Window};
use sonar_decode::{Decoder, Sink};

use super::joiner::ThreadWindow;
use crate::queries::write::PacketRecorder;

/// Receives each operation as it ends.
pub trait OperationListener: Send {
    /// An operation has ended.
    ///
    /// # Errors
    /// It cannot be taken, and the capture should end.
    fn operation(&mut self, op: &Operation<'_>) -> io::Result<()>;

    /// The operations of a batch of packets were passed on.
    ///
    /// # Errors
    /// As [`OperationListener::operation`].
    fn flush(&mut self) -> io::Result<()>;
}

/// Decodes packets into operations and collects them in windows, which it hands over at the boundaries of intervals.
pub struct Pipeline {
    pub decoder: Decoder,
    pub sink: LiveSink,
    pub keep: Option<Arc<Mutex<PacketRecorder>>>,
    pub counted: Coverage,
    pub kernel: Coverage,
    pub interval_ns: u64,
    /// End of the open interval. The interval ends with the first later packet, or when no earlier one can come any
    /// more.
    pub boundary: Timestamp,
    pub settings: WindowSettings,
    pub to: SyncSender<ThreadWindow>,
    /// The number of the thread, from 0.
    pub thread: usize,
    /// The receiver of the windows has gone.
    pub orphaned: bool,
}

/// Records operations in the open window, and writes them if that was asked for.
pub struct LiveSink {
    pub window: Window,
    pub each: Option<Arc<Mutex<dyn OperationListener>>>,
    pub broken: Arc<AtomicBool>,
}

impl Sink for LiveSink {
    fn operation(&mut self, op: &Operation<'_>) {
        self.window.record(op);
        if let Some(output) = &self.each {
            let written = output.lock().unwrap_or_else(PoisonError::into_inner).operation(op);
            if written.is_err() {
                self.broken.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Pipeline {
    #[inline]
    pub fn packet(&mut self, packet: &sonar_core::Packet<'_>) {
        if packet.time >= self.boundary {
            self.rotate(packet.time);
        }
        if let Some(keep) = &self.keep {
            keep.lock().unwrap_or_else(PoisonError::into_inner).packet(packet);
        }
        self.decoder.packet(packet, &mut self.sink);
    }

    /// Hands the open window over and opens the one in which `time` lies.
    #[cold]
    pub fn rotate(&mut self, time: Timestamp) {
        let end = self.boundary;
        let next = time.floor_to(self.interval_ns);
        self.boundary = next.plus_ns(self.interval_ns);
        self.decoder.tick(end, &mut self.sink);
        let in_flight = self.decoder.in_flight(end);
        self.hand_over(end, Some(next), in_flight);
    }

    /// Hands the last window over.
    pub fn finish(&mut self, end: Timestamp) {
        let in_flight = self.decoder.in_flight(end);
        self.decoder.finish(end, &mut self.sink);
        self.hand_over(end, None, in_flight);
    }

    /// Continues with a new decoder.
    pub fn restart(&mut self, decoder: Decoder, time: Timestamp) {
        self.decoder.finish(time, &mut self.sink);
        self.sink.window.coverage.add(&self.decoder.coverage().since(&self.counted));
        self.counted = Coverage::default();
        self.decoder = decoder;
    }

    /// Hands the open window over, which ends at `end`, and opens the one that begins at `next`, if one does.
    fn hand_over(
        &mut self,
        end: Timestamp,
        next: Option<Timestamp>,
        in_flight: Vec<sonar_core::InFlightOperations>,
    ) {
        let following = Window::new(next.unwrap_or(end), self.settings);
        let mut window = std::mem::replace(&mut self.sink.window, following);
        window.end = end.max(window.start);
        window.in_flight = in_flight;
        let mut coverage = self.decoder.coverage();
        coverage.add(&self.kernel);
        window.coverage.add(&coverage.since(&self.counted));
        self.counted = coverage;
        if let Some(keep) = &self.keep {
            keep.lock().unwrap_or_else(PoisonError::into_inner).flush();
        }
        self.orphaned |= self.to.send(ThreadWindow { thread: self.thread, window, next }).is_err();
    }
}
