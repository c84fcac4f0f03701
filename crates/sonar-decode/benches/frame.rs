//! Headers of one frame: this crate beside etherparse, on the same mixed frames in the same run.
//!
//! `etherparse` is measured for slicing alone, and for what a program must add to know as much as our [`Segment`];
//! the ratio is to slicing alone. There are two sets of frames: one whose headers stay in the cache, which measures
//! the decoders, and one that is larger than the cache and whose order no branch predictor learns, where every
//! decoder waits for memory too.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use etherparse::{LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use sonar_core::{Endpoint, Packet};
use sonar_decode::frame::{Segment, TcpFlags, decode};
use sonar_decode::testing::{OwnedPacket, mixed_frames};

const IN_CACHE: usize = 1_000;
const OUT_OF_CACHE: usize = 20_000;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args();
    let lines = [("in cache", IN_CACHE), ("out of cache", OUT_OF_CACHE)]
        .map(|(set, count)| compare(&mut criterion, set, &mixed_frames(count)));
    lines.into_iter().flatten().for_each(|line| println!("{line}"));
}

/// Measures every decoder on these frames. Returns what to print at the end, unless a filter on the command line
/// excluded some.
fn compare(criterion: &mut Criterion, set: &str, frames: &[OwnedPacket]) -> Option<String> {
    let frames: Vec<Packet<'_>> = frames.iter().map(OwnedPacket::as_packet).collect();
    for frame in &frames {
        let (ours, theirs) = (decode(frame), with_etherparse(frame));
        let (ours, theirs) = (ours.expect("decodes"), theirs.expect("decodes"));
        assert_eq!((ours.source, ours.seq, ours.payload), (theirs.source, theirs.seq, theirs.payload));
    }
    let ours = measure(criterion, set, "decode", &frames, |frame| {
        let _ = black_box(&decode(frame));
    });
    let sliced = measure(criterion, set, "etherparse SlicedPacket", &frames, |frame| {
        let _ = black_box(&SlicedPacket::from_ethernet(frame.data));
    });
    let lax = measure(criterion, set, "etherparse LaxSlicedPacket", &frames, |frame| {
        let _ = black_box(&LaxSlicedPacket::from_ethernet(frame.data));
    });
    let segment = measure(criterion, set, "etherparse to a Segment", &frames, |frame| {
        let _ = black_box(&with_etherparse(frame));
    });
    let (ours, sliced, lax, segment) = (ours?, sliced?, lax?, segment?);
    Some(format!(
        "frame, {set} ({} frames): ours {ours:.2} ns, etherparse {sliced:.2} ns, lax {lax:.2} ns, \
         to a Segment {segment:.2} ns; ratio {:.3} (target: 0.25 in cache)",
        frames.len(),
        ours / sliced
    ))
}

/// Nanoseconds per frame in the best sample; `None` if a filter on the command line excluded it.
fn measure(
    criterion: &mut Criterion,
    set: &str,
    name: &str,
    frames: &[Packet<'_>],
    mut decode: impl FnMut(&Packet<'_>),
) -> Option<f64> {
    let best = Cell::new(None);
    let mut group = criterion.benchmark_group(format!("frame, {set}"));
    group.throughput(Throughput::Elements(frames.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds {
                for frame in frames {
                    decode(black_box(frame));
                }
            }
            let elapsed = start.elapsed();
            let ns = elapsed.as_nanos() as f64 / (rounds as f64 * frames.len() as f64);
            best.set(Some(best.get().map_or(ns, |best: f64| best.min(ns))));
            elapsed
        });
    });
    group.finish();
    best.get()
}

/// What a program that uses etherparse must add to know as much.
fn with_etherparse<'a>(frame: &Packet<'a>) -> Option<Segment<'a>> {
    let packet = SlicedPacket::from_ethernet(frame.data).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return None };
    let (source, destination) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => (
            Endpoint::v4(ip.header().source(), tcp.source_port()),
            Endpoint::v4(ip.header().destination(), tcp.destination_port()),
        ),
        Some(NetSlice::Ipv6(ip)) => (
            Endpoint::v6(ip.header().source(), tcp.source_port()),
            Endpoint::v6(ip.header().destination(), tcp.destination_port()),
        ),
        _ => return None,
    };
    let vlans = packet.vlan_ids().iter().fold(0, |vlans, id| vlans << 12 | u64::from(id.value()));
    Some(Segment {
        time: frame.time,
        place: u64::from(frame.interface) << 32 | vlans,
        source,
        destination,
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        flags: TcpFlags::from_byte(tcp.slice()[13]),
        payload: tcp.payload(),
        missing: 0,
    })
}
