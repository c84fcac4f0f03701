//! How many packets a ring loses whose reader stands still, at a low rate: beside `blast INTERFACE 240 …`.
//!
//! `ring_stall INTERFACE PORT STALL_MS [RETIRE_MS [BLOCK_KIB [RING_MIB]]]`; without BLOCK_KIB, blocks are as large as
//! the capture makes them. It reads for a second, stands still, and reads for another second.

use std::error::Error;
use std::time::{Duration, Instant};

use sonar_sys::geometry::block_bytes;
use sonar_sys::{PacketFilter, Ring, RingConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, port, stall, rest @ ..] = arguments.as_slice() else {
        return Err("usage: ring_stall INTERFACE PORT STALL_MS [RETIRE_MS [BLOCK_KIB [RING_MIB]]]".into());
    };
    let number = |index: usize| rest.get(index).map(|text| text.parse::<usize>()).transpose();
    let port: u16 = port.parse()?;
    let retire = Duration::from_millis(number(0)?.unwrap_or(250) as u64);
    let size_bytes = number(2)?.unwrap_or(32) << 20;
    let config = RingConfig {
        interfaces: vec![interface.clone()],
        filter: PacketFilter { ports: vec![port..=port], ..PacketFilter::default() },
        size_bytes,
        block_bytes: number(1)?.map_or_else(|| block_bytes(size_bytes, retire), |kib| kib << 10),
        retire,
        ..RingConfig::default()
    };
    let mut ring = Ring::open(&config)?;
    let mut read = 0;
    let mut read_for_a_second = |ring: &mut Ring| -> Result<(), sonar_sys::RingError> {
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            ring.poll(end.saturating_duration_since(Instant::now()))?;
            read += ring.for_each(|_| ());
        }
        Ok(())
    };
    read_for_a_second(&mut ring)?;
    std::thread::sleep(Duration::from_millis(stall.parse()?));
    read_for_a_second(&mut ring)?;
    read += ring.finish(|_| ())?;
    let (tolerated, statistics) = (ring.tolerated_stall(), ring.statistics()?);
    println!(
        "blocks of {} KiB tolerate {tolerated:?}; stood still for {stall} ms: read {read}, lost {} of {}",
        config.block_bytes >> 10,
        statistics.drops,
        statistics.packets
    );
    Ok(())
}
