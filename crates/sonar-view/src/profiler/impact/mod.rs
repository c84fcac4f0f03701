//! What profiling costs, as it was measured: a table, a chart, a verdict; for the terminal, as SVG, and as JSON,
//! which the web page draws.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::impact::{BUCKET_NS, Cell, Counters, LongRun, Loss, Run, Slice, Variant, Verdict};
use sonar_core::time::NS_PER_S;

use crate::kit::About;
use crate::kit::{Count, Nanos, Size, UNKNOWN, escape, or_unknown};
use crate::profiler::status::align;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 1;

/// Where and when something was measured.
#[derive(Copy, Clone, Debug, Default)]
pub struct Site<'a> {
    /// The server: product, version and address.
    pub server: &'a str,
    /// Its host, where it says so.
    pub host: Option<&'a str>,
    /// When it began, nanoseconds since 1970.
    pub started_ns: u64,
}

impl Site<'_> {
    fn about(&self) -> About {
        About::new(self.host.map(str::to_owned), vec![self.server.to_owned()])
    }
}

/// What was measured, where, and how.
#[derive(Copy, Clone, Debug)]
pub struct Report<'a> {
    /// Where and when.
    pub site: Site<'a>,
    /// Documents in the table.
    pub documents: u32,
    /// The measurement.
    pub run: &'a Run,
}

/// A loss that is worth no thought, as a share.
const SMALL: f64 = 0.05;
/// Share of its time from which on something is said to be full.
const FULL: f64 = 0.9;
/// Columns of a chart in a terminal.
const CHART: usize = 60;
/// Colours of the settings, told apart by people who see few colours too (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"];

/// Writes the tables, the chart and the verdicts.
///
/// # Errors
/// Those of `out`.
pub fn text(report: &Report<'_>, mut out: impl Write) -> io::Result<()> {
    let (run, cells) = (report.run, report.run.cells());
    writeln!(out, "{}", title(report))?;
    writeln!(out)?;
    align(&table(run, &cells), &mut out)?;
    writeln!(out)?;
    align(&beside(run, &cells), &mut out)?;
    writeln!(
        out,
        "\nThroughput over time (the slices of each level one after another; full height: the most of all)"
    )?;
    chart(run, &mut out)?;
    writeln!(out)?;
    for line in verdicts(run) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}", bottleneck(run, &cells))
}

fn title(report: &Report<'_>) -> String {
    let run = report.run;
    let slice = run.slices.first().map_or(0, |slice| slice.length_ns);
    let rounds = run.slices.iter().map(|slice| slice.round + 1).max().unwrap_or(0);
    format!(
        "Impact of profiling on {}: OLTP mix on {} documents, {rounds} rounds of {} for each level and number of clients, in alternation",
        escape(report.site.server),
        report.documents,
        Nanos(slice),
    )
}

fn table(run: &Run, cells: &[Cell]) -> Vec<Vec<String>> {
    let interval = format!("{:.0}% sure", run.confidence * 100.0);
    let heading = ["clients", "level", "ops/s", "loss", &interval, "p50", "p95", "p99", "max", ""];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    for cell in cells {
        let quantile = |q| or_unknown(cell.latency.quantile_ns(q).map(Nanos));
        lines.push(vec![
            cell.clients.to_string(),
            name(run, cell.variant),
            Count(cell.throughput).to_string(),
            cell.loss.map_or_else(String::new, |loss| percent(loss.share)),
            cell.loss
                .map_or_else(String::new, |loss| format!("{} to {}", percent(loss.low), percent(loss.high))),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            or_unknown(cell.latency.max_ns().map(Nanos)),
            match cell.loss {
                Some(loss) if loss.differs() => "different",
                Some(_) => "no difference",
                None => "",
            }
            .to_owned(),
        ]);
    }
    lines
}

