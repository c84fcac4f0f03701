//! The rate of false alarms: when the two halves of a steady recording are compared, and some operations with the rest.

use sonar_core::Figures;
use sonar_core::differences::{TheseAndRest, ValueTally, compare};
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

/// Some operations with a value in each of four dimensions, of few or of many values, and whether each is selected: one in
/// fifty by chance, and of the first value of the first dimension as many more as `excess` says.
fn selected(random: &mut Random, excess: f64) -> [ValueTally<u64>; 4] {
    let mut tallies: [ValueTally<u64>; 4] = Default::default();
    for _ in 0..5_000 {
        let unit = random.unit();
        let values = [
            random.next() % 3,
            // Few are frequent, most are rare.
            (40.0 * unit.powi(4)) as u64,
            random.next() % 400,
            u64::from(random.unit() < 0.01),
        ];
        let chance = 0.02 * if values[0] == 0 { excess } else { 1.0 };
        let is_selected = random.unit() < chance;
        let one = TheseAndRest { these: f64::from(is_selected), rest: f64::from(!is_selected) };
        tallies.iter_mut().zip(values).for_each(|(tally, value)| tally.add(&value, one));
    }
    tallies
}

#[test]
fn a_random_part_of_operations_differs_from_the_rest_in_at_most_five_of_a_hundred_cases() {
    const RUNS: u64 = 200;
    let differs = |run: &u64| {
        let found = compare(&selected(&mut Random(*run), 1.0), 8);
        found.iter().any(|dimension| dimension.difference > 0.0)
    };
    let false_alarms = (0..RUNS).filter(differs).count();
    assert!(false_alarms as u64 * 20 <= RUNS, "{false_alarms} of {RUNS}");
}

#[test]
fn a_value_that_is_selected_five_times_as_often_is_found() {
    const RUNS: u64 = 50;
    let found = |run: &u64| {
        let found = compare(&selected(&mut Random(1_000_000 + run), 5.0), 8);
        let [first, rest @ ..] = &found[..] else { return false };
        let value = &first.values[0];
        value.value == Some(0) && value.differs && rest.iter().all(|dimension| dimension.difference == 0.0)
    };
    let found = (0..RUNS).filter(found).count();
    assert!(found as u64 * 10 >= RUNS * 9, "{found} of {RUNS}");
}
