//! The live view as a person sees it, from made-up intervals and typed keys.

use crate::synthetic::{Workload, app as application, operation, shape};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use sonar_core::history::{CollectorKind, HistoryWindow, Resolution};
use sonar_core::internals::ServerGlance;
use sonar_core::operation::InFlightOperations;
use sonar_core::time_split::{TimePart, WaitTotal, WireOperation};
use sonar_core::window::WindowSettings;
use sonar_core::{Class, Coverage, Operation, Role, Timestamp, Window};
use sonar_view::queries::live::{App, Cost, LiveAction, LiveSettings};
use sonar_view::queries::{
    CapturedNetwork, Column, Grouping, NamespaceFilter, PacketOrigin, PastWindow, Selection, ServerState,
};

fn app_with(settings: LiveSettings, seconds: u64) -> App {
    let mut app = App::new(LiveSettings { source: "eth0, port 27017".to_string(), ..settings });
    let mut workload = Workload::new();
    (0..seconds).for_each(|second| app.window(workload.window(second)));
    app.cost(Cost { cpu_percent: Some(0.42), rss_bytes: Some(23_100_000) });
    app
}

fn draw(app: &mut App, columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal
}

fn screen(app: &mut App, columns: u16, rows: u16) -> String {
    draw(app, columns, rows).backend().to_string()
}

fn press(app: &mut App, code: KeyCode) -> LiveAction {
    let action = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    screen(app, 120, 40);
    action
}

fn type_keys(app: &mut App, keys: &str) {
    screen(app, 120, 40);
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        assert_eq!(press(app, code), LiveAction::Continue);
    }
}

#[test]
fn rows_at_several_sizes() {
    for (columns, rows) in [(80, 24), (100, 30), (120, 40), (200, 50), (40, 24), (30, 8)] {
        let mut app = app_with(LiveSettings::default(), 12);
        insta::assert_snapshot!(format!("rows_{columns}x{rows}"), screen(&mut app, columns, rows));
    }
}

#[test]
fn what_a_capture_does_not_show_is_a_dash_on_the_screen() {
    let mut window = Window::new(Timestamp::from_unix(1_000, 0), WindowSettings::default());
    window.end = window.start.plus_ns(1_000_000_000);
    let (shape, app) = (shape(1, "find", "shop.orders", "{}", "{}"), application("api", "rust", "3"));
    let request = Operation {
        latency_ns: None,
        transfer_ns: None,
        response_bytes: 0,
        docs_returned: None,
        outcome: sonar_core::Outcome::Unknown,
        ..operation(&shape, &app, window.end)
    };
    window.record(&request);
    let mut app =
        App::new(LiveSettings { source: "eth0, port 27017".to_string(), ..LiveSettings::default() });
    app.window(window);
    let shown = screen(&mut app, 160, 40);
    for figure in ["1 queries per second", "load -", "errors - ", "p99 - ", "in 120B/s", "out - "] {
        assert!(shown.contains(figure), "{figure}: {shown}");
    }
    press(&mut app, KeyCode::Enter);
    let opened = screen(&mut app, 160, 40);
    for figure in ["failed -", "1 calls  mean -"] {
        assert!(opened.contains(figure), "{figure}: {opened}");
    }
}