/// What was used beside it.
fn beside(run: &Run, cells: &[Cell]) -> Vec<Vec<String>> {
    let heading = [
        "clients",
        "level",
        "server cpu",
        "load cpu",
        "host cpu",
        "disk",
        "written/s",
        "log/s",
        "lock waits/s",
        "lock wait/s",
    ];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    for cell in cells {
        let used = Used::of(run, &cell.used, cell.length_ns);
        let share = |share: Option<f64>| or_unknown(share.map(|share| format!("{:.0}%", share * 100.0)));
        let rate = |rate: Option<f64>| or_unknown(rate.map(Count));
        let bytes =
            |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{}B", Count(rate)));
        lines.push(vec![
            cell.clients.to_string(),
            name(run, cell.variant),
            share(used.server),
            share(used.load),
            share(used.host),
            share(used.disk),
            bytes(used.written),
            bytes(used.log),
            rate(used.lock_waits),
            or_unknown(used.lock_wait_ns.map(|ns| Nanos(ns as u64))),
        ]);
    }
    lines
}

/// Counters as shares and rates.
#[derive(Copy, Clone, Debug)]
struct Used {
    /// Of one processor.
    server: Option<f64>,
    /// Of one processor.
    load: Option<f64>,
    /// Of all processors.
    host: Option<f64>,
    /// Of its time.
    disk: Option<f64>,
    written: Option<f64>,
    log: Option<f64>,
    lock_waits: Option<f64>,
    lock_wait_ns: Option<f64>,
}

impl Used {
    fn of(run: &Run, used: &Counters, length_ns: u64) -> Self {
        let length = length_ns.max(1) as f64;
        let share = |ns: Option<u64>| ns.map(|ns| ns as f64 / length);
        let rate = |count: Option<u64>| count.map(|count| count as f64 * NS_PER_S as f64 / length);
        Self {
            server: share(used.server_cpu_ns),
            load: share(used.client_cpu_ns),
            host: share(used.host_busy_ns)
                .zip(run.processors)
                .map(|(busy, processors)| (busy / f64::from(processors.max(1))).min(1.0)),
            disk: share(used.disk_busy_ns).map(|busy| busy.min(1.0)),
            written: rate(used.written_bytes),
            log: rate(used.log_bytes),
            lock_waits: rate(used.lock_waits),
            lock_wait_ns: rate(used.lock_wait_us).map(|us| us * 1_000.0),
        }
    }
}

/// The name of a setting; one that is measured against itself is told apart.
fn name(run: &Run, variant: usize) -> String {
    let Some(this) = run.variants.get(variant) else { return UNKNOWN.to_owned() };
    let before = run.variants.iter().take(variant).filter(|other| *other == this).count();
    if before > 0 { format!("{this} again") } else { this.to_string() }
}

fn counted(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

fn percent(share: f64) -> String {
    // Not "-0.0%".
    let value = (share * 1_000.0).round() / 10.0;
    format!("{:.1}%", if value == 0.0 { 0.0 } else { value })
}

fn chart(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let most = run.slices.iter().map(Slice::throughput).fold(0.0, f64::max);
    let mut lines = Vec::new();
    for clients in run.clients() {
        for variant in 0..run.variants.len() {
            let series: Vec<f64> = run
                .slices
                .iter()
                .filter(|slice| slice.clients == clients && slice.variant == variant)
                .flat_map(rates)
                .collect();
            lines.push(vec![clients.to_string(), name(run, variant), spark(&series, most, CHART)]);
        }
    }
    align(&lines, out)
}

/// Operations a second in each bucket that was whole.
fn rates(slice: &Slice) -> impl Iterator<Item = f64> + '_ {
    let whole = (slice.length_ns / BUCKET_NS) as usize;
    slice.buckets.iter().take(whole.max(1)).map(|count| *count as f64 * (NS_PER_S / BUCKET_NS) as f64)
}

/// A series in at most `columns` characters.
fn spark(series: &[f64], most: f64, columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let per = series.len().div_ceil(columns.max(1)).max(1);
    let bar = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        let height = if most > 0.0 { mean / most * 8.0 } else { 0.0 };
        BARS[(height.ceil() as usize).clamp(1, 8) - 1]
    };
    series.chunks(per).map(bar).collect()
}

/// What to think of each setting, a line each.
pub fn verdicts(run: &Run) -> Vec<String> {
    (1..run.variants.len()).map(|variant| verdict(run, variant)).collect()
}

