//! The picture of a file's reads as SVG: offset over time, latency over time, and its histogram.

use std::io::{self, Write};

use sonar_core::files::{Density, FilePattern};

use super::cells::buckets;
use super::grouped;
use crate::kit::{Count, Nanos, escape};

/// Height of the two smaller plots.
const LOW: usize = 160;

/// Writes the picture of a file's reads as SVG: time to the right, offset upwards, a cell the darker the
/// more reads it holds, its hue from blue (quick) to red (slow) by mean latency on a logarithmic scale.
///
/// # Errors
/// Those of `out`.
pub fn svg(density: &Density, pattern: &FilePattern, title: &str, mut out: impl Write) -> io::Result<()> {
    const CELL: usize = 3;
    let (columns, rows) = density.size();
    let (width, height) = (columns * CELL, rows * CELL);
    let (left, top) = (80, 30);
    let most = density.cells().map(|(.., count, _)| count).max().unwrap_or(1);
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let (low, high) = density
        .cells()
        .fold((u64::MAX, 0), |(low, high), (.., latency)| (low.min(latency), high.max(latency)));
    let scale = |value: f64, low: f64, high: f64| if high > low { (value - low) / (high - low) } else { 0.0 };
    let title: String = escape(title)
        .chars()
        .map(|c| match c {
            '<' => "&lt;".to_string(),
            '&' => "&amp;".to_string(),
            c => c.to_string(),
        })
        .collect();
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{left}" y="18">{title}</text>
<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>"##,
        left + width + 20,
        top + height + 50 + 2 * (LOW + 40),
    )?;
    for (column, row, count, latency) in density.cells() {
        let hue = 240.0 * (1.0 - scale(log(latency), log(low), log(high)));
        let opacity = 0.35 + 0.65 * scale(log(count), 0.0, log(most));
        writeln!(
            out,
            r#"<rect x="{}" y="{}" width="{CELL}" height="{CELL}" fill="hsl({hue:.0},85%,42%)" fill-opacity="{opacity:.2}"/>"#,
            left + column * CELL,
            top + height - (row + 1) * CELL,
        )?;
    }
    writeln!(
        out,
        r#"<text x="{}" y="{}" text-anchor="end">{}B</text><text x="{}" y="{}" text-anchor="end">0</text>
<text x="{left}" y="{}">0s</text><text x="{}" y="{}" text-anchor="end">{}</text>
<text x="{left}" y="{}">mean latency {} (blue) to {} (red); the darkest cell holds {} reads</text>"#,
        left - 6,
        top + 10,
        Count(density.length() as f64),
        left - 6,
        top + height,
        top + height + 16,
        left + width,
        top + height + 16,
        Nanos(density.span_ns()),
        top + height + 36,
        Nanos(if low == u64::MAX { 0 } else { low }),
        Nanos(high),
        grouped(most),
    )?;
    over_time(density, (left, top + height + 50, width), CELL, &mut out)?;
    histogram(pattern, (left, top + height + 50 + LOW + 40, width), &mut out)?;
    writeln!(out, "</svg>")
}

/// The frame of a smaller plot, with what it shows and its upper and lower bound.
fn frame(
    (left, top, width): (usize, usize, usize),
    what: &str,
    (low, high): (&str, &str),
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        r##"<rect x="{left}" y="{top}" width="{width}" height="{LOW}" fill="none" stroke="#999"/>
<text x="{left}" y="{}">{what}</text>
<text x="{}" y="{}" text-anchor="end">{high}</text><text x="{}" y="{}" text-anchor="end">{low}</text>"##,
        top + LOW + 16,
        left - 6,
        top + 10,
        left - 6,
        top + LOW,
    )
}

/// Median and 99th percentile of each column.
fn over_time(
    density: &Density,
    place: (usize, usize, usize),
    cell: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let quantiles: Vec<_> = density
        .latencies()
        .iter()
        .map(|column| Some([column.quantile_ns(0.5)?.max(1), column.quantile_ns(0.99)?.max(1)]))
        .collect();
    let known = || quantiles.iter().flatten();
    let (Some(low), Some(high)) = (known().map(|q| q[0]).min(), known().map(|q| q[1]).max()) else {
        return Ok(());
    };
    let (low, high) = (low, high.max(low + 1));
    let words = (Nanos(low).to_string(), Nanos(high).to_string());
    frame(place, "latency over time: median (blue), 99th percentile (red)", (&words.0, &words.1), out)?;
    let scale = (high as f64 / low as f64).ln();
    for (at, colour) in [(0, "#0b6bcb"), (1, "#c2410c")] {
        for (column, quantile) in quantiles.iter().enumerate() {
            let Some(quantile) = quantile else { continue };
            let up = ((quantile[at] as f64 / low as f64).ln() / scale * LOW as f64).clamp(0.0, LOW as f64);
            writeln!(
                out,
                r#"<circle cx="{:.1}" cy="{:.1}" r="1.6" fill="{colour}"/>"#,
                place.0 as f64 + (column as f64 + 0.5) * cell as f64,
                (place.1 + LOW) as f64 - up,
            )?;
        }
    }
    Ok(())
}

/// Bars of latency: from the page cache, from the device, not known which.
fn histogram(pattern: &FilePattern, place: (usize, usize, usize), out: &mut impl Write) -> io::Result<()> {
    let bars = buckets(pattern);
    let most = bars.iter().map(|bar| bar[1] + bar[2] + bar[3]).max().unwrap_or(0).max(1);
    frame(
        place,
        "histogram of latency: from the page cache (blue), from the device (red), not known (grey)",
        ("0", &Count(most as f64).to_string()),
        out,
    )?;
    let width = place.2 as f64 / bars.len().max(1) as f64;
    let step = (bars.len() * 60).div_ceil(place.2).max(1);
    for (at, bar) in bars.iter().enumerate() {
        let left = place.0 as f64 + at as f64 * width;
        let mut bottom = (place.1 + LOW) as f64;
        for (count, colour) in bar[1..].iter().zip(["#0b6bcb", "#c2410c", "#888899"]) {
            let height = *count as f64 / most as f64 * LOW as f64;
            bottom -= height;
            if *count > 0 {
                writeln!(
                    out,
                    r#"<rect x="{left:.1}" y="{bottom:.1}" width="{:.1}" height="{height:.1}" fill="{colour}"/>"#,
                    (width - 1.0).max(1.0),
                )?;
            }
        }
        if at % step == 0 {
            let (x, y) = (left + 1.0, place.1 + LOW + 30);
            writeln!(
                out,
                r##"<text x="{x:.1}" y="{y}" font-size="10" fill="#666">{}</text>"##,
                Nanos(bar[0])
            )?;
        }
    }
    Ok(())
}