#[test]
fn an_unknown_rate_is_a_dash_in_the_history_of_a_row() {
    let mut app = App::new(LiveSettings::default());
    let (shape, application) = (shape(1, "find", "shop.orders", "{}", "{}"), application("api", "rust", "3"));
    for (number, seconds) in [1, 0].into_iter().enumerate() {
        let start = Timestamp::from_unix(1_000 + 10 * number as u64, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        window.observe(CollectorKind::Queries, seconds * 1_000_000_000);
        window.state_observed();
        (0..5).for_each(|_| window.window.record(&operation(&shape, &application, start)));
        app.window(window.window);
    }
    screen(&mut app, 160, 40);
    press(&mut app, KeyCode::Enter);
    let opened = screen(&mut app, 160, 40);
    assert!(opened.contains("█- -, max 5"), "{opened}");
}

#[test]
fn a_view_of_the_past_does_not_wait_for_an_interval() {
    const LISTENING: &str = "Listening: the first interval has not ended yet.";
    let settings = || LiveSettings { has_past: true, source: "eth0".to_owned(), ..LiveSettings::default() };
    let mut app = App::new(settings());
    assert!(screen(&mut app, 120, 40).contains(LISTENING));
    // Nothing is live in a view of the history alone: whoever reads that has the newest window.
    let mut app = App::new(LiveSettings { origin: PacketOrigin::History, ..settings() });
    let past = Workload::new().window(3);
    let span = Some((past.start, past.end));
    app.show_past(PastWindow { window: past, servers: Vec::new() });
    let before = screen(&mut app, 120, 40);
    assert_eq!(press(&mut app, KeyCode::Char('N')), LiveAction::Latest);
    assert_eq!(app.past().map(|past| (past.from, past.to)), span);
    assert_eq!(screen(&mut app, 120, 40), before);
    assert!(!before.contains(LISTENING), "{before}");
}

#[test]
fn pages() {
    for (name, keys, (columns, rows)) in [
        ("detail", "\n", (120, 40)),
        ("detail_narrow", "\n", (80, 50)),
        ("detail_very_narrow", "\n", (40, 50)),
        ("help", "?", (100, 48)),
        ("help_narrow", "?", (40, 60)),
        ("filter_typed", "/regex", (100, 24)),
        ("filter_kept", "/sessions\n", (100, 24)),
        ("by_namespace", "b", (100, 24)),
        ("by_app", "bb", (100, 24)),
        ("by_client", "bbb", (100, 24)),
        ("detail_app", "bb\n", (100, 40)),
        ("all_classes", "c", (120, 24)),
        ("paused", "p", (100, 24)),
        ("since_start", "t", (100, 24)),
    ] {
        let mut app = app_with(LiveSettings::default(), 70);
        type_keys(&mut app, keys);
        insta::assert_snapshot!(name, screen(&mut app, columns, rows));
    }
}

/// The lines of a screen, without quotes.
fn lines_of(app: &mut App, columns: u16, rows: u16) -> Vec<String> {
    let shown = screen(app, columns, rows);
    shown.lines().map(|line| line.trim_matches('"').to_owned()).collect()
}

/// The state of a server as it was `age_s` seconds before the end of the last of twelve intervals.
fn state_of(port: u16, age_s: u64, glance: ServerGlance) -> ServerState {
    let at = Workload::new().window(11).end.unix_ns() - age_s * 1_000_000_000;
    let glance = ServerGlance { at: Timestamp::from_unix_ns(at), ..glance };
    ServerState { program: Some("mongod".to_owned()), port, glance }
}

fn busy() -> ServerGlance {
    ServerGlance {
        connections: Some(214),
        queued_reads: Some(3),
        queued_writes: Some(0),
        cache_used_percent: Some(78.2),
        cache_dirty_percent: Some(4.13),
        resident_bytes: Some(3_440_000_000),
        lag_ms: Some(1_200),
        ..ServerGlance::default()
    }
}

/// The lines about servers.
fn server_lines(app: &mut App, columns: u16, rows: u16) -> Vec<String> {
    let lines = lines_of(app, columns, rows).into_iter().map(|line| line.trim_end().to_owned());
    lines.filter(|line| line.starts_with(" 2701") || line.starts_with(" mongod ")).collect()
}

#[test]
fn a_server_has_a_line_with_its_state_that_gives_way_where_there_is_no_room() {
    let mut app = app_with(LiveSettings::default(), 12);
    assert_eq!(server_lines(&mut app, 200, 30), [""; 0], "no source, no line");
    app.servers(vec![state_of(27_017, 7, busy())]);
    for (columns, expected) in [
        (
            200,
            " mongod 27017  connections 214  queued 3 read 0 write  cache 78% used  4.1% dirty  resident 3.44GB  lag 1.20s  7s ago",
        ),
        (100, " 27017  conn 214  qrw 3|0  used 78%  dirty 4.1%  res 3.44GB  lag 1.20s  7s ago"),
        (80, " 27017  conn 214  qrw 3|0  used 78%  dirty 4.1%  res 3.44GB  lag 1.20s  7s ago"),
        (72, " 27017  conn 214  qrw 3|0  used 78%  dirty 4.1%  lag 1.20s  7s ago"),
        (50, " 27017  qrw 3|0  used 78%  dirty 4.1%  7s ago"),
        (30, " 27017  qrw 3|0  7s ago"),
        (12, " 27017  7s a"),
    ] {
        assert_eq!(server_lines(&mut app, columns, 30), [expected], "{columns} columns");
    }
    let lines = lines_of(&mut app, 100, 30);
    let at = lines.iter().position(|line| line.starts_with(" 27017")).unwrap();
    assert!(lines[at + 1].contains("sorted by"), "above the line that says what the rows are: {lines:?}");
    // On a low screen rows come first.
    assert_eq!(server_lines(&mut app, 100, 10), [""; 0]);
}

#[test]
fn what_a_server_does_not_report_has_no_place_in_its_line_and_an_old_state_says_so() {
    let mut app = app_with(LiveSettings::default(), 12);
    let router =
        ServerGlance { connections: Some(7), resident_bytes: Some(64 << 20), ..ServerGlance::default() };
    app.servers(vec![state_of(27_016, 0, router.clone())]);
    assert_eq!(server_lines(&mut app, 120, 30), [" mongod 27016  connections 7  resident 67.1MB"]);
    app.servers(vec![state_of(27_016, 90, ServerGlance { lag_ms: Some(0), ..router })]);
    let terminal = draw(&mut app, 120, 30);
    let old = " mongod 27016  connections 7  resident 67.1MB  lag 0s  1m30s ago";
    assert_eq!(server_lines(&mut app, 120, 30), [old]);
    let buffer = terminal.backend().buffer();
    let style = |text: &str| {
        let row = (0..30).find(|row| {
            let line: String = (0..120).map(|column| buffer[(column, *row)].symbol()).collect();
            line.starts_with(old)
        });
        buffer[(old.find(text).unwrap() as u16, row.unwrap())].fg
    };
    assert_eq!((style("1m30s"), style("7 ")), (Color::Yellow, Color::Reset));
}

#[test]
fn three_servers_have_lines_and_the_others_are_counted() {
    let mut app = app_with(LiveSettings::default(), 12);
    app.servers((27_011..27_016).map(|port| state_of(port, 0, busy())).collect());
    let lines = server_lines(&mut app, 80, 24);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with(" 27012  conn 214"), "{lines:?}");
    assert_eq!(lines[2], " 27013  conn 214  qrw 3|0  used 78%  dirty 4.1%  lag 1.20s  and 2 more servers");
}

