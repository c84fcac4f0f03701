//! Two digests beside each other: what is told of a steady recording cut in half, and of one that got heavier.

use crate::synthetic::{app, operation, shape};
use sonar_core::history::Span;
use sonar_core::significance::MIN_EFFECT;
use sonar_core::{Digest, Execution, Operation, Record, Source, Timestamp};
use sonar_view::compare::{Change, ComparedSide, ComparedSources, DigestComparison, NotJudged};
use sonar_view::kit::Zone;

/// Fixed random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const SECONDS: u64 = 90;

/// Six shapes that come by chance, take a log-normal time and examine a log-normal number of documents for
/// what they return; in some seconds all is slower. `heavier` is a factor for what one of them examines.
fn half(random: &mut Random, begin: u64, heavier: f64) -> Digest {
    const RATES: [f64; 6] = [0.03, 0.5, 2.0, 5.0, 10.0, 20.0];
    let app = app("api", "rust", "3");
    let shapes: Vec<_> =
        (0..RATES.len()).map(|at| shape(at as u64 + 1, "find", "shop.orders", "{}", "{}")).collect();
    let mut digest = Digest::default();
    for second in begin..begin + SECONDS {
        let checkpoint = if random.unit() < 0.05 { 2.0 } else { 1.0 };
        for (at, per_second) in RATES.into_iter().enumerate() {
            let mut time = -random.unit().ln() / per_second;
            while time < 1.0 {
                let ms = ((1.0 + at as f64).ln() + 0.3 + 0.8 * random.normal()).exp() * checkpoint;
                let returned = 1 + (random.unit() * 20.0) as u64;
                let spread = (0.6 * random.normal()).exp() * if at == 4 { heavier } else { 1.0 };
                let op = Operation {
                    latency_ns: Some(ms as u64 * 1_000_000),
                    docs_returned: Some(returned),
                    ..operation(&shapes[at], &app, Timestamp::from_unix(second, (time * 1e9) as u32))
                };
                let docs = Some((returned as f64 * 10.0 * spread) as u64);
                let execution = Execution { docs_examined: docs, ..Execution::default() };
                digest.record(&Record::server(Source::Log, &op, &execution));
                time -= random.unit().ln() / per_second;
            }
        }
    }
    digest
}

fn verdicts(seed: u64, heavier: f64) -> Vec<(u64, Change)> {
    let mut random = Random(seed);
    let (a, b) = (half(&mut random, 1_000, 1.0), half(&mut random, 1_000 + SECONDS, heavier));
    let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
    let of = |pair: &sonar_view::compare::RowPair<'_>| {
        let sonar_core::Subject::Shape { shape, .. } = &pair.b.or(pair.a).unwrap().subject else {
            panic!("a row that is no shape")
        };
        (shape.id.0, pair.verdict)
    };
    comparison
        .pairs
        .iter()
        .map(of)
        .filter(|(_, verdict)| !matches!(verdict, Change::Same | Change::NotJudged))
        .collect()
}

/// Every mark counts: new, gone, slower, quicker, heavier, oftener, rarer.
#[test]
fn halves_of_a_steady_recording_give_at_most_five_in_a_hundred_false_alarms() {
    const RUNS: u64 = 200;
    let alarms: Vec<_> = (0..RUNS).map(|seed| verdicts(seed, 1.0)).filter(|all| !all.is_empty()).collect();
    assert!(alarms.len() as u64 * 20 <= RUNS, "{} of {RUNS}: {alarms:?}", alarms.len());
}

#[test]
fn what_examines_half_as_much_again_is_heavier_though_no_slower() {
    const RUNS: u64 = 40;
    let found = (0..RUNS).filter(|run| verdicts(9_000 + run, 1.5) == [(5, Change::Heavier)]).count();
    assert!(found as u64 * 10 >= RUNS * 9, "{found} of {RUNS}");
}

