//! Changes in words.

use sonar_core::Timestamp;
use sonar_core::changes::{
    ApplicationChange, ChangeKind, ErrorChange, HistoryChange, SeriesChange, ShapeChange, ShapeFigures,
    ShapeWay,
};
use sonar_core::history::{EventKind, SeriesSubject, Span, metrics};
use sonar_core::internals::{FigureUnit, FigureVerdict};

use super::level::{self, metric};
use super::{events, machine, servers, split};
use crate::ftdc::units;
use crate::kit::{Bytes, Count, Grouped, Nanos, Percent, Zone, plural};

/// The most plans and applications that a line names.
const MAX_NAMES: usize = 4;

/// What changed, in a sentence without its full stop.
pub(super) fn sentence(change: &HistoryChange) -> String {
    match &change.what {
        ChangeKind::Event(events) => events::headline(events).text,
        ChangeKind::Application(app) => application(app, &change.effects),
        ChangeKind::Shape(shape) => shape_sentence(shape),
        ChangeKind::Errors(errors) => errors_sentence(errors),
        ChangeKind::Growth(change) => growth(&change.grown),
        ChangeKind::Server(change) => servers::sentence(change),
        ChangeKind::Machine(change) => machine::sentence(change),
        ChangeKind::Series(series) => level::sentence(series),
    }
}

/// When what the sentence says happened or began.
pub(super) fn since(change: &HistoryChange) -> Timestamp {
    match &change.what {
        ChangeKind::Event(events) => events::headline(events).at,
        _ => change.since,
    }
}

/// Stands below a change that nothing explains.
pub(super) const NO_CAUSE: &str = "no cause seen";

/// Whether a change that is no effect of another one needs a cause: what is new, or runs more often, was asked for by
/// applications.
pub(super) fn lacks_cause(change: &HistoryChange) -> bool {
    match &change.what {
        ChangeKind::Shape(shape) => {
            let is_load =
                matches!(shape.ways.first(), Some(ShapeWay::New | ShapeWay::Again | ShapeWay::MoreOften));
            !is_load && change.effects.is_empty()
        }
        ChangeKind::Errors(errors) => !errors.has_ended,
        _ => false,
    }
}

/// The figures before and after, a line each.
pub(super) fn evidence(change: &HistoryChange, zone: &Zone) -> Vec<String> {
    match &change.what {
        ChangeKind::Event(events) => events::evidence(events, zone),
        ChangeKind::Application(app) => {
            let driver = match (&*app.driver.0, &*app.driver.1) {
                ("", _) => String::new(),
                (driver, version) => format!(", driver {driver} {version}"),
            };
            let calls = plural(Grouped(app.calls), "operation");
            let time = Nanos(app.time_ns as u64);
            vec![match app.has_ended {
                true => format!("{calls} before, which took {time}{driver}; none after"),
                false => {
                    let before = app.pause_ns.map_or_else(
                        || "none before".to_owned(),
                        |pause_ns| format!("none in the {} before", Nanos(pause_ns)),
                    );
                    format!("{calls} {}, which took {time}{driver}; {before}", until(change, zone))
                }
            }]
        }
        ChangeKind::Shape(shape) if shape.ways.first() == Some(&ShapeWay::New) => {
            let first = format!("{}; not once before", new_side(change, &shape.after, zone));
            std::iter::once(first).chain(shape_details(shape)).collect()
        }
        ChangeKind::Shape(shape) => {
            let first = format!("before {}; after {}", side(&shape.before), side(&shape.after));
            std::iter::once(first).chain(shape_details(shape)).collect()
        }
        ChangeKind::Errors(errors) => errors_evidence(errors),
        ChangeKind::Growth(change) => change.parts.iter().map(grown_part).collect(),
        ChangeKind::Server(change) => servers::evidence(change),
        // Its figures are in the sentence.
        ChangeKind::Machine(_) => Vec::new(),
        ChangeKind::Series(series) => series_evidence(series),
    }
}

/// Up to when the figures of something new are counted: its moment may end earlier.
fn until(change: &HistoryChange, zone: &Zone) -> String {
    format!("until {}", clock(zone, change.until, Span { from: change.since, to: change.until }))
}