#[test]
fn the_state_of_servers_stands_still_while_paused_and_is_that_of_the_time_in_the_past() {
    let settings = LiveSettings { has_past: true, ..LiveSettings::default() };
    let mut app = app_with(settings, 12);
    app.servers(vec![state_of(27_017, 0, busy())]);
    type_keys(&mut app, "p");
    let before = server_lines(&mut app, 120, 30);
    app.servers(vec![state_of(27_017, 0, ServerGlance { connections: Some(9), ..busy() })]);
    assert_eq!(server_lines(&mut app, 120, 30), before);
    type_keys(&mut app, "p");
    assert!(server_lines(&mut app, 120, 30)[0].contains("connections 9"));
    let past = |servers| PastWindow { window: Workload::new().window(3), servers };
    app.show_past(past(Vec::new()));
    assert_eq!(server_lines(&mut app, 120, 30), [""; 0]);
    // Eight seconds later than the end of that window, the last live one ends.
    let then = ServerState {
        program: None,
        ..state_of(27_017, 8 + 5, ServerGlance { connections: Some(3), ..ServerGlance::default() })
    };
    app.show_past(past(vec![then]));
    let lines = lines_of(&mut app, 120, 30);
    let line = lines.iter().find(|line| line.starts_with(" server ")).expect("the server");
    assert_eq!(line.trim_end(), " server 27017  connections 3  5s earlier");
    app.show_now();
    assert!(server_lines(&mut app, 120, 30)[0].contains("connections 9"));
}

#[test]
fn a_narrow_row_says_which_query_it_is() {
    for columns in [40, 80] {
        let mut app = app_with(LiveSettings::default(), 12);
        let lines = lines_of(&mut app, columns, 24);
        let find = lines.iter().find(|line| line.contains("find shop.orders")).expect("the find");
        assert!(find.contains("p99") || find.contains("6.43ms"), "{lines:?}");
        let heading = lines.iter().position(|line| line.contains("query") && line.contains("p99")).unwrap();
        let query = lines[heading].find("query").unwrap();
        assert!(usize::from(columns) - query >= usize::from(columns) / 2, "{lines:?}");
        // No figure of the head is cut.
        assert!(lines[2].trim_end().ends_with(|c: char| c.is_ascii_digit() || c == 'k'), "{lines:?}");
        assert!(lines[4].trim_end().ends_with(['…', 'd']), "{lines:?}");
    }
}

