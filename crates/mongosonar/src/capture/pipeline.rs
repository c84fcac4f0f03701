//! From packets to windows of a live view.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, InFlightOperations, Operation, Plaintext, RunningOperations, Timestamp, Window};
use sonar_decode::{Decoder, Sink};

use super::changes::CaptureChange;
use super::joiner::ThreadWindow;
use crate::capture::args::EncryptedArg;
use crate::capture::write::SharedRecorder;

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
    /// The decoder reads connections that are encrypted.
    pub tls: bool,
    pub sink: LiveSink,
    pub keep: Option<SharedRecorder>,
    counted: Coverage,
    pub kernel: Coverage,
    interval_ns: u64,
    /// End of the open interval. The interval ends with the first later packet, or when no earlier one can come any
    /// more.
    pub boundary: Timestamp,
    /// When the thread last looked at the clock: until then it has captured, by the clock as it was. `None` where the
    /// only clock is that of the packets.
    pub seen: Option<Timestamp>,
    settings: WindowSettings,
    to: SyncSender<ThreadWindow>,
    /// The number of the thread, from 0.
    pub thread: usize,
    /// The receiver of the windows has gone.
    pub orphaned: bool,
}

/// Which windows a pipeline makes.
#[derive(Copy, Clone, Debug)]
pub struct WindowLayout {
    /// When the first one begins.
    pub start: Timestamp,
    /// The length of each one that begins and ends with its interval; not zero.
    pub interval: Duration,
    pub settings: WindowSettings,
}

/// Records operations in the open window, and writes them if that was asked for.
pub struct LiveSink {
    pub window: Window,
    pub each: Option<Arc<Mutex<dyn OperationListener>>>,
    pub broken: Arc<AtomicBool>,
    /// Whether encrypted or plain operations are left out; `None` takes both.
    pub encrypted: Option<EncryptedArg>,
}

impl LiveSink {
    /// Whether operations on connections that are encrypted, or are not, are taken.
    fn wants(&self, tls: bool) -> bool {
        self.encrypted.is_none_or(|which| which.wants(tls))
    }

    /// Hands what was written on.
    pub fn flush(&self) {
        let flushed = |output: &Arc<Mutex<dyn OperationListener>>| {
            output.lock().unwrap_or_else(PoisonError::into_inner).flush()
        };
        if self.each.as_ref().is_some_and(|output| flushed(output).is_err()) {
            self.broken.store(true, Ordering::Relaxed);
        }
    }
}