/// Which time its figures cover, of a change that has some; `whole` is what the report is about.
pub(super) fn measured(change: &HistoryChange, zone: &Zone, whole: Span) -> Option<String> {
    let has_figures = !matches!(change.what, ChangeKind::Event(_)) || !change.effects.is_empty();
    let (from, until) = (clock(zone, change.from, whole), clock(zone, change.until, whole));
    (has_figures && change.until > change.from)
        .then(|| format!("measured from {from} to {until}, and compared with the time before that"))
}

/// Whether the figures of a change begin before its first window.
pub(super) fn is_measured_earlier(change: &HistoryChange) -> bool {
    change.is_dated_by_window() && change.from < change.since
}

/// The command that shows more of it, for the time that its figures cover. It does not name the store. `span` is that of
/// its moment.
pub(super) fn command(change: &HistoryChange, span: Span) -> Vec<String> {
    let from = match is_measured_earlier(change) {
        true => change.from,
        false => change.since.max(span.from).floor_to(1_000_000_000),
    };
    let utc = Zone::utc();
    let to = if change.until > from { change.until } else { span.to };
    let (from, to) = (utc.show_seconds(from).to_string(), utc.show_seconds(to).to_string());
    let queries = |more: &[&str]| {
        let fixed = ["queries", "--from", &from, "--to", &to];
        fixed.iter().chain(more).map(|&word| word.to_owned()).collect()
    };
    match &change.what {
        ChangeKind::Shape(shape) if shape.ways.first() == Some(&ShapeWay::Stopped) => Vec::new(),
        ChangeKind::Shape(shape) => queries(&["--filter", &shape.shape.id.to_string()]),
        ChangeKind::Errors(errors) => queries(&["--filter", &errors.namespace, "--sort", "errors"]),
        ChangeKind::Application(app) if app.has_ended => Vec::new(),
        ChangeKind::Application(_) => queries(&["--by", "app"]),
        ChangeKind::Server(_) => queries(&[]),
        ChangeKind::Growth(_) | ChangeKind::Machine(_) | ChangeKind::Event(_)
            if !change.effects.is_empty() =>
        {
            queries(&[])
        }
        _ => Vec::new(),
    }
}

fn application(app: &ApplicationChange, effects: &[HistoryChange]) -> String {
    let (driver, version) = &app.driver;
    if app.has_ended {
        return format!("the application {} has ended", app.name);
    }
    match app.versions_before.as_slice() {
        [] => {
            let opened = opened(effects).map_or_else(String::new, |opened| format!(", and {opened}"));
            match app.pause_ns {
                Some(pause_ns) => {
                    let pause = Nanos(pause_ns);
                    format!(
                        "the application {} is new again{opened}: it was last seen {pause} before",
                        app.name
                    )
                }
                None => format!("the application {} is new{opened}", app.name),
            }
        }
        before => format!(
            "the application {} uses another version of its driver: {driver} {version}, before {}",
            app.name,
            before.join(", ")
        ),
    }
}

/// The connections that came with an application, if they are many.
fn opened(effects: &[HistoryChange]) -> Option<String> {
    let storm = effects.iter().find_map(|effect| match &effect.what {
        ChangeKind::Event(events) => events.iter().find(|event| event.kind == EventKind::ConnectionStorm),
        _ => None,
    });
    let levels = || {
        effects.iter().find_map(|effect| match &effect.what {
            ChangeKind::Server(change) => servers::connections(change),
            _ => None,
        })
    };
    storm.map(events::event).or_else(levels)
}

fn times(factor: f64) -> String {
    if factor >= 10.0 { format!("{factor:.0} times") } else { format!("{factor:.1} times") }
}

