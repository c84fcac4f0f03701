//! The kernel's counters of a block device, and the rates that `iostat -x` derives from them.

/// One line of `/proc/diskstats` (Documentation/admin-guide/iostats.rst). A sector is 512 bytes; times are in
/// milliseconds. Discards exist from 4.18 on and flushes from 5.5 on; `None` on older kernels.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Completed reads.
    pub reads: u64,
    /// Reads that were merged into others before they were issued.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sum of the times of all reads, in milliseconds.
    pub read_ms: u64,
    /// Completed writes.
    pub writes: u64,
    /// Writes that were merged.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Sum of the times of all writes, in milliseconds.
    pub write_ms: u64,
    /// Requests in flight now; the only field that is not a counter.
    pub in_flight: u64,
    /// Time in which at least one request was in flight, in milliseconds.
    pub busy_ms: u64,
    /// Sum of the times of all requests in flight, in milliseconds.
    pub queue_ms: u64,
    /// Discards.
    pub discards: Option<Discards>,
    /// Completed flushes, and the sum of their times in milliseconds.
    pub flushes: Option<(u64, u64)>,
}

/// The counters of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Major and minor number.
    pub number: (u32, u32),
    /// Its name.
    pub name: String,
    /// The kernel's counts.
    pub counters: DiskCounters,
}

impl DeviceCounters {
    /// Whether it is the device of an `earlier` reading. One that was removed and added again under its name and number
    /// starts at 0.
    pub fn continues(&self, earlier: &Self) -> bool {
        let (now, before) = (&self.counters, &earlier.counters);
        self.name == earlier.name
            && self.number == earlier.number
            && now.reads >= before.reads
            && now.writes >= before.writes
    }
}

/// Counters of discards.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    /// Completed discards.
    pub count: u64,
    /// Discards that were merged.
    pub merged: u64,
    /// Sectors discarded.
    pub sectors: u64,
    /// Sum of their times, in milliseconds.
    pub ms: u64,
}

impl DiskCounters {
    /// Parses one line of `/proc/diskstats`: major and minor number, name, counters. `None` for any other line;
    /// additional fields at the end are ignored.
    pub fn parse(line: &str) -> Option<((u32, u32), &str, Self)> {
        let mut words = line.split_ascii_whitespace();
        let number = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?;
        let mut figures = [None; 17];
        for (figure, word) in figures.iter_mut().zip(words) {
            *figure = Some(word.parse::<u64>().ok()?);
        }
        let [r, rm, rs, rt, w, wm, ws, wt, fly, busy, queue, rest @ ..] = figures;
        let discards = match rest {
            [Some(count), Some(merged), Some(sectors), Some(ms), ..] => {
                Some(Discards { count, merged, sectors, ms })
            }
            _ => None,
        };
        let counters = Self {
            reads: r?,
            reads_merged: rm?,
            sectors_read: rs?,
            read_ms: rt?,
            writes: w?,
            writes_merged: wm?,
            sectors_written: ws?,
            write_ms: wt?,
            in_flight: fly?,
            busy_ms: busy?,
            queue_ms: queue?,
            discards,
            flushes: rest[4].zip(rest[5]),
        };
        Some((number, name, counters))
    }
}

/// The increase of a counter. Counters of sectors and requests have 64 bits (32 on a 32-bit kernel). Those of
/// milliseconds have 32 bits and wrap after 49.7 days of busy time.
const fn grown(now: u64, before: u64) -> u64 {
    if now >= before {
        now - before
    } else if before <= u32::MAX as u64 {
        (now as u32).wrapping_sub(before as u32) as u64
    } else {
        0
    }
}

/// The columns of one kind of request in `iostat -x`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct KindRates {
    /// Requests per second, as the device got them (`r/s`).
    pub per_second: f64,
    /// Kibibytes per second (`rkB/s`).
    pub kib_per_second: f64,
    /// Requests merged per second (`rrqm/s`).
    pub merged_per_second: f64,
    /// Share of requests that were merged, in per cent (`%rrqm`).
    pub merged_percent: f64,
    /// Mean milliseconds from queueing to completion (`r_await`); 0 if there were no requests.
    pub await_ms: f64,
    /// Mean request size in kibibytes (`rareq-sz`).
    pub request_kib: f64,
}

/// The columns of a device in `iostat -x`: rates between two readings of its counters.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct DiskRates {
    /// Reads.
    pub reads: KindRates,
    /// Writes.
    pub writes: KindRates,
    /// Discards, if the kernel counts them.
    pub discards: Option<KindRates>,
    /// Flushes per second (`f/s`) and mean milliseconds of a flush (`f_await`), if the kernel counts them.
    pub flushes: Option<(f64, f64)>,
    /// Mean number of requests in flight (`aqu-sz`).
    pub queue: f64,
    /// Share of the time in which at least one request was in flight, in per cent (`%util`); at most what the requests
    /// allow ([`possible_busy_ms`]), so it can be below that of `iostat`.
    pub util_percent: f64,
    /// Reads and writes completed between the readings.
    pub counted: (u64, u64),
}

