//! Intervals of one second out of a recorded capture, the way the program makes them.
#![allow(dead_code)]

use std::io::{self, Read};
use std::sync::Arc;

use sonar_core::time::NS_PER_S;
use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, Operation, Timestamp, Window, WindowClock};
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::{Decoder, Settings, Shared, Sink};

struct Open(Window);

impl Sink for Open {
    fn operation(&mut self, op: &Operation<'_>) {
        self.0.record(op);
    }
}

/// Reads a gzipped capture to its end.
pub fn windows(gzipped: &[u8]) -> io::Result<Vec<Window>> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(gzipped).read_to_end(&mut bytes)?;
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let (mut parser, mut clock, mut rest) = (CaptureParser::new(), WindowClock::new(NS_PER_S), &bytes[..]);
    let (mut windows, mut counted, mut last) = (Vec::new(), Coverage::default(), Timestamp::default());
    let mut open: Option<Open> = None;
    let mut close = |mut window: Window, decoder: &Decoder, in_flight, end: Timestamp| {
        window.end = end;
        window.in_flight = in_flight;
        window.coverage.add(&decoder.coverage().since(&counted));
        counted = decoder.coverage();
        windows.push(window);
    };
    loop {
        match parser.next(rest).map_err(io::Error::other)? {
            Step::Packet { packet, consumed } => {
                let ended = clock.advance(packet.time);
                if let (Some((_, end)), Some(Open(window))) = (ended, open.take_if(|_| ended.is_some())) {
                    close(window, &decoder, decoder.in_flight(end), end);
                }
                let start = clock.start().unwrap_or(packet.time);
                let sink = open.get_or_insert_with(|| Open(Window::new(start, WindowSettings::default())));
                decoder.packet(&packet, sink);
                last = packet.time;
                rest = &rest[consumed..];
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => rest = &rest[consumed..],
            Step::Need { .. } => break,
        }
    }
    if let Some(mut sink) = open {
        let in_flight = decoder.finish(last, &mut sink);
        close(sink.0, &decoder, in_flight, last);
    }
    Ok(windows)
}
