//! The live view over a made-up workload: `cargo run -p sonar-view --example demo`.
#![forbid(unsafe_code)]

#[path = "synthetic/mod.rs"]
mod synthetic;

use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use sonar_view::queries::live::{App, Cost, LiveAction, LiveSettings, Screen};

fn main() -> std::io::Result<()> {
    let settings = LiveSettings {
        source: "made-up workload".to_string(),
        color: std::env::var_os("NO_COLOR").is_none(),
        ..LiveSettings::default()
    };
    let (mut app, mut workload, mut second) = (App::new(settings), synthetic::Workload::new(), 0);
    let mut screen = Screen::enter()?;
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            app.window(workload.window(second));
            app.cost(Cost { cpu_percent: Some(0.4), rss_bytes: Some(23_000_000) });
            second += 1;
            next += Duration::from_secs(1);
        }
        screen.draw(&mut app)?;
        if event::poll(next.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
        {
            match app.key(key) {
                LiveAction::Continue | LiveAction::Latest | LiveAction::Earlier | LiveAction::Later => {}
                LiveAction::Copy(text) => screen.copy(&text, std::env::var_os("TMUX").is_some())?,
                LiveAction::Redraw => screen.redraw(&mut app)?,
                LiveAction::Quit => return Ok(()),
            }
        }
    }
}