fn verdict(run: &Run, variant: usize) -> String {
    let (this, first) = (name(run, variant), name(run, 0));
    let sure = format!("{:.0}%", run.confidence * 100.0);
    match run.verdict(variant) {
        Verdict::Unknown => {
            format!("Level {this} against {first}: too few rounds to tell; at least 3 are wanted.")
        }
        Verdict::NoDifference { unseen } => format!(
            "Level {this} against {first}: no difference. A loss above {} would have been seen ({sure} sure).{}",
            percent(unseen),
            if run.variants.get(variant) == run.variants.first() {
                " It is the same setting twice: this is what the measurement itself is worth here."
            } else if unseen > SMALL {
                " More rounds, or a quieter machine, would tell more."
            } else {
                " It may stay on."
            }
        ),
        Verdict::Gain(_) => format!(
            "Level {this} against {first}: faster, which profiling does not do: something else on the machine changed. Measure again."
        ),
        Verdict::Loss(loss) => {
            let where_ = run
                .cells()
                .iter()
                .find(|cell| cell.variant == variant && cell.loss == Some(loss))
                .map_or_else(String::new, |cell| format!(" with {}", counted(cell.clients)));
            format!(
                "Level {this} against {first}: up to {} less throughput{where_} (between {} and {}, {sure} sure). {}",
                percent(loss.share),
                percent(loss.low),
                percent(loss.high),
                advice(run.variants.get(variant).copied(), &loss),
            )
        }
    }
}

fn advice(variant: Option<Variant>, loss: &Loss) -> &'static str {
    match variant {
        Some(Variant { level: 1, .. }) if loss.share < SMALL => "It may stay on; a higher slowms costs less.",
        Some(Variant { level: 1, .. }) => {
            "Set slowms so that fewer operations are slow, keep a share of them with --sample-rate, or choose with --filter."
        }
        Some(Variant { rate_limit: Some(_), .. }) if loss.share < SMALL => "It may stay on.",
        _ if loss.share < SMALL => "Affordable for minutes: `profiler set --level 2 --duration 60s`.",
        _ => {
            "Not while the server is near its limit: use level 1 with --slowms or --filter, Percona's --rate-limit, or seconds of it with `profiler set --level 2 --duration 10s`."
        }
    }
}

/// What was full, and what was not, without profiling.
fn bottleneck(run: &Run, cells: &[Cell]) -> String {
    let base =
        cells.iter().filter(|cell| cell.variant == 0).max_by(|a, b| a.throughput.total_cmp(&b.throughput));
    let Some(cell) = base else { return String::new() };
    let used = Used::of(run, &cell.used, cell.length_ns);
    let percent =
        |share: Option<f64>| share.map_or_else(|| "not known".to_owned(), |s| format!("{:.0}%", s * 100.0));
    let found = match (used.host, used.disk) {
        (Some(host), _) if host >= FULL => {
            let mut text = format!("the processors were full ({})", percent(used.host));
            if let (Some(load), Some(processors)) = (used.load, run.processors) {
                let _ = write!(
                    text,
                    ", of which this program's load took {:.0}%: from another machine the server would do more",
                    load / f64::from(processors.max(1)) * 100.0
                );
            }
            text
        }
        (_, Some(disk)) if disk >= FULL => format!("the disk was full ({})", percent(used.disk)),
        (None, None) => "what the machine of the server did is not known from here".to_owned(),
        _ => format!(
            "neither processors ({}) nor disk ({}) were full: waiting for each other, for locks or for the network",
            percent(used.host),
            percent(used.disk)
        ),
    };
    format!(
        "Most throughput at level {}: {} ops/s with {}; {found}.",
        name(run, 0),
        Count(cell.throughput),
        counted(cell.clients)
    )
}

