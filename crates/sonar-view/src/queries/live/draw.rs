//! What the live view looks like: header, rows, help.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use sonar_core::baseline::BaselineStatus;
use sonar_core::time::NS_PER_S;

use super::page::Page;
use super::palette::Palette;
use super::prompt::RowFilter;
use super::{App, detail, servers};
use crate::kit::{Brief, Count, HiddenContext, Nanos, escape, fit, or_unknown, plural, width, wrap};
use crate::queries::column::Column;
use crate::queries::layout::{Placed, place, push_cell};
use crate::queries::{NamespaceFilter, ReportRow, Selection, WindowReport, text};

/// Puts a line on the screen, cut at the right edge; nothing is drawn outside of `area`.
pub(super) fn put(buffer: &mut Buffer, area: Rect, row: usize, line: &Line<'_>) {
    let Ok(row) = u16::try_from(row) else { return };
    if row < area.height && area.width > 0 {
        buffer.set_line(area.x, area.y + row, line, area.width);
    }
}

impl App {
    /// Draws the view, at any size.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        draw(self, frame);
    }
}

fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let palette = Palette::new(app.settings.color);
    let buffer = frame.buffer_mut();
    let height = usize::from(area.height);
    let selection = app.selection().clone();
    // The window is taken out while drawing, so that the report can borrow from it.
    let is_past = app.past().is_some();
    let window = app.observed.slot().take();
    let report = window.as_ref().map(|window| {
        // Of the total, unless that is what is shown.
        let total = app.observed.total.as_ref().filter(|_| !is_past);
        let since_start = total.map_or(window.coverage, |total| total.coverage);
        WindowReport::new(window, &selection).explained(&since_start, &app.settings.origin)
    });

    // Rows come first: the header gives way on a low screen, the least important line first.
    let columns = usize::from(area.width);
    let header = header(app, report.as_ref(), columns, palette);
    let footer = if height < 10 { Vec::new() } else { footer(app, report.as_ref(), columns, palette) };
    let room = height.saturating_sub(4 + footer.len());
    let mut lines: Vec<(usize, Line<'_>)> = header.into_iter().enumerate().collect();
    let end = report.as_ref().map(|report| report.end);
    let (states, time) = app.observed.servers(end);
    let mut states = servers::lines(states, time, columns, palette);
    // Above the line that says what the rows are.
    states.truncate(room.saturating_sub(lines.len()));
    let above = lines.len() - 1;
    lines.splice(above..above, states.into_iter().map(|line| (above + 1, line)));
    while lines.len() > room {
        // Order of the lines: title, totals, by type, in flight, what is shown.
        const LEAST_IMPORTANT_FIRST: [usize; 5] = [2, 3, 0, 1, 4];
        let Some(go) = LEAST_IMPORTANT_FIRST.into_iter().find(|go| lines.iter().any(|(at, _)| at == go))
        else {
            break;
        };
        lines.retain(|(at, _)| *at != go);
    }
    for (row, (_, line)) in lines.iter().enumerate() {
        put(buffer, area, row, line);
    }
    if let (Some(problem), false) = (&app.problem, lines.is_empty()) {
        let problem = fit(&escape(problem), usize::from(area.width).saturating_sub(1));
        put(
            buffer,
            area,
            0,
            &Line::styled(format!(" {problem:width$}", width = usize::from(area.width)), palette.bad),
        );
    }
    let below = lines.len() as u16;
    let body =
        Rect { y: area.y + below, height: area.height.saturating_sub(below + footer.len() as u16), ..area };
    app.open.height = usize::from(body.height);
    match app.open.page {
        Page::Rows => match &report {
            Some(report) => rows(app, report, buffer, body),
            None => put(
                buffer,
                body,
                0,
                &Line::styled(" Listening: the first interval has not ended yet.", palette.dim),
            ),
        },
        Page::Detail { identity, scroll } => {
            let lines = detail::lines(app, window.as_ref(), identity, columns);
            page(app, &lines, scroll, |row, line| put(buffer, body, row, line));
        }
        Page::Help { scroll, .. } => {
            page(app, &help(columns, palette), scroll, |row, line| put(buffer, body, row, line))
        }
    }
    let first = height - footer.len();
    footer.iter().enumerate().for_each(|(at, line)| put(buffer, area, first + at, line));
    drop(report);
    *app.observed.slot() = window;
}

fn page(app: &mut App, lines: &[Line<'_>], scroll: usize, mut put: impl FnMut(usize, &Line<'_>)) {
    let first = app.open.place(lines.len(), scroll);
    for (row, line) in lines.iter().skip(first).take(app.open.height).enumerate() {
        put(row, line);
    }
}