impl Sink for LiveSink {
    fn operation(&mut self, op: &Operation<'_>) {
        if !self.wants(op.tls.is_some()) {
            return;
        }
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
    /// Hands windows of all operations over to `to`, as the first of its threads, by the clock of the packets.
    pub fn new(decoder: Decoder, windows: WindowLayout, to: SyncSender<ThreadWindow>) -> Self {
        let WindowLayout { start, interval, settings } = windows;
        let interval_ns = interval.as_nanos() as u64;
        let first = Window::new(start.floor_to(interval_ns), settings);
        Self {
            decoder,
            tls: false,
            boundary: first.start.plus_ns(interval_ns),
            sink: LiveSink {
                window: Window { start, ..first },
                each: None,
                broken: Arc::default(),
                encrypted: None,
            },
            keep: None,
            counted: Coverage::default(),
            kernel: Coverage::default(),
            interval_ns,
            seen: None,
            settings,
            to,
            thread: 0,
            orphaned: false,
        }
    }

    /// Applies a change, as far as it is not one of rings.
    pub fn follow(&mut self, change: CaptureChange) {
        match change {
            CaptureChange::Ports(listened) => self.decoder.set_ports(listened.ports()),
            CaptureChange::ServerEnded(server) => self.decoder.server_ended(server),
            CaptureChange::ClientsEnded(clients) => self.decoder.clients_ended(clients.iter().cloned()),
            CaptureChange::ListenerGone => self.sink.each = None,
            CaptureChange::Running(question) => question.answer(self.running(question.most())),
            CaptureChange::Ring { .. } | CaptureChange::EncryptedRead => {}
        }
    }

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

    /// Takes a part of a connection that was read inside a process.
    pub fn plaintext(&mut self, plaintext: &Plaintext<'_>) {
        if plaintext.time >= self.boundary {
            self.rotate(plaintext.time);
        }
        self.decoder.plaintext(plaintext, &mut self.sink);
    }

    /// It is `time`, and packets come up to `delay_ns` late: ends the open interval if it is over, or if the clock was set
    /// back. Call it after the packets were read, which may have ended the interval already.
    pub fn look_at_clock(&mut self, time: Timestamp, delay_ns: u64) {
        let until = self.boundary.plus_ns(delay_ns);
        if self.boundary.since(time) > self.interval_ns {
            // The clock was set back.
            self.rotate(time);
        } else if time >= until {
            // Packets of the intervals after that may still come.
            self.rotate(self.boundary.plus_ns(time.since(until)));
        }
        self.seen = Some(time);
    }

    /// Hands the open window over and opens the one in which `time` lies. If that is not the next one, the clock was
    /// set: the open window ends when it was last looked at, and the new one begins at `time`.
    #[cold]
    pub fn rotate(&mut self, time: Timestamp) {
        let end = self.boundary;
        let next = time.floor_to(self.interval_ns);
        self.boundary = next.plus_ns(self.interval_ns);
        self.decoder.tick(end, &mut self.sink);
        let in_flight = self.in_flight(end);
        match self.seen.filter(|_| next != end) {
            None => self.hand_over(end, Some(next), in_flight),
            Some(seen) => {
                self.hand_over(seen.min(end), Some(next), in_flight);
                self.sink.window.start = time;
            }
        }
    }

    /// The wanted operations that are in flight: all of one decoder are encrypted, or none is.
    fn in_flight(&self, now: Timestamp) -> Vec<InFlightOperations> {
        if self.sink.wants(self.tls) { self.decoder.in_flight(now) } else { Vec::new() }
    }

    /// The oldest of the same operations, one by one.
    fn running(&self, most: usize) -> RunningOperations {
        if self.sink.wants(self.tls) { self.decoder.running(most) } else { RunningOperations::default() }
    }

    /// Hands the last window over.
    pub fn finish(&mut self, end: Timestamp) {
        let in_flight = self.decoder.finish(end, &mut self.sink);
        let in_flight = if self.sink.wants(self.tls) { in_flight } else { Vec::new() };
        self.sink.flush();
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
    fn hand_over(&mut self, end: Timestamp, next: Option<Timestamp>, in_flight: Vec<InFlightOperations>) {
        let following = Window::new(next.unwrap_or(end), self.settings);
        let mut window = std::mem::replace(&mut self.sink.window, following);
        window.end = end.max(window.start);
        window.in_flight = in_flight;
        window.limit(window.max_bytes);
        let mut coverage = self.decoder.coverage();
        coverage.add(&self.kernel);
        window.coverage.add(&coverage.since(&self.counted));
        self.counted = coverage;
        if let Some(keep) = &self.keep {
            keep.lock().unwrap_or_else(PoisonError::into_inner).flush();
        }
        let held = self.decoder.memory();
        let (thread, interval) = (self.thread, window.start.floor_to(self.interval_ns));
        self.orphaned |= self.to.send(ThreadWindow { thread, window, interval, next, held }).is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use sonar_core::time::NS_PER_S;
    use sonar_decode::{Settings, Shared};

    use super::*;
    use crate::capture::running::RunningQuestion;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(10_000 + second, 0)
    }

    fn pipeline() -> (Pipeline, Receiver<ThreadWindow>) {
        let (to, windows) = sync_channel(100);
        let decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
        let (start, interval) = (at(0), Duration::from_secs(10));
        let layout = WindowLayout { start, interval, settings: WindowSettings::default() };
        (Pipeline::new(decoder, layout, to), windows)
    }

    #[test]
    fn a_window_in_which_the_clock_was_set_is_as_long_as_the_capture_in_it() {
        let (mut pipeline, windows) = pipeline();
        pipeline.seen = Some(at(9));
        // Looked at a little late.
        pipeline.rotate(at(11));
        pipeline.seen = Some(at(13));
        pipeline.rotate(at(3_604));
        pipeline.seen = Some(at(3_606));
        pipeline.rotate(at(25));
        pipeline.seen = Some(at(29));
        pipeline.rotate(at(30));
        let second = |at_: Timestamp| at_.since(at(0)) / NS_PER_S;
        let spans: Vec<_> = windows
            .try_iter()
            .map(|one| (second(one.interval), second(one.window.start), second(one.window.end)))
            .collect();
        assert_eq!(spans, [(0, 0, 10), (10, 10, 13), (3_600, 3_604, 3_606), (20, 25, 30)]);
    }

    #[test]
    fn who_asks_which_operations_run_gets_an_answer_of_this_thread() {
        let (mut pipeline, _windows) = pipeline();
        let (question, mut answers) = RunningQuestion::new(1, 10);
        pipeline.follow(CaptureChange::Running(question));
        assert!(answers.is_complete(), "it has answered, and has forgotten the question");
        assert!(answers.take().operations.is_empty());
    }

    #[test]
    fn a_clock_that_packets_have_followed_already_ends_no_other_interval() {
        let (mut pipeline, windows) = pipeline();
        pipeline.look_at_clock(at(9), NS_PER_S);
        // A packet after the clock was set forward, then a look at the clock.
        pipeline.rotate(at(3_604));
        pipeline.look_at_clock(at(3_605), NS_PER_S);
        assert_eq!((windows.try_iter().count(), pipeline.boundary), (1, at(3_610)));
        pipeline.look_at_clock(at(3_611), NS_PER_S);
        assert_eq!((windows.try_iter().count(), pipeline.boundary), (1, at(3_620)));
        pipeline.look_at_clock(at(25), NS_PER_S);
        assert_eq!((windows.try_iter().count(), pipeline.boundary), (1, at(30)));
    }
}
