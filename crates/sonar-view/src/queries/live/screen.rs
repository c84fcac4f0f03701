//! The terminal: raw mode and the alternate screen, given back on every way out.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::App;

/// Whether the terminal is ours at the moment.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Standard output as a screen. Dropping it restores the terminal; a panic, in whichever thread,
/// restores it before its message is printed, so that the message can be read.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Output>>,
}

/// Standard output. Once the terminal is given back, errors are nobody's concern: the library shows the cursor again
/// when it is dropped, and would panic over a terminal that has gone.
#[derive(Debug)]
struct Output(Stdout);

impl Output {
    fn unless_given_back<T>(outcome: io::Result<T>, done: T) -> io::Result<T> {
        outcome.or_else(|error| if TAKEN.load(Ordering::SeqCst) { Err(error) } else { Ok(done) })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::unless_given_back(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::unless_given_back(self.0.flush(), ())
    }
}

impl Screen {
    /// Enters raw mode and the alternate screen.
    ///
    /// # Errors
    /// When standard output is no terminal, or refuses; it is then left as it was.
    pub fn enter() -> io::Result<Self> {
        restore_on_panic();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        let enter = || {
            execute!(io::stdout(), EnterAlternateScreen, Hide)?;
            let mut terminal = Terminal::new(CrosstermBackend::new(Output(io::stdout())))?;
            terminal.clear()?;
            Ok(Self { terminal })
        };
        enter().inspect_err(|_| restore())
    }

    /// Draws the view.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| app.draw(frame))?;
        Ok(())
    }

    /// Asks the terminal to put `text` into its clipboard; `in_tmux` when tmux stands in between. Whether
    /// the terminal does so cannot be known.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(&mut self, text: &str, in_tmux: bool) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(super::clipboard::sequence(text, in_tmux).as_bytes())?;
        out.flush()
    }

    /// Gives the terminal back while `stopped` runs, which stops the program as Ctrl-Z does; then takes it again
    /// and clears it, for the next drawing.
    ///
    /// # Errors
    /// What `stopped` gives, or when the terminal is gone.
    pub fn suspend(&mut self, stopped: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        restore();
        let stopped = stopped();
        self.resume()?;
        stopped
    }

    /// Takes the terminal again after the program was stopped, whatever has become of it meanwhile, and clears
    /// it for the next drawing.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        // A shell gives the terminal modes of its own meanwhile; without this nothing would be set again.
        let _ = disable_raw_mode();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.terminal.clear()
    }

    /// Columns and lines.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws lines of text, and nothing else.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn lines(&mut self, lines: &[String]) -> io::Result<()> {
        self.terminal.draw(|frame| {
            let text: Vec<_> = lines.iter().map(|line| ratatui::text::Line::raw(line.as_str())).collect();
            frame.render_widget(ratatui::widgets::Paragraph::new(text), frame.area());
        })?;
        Ok(())
    }

    /// Draws all of it again, whatever was on the screen (Ctrl-L).
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn redraw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.clear()?;
        self.draw(app)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, if it is ours: for a way out that drops nothing.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}
