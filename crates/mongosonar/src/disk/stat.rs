//! `mongosonar disk stat`: the devices under a folder, as `iostat -x` shows them.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::disk::DiskRates;
use sonar_sys::Host;
use sonar_sys::host::devices::{Device, DeviceCounters, DeviceKind};
use sonar_sys::host::mounts;
use sonar_view::disk::run::DeviceRates;
use sonar_view::disk::stat::DeviceInterval;
use sonar_view::kit::json::line;
use sonar_view::kit::{Fitting, escape};
use sonar_view::series::{DISKS, SeriesChoice};

use super::args::StatArgs;
use super::place::folder;
use crate::args::when;
use crate::exit::OK;
use crate::screen;
use crate::stop;

/// Runs the command; returns the exit code.
pub fn run(args: &StatArgs) -> Result<u8> {
    if args.past.is_asked() {
        let name = |device: &str| device.strip_prefix("/dev/").unwrap_or(device).to_owned();
        let asked: Vec<String> = args.devices.iter().map(|device| name(device)).collect();
        let wants = |name: &str| asked.is_empty() || asked.iter().any(|one| one == name);
        let choice = SeriesChoice { columns: &DISKS, wants: &wants };
        return args.past.show(&choice, None, args.json);
    }
    let wanted = WantedDevices::new(args)?;
    let stop = stop::flag()?;
    let mut out = io::stdout().lock();
    if !args.json {
        for line in &wanted.chain {
            writeln!(out, "{}", escape(line))?;
        }
    }
    let read = || Host::live().disk_counters().context("cannot read /proc/diskstats");
    let (mut before, mut at) = (read()?, Instant::now());
    let mut next = at;
    let end = args.duration.and_then(|duration| at.checked_add(duration));
    let mut shown = 0u64;
    while args.count.is_none_or(|count| shown < count) && end.is_none_or(|end| next < end) {
        next += args.interval;
        next = end.map_or(next, |end| next.min(end));
        while !stop.load(Ordering::Relaxed) {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = read()?;
        let elapsed = at.elapsed();
        at += elapsed;
        let interval = DeviceInterval::new(
            when::now().unix_ns(),
            elapsed.as_secs_f64(),
            wanted.rates(&before, &now, elapsed.as_nanos() as u64),
        );
        if args.json {
            line(&interval, &mut out)?;
        } else {
            interval.text(&mut Fitting::new(&mut out, screen::width()))?;
        }
        out.flush()?;
        // Intervals that passed while nothing ran are part of this one, not followed by empty ones.
        let passed = at.saturating_duration_since(next).as_nanos() / args.interval.as_nanos().max(1);
        next += args.interval.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
        before = now;
        shown += 1;
    }
    Ok(OK)
}

/// Which devices are shown.
struct WantedDevices {
    /// By name, in order; `None`: all whole devices that have done anything.
    names: Option<Vec<String>>,
    /// Whole devices, when all are shown.
    whole: Vec<String>,
    /// How the devices are stacked, in lines.
    chain: Vec<String>,
}

impl WantedDevices {
    fn new(args: &StatArgs) -> Result<Self> {
        let all = Host::live().devices().context("cannot list the devices in /sys/block")?;
        let whole = all.iter().filter(|d| d.partition_of.is_none()).map(|d| d.name.clone()).collect();
        let mut tops: Vec<&Device> = Vec::new();
        let mut chain = Vec::new();
        if let Some(path) = &args.dbpath {
            let real = folder(path)?;
            let table = Host::live().mounts("self").context("cannot read the mounts")?;
            let mount = mounts::of(&table, &real).context("no mount leads to it")?;
            let Some(device) = all.of_mount(mount) else {
                bail!(
                    "{} lies on {} ({}), which has no block device here",
                    real.display(),
                    mount.kind,
                    mount.source
                );
            };
            chain.push(format!("{}: {} at {}", real.display(), mount.kind, mount.point.display()));
            tops.push(device);
        }
        for name in &args.devices {
            let device = all.named(name).with_context(|| {
                let names: Vec<&str> = all.iter().map(|d| d.name.as_str()).collect();
                format!("no device {name:?}; there are: {}", names.join(" "))
            })?;
            tops.push(device);
        }
        if tops.is_empty() {
            return Ok(Self { names: None, whole, chain });
        }
        let mut names: Vec<String> = Vec::new();
        for top in tops {
            for device in std::iter::once(top).chain(all.below(top)) {
                if !names.contains(&device.name) {
                    names.push(device.name.clone());
                    chain.push(format!("  {}", describe(device)));
                }
            }
        }
        Ok(Self { names: Some(names), whole, chain })
    }

    fn rates(&self, before: &[DeviceCounters], now: &[DeviceCounters], elapsed_ns: u64) -> Vec<DeviceRates> {
        let rate = |counted: &DeviceCounters| {
            let earlier = before.iter().find(|earlier| counted.continues(earlier))?;
            let rates = DiskRates::between(&earlier.counters, &counted.counters, elapsed_ns)?;
            Some(DeviceRates::new(&counted.name, &rates))
        };
        match &self.names {
            Some(names) => {
                names.iter().filter_map(|name| rate(now.iter().find(|c| c.name == *name)?)).collect()
            }
            None => now
                .iter()
                .filter(|c| c.counters.reads + c.counters.writes > 0 && self.whole.contains(&c.name))
                .filter_map(rate)
                .collect(),
        }
    }
}

/// A line that describes a device.
fn describe(device: &Device) -> String {
    let made_of = || device.members.join(", ");
    let what = match &device.kind {
        DeviceKind::Disk { model: Some(model) } => model.clone(),
        DeviceKind::Disk { model: None } => "disk".to_owned(),
        DeviceKind::Partition => {
            format!("partition of {}", device.partition_of.as_deref().unwrap_or("an unknown disk"))
        }
        DeviceKind::Mapper { name, uuid } => {
            let kind = uuid.split('-').next().filter(|kind| !kind.is_empty()).unwrap_or("mapped");
            format!("{kind} {name}, on {}", made_of())
        }
        DeviceKind::Md { level, chunk_bytes: 0, .. } => format!("{level} of {}", made_of()),
        DeviceKind::Md { level, chunk_bytes, .. } => {
            format!("{level}, chunks of {} KiB, of {}", chunk_bytes >> 10, made_of())
        }
        DeviceKind::Loop { backing } => format!("the file {}", backing.as_deref().unwrap_or("(none)")),
    };
    format!("{}: {what}", device.name)
}
