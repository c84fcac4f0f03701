//! The live view as a picture:
//! `cargo run -p sonar-view --example screenshot -- FILE.svg [KEYS] [CAPTURE.pcap.gz]`.
//! KEYS are typed first, `\n` is Enter. Without a capture it shows a made-up workload.
#![forbid(unsafe_code)]

#[path = "recorded/mod.rs"]
mod recorded;
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
    let windows = match arguments.next() {
        Some(capture) => recorded::windows(&std::fs::read(capture)?)?,
        None => {
            let mut workload = synthetic::Workload::new();
            (0..75).map(|second| workload.window(second)).collect()
        }
    };
    std::fs::write(file, picture(windows.into_iter(), &keys, (132, 26)))
}
