//! How fast a ring takes packets, and what that costs: each second a line with packets, drops, the processor time of
//! this process, and that of all software interrupts of the host.
//!
//! `ring_rate INTERFACE PORT[,PORT…] [SECONDS [RETIRE_MS [BLOCK_KIB [RING_MIB [THREADS]]]]]`; INTERFACE may be `any`.

use std::error::Error;
use std::time::{Duration, Instant};

use sonar_sys::resource::ResourceUsage;
use sonar_sys::{Host, PacketFilter, Ring, RingConfig, Statistics};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, ports, rest @ ..] = arguments.as_slice() else {
        return Err(
            "usage: ring_rate INTERFACE PORT[,PORT…] [SECONDS [RETIRE_MS [BLOCK_KIB [RING_MIB [THREADS]]]]]"
                .into(),
        );
    };
    let number = |index: usize, fallback: u64| -> Result<u64, std::num::ParseIntError> {
        rest.get(index).map_or(Ok(fallback), |text| text.parse())
    };
    let defaults = RingConfig::default();
    let ports = ports.split(',').map(|port| port.parse().map(|port: u16| port..=port));
    let config = RingConfig {
        interfaces: if interface == "any" { Vec::new() } else { vec![interface.clone()] },
        filter: PacketFilter { ports: ports.collect::<Result<_, _>>()?, ..PacketFilter::default() },
        retire: Duration::from_millis(number(1, defaults.retire.as_millis() as u64)?),
        block_bytes: (number(2, defaults.block_bytes as u64 >> 10)? as usize) << 10,
        size_bytes: (number(3, defaults.size_bytes as u64 >> 20)? as usize) << 20,
        ..defaults
    };
    let seconds = number(0, 5)?;
    let rings = Ring::open_group(&config, number(4, 1)? as usize)?;
    let threads: Vec<_> = rings
        .into_iter()
        .map(|mut ring| {
            let (reports, lines) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || -> Result<(), sonar_sys::RingError> {
                for _ in 0..seconds {
                    let (mut packets, mut bytes, mut wakes) = (0, 0, 0u32);
                    let end = Instant::now() + Duration::from_secs(1);
                    while Instant::now() < end {
                        ring.poll(end.saturating_duration_since(Instant::now()))?;
                        wakes += 1;
                        packets += ring.for_each(|packet| bytes += packet.data.len() as u64);
                    }
                    let _ = reports.send((packets, bytes, wakes, ring.statistics()?));
                }
                Ok(())
            });
            (lines, thread)
        })
        .collect();

    println!(
        "{:>10} {:>9} {:>6} {:>9} {:>8} {:>8} {:>9}",
        "packets/s", "MB/s", "wakes", "dropped", "user %", "system %", "softirq %"
    );
    let (mut used, mut softirq) = (ResourceUsage::now()?, Host::live().processors()?.softirq());
    let mut before = Instant::now();
    loop {
        let (mut packets, mut bytes, mut wakes, mut total, mut ended) =
            (0, 0, 0, Statistics::default(), false);
        for (lines, _) in &threads {
            match lines.recv() {
                Ok((p, b, w, statistics)) => {
                    packets += p;
                    bytes += b;
                    wakes += w;
                    total.add(&statistics);
                }
                Err(_) => ended = true,
            }
        }
        if ended {
            break;
        }
        let (now, usage, soft) =
            (Instant::now(), ResourceUsage::now()?, Host::live().processors()?.softirq());
        let elapsed = (now - before).as_secs_f64();
        let percent = |later: Duration, earlier: Duration| {
            100.0 * (later.saturating_sub(earlier)).as_secs_f64() / elapsed
        };
        println!(
            "{:>10.0} {:>9.1} {:>6} {:>9} {:>8.3} {:>8.3} {:>9.1}",
            packets as f64 / elapsed,
            bytes as f64 / elapsed / 1e6,
            wakes,
            total.drops,
            percent(usage.user, used.user),
            percent(usage.system, used.system),
            percent(soft, softirq),
        );
        (used, softirq, before) = (usage, soft, now);
    }
    for (_, thread) in threads {
        thread.join().map_err(|_| "a capture thread panicked")??;
    }
    Ok(())
}
