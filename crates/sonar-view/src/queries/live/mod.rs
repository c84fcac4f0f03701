//! The live view: like `top`, for queries.
//!
//! [`App`] is all of it but the terminal: intervals and keys go in, a frame comes out. It has no clock and advances
//! with each interval. [`Screen`] is the terminal.

pub mod clipboard;
mod detail;
mod draw;
mod history;
mod page;
mod palette;
mod screen;
mod servers;

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sonar_core::Window;
use sonar_core::history::Span;
use sonar_core::time::NS_PER_S;

pub use draw::KEYS;
pub use screen::{Screen, give_back as give_back_terminal, restore as restore_terminal};

use crate::queries::column::Sort;
use crate::queries::layout::sortable;
use crate::queries::{
    ClassSet, Column, Grouping, NamespaceFilter, PacketOrigin, PastWindow, ReportKey, Selection, ServerState,
    WindowReport,
};
use history::History;
use page::{OpenRow, Page};

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

/// A line that is being typed.
#[derive(Clone, Debug)]
struct Prompt {
    what: RowFilter,
    input: String,
    /// The selection to go back to.
    before: Selection,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum RowFilter {
    Text,
    Namespace,
}

/// How much may be typed into a prompt.
const MAX_INPUT: usize = 200;

/// The state of the live view.
#[derive(Debug)]
pub struct App {
    settings: LiveSettings,
    selection: Selection,
    cost: Cost,
    /// A permanent problem.
    problem: Option<String>,
    /// The state of the servers of this host, by port.
    servers: Vec<ServerState>,
    /// The same as it was when paused.
    paused_servers: Option<Vec<ServerState>>,
    /// The last intervals, the oldest first.
    windows: VecDeque<Window>,
    /// The sum of `windows`.
    recent: Option<Window>,
    /// Everything since the start.
    total: Option<Window>,
    /// What arrived while paused: the total on screen stands still.
    pending: Option<Window>,
    history: History,
    /// The history as it was when paused.
    paused: Option<History>,
    since_start: bool,
    page: Page,
    prompt: Option<Prompt>,
    /// The row that the cursor was moved to; it stays on it wherever that row goes.
    selected: Option<u64>,
    /// Where the cursor is when it is on no row in particular.
    cursor: usize,
    /// First row on the screen.
    top: usize,
    /// Rows as they were last drawn, in order.
    shown: Vec<u64>,
    /// How many rows, or lines of a page, fit.
    page_height: usize,
    /// Lines of the page as it was last drawn.
    page_lines: usize,
    /// What the last key did, where that cannot be seen otherwise; shown until the next key.
    notice: Option<String>,
    /// The span of the window of the stored history that is shown instead of what is live.
    past: Option<Span>,
    /// That window, and the state of the servers at its end.
    past_window: Option<Window>,
    past_servers: Vec<ServerState>,
}

impl App {
    /// A view without any interval yet.
    pub fn new(settings: LiveSettings) -> Self {
        let selection = settings.selection.clone();
        Self {
            history: History::new(settings.max_histories, settings.split_by_order, selection.form),
            settings,
            selection,
            cost: Cost::default(),
            problem: None,
            servers: Vec::new(),
            paused_servers: None,
            windows: VecDeque::new(),
            recent: None,
            total: None,
            pending: None,
            paused: None,
            since_start: false,
            page: Page::Rows,
            prompt: None,
            selected: None,
            cursor: 0,
            top: 0,
            shown: Vec::new(),
            page_height: 1,
            page_lines: 0,
            notice: None,
            past: None,
            past_window: None,
            past_servers: Vec::new(),
        }
    }

    /// Shows a window of the stored history until [`App::show_now`]; live windows are still counted.
    pub fn show_past(&mut self, PastWindow { window, servers }: PastWindow) {
        self.past = Some(Span { from: window.start, to: window.end });
        (self.past_window, self.past_servers) = (Some(window), servers);
    }

    /// Shows what is live again.
    pub fn show_now(&mut self) {
        (self.past, self.past_window) = (None, None);
    }