#[test]
fn help_lies_above_what_is_open() {
    for close in [KeyCode::Char('?'), KeyCode::Esc, KeyCode::Enter] {
        let mut app = app_with(LiveSettings::default(), 12);
        type_keys(&mut app, "\n");
        let open = screen(&mut app, 120, 40);
        assert!(open.contains("shape id"), "{open}");
        type_keys(&mut app, "?");
        assert!(screen(&mut app, 120, 40).contains(" Keys"));
        press(&mut app, close);
        assert_eq!(screen(&mut app, 120, 40), open, "{close:?}");
        press(&mut app, KeyCode::Esc);
        assert!(!screen(&mut app, 120, 40).contains("shape id"), "one step each");
    }
}

#[test]
fn a_key_that_cannot_sort_says_why() {
    let mut app = app_with(LiveSettings::default(), 12);
    type_keys(&mut app, "w");
    let shown = screen(&mut app, 120, 40);
    assert!(shown.contains("known only with --split"), "{shown}");
    let selection = Selection { has_splits: true, ..Selection::default() };
    let mut app = app_with(LiveSettings { selection, ..LiveSettings::default() }, 12);
    type_keys(&mut app, "bbw");
    let shown = screen(&mut app, 120, 40);
    assert!(shown.contains("known by shape and namespace (key b)"), "{shown}");
    type_keys(&mut app, "bbw");
    assert!(screen(&mut app, 120, 40).contains("sorted by wait"));
}

#[test]
fn nothing_heard_yet() {
    let mut app = app_with(LiveSettings::default(), 0);
    insta::assert_snapshot!("nothing_yet", screen(&mut app, 80, 24));
    app.window(Window::new(Timestamp::from_unix(5, 0), WindowSettings::default()));
    let shown = screen(&mut app, 80, 24);
    assert!(shown.contains("The file holds no packets.") && shown.contains("nothing lost"), "{shown}");
}