#[derive(Serialize)]
struct JsonCell<'a> {
    clients: u32,
    level: i32,
    rate_limit: Option<i64>,
    name: &'a str,
    throughput: f64,
    operations: u64,
    measured_ns: u64,
    loss: Option<f64>,
    loss_low: Option<f64>,
    loss_high: Option<f64>,
    differs: Option<bool>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
    load_cpu_ns: Option<u64>,
    host_busy_ns: Option<u64>,
    disk_busy_ns: Option<u64>,
    written_bytes: Option<u64>,
    log_bytes: Option<u64>,
    lock_waits: Option<u64>,
    lock_wait_us: Option<u64>,
}

#[derive(Serialize)]
struct JsonSlice {
    clients: u32,
    variant: usize,
    round: usize,
    start_ns: u64,
    length_ns: u64,
    operations: u64,
    bucket_ns: u64,
    buckets: Vec<u64>,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    schema: u32,
    kind: &'static str,
    about: About,
    started_ns: u64,
    server: &'a str,
    documents: u32,
    confidence: f64,
    processors: Option<u32>,
    /// The settings, by the number that slices give them.
    variants: &'a [String],
    cells: Vec<JsonCell<'a>>,
    verdicts: Vec<String>,
    bottleneck: String,
    slices: Vec<JsonSlice>,
}

/// Writes all as one JSON object; names and meanings are in `docs/profiler.md`.
///
/// # Errors
/// Those of `out`.
pub fn json(report: &Report<'_>, out: impl Write) -> io::Result<()> {
    let run = report.run;
    let cells = run.cells();
    let names: Vec<String> = (0..run.variants.len()).map(|variant| name(run, variant)).collect();
    let cell = |cell: &Cell| {
        let variant = run.variants.get(cell.variant);
        JsonCell {
            clients: cell.clients,
            level: variant.map_or(0, |variant| variant.level),
            rate_limit: variant.and_then(|variant| variant.rate_limit),
            name: names.get(cell.variant).map_or(UNKNOWN, String::as_str),
            throughput: cell.throughput,
            operations: cell.operations,
            measured_ns: cell.length_ns,
            loss: cell.loss.map(|loss| loss.share),
            loss_low: cell.loss.map(|loss| loss.low),
            loss_high: cell.loss.map(|loss| loss.high),
            differs: cell.loss.map(|loss| loss.differs()),
            p50_ns: cell.latency.quantile_ns(0.5),
            p95_ns: cell.latency.quantile_ns(0.95),
            p99_ns: cell.latency.quantile_ns(0.99),
            max_ns: cell.latency.max_ns(),
            server_cpu_ns: cell.used.server_cpu_ns,
            load_cpu_ns: cell.used.client_cpu_ns,
            host_busy_ns: cell.used.host_busy_ns,
            disk_busy_ns: cell.used.disk_busy_ns,
            written_bytes: cell.used.written_bytes,
            log_bytes: cell.used.log_bytes,
            lock_waits: cell.used.lock_waits,
            lock_wait_us: cell.used.lock_wait_us,
        }
    };
    let slices = run.slices.iter().map(|slice| JsonSlice {
        clients: slice.clients,
        variant: slice.variant,
        round: slice.round,
        start_ns: slice.start_ns,
        length_ns: slice.length_ns,
        operations: slice.operations,
        bucket_ns: BUCKET_NS,
        buckets: slice.buckets.clone(),
    });
    let object = JsonReport {
        schema: SCHEMA,
        kind: "profiler_impact",
        about: report.site.about(),
        started_ns: report.site.started_ns,
        server: report.site.server,
        documents: report.documents,
        confidence: run.confidence,
        processors: run.processors,
        variants: &names,
        cells: cells.iter().map(cell).collect(),
        verdicts: verdicts(run),
        bottleneck: bottleneck(run, &cells),
        slices: slices.collect(),
    };
    crate::kit::json::line(&object, out)
}

/// Size of a chart in pixels.
const SIZE: (f64, f64) = (960.0, 420.0);
/// Room around the plot: left, top, right, bottom.
const ROOM: (f64, f64, f64, f64) = (64.0, 56.0, 16.0, 44.0);

/// A plot with its axes.
struct Plot {
    svg: String,
    seconds: f64,
    most: f64,
}

