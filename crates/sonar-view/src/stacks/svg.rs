//! A flame graph as a picture: one self-contained SVG file, without scripts.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::formats::path;
use super::report::StackReport;
use crate::kit::{Percent, escape, fit, plural};

/// Width of the picture and height of a row, in pixels.
const WIDTH: f64 = 1_200.0;
const ROW: f64 = 17.0;
/// Room above the boxes.
const TOP: f64 = 40.0;
/// Width of a character, about.
const CHARACTER: f64 = 6.6;
/// Narrower boxes are left out, in pixels.
const NARROWEST: f64 = 0.3;

/// A box: samples, and the boxes above it.
#[derive(Default)]
struct FlameBox {
    samples: u64,
    above: BTreeMap<String, FlameBox>,
}

impl FlameBox {
    fn add(&mut self, path: &[String], samples: u64) {
        let mut node = self;
        node.samples += samples;
        for name in path {
            node = node.above.entry(name.clone()).or_default();
            node.samples += samples;
        }
    }

    fn height(&self, unit: f64) -> usize {
        let wide = self.above.values().filter(|node| node.samples as f64 * unit >= NARROWEST);
        1 + wide.map(|node| node.height(unit)).max().unwrap_or(0)
    }
}

/// Writes the picture: the root at the bottom, functions by name, the width of a box as its share of samples. The pointer
/// shows a box in full.
///
/// # Errors
/// Those of `out`.
pub fn svg(report: &StackReport, mut out: impl Write) -> io::Result<()> {
    let mut root = FlameBox::default();
    for row in &report.stacks {
        root.add(&path(row, report.full_names), row.samples);
    }
    let unit = WIDTH / root.samples.max(1) as f64;
    let rows = root.height(unit);
    let height = TOP + ROW * (rows as f64 + 1.0);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">"#
    )?;
    writeln!(out, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##)?;
    let title = format!("{} {}: {}", report.process.name, report.process.pid, plural(report.shown, "sample"));
    writeln!(out, r#"<text x="8" y="24" font-size="15">{}</text>"#, text(&title))?;
    let mut picture = FlamePicture { out, unit, bottom: height - ROW, all: root.samples };
    picture.node("all", &root, 0.0, 0)?;
    writeln!(picture.out, "</svg>")?;
    picture.out.flush()
}

struct FlamePicture<W> {
    out: W,
    unit: f64,
    bottom: f64,
    all: u64,
}

impl<W: Write> FlamePicture<W> {
    /// Draws a box and those above it; `left` is its left edge.
    fn node(&mut self, name: &str, node: &FlameBox, left: f64, row: usize) -> io::Result<()> {
        let width = node.samples as f64 * self.unit;
        if width < NARROWEST {
            return Ok(());
        }
        let top = self.bottom - ROW * (row as f64 + 1.0);
        let share = Percent(node.samples as f64 / self.all.max(1) as f64);
        writeln!(
            self.out,
            r##"<g><title>{} ({}, {share:.1})</title><rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" rx="1" fill="{}"/>"##,
            text(name),
            plural(node.samples, "sample"),
            (width - 0.4).max(0.2),
            ROW - 1.0,
            color(name),
        )?;
        let characters = ((width - 6.0) / CHARACTER).max(0.0) as usize;
        if characters >= 3 {
            let label = fit(escape(name).as_ref(), characters);
            writeln!(
                self.out,
                r#"<text x="{:.1}" y="{:.1}">{}</text>"#,
                left + 3.0,
                top + 12.0,
                xml(&label)
            )?;
        }
        writeln!(self.out, "</g>")?;
        let mut at = left;
        for (name, above) in &node.above {
            self.node(name, above, at, row + 1)?;
            at += above.samples as f64 * self.unit;
        }
        Ok(())
    }
}

/// Wait classes are blue, WiredTiger is green, everything else is warm; equal names have equal colours.
fn color(name: &str) -> String {
    let sum = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let (hue, spread) = match name {
        _ if name.starts_with('[') => (205, 20),
        _ if name.starts_with("__wt_") || name.starts_with("__wti_") => (120, 25),
        _ => (25, 30),
    };
    format!("hsl({} 75% {}%)", hue + sum % spread, 68 + sum / 64 % 10)
}

fn text(name: &str) -> String {
    xml(escape(name).as_ref())
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