#[test]
fn silence_is_explained_where_the_rows_would_be() {
    let network = |nobody_listens, servers| {
        PacketOrigin::Network(CapturedNetwork {
            interfaces: "eth0".into(),
            ports: "port 27099".into(),
            nobody_listens,
            servers,
        })
    };
    for (origin, coverage, words) in [
        (network(true, vec![27_017]), Coverage::default(), "Nobody listens on port 27099 on this machine."),
        (network(false, vec![]), Coverage::default(), "the interface is silent"),
        (
            network(false, vec![]),
            Coverage { frames: 5, frames_decoded: 5, streams: 1, streams_tls: 1, ..Coverage::default() },
            "The only connection is encrypted with TLS.",
        ),
    ] {
        let mut app = App::new(LiveSettings { origin, ..LiveSettings::default() });
        let mut window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
        window.coverage = coverage;
        app.window(window);
        // TLS was found at the start; since then nothing new was counted.
        (6..30).for_each(|s| app.window(Window::new(Timestamp::from_unix(s, 0), WindowSettings::default())));
        let shown = screen(&mut app, 80, 24);
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn what_the_view_leaves_out_is_said_with_the_key_that_shows_it() {
    let mut app = app_with(LiveSettings::default(), 12);
    let shown = screen(&mut app, 100, 24);
    assert!(shown.contains("Not shown:") && shown.contains("(key c)"), "{shown}");
    type_keys(&mut app, "c");
    let shown = screen(&mut app, 100, 24);
    assert!(!shown.contains("(key c)"), "{shown}");
    type_keys(&mut app, "/carts\n");
    let shown = screen(&mut app, 100, 24);
    assert!(shown.contains("that the filter leaves out (key Esc)"), "{shown}");
}

#[test]
fn the_shape_id_is_copied_and_that_is_said_until_the_next_key() {
    let mut app = app_with(LiveSettings::default(), 12);
    screen(&mut app, 100, 24);
    let LiveAction::Copy(id) = press(&mut app, KeyCode::Char('y')) else { panic!("nothing was copied") };
    assert!(id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
    let shown = screen(&mut app, 100, 24);
    assert!(shown.contains(&format!("Copied the shape id: {id}")), "{shown}");
    press(&mut app, KeyCode::Enter);
    let shown = screen(&mut app, 100, 24);
    assert!(shown.contains(&format!("shape id     {id}")) && !shown.contains("Copied"), "{shown}");
    assert_eq!(press(&mut app, KeyCode::Char('y')), LiveAction::Copy(id));
    type_keys(&mut app, "\n");
    type_keys(&mut app, "b");
    let LiveAction::Copy(namespace) = press(&mut app, KeyCode::Char('y')) else {
        panic!("nothing was copied")
    };
    assert!(namespace.contains('.'), "{namespace}");
    let nothing = &mut app_with(LiveSettings::default(), 0);
    assert_eq!(press(nothing, KeyCode::Char('y')), LiveAction::Continue);
}

/// On a narrow screen the row is cut, but opened it holds the whole text.
#[test]
fn an_opened_row_holds_the_whole_text_at_any_width() {
    let long: String = (0..60).map(|n| format!("field_{n}: ?number, ")).collect();
    for (columns, rows) in [(30, 8), (80, 24), (120, 40)] {
        let mut app = App::new(LiveSettings::default());
        let mut window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
        let one = shape(1, "find", "d.c", &long, "{}");
        window.record(&operation(&one, &application("", "", ""), Timestamp::from_unix(5, 5)));
        app.window(window);
        screen(&mut app, columns, rows);
        app.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        let mut seen = String::new();
        for _ in 0..400 {
            seen.push_str(&screen(&mut app, columns, rows));
            app.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        }
        // Words may be broken at the end of a line.
        let dense: String = seen.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
        for n in 0..60 {
            assert!(dense.contains(&format!("field_{n}:")), "{columns}x{rows}: field_{n}");
        }
    }
}

#[test]
fn losses_are_loud_and_not_forgotten() {
    let mut app = app_with(LiveSettings::default(), 3);
    let mut workload = Workload::new();
    let mut lossy = workload.window(3);
    (lossy.coverage.kernel_drops, lossy.coverage.gaps) = (27, 1);
    app.window(lossy);
    let terminal = draw(&mut app, 100, 24);
    insta::assert_snapshot!("losses", terminal.backend().to_string());
    let buffer = terminal.backend().buffer();
    let row = (0..24)
        .find(|&y| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>().contains("LOST"))
        .unwrap();
    assert!((0..100).any(|x| buffer[(x, row)].fg == Color::LightRed && buffer[(x, row)].symbol() == "L"));
    (4..30).for_each(|second| app.window(workload.window(second)));
    let later = screen(&mut app, 100, 24);
    let words =
        "nothing lost now; since start LOST: packets that the kernel dropped because the ring was full: 27";
    assert!(later.contains(words), "{later}");
}

#[test]
fn a_sample_is_marked() {
    let mut app = App::new(LiveSettings::default());
    let mut window = Workload::new().window(0);
    window.sample = 10;
    app.window(window);
    insta::assert_snapshot!("sampled", screen(&mut app, 100, 24));
}

#[test]
fn without_colours_there_are_none() {
    for keys in ["", "\n", "?", "c"] {
        let mut app = app_with(LiveSettings { color: false, ..LiveSettings::default() }, 3);
        type_keys(&mut app, keys);
        let terminal = draw(&mut app, 100, 40);
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::BOLD)));
    }
}

/// Every size, every page: what matters is that it ends and does not panic.
#[test]
fn any_size_will_do() {
    for keys in ["", "\n", "?", "/x", "b", "bb", "c", "pt"] {
        let mut app = app_with(LiveSettings::default(), 2);
        type_keys(&mut app, keys);
        for (columns, rows) in (1..12).flat_map(|n| [(n, 3), (3, n), (n, n), (n * 23, n * 7), (300, n)]) {
            screen(&mut app, columns, rows);
        }
    }
}