    /// The span of the window of the stored history that is shown; `None` while the view is live.
    pub fn past(&self) -> Option<Span> {
        self.past
    }

    /// Says something until the next key.
    pub fn notify(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    /// Adds an interval that has ended, also one without operations: those make rates fall.
    pub fn window(&mut self, window: Window) {
        self.history.push(&window);
        let sum = if self.paused.is_some() { &mut self.pending } else { &mut self.total };
        match sum {
            Some(sum) => sum.merge(&window),
            None => *sum = Some(window.clone()),
        }
        let horizon = window.end.unix_ns().saturating_sub(self.settings.span_ns);
        self.windows.push_back(window);
        let rows = |window: &Window| window.shapes.len() + window.apps.len() + window.clients.len();
        let mut kept: usize = self.windows.iter().map(rows).sum();
        while self.windows.len() > 1
            && self
                .windows
                .front()
                .is_some_and(|first| first.start.unix_ns() < horizon || kept > self.settings.max_rows)
        {
            kept -= self.windows.pop_front().as_ref().map_or(0, rows);
        }
        if self.paused.is_none() {
            self.gather_recent();
        }
    }

    fn gather_recent(&mut self) {
        let mut windows = self.windows.iter();
        // Freed first, so that there are never two of them.
        self.recent = None;
        self.recent = windows.next().cloned().map(|mut recent| {
            windows.for_each(|window| recent.merge(window));
            recent
        });
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
        self.servers = servers;
    }

    /// Everything since the start; `None` before the first interval.
    pub fn into_total(self) -> Option<Window> {
        match (self.total, self.pending) {
            (Some(mut total), Some(pending)) => {
                total.merge(&pending);
                Some(total)
            }
            (total, pending) => total.or(pending),
        }
    }

    /// What is shown.
    fn shown_window(&self) -> Option<&Window> {
        if self.past.is_some() {
            self.past_window.as_ref()
        } else if self.since_start {
            self.total.as_ref()
        } else {
            self.recent.as_ref()
        }
    }

    /// Where the shown window is kept.
    fn slot(&mut self) -> &mut Option<Window> {
        match (self.past.is_some(), self.since_start) {
            (true, _) => &mut self.past_window,
            (false, true) => &mut self.total,
            (false, false) => &mut self.recent,
        }
    }

    /// How far back the rows look.
    fn span(&self, elapsed_ns: u64) -> String {
        if let Some(past) = &self.past {
            let clock = |at| self.selection.zone.show_seconds(at).to_string();
            let to = clock(past.to);
            format!("{} to {}", clock(past.from), to.get(11..).unwrap_or(&to))
        } else if self.since_start {
            "since start".to_string()
        } else {
            format!("last {:.0} s", elapsed_ns as f64 / NS_PER_S as f64)
        }
    }

    /// The window that has the row, and whether it is the shown one.
    fn window_of<'a>(
        &'a self,
        shown: Option<&'a Window>,
        selection: &Selection,
        identity: u64,
    ) -> Option<(&'a Window, bool)> {
        let has = |window: &Window| {
            WindowReport::new(window, selection).rows.iter().any(|row| row.identity == identity)
        };
        match shown {
            Some(window) if has(window) => Some((window, true)),
            _ if self.past.is_some() => None,
            _ => self.total.as_ref().filter(|total| has(total)).map(|total| (total, false)),
        }
    }

