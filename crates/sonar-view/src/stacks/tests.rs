use sonar_core::files::ThreadRole;
use sonar_core::stacks::{StackKey, StackTable, ThreadState};

use super::*;
use crate::kit::json::line;
use crate::kit::{About, Fitting};

/// A stack: its class, its functions from the innermost on (`library!function` in a library), samples, threads.
type Stack<'a> = (&'a str, &'a str, u64, u32);

fn report(stacks: &[Stack<'_>]) -> StackReport {
    let mut table = StackTable::default();
    for (class, functions, samples, threads) in stacks {
        let frames = functions.split(' ').map(|name| match name.split_once('!') {
            Some((library, name)) => (name.into(), Some(library.into())),
            None => (name.into(), None),
        });
        let key = StackKey {
            class: (*class).into(),
            idle: false,
            role: ThreadRole::Client,
            state: ThreadState::Sleeping,
            call: Some("futex".into()),
            frames: frames.collect(),
            cut: None,
        };
        for sample in 0..*samples {
            table.add(key.clone(), sample as u32 % threads);
        }
    }
    let process = StackProcess { pid: 712, name: "mongod".into() };
    let mut report = StackReport::new(About::new(None, Vec::new(), None), process).with(table);
    report.samples = report.shown + 9;
    report.idle = 9;
    report
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const PROFILER: Stack<'_> = (
    "profiler write",
    "libc.so.6!pthread_cond_timedwait mongo::CondVarLockGrantNotification::wait mongo::profile libc.so.6!start_thread libc.so.6!clone",
    24,
    8,
);
const TICKET: Stack<'_> = ("execution ticket", "libc.so.6!? ? mongo::runQuery", 6, 6);

/// What pt-pmp 3.x makes of the same stacks as gdb prints them.
#[test]
fn the_format_of_pt_pmp_is_kept() {
    let text = written(|out| pmp(&report(&[TICKET, PROFILER]), out));
    let expected = concat!(
        "     24 pthread_cond_timedwait(libc.so.6),mongo::CondVarLockGrantNotification::wait,mongo::profile,",
        "start_thread(libc.so.6),clone(libc.so.6)\n",
        "      6 libc::??(libc.so.6),::??,mongo::runQuery\n",
    );
    assert_eq!(text, expected);
}

#[test]
fn folded_stacks_have_the_root_first_and_no_machinery() {
    let text = written(|out| folded(&report(&[PROFILER]), out));
    assert_eq!(
        text,
        "client connection;mongo::profile;mongo::CondVarLockGrantNotification::wait;pthread_cond_timedwait;[profiler write] 24\n"
    );
}

#[test]
fn text_has_classes_with_shares_and_the_stacks() {
    let report = report(&[PROFILER, TICKET]);
    let text = written(|out| report.text(1, 100, &mut Fitting::new(out, Some(100))));
    for part in [
        "Not shown: 9 samples of idle threads (--all shows them)",
        "80.0%  profiler write",
        "20.0%  execution ticket",
        "80.0% profiler write in futex, client connection, 8 threads",
        "pthread_cond_timedwait < CondVarLockGrantNotification::wait < profile",
        "1 more stack: --limit shows more",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn a_document_is_read_back_as_it_was_written() {
    let report = report(&[PROFILER, TICKET]);
    let text = written(|out| line(&report, out));
    assert_eq!(StackReport::read(text.as_bytes()).unwrap(), report);
    let changes = [
        ("\"schema\":1", "\"schema\":2"),
        ("\"stacks\"", "\"other\""),
        ("{", "["),
        // More samples than all together, or a sum that overflows.
        ("\"samples\":24", "\"samples\":25"),
        ("\"samples\":24", "\"samples\":18446744073709551615"),
        ("\"threads\":8", "\"threads\":25"),
    ];
    for (from, to) in changes {
        assert!(StackReport::read(text.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
    }
}

#[test]
fn full_names_leave_no_function_out() {
    let mut report = report(&[PROFILER]);
    assert!(report.stacks[0].frames.iter().any(|frame| frame.machinery && frame.function == "start_thread"));
    report.full_names = true;
    let text = written(|out| report.text(1, 200, &mut Fitting::new(out, Some(200))));
    assert!(text.contains("< mongo::profile < start_thread < clone"), "{text}");
    let folded = written(|out| folded(&report, out));
    assert!(folded.starts_with("client connection;clone;start_thread;mongo::profile;"), "{folded}");
}

#[test]
fn what_a_process_names_is_not_written_to_a_terminal_as_it_is() {
    let mut report = report(&[PROFILER]);
    report.limits.push("/tmp/\u{1b}[31mx.so: it cannot be opened".to_owned());
    let text = written(|out| report.text(1, 100, &mut Fitting::new(out, None)));
    assert!(text.contains("x.so: it cannot be opened") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_picture_is_well_formed_and_escapes_names() {
    let report = report(&[PROFILER, ("on CPU", "std::operator<<&\"x\" main", 10, 1)]);
    let text = written(|out| svg(&report, out));
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    assert!(text.contains("std::operator&lt;&lt;&amp;") && !text.contains("operator<<"));
    assert_eq!(text.matches("<g>").count(), text.matches("</g>").count());
    assert!(text.contains("<title>[profiler write] (24 samples, 70.6%)</title>"), "{text}");
    assert!(!text.contains("<script") && !text.contains("href"));
}

#[test]
fn a_comparison_names_what_changed_and_not_what_is_noise() {
    let work = ("on CPU", "mongo::runQuery mongo::runCommand", 400, 400);
    let before = report(&[work, ("page busy", "__wt_page_in_func", 20, 20)]);
    let after = report(&[
        work,
        ("page busy", "__wt_page_in_func", 22, 22),
        ("profiler write", "pthread_cond_timedwait mongo::profile mongo::runCommand", 150, 150),
    ]);
    let about = || About::new(None, vec!["before.json".into(), "after.json".into()], None);
    let comparison = StackComparison::new(&before, &after, about());
    let names: Vec<&str> = comparison.classes.changed.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["profiler write, client connection", "on CPU, client connection"]);
    assert_eq!(comparison.classes.unchanged, 1);
    let words = comparison.words.join("\n");
    assert!(words.contains("New in B: profiler write, client connection, 26.2% of samples."), "{words}");
    assert!(words.contains("New in B: profile, 26.2% of samples."), "{words}");
    assert!(words.contains("1 wait class unchanged within noise."), "{words}");
    let mut shown = Vec::new();
    comparison.text(&mut Fitting::new(&mut shown, None)).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    let answer = "2 wait classes and 3 functions changed; most of all profiler write, client connection: 0.0% of samples in \
                  A, 26.2% in B.";
    assert_eq!(shown.lines().next(), Some(answer));
    // The same shares, of one thread that is parked.
    let parked = |samples| report(&[("a", "x", samples, 1), ("b", "y", 1_000, 1)]);
    let comparison = StackComparison::new(&parked(100), &parked(1_000), about());
    assert!(comparison.classes.changed.is_empty());
    let mut shown = Vec::new();
    comparison.text(&mut Fitting::new(&mut shown, None)).unwrap();
    assert!(shown.starts_with(b"Nothing changed beyond noise.\n"));
}

#[test]
fn a_comparison_names_no_functions_of_idle_threads() {
    let work = ("on CPU", "mongo::runQuery mongo::runCommand", 400, 400);
    let idle = |samples: u32| {
        let mut report = report(&[
            work,
            ("waiting for a request", "recvmsg mongo::sourceMessage", u64::from(samples), samples),
        ]);
        report.stacks.iter_mut().for_each(|row| row.idle = row.class.starts_with("waiting"));
        report
    };
    let about = About::new(None, vec!["before.json".into(), "after.json".into()], None);
    let comparison = StackComparison::new(&idle(300), &idle(30), about);
    let changed =
        |changes: &ShareChanges| changes.changed.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        changed(&comparison.classes),
        ["on CPU, client connection", "waiting for a request, client connection"]
    );
    assert_eq!(changed(&comparison.functions), Vec::<String>::new());
    assert_eq!(comparison.functions.unchanged, 2);
}