fn shape_sentence(shape: &ShapeChange) -> String {
    let (before, after) = (&shape.before, &shape.after);
    let mean = |figures: &ShapeFigures| figures.usual_mean_ns().max(1.0);
    let words = shape.ways.iter().map(|way| match way {
        ShapeWay::New => "is new".to_owned(),
        ShapeWay::Again => match shape.pause_ns {
            Some(ns) => format!("is new again: it had not run for {}", Nanos(ns)),
            None => "is new again".to_owned(),
        },
        ShapeWay::Stopped => "stopped".to_owned(),
        ShapeWay::Stalled => {
            let (count, ns) = after.stalled;
            format!("stalled: {} took {} in total", plural(Grouped(count), "operation"), Nanos(ns as u64))
        }
        ShapeWay::Slower => format!("became {} slower", times(mean(after) / mean(before))),
        ShapeWay::Faster => format!("became {} faster", times(mean(before) / mean(after))),
        ShapeWay::Plan => "has another plan".to_owned(),
        ShapeWay::Heavier => "examines more for each document returned where it is slow".to_owned(),
        ShapeWay::Lighter => "examines less for each document returned where it is slow".to_owned(),
        ShapeWay::MoreOften => often(before, after, "more"),
        ShapeWay::LessOften => often(after, before, "less"),
    });
    let words: Vec<String> = words.collect();
    let why = split::sentence(shape).map_or_else(String::new, |why| format!(": {why}"));
    format!("{} {}{why}", split::name(&shape.shape), words.join(" and "))
}

fn often(few: &ShapeFigures, many: &ShapeFigures, word: &str) -> String {
    if few.calls == 0 {
        format!("runs {word} often")
    } else {
        format!("runs {} {word} often", times(many.rate() / few.rate()))
    }
}

/// What else is known of both sides.
fn shape_details(shape: &ShapeChange) -> Vec<String> {
    let (before, after) = (&shape.before, &shape.after);
    let mut lines = Vec::new();
    if shape.ways.iter().any(|way| matches!(way, ShapeWay::Slower | ShapeWay::Faster)) {
        let mean = |figures: &ShapeFigures| Nanos(figures.usual_mean_ns() as u64);
        let whose = if after.mean_of_others_ns.is_some() { " of the others" } else { "" };
        lines.push(format!("mean latency{whose} {} before, {} after", mean(before), mean(after)));
    }
    // Operations that waited for something are none that were planned badly.
    let is_planned = shape.ways.iter().any(|way| *way != ShapeWay::Stalled);
    if is_planned {
        lines.extend(logged(before, after));
    }
    lines.extend(shape.split.as_deref().map(split::evidence));
    if !shape.applications.is_empty() {
        let names: Vec<&str> = shape.applications.iter().take(MAX_NAMES).map(|name| caller(name)).collect();
        let more = shape.applications.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("by {}{more}", names.join(", ")));
    }
    lines
}

/// An application in a sentence.
fn caller(name: &str) -> &str {
    match name {
        "joined late" => "an unknown application (connected before the capture)",
        name => name,
    }
}

fn side(figures: &ShapeFigures) -> String {
    let length = Nanos((figures.seconds * 1e9) as u64);
    counted(figures, &format!("in {length}"), figures.rate())
}

/// What is new, from its beginning on.
fn new_side(change: &HistoryChange, figures: &ShapeFigures, zone: &Zone) -> String {
    // A part of that time may not have been observed.
    let seconds = figures.seconds.min(change.until.since(change.since) as f64 / 1e9);
    let rate = if seconds > 0.0 { figures.calls as f64 / seconds } else { figures.rate() };
    counted(figures, &until(change, zone), rate)
}

/// Operations of a time, with how many there were in a second.
fn counted(figures: &ShapeFigures, time: &str, rate: f64) -> String {
    let calls = format!("{} {time}", plural(Grouped(figures.calls), "operation"));
    let Some([p50, p99, max]) = figures.latency.filter(|_| figures.calls > 0) else { return calls };
    if figures.calls < 10 {
        return format!("{calls}, max {}", Nanos(max));
    }
    format!("{calls} ({}/s), p50 {}, p99 {}, max {}", Count(rate), Nanos(p50), Nanos(p99), Nanos(max))
}

/// What the log says of both sides. It has slow operations only, so their number is said with it.
fn logged(before: &ShapeFigures, after: &ShapeFigures) -> Option<String> {
    let side = |figures: &ShapeFigures, when: &str| {
        if figures.logged == 0 {
            return format!("none {when}");
        }
        let plans = figures.plans.iter().take(MAX_NAMES);
        let plans = plans.map(|(plan, count)| format!("{plan} in {}", Grouped(*count)));
        let examined = figures.examined_per_returned.map(Count);
        let examined = examined.map(|ratio| format!("{ratio} examined for each document returned"));
        let details: Vec<String> = plans.chain(examined).collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        format!("{} {when}{details}", Grouped(figures.logged))
    };
    (before.logged + after.logged > 0)
        .then(|| format!("slow operations in the log: {}; {}", side(before, "before"), side(after, "after")))
}