impl Plot {
    fn new(title: &str, seconds: f64, most: f64) -> Self {
        let (seconds, most) = (seconds.max(0.001), nice(most));
        let (width, height) = SIZE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" aria-label=\"{title}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
             <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{}\" y=\"18\" font-size=\"14\" font-weight=\"600\">{title}</text>\n",
            ROOM.0,
            title = markup(title),
        );
        for part in 0..=4 {
            let value = most * f64::from(part) / 4.0;
            let y = y(value, most);
            let _ = write!(
                svg,
                "<line x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                ROOM.0,
                width - ROOM.2,
                ROOM.0 - 6.0,
                y + 4.0,
                Count(value),
            );
        }
        for part in 0..=6 {
            let at = seconds * f64::from(part) / 6.0;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x(at, seconds),
                height - ROOM.3 + 18.0,
                Nanos((at * NS_PER_S as f64) as u64),
            );
        }
        let _ = writeln!(svg, "<text x=\"6\" y=\"{}\">ops/s</text>", ROOM.1 - 8.0);
        Self { svg, seconds, most }
    }

    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
        let mut path = String::new();
        for (at, value) in points {
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if path.is_empty() { 'M' } else { 'L' },
                x(at, self.seconds),
                y(value, self.most)
            );
        }
        let _ =
            writeln!(self.svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>");
    }

    fn mark(&mut self, at: f64, label: &str, colour: &str) {
        let (x, bottom) = (x(at, self.seconds), SIZE.1 - ROOM.3);
        let _ = write!(
            self.svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" fill=\"{colour}\">{}</text>\n",
            ROOM.1,
            x + 4.0,
            ROOM.1 - 8.0,
            markup(label),
        );
    }

    fn key(&mut self, at: usize, label: &str, colour: &str) {
        let x = ROOM.0 + 130.0 * at as f64;
        let bottom = SIZE.1 - 6.0;
        let _ = write!(
            self.svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\n<text x=\"{}\" y=\"{bottom}\">{}</text>\n",
            bottom - 6.0,
            x + 20.0,
            markup(label)
        );
    }

    fn end(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

fn x(at: f64, seconds: f64) -> f64 {
    ROOM.0 + (SIZE.0 - ROOM.0 - ROOM.2) * at / seconds
}

fn y(value: f64, most: f64) -> f64 {
    ROOM.1 + (SIZE.1 - ROOM.1 - ROOM.3) * (1.0 - value / most)
}

/// The next number of 1, 2, 4, 6, 8 and a power of ten that is at least this.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|n| *n >= value)
        .unwrap_or(power * 10.0)
}

fn markup(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn colour(variant: usize) -> &'static str {
    COLOURS[variant % COLOURS.len()]
}

/// The chart of throughput over time, one colour a level, a mark where the number of clients changes.
pub fn svg(report: &Report<'_>) -> String {
    let run = report.run;
    let seconds = |ns: u64| ns as f64 / NS_PER_S as f64;
    // The time that no slice covers (filling, settling) is left out: slices stand side by side.
    let mut at = 0.0;
    let mut placed = Vec::with_capacity(run.slices.len());
    for slice in &run.slices {
        placed.push((at, slice));
        at += seconds(slice.length_ns);
    }
    let most = run.slices.iter().flat_map(rates).fold(0.0, f64::max);
    let mut plot = Plot::new("Throughput over time, by profiling level", at, most);
    let mut clients = None;
    for (at, slice) in placed {
        if clients != Some(slice.clients) {
            clients = Some(slice.clients);
            let label = if slice.clients == 1 { counted(1) } else { slice.clients.to_string() };
            plot.mark(at, &label, "#999");
        }
        let bucket = seconds(BUCKET_NS);
        let points = rates(slice).enumerate().map(|(n, rate)| (at + (n as f64 + 0.5) * bucket, rate));
        plot.line(points, colour(slice.variant));
    }
    for variant in 0..run.variants.len() {
        plot.key(variant, &format!("level {}", name(run, variant)), colour(variant));
    }
    plot.end()
}