/// What is not shown (where something is not), coverage, keys.
fn footer<'a>(
    app: &App,
    report: Option<&WindowReport<'_>>,
    columns: usize,
    palette: Palette,
) -> Vec<Line<'a>> {
    let hidden = report.and_then(|report| report.hidden.line(report.sample, HiddenContext::LiveView));
    let hidden = hidden
        .map(|line| Line::styled(format!(" {}", fit(&line, columns.saturating_sub(1))), palette.accent));
    hidden.into_iter().chain([coverage(app, report, columns, palette), keys(app, columns, palette)]).collect()
}

/// Title, totals, by type of command, in flight, what is shown.
fn header<'a>(
    app: &App,
    report: Option<&WindowReport<'_>>,
    columns: usize,
    palette: Palette,
) -> Vec<Line<'a>> {
    vec![
        title(app, report, columns, palette),
        totals(report, columns, palette),
        types(report, columns, palette),
        in_flight(report, columns, palette),
        shown(app, report, columns, palette),
    ]
}

fn title<'a>(app: &App, report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    let mut right = Vec::new();
    if let Some(report) = report {
        right.push(text::clock(report).get(11..).unwrap_or_default().to_string());
        let total = app.observed.total.as_ref().map(|total| total.start);
        let begin = total.or_else(|| app.observed.since_start.then_some(report.start));
        if let Some(first) = begin.filter(|_| app.past().is_none()) {
            let seconds = report.end.since(first) / NS_PER_S;
            let up = if seconds < 60 { format!("{seconds}s") } else { Nanos(seconds * NS_PER_S).to_string() };
            right.push(format!("up {up}"));
        }
    }
    if let Some(percent) = app.cost.cpu_percent {
        right.push(format!("cpu {percent:.1}%"));
    }
    if let Some(bytes) = app.cost.rss_bytes {
        right.push(format!("rss {}B", Count(bytes as f64)));
    }
    // The source gives way to nothing but the time.
    let source = escape(&app.settings.source).into_owned();
    let needs = |right: &[String]| right.iter().map(|text| width(text) + 2).sum::<usize>();
    while right.len() > 1 && 13 + width(&source) + needs(&right) > columns {
        right.pop();
    }
    let room = columns.saturating_sub(13 + needs(&right));
    let source = fit(&source, room);
    let fill = room.saturating_sub(width(&source));
    Line::from(vec![
        Span::styled(" mongosonar ", palette.strong),
        Span::styled(source, palette.accent),
        Span::raw(" ".repeat(fill)),
        Span::styled(right.iter().map(|text| format!("  {text}")).collect::<String>(), palette.dim),
    ])
}

fn totals<'a>(report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    let Some(report) = report else { return Line::default() };
    let (rates, strong) = (report.totals.rates, palette.strong);
    let shown = |ns: Option<u64>| or_unknown(ns.map(Nanos));
    let rate = |rate, unit| report.rate(rate, unit);
    let errors = if rates.errors.is_some_and(|rate| rate > 0.0) { palette.bad } else { strong };
    let figure = |before: &str, value: String, after: &str, style: Style| {
        palette.figure(before, Span::styled(value, style), after)
    };
    whole(
        [
            figure("", rate(rates.calls, ""), " queries per second", strong),
            figure("load ", rate(rates.load, ""), "", strong),
            figure("errors ", rate(rates.errors, "/s"), "", errors),
            figure("p50 ", shown(report.totals.quantiles.p50), "", strong),
            figure("p99 ", shown(report.totals.quantiles.p99), "", strong),
            figure("p99.9 ", shown(report.totals.quantiles.p999), "", strong),
            figure("in ", rate(rates.request_bytes, "B/s"), "", strong),
            figure("out ", rate(rates.response_bytes, "B/s"), "", strong),
        ],
        columns,
    )
}

