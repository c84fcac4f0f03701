//! The live view over a recorded capture of a real MongoDB (see fixtures/README.md).

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sonar_view::queries::live::{App, LiveSettings};

fn screen(app: &mut App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(140, 44)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_real_mongod() {
    let capture = include_bytes!("../../../../fixtures/mongod-4.0-mixed/wire.pcap.gz");
    let windows = crate::recorded::windows(capture).unwrap();
    assert_eq!(windows.len(), 4, "a second each");
    let mut app =
        App::new(LiveSettings { source: "mongod-4.0-mixed".to_string(), ..LiveSettings::default() });
    windows.into_iter().for_each(|window| app.window(window));
    insta::assert_snapshot!("recorded", screen(&mut app));
    for code in [KeyCode::Char('>'), KeyCode::Enter] {
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
        screen(&mut app);
    }
    insta::assert_snapshot!("recorded_detail", screen(&mut app));
}
