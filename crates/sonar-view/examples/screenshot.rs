//! The live view as a picture:
//! `cargo run -p sonar-view --example screenshot -- FILE.svg [KEYS] [CAPTURE.pcap.gz]`.
//! KEYS are typed first, `\n` is Enter. Without a capture it shows a made-up workload.
#![forbid(unsafe_code)]

#[path = "picture/mod.rs"]
mod picture;
#[path = "recorded/mod.rs"]
mod recorded;
#[path = "synthetic/mod.rs"]
mod synthetic;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sonar_core::Window;
use sonar_view::queries::live::{App, LiveSettings};

/// Shows `windows` one after the other, types `keys`, and gives what is then on a screen of that size.
fn picture(source: String, windows: Vec<Window>, keys: &str, (columns, rows): (u16, u16)) -> String {
    let mut app = App::new(LiveSettings { source, ..LiveSettings::default() });
    windows.into_iter().for_each(|window| app.window(window));
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
    let (source, windows) = match arguments.next() {
        Some(capture) => (capture.clone(), recorded::windows(&std::fs::read(capture)?)?),
        None => {
            let mut workload = synthetic::Workload::new();
            let windows = (0..75).map(|second| workload.window(second)).collect();
            ("made-up workload".to_string(), windows)
        }
    };
    std::fs::write(file, picture(source, windows, &keys, (132, 26)))
}