/// Operations per second by type of command, in the widest layout in which all of them fit.
fn types<'a>(report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    let Some((rates, mark)) = report.and_then(|report| Some((text::type_rates(report)?, report.mark())))
    else {
        return Line::default();
    };
    let wide = rates.iter().map(|(name, rate)| {
        let rate = Span::styled(format!("{mark}{}", Count(*rate)), palette.strong);
        palette.figure(&format!("{name} "), rate, "/s")
    });
    // With the unit once, one space between figures and, if it is still too long, fewer digits.
    let narrow = |before: String, number: &dyn Fn(f64) -> String| {
        let mut spans = vec![Span::styled(before, palette.dim)];
        for (name, rate) in &rates {
            spans.push(Span::styled(format!(" {name} "), palette.dim));
            spans.push(Span::styled(number(*rate), palette.strong));
        }
        Line::from(spans)
    };
    let layouts = [
        Line::from(wide.flatten().collect::<Vec<_>>()),
        narrow(" /s:".to_owned(), &|rate| format!("{mark}{}", Count(rate))),
        narrow(format!(" {mark}/s:"), &|rate| Brief(rate).to_string()),
    ];
    // A space at the end may be cut.
    let fits = |line: &Line<'_>| line.to_string().trim_end().chars().count() <= columns;
    let [widest, narrower, narrowest] = layouts;
    if fits(&widest) {
        widest
    } else if fits(&narrower) {
        narrower
    } else {
        // The first span is the unit, then a name and a figure each.
        let mut spans = narrowest.spans.into_iter();
        let (unit, mut groups) = (spans.next().unwrap_or_default(), Vec::new());
        while let (Some(name), Some(figure)) = (spans.next(), spans.next()) {
            groups.push([name, figure]);
        }
        let mut line = whole(groups, columns.saturating_sub(unit.width()));
        line.spans.insert(0, unit);
        line
    }
}

/// As many groups of spans as fit whole, and at least the first: half a figure is a wrong one.
fn whole<'a, const N: usize>(groups: impl IntoIterator<Item = [Span<'a>; N]>, columns: usize) -> Line<'a> {
    let (mut line, mut used) = (Line::default(), 0);
    for group in groups {
        used += group.iter().map(Span::width).sum::<usize>();
        if used > columns + 1 && !line.spans.is_empty() {
            break;
        }
        line.spans.extend(group);
    }
    line
}

fn in_flight<'a>(report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    let Some(report) = report else { return Line::default() };
    let Some(waiting) = report.longest_waiting else {
        return Line::styled(" nothing in flight", palette.dim);
    };
    let count = report.totals.in_flight.map_or(0, |waiting| waiting.count);
    let count = format!("{}{}", report.mark(), Count(count as f64 * f64::from(report.sample)));
    // A query that takes longer than a person waits is worth a look.
    let style = if waiting.oldest_ns >= NS_PER_S { palette.warning } else { palette.strong };
    let what = format!(
        "{} {}  {}",
        waiting.shape.command,
        waiting.shape.namespace(),
        report.selection.form.of(&waiting.shape)
    );
    let mut spans = palette.figure("in flight ", Span::styled(count, palette.strong), ",").to_vec();
    spans.extend([
        Span::styled("oldest ", palette.dim),
        Span::styled(Nanos(waiting.oldest_ns).to_string(), style),
        Span::raw(" "),
    ]);
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::styled(fit(&what, columns.saturating_sub(used)), palette.plain));
    Line::from(spans)
}

fn coverage<'a>(app: &App, report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    let Some(report) = report else { return Line::default() };
    let seconds = Some(report.elapsed_ns as f64 / NS_PER_S as f64).filter(|seconds| *seconds > 0.0);
    let frames = seconds.map(|seconds| Count(report.coverage.frames as f64 / seconds));
    let rate = format!("  {} frames/s", or_unknown(frames));
    let room = columns.saturating_sub(1);
    let mut spans = vec![Span::raw(" ")];
    // Since the start: from the total, or from the report when that is the total.
    let total = app.observed.total.as_ref().filter(|_| app.past().is_none());
    let since_start = total.map_or(report.coverage, |total| &total.coverage);
    if report.coverage.losses().next().is_some() {
        spans.push(Span::styled(fit(&text::losses(report.coverage), room), palette.bad));
    } else if since_start.losses().next().is_some() {
        let text = format!("nothing lost now; since start {}", text::losses(since_start));
        spans.push(Span::styled(fit(&text, room), palette.warning));
    } else {
        spans.push(Span::styled(fit(&text::coverage(since_start), room), palette.good));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    if used + width(&rate) <= columns {
        spans.push(Span::styled(rate, palette.dim));
    }
    Line::from(spans)
}

