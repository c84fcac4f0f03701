//! How the reads of files differ between two recordings, beyond chance.
//!
//! Latencies are compared as those of operations are (see [`crate::significance`]), and so are reads per second. Reads of the
//! same moment are not independent, so the slices of each file say how much more than chance its figures vary. The p values
//! of all files are corrected together.

use super::phase::MAX_SLICES;
use super::{Analysis, FilePattern};
use crate::Histogram;
use crate::significance::{MIN_EFFECT, MIN_FACTOR, Rate, Shift, dispersion_of, holm, rate_over, shift};
use crate::timeline::TimeBucket;

/// How the reads of a file changed from one recording, A, to another, B.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReadChange {
    /// A read takes longer in B.
    Slower,
    /// A read takes less time in B.
    Faster,
    /// As fast, but more reads per second in B.
    MoreReads,
    /// As fast, but fewer reads per second in B.
    FewerReads,
    /// Read in B only.
    New,
    /// Read in A only.
    Gone,
    /// No change beyond chance.
    Same,
    /// There are too few reads to tell.
    NotJudged,
}

impl ReadChange {
    /// Whether something changed.
    pub const fn is_change(self) -> bool {
        !matches!(self, Self::Same | Self::NotJudged)
    }

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::MoreReads => "more reads",
            Self::FewerReads => "fewer reads",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Same => "same",
            Self::NotJudged => "not judged",
        }
    }
}

/// The change of each of these files, by its patterns in both recordings.
pub fn read_changes(recordings: [&Analysis; 2], files: &[[Option<&FilePattern>; 2]]) -> Vec<ReadChange> {
    let tests: Vec<ReadTest> = files.iter().map(|sides| ReadTest::new(recordings, *sides)).collect();
    let p = tests.iter().flat_map(|test| [test.rate_p, test.shift.map_or(1.0, |shift| shift.p)]);
    let stands = holm(&p.collect::<Vec<_>>());
    let change = |(test, stands): (&ReadTest, &[bool; 2])| {
        let [by_rate, by_latency] = *stands;
        let shift = test.shift.filter(|shift| by_latency && shift.effect.abs() >= MIN_EFFECT);
        let [a, b] = test.rates.map(|rate| rate.per_second);
        match (test.reads, shift) {
            ([false, true], _) if by_rate => ReadChange::New,
            ([true, false], _) if by_rate => ReadChange::Gone,
            (_, Some(shift)) if shift.effect > 0.0 => ReadChange::Slower,
            (_, Some(_)) => ReadChange::Faster,
            ([true, true], None) if by_rate && b >= MIN_FACTOR * a => ReadChange::MoreReads,
            ([true, true], None) if by_rate && a >= MIN_FACTOR * b => ReadChange::FewerReads,
            _ if test.shift.is_none() => ReadChange::NotJudged,
            _ => ReadChange::Same,
        }
    };
    tests.iter().zip(stands.as_chunks::<2>().0).map(change).collect()
}

/// What the reads of a file in two recordings say.
struct ReadTest {
    /// Which recordings have any.
    reads: [bool; 2],
    /// Reads per second.
    rates: [Rate; 2],
    /// Chance of these rates.
    rate_p: f64,
    /// How the latencies differ; `None` if a recording has too few.
    shift: Option<Shift>,
}

impl ReadTest {
    fn new(recordings: [&Analysis; 2], sides: [Option<&FilePattern>; 2]) -> Self {
        let sides = sides.map(|side| side.filter(|file| file.reads.count > 0));
        let [a, b] = [0, 1].map(|at| rate(recordings[at], sides[at]));
        let rate_p = match sides.map(|side| side.is_some()) {
            [true, true] => a.p(b),
            [true, false] => a.p_of_all(b),
            [false, true] => b.p_of_all(a),
            [false, false] => 1.0,
        };
        let shift = match sides {
            [Some(one), Some(other)] => {
                let [left, right] = [one, other].map(|file| file.reads.latency());
                let more = dispersion(one, &left).max(dispersion(other, &right));
                shift(&left, &right, more)
            }
            _ => None,
        };
        Self { reads: sides.map(|side| side.is_some()), rates: [a, b], rate_p, shift }
    }
}

