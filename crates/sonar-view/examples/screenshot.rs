//! The live view as a picture: `cargo run -p sonar-view --example screenshot -- FILE.svg [KEYS]`.
//! KEYS are typed first, `\n` is Enter. The intervals are made up here; [`picture`] takes any.
#![forbid(unsafe_code)]

#[path = "synthetic/mod.rs"]
mod synthetic;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sonar_core::Window;
use sonar_view::live::{App, Cost, Settings, picture};

/// Shows `windows` one after the other, types `keys`, and gives what is then on a screen of that size.
fn picture(windows: impl Iterator<Item = Window>, keys: &str, (columns, rows): (u16, u16)) -> String {
    let source = "eth0, port 27017".to_string();
    let mut app = App::new(Settings { source, ..Settings::default() });
    windows.for_each(|window| app.window(window));
    app.cost(Cost { cpu_percent: Some(0.4), rss_bytes: Some(23_000_000) });
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(|frame| app.draw(frame));
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
        let Ok(_) = terminal.draw(|frame| app.draw(frame));
    }
    picture::svg(terminal.backend().buffer(), "mongosonar queries")
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "queries.svg".to_string());
    let keys = arguments.next().unwrap_or_default().replace("\\n", "\n");
    let mut workload = synthetic::Workload::new();
    std::fs::write(file, picture((0..75).map(|second| workload.window(second)), &keys, (132, 26)))
}
