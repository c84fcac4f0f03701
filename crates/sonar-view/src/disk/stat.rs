//! The columns of `iostat -x`, for an interval.

use std::io::{self, Write};

use serde::Serialize;

use super::run::{DeviceRates, SCHEMA};
use super::text;
use crate::kit::UNKNOWN;

/// Rates of devices over one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
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

impl Interval {
    /// Of an interval of `seconds` that ended at `end_ns`.
    pub const fn new(end_ns: u64, seconds: f64, devices: Vec<DeviceRates>) -> Self {
        Self { schema: SCHEMA, kind: "disk_stat", end_ns, seconds, devices }
    }

    /// As one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: impl io::Write) -> io::Result<()> {
        crate::kit::json::line(self, out)
    }

    /// As a table within `columns`, with `iostat`'s columns in `iostat`'s order: merged requests and sizes give way
    /// first. Where the kernel does not count discards or
    /// flushes, for none of the devices, their columns are left out.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn table(&self, columns: usize, out: &mut impl Write) -> io::Result<()> {
        let discards = self.devices.iter().any(|d| d.d.is_some());
        let flushes = self.devices.iter().any(|d| d.f.is_some());
        let mut head = vec!["Device"];
        head.extend(["r/s", "rkB/s", "rrqm/s", "%rrqm", "r_await", "rareq-sz"]);
        head.extend(["w/s", "wkB/s", "wrqm/s", "%wrqm", "w_await", "wareq-sz"]);
        if discards {
            head.extend(["d/s", "dkB/s", "drqm/s", "%drqm", "d_await", "dareq-sz"]);
        }
        if flushes {
            head.extend(["f/s", "f_await"]);
        }
        head.extend(["aqu-sz", "%util"]);
        // Wide enough for most figures, so that columns stay in place from interval to interval.
        let two = |value: f64| format!("{value:8.2}");
        let perhaps = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), two);
        let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for d in &self.devices {
            let mut row = vec![crate::kit::escape(&d.device).into_owned()];
            row.extend([d.r, d.rkb, d.rrqm, d.rrqm_percent, d.r_await, d.rareq].map(two));
            row.extend([d.w, d.wkb, d.wrqm, d.wrqm_percent, d.w_await, d.wareq].map(two));
            if discards {
                row.extend([d.d, d.dkb, d.drqm, d.drqm_percent, d.d_await, d.dareq].map(perhaps));
            }
            if flushes {
                row.extend([d.f, d.f_await].map(perhaps));
            }
            row.extend([d.aqu, d.util].map(two));
            rows.push(row);
        }
        let give_way = [
            "drqm/s", "%drqm", "dareq-sz", "dkB/s", "rrqm/s", "%rrqm", "wrqm/s", "%wrqm", "d_await", "d/s",
            "rareq-sz", "wareq-sz", "f/s", "f_await", "rkB/s", "wkB/s",
        ];
        text::fitting_grid(&rows, (1, &give_way), columns, out)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_as_in_iostat() {
        let device =
            DeviceRates { device: "vda\u{1b}".into(), r: 5_812.0, f: Some(1.0), ..DeviceRates::default() };
        let mut out = Vec::new();
        Interval::new(0, 1.0, vec![device]).table(usize::MAX / 2, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let head: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(head[..3], ["Device", "r/s", "rkB/s"]);
        assert_eq!(head[13..], ["f/s", "f_await", "aqu-sz", "%util"]);
        assert!(text.contains("vda\\u{1b}") && text.contains("5812.00") && !text.contains("dkB/s"));
    }
}