fn shown<'a>(app: &App, report: Option<&WindowReport<'_>>, columns: usize, palette: Palette) -> Line<'a> {
    if let Some(prompt) = &app.prompt {
        let what = match prompt.what {
            RowFilter::Text => " filter: ",
            RowFilter::Namespace => " namespace: ",
        };
        return Line::from(vec![
            Span::styled(what, palette.accent),
            Span::styled(escape(&prompt.input).into_owned(), palette.strong),
            Span::styled("█", palette.plain),
            Span::styled("  Enter keeps, Esc forgets", palette.dim),
        ]);
    }
    let Selection { by, classes, role, sort, namespace, text, .. } = app.selection();
    let mut parts = vec![format!("by {}", by.name()), classes.label()];
    parts.extend(role.map(|role| role.name().to_string()));
    if let Some(report) = report {
        parts.push(app.observed.span(report.elapsed_ns, &report.selection.zone));
        parts.push(plural(report.rows_total, "row"));
        if report.selection.baseline.is_some() {
            let count = |since| {
                let is = |row: &&ReportRow<'_>| row.against.is_some_and(|one| one.status == since);
                report.rows.iter().filter(is).count()
            };
            parts.push(format!(
                "{} new, {} slower",
                count(BaselineStatus::New),
                count(BaselineStatus::Slower)
            ));
        }
    }
    let arrow = if sort.reverse { "reversed " } else { "" };
    parts.push(format!("{arrow}by {}", sort.column.name()).replacen("by", "sorted by", 1));
    let mut spans = Vec::new();
    if app.past().is_some() {
        spans.push(Span::styled(" PAST ", palette.warning.add_modifier(Modifier::REVERSED)));
    } else if app.observed.is_paused() {
        spans.push(Span::styled(" PAUSED ", palette.warning.add_modifier(Modifier::REVERSED)));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let parts = fit(&parts.join(" · "), columns.saturating_sub(used + 1));
    spans.push(Span::styled(format!(" {parts}"), palette.dim));
    if *namespace != NamespaceFilter::Any {
        spans.push(Span::styled(format!("  namespace {}", escape(namespace.text())), palette.accent));
    }
    if !text.is_empty() {
        spans.push(Span::styled(format!("  filter \"{}\"", escape(text)), palette.accent));
    }
    if let Some(sample) = report.map(|report| report.sample).filter(|sample| *sample > 1) {
        spans.push(Span::styled(format!("  sample 1/{sample}: figures with ~ are scaled"), palette.warning));
    }
    Line::from(spans)
}

fn rows(app: &mut App, report: &WindowReport<'_>, buffer: &mut Buffer, body: Rect) {
    let palette = Palette::new(app.settings.color);
    let columns = usize::from(body.width);
    let sort = report.selection.sort;
    let placed = place(report, Some(columns));
    let heading = placed.iter().enumerate().flat_map(|(at, placed)| {
        let style = if placed.column == sort.column { palette.sorted } else { palette.heading };
        let mut cell = String::new();
        push_cell(&mut cell, *placed, &placed.title(report));
        [Span::styled(if at == 0 { "" } else { " " }, palette.heading), Span::styled(cell, style)]
    });
    put(buffer, body, 0, &Line::from(heading.collect::<Vec<_>>()));

    let height = usize::from(body.height).saturating_sub(1);
    app.open.height = height;
    let [top, under] = app.cursor.place(report.rows.iter().map(|row| row.identity).collect(), height);
    if report.rows.is_empty() {
        for (at, line) in wrap(&text::empty(report), columns.saturating_sub(2)).into_iter().enumerate() {
            put(buffer, body, 1 + at, &Line::styled(format!(" {line}"), palette.plain));
        }
    }
    for (at, row) in report.rows.iter().enumerate().skip(top).take(height) {
        let selected = at == under;
        let cells = placed.iter().enumerate().flat_map(|(nth, placed)| {
            let mut cell = String::new();
            push_cell(&mut cell, *placed, &placed.cell(row, report));
            let style = if selected { palette.cursor } else { style_of(*placed, row, palette) };
            let between = if selected { palette.cursor } else { palette.plain };
            let cell = match placed.column {
                Column::Split if !selected => palette.split(&cell),
                _ => vec![Span::styled(cell, style)],
            };
            std::iter::once(Span::styled(if nth == 0 { "" } else { " " }, between)).chain(cell)
        });
        put(buffer, body, 1 + at - top, &Line::from(cells.collect::<Vec<_>>()));
    }
}

fn style_of(placed: Placed, row: &ReportRow<'_>, palette: Palette) -> Style {
    match placed.column {
        Column::Errors if row.stats.figures.error_count() > 0 => palette.bad,
        Column::Oldest if row.stats.in_flight.and_then(|w| w.oldest_ns).is_some_and(|ns| ns >= NS_PER_S) => {
            palette.warning
        }
        Column::Since => match row.against.map(|against| against.status) {
            Some(BaselineStatus::New) => palette.warning,
            Some(BaselineStatus::Slower) => palette.bad,
            _ => palette.dim,
        },
        Column::Command => palette.accent,
        Column::Load => palette.strong,
        Column::Docs
        | Column::In
        | Column::Out
        | Column::InFlight
        | Column::Server
        | Column::Role
        | Column::Class => palette.dim,
        _ => palette.plain,
    }
}