fn dispersion(file: &FilePattern, latency: &Histogram) -> f64 {
    let part = |slice: &super::TimeSlice| TimeBucket {
        calls: slice.reads,
        latency_ns: slice.latency_ns,
        ..TimeBucket::default()
    };
    dispersion_of(file.slices.iter().map(part), latency)
}

/// How often a file is read, from the first access of the recording to its last.
fn rate(recording: &Analysis, file: Option<&FilePattern>) -> Rate {
    let Some((first, last)) = recording.span() else { return Rate::default() };
    let (length_ns, slice_ns) = (last.since(first), recording.slice_ns());
    let count = usize::try_from(length_ns.div_ceil(slice_ns)).unwrap_or(MAX_SLICES).min(MAX_SLICES);
    let slices = file.map_or(&[][..], |file| &file.slices[..]);
    let reads = |at: usize| slices.get(at).map_or(0, |slice| slice.reads);
    let parts: Vec<(u64, f64)> = (0..count).map(|at| (reads(at), slice_ns as f64 / 1e9)).collect();
    rate_over(file.map_or(0, |file| file.reads.count), length_ns as f64 / 1e9, &parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::disk::SplitMix;
    use crate::files::{AccessKind, IoAccess};

    const MS: u64 = 1_000_000;

    /// A recording of ten seconds: how many reads each file has, and their mean latency in nanoseconds, which varies by
    /// chance.
    fn recording(files: &[(u64, u64)], seed: u64) -> Analysis {
        let mut random = SplitMix::new(seed);
        let mut accesses: Vec<IoAccess> = Vec::new();
        for (&(reads, mean), file) in files.iter().zip(1..) {
            accesses.extend((0..reads).map(|_| IoAccess {
                start: Timestamp::from_unix_ns(1_000_000 * MS + random.below(10_000 * MS)),
                latency_ns: mean / 2 + random.below(mean),
                thread: 1,
                file,
                kind: AccessKind::Read,
                offset: random.below(1 << 30),
                asked: 4_096,
                given: 4_096,
                error: 0,
                device_bytes: None,
            }));
        }
        accesses.sort_by_key(|access| access.start);
        let mut analysis = Analysis::new();
        accesses.iter().for_each(|access| analysis.record(access));
        analysis.finish();
        analysis
    }

    fn changes(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<ReadChange> {
        let numbers = 1..=a.len().max(b.len()) as u32;
        let (a, b) = (recording(a, 1), recording(b, 2));
        let files: Vec<_> = numbers.map(|file| [a.file(file), b.file(file)]).collect();
        read_changes([&a, &b], &files)
    }

    #[test]
    fn a_change_is_what_chance_does_not_explain() {
        use ReadChange::{Faster, FewerReads, Gone, MoreReads, New, NotJudged, Same, Slower};
        let before = [(2_000, 50_000), (2_000, 50_000), (2_000, 50_000), (500, 50_000), (2_000, 50_000)];
        let after = [(2_000, 50_000), (2_000, 155_000), (2_000, 20_000), (2_000, 50_000), (500, 50_000)];
        assert_eq!(changes(&before, &after), [Same, Slower, Faster, MoreReads, FewerReads]);
        let (many, few, none) = ((300, 50_000), (12, 50_000), (0, 50_000));
        let before = [many, none, many, few, none];
        let after = [many, many, none, few, few];
        // Also the last one: it is too rare to be new.
        assert_eq!(changes(&before, &after), [Same, New, Gone, NotJudged, NotJudged]);
        assert_eq!(changes(&[], &[]), []);
    }

    #[test]
    fn two_recordings_of_one_workload_rarely_differ() {
        let files = [(200, 50_000); 10];
        let differing = (0..40).filter(|round| {
            let (a, b) = (recording(&files, 2 * round + 1), recording(&files, 2 * round + 2));
            let pairs: Vec<_> = (1..=10).map(|file| [a.file(file), b.file(file)]).collect();
            read_changes([&a, &b], &pairs).iter().any(|change| change.is_change())
        });
        assert!(differing.count() <= 6, "one in twenty is expected");
    }
}
