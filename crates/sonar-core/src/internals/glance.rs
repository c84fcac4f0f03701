//! The state of a server in a few figures, as `mongostat` shows it beside its operations.

use super::Metric::{Connections, QueuedReaders, QueuedWriters, Resident};
use super::{FIGURES, Figure, Metric, SampleStep, ServerSample};
use crate::Timestamp;

/// A figure of a [`ServerGlance`] that an expert judges, as [`FIGURES`] do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GlanceFigure {
    /// [`ServerGlance::cache_used_percent`].
    CacheUsed,
    /// [`ServerGlance::cache_dirty_percent`].
    CacheDirty,
    /// [`ServerGlance::lag_ms`].
    Lag,
}

impl GlanceFigure {
    /// What it is derived from and judged by.
    fn figure(self) -> Option<&'static Figure> {
        let id = match self {
            Self::CacheUsed => "cache.used",
            Self::CacheDirty => "cache.dirty",
            Self::Lag => "replication.lag",
        };
        FIGURES.iter().find(|figure| figure.id == id)
    }

    /// Whether a value deserves attention.
    pub fn is_notable(self, value: f64) -> bool {
        let limits = self.figure().and_then(|figure| figure.limits);
        limits.is_some_and(|limits| limits.is_passed(limits.amber, value))
    }
}

/// The state of a server at one moment. What it does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerGlance {
    /// When the sample was taken.
    pub at: Timestamp,
    /// Open connections of clients.
    pub connections: Option<u64>,
    /// Operations that wait for a lock or a ticket to read.
    pub queued_reads: Option<u64>,
    /// Operations that wait for a lock or a ticket to write.
    pub queued_writes: Option<u64>,
    /// Of the storage engine's cache, in per cent of its configured size.
    pub cache_used_percent: Option<f64>,
    /// The same of what is not on disk yet.
    pub cache_dirty_percent: Option<f64>,
    /// Memory of the process, in bytes.
    pub resident_bytes: Option<u64>,
    /// How far replication is behind, in milliseconds: see [`ServerSample::replication_lag_ms`].
    pub lag_ms: Option<u64>,
}

impl ServerGlance {
    /// Of a sample.
    pub fn of(sample: &ServerSample) -> Self {
        let count = |metric: Metric| sample.get(metric).and_then(|value| u64::try_from(value).ok());
        let step = SampleStep { before: None, now: sample, seconds: 0.0 };
        let value = |figure: GlanceFigure| figure.figure().and_then(|figure| (figure.value)(&step));
        Self {
            at: Timestamp::from_unix_ms(sample.time_ms()),
            connections: count(Connections),
            queued_reads: count(QueuedReaders),
            queued_writes: count(QueuedWriters),
            cache_used_percent: value(GlanceFigure::CacheUsed),
            cache_dirty_percent: value(GlanceFigure::CacheDirty),
            resident_bytes: count(Resident).map(|mib| mib.saturating_mul(1 << 20)),
            lag_ms: value(GlanceFigure::Lag).map(|ms| ms as u64),
        }
    }

    /// Whether it has no figure at all.
    pub fn is_empty(&self) -> bool {
        *self == Self { at: self.at, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internals::Member;

    #[test]
    fn figures_are_those_of_the_sample_and_what_it_lacks_is_not_known() {
        let mut sample = ServerSample::default();
        let metrics = [
            (Metric::Start, 1_700_000_000_250),
            (Connections, 214),
            (QueuedReaders, 3),
            (QueuedWriters, 0),
            (Metric::CacheBytes, 780),
            (Metric::CacheDirty, 41),
            (Metric::CacheMaximum, 1_000),
            (Resident, 3_277),
        ];
        metrics.iter().for_each(|(metric, value)| sample.set(*metric, Some(*value)));
        let member = |state, is_self, optime_ms| Member { state, healthy: true, is_self, optime_ms };
        sample.members = vec![member(Member::PRIMARY, false, 9_000), member(Member::SECONDARY, true, 7_800)];
        let glance = ServerGlance::of(&sample);
        let expected = ServerGlance {
            at: Timestamp::from_unix(1_700_000_000, 250_000_000),
            connections: Some(214),
            queued_reads: Some(3),
            queued_writes: Some(0),
            cache_used_percent: Some(78.0),
            cache_dirty_percent: glance.cache_dirty_percent,
            resident_bytes: Some(3_277 << 20),
            lag_ms: Some(1_200),
        };
        assert_eq!(glance, expected);
        assert!((glance.cache_dirty_percent.unwrap() - 4.1).abs() < 1e-9);
        let mut hostile = ServerSample::default();
        hostile.set(Connections, Some(-1));
        hostile.set(Resident, Some(i64::MAX));
        hostile.set(Metric::CacheBytes, Some(1));
        hostile.set(Metric::CacheMaximum, Some(0));
        let glance = ServerGlance::of(&hostile);
        assert_eq!((glance.connections, glance.cache_used_percent, glance.lag_ms), (None, None, None));
        assert!(!glance.is_empty() && ServerGlance::of(&ServerSample::default()).is_empty());
    }

    #[test]
    fn values_deserve_attention_from_the_limits_of_their_figures_on() {
        for (figure, fine, notable) in [
            (GlanceFigure::CacheUsed, 80.0, 81.0),
            (GlanceFigure::CacheDirty, 5.0, 6.0),
            (GlanceFigure::Lag, 4_999.0, 5_000.0),
        ] {
            assert!(!figure.is_notable(fine) && figure.is_notable(notable), "{figure:?}");
        }
    }
}
