use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::path::FollowedPath;
use super::*;
use proptest::prelude::*;

/// Removed with its content when dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mongosonar-follow-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("mongod.log")
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Default, Debug, PartialEq)]
struct Taken {
    lines: Vec<String>,
    unfinished: Vec<String>,
    too_long: u64,
    notices: Vec<FollowNotice>,
}

impl LineSink for Taken {
    fn line(&mut self, line: &[u8]) {
        self.lines.push(String::from_utf8_lossy(line).into_owned());
    }

    fn unfinished(&mut self, line: &[u8]) {
        self.unfinished.push(String::from_utf8_lossy(line).into_owned());
    }

    fn too_long(&mut self) {
        self.too_long += 1;
    }

    fn notice(&mut self, notice: FollowNotice) {
        self.notices.push(notice);
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn follower(path: &Path, start: FollowStart) -> FileFollower<FollowedPath> {
    FileFollower::new(FollowedPath(path.to_owned()), None, start).unwrap()
}

/// Polls until nothing is waiting.
fn poll(follower: &mut FileFollower<FollowedPath>, taken: &mut Taken) {
    while follower.poll(taken).unwrap() {}
}

/// The lines that one more poll gives.
fn more(follower: &mut FileFollower<FollowedPath>) -> Vec<String> {
    let mut taken = Taken::default();
    poll(follower, &mut taken);
    assert_eq!(taken.unfinished, [""; 0]);
    taken.lines
}

#[test]
fn it_begins_where_it_should() {
    let folder = TempFolder::new("start");
    let log = folder.log();
    append(&log, "one\ntwo\nthr");
    let mut all = follower(&log, FollowStart::Beginning);
    let mut new = follower(&log, FollowStart::End);
    assert_eq!((more(&mut all), more(&mut new)), (vec!["one".to_owned(), "two".to_owned()], vec![]));
    let here = all.place().unwrap().position;
    assert_eq!(here.offset, 8, "of the line that is not complete");
    append(&log, "ee\nfour\n");
    assert_eq!(more(&mut all), ["three", "four"]);
    assert_eq!(more(&mut new), ["four"], "the line before was joined late");
    assert_eq!(more(&mut follower(&log, FollowStart::At(here))), ["three", "four"]);
    let beyond = FollowPosition { offset: 1_000, ..here };
    assert_eq!(more(&mut follower(&log, FollowStart::At(beyond))), ["one", "two", "three", "four"]);
}

#[test]
fn a_last_line_without_a_line_feed_comes_at_the_end() {
    let folder = TempFolder::new("last");
    append(&folder.log(), "one\r\n\ntwo");
    let mut taken = Taken::default();
    let mut follower = follower(&folder.log(), FollowStart::Beginning);
    poll(&mut follower, &mut taken);
    follower.finish(&mut taken);
    assert_eq!(
        (taken.lines, taken.unfinished),
        (vec!["one\r".to_owned(), String::new()], vec!["two".to_owned()])
    );
}

#[test]
fn a_renamed_file_is_read_to_its_end_first() {
    let folder = TempFolder::new("rename");
    let (log, old) = (folder.log(), folder.0.join("mongod.log.1"));
    append(&log, "one\n");
    let mut follower = follower(&log, FollowStart::Beginning);
    assert_eq!(more(&mut follower), ["one"]);
    append(&log, "two\n");
    fs::rename(&log, &old).unwrap();
    assert_eq!(more(&mut follower), ["two"]);
    // logrotate creates the new file, and tells the server only afterwards.
    append(&log, "");
    append(&old, "three\nfour");
    assert_eq!(more(&mut follower), ["three"]);
    append(&old, "\nfive");
    append(&log, "six\n");
    let mut taken = Taken::default();
    poll(&mut follower, &mut taken);
    assert_eq!(taken.lines, ["four", "six"]);
    assert_eq!((taken.unfinished, taken.notices), (vec!["five".to_owned()], vec![FollowNotice::Replaced]));
}

#[test]
fn a_truncated_file_begins_anew_and_its_copy_has_the_rest() {
    let folder = TempFolder::new("truncate");
    let (log, copy) = (folder.log(), folder.0.join("mongod.log.1"));
    append(&log, "one\ntw");
    let mut follower = follower(&log, FollowStart::Beginning);
    assert_eq!(more(&mut follower), ["one"]);
    append(&log, "o\nthree\n");
    fs::copy(&log, &copy).unwrap();
    OpenOptions::new().write(true).open(&log).unwrap().set_len(0).unwrap();
    append(&log, "four\n");
    let mut taken = Taken::default();
    poll(&mut follower, &mut taken);
    assert_eq!(
        (taken.lines, taken.notices),
        (vec!["two".to_owned(), "three".to_owned(), "four".to_owned()], vec![FollowNotice::Truncated])
    );
    // Without a copy, what was not read is lost; it notices even if the file has grown beyond the old size.
    OpenOptions::new().write(true).open(&log).unwrap().set_len(0).unwrap();
    append(&log, "five, which is a longer line than the one before\nsix\n");
    let mut taken = Taken::default();
    poll(&mut follower, &mut taken);
    assert_eq!(taken.notices, [FollowNotice::TruncatedWithoutCopy]);
    assert_eq!(taken.lines, ["five, which is a longer line than the one before", "six"]);
}

#[test]
fn a_file_may_go_and_come_back() {
    let folder = TempFolder::new("missing");
    let log = folder.log();
    let mut follower = follower(&log, FollowStart::End);
    let mut taken = Taken::default();
    poll(&mut follower, &mut taken);
    poll(&mut follower, &mut taken);
    assert_eq!((taken.notices.as_slice(), follower.place()), (&[FollowNotice::Missing][..], None));
    append(&log, "before\n");
    assert_eq!(more(&mut follower), [""; 0], "what is there when it appears is old, as asked for");
    append(&log, "one\n");
    assert_eq!(more(&mut follower), ["one"]);
    append(&log, "two\n");
    fs::remove_file(&log).unwrap();
    let mut taken = Taken::default();
    poll(&mut follower, &mut taken);
    assert_eq!(
        (taken.lines.as_slice(), taken.notices.as_slice()),
        (&["two".to_owned()][..], &[FollowNotice::Missing][..])
    );
    append(&log, "three\n");
    assert_eq!(more(&mut follower), ["three"]);
}

#[test]
fn it_goes_on_in_a_file_that_was_renamed_while_nobody_followed() {
    let folder = TempFolder::new("resume");
    let log = folder.log();
    append(&log, "one\ntwo\n");
    let mut first = follower(&log, FollowStart::Beginning);
    assert_eq!(more(&mut first), ["one", "two"]);
    let here = first.place().unwrap().position;
    append(&log, "three\n");
    fs::rename(&log, folder.0.join("mongod.log.2026-11-21T21-26-49")).unwrap();
    append(&log, "four\n");
    assert_eq!(more(&mut follower(&log, FollowStart::At(here))), ["three", "four"]);
    // Where the old file is gone, all of the new one counts.
    fs::remove_file(folder.0.join("mongod.log.2026-11-21T21-26-49")).unwrap();
    assert_eq!(more(&mut follower(&log, FollowStart::At(here))), ["four"]);
}

/// Truncates a log and writes this text, with the same number of the file.
fn rewrite(log: &Path, text: &str) {
    OpenOptions::new().write(true).create(true).truncate(true).open(log).unwrap();
    append(log, text);
}

#[test]
fn a_file_that_was_truncated_while_nobody_followed_begins_anew() {
    let folder = TempFolder::new("rewritten");
    let (log, copy) = (folder.log(), folder.0.join("mongod.log.1"));
    append(&log, "one\ntwo\nthr");
    let mut first = follower(&log, FollowStart::Beginning);
    assert_eq!(more(&mut first), ["one", "two"]);
    let here = first.place().unwrap().position;
    append(&log, "ee\n");
    fs::copy(&log, &copy).unwrap();
    rewrite(&log, "four\nfive\nsix\n");
    // The rest is in the copy, if there is one.
    assert_eq!(more(&mut follower(&log, FollowStart::At(here))), ["three", "four", "five", "six"]);
    fs::write(&copy, "another file\n").unwrap();
    assert_eq!(
        more(&mut follower(&log, FollowStart::At(here))),
        ["four", "five", "six"],
        "not in the middle of it"
    );
    fs::remove_file(&copy).unwrap();
    assert_eq!(more(&mut follower(&log, FollowStart::At(here))), ["four", "five", "six"]);
}

#[test]
fn a_file_that_was_truncated_before_a_position_moved_is_not_taken_for_the_old_one() {
    let folder = TempFolder::new("beginning");
    let (log, copy) = (folder.log(), folder.0.join("mongod.log.1"));
    for first in ["one", &"x".repeat(3 * MARK)] {
        rewrite(&log, &first[..1]);
        let (mut begun, mut taken) = (follower(&log, FollowStart::Beginning), Places::default());
        assert!(!begun.poll(&mut taken).unwrap());
        append(&log, &format!("{}\ntwo\n", &first[1..]));
        while begun.poll(&mut taken).unwrap() {}
        let here = taken.0[0].0.position;
        assert_eq!(here.offset, 0);
        assert_eq!(more(&mut follower(&log, FollowStart::At(here))), [first, "two"]);
        fs::copy(&log, &copy).unwrap();
        rewrite(&log, "three\n");
        assert_eq!(more(&mut follower(&log, FollowStart::At(here))), [first, "two", "three"]);
    }
}

#[test]
fn a_position_after_a_part_of_a_line_is_found_again() {
    let folder = TempFolder::new("parts");
    let log = folder.log();
    append(&log, &format!("{}\n{}", "x".repeat(3 * MARK), "y".repeat(PIECE)));
    let mut first = follower(&log, FollowStart::Beginning);
    assert_eq!(more(&mut first).len(), 1);
    let here = first.place().unwrap().position;
    append(&log, "\nz\n");
    let mut second = follower(&log, FollowStart::At(here));
    assert_eq!(more(&mut second), ["y".repeat(PIECE), "z".to_owned()]);
    let (here, first) = (second.place().unwrap().position, &mut first);
    assert_eq!(more(first).len(), 2);
    assert_eq!(first.place().unwrap().position, here, "however the file was read");
}

/// The places of lines, with what the lines are.
#[derive(Default)]
struct Places(Vec<(LinePlace, String)>, Option<LinePlace>);

impl Places {
    fn take(&mut self, what: &str) {
        self.0.push((self.1.take().unwrap(), what.to_owned()));
    }
}

impl LineSink for Places {
    const WANTS_PLACES: bool = true;

    fn begins(&mut self, place: LinePlace) {
        self.1 = Some(place);
    }

    fn line(&mut self, line: &[u8]) {
        self.take(&String::from_utf8_lossy(line));
    }

    fn unfinished(&mut self, line: &[u8]) {
        self.take(&String::from_utf8_lossy(line));
    }

    fn too_long(&mut self) {
        self.take("too long");
    }
}

#[test]
fn each_line_has_its_place_also_if_it_is_too_long_or_its_file_was_truncated() {
    let folder = TempFolder::new("places");
    let log = folder.log();
    let long = (MAX_LINE + 3 * PIECE) as u64;
    append(&log, &format!("one\n{}", "x".repeat(long as usize)));
    let (mut first, mut taken) = (follower(&log, FollowStart::Beginning), Places::default());
    while first.poll(&mut taken).unwrap() {}
    let of = |taken: &Places| -> Vec<(u64, u64, String)> {
        taken.0.iter().map(|(at, what)| (at.position.offset, at.read, what.clone())).collect()
    };
    assert_eq!(of(&taken), [(0, 0, "one".to_owned())]);
    let here = first.place().unwrap();
    assert_eq!((here.position.offset, here.read), (4, 4), "where the line began that goes on");
    append(&log, "\ntwo\nthr");
    while first.poll(&mut taken).unwrap() {}
    let expected = [(4, 4, "too long".to_owned()), (5 + long, 5 + long, "two".to_owned())];
    assert_eq!(of(&taken)[1..], expected);
    // Who begins there counts it, too.
    let (mut second, mut again) = (follower(&log, FollowStart::At(here.position)), Places::default());
    while second.poll(&mut again).unwrap() {}
    let expected = [(4, 0, "too long".to_owned()), (5 + long, 1 + long, "two".to_owned())];
    assert_eq!(of(&again), expected);
    // The end of what was truncated is a line of the old content.
    rewrite(&log, "four\n");
    while first.poll(&mut taken).unwrap() {}
    let expected = [(9 + long, 9 + long, "thr".to_owned()), (0, 12 + long, "four".to_owned())];
    assert_eq!(of(&taken)[3..], expected);
}

#[test]
fn long_lines_are_bounded() {
    let folder = TempFolder::new("long");
    let log = folder.log();
    let long = "x".repeat(MAX_LINE + PIECE);
    append(&log, &format!("one\n{long}\ntwo\n{}\n{long}", "y".repeat(3 * PIECE)));
    let mut taken = Taken::default();
    let mut follower = follower(&log, FollowStart::Beginning);
    poll(&mut follower, &mut taken);
    assert!(follower.partial.capacity() <= 2 * MAX_LINE && follower.buffer.capacity() <= 2 * (PIECE + MARK));
    assert_eq!((taken.lines.len(), taken.lines[2].len(), taken.too_long), (3, 3 * PIECE, 1));
    follower.finish(&mut taken);
    assert_eq!((taken.too_long, taken.unfinished.len()), (2, 0));
}

#[test]
fn one_call_reads_some_megabytes() {
    let folder = TempFolder::new("budget");
    let log = folder.log();
    let line = format!("{}\n", "x".repeat(999));
    append(&log, &line.repeat(3 * BUDGET / 1_000));
    let mut follower = follower(&log, FollowStart::Beginning);
    let mut taken = Taken::default();
    assert!(follower.poll(&mut taken).unwrap());
    assert!((BUDGET / 1_000 - 1..=BUDGET / 1_000 + PIECE / 1_000).contains(&taken.lines.len()));
    poll(&mut follower, &mut taken);
    assert_eq!(taken.lines.len(), 3 * BUDGET / 1_000);
}

#[test]
fn only_regular_files_are_opened() {
    let folder = TempFolder::new("regular");
    let path = folder.0.join("folder");
    fs::create_dir(&path).unwrap();
    let mut follower = follower(&path, FollowStart::Beginning);
    assert_eq!(follower.poll(&mut Taken::default()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // It is asked again each time, and may be a file later.
    fs::remove_dir(&path).unwrap();
    append(&path, "one\n");
    assert_eq!(more(&mut follower), ["one"]);
}

#[test]
fn a_file_that_was_opened_before_is_read_without_its_place() {
    /// A place that may not be looked at.
    struct Forbidden;

    impl FollowedPlace for Forbidden {
        fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
            Err(io::ErrorKind::PermissionDenied.into())
        }

        fn open(&mut self) -> io::Result<File> {
            Err(io::ErrorKind::PermissionDenied.into())
        }

        fn copies(&mut self) -> Vec<File> {
            Vec::new()
        }
    }
    let folder = TempFolder::new("forbidden");
    append(&folder.log(), "one\n");
    let file = File::open(folder.log()).unwrap();
    let mut follower = FileFollower::new(Forbidden, Some(file.into()), FollowStart::Beginning).unwrap();
    for line in ["one", "two"] {
        let mut taken = Taken::default();
        assert_eq!(follower.poll(&mut taken).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(taken.lines, [line]);
        append(&folder.log(), "two\n");
    }
}

/// What a server, a rotation or a follower does.
#[derive(Clone, Debug)]
enum Action {
    /// Writes this many lines, and perhaps the beginning of another one.
    Write(usize, bool),
    Poll,
    /// Follows anew from where the last follower was.
    Restart,
    Rename,
    /// Renames the file and creates an empty one; the server writes this many more lines to the old file.
    RenameAndCreate(usize),
    CopyAndTruncate,
    Delete,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0usize..40, any::<bool>()).prop_map(|(lines, partial)| Action::Write(lines, partial)),
        4 => Just(Action::Poll),
        1 => Just(Action::Restart),
        1 => Just(Action::Rename),
        1 => (0usize..5).prop_map(Action::RenameAndCreate),
        1 => Just(Action::CopyAndTruncate),
        1 => Just(Action::Delete),
    ];
    prop::collection::vec(action, 0..60)
}

/// A server that writes numbered lines.
struct Writer {
    path: PathBuf,
    written: u64,
    /// The end of a line that has been begun.
    rest: Option<String>,
    rotated: VecDeque<PathBuf>,
}

impl Writer {
    /// The lines of a real log differ too.
    fn next(&mut self) -> String {
        self.written += 1;
        format!("line {} {}", self.written, "x".repeat((self.written * 37 % 120) as usize))
    }

    fn write(&mut self, path: &Path, lines: usize, partial: bool) {
        let mut text = self.rest.take().map(|rest| rest + "\n").unwrap_or_default();
        for _ in 0..lines {
            text += &self.next();
            text.push('\n');
        }
        if partial {
            let line = self.next();
            let (begin, rest) = line.split_at(4);
            text += begin;
            self.rest = Some(rest.to_owned());
        }
        append(path, &text);
    }

    fn rotated_name(&mut self) -> PathBuf {
        let name = PathBuf::from(format!("{}.{:04}", self.path.display(), self.rotated.len()));
        self.rotated.push_back(name.clone());
        name
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Each line is given out once, in order, through any sequence of rotations between which the file was polled.
    #[test]
    fn no_line_is_lost_or_repeated(actions in actions(), tag in any::<u64>()) {
        let folder = TempFolder::new(&format!("random-{tag:x}"));
        let mut writer = Writer { path: folder.log(), written: 0, rest: None, rotated: VecDeque::new() };
        let path = folder.log();
        append(&path, "");
        let (mut follower, mut taken) = (follower(&path, FollowStart::Beginning), Taken::default());
        poll(&mut follower, &mut taken);
        for action in actions {
            // A server finishes a line before it opens another file.
            if !matches!(action, Action::Write(..) | Action::Poll | Action::Restart) && writer.rest.is_some() {
                writer.write(&path, 0, false);
            }
            match action {
                Action::Write(lines, partial) => writer.write(&path, lines, partial),
                Action::Poll => poll(&mut follower, &mut taken),
                Action::Restart => {
                    poll(&mut follower, &mut taken);
                    if let Some(here) = follower.place() {
                        follower = self::follower(&path, FollowStart::At(here.position));
                    }
                }
                Action::Rename => {
                    fs::rename(&path, writer.rotated_name()).unwrap();
                    writer.write(&path, 1, false);
                    poll(&mut follower, &mut taken);
                }
                Action::RenameAndCreate(lines) => {
                    let old = writer.rotated_name();
                    fs::rename(&path, &old).unwrap();
                    append(&path, "");
                    poll(&mut follower, &mut taken);
                    writer.write(&old, lines, false);
                    writer.write(&path, 1, false);
                    poll(&mut follower, &mut taken);
                }
                Action::CopyAndTruncate => {
                    // Nothing tells a file of which nothing was read from its successor.
                    if follower.place().is_none_or(|here| here.position.offset == 0) {
                        poll(&mut follower, &mut taken);
                    }
                    fs::copy(&path, writer.rotated_name()).unwrap();
                    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
                    // Between the two only the bytes before the position tell one file from the other.
                    writer.write(&path, 3, false);
                    poll(&mut follower, &mut taken);
                }
                Action::Delete => {
                    poll(&mut follower, &mut taken);
                    fs::remove_file(&path).unwrap();
                    poll(&mut follower, &mut taken);
                    writer.write(&path, 1, false);
                    poll(&mut follower, &mut taken);
                }
            }
        }
        if writer.rest.is_some() {
            writer.write(&path, 0, false);
        }
        poll(&mut follower, &mut taken);
        follower.finish(&mut taken);
        let mut expected = Writer { path, written: 0, rest: None, rotated: VecDeque::new() };
        let all: Vec<String> = (0..writer.written).map(|_| expected.next()).collect();
        prop_assert_eq!(taken.lines, all);
        prop_assert_eq!(taken.unfinished, [""; 0]);
        prop_assert!(!taken.notices.contains(&FollowNotice::TruncatedWithoutCopy));
    }
}