#[test]
fn escape_goes_back_a_step_and_then_quits() {
    let mut app = app_with(LiveSettings::default(), 2);
    type_keys(&mut app, "/shop\n\n");
    assert_eq!(press(&mut app, KeyCode::Esc), LiveAction::Continue, "from the row to the list");
    assert_eq!(press(&mut app, KeyCode::Esc), LiveAction::Continue, "takes the filter away");
    assert_eq!(app.selection().text, "");
    assert_eq!(press(&mut app, KeyCode::Esc), LiveAction::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    type_keys(&mut app, "/");
    assert_eq!(app.key(control_c), LiveAction::Quit, "even while a filter is typed");
    assert_eq!(press(&mut app, KeyCode::Char('q')), LiveAction::Continue, "a letter of the filter");
    assert_eq!(app.selection().text, "q");
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.selection().text, "", "a filter that is given up leaves things as they were");
}

#[test]
fn rows_sort_by_any_column() {
    let mut app = app_with(LiveSettings::default(), 2);
    assert_eq!(app.selection().sort.column, Column::Load);
    let mut seen = vec![];
    for _ in 0..20 {
        type_keys(&mut app, ">");
        seen.push(app.selection().sort.column);
    }
    assert_eq!(seen.last(), Some(&Column::Load), "all the way round");
    assert!(seen.contains(&Column::Server) && seen.contains(&Column::Shape) && !seen.contains(&Column::App));
    type_keys(&mut app, "<");
    assert_eq!(app.selection().sort.column, Column::Calls);
    let first = |app: &mut App| screen(app, 120, 24).lines().nth(6).unwrap().to_string();
    assert!(first(&mut app).contains("shop.customers"), "the most calls: {}", first(&mut app));
    type_keys(&mut app, "r");
    assert!(first(&mut app).contains("shop.sessions"), "the fewest: {}", first(&mut app));
}

#[test]
fn the_cursor_stays_on_its_row() {
    let mut app = app_with(LiveSettings::default(), 2);
    type_keys(&mut app, "jj");
    let under_cursor = |app: &mut App| {
        let terminal = draw(app, 120, 30);
        let buffer = terminal.backend().buffer();
        let row = (0..30).find(|&y| buffer[(1, y)].bg == Color::Blue).unwrap();
        (row, (60..120).map(|x| buffer[(x, row)].symbol()).collect::<String>())
    };
    let (row, text) = under_cursor(&mut app);
    type_keys(&mut app, "r");
    let (row_now, text_now) = under_cursor(&mut app);
    assert_ne!(row, row_now);
    assert_eq!(text, text_now);
}

#[test]
fn a_namespace_opens_as_its_shapes() {
    let mut app = app_with(LiveSettings::default(), 2);
    type_keys(&mut app, "b\n");
    assert_eq!(app.selection().by, Grouping::Shape);
    assert_eq!(app.selection().namespace, NamespaceFilter::Exactly("shop.orders".to_string()));
    let shown = screen(&mut app, 120, 24);
    assert!(
        shown.contains("2 rows") && shown.contains("aggregate") && !shown.contains("shop.carts"),
        "{shown}"
    );
}

#[test]
fn a_stored_window_is_shown_until_now_comes_back() {
    let mut app = app_with(LiveSettings { has_past: true, ..LiveSettings::default() }, 12);
    let now = screen(&mut app, 120, 40);
    assert_eq!(press(&mut app, KeyCode::Char('[')), LiveAction::Earlier);
    assert_eq!(press(&mut app, KeyCode::Char(']')), LiveAction::Later);
    assert_eq!(app.past(), None, "who reads the history decides");
    let past = Workload::new().window(3);
    let start = past.start;
    app.show_past(PastWindow { window: past, servers: Vec::new() });
    let shown = screen(&mut app, 120, 40);
    assert!(shown.contains(" PAST ") && shown != now, "{shown}");
    let clock = start.to_string();
    assert!(shown.contains(&clock[..19]), "{clock} in {shown}");
    // What is live goes on behind it, and does not change what is shown.
    let mut later = Workload::new();
    app.window((0..14).map(|second| later.window(second)).last().unwrap());
    assert_eq!(screen(&mut app, 120, 40), shown);
    // Its rows open, without the sparklines of the live windows.
    type_keys(&mut app, "\n");
    assert!(!screen(&mut app, 120, 40).contains(" history "));
    type_keys(&mut app, "N");
    assert_eq!(app.past(), None);
    assert!(!screen(&mut app, 120, 40).contains(" PAST "));
    let mut without = app_with(LiveSettings::default(), 3);
    assert_eq!(press(&mut without, KeyCode::Char('[')), LiveAction::Continue);
    assert!(screen(&mut without, 120, 40).contains("mongosonar agent"));
}