/// Of the milliseconds in which a device seems to have had something to do, those that its requests allow.
///
/// From 5.0 on the kernel counts a whole clock tick as busy if it sees a request start or end in it, so that a fast
/// device with few requests looks busy (`update_io_ticks` in block/blk-core.c). `queue_ms` is the sum of the times of
/// the requests that ended; each of those `in_flight` may have been there all the time. A device without that sum
/// (`None`) is taken at its word.
pub fn possible_busy_ms(busy_ms: f64, queue_ms: Option<f64>, in_flight: f64, elapsed_ms: f64) -> f64 {
    let most = queue_ms.map_or(f64::INFINITY, |queue_ms| queue_ms + in_flight * elapsed_ms);
    busy_ms.min(most).min(elapsed_ms)
}

struct RequestKind {
    count: u64,
    merged: u64,
    sectors: u64,
    ms: u64,
}

impl RequestKind {
    fn rates(&self, seconds: f64) -> KindRates {
        let each = |sum: f64| if self.count == 0 { 0.0 } else { sum / self.count as f64 };
        let all = self.count + self.merged;
        KindRates {
            per_second: self.count as f64 / seconds,
            kib_per_second: self.sectors as f64 / 2.0 / seconds,
            merged_per_second: self.merged as f64 / seconds,
            merged_percent: if all == 0 { 0.0 } else { 100.0 * self.merged as f64 / all as f64 },
            await_ms: each(self.ms as f64),
            request_kib: each(self.sectors as f64 / 2.0),
        }
    }
}