/// Writes what a long run showed: throughput over time, the moment of the wrap, before against after.
///
/// # Errors
/// Those of `out`.
pub fn long_text(server: &str, long: &LongRun, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}", long_title(server, long))?;
    let series: Vec<f64> = long.seconds.iter().map(|n| *n as f64).collect();
    let most = series.iter().copied().fold(0.0, f64::max);
    writeln!(out, "{}  most {} ops/s", spark(&series, most, CHART), Count(most))?;
    if let (Some(ns), false) = (long.wrapped_ns, series.is_empty()) {
        let per = series.len().div_ceil(CHART).max(1);
        let column = (ns / NS_PER_S) as usize / per;
        writeln!(out, "{}^ system.profile wraps from here on", " ".repeat(column))?;
    }
    writeln!(out, "{}", long_verdict(long))
}

fn long_title(server: &str, long: &LongRun) -> String {
    format!(
        "Long run on {}: level {}, {}, {} s",
        escape(server),
        long.variant.map_or_else(|| UNKNOWN.to_owned(), |variant| variant.to_string()),
        counted(long.clients),
        long.seconds.len(),
    )
}

fn long_verdict(long: &LongRun) -> String {
    let size = or_unknown(long.profile_bytes.map(Size));
    let Some(ns) = long.wrapped_ns else {
        return format!("system.profile ({size}) did not wrap in this time; a smaller --size wraps sooner.");
    };
    let at = format!("system.profile ({size}) was full and began to wrap after {}", Nanos(ns));
    match long.loss() {
        None => format!("{at}; too little was measured before or after it to compare."),
        Some(loss) if !loss.differs() => format!(
            "{at}. Before and after: no difference; a loss above {} would have been seen ({:.0}% sure).",
            percent(loss.high.max(0.0)),
            long.confidence * 100.0
        ),
        Some(loss) => format!(
            "{at}. After it throughput was {} {} (between {} and {}, {:.0}% sure).",
            percent(loss.share.abs()),
            if loss.share > 0.0 { "lower" } else { "higher" },
            percent(loss.low.abs().min(loss.high.abs())),
            percent(loss.low.abs().max(loss.high.abs())),
            long.confidence * 100.0
        ),
    }
}

#[derive(Serialize)]
struct JsonLong<'a> {
    schema: u32,
    kind: &'static str,
    about: About,
    started_ns: u64,
    server: &'a str,
    clients: u32,
    level: Option<i32>,
    seconds: &'a [u64],
    wrapped_ns: Option<u64>,
    profile_bytes: Option<u64>,
    loss: Option<f64>,
    loss_low: Option<f64>,
    loss_high: Option<f64>,
    differs: Option<bool>,
    verdict: String,
}

/// Writes a long run as one JSON object; names and meanings are in `docs/profiler.md`.
///
/// # Errors
/// Those of `out`.
pub fn long_json(site: &Site<'_>, long: &LongRun, out: impl Write) -> io::Result<()> {
    let loss = long.loss();
    let object = JsonLong {
        schema: SCHEMA,
        kind: "profiler_impact_long",
        about: site.about(),
        started_ns: site.started_ns,
        server: site.server,
        clients: long.clients,
        level: long.variant.map(|variant| variant.level),
        seconds: &long.seconds,
        wrapped_ns: long.wrapped_ns,
        profile_bytes: long.profile_bytes,
        loss: loss.map(|loss| loss.share),
        loss_low: loss.map(|loss| loss.low),
        loss_high: loss.map(|loss| loss.high),
        differs: loss.map(|loss| loss.differs()),
        verdict: long_verdict(long),
    };
    crate::kit::json::line(&object, out)
}

/// The chart of a long run, with the wrap marked.
pub fn long_svg(long: &LongRun) -> String {
    let most = long.seconds.iter().max().copied().unwrap_or(0) as f64;
    let mut plot = Plot::new("Throughput over time", long.seconds.len() as f64, most);
    plot.line(long.seconds.iter().enumerate().map(|(at, n)| (at as f64 + 0.5, *n as f64)), COLOURS[0]);
    if let Some(ns) = long.wrapped_ns {
        plot.mark(ns as f64 / NS_PER_S as f64, "system.profile wraps", COLOURS[2]);
    }
    plot.end()
}