#[test]
fn a_pause_stands_still_and_loses_nothing() {
    let mut app = app_with(LiveSettings::default(), 5);
    type_keys(&mut app, "tp");
    let before = screen(&mut app, 120, 24);
    let mut workload = Workload::new();
    let mut calls = workload_calls(5);
    for second in 5..25 {
        let window = workload.window(second);
        calls += window.shapes.iter().map(|row| row.figures().calls).sum::<u64>();
        app.window(window);
    }
    assert_eq!(screen(&mut app, 120, 24), before);
    let total =
        |app: App| app.into_total().unwrap().shapes.iter().map(|row| row.figures().calls).sum::<u64>();
    type_keys(&mut app, "p");
    assert_ne!(screen(&mut app, 120, 24), before);
    type_keys(&mut app, "p");
    app.window(workload.window(25));
    assert!(total(app) > calls, "what came while paused is in the total, at the end too");
}

fn workload_calls(seconds: u64) -> u64 {
    let mut workload = Workload::new();
    (0..seconds)
        .map(|second| workload.window(second).shapes.iter().map(|row| row.figures().calls).sum::<u64>())
        .sum()
}

#[test]
fn old_intervals_leave_and_silence_is_shown() {
    let mut app = app_with(LiveSettings::default(), 20);
    assert!(screen(&mut app, 120, 24).contains("last 10 s"));
    for second in 20..31 {
        let start = Timestamp::from_unix(1_777_629_600 + second, 0);
        let mut silent = Window::new(start, WindowSettings::default());
        silent.end = start.plus_ns(1_000_000_000);
        app.window(silent);
    }
    assert!(screen(&mut app, 120, 24).contains("No operations ended in this span"));
    type_keys(&mut app, "t");
    assert!(screen(&mut app, 120, 24).contains("9 rows"));
}

#[test]
fn a_query_that_hangs_is_at_the_top_though_it_has_not_ended() {
    let mut app = app_with(LiveSettings::default(), 11);
    let mut window = Workload::new().window(11);
    window.in_flight.clear();
    window.in_flight.push(InFlightOperations {
        server: crate::synthetic::server(),
        role: Role::Served,
        class: Class::User,
        shape: shape(
            0xdead,
            "find",
            "shop.archive",
            "{filter: {$where: ?javascript}}",
            "{filter: {$where: ?}}",
        ),
        count: 3,
        oldest_ns: 312_000_000_000,
        oldest: Vec::new(),
    });
    app.window(window);
    let shown = screen(&mut app, 120, 24);
    assert!(shown.contains("in flight 3, oldest 5m12s find shop.archive"), "{shown}");
    let rows: Vec<_> = shown.lines().skip(6).take(3).collect();
    assert!(rows.iter().any(|row| row.contains("shop.archive") && row.contains("5m12s")), "{shown}");
}

#[test]
fn rows_that_differ_in_server_role_and_class_say_so() {
    let mut window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
    let (web, find) = (application("web", "", ""), shape(1, "find", "shop.orders", "{}", "{}"));
    let op = operation(&find, &web, Timestamp::from_unix(5, 500));
    window.record(&op);
    window.record(&Operation {
        role: Role::Issued,
        server: sonar_core::Endpoint::v4([10, 0, 0, 2], 27018),
        ..op
    });
    let mut app = App::new(LiveSettings::default());
    app.window(window);
    let shown = screen(&mut app, 160, 24);
    assert!(
        shown.contains("issued") && shown.contains("10.0.0.2:27018") && !shown.contains("class "),
        "{shown}"
    );
}

