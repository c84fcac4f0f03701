//! Files, disks and space over a span of time: who read and wrote, how busy the disks were, and what grew.
//!
//! The time before, which is as long, is read as a whole and stands beside the figures.

mod disk_tests;
mod files;
mod left_out;
mod places;
mod sizes;

use serde::Serialize;
use sonar_core::history::{HistoryWindow, SeriesSubject, Span};
use ts_rs::TS;

pub use self::disk_tests::{DiskTestJson, DiskTests, KeptDiskTest};
use self::files::FileSums;
pub use self::files::{FileRoleLaneJson, FileUseJson, StorageFileJson};
use self::places::PlaceSums;
pub use self::places::{PlaceFigureJson, PlaceFigures};
use self::sizes::SizeSums;
pub use self::sizes::StoredSizeJson;
use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::{About, Zone, ZoneObject};
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most parts of the axis.
const PARTS: usize = 240;

/// Files, disks and space over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StorageReport {
    /// Version of the schema.
    pub schema: u32,
    /// `storage`.
    #[ts(type = "\"storage\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// When the time before begins, in nanoseconds since 1970: as long as the span, and up to its start; null if nothing is
    /// stored of it.
    pub before_ns: Option<u64>,
    /// Block devices, by name.
    pub devices: Vec<StorageDeviceJson>,
    /// Files, those first that reads and writes took longest.
    pub files: Vec<StorageFileJson>,
    /// The same by what files hold.
    pub roles: Vec<FileRoleLaneJson>,
    /// Mounted file systems, by name.
    pub file_systems: Vec<StorageSpaceJson>,
    /// Collections and indexes, the largest first.
    pub sizes: Vec<StoredSizeJson>,
    /// Devices, file systems, collections and indexes that were left out because there are too many; counted up to 1,000 of
    /// each.
    pub left_out: usize,
    /// Results of `disk bench` that cannot be used, a sentence each.
    pub notes: Vec<String>,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// A block device over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StorageDeviceJson {
    /// Its name, as in `/proc/diskstats`.
    pub name: String,
    /// Its figures, by metric.
    pub figures: PlaceFigures,
    /// What `disk bench` measured on it; null if no result is kept.
    pub test: Option<DiskTestJson>,
}

/// A file system over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StorageSpaceJson {
    /// Where it is mounted.
    pub name: String,
    /// Its figures, by metric.
    pub figures: PlaceFigures,
}

/// Files, disks and space of a span, in at most 240 parts, with the kept results of `disk bench`; times in text are those
/// of a clock in `zone`.
///
/// # Errors
/// The history cannot be read.
pub fn report(
    history: &HistoryView<'_>,
    span: Span,
    tests: &DiskTests,
    zone: &Zone,
) -> Result<StorageReport, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let mut sums = StorageSums::new(TimeAxis::new(span, PARTS, resolution.width_ns()));
    history.visit(span, resolution, &mut |window| sums.add(&window))?;
    let earlier = span.from.minus_ns(span.length_ns());
    let before = history.read(Span { from: earlier, to: span.from })?.filter(HistoryWindow::is_observed);
    let mut about = About::new(None, vec![history.name().to_owned()], Some(span));
    about.host = history.host()?;
    let StorageSums { devices, file_systems, files, sizes } = sums;
    let left_out = devices.left_out() + file_systems.left_out() + sizes.left_out();
    let test_of = |name: &str| tests.newest_of(name, about.host.as_deref());
    let devices = devices.finish(before.as_ref()).into_iter().map(|(name, figures)| StorageDeviceJson {
        test: test_of(&name),
        name,
        figures,
    });
    let devices = devices.collect();
    let (files, roles) = files.finish(before.as_ref());
    let file_systems = file_systems.finish(before.as_ref()).into_iter();
    Ok(StorageReport {
        schema: SCHEMA,
        kind: "storage",
        zone: ZoneObject::new(zone, [span.from, span.to]),
        before_ns: before.map(|_| earlier.unix_ns()),
        devices,
        files,
        roles,
        file_systems: file_systems.map(|(name, figures)| StorageSpaceJson { name, figures }).collect(),
        sizes: sizes.finish(),
        left_out,
        notes: tests.problems.clone(),
        gaps: history.gaps(span)?.iter().map(GapJson::from).collect(),
        about,
    })
}

/// Sums of the windows of a span.
struct StorageSums {
    devices: PlaceSums,
    file_systems: PlaceSums,
    files: FileSums,
    sizes: SizeSums,
}

impl StorageSums {
    fn new(axis: TimeAxis) -> Self {
        Self {
            devices: PlaceSums::new(SeriesSubject::Device, axis),
            file_systems: PlaceSums::new(SeriesSubject::FileSystem, axis),
            files: FileSums::new(axis),
            sizes: SizeSums::default(),
        }
    }

    fn add(&mut self, window: &HistoryWindow) {
        self.devices.add(window);
        self.file_systems.add(window);
        self.files.add(window);
        self.sizes.add(window);
    }
}
