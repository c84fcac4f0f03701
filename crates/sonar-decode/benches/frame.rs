//! Headers of one frame: ours beside etherparse, on the same mixed frames in the same run.
//!
//! `etherparse` is measured for its slicing alone, and for what a program has to do with it to know as
//! much as our [`Segment`] says; the ratio at the end is to the slicing alone.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use etherparse::{LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use sonar_core::Endpoint;
use sonar_decode::frame::{Segment, TcpFlags, decode};
use sonar_decode::testing::{OwnedPacket, mixed_frames};

const FRAMES: usize = 4_096;

fn main() {
    let frames = mixed_frames(FRAMES);
    for frame in &frames {
        let (ours, theirs) = (decode(&frame.as_packet()), with_etherparse(frame));
        let (ours, theirs) = (ours.expect("decodes"), theirs.expect("decodes"));
        assert_eq!((ours.source, ours.seq, ours.payload), (theirs.source, theirs.seq, theirs.payload));
    }

    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
        .configure_from_args();
    let ours = measure(&mut criterion, "sonar_decode::frame::decode", &frames, |frame| {
        black_box(&decode(&frame.as_packet())).is_ok()
    });
    let sliced = measure(&mut criterion, "etherparse::SlicedPacket::from_ethernet", &frames, |frame| {
        black_box(&SlicedPacket::from_ethernet(&frame.data)).is_ok()
    });
    let lax = measure(&mut criterion, "etherparse::LaxSlicedPacket::from_ethernet", &frames, |frame| {
        black_box(&LaxSlicedPacket::from_ethernet(&frame.data)).is_ok()
    });
    let segment = measure(&mut criterion, "etherparse to a Segment", &frames, |frame| {
        black_box(&with_etherparse(frame)).is_some()
    });

    if let (Some(ours), Some(sliced), Some(lax), Some(segment)) = (ours, sliced, lax, segment) {
        println!("\nns a frame, least of all samples, {FRAMES} mixed frames");
        println!("  ours                         {ours:7.2}");
        println!("  etherparse, slices           {sliced:7.2}");
        println!("  etherparse, lax slices       {lax:7.2}");
        println!("  etherparse, to a Segment     {segment:7.2}");
        println!("ratio: ours takes {:.3} of etherparse's time (target: 0.25 or less)", ours / sliced);
    }
}

/// Nanoseconds a frame in the best sample; `None` when a filter on the command line left it out.
fn measure(
    criterion: &mut Criterion,
    name: &str,
    frames: &[OwnedPacket],
    mut decode: impl FnMut(&OwnedPacket) -> bool,
) -> Option<f64> {
    let best = Cell::new(None);
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(frames.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds {
                for frame in frames {
                    black_box(decode(black_box(frame)));
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

/// What a program that uses etherparse has to do to know as much.
fn with_etherparse(frame: &OwnedPacket) -> Option<Segment<'_>> {
    let packet = SlicedPacket::from_ethernet(&frame.data).ok()?;
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
