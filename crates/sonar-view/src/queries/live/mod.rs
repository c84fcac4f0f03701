//! The live view: like `top`, for queries.
//!
//! [`App`] is all of it but the terminal: intervals and keys go in, a frame comes out. It has no clock and advances
//! with each interval. [`Screen`] is the terminal.

mod choice;
pub mod clipboard;
mod cursor;
mod detail;
mod draw;
mod history;
mod observed;
mod page;
mod palette;
mod pausable;
mod prompt;
mod recent;
mod screen;
mod servers;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sonar_core::Window;
use sonar_core::history::Span;
use sonar_core::time::NS_PER_S;

pub use draw::KEYS;
pub use screen::{Screen, give_back as give_back_terminal, restore as restore_terminal};

use crate::queries::{PacketOrigin, PastWindow, ReportKey, Selection, ServerState, WindowReport};
use choice::RowChoice;
use cursor::RowCursor;
use history::History;
use observed::ObservedWindows;
use page::{OpenPage, Page};
use prompt::{FilterPrompt, RowFilter};
use recent::RecentWindows;

/// Settings of the live view.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// What to show at first; keys change it.
    pub selection: Selection,
    /// Where the packets come from, for the header: `lo eth0, port 27017`.
    pub source: String,
    /// The same, to explain why there are none.
    pub origin: PacketOrigin,
    /// How far back the view looks, in nanoseconds, unless it shows everything since the start.
    pub span_ns: u64,
    /// Whether rows are split by the order of keys, so that `by order` is offered.
    pub split_by_order: bool,
    /// Whether to use colours.
    pub color: bool,
    /// The most rows, of all tables of all windows together, that are kept; with more the view looks back less far,
    /// and says how far.
    pub max_rows: usize,
    /// The most rows of which a history is kept.
    pub max_histories: usize,
    /// Whether there is a stored history to step through.
    pub has_past: bool,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            source: String::new(),
            origin: PacketOrigin::default(),
            span_ns: 10 * NS_PER_S,
            split_by_order: false,
            color: true,
            max_rows: 4_000,
            max_histories: 2_000,
            has_past: false,
        }
    }
}

/// What mongosonar itself costs.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time, user and system, in percent of one core; `None` when not known.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes; `None` when not known.
    pub rss_bytes: Option<u64>,
}

/// What the caller does after a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveAction {
    /// Draw and go on.
    Continue,
    /// Draw everything again.
    Redraw,
    /// Put this into the clipboard of the terminal, draw and go on.
    Copy(String),
    /// Show the newest stored window: nothing is live.
    Latest,
    /// Show the stored window before the shown one: see [`App::show_past`].
    Earlier,
    /// Show the stored window after the shown one.
    Later,
    /// End.
    Quit,
}

/// The state of the live view.
#[derive(Debug)]
pub struct App {
    settings: LiveSettings,
    cost: Cost,
    /// A permanent problem.
    problem: Option<String>,
    observed: ObservedWindows,
    choice: RowChoice,
    prompt: Option<FilterPrompt>,
    cursor: RowCursor,
    open: OpenPage,
    /// What the last key did, where that cannot be seen otherwise; shown until the next key.
    notice: Option<String>,
}

impl App {
    /// A view without any interval yet.
    pub fn new(settings: LiveSettings) -> Self {
        let selection = settings.selection.clone();
        let history = History::new(settings.max_histories, settings.split_by_order, selection.form);
        let recent = RecentWindows::new(settings.span_ns, settings.max_rows);
        Self {
            observed: ObservedWindows::new(recent, history),
            choice: RowChoice { selection, split_by_order: settings.split_by_order },
            settings,
            cost: Cost::default(),
            problem: None,
            prompt: None,
            cursor: RowCursor::default(),
            open: OpenPage::rows(),
            notice: None,
        }
    }

    /// Shows a window of the stored history until [`App::show_now`]; live windows are still counted.
    pub fn show_past(&mut self, past: PastWindow) {
        self.observed.show_past(past);
    }

    /// Shows what is live again.
    pub fn show_now(&mut self) {
        self.observed.show_now();
    }

    /// The span of the window of the stored history that is shown; `None` while the view is live.
    pub fn past(&self) -> Option<Span> {
        self.observed.past()
    }

