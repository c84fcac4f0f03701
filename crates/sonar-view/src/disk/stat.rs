//! The columns of `iostat -x`, for an interval.

use std::io::{self, Write};

use serde::Serialize;

use super::run::{DeviceRates, SCHEMA};
use crate::kit::{Fitting, Heading, Ratio, TextTable, or_unknown};

/// Rates of devices over one interval.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInterval {
    /// Version of the schema of this document.
    pub schema: u32,
    /// What this document is.
    pub kind: &'static str,
    /// End of the interval, nanoseconds since 1970.
    pub end_ns: u64,
    /// Its length, seconds.
    pub seconds: f64,
    /// The devices, in the order in which they were asked for.
    pub devices: Vec<DeviceRates>,
}

impl DeviceInterval {
    /// Of an interval of `seconds` that ended at `end_ns`.
    pub const fn new(end_ns: u64, seconds: f64, devices: Vec<DeviceRates>) -> Self {
        Self { schema: SCHEMA, kind: "disk_stat", end_ns, seconds, devices }
    }

    /// As a table with `iostat`'s columns in `iostat`'s order: merged requests and sizes give way first. Columns of
    /// discards and flushes are left out where the kernel counts none for any of the devices.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let mut table = TextTable::new(&COLUMNS);
        for d in &self.devices {
            let some = |figures: [f64; 6]| figures.map(Some);
            let figures = some([d.r, d.rkb, d.rrqm, d.rrqm_percent, d.r_await, d.rareq])
                .into_iter()
                .chain(some([d.w, d.wkb, d.wrqm, d.wrqm_percent, d.w_await, d.wareq]))
                .chain([d.d, d.dkb, d.drqm, d.drqm_percent, d.d_await, d.dareq])
                .chain([d.f, d.f_await, Some(d.aqu), Some(d.util)])
                .map(|figure| or_unknown(figure.map(Ratio)));
            table.row(std::iter::once(d.device.clone()).chain(figures));
        }
        let discards = self.devices.iter().any(|d| d.d.is_some());
        let flushes = self.devices.iter().any(|d| d.f.is_some());
        table.keep(|title| match title {
            "d/s" | "dkB/s" | "drqm/s" | "%drqm" | "d_await" | "dareq-sz" => discards,
            "f/s" | "f_await" => flushes,
            _ => true,
        });
        let laid = table.lay(out.width());
        std::iter::once(&laid.head).chain(&laid.rows).try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        out.flush()
    }
}

/// Wide enough for most figures, so that columns stay in place from interval to interval.
const fn figure(title: &'static str, rank: u8) -> Heading {
    Heading::figure(title, rank).wide(9)
}

/// The columns of `iostat -x`.
const COLUMNS: [Heading; 23] = [
    Heading::whole("Device", 0),
    figure("r/s", 0),
    figure("rkB/s", 2),
    figure("rrqm/s", 12),
    figure("%rrqm", 11),
    figure("r_await", 0),
    figure("rareq-sz", 6),
    figure("w/s", 0),
    figure("wkB/s", 1),
    figure("wrqm/s", 10),
    figure("%wrqm", 9),
    figure("w_await", 0),
    figure("wareq-sz", 5),
    figure("d/s", 7),
    figure("dkB/s", 13),
    figure("drqm/s", 16),
    figure("%drqm", 15),
    figure("d_await", 8),
    figure("dareq-sz", 14),
    figure("f/s", 4),
    figure("f_await", 3),
    figure("aqu-sz", 0),
    figure("%util", 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_as_in_iostat() {
        let device =
            DeviceRates { device: "vda\u{1b}".into(), r: 5_812.0, f: Some(1.0), ..DeviceRates::default() };
        let mut out = Vec::new();
        DeviceInterval::new(0, 1.0, vec![device]).text(&mut Fitting::new(&mut out, None)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let head: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(head[..3], ["Device", "r/s", "rkB/s"]);
        assert_eq!(head[13..], ["f/s", "f_await", "aqu-sz", "%util"]);
        assert!(text.contains("vda\\u{1b}") && text.contains("5812.00") && !text.contains("dkB/s"));
    }
}