#[cfg(test)]
mod tests {
    use sonar_core::Histogram;
    use sonar_core::impact::SplitMix64;

    use super::*;

    fn run(loss: f64) -> Run {
        let variants = vec![Variant { level: 0, rate_limit: None }, Variant { level: 2, rate_limit: None }];
        let mut run = Run { variants, confidence: 0.95, processors: Some(2), ..Run::default() };
        let mut lot = SplitMix64(5);
        for clients in [1, 4] {
            for round in 0..6 {
                for variant in 0..2 {
                    let share = if variant == 1 { 1.0 - loss } else { 1.0 };
                    let operations = (f64::from(clients) * 1_000.0 * share) as u64 + lot.below(20);
                    let mut latency = Histogram::new();
                    latency.record(1_000_000);
                    run.slices.push(Slice {
                        clients,
                        variant,
                        round,
                        start_ns: run.slices.len() as u64 * NS_PER_S,
                        length_ns: NS_PER_S,
                        operations,
                        buckets: vec![operations / 4; 4],
                        latency,
                        used: Counters {
                            host_busy_ns: Some(NS_PER_S),
                            client_cpu_ns: Some(NS_PER_S / 2),
                            log_bytes: (variant == 1).then_some(300_000),
                            ..Counters::default()
                        },
                    });
                }
            }
        }
        run
    }

    fn site(server: &str) -> Site<'_> {
        Site { server, ..Site::default() }
    }

    fn shown(run: &Run) -> String {
        let mut out = Vec::new();
        text(&Report { site: site("MongoDB 7.0.5 at a:27017"), documents: 100, run }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_person_reads_the_loss_its_interval_and_what_to_do() {
        insta::assert_snapshot!(shown(&run(0.3)));
    }

    #[test]
    fn nothing_against_nothing_says_no_difference() {
        let mut run = run(0.0);
        run.variants[1].level = 0;
        let text = shown(&run);
        assert!(text.contains("Level 0 again against 0: no difference"), "{text}");
        assert!(!text.contains("different\n") || text.contains("no difference"), "{text}");
    }

    #[test]
    fn the_pictures_are_well_formed_and_hold_every_slice() {
        let run = run(0.3);
        let report = Report { site: site("MongoDB 7.0.5 at a:27017"), documents: 100, run: &run };
        let svg = svg(&report);
        assert_eq!(svg.matches("<path").count(), run.slices.len());
        assert!(svg.contains("4</text>") && svg.contains("level 2</text>"));
        let mut out = Vec::new();
        json(&report, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["variants"], serde_json::json!(["0", "2"]));
        assert!(document["bottleneck"].as_str().unwrap().starts_with("Most throughput at level 0"));
        let long = LongRun {
            clients: 4,
            variant: Some(run.variants[1]),
            seconds: (0..40).map(|s| if s < 20 { 1_000 + s % 3 } else { 800 + s % 3 }).collect(),
            wrapped_ns: Some(20 * NS_PER_S),
            profile_bytes: Some(1 << 20),
            confidence: 0.95,
        };
        assert!(long_svg(&long).contains("system.profile wraps"));
        let mut out = Vec::new();
        long_text("MongoDB", &long, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("(1MiB) was full and began to wrap after 20.0s. After it throughput was 2"),
            "{text}"
        );
        assert!(text.contains("% lower"), "{text}");
        let mut out = Vec::new();
        long_json(&site("a"), &long, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&document["kind"], &document["wrapped_ns"]),
            (&"profiler_impact_long".into(), &20_000_000_000u64.into())
        );
    }

    #[test]
    fn a_run_without_slices_shows_nothing_and_does_not_fail() {
        let empty = Run::default();
        let report = Report { site: Site::default(), documents: 0, run: &empty };
        text(&report, Vec::new()).unwrap();
        assert!(svg(&report).ends_with("</svg>\n"));
        json(&report, Vec::new()).unwrap();
        long_text("", &LongRun::default(), Vec::new()).unwrap();
        assert!(long_svg(&LongRun::default()).ends_with("</svg>\n"));
    }
}
