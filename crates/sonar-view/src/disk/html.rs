//! A page with the plot of throughput and latency over concurrency: one file, no script, nothing fetched.

use std::fmt::{self, Write as _};

use super::compare::Comparison;
use super::run::{DeviceRates, Kind, Run, Step};
use super::text;
use crate::text::Escaped;
use crate::units::{Count, Nanos, or_unknown};

const STYLE: &str = "\
:root{--ink:#1d2733;--soft:#5b6b7c;--line:#d8dfe6;--paper:#fff;--card:#f6f8fa;--a:#0b6bcb;--b:#c2410c;--c:#15803d}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa8b5;--line:#30373f;--paper:#0f1419;--card:#171d24;--a:#58a6ff;--b:#ff9e64;--c:#6ad08a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.5rem;max-width:72rem;overflow-wrap:anywhere;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.25rem 0}.soft{color:var(--soft)}
ul{padding-left:1.2rem}li{margin:.35rem 0}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem;margin-top:1rem}
figure{margin:0;min-width:0;padding:.75rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
figcaption{font-weight:600}
svg{width:100%;height:auto;display:block}
svg text{font-size:12px;fill:var(--soft)}svg .grid{stroke:var(--line);stroke-width:1}
.a{stroke:var(--a);fill:var(--a)}.b{stroke:var(--b);fill:var(--b)}.c{stroke:var(--c);fill:var(--c)}
polyline{fill:none!important;stroke-width:2.5;stroke-linejoin:round}circle{stroke:none}
.dash{stroke-dasharray:6 4}
.key{display:inline-block;width:1.4em;height:0;border-top:3px solid;vertical-align:middle;margin:0 .3em 0 .8em}
.nowrap{white-space:nowrap}
@media(max-width:600px){.nowrap{white-space:normal;overflow-wrap:anywhere}}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600}td.name,th.name{text-align:left}
tr.knee td{background:var(--card)}";

/// Text made safe for a page: neither markup nor marks that make it read as something else.
struct Html<'a>(&'a str);

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in Escaped(self.0).to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Requests of one kind in a step.
type KindOf = fn(&Step) -> Option<&Kind>;

/// One line of a plot.
struct Series {
    name: String,
    class: &'static str,
    /// Number in flight and value, both above 0.
    points: Vec<(f64, f64)>,
    /// What a point says when it is pointed at.
    says: fn(f64) -> String,
}

/// What its axis of values is.
enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten.
    Logarithmic,
}

/// Width, height and the margins of a plot: left, right, top, bottom.
const SIZE: (f64, f64) = (560.0, 320.0);
const MARGINS: (f64, f64, f64, f64) = (58.0, 14.0, 14.0, 40.0);