    /// What is shown at the moment, after all keys.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> LiveAction {
        if key.kind == KeyEventKind::Release {
            return LiveAction::Continue;
        }
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => LiveAction::Quit,
                KeyCode::Char('l') => LiveAction::Redraw,
                KeyCode::Char('u') if self.prompt.is_some() => {
                    self.type_into_prompt(|input| input.clear());
                    LiveAction::Continue
                }
                _ => LiveAction::Continue,
            };
        }
        if self.prompt.is_some() {
            self.key_in_prompt(key.code);
            return LiveAction::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return LiveAction::Quit,
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char('y') => return self.copy(),
            KeyCode::Char('t') => self.since_start = !self.since_start,
            KeyCode::Char('[' | ']') if !self.settings.has_past => {
                self.notify("There is no history to step through: `mongosonar agent` keeps one.".to_owned());
            }
            KeyCode::Char('[') => return LiveAction::Earlier,
            KeyCode::Char(']') => return LiveAction::Later,
            KeyCode::Char('N') if self.settings.origin == PacketOrigin::History => return LiveAction::Latest,
            KeyCode::Char('N') => self.show_now(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => {
                self.page = match self.page {
                    Page::Help { .. } => self.page.before(),
                    Page::Detail { identity, scroll } => {
                        Page::Help { scroll: 0, above: Some(OpenRow { identity, scroll }) }
                    }
                    Page::Rows => Page::Help { scroll: 0, above: None },
                };
            }
            code => match self.page {
                Page::Rows => return self.key_in_rows(code),
                Page::Detail { .. } | Page::Help { .. } => self.key_in_page(code),
            },
        }
        LiveAction::Continue
    }

    fn pause(&mut self) {
        if self.paused.take().is_none() {
            self.paused = Some(self.history.clone());
            self.paused_servers = Some(self.servers.clone());
            return;
        }
        self.paused_servers = None;
        match (&mut self.total, self.pending.take()) {
            (Some(total), Some(pending)) => total.merge(&pending),
            (total @ None, pending) => *total = pending,
            _ => {}
        }
        self.gather_recent();
    }

    fn key_in_prompt(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.prompt = None,
            KeyCode::Esc => {
                if let Some(prompt) = self.prompt.take() {
                    self.selection = prompt.before;
                }
            }
            KeyCode::Backspace => self.type_into_prompt(|input| {
                input.pop();
            }),
            KeyCode::Char(c) => self.type_into_prompt(|input| {
                if input.len() < MAX_INPUT {
                    input.push(c);
                }
            }),
            _ => {}
        }
    }

    /// Edits the prompt; the filter follows at once.
    fn type_into_prompt(&mut self, change: impl FnOnce(&mut String)) {
        let Some(prompt) = &mut self.prompt else { return };
        change(&mut prompt.input);
        let input = prompt.input.clone();
        match prompt.what {
            RowFilter::Text => self.selection.text = input,
            RowFilter::Namespace if input.is_empty() => self.selection.namespace = NamespaceFilter::Any,
            RowFilter::Namespace => self.selection.namespace = NamespaceFilter::Prefix(input),
        }
        self.go_to_first_row();
    }

    fn go_to_first_row(&mut self) {
        (self.selected, self.cursor, self.top) = (None, 0, 0);
    }

    fn key_in_rows(&mut self, code: KeyCode) -> LiveAction {
        let page = self.page_height.max(1) as isize;
        match code {
            KeyCode::Esc => {
                // Esc goes back a step; from the unfiltered list it ends the view.
                if self.selection.text.is_empty() && self.selection.namespace == NamespaceFilter::Any {
                    return LiveAction::Quit;
                }
                self.selection.text.clear();
                self.selection.namespace = NamespaceFilter::Any;
                self.go_to_first_row();
            }
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::Home | KeyCode::Char('g') => self.go_to_first_row(),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX / 2),
            KeyCode::Enter => self.drill_in(),
            KeyCode::Char('<' | ',') | KeyCode::Left => self.sort_by_next(-1),
            KeyCode::Char('>' | '.') | KeyCode::Right => self.sort_by_next(1),
            KeyCode::Char('w') if sortable(&self.selection).contains(&Column::Wait) => {
                self.selection.sort = Sort { column: Column::Wait, reverse: false };
            }
            KeyCode::Char('w') => self.notify(self.without_waits().to_owned()),
            KeyCode::Char('r') => self.selection.sort.reverse = !self.selection.sort.reverse,
            KeyCode::Char('b') => self.next_grouping(),
            KeyCode::Char('c') => {
                let all = self.selection.classes == ClassSet::ALL;
                self.selection.classes = if all { ClassSet::USER } else { ClassSet::ALL };
            }
            KeyCode::Char('o') => {
                use sonar_core::Role;
                self.selection.role = match self.selection.role {
                    None => Some(Role::Served),
                    Some(Role::Served) => Some(Role::Issued),
                    Some(Role::Issued) => None,
                };
            }
            KeyCode::Char('/') => self.open_prompt(RowFilter::Text, self.selection.text.clone()),
            KeyCode::Char('n') => {
                let input = self.selection.namespace.text().to_string();
                self.open_prompt(RowFilter::Namespace, input);
            }
            _ => {}
        }
        LiveAction::Continue
    }

    /// Why rows cannot be sorted by how long operations waited.
    const fn without_waits(&self) -> &'static str {
        match (self.selection.has_splits, self.past.is_some()) {
            (true, _) => "How long operations waited is known by shape and namespace (key b).",
            (false, true) => "Rows of the past cannot be sorted by how long operations waited.",
            (false, false) => "How long operations waited is known only with --split.",
        }
    }

    fn open_prompt(&mut self, what: RowFilter, input: String) {
        self.prompt = Some(Prompt { what, input, before: self.selection.clone() });
    }

    fn key_in_page(&mut self, code: KeyCode) {
        let page = self.page_height.max(1);
        let last = self.page_lines.saturating_sub(self.page_height);
        let before = self.page.before();
        let (Page::Detail { scroll, .. } | Page::Help { scroll, .. }) = &mut self.page else { return };
        *scroll = (*scroll).min(last);
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.page = before,
            KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *scroll = (*scroll + 1).min(last),
            KeyCode::PageUp => *scroll = scroll.saturating_sub(page),
            KeyCode::PageDown => *scroll = (*scroll + page).min(last),
            KeyCode::Home | KeyCode::Char('g') => *scroll = 0,
            KeyCode::End | KeyCode::Char('G') => *scroll = last,
            _ => {}
        }
    }

    fn move_by(&mut self, rows: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(rows).min(last);
        self.selected = self.shown.get(self.cursor).copied();
    }

    fn sort_by_next(&mut self, step: isize) {
        let columns = sortable(&self.selection);
        let at = columns.iter().position(|column| *column == self.selection.sort.column);
        let next = (at.unwrap_or(0) as isize + step).rem_euclid(columns.len().max(1) as isize) as usize;
        if let Some(&column) = columns.get(next) {
            self.selection.sort = Sort { column, reverse: false };
        }
    }

    fn next_grouping(&mut self) {
        let offered: Vec<_> = Grouping::ALL
            .into_iter()
            .filter(|by| *by != Grouping::Order || self.settings.split_by_order)
            .collect();
        let at = offered.iter().position(|by| *by == self.selection.by).unwrap_or(0);
        self.selection.by = offered[(at + 1) % offered.len()];
        if !sortable(&self.selection).contains(&self.selection.sort.column) {
            self.selection.sort = Sort::default();
        }
        self.go_to_first_row();
    }

    /// Copies the shape id of the row that is open or under the cursor; of other rows, their name.
    fn copy(&mut self) -> LiveAction {
        let identity = match self.page {
            Page::Rows => self.shown.get(self.cursor).copied(),
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
        let selection = Selection { text: String::new(), limit: None, ..self.selection.clone() };
        let (window, _) = self.window_of(self.shown_window(), &selection, identity)?;
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
        let Some(&identity) = self.shown.get(self.cursor) else { return };
        let namespace = self.shown_window().and_then(|window| {
            let report = WindowReport::new(window, &self.selection);
            let row = report.rows.iter().find(|row| row.identity == identity)?;
            matches!(row.key, ReportKey::Namespace { .. }).then(|| row.namespace())?
        });
        match namespace {
            Some(namespace) => {
                self.selection.by = Grouping::Shape;
                self.selection.namespace = NamespaceFilter::Exactly(namespace);
                self.go_to_first_row();
            }
            None => self.page = Page::Detail { identity, scroll: 0 },
        }
    }
}