    /// Says something until the next key.
    pub fn notify(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    /// Adds an interval that has ended, also one without operations: those make rates fall.
    pub fn window(&mut self, window: Window) {
        self.observed.window(window);
    }

    /// Sets what mongosonar itself costs.
    pub fn cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    /// Replaces [`LiveSettings::source`]: packets come from elsewhere, or from more places.
    pub fn source(&mut self, source: String, origin: PacketOrigin) {
        self.settings.source = source;
        self.settings.origin = origin;
    }

    /// Sets a permanent problem, which the first line shows from now on.
    pub fn problem(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Replaces the state of the servers of this host that is shown; the first ones have a line each.
    pub fn servers(&mut self, servers: Vec<ServerState>) {
        self.observed.servers.live = servers;
    }

    /// Everything since the start; `None` before the first interval.
    pub fn into_total(self) -> Option<Window> {
        self.observed.into_total()
    }

    /// What is shown at the moment, after all keys.
    pub fn selection(&self) -> &Selection {
        &self.choice.selection
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> LiveAction {
        if key.kind == KeyEventKind::Release {
            return LiveAction::Continue;
        }
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return LiveAction::Quit,
                KeyCode::Char('l') => return LiveAction::Redraw,
                KeyCode::Char('u') => self.type_into_prompt(|prompt| {
                    prompt.input.clear();
                    true
                }),
                _ => {}
            }
            return LiveAction::Continue;
        }
        if self.prompt.is_some() {
            self.key_in_prompt(key.code);
            return LiveAction::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return LiveAction::Quit,
            KeyCode::Char('p' | ' ') => self.observed.pause(),
            KeyCode::Char('y') => return self.copy(),
            KeyCode::Char('t') => self.observed.since_start ^= true,
            KeyCode::Char('[' | ']') if !self.settings.has_past => {
                self.notify("There is no history to step through: `mongosonar agent` keeps one.".to_owned());
            }
            KeyCode::Char('[') => return LiveAction::Earlier,
            KeyCode::Char(']') => return LiveAction::Later,
            KeyCode::Char('N') if self.settings.origin == PacketOrigin::History => return LiveAction::Latest,
            KeyCode::Char('N') => self.show_now(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.open.toggle_help(),
            code => match self.open.page {
                Page::Rows => return self.key_in_rows(code),
                Page::Detail { .. } | Page::Help { .. } => self.open.key(code),
            },
        }
        LiveAction::Continue
    }

    fn key_in_prompt(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.prompt = None,
            KeyCode::Esc => {
                if let Some(prompt) = self.prompt.take() {
                    self.choice.selection = prompt.before;
                }
            }
            code => self.type_into_prompt(|prompt| prompt.types(code)),
        }
    }

    /// Edits the prompt, if there is one and `change` does so; the filter follows at once.
    fn type_into_prompt(&mut self, change: impl FnOnce(&mut FilterPrompt) -> bool) {
        let Some(prompt) = &mut self.prompt else { return };
        if change(prompt) {
            prompt.apply(&mut self.choice.selection);
            self.cursor.go_to_first();
        }
    }

    fn key_in_rows(&mut self, code: KeyCode) -> LiveAction {
        let page = self.open.height.max(1) as isize;
        match code {
            // Esc goes back a step; from the unfiltered list it ends the view.
            KeyCode::Esc => match self.choice.unfilter() {
                true => self.cursor.go_to_first(),
                false => return LiveAction::Quit,
            },
            KeyCode::Home | KeyCode::Char('g') => self.cursor.go_to_first(),
            KeyCode::Up | KeyCode::Char('k') => self.cursor.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.cursor.move_by(1),
            KeyCode::PageUp => self.cursor.move_by(-page),
            KeyCode::PageDown => self.cursor.move_by(page),
            KeyCode::End | KeyCode::Char('G') => self.cursor.move_by(isize::MAX / 2),
            KeyCode::Enter => self.drill_in(),
            KeyCode::Char('<' | ',') | KeyCode::Left => self.choice.sort_by_next(-1),
            KeyCode::Char('>' | '.') | KeyCode::Right => self.choice.sort_by_next(1),
            KeyCode::Char('w') => {
                let is_past = self.past().is_some();
                let sorted = self.choice.sort_by_waits(is_past);
                self.notice = sorted.err().map(str::to_owned);
            }
            KeyCode::Char('r') => self.choice.selection.sort.reverse ^= true,
            KeyCode::Char('b') => {
                self.choice.next_grouping();
                self.cursor.go_to_first();
            }
            KeyCode::Char('c') => self.choice.change_classes(),
            KeyCode::Char('o') => self.choice.next_role(),
            KeyCode::Char('/') => self.open_prompt(RowFilter::Text),
            KeyCode::Char('n') => self.open_prompt(RowFilter::Namespace),
            _ => {}
        }
        LiveAction::Continue
    }

    fn open_prompt(&mut self, what: RowFilter) {
        self.prompt = Some(FilterPrompt::open(what, &self.choice.selection));
    }

    /// Copies the shape id of the row that is open or under the cursor; of other rows, their name.
    fn copy(&mut self) -> LiveAction {
        let identity = match self.open.page {
            Page::Rows => self.cursor.row(),
            Page::Detail { identity, .. } => Some(identity),
            Page::Help { .. } => None,
        };
        let Some((what, text)) = identity.and_then(|identity| self.name_of(identity)) else {
            return LiveAction::Continue;
        };
        self.notice = Some(format!("Copied the {what}: {}", crate::kit::escape(&text)));
        LiveAction::Copy(text)
    }

    /// What names a row, and what kind of name it is.
    fn name_of(&self, identity: u64) -> Option<(&'static str, String)> {
        let selection = Selection { text: String::new(), limit: None, ..self.selection().clone() };
        let (window, _) = self.observed.window_of(self.observed.shown(), &selection, identity)?;
        let report = WindowReport::new(window, &selection);
        let row = report.rows.iter().find(|row| row.identity == identity)?;
        Some(match &row.key {
            ReportKey::Shape { key, .. } => ("shape id", key.shape.to_string()),
            ReportKey::Namespace { .. } => ("namespace", row.namespace().unwrap_or_default()),
            ReportKey::App(app) => ("application", app.label()),
            ReportKey::Client(ip) => ("client address", ip.to_string()),
            ReportKey::Other => return None,
        })
    }

    /// A namespace opens as its shapes, any other row as a page of its own.
    fn drill_in(&mut self) {
        let Some(identity) = self.cursor.row() else { return };
        let namespace = self.observed.shown().and_then(|window| {
            let report = WindowReport::new(window, self.selection());
            let row = report.rows.iter().find(|row| row.identity == identity)?;
            matches!(row.key, ReportKey::Namespace { .. }).then(|| row.namespace())?
        });
        match namespace {
            Some(namespace) => {
                self.choice.narrow_to(namespace);
                self.cursor.go_to_first();
            }
            None => self.open.open(identity),
        }
    }
}