/// The last line: what the last key did, or which keys there are.
fn keys<'a>(app: &App, columns: usize, palette: Palette) -> Line<'a> {
    if let Some(notice) = &app.notice {
        return Line::styled(format!(" {}", fit(notice, columns.saturating_sub(1))), palette.accent);
    }
    let keys: &[(&str, &str)] = match app.open.page {
        Page::Rows => &[
            ("q", "quit"),
            ("?", "help"),
            ("Enter", "open"),
            ("b", "group by"),
            ("< >", "sort"),
            ("/", "filter"),
            ("n", "namespace"),
            ("c", "classes"),
            ("t", "span"),
            ("p", "pause"),
        ],
        _ => &[
            ("Esc", "back"),
            ("↑ ↓", "scroll"),
            ("y", "copy id"),
            ("t", "span"),
            ("p", "pause"),
            ("q", "quit"),
        ],
    };
    let past: &[(&str, &str)] = match (app.settings.has_past, app.past()) {
        (true, Some(_)) => &[("[ ]", "step"), ("N", "now")],
        (true, None) => &[("[", "past")],
        (false, _) => &[],
    };
    whole(
        past.iter().chain(keys).map(|(key, what)| {
            [Span::styled(format!(" {key}"), palette.strong), Span::styled(format!(" {what} "), palette.dim)]
        }),
        columns,
    )
}

/// The keys, as help and documentation show them.
pub const KEYS: [(&str, &str); 20] = [
    ("↑ ↓ PgUp PgDn Home End, k j g G", "move"),
    (
        "Enter",
        "open the row: text, histogram, applications, clients, errors; a namespace opens as its shapes",
    ),
    ("Esc", "back; removes filters; quits from the unfiltered list"),
    ("b", "group by shape, namespace, application, client"),
    ("< > or ← →", "sort by the column before, after"),
    ("w", "sort by the time that operations waited inside the server, with --split"),
    ("r", "reverse the order"),
    ("/", "filter by text: command, namespace, shape, shape id, name"),
    ("n", "filter by the beginning of the namespace"),
    ("c", "classes: user alone, or all"),
    ("o", "role: all, served, issued"),
    ("y", "copy the shape id, or the name of a row that is no shape, to the terminal's clipboard"),
    ("t", "look back over the last seconds, or to the start"),
    ("[ ]", "step to the stored window before, after, if an agent keeps a history"),
    ("N", "back to now, or to the newest stored window"),
    ("p or space", "pause: the screen stands still, counting continues"),
    ("? or h", "help"),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-U", "clear the filter being typed"),
    ("q, Ctrl-C", "quit; a summary follows"),
];

/// The fewest columns beside names in which meanings can be read.
const MEANING: usize = 30;

fn help<'a>(columns: usize, palette: Palette) -> Vec<Line<'a>> {
    let entry = |name: &str, meaning: &str, room: usize| {
        if columns < room + MEANING {
            let name = fit(name, columns.saturating_sub(2));
            let name = Line::styled(format!("  {name}"), palette.strong);
            let meaning = wrap(meaning, columns.saturating_sub(4));
            let meaning = meaning.into_iter().map(|part| Line::styled(format!("    {part}"), palette.plain));
            return std::iter::once(name).chain(meaning).collect::<Vec<_>>();
        }
        let parts = wrap(meaning, columns.saturating_sub(room + 5));
        let line = |(at, part): (usize, String)| {
            let name = if at == 0 { name } else { "" };
            Line::from(vec![
                Span::styled(format!("  {name:room$}  "), palette.strong),
                Span::styled(part, palette.plain),
            ])
        };
        parts.into_iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let mut lines = vec![Line::styled(" Keys", palette.accent)];
    lines.extend(KEYS.iter().flat_map(|(key, meaning)| entry(key, meaning, 31)));
    lines.extend([Line::default(), Line::styled(" Columns", palette.accent)]);
    lines.extend(text::legend().flat_map(|(_, title, meaning)| entry(title, meaning, 11)));
    lines.push(Line::default());
    let last = "A figure that is not known is shown as -. What is lost on the way is counted in the header.";
    let last = wrap(last, columns.saturating_sub(1));
    lines.extend(last.into_iter().map(|part| Line::styled(format!(" {part}"), palette.dim)));
    lines
}