fn errors_sentence(errors: &ErrorChange) -> String {
    let [(before, _), _] = errors.counts;
    let what = match before {
        _ if errors.has_ended => "ended",
        0 => "began",
        _ => "became more frequent",
    };
    let code = match errors.code {
        0 => "errors".to_owned(),
        code => format!("errors {code}{}", code_name(code)),
    };
    format!("{code} on {} {what}", errors.namespace)
}

/// The name of an error code that DBAs see often, from `error_codes.yml` of the server.
const fn code_name(code: i32) -> &'static str {
    match code {
        11_000 => " (DuplicateKey)",
        13 => " (Unauthorized)",
        18 => " (AuthenticationFailed)",
        43 => " (CursorNotFound)",
        50 => " (MaxTimeMSExpired)",
        64 => " (WriteConcernFailed)",
        112 => " (WriteConflict)",
        121 => " (DocumentValidationFailure)",
        189 => " (PrimarySteppedDown)",
        10_107 => " (NotWritablePrimary)",
        11_600 => " (InterruptedAtShutdown)",
        11_602 => " (InterruptedDueToReplStateChange)",
        _ => "",
    }
}

fn errors_evidence(errors: &ErrorChange) -> Vec<String> {
    let count = |(count, seconds): (u64, f64)| format!("{} in {seconds:.0} s", Grouped(count));
    let [before, after] = errors.counts;
    let mut lines = vec![format!("before {}; after {}", count(before), count(after))];
    let names: Vec<&str> = errors.applications.iter().take(MAX_NAMES).map(|name| caller(name)).collect();
    let commands = errors.commands.join(", ");
    lines.push(match names.is_empty() {
        true => format!("commands: {commands}"),
        false => format!("{commands} by {}", names.join(", ")),
    });
    lines
}

fn growth(series: &SeriesChange) -> String {
    let (what, size) = (grown_thing(series), |value| size(series, value));
    let more = Percent(series.after / series.before.max(1.0) - 1.0);
    let (before, after) = (size(series.before), size(series.after));
    format!("{what} {} grew by {more}: {before} before, {after} after", series.key.name)
}

fn grown_part(series: &SeriesChange) -> String {
    let (before, after) = (size(series, series.before), size(series, series.after));
    match series.key.subject {
        SeriesSubject::Index => format!("{} {}: {before} -> {after}", grown_thing(series), series.key.name),
        _ => {
            let found = metrics::find(&series.key.metric);
            let title = found.map_or(&*series.key.metric, |metric| metric.meaning);
            format!("{title}: {before} -> {after}")
        }
    }
}

fn grown_thing(series: &SeriesChange) -> &'static str {
    match series.key.subject {
        SeriesSubject::Index => "the index",
        _ if *series.key.metric == *metrics::COLLECTION_STORAGE.name => "the file of the collection",
        _ => "the collection",
    }
}

/// Bytes, or a number of documents.
fn size(series: &SeriesChange, value: f64) -> String {
    match metrics::find(&series.key.metric).map(|metric| metric.unit) {
        Some(FigureUnit::Count) => Grouped(value as u64).to_string(),
        _ => Bytes(value).to_string(),
    }
}

fn series_evidence(series: &SeriesChange) -> Vec<String> {
    let (_, unit) = metric(&series.key);
    let show = |value| units::show(value, unit);
    let mut lines = vec![format!("between {} and {} before", show(series.range.0), show(series.range.1))];
    if let Some((figure, [was, is])) = series.judged
        && let Some(limits) = figure.limits.filter(|_| is > was)
    {
        let limit = if is == FigureVerdict::Red { limits.red } else { limits.amber };
        let word = if limits.below { "at or below" } else { "at or above" };
        let limit = show(limit);
        lines.push(format!("{}: {word} {limit}; {} ({})", is.name(), limits.meaning, limits.source));
    }
    lines
}

/// `1.20s more waiting` or `1.20s less waiting`: the time that clients waited for their operations.
pub(super) fn cost(ns: f64) -> String {
    format!("{} {} waiting", Nanos(ns.abs() as u64), if ns < 0.0 { "less" } else { "more" })
}