impl DiskRates {
    /// Rates between two readings, `elapsed_ns` nanoseconds apart; `None` if that is 0.
    pub fn between(before: &DiskCounters, now: &DiskCounters, elapsed_ns: u64) -> Option<Self> {
        if elapsed_ns == 0 {
            return None;
        }
        let seconds = elapsed_ns as f64 / 1e9;
        let reads = RequestKind {
            count: grown(now.reads, before.reads),
            merged: grown(now.reads_merged, before.reads_merged),
            sectors: grown(now.sectors_read, before.sectors_read),
            ms: grown(now.read_ms, before.read_ms),
        };
        let writes = RequestKind {
            count: grown(now.writes, before.writes),
            merged: grown(now.writes_merged, before.writes_merged),
            sectors: grown(now.sectors_written, before.sectors_written),
            ms: grown(now.write_ms, before.write_ms),
        };
        let discards = now.discards.zip(before.discards).map(|(now, before)| RequestKind {
            count: grown(now.count, before.count),
            merged: grown(now.merged, before.merged),
            sectors: grown(now.sectors, before.sectors),
            ms: grown(now.ms, before.ms),
        });
        let elapsed_ms = seconds * 1e3;
        let queue_ms = grown(now.queue_ms, before.queue_ms) as f64;
        // A device that never counted these milliseconds does not count them.
        let known_queue_ms = (now.queue_ms > 0).then_some(queue_ms);
        let busy_ms = grown(now.busy_ms, before.busy_ms) as f64;
        let busy_ms = possible_busy_ms(busy_ms, known_queue_ms, now.in_flight as f64, elapsed_ms);
        let flushes = now.flushes.zip(before.flushes).map(|(now, before)| {
            let (count, ms) = (grown(now.0, before.0), grown(now.1, before.1));
            (count as f64 / seconds, if count == 0 { 0.0 } else { ms as f64 / count as f64 })
        });
        Some(Self {
            reads: reads.rates(seconds),
            writes: writes.rates(seconds),
            discards: discards.map(|kind| kind.rates(seconds)),
            flushes,
            queue: queue_ms / elapsed_ms,
            util_percent: 100.0 * busy_ms / elapsed_ms,
            counted: (reads.count, writes.count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> DiskCounters {
        DiskCounters {
            reads: 1_000,
            reads_merged: 50,
            sectors_read: 80_000,
            read_ms: 4_000,
            writes: 10,
            sectors_written: 160,
            write_ms: 40,
            busy_ms: 1_900,
            queue_ms: 4_040,
            discards: Some(Discards::default()),
            flushes: Some((4, 10)),
            ..Default::default()
        }
    }

    #[test]
    fn the_columns_equal_those_of_iostat() {
        let rates = DiskRates::between(
            &DiskCounters {
                discards: Some(Discards::default()),
                flushes: Some((0, 0)),
                ..Default::default()
            },
            &counters(),
            2_000_000_000,
        )
        .unwrap();
        assert_eq!(rates.reads.per_second, 500.0);
        assert_eq!(rates.reads.kib_per_second, 20_000.0);
        assert_eq!(rates.reads.merged_per_second, 25.0);
        assert!((rates.reads.merged_percent - 4.762).abs() < 0.001);
        assert_eq!(rates.reads.await_ms, 4.0);
        assert_eq!(rates.reads.request_kib, 40.0);
        assert_eq!((rates.writes.per_second, rates.writes.await_ms), (5.0, 4.0));
        assert_eq!(rates.flushes, Some((2.0, 2.5)));
        assert_eq!(rates.queue, 2.02);
        assert_eq!(rates.util_percent, 95.0);
        assert_eq!(rates.discards, Some(KindRates::default()));
    }

    #[test]
    fn a_device_is_not_busier_than_its_requests_allow() {
        // 1,000 reads of 20 us in a second keep a device busy for 20 ms. The kernel has seen one in every other tick.
        let reading = |in_flight, queue_ms| DiskCounters {
            reads: 1_000,
            read_ms: 20,
            busy_ms: 500,
            queue_ms,
            in_flight,
            ..Default::default()
        };
        let util = |now: DiskCounters| {
            DiskRates::between(&DiskCounters::default(), &now, 1_000_000_000).unwrap().util_percent
        };
        assert_eq!(util(reading(0, 20)), 2.0);
        // A request that has not ended is in no sum, so a device that hangs stays busy.
        assert_eq!(util(reading(1, 20)), 50.0);
        assert_eq!(util(DiskCounters { busy_ms: 1_004, ..reading(1, 20) }), 100.0);
        // Many requests at once.
        assert_eq!(util(reading(0, 8_000)), 50.0);
        assert_eq!(util(reading(0, 0)), 50.0, "their sum is not counted");
    }

    #[test]
    fn a_line_of_diskstats_is_read_as_the_kernel_documents_it() {
        let line = " 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17";
        let (number, name, read) = DiskCounters::parse(line).unwrap();
        assert_eq!((number, name), ((254, 0), "vda"));
        assert_eq!((read.reads, read.sectors_read, read.read_ms, read.writes), (1, 3, 4, 5));
        assert_eq!((read.write_ms, read.in_flight, read.busy_ms, read.queue_ms), (8, 9, 10, 11));
        assert_eq!(read.discards, Some(Discards { count: 12, merged: 13, sectors: 14, ms: 15 }));
        assert_eq!(read.flushes, Some((16, 17)));
        // Kernels before 4.18 end after eleven figures.
        let old = DiskCounters::parse("8 1 sda1 1 2 3 4 5 6 7 8 9 10 11").unwrap().2;
        assert_eq!((old.discards, old.flushes, old.queue_ms), (None, None, 11));
        for bad in [
            "",
            "8 0 sda",
            "8 0 sda 1 2 3 4",
            "x 0 sda 1 2 3 4 5 6 7 8 9 10 11",
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 -1",
        ] {
            assert_eq!(DiskCounters::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn millisecond_counters_wrap_after_32_bits() {
        let before = DiskCounters { read_ms: u64::from(u32::MAX) - 9, reads: 5, ..Default::default() };
        let now = DiskCounters { read_ms: 20, reads: 15, ..Default::default() };
        let rates = DiskRates::between(&before, &now, 1_000_000_000).unwrap();
        assert_eq!(rates.reads.await_ms, 3.0);
        let gone = DiskCounters { reads: u64::MAX, ..Default::default() };
        assert_eq!(DiskRates::between(&gone, &now, 1).unwrap().reads.per_second, 0.0);
        assert!(DiskRates::between(&before, &now, 0).is_none());
    }

    #[test]
    fn a_device_that_was_added_again_does_not_continue() {
        let device = |name: &str, reads, writes| DeviceCounters {
            number: (8, 0),
            name: name.to_owned(),
            counters: DiskCounters { reads, writes, ..Default::default() },
        };
        let before = device("sda", 1_000, 10);
        assert!(device("sda", 1_000, 10).continues(&before) && device("sda", 1_001, 11).continues(&before));
        assert!(!device("sda", 3, 11).continues(&before) && !device("sda", 1_000, 9).continues(&before));
        assert!(!device("sdb", 1_000, 10).continues(&before));
        assert!(!DeviceCounters { number: (8, 16), ..device("sda", 1_000, 10) }.continues(&before));
    }

    #[test]
    fn what_the_kernel_does_not_count_is_unknown() {
        let rates = DiskRates::between(&DiskCounters::default(), &counters(), 1).unwrap();
        assert_eq!((rates.discards, rates.flushes), (None, None));
    }
}
