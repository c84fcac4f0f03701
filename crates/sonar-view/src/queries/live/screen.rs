//! The terminal: raw mode and the alternate screen, restored on every way out.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::App;

/// Whose the terminal is at the moment: one of the following.
static OWNER: AtomicU8 = AtomicU8::new(OTHERS);
/// It is not ours.
const OTHERS: u8 = 0;
/// It shows the view.
const VIEW: u8 = 1;
/// It is being restored.
const RESTORED: u8 = 2;
/// It was given back by [`give_back`], whose caller restores it and ends the program.
const GIVEN_BACK: u8 = 3;
/// How often, and how long each time, the others wait for the end of the program then.
const WAITS: u32 = 100;
const WAIT: Duration = Duration::from_millis(20);

/// Standard output as a screen. Dropping it restores the terminal; a panic, in whichever thread,
/// restores it before its message is printed, so that the message can be read.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<ScreenOutput>>,
}

/// Standard output. It ignores errors once the terminal is restored: the library shows the cursor when it is dropped,
/// and would panic if the terminal were gone.
#[derive(Debug)]
struct ScreenOutput(Stdout);

impl ScreenOutput {
    fn unless_given_back<T>(outcome: io::Result<T>, done: T) -> io::Result<T> {
        outcome.or_else(|error| if OWNER.load(Ordering::SeqCst) == VIEW { Err(error) } else { Ok(done) })
    }
}

impl Write for ScreenOutput {
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
    /// Standard output is not a terminal, or refuses; it is then left as it was.
    pub fn enter() -> io::Result<Self> {
        restore_on_panic();
        enable_raw_mode()?;
        OWNER.store(VIEW, Ordering::SeqCst);
        let enter = || {
            execute!(io::stdout(), EnterAlternateScreen, Hide)?;
            let mut terminal = Terminal::new(CrosstermBackend::new(ScreenOutput(io::stdout())))?;
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

    /// Asks the terminal to put `text` into its clipboard; `in_tmux` inside tmux. The terminal does not say whether
    /// it did.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(&mut self, text: &str, in_tmux: bool) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(super::clipboard::sequence(text, in_tmux).as_bytes())?;
        out.flush()
    }

    /// Restores the terminal while `stopped` runs, which stops the program as Ctrl-Z does; then takes it again and
    /// clears it for the next frame.
    ///
    /// # Errors
    /// What `stopped` gives, or when the terminal is gone.
    pub fn suspend(&mut self, stopped: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        restore();
        let stopped = stopped();
        self.resume()?;
        stopped
    }

    /// Takes the terminal again after the program was stopped, whatever its state, and clears it for the next frame.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        // The shell has set its own modes meanwhile; without this, raw mode would count as set.
        let _ = disable_raw_mode();
        enable_raw_mode()?;
        OWNER.store(VIEW, Ordering::SeqCst);
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

/// Restores the terminal if it is ours: for a way out that drops nothing.
pub fn restore() {
    if change(VIEW, RESTORED) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        change(RESTORED, OTHERS);
    }
    for _ in 0..WAITS {
        if OWNER.load(Ordering::SeqCst) != GIVEN_BACK {
            break;
        }
        std::thread::sleep(WAIT);
    }
}

fn change(from: u8, to: u8) -> bool {
    OWNER.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Gives the terminal back without writing to it. Returns what has to be written to it to restore it; `None` if it is not
/// ours. For a terminal that does not read, where [`restore`] would wait or waits already. The caller must end the
/// program: who calls `restore` meanwhile waits for that.
pub fn give_back() -> Option<Vec<u8>> {
    (change(VIEW, GIVEN_BACK) || change(RESTORED, GIVEN_BACK)).then(|| {
        let _ = disable_raw_mode();
        let mut bytes = Vec::new();
        let _ = execute!(bytes, LeaveAlternateScreen, Show);
        bytes
    })
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
