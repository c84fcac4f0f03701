//! A screen of the live view as SVG, for the documentation.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

/// Size of a character cell in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 14.0;
const FOREGROUND: &str = "#d6dae0";
const BACKGROUND: &str = "#14181d";

/// Draws a buffer as a standalone SVG: a dark terminal with a title. Each run of cells of one style is
/// stretched to its exact width, so that columns line up whichever monospaced font is there.
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) =
        (f64::from(area.width) * CELL.0 + 2.0 * MARGIN, f64::from(area.height) * CELL.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n\
         <title>{label}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\" \
         xml:space=\"preserve\">\n",
        label = escape(title),
    );
    for row in 0..area.height {
        let cells: Vec<&Cell> =
            (0..area.width).filter_map(|column| buffer.cell((area.x + column, area.y + row))).collect();
        let mut at = 0;
        while at < cells.len() {
            let look = Look::of(cells[at]);
            let run = cells[at..].iter().take_while(|cell| Look::of(cell) == look).count();
            draw_run(&mut out, &look, &cells[at..at + run], at, row);
            at += run;
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn draw_run(out: &mut String, look: &Look, cells: &[&Cell], column: usize, row: u16) {
    let x = MARGIN + column as f64 * CELL.0;
    let y = MARGIN + f64::from(row) * CELL.1;
    let columns = cells.len() as f64 * CELL.0;
    if let Some(background) = &look.background {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{columns:.1}\" height=\"{}\" fill=\"{background}\"/>",
            CELL.1
        );
    }
    let text: String = cells.iter().map(|cell| cell.symbol()).collect();
    // Words on their own: spaces need no drawing, and a viewer that stretches badly errs less.
    let mut at = 0;
    for word in text.split_inclusive("  ") {
        let drawn = word.trim();
        let before = word.width() - word.trim_start().width();
        if !drawn.is_empty() {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\"{}{} textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>",
                x + (at + before) as f64 * CELL.0,
                y + 13.5,
                look.foreground,
                if look.bold { " font-weight=\"bold\"" } else { "" },
                if look.dim { " opacity=\"0.75\"" } else { "" },
                drawn.width() as f64 * CELL.0,
                escape(drawn),
            );
        }
        at += word.width();
    }
}

/// How a cell looks.
#[derive(PartialEq, Eq)]
struct Look {
    foreground: String,
    background: Option<String>,
    bold: bool,
    dim: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let foreground = rgb(cell.fg);
        let background = rgb(cell.bg);
        let (foreground, background) = if cell.modifier.contains(Modifier::REVERSED) {
            (
                background.unwrap_or_else(|| BACKGROUND.to_string()),
                Some(foreground.unwrap_or_else(|| FOREGROUND.to_string())),
            )
        } else {
            (foreground.unwrap_or_else(|| FOREGROUND.to_string()), background)
        };
        Self {
            foreground,
            background,
            bold: cell.modifier.contains(Modifier::BOLD),
            dim: cell.modifier.contains(Modifier::DIM),
        }
    }
}

/// `None` for the terminal's own colour.
fn rgb(color: Color) -> Option<String> {
    let text = match color {
        Color::Reset => return None,
        Color::Rgb(r, g, b) => return Some(format!("#{r:02x}{g:02x}{b:02x}")),
        Color::Indexed(_) => FOREGROUND,
        Color::Black => "#14181d",
        Color::Red => "#c94f4f",
        Color::Green => "#7fb785",
        Color::Yellow => "#e0b65a",
        Color::Blue => "#2f5d8f",
        Color::Magenta => "#b48ead",
        Color::Cyan => "#7cc5d6",
        Color::Gray => "#b4bbc4",
        Color::DarkGray => "#343c46",
        Color::LightRed => "#ef7a72",
        Color::LightGreen => "#a3d9a5",
        Color::LightYellow => "#f2d38a",
        Color::LightBlue => "#8fb8e0",
        Color::LightMagenta => "#d0b0d0",
        Color::LightCyan => "#a8e0ea",
        Color::White => "#ffffff",
    };
    Some(text.to_string())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