/// The same of a change within `span_ns`; time of many operations at once is more than the span is long, which needs
/// words.
pub(super) fn cost_within(ns: f64, span_ns: u64) -> String {
    let at_once = (ns / span_ns.max(1) as f64).round();
    if at_once < 2.0 {
        return cost(ns);
    }
    let operations = plural(Grouped(at_once as u64), "operation");
    format!("{}, by about {operations} at a time", cost(ns))
}

/// A clock time within a day that the heading names, and the whole time otherwise.
pub(crate) fn clock(zone: &Zone, at: Timestamp, span: Span) -> String {
    let shown = zone.show_seconds(at).to_string();
    let day = |at| zone.show_seconds(at).to_string().get(..10).map(str::to_owned);
    match day(span.from) == day(span.to) && day(at) == day(span.from) {
        true => shown.get(11..19).unwrap_or(&shown).to_owned(),
        false => shown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use sonar_core::{Endpoint, ShapeInfo, Source};

    use super::*;

    /// A change of a query without figures.
    pub fn shape_change(ways: &[ShapeWay]) -> ShapeChange {
        ShapeChange {
            shape: ShapeInfo::other().into(),
            source: Source::Wire,
            ways: ways.to_vec(),
            before: ShapeFigures::default(),
            after: ShapeFigures::default(),
            applications: Vec::new(),
            growth: None,
            pause_ns: None,
            split: None,
        }
    }

    #[test]
    fn the_time_that_a_change_cost_is_in_words() {
        let s = 1_000_000_000;
        assert_eq!(cost(1.2e9), "1.20s more waiting");
        assert_eq!(cost(-34.3e9), "34.3s less waiting");
        // 700 clients wait for 20 seconds.
        let words = cost_within(14_640e9, 20 * s);
        assert_eq!(words, "4h04m more waiting, by about 732 operations at a time");
        assert_eq!(cost_within(26e9, 30 * s), "26.0s more waiting");
        assert_eq!(cost_within(-1e15, s), cost(-1e15));
    }

    #[test]
    fn figures_from_before_the_first_window_of_a_change_say_so() {
        let at = |second| Timestamp::from_unix(second, 0);
        let change = |ways: &[ShapeWay], from| {
            let what = ChangeKind::Shape(Box::new(shape_change(ways)));
            let change = HistoryChange::new(Endpoint::default(), at(120), what);
            HistoryChange { from: at(from), until: at(130), ..change }
        };
        let span = Span { from: at(120), to: at(130) };
        for (ways, from, is_earlier) in [
            (&[ShapeWay::Faster][..], 100, true),
            (&[ShapeWay::Slower, ShapeWay::MoreOften], 100, true),
            (&[ShapeWay::Faster], 120, false),
            // Their first operation is known exactly.
            (&[ShapeWay::New], 100, false),
        ] {
            let change = change(ways, from);
            assert_eq!(is_measured_earlier(&change), is_earlier, "{ways:?}");
            let shown = if is_earlier { "1970-01-01T00:01:40Z" } else { "1970-01-01T00:02:00Z" };
            assert_eq!(command(&change, span)[2], shown, "{ways:?}");
        }
    }

    #[test]
    fn an_application_that_was_seen_earlier_is_new_again() {
        let app = |pause_ns| ApplicationChange {
            name: "worker".into(),
            driver: <_>::default(),
            versions_before: Vec::new(),
            calls: 528,
            time_ns: 2.5e9,
            has_ended: false,
            pause_ns,
        };
        let words = |pause_ns| {
            let what = ChangeKind::Application(app(pause_ns));
            let change = HistoryChange::new(Endpoint::default(), Timestamp::default(), what);
            (sentence(&change), evidence(&change, &Zone::utc()).remove(0))
        };
        let (said, figures) = words(None);
        assert_eq!(said, "the application worker is new");
        assert!(figures.ends_with("which took 2.50s; none before"), "{figures}");
        let (said, figures) = words(Some(720_000_000_000));
        assert_eq!(said, "the application worker is new again: it was last seen 12m00s before");
        assert!(figures.ends_with("which took 2.50s; none in the 12m00s before"), "{figures}");
    }

    #[test]
    fn a_slower_shape_has_its_means_and_its_callers_in_words() {
        let figures =
            |ms: f64| ShapeFigures { calls: 100, seconds: 10.0, time_ns: ms * 1e8, ..Default::default() };
        let shape = ShapeChange {
            shape: ShapeInfo::other().into(),
            source: Source::Wire,
            ways: vec![ShapeWay::Slower],
            before: figures(1.0),
            after: figures(118.0),
            applications: vec!["joined late".into(), "shop".into()],
            growth: None,
            pause_ns: None,
            split: None,
        };
        let what = ChangeKind::Shape(Box::new(shape));
        let change = HistoryChange::new(Endpoint::default(), Timestamp::default(), what);
        assert!(sentence(&change).contains("118 times slower"));
        let lines = evidence(&change, &Zone::utc());
        assert!(lines.contains(&"mean latency 1.00ms before, 118ms after".to_owned()), "{lines:?}");
        let by = lines.last().unwrap();
        assert_eq!(by, "by an unknown application (connected before the capture), shop");
        assert!(lacks_cause(&change));
    }

    #[test]
    fn what_stalled_and_what_the_log_has_say_what_they_count() {
        let log = |logged, ratio| ShapeFigures {
            calls: 100,
            seconds: 10.0,
            time_ns: 1e8,
            logged,
            plans: if logged > 0 { vec![("COLLSCAN".into(), logged)] } else { Vec::new() },
            examined_per_returned: ratio,
            ..Default::default()
        };
        // The log has slow operations only: after a build of an index the few that are left are as before.
        assert_eq!(
            logged(&log(214, Some(3_770.0)), &log(9, Some(3_770.0))).unwrap(),
            "slow operations in the log: 214 before (COLLSCAN in 214, 3.77k examined for each document returned); 9 after \
             (COLLSCAN in 9, 3.77k examined for each document returned)"
        );
        assert_eq!(
            logged(&log(0, None), &log(2, None)).unwrap(),
            "slow operations in the log: none before; 2 after (COLLSCAN in 2)"
        );
        assert_eq!(logged(&log(0, None), &log(0, None)), None);
        // Six of 106 operations were held for 12 seconds; the others are half as slow as before.
        let held = ShapeFigures {
            calls: 106,
            time_ns: 72.05e9,
            stalled: (6, 72e9),
            mean_of_others_ns: Some(5e5),
            ..log(0, None)
        };
        let shape = ShapeChange {
            shape: ShapeInfo::other().into(),
            source: Source::Wire,
            ways: vec![ShapeWay::Stalled, ShapeWay::Faster],
            before: log(0, None),
            after: held,
            applications: Vec::new(),
            growth: None,
            pause_ns: None,
            split: None,
        };
        let words = shape_sentence(&shape);
        assert!(
            words.ends_with("stalled: 6 operations took 1m12s in total and became 2.0 times faster"),
            "{words}"
        );
        assert_eq!(shape_details(&shape), ["mean latency of the others 1.00ms before, 500µs after"]);
    }

    #[test]
    fn what_is_new_is_counted_until_a_time_that_is_named_and_shown_by_the_command() {
        let after = ShapeFigures {
            calls: 44,
            seconds: 30.0,
            latency: Some([56_000_000, 110_000_000, 110_000_000]),
            ..Default::default()
        };
        let shape = ShapeChange {
            shape: ShapeInfo::other().into(),
            source: Source::Wire,
            ways: vec![ShapeWay::New],
            before: ShapeFigures::default(),
            after,
            applications: Vec::new(),
            growth: None,
            pause_ns: None,
            split: None,
        };
        let at = |second: u64| Timestamp::from_unix(1_795_296_000 + second, 0);
        let change = HistoryChange::new(Endpoint::default(), at(38), ChangeKind::Shape(Box::new(shape)));
        // The moment ends after its windows; the figures are of more of them.
        let change = HistoryChange { until: at(60), ..change };
        assert_eq!(
            evidence(&change, &Zone::utc())[0],
            "44 operations until 21:21:00 (2/s), p50 56.0ms, p99 110ms, max 110ms; not once before"
        );
        let words = command(&change, Span { from: at(20), to: at(40) });
        assert_eq!(words[..5], ["queries", "--from", "2026-11-21T21:20:38Z", "--to", "2026-11-21T21:21:00Z"]);
    }
}