#[test]
fn the_rates_of_all_types_of_command_fit_80_columns() {
    let commands = ["insert", "find", "update", "delete", "getMore", "aggregate"];
    for (sample, calls) in [(1, 0), (1, 3), (1, 1_234), (7, 3), (65_536, 2)] {
        let settings = WindowSettings { sample, ..WindowSettings::default() };
        let mut window = Window::new(Timestamp::from_unix(5, 0), settings);
        window.end = Timestamp::from_unix(6, 0);
        let web = application("web", "", "");
        for (id, command) in (1..).zip(commands) {
            let shape = shape(id, command, "shop.orders", "{}", "{}");
            (0..calls).for_each(|_| window.record(&operation(&shape, &web, Timestamp::from_unix(5, 500))));
        }
        let mut app = App::new(LiveSettings::default());
        app.window(window);
        for columns in [80, 100, 132, 200] {
            let shown = screen(&mut app, columns, 24);
            let line = shown.lines().nth(2).unwrap();
            let figures: Vec<_> = line.trim_matches([' ', '"']).split_whitespace().collect();
            for name in ["insert", "query", "update", "delete", "getmore", "command"] {
                let at = figures.iter().position(|word| *word == name);
                let figure =
                    at.and_then(|at| figures.get(at + 1)).unwrap_or_else(|| panic!("{name}: {line}"));
                let number = figure.trim_start_matches('~').starts_with(|c: char| c.is_ascii_digit());
                assert!(number && !figure.ends_with('…'), "{line}");
            }
            assert!(line.contains("/s") && line.contains('~') == (sample > 1), "{line}");
        }
    }
}

#[test]
fn a_hostile_name_stays_in_its_cell() {
    let mut window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
    let evil = "\x1b[31m\u{202e}\r\nx";
    let (web, find) = (application(evil, evil, evil), shape(1, evil, evil, evil, evil));
    window.record(&operation(&find, &web, Timestamp::from_unix(5, 500)));
    let mut app = App::new(LiveSettings { source: evil.to_string(), ..LiveSettings::default() });
    app.window(window);
    for keys in ["", "\n", "\n\x1bb", "b"] {
        type_keys(&mut app, keys);
        let terminal = draw(&mut app, 140, 40);
        for cell in terminal.backend().buffer().content() {
            assert!(cell.symbol().chars().all(sonar_view::kit::is_safe), "{:?}", cell.symbol());
        }
    }
}

#[test]
fn the_header_tells_where_packets_come_from_now() {
    let mut app = app_with(LiveSettings::default(), 3);
    assert!(screen(&mut app, 100, 20).contains("eth0, port 27017 "));
    app.source("eth0, port 27017 27018".to_string(), PacketOrigin::File);
    assert!(screen(&mut app, 100, 20).contains("eth0, port 27017 27018 "));
}

#[test]
fn a_picture_is_well_formed() {
    let mut app = app_with(LiveSettings::default(), 12);
    let svg = crate::picture::svg(draw(&mut app, 100, 24).backend().buffer(), "a <title>");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt;title&gt;"));
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}

#[test]
fn the_bar_of_a_split_is_in_the_row_and_its_parts_in_the_opened_row() {
    let start = Timestamp::from_unix(1_700_000_000, 0);
    let mut window = Window::new(start, WindowSettings::default());
    let web = application("web", "PyMongo", "4.7.3");
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let op = operation(&find, &web, start.plus_ns(500_000_000));
    window.record(&op);
    let (split, _) = window.shapes.split_of(&WireOperation::from(&op)).unwrap();
    (split.operations, split.duration_ns) = (1, 10_000_000);
    split.split[TimePart::Cpu] = 2_000_000;
    split.split[TimePart::Futex] = 8_000_000;
    let waits = WaitTotal { waits: 1, wait_ns: 8_000_000 };
    split.add_wait(TimePart::Futex, &"execution ticket".into(), waits);
    let selection = Selection { has_splits: true, ..Selection::default() };
    for color in [true, false] {
        let mut app =
            App::new(LiveSettings { selection: selection.clone(), color, ..LiveSettings::default() });
        app.window(window.clone());
        for columns in [80, 120, 200] {
            let shown = screen(&mut app, columns, 24);
            assert!(shown.contains("CCLLLLLLLL"), "{shown}");
        }
        type_keys(&mut app, "w");
        assert!(screen(&mut app, 120, 24).contains("sorted by wait"));
        type_keys(&mut app, "\n");
        for columns in [40, 80, 120] {
            let shown = screen(&mut app, columns, 60);
            for text in ["Where the time went", "80.0%", "8.00ms", "execution ticket"] {
                assert!(shown.contains(text), "{text} in {shown}");
            }
        }
    }
}