/// A digest of one shape: so many calls in as many seconds, of so many milliseconds.
fn digest_of(calls: u64, ms: u64) -> Digest {
    digest_knowing(calls, ms, u64::MAX)
}

/// The same, where only the latencies of the first `known` calls are known.
fn digest_knowing(calls: u64, ms: u64, known: u64) -> Digest {
    let (app, shape) = (app("api", "rust", "3"), shape(1, "find", "shop.orders", "{}", "{}"));
    let mut digest = Digest::default();
    for second in 0..calls {
        let end = Timestamp::from_unix(1_000 + second, 0);
        let latency_ns = (second < known).then_some((ms + second % 3) * 1_000_000);
        digest.record(&Record::wire(&Operation { latency_ns, ..operation(&shape, &app, end) }));
    }
    digest
}

#[test]
fn rows_with_few_known_latencies_are_not_said_to_have_few_calls() {
    for (known, means) in [(0, false), (5, true)] {
        let (a, b) = (digest_of(400, 33), digest_knowing(400, 2_040, known));
        let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
        assert_eq!(comparison.pairs[0].not_judged, Some(NotJudged::FewLatencies));
        let side = |name: &str| ComparedSide {
            history: None,
            name: name.to_owned(),
            host: None,
            source: Source::Wire,
            zone: Zone::utc(),
            notes: Vec::new(),
        };
        let mut bytes = Vec::new();
        sonar_view::compare::text(&comparison, &[side("a"), side("b")], None, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let why = "1 not judged (1 whose latencies are known of fewer than 20 calls on a side)";
        assert!(text.contains(why) && !text.contains("with fewer than 20 calls"), "{text}");
        assert!(!text.contains("400 -> 400 calls"), "{text}");
        assert!(!means || !text.contains("mean latency") || text.contains("known latencies"), "{text}");
    }
}

#[test]
fn a_side_of_the_history_is_called_so_and_has_the_span_of_its_windows() {
    let (a, b) = (digest_of(400, 33), digest_of(400, 33));
    let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
    let at = |seconds: u64| Timestamp::from_unix(1_795_296_000 + seconds, 0);
    let side = |from| ComparedSide {
        history: Some(Span { from: at(from), to: at(from + 60) }),
        name: "21:20+1m".to_owned(),
        host: None,
        source: Source::Wire,
        zone: Zone::utc(),
        notes: Vec::new(),
    };
    let mut bytes = Vec::new();
    sonar_view::compare::text(&comparison, &[side(0), side(60)], None, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let head = "A: 400 operations of the history from 2026-11-21T21:20:00Z to 2026-11-21T21:21:00Z: 21:20+1m";
    assert!(text.lines().any(|line| line == head), "{text}");
    assert!(!text.contains("of a capture"), "{text}");
}

#[test]
fn rows_with_few_calls_are_not_judged_and_say_why() {
    let (a, b) = (digest_of(400, 33), digest_of(9, 2_040));
    let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
    let [pair] = comparison.pairs.as_slice() else { panic!() };
    assert_eq!((pair.verdict, pair.not_judged), (Change::NotJudged, Some(NotJudged::FewCalls)));
    let side = |name: &str| ComparedSide {
        history: None,
        name: name.to_owned(),
        host: None,
        source: Source::Wire,
        zone: Zone::utc(),
        notes: Vec::new(),
    };
    let mut bytes = Vec::new();
    sonar_view::compare::text(&comparison, &[side("a"), side("b")], None, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.contains("0 changed; 0 unchanged; 1 not judged (1 with fewer than 20 calls on a side)"),
        "{text}"
    );
    assert!(text.contains("mean latency 34.0ms -> 2.04s, of 400 -> 9 calls"), "{text}");
    assert!(!text.contains("within noise"), "{text}");
}

#[test]
fn unchanged_rows_say_which_change_would_have_been_seen() {
    let least = |calls| {
        let (a, b) = (digest_of(calls, 33), digest_of(calls, 33));
        let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
        assert_eq!(comparison.pairs[0].verdict, Change::Same);
        comparison.pairs[0].least.latency.unwrap()
    };
    assert!(least(30) >= least(3_000) && least(3_000) > 1.0);
}

/// A call a second of each shape for 200 seconds, as `source` saw them.
fn seen_by(source: Source, shapes: std::ops::Range<u64>) -> Digest {
    let app = app("api", "rust", "3");
    let mut digest = Digest::default();
    for (number, call) in shapes.flat_map(|number| (0..200).map(move |call| (number, call))) {
        let shape = shape(number, "find", "shop.orders", "{}", "{}");
        let op = Operation {
            latency_ns: Some(1_000_000 * number),
            ..operation(&shape, &app, Timestamp::from_unix(1_000 + call, 0))
        };
        digest.record(&Record::server(source, &op, &Execution::default()));
    }
    digest
}

#[test]
fn what_another_source_need_not_hold_is_not_gone_or_new() {
    let (wire, log) = (seen_by(Source::Wire, 1..4), seen_by(Source::Log, 3..4));
    for (a, b) in [(&wire, &log), (&log, &wire)] {
        let comparison = DigestComparison::new(a, b, false, [true; 2]);
        let judged: Vec<_> = comparison.pairs.iter().map(|pair| (pair.verdict, pair.not_judged)).collect();
        assert_eq!(judged, [(Change::NotJudged, Some(NotJudged::OtherSource)); 3]);
        let side = |source| ComparedSide {
            history: None,
            name: "x".into(),
            host: None,
            source,
            zone: Zone::utc(),
            notes: Vec::new(),
        };
        let mut out = Vec::new();
        let sides = [side(Source::Wire), side(Source::Log)];
        sonar_view::compare::text(&comparison, &sides, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("0 changed; 0 unchanged; 3 not judged (3 counted by different sources: a log or")
        );
    }
    // What the same source does not see any more is gone.
    let later = seen_by(Source::Wire, 3..4);
    let comparison = DigestComparison::new(&wire, &later, true, [true; 2]);
    let gone = comparison.pairs.iter().filter(|pair| pair.verdict == Change::Gone).count();
    assert_eq!(gone, 2);
}

/// A call a second of the shape 1 for 300 seconds, and a shape 2 that is called `burst` times within the 100th second.
fn with_burst(burst: u64) -> Digest {
    let app = app("api", "rust", "3");
    let shapes = [1, 2].map(|id| shape(id, "find", "shop.orders", "{}", "{}"));
    let mut digest = Digest::default();
    let mut record = |which: usize, end| {
        let op = Operation { latency_ns: Some(1_000_000), ..operation(&shapes[which], &app, end) };
        digest.record(&Record::wire(&op));
    };
    for second in 0..300 {
        record(0, Timestamp::from_unix(1_000 + second, 0));
    }
    for call in 0..burst {
        record(1, Timestamp::from_unix(1_100, call as u32 * 1_000_000));
    }
    digest
}

#[test]
fn what_only_one_side_has_is_new_or_gone_even_if_it_came_all_at_once() {
    let none = with_burst(0);
    let verdict = |a: &Digest, b: &Digest| {
        let comparison = DigestComparison::new(a, b, true, [true; 2]);
        let burst = comparison.pairs.iter().find(|pair| pair.a.is_none() || pair.b.is_none());
        burst.map(|pair| (pair.verdict, pair.not_judged)).unwrap()
    };
    for calls in [400, 20] {
        let some = with_burst(calls);
        assert_eq!(verdict(&some, &none), (Change::Gone, None), "{calls}");
        assert_eq!(verdict(&none, &some), (Change::New, None), "{calls}");
    }
    // Too few to say so.
    assert_eq!(verdict(&none, &with_burst(19)), (Change::NotJudged, Some(NotJudged::OnlyInOne)));
}

/// Half a minute of one shape, so many calls a second, which take as many milliseconds as `millis` says of their second.
fn calls_of(millis: impl Fn(u64) -> u64, per_second: u64) -> Digest {
    let (app, shape) = (app("api", "rust", "3"), shape(1, "find", "shop.orders", "{}", "{}"));
    let mut digest = Digest::default();
    for second in 0..30 {
        for call in 0..per_second {
            let end = Timestamp::from_unix(1_000 + second, (call * 10_000_000) as u32);
            let latency_ns = Some(millis(second) * 1_000_000);
            digest.record(&Record::wire(&Operation { latency_ns, ..operation(&shape, &app, end) }));
        }
    }
    digest
}

fn shown(comparison: &DigestComparison<'_>, notes: [&str; 2]) -> String {
    let side = |note: &str| ComparedSide {
        history: None,
        name: "x".to_owned(),
        host: None,
        source: Source::Wire,
        zone: Zone::utc(),
        notes: vec![note.to_owned()],
    };
    let mut bytes = Vec::new();
    sonar_view::compare::text(comparison, &notes.map(side), None, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_quicker_and_called_far_more_often_says_both() {
    let (a, b) = (calls_of(|_| 40, 5), calls_of(|_| 10, 20));
    let comparison = DigestComparison::new(&a, &b, true, [true; 2]);
    let pair = &comparison.pairs[0];
    assert_eq!((pair.verdict, pair.calls_change), (Change::Faster, Some(Change::MoreCalls)));
    let text = shown(&comparison, ["", ""]);
    assert!(text.contains("faster, more calls find shop.orders") && text.contains("1 changed"), "{text}");
}

#[test]
fn a_capture_that_has_a_part_of_the_messages_makes_nothing_new_or_gone() {
    let (a, b) = (seen_by(Source::Wire, 1..3), seen_by(Source::Wire, 2..4));
    let sources = ComparedSources { same_clock: true, in_part: true };
    let comparison = DigestComparison::of(&a, &b, sources, [true; 2]);
    let in_part = comparison.pairs.iter().filter(|pair| pair.not_judged == Some(NotJudged::InPart)).count();
    assert_eq!((in_part, comparison.is_worse()), (2, false));
    let text = shown(&comparison, ["is whole", "was cut"]);
    assert!(
        text.starts_with("NOTE: A is whole\nNOTE: B was cut\n0 changed; 1 unchanged; 2 not judged"),
        "{text}"
    );
    // Nor are calls of what both have.
    let (few, many) = (calls_of(|_| 40, 5), calls_of(|_| 40, 20));
    let verdict = |in_part| {
        DigestComparison::of(&few, &many, ComparedSources { same_clock: true, in_part }, [true; 2]).pairs[0]
            .verdict
    };
    assert_eq!((verdict(false), verdict(true)), (Change::MoreCalls, Change::Same));
}

#[test]
fn what_moved_far_but_varies_too_much_is_not_unchanged() {
    let steady = calls_of(|_| 10, 20);
    let moved = |slow: u64| calls_of(move |second| if second < slow { 200 } else { 10 }, 20);
    let judged: Vec<_> = (1..30)
        .map(|slow| {
            let b = moved(slow);
            let comparison = DigestComparison::new(&steady, &b, true, [true; 2]);
            let pair = &comparison.pairs[0];
            let text = shown(&comparison, ["", ""]);
            assert_eq!(
                pair.not_judged == Some(NotJudged::Varies),
                text.contains("it varies too much to tell from chance") && text.contains("mean latency"),
                "{text}"
            );
            // Also where no factor would have been seen.
            assert!(
                pair.verdict != Change::Same || pair.shift.unwrap().effect < MIN_EFFECT,
                "{slow}: {text}"
            );
            (pair.verdict, pair.not_judged)
        })
        .collect();
    assert!(judged.contains(&(Change::NotJudged, Some(NotJudged::Varies))), "{judged:?}");
    assert!(judged.contains(&(Change::Slower, None)), "{judged:?}");
}