/// A step of 1, 2 or 5 times a power of ten that divides `top` into about five parts.
fn nice_step(top: f64) -> f64 {
    let raw = (top / 5.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let part = raw / power;
    power
        * if part <= 1.0 {
            1.0
        } else if part <= 2.0 {
            2.0
        } else if part <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn plot(series: &[Series], scale: &Scale, label: fn(f64) -> String, title: &str) -> String {
    let all = || series.iter().flat_map(|s| s.points.iter().copied());
    let (left, right, top, bottom) = MARGINS;
    let (wide, high) = (SIZE.0 - left - right, SIZE.1 - top - bottom);
    let most = all().map(|(n, _)| n).fold(1.0, f64::max);
    let octaves = most.log2().max(1.0);
    let x = |n: f64| left + n.log2().max(0.0) / octaves * wide;
    let (least, greatest) = all().fold((f64::MAX, 0.0f64), |(low, high), (_, v)| (low.min(v), high.max(v)));
    if greatest <= 0.0 {
        return String::from("<p class=\"soft\">Nothing was measured.</p>");
    }
    let (low, highest, ticks): (f64, f64, Vec<f64>) = match scale {
        Scale::Linear => {
            let step = nice_step(greatest);
            let count = (greatest * 1.02 / step).ceil().max(1.0) as usize;
            (0.0, step * count as f64, (0..=count).map(|n| step * n as f64).collect())
        }
        Scale::Logarithmic => {
            let (from, to) = (least.log10().floor() as i32, greatest.log10().ceil() as i32);
            let to = to.max(from + 1);
            (10f64.powi(from), 10f64.powi(to), (from..=to).map(|n| 10f64.powi(n)).collect())
        }
    };
    let y = |v: f64| {
        let share = match scale {
            Scale::Linear => v / highest,
            Scale::Logarithmic => (v / low).log10() / (highest / low).log10(),
        };
        top + high * (1.0 - share.clamp(0.0, 1.0))
    };
    let mut svg =
        format!("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", SIZE.0, SIZE.1, Html(title));
    for tick in ticks {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            SIZE.0 - right,
            left - 8.0,
            at + 4.0,
            Html(&label(tick))
        );
    }
    // At most about twelve numbers below, so that they do not touch.
    let mut numbers: Vec<f64> = all().map(|(n, _)| n).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let every = numbers.len().div_ceil(12).max(1);
    for n in numbers.iter().step_by(every) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{n}</text>",
            x(*n),
            SIZE.1 - bottom + 18.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">requests in flight</text>",
        left + wide / 2.0,
        SIZE.1 - 4.0
    );
    for series in series {
        let _ = write!(svg, "<polyline class=\"{}\" points=\"", series.class);
        for (n, v) in &series.points {
            let _ = write!(svg, "{:.1},{:.1} ", x(*n), y(*v));
        }
        svg.push_str("\"/>");
        let colour = series.class.split(' ').next().unwrap_or("a");
        for (n, v) in &series.points {
            let _ = write!(
                svg,
                "<circle class=\"{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, {n} in flight: {}</title></circle>",
                x(*n),
                y(*v),
                Html(&series.name),
                Html(&(series.says)(*v))
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn figure(title: &str, series: &[Series], scale: &Scale, label: fn(f64) -> String) -> String {
    let mut key = String::new();
    for series in series {
        let (colour, dashed) = (series.class.split(' ').next().unwrap_or("a"), series.class.contains("dash"));
        let style = if dashed { "dashed" } else { "solid" };
        let _ = write!(
            key,
            "<span class=\"nowrap\"><span class=\"key\" style=\"border-color:var(--{colour});border-top-style:{style}\"></span>{}</span> ",
            Html(&series.name)
        );
    }
    format!(
        "<figure><figcaption>{}</figcaption><div class=\"soft\">{key}</div>{}</figure>",
        Html(title),
        plot(series, scale, label, title)
    )
}

fn count(value: f64) -> String {
    Count(value).to_string()
}

fn duration(value: f64) -> String {
    Nanos(value as u64).to_string()
}

/// A tick of powers of ten: without decimals.
fn duration_tick(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        1e3..1e6 => format!("{:.0} µs", ns / 1e3),
        1e6..1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.0} s", ns / 1e9),
    }
}

fn throughput(name: String, class: &'static str, run: &Run) -> Series {
    let points = run.steps.iter().map(|s| (f64::from(s.in_flight), s.operations_per_second));
    Series { name, class, points: positive(points), says: |v| format!("{} operations/s", count(v)) }
}

fn positive(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    points.filter(|(n, v)| *n > 0.0 && *v > 0.0 && v.is_finite()).collect()
}

fn latency(
    name: String,
    class: &'static str,
    run: &Run,
    kind: KindOf,
    quantile: fn(&Kind) -> Option<u64>,
) -> Series {
    let points =
        run.steps.iter().filter_map(|step| Some((f64::from(step.in_flight), quantile(kind(step)?)? as f64)));
    Series { name, class, points: positive(points), says: duration }
}

fn latencies(run: &Run, prefix: &str, only: Option<&'static str>) -> Vec<Series> {
    let kinds: [(&str, &str, &str, KindOf); 3] = [
        ("read", "a", "a dash", |s| s.reads.as_ref()),
        ("write", "b", "b dash", |s| s.writes.as_ref()),
        ("flush", "c", "c dash", |s| s.flushes.as_ref()),
    ];
    let mut series = Vec::new();
    for (name, solid, dashed, kind) in kinds {
        if !run.steps.iter().any(|step| kind(step).is_some()) {
            continue;
        }
        let (solid, dashed) = match only {
            Some("a") => ("a", "a dash"),
            Some(_) => ("b", "b dash"),
            None => (solid, dashed),
        };
        series.push(latency(format!("{prefix}{name} p50"), solid, run, kind, |k| k.latency_ns.p50));
        series.push(latency(format!("{prefix}{name} p99"), dashed, run, kind, |k| k.latency_ns.p99));
        if only.is_some() {
            break;
        }
    }
    series
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{}</title><style>{STYLE}</style></head>\n<body>{body}\n\
         <p class=\"soft\">Written by mongosonar {}. MB is 1,048,576 bytes, as mongoperf counts.</p></body></html>\n",
        Html(title),
        env!("CARGO_PKG_VERSION"),
    )
}

fn table(heads: &[&str], named: usize, rows: &[(bool, Vec<String>)], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for (at, head) in heads.iter().enumerate() {
        let _ = write!(out, "<th{}>{}</th>", if at < named { " class=\"name\"" } else { "" }, Html(head));
    }
    out.push_str("</tr></thead><tbody>");
    for (marked, row) in rows {
        out.push_str(if *marked { "<tr class=\"knee\">" } else { "<tr>" });
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", if at < named { " class=\"name\"" } else { "" }, Html(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// The page of one run.
pub fn page(run: &Run) -> String {
    let mut body = String::new();
    let lines = text::place(run);
    let _ = write!(body, "<h1>mongosonar disk bench</h1>");
    for line in &lines {
        // Escaped for a terminal already; here for a page.
        let _ = write!(body, "<p>{}</p>", Html(line));
    }
    let kernel = run.place.kernel.as_deref().unwrap_or("unknown");
    let began = sonar_core::Timestamp::from_unix_ns(run.started_ns).to_string();
    let _ = write!(
        body,
        "<p class=\"soft\">{}Z, Linux {}, {} processors, seed {}</p>",
        Html(began.get(..19).unwrap_or(&began)),
        Html(kernel),
        run.place.processors,
        run.settings.seed
    );
    body.push_str("<div class=\"plots\">");
    let rates = [throughput("operations/s".into(), "a", run)];
    body.push_str(&figure("Throughput", &rates, &Scale::Linear, count));
    body.push_str(&figure("Latency", &latencies(run, "", None), &Scale::Logarithmic, duration_tick));
    body.push_str("</div>");
    if let Some(verdict) = &run.verdict {
        body.push_str("<h2>What it means</h2><ul>");
        for words in verdict.words.iter().chain(&run.notes) {
            let _ = write!(body, "<li>{}</li>", Html(words));
        }
        body.push_str("</ul>");
    }
    body.push_str("<h2>Steps</h2>");
    steps(run, &mut body);
    body.push_str("<h2>The device meanwhile, as <code>iostat -x</code> shows it</h2>");
    devices(run, &mut body);
    if !run.probes.is_empty() {
        body.push_str("<h2>Probes</h2>");
        let rows: Vec<(bool, Vec<String>)> = run
            .probes
            .iter()
            .map(|probe| {
                let order = if probe.sequential { "sequential" } else { "random" };
                let latency = &probe.latency_ns;
                (
                    false,
                    vec![
                        format!("{order}, {} KiB", probe.record_bytes / 1024),
                        probe.in_flight.to_string(),
                        count(probe.operations_per_second),
                        count(probe.bytes_per_second / 1_048_576.0),
                        or_unknown(latency.p50.map(Nanos)),
                        or_unknown(latency.p99.map(Nanos)),
                    ],
                )
            })
            .collect();
        table(&["probe", "in flight", "ops/s", "MB/s", "p50", "p99"], 1, &rows, &mut body);
    }
    document("mongosonar disk bench", &body)
}

fn steps(run: &Run, out: &mut String) {
    let knee = run.verdict.as_ref().filter(|v| !v.still_scaling).map(|v| v.knee_in_flight);
    let mut rows = Vec::new();
    for step in &run.steps {
        let mut head = [
            step.in_flight.to_string(),
            count(step.operations_per_second),
            if run.settings.mmf { "-".into() } else { count(step.bytes_per_second / 1_048_576.0) },
            or_unknown(step.cpu.ns_per_operation.map(|ns| Nanos(ns as u64))),
            or_unknown(step.cpu.machine_busy.map(|busy| format!("{:.0}%", busy * 100.0))),
        ];
        for (name, kind) in step.kinds() {
            let l = &kind.latency_ns;
            let mut row = head.to_vec();
            row.extend([name.to_owned(), count(kind.count as f64)]);
            row.extend([l.p50, l.p95, l.p99, l.p999, l.max].map(|ns| or_unknown(ns.map(Nanos))));
            rows.push((knee == Some(step.in_flight), row));
            head = Default::default();
        }
    }
    table(
        &["in flight", "ops/s", "MB/s", "cpu/op", "busy", "", "count", "p50", "p95", "p99", "p99.9", "max"],
        0,
        &rows,
        out,
    );
}

fn devices(run: &Run, out: &mut String) {
    let two = |value: f64| format!("{value:.2}");
    let row = |step: &Step, d: &DeviceRates| {
        let figures = [d.r, d.w, d.rkb, d.wkb, d.r_await, d.w_await];
        let mut row = vec![step.in_flight.to_string(), d.device.clone()];
        row.extend(figures.map(two));
        row.extend([or_unknown(d.f_await.map(two)), two(d.aqu), two(d.util)]);
        (false, row)
    };
    let rows: Vec<_> = run
        .steps
        .iter()
        .flat_map(|step| step.device.iter().chain(&step.disks).map(move |d| row(step, d)))
        .collect();
    if rows.is_empty() {
        out.push_str("<p>The kernel counts no device below this file system.</p>");
        return;
    }
    table(&text::DEVICE_COLUMNS, 0, &rows, out);
}

/// The page of two runs.
pub fn compared(a: &Run, b: &Run, comparison: &Comparison) -> String {
    let mut body = String::from("<h1>mongosonar disk bench: two runs</h1>");
    let (name_a, name_b) = (&comparison.names[0], &comparison.names[1]);
    for (name, run, colour) in [(name_a, a, "a"), (name_b, b, "b")] {
        let _ = write!(
            body,
            "<p><span class=\"key\" style=\"border-color:var(--{colour});margin-left:0\"></span><b>{}</b>: {}</p>",
            Html(name),
            Html(&text::place(run).join("; "))
        );
    }
    body.push_str("<div class=\"plots\">");
    let rates = [throughput(name_a.clone(), "a", a), throughput(name_b.clone(), "b", b)];
    body.push_str(&figure("Throughput, operations/s", &rates, &Scale::Linear, count));
    let mut waits = latencies(a, &format!("{name_a} "), Some("a"));
    waits.extend(latencies(b, &format!("{name_b} "), Some("b")));
    body.push_str(&figure("Latency", &waits, &Scale::Logarithmic, duration_tick));
    body.push_str("</div><h2>Side by side</h2>");
    let rows: Vec<(bool, Vec<String>)> = comparison.rows().into_iter().map(|row| (false, row)).collect();
    table(&super::compare::HEADS, 0, &rows, &mut body);
    body.push_str("<ul>");
    for words in comparison.words() {
        let _ = write!(body, "<li>{}</li>", Html(&words));
    }
    body.push_str("</ul>");
    document("mongosonar disk bench: two runs", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_read_becomes_markup() {
        let mut run = Run::default();
        run.place.dir = "</p><script>alert(1)</script>\u{202e}".into();
        run.notes.push("<img src=x onerror=y>".into());
        run.verdict = Some(super::super::run::Verdict {
            words: vec!["\"quoted\" & 'so'".into()],
            ..Default::default()
        });
        let page = page(&run);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{202e}'));
        assert!(page.contains("&quot;quoted&quot; &amp; &#39;so&#39;"));
    }

    #[test]
    fn ticks_divide_an_axis_into_a_few_parts() {
        for top in [0.3, 1.0, 7.0, 99.0, 250.0, 123_456.0] {
            let parts = top / nice_step(top);
            assert!((2.0..=5.001).contains(&parts), "{top} {parts}");
        }
    }

    #[test]
    fn figures_that_are_none_do_not_break_a_plot() {
        let mut run = Run::default();
        for (n, rate) in [(0, 5.0), (1, f64::NAN), (2, -1.0), (4, f64::INFINITY), (8, 10.0)] {
            run.steps.push(Step { in_flight: n, operations_per_second: rate, ..Step::default() });
        }
        let page = page(&run);
        assert!(!page.contains("NaN") && !page.contains("inf\""));
        assert_eq!(throughput(String::new(), "a", &run).points, [(8.0, 10.0)]);
    }
}
