//! The rate of false alarms when the two halves of a steady recording are compared.

use sonar_core::Figures;
use sonar_core::significance::{MIN_EFFECT, dispersion, holm, rate, shift};
use sonar_core::timeline::TimeBucket;
use sonar_core::{ObservedParts, Timestamp};

/// Fixed random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number between 0 and 1, both excluded.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// One half of a recording: each shape's figures, and the time of all.
struct Half {
    shapes: Vec<Figures>,
    observed: ObservedParts,
}

const SECONDS: u64 = 120;

/// Log-normal latencies in whole milliseconds, and independent arrivals at a rate for each shape. About every
/// 20 s a checkpoint makes one second slower. `slower` is a factor for the first shape.
fn half(random: &mut Random, begin: u64, slower: f64) -> Half {
    const RATES: [f64; 8] = [0.02, 0.2, 1.0, 3.0, 8.0, 20.0, 40.0, 60.0];
    let observed =
        ObservedParts::between(Timestamp::from_unix(begin, 0), Timestamp::from_unix(begin + SECONDS, 0));
    let mut half = Half { shapes: vec![Figures::default(); RATES.len()], observed };
    for second in begin..begin + SECONDS {
        let checkpoint = if random.unit() < 0.05 { 1.0 + 2.0 * random.unit() } else { 1.0 };
        for (at, per_second) in RATES.into_iter().enumerate() {
            let mut time = -random.unit().ln() / per_second;
            while time < 1.0 {
                let factor = checkpoint * if at == 5 { slower } else { 1.0 };
                let ms = ((1.0 + at as f64).ln() + 0.3 + 0.8 * random.normal()).exp() * factor;
                let ns = ms as u64 * 1_000_000;
                let end = Timestamp::from_unix(second, (time * 1e9) as u32);
                let bucket = TimeBucket { calls: 1, latency_ns: ns, ..TimeBucket::default() };
                let figures = &mut half.shapes[at];
                figures.calls += 1;
                figures.latency.record(ns);
                figures.timeline_mut().add(end, bucket);
                time -= random.unit().ln() / per_second;
            }
        }
    }
    half
}

/// Whether any change of a rate or a latency is reported.
fn alarms(a: &Half, b: &Half) -> bool {
    let p: Vec<f64> = a
        .shapes
        .iter()
        .zip(&b.shapes)
        .flat_map(|(left, right)| {
            let more =
                dispersion(left.timeline(), &left.latency).max(dispersion(right.timeline(), &right.latency));
            let latency = shift(&left.latency, &right.latency, more);
            let latency_p =
                latency.filter(|shift| shift.effect.abs() >= MIN_EFFECT).map_or(1.0, |shift| shift.p);
            [rate(left, &a.observed).p(rate(right, &b.observed)), latency_p]
        })
        .collect();
    holm(&p).contains(&true)
}

#[test]
fn halves_of_a_steady_recording_give_at_most_five_in_a_hundred_false_alarms() {
    const RUNS: u64 = 200;
    let false_alarms = (0..RUNS)
        .filter(|run| {
            let mut random = Random(*run);
            let (a, b) = (half(&mut random, 1_000, 1.0), half(&mut random, 1_000 + SECONDS, 1.0));
            alarms(&a, &b)
        })
        .count();
    assert!(false_alarms as u64 * 20 <= RUNS, "{false_alarms} of {RUNS}");
}

#[test]
fn a_shape_that_is_50_percent_slower_is_found() {
    const RUNS: u64 = 50;
    let found = (0..RUNS)
        .filter(|run| {
            let mut random = Random(1_000_000 + run);
            let (a, b) = (half(&mut random, 1_000, 1.0), half(&mut random, 1_000 + SECONDS, 1.5));
            alarms(&a, &b)
        })
        .count();
    assert!(found as u64 * 10 >= RUNS * 9, "{found} of {RUNS}");
}
