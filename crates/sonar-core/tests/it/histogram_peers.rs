//! Durations fall into the same buckets as in the reference libraries: the OpenTelemetry SDK and Prometheus'
//! native histograms.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream, Temporality,
};
use sonar_core::Histogram;
use sonar_core::histogram::{MAX_INDEX, MIN_INDEX, index_of, upper_bound_ns};

/// A reader that the test shares with the meter provider.
#[derive(Clone, Debug)]
struct Shared(Arc<ManualReader>);

impl MetricReader for Shared {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

/// The counts of the SDK: the zero bucket, and the count of each index.
fn opentelemetry_buckets(durations: &[u64]) -> (u64, BTreeMap<i32, u64>) {
    let reader = Shared(Arc::new(ManualReader::builder().build()));
    let view = |_: &Instrument| {
        let aggregation =
            Aggregation::Base2ExponentialHistogram { max_size: 4_096, max_scale: 5, record_min_max: true };
        Stream::builder().with_aggregation(aggregation).build().ok()
    };
    let provider = SdkMeterProvider::builder().with_reader(reader.clone()).with_view(view).build();
    let histogram = provider.meter("peers").f64_histogram("duration").with_unit("s").build();
    durations.iter().for_each(|&ns| histogram.record(ns as f64 / 1e9, &[]));

    let mut collected = ResourceMetrics::default();
    reader.collect(&mut collected).unwrap();
    let metric = collected.scope_metrics().next().unwrap().metrics().next().unwrap();
    let AggregatedMetrics::F64(MetricData::ExponentialHistogram(data)) = metric.data() else {
        panic!("not an exponential histogram")
    };
    let point = data.data_points().next().unwrap();
    assert_eq!((point.scale(), point.count()), (5, durations.len()));
    let buckets = point.positive_bucket();
    let counts = (buckets.offset()..).zip(buckets.counts()).filter(|(_, count)| *count > 0);
    (point.zero_count(), counts.collect())
}

#[test]
fn buckets_equal_those_of_the_opentelemetry_sdk() {
    let mut durations = vec![0, 0, 1];
    for index in MIN_INDEX..MAX_INDEX {
        let (below, upper) = (upper_bound_ns(index), upper_bound_ns(index + 1));
        if below == upper {
            // Narrower than a nanosecond: no duration falls into it.
            continue;
        }
        // The middle of the bucket above `below`. Also its first and last nanosecond, if the SDK's floating point
        // can distinguish them from the bounds.
        if upper < 1 << 44 {
            durations.extend([below + 1, upper, upper]);
        }
        durations.push(below + (upper - below).div_ceil(2));
    }
    let mut ours = Histogram::new();
    durations.iter().for_each(|&ns| ours.record(ns));
    let (zero, theirs) = opentelemetry_buckets(&durations);
    assert_eq!(zero, ours.zero_count());
    let ours: BTreeMap<i32, u64> = ours.buckets().collect();
    let differing: Vec<_> = ours
        .keys()
        .chain(theirs.keys())
        .filter(|index| ours.get(index) != theirs.get(index))
        .map(|index| (index, ours.get(index), theirs.get(index)))
        .collect();
    assert_eq!(differing, [], "index, ours, theirs");
    assert!(ours.len() > 1_800, "{}", ours.len());
}

/// The table comes from Prometheus' Go library: see lab/histogram. Its indices are one higher, because it
/// numbers a bucket by its upper bound.
#[test]
fn buckets_equal_those_of_prometheus_minus_one() {
    let table = include_str!("../../../../fixtures/histogram/prometheus.csv");
    let mut lines = 0;
    for line in table.lines().skip(1) {
        let (ns, theirs) = line.split_once(',').unwrap();
        let (ns, theirs): (u64, i32) = (ns.parse().unwrap(), theirs.parse().unwrap());
        assert_eq!(index_of(ns).map(|index| index + 1), Some(theirs), "{ns} ns");
        lines += 1;
    }
    assert_eq!(lines, 1_066);
}
