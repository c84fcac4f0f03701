use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::Command;
use std::thread;

use rustix::io::{Errno, ioctl_fionread};

use super::*;

/// What a thread may still do.
#[derive(Debug, PartialEq, Eq)]
struct Able {
    read: bool,
    write: bool,
    socket: bool,
    run: bool,
    trace: bool,
    memory: bool,
}

/// Tries everything, in its own thread after `confined`.
fn after(confined: impl FnOnce() + Send + 'static) -> Able {
    let file = std::env::temp_dir().join(format!(
        "sonar-sys-privileges-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let id = child.id();
    let able = thread::spawn(move || {
        let write = |file| File::create(file).is_ok();
        assert!(write(&file), "before it is confined");
        confined();
        // Results first: a failed assertion would open files.
        Able {
            read: File::open("/proc/self/maps").is_ok(),
            write: write(&file),
            socket: TcpListener::bind("127.0.0.1:0").is_ok()
                || UdpSocket::bind("127.0.0.1:0").is_ok()
                || UnixStream::connect("/nonexistent")
                    .is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
            run: Command::new("/bin/true").status().is_ok(),
            trace: sys_process::trace(id).is_ok(),
            memory: vec![1u8; 64 << 20].iter().map(|byte| usize::from(*byte)).sum::<usize>() == 64 << 20,
        }
    })
    .join()
    .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    able
}

#[test]
fn a_user_namespace_has_the_ids_of_its_map() {
    // The first namespace, one with a single user, and one of a container.
    assert!(has_id("         0          0 4294967295\n", NOBODY));
    assert!(!has_id("         0       1000          1\n", NOBODY));
    assert!(!has_id("0 100000 65534\n", NOBODY) && has_id("0 100000 65535\n", NOBODY));
    assert!(
        has_id("0 1000 1\n1 100000 65536\n", NOBODY) && !has_id("", NOBODY) && !has_id("x y z\n", NOBODY)
    );
}

/// `unshare` maps the user alone, so there is no other one.
#[test]
fn root_of_a_user_namespace_without_nobody_lacks_it() {
    const ASKED: &str = "SONAR_SYS_ASKS_FOR_NOBODY";
    if std::env::var_os(ASKED).is_some() {
        assert_eq!(missing_to_leave_root(), Some(RootObstacle::Nobody));
        assert_eq!(leave_root(&[]).unwrap_err().to_string(), "its user namespace has no nobody");
        return;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return println!("skipped: no user namespace can be made here");
    }
    let own = std::env::current_exe().unwrap();
    let name = "privileges::tests::root_of_a_user_namespace_without_nobody_lacks_it";
    let output = unshare().arg(own).args(["--exact", name]).env(ASKED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Every duty but the one that is left with a few calls.
const NOT_DECODING: [Duty; 9] = [
    Duty::Client,
    Duty::Capturing,
    Duty::Serving,
    Duty::Writing,
    Duty::Storing,
    Duty::Reading,
    Duty::Observing,
    Duty::Attaching,
    Duty::Showing,
];

fn confined_to(duty: Duty) -> impl FnOnce() + Send {
    move || {
        set_no_new_privs(true).unwrap();
        confine(duty).unwrap();
    }
}

#[test]
fn a_decoder_thread_can_open_nothing_and_start_nothing() {
    let able = after(confined_to(Duty::Decoding));
    let none = Able { read: false, write: false, socket: false, run: false, trace: false, memory: true };
    assert_eq!(able, none);
}

#[test]
fn each_duty_can_do_what_it_is_for() {
    let none = Able { read: false, write: false, socket: false, run: false, trace: false, memory: true };
    assert_eq!(after(confined_to(Duty::Showing)), none);
    assert_eq!(after(confined_to(Duty::Reading)), Able { read: true, ..none });
    assert_eq!(after(confined_to(Duty::Observing)), Able { read: true, ..none });
    assert_eq!(after(confined_to(Duty::Attaching)), Able { read: true, ..none });
    assert_eq!(after(confined_to(Duty::Client)), Able { read: true, socket: true, ..none });
    assert_eq!(after(confined_to(Duty::Serving)), Able { read: true, ..none });
    let writing = Able { read: true, write: true, ..none };
    assert_eq!(after(confined_to(Duty::Writing)), writing);
    assert_eq!(after(confined_to(Duty::Storing)), writing);
}

#[test]
fn an_unconfined_thread_can_do_all_that_is_tried() {
    let able = after(|| {});
    assert!(able.read && able.write && able.socket && able.run && able.memory, "{able:?}");
}

/// The error of each call, in its own thread after `confined`. The kernel itself refuses all arguments but the
/// given ones: if the filter lets a call pass, nothing happens.
fn errors_after(
    confined: impl FnOnce() + Send + 'static,
    calls: &'static [(libc::c_long, [libc::c_long; 2])],
) -> Vec<Option<i32>> {
    let tried = thread::spawn(move || {
        confined();
        let errors: Vec<_> =
            calls.iter().map(|(number, arguments)| sys_process::fails(*number, *arguments)).collect();
        let other = thread::spawn(|| 7).join();
        (errors, other.ok())
    });
    let (errors, other) = tried.join().unwrap();
    assert_eq!(other, Some(7), "threads can be started");
    errors
}

#[test]
fn unusual_ways_to_more_privileges_are_closed_too() {
    const NAMESPACE: libc::c_long = (libc::CLONE_NEWUSER | libc::CLONE_FS) as _;
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_clone, [NAMESPACE, 0]),
        (libc::SYS_clone, [(libc::CLONE_NEWNS | libc::CLONE_FS) as _, 0]),
        (libc::SYS_unshare, [-1, 0]),
        (libc::SYS_setns, [-1, 0]),
        (libc::SYS_ioctl, [-1, libc::TIOCSTI as _]),
        (libc::SYS_ioctl, [-1, libc::TIOCLINUX as _]),
        (libc::SYS_fsconfig, [-1, -1]),
        (467, [-1, -1]),
        (libc::SYS_sethostname, [0, -1]),
        (libc::SYS_setdomainname, [0, -1]),
        (libc::SYS_quotactl, [-1, 0]),
        (443, [-1, -1]),
        (libc::SYS_fanotify_init, [-1, 0]),
        (libc::SYS_syslog, [-1, 0]),
    ];
    let unconfined = errors_after(|| {}, CALLS);
    assert!(unconfined.iter().all(|error| error.is_some_and(|error| error != libc::EPERM)), "{unconfined:?}");
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 14], "{duty:?}");
    }
    const OTHERS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_clone3, [0, 0]),
        // CLONE_THREAD needs CLONE_SIGHAND.
        (libc::SYS_clone, [libc::CLONE_THREAD as _, 0]),
        (libc::SYS_ioctl, [-1, libc::TIOCGWINSZ as _]),
    ];
    assert_eq!(
        errors_after(confined_to(Duty::Showing), OTHERS),
        [Some(libc::ENOSYS), Some(libc::EINVAL), Some(libc::EBADF)]
    );
}

#[test]
fn other_processes_get_no_signals_limits_or_priorities() {
    const ALLOWED: Option<i32> = None;
    const REFUSED: Option<i32> = Some(libc::EPERM);
    // From linux/ioprio.h.
    const IOPRIO_WHO_PROCESS: libc::c_long = 1;
    const IOPRIO_WHO_PGRP: libc::c_long = 2;
    const IOPRIO_WHO_USER: libc::c_long = 3;
    let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
    let other = libc::c_long::from(victim.id());
    let own = libc::c_long::from(std::process::id());
    // Signal 0 only asks whether one may be sent; a limit that is read is one that may be set.
    let calls: &'static [(libc::c_long, [libc::c_long; 2])] = Box::leak(Box::new([
        (libc::SYS_kill, [other, 0]),
        (libc::SYS_tgkill, [other, other]),
        (libc::SYS_tkill, [other, 0]),
        (libc::SYS_prlimit64, [other, libc::RLIMIT_NOFILE as _]),
        (libc::SYS_setpriority, [libc::PRIO_PROCESS as _, other]),
        (libc::SYS_setpriority, [libc::PRIO_USER as _, 0]),
        (libc::SYS_kill, [0, 0]),
        (libc::SYS_kill, [-1, 0]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS, other]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_PGRP, 0]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_USER, 0]),
    ]));
    assert_eq!(errors_after(|| {}, &calls[..5]), [ALLOWED; 5], "without a filter");
    let duties = NOT_DECODING.into_iter().chain([Duty::Decoding]);
    for duty in duties {
        let errors = thread::spawn(move || {
            confined_to(duty)();
            calls.iter().map(|(number, arguments)| sys_process::fails(*number, *arguments)).collect()
        });
        let errors: Vec<_> = errors.join().unwrap();
        assert_eq!(errors, [REFUSED; 11], "{duty:?}");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let of_its_own: &'static [(libc::c_long, [libc::c_long; 2])] = Box::leak(Box::new([
        (libc::SYS_kill, [own, 0]),
        (libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as _]),
        (libc::SYS_prlimit64, [own, libc::RLIMIT_NOFILE as _]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS, 0]),
    ]));
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), of_its_own), [ALLOWED; 4], "{duty:?}");
    }
}

#[test]
fn no_signal_is_sent_by_way_of_a_descriptor_and_no_process_is_left_behind() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_fcntl, [-1, libc::F_SETOWN as _]),
        (libc::SYS_fcntl, [-1, 10]),
        (libc::SYS_fcntl, [-1, 15]),
        (libc::SYS_ioctl, [-1, 0x8901]),
        (libc::SYS_ioctl, [-1, 0x8902]),
        (libc::SYS_prctl, [libc::PR_SET_MM as _, -1]),
        // CLONE_SIGHAND without CLONE_VM is an error of its own.
        (libc::SYS_clone, [(libc::CLONE_SIGHAND | libc::SIGCHLD) as _, 0]),
    ];
    let unconfined = errors_after(|| {}, CALLS);
    assert!(unconfined[..5].iter().all(|error| *error == Some(libc::EBADF)), "{unconfined:?}");
    assert_eq!(unconfined[6], Some(libc::EINVAL));
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 7], "{duty:?}");
    }
}

#[test]
fn sockets_that_are_open_or_made_in_pairs_lead_nowhere() {
    const PAIRS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_socketpair, [libc::AF_UNIX as _, libc::SOCK_DGRAM as _]),
        (libc::SYS_socketpair, [libc::AF_UNIX as _, libc::SOCK_SEQPACKET as _]),
        (libc::SYS_socketpair, [libc::AF_TIPC as _, libc::SOCK_STREAM as _]),
        (libc::SYS_sendmmsg, [-1, 0]),
    ];
    let without_sockets = [
        Duty::Serving,
        Duty::Writing,
        Duty::Storing,
        Duty::Reading,
        Duty::Observing,
        Duty::Attaching,
        Duty::Showing,
    ];
    for duty in without_sockets {
        let refused = errors_after(confined_to(duty), PAIRS);
        assert_eq!(refused, [Some(libc::EPERM); 4], "{duty:?}");
        let messages = errors_after(confined_to(duty), &[(libc::SYS_sendmsg, [-1, 0])]);
        let passes_on = !matches!(duty, Duty::Serving | Duty::Storing | Duty::Observing | Duty::Showing);
        assert_eq!(messages, [Some(if passes_on { libc::EBADF } else { libc::EPERM })], "{duty:?}");
        let path = std::env::temp_dir().join(format!("sonar-sys-datagram-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let receiver = UnixDatagram::bind(&path).unwrap();
        let to = path.clone();
        let sent = thread::spawn(move || {
            let (socket, connected) = (UnixDatagram::unbound().unwrap(), UnixDatagram::unbound().unwrap());
            connected.connect(&to).unwrap();
            confined_to(duty)();
            let elsewhere = socket.send_to(b"out", &to).map_err(|error| error.raw_os_error());
            let pair = UnixStream::pair().map_err(|error| error.raw_os_error());
            (elsewhere, connected.send(b"sent").ok(), pair.map(|(one, _)| (&one).write(b"x").ok()))
        });
        let sent = sent.join().unwrap();
        assert_eq!(sent, (Err(Some(libc::EPERM)), Some(4), Ok(Some(1))), "{duty:?}");
        drop(receiver);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_socket_that_captures_gets_no_way_to_send() {
    const OPTIONS: &[(libc::c_long, [libc::c_long; 2])] =
        &[(libc::SYS_setsockopt, [-1, libc::SOL_PACKET as _])];
    for duty in NOT_DECODING.into_iter().chain([Duty::Decoding]) {
        // The one opens sockets that capture, the other has none in its process.
        let may = matches!(duty, Duty::Capturing | Duty::Serving);
        let errors = thread::spawn(move || {
            confined_to(duty)();
            OPTIONS
                .iter()
                .map(|(number, arguments)| sys_process::fails(*number, *arguments))
                .collect::<Vec<_>>()
        });
        assert_eq!(errors.join().unwrap(), [Some(if may { libc::EBADF } else { libc::EPERM })], "{duty:?}");
    }
}

#[test]
fn a_thread_that_leaves_the_descriptors_of_others_has_none_of_them_and_they_keep_theirs() {
    let is_open = |number: i32| std::fs::read_link(format!("/proc/thread-self/fd/{number}")).is_ok();
    let before = File::open("/dev/null").unwrap();
    let (to_thread, opened_later) = std::sync::mpsc::channel();
    let (to_test, opened_there) = std::sync::mpsc::channel();
    let number = before.as_raw_fd();
    let leaver = thread::spawn(move || {
        let had = is_open(number);
        drop(leave_descriptors().unwrap());
        let (kept, standard) = (is_open(number), [0, 1, 2].map(is_open));
        let own = File::open("/dev/zero").unwrap();
        to_test.send(own.as_raw_fd()).unwrap();
        let later = opened_later.recv().unwrap();
        // A thread that it starts shares its table.
        let inherits = thread::scope(|scope| scope.spawn(|| is_open(own.as_raw_fd())).join().unwrap());
        (had, kept, standard, is_open(later), inherits)
    });
    let theirs = opened_there.recv().unwrap();
    let target = |number: i32| std::fs::read_link(format!("/proc/thread-self/fd/{number}")).ok();
    assert_ne!(target(theirs), Some("/dev/zero".into()));
    // A number that the other thread has not in use.
    let later = rustix::io::fcntl_dupfd_cloexec(&before, 500).unwrap();
    to_thread.send(later.as_raw_fd()).unwrap();
    let standard = [0, 1, 2].map(is_open);
    assert_eq!(leaver.join().unwrap(), (true, false, standard, false, true));
    assert!(is_open(number) && is_open(later.as_raw_fd()));
}

#[test]
fn files_are_closed_last_even_if_their_names_are_too_long() {
    let folder = std::env::temp_dir().join(format!("sonar-sys-deep-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // Deeper than a path can name at once.
    let mut deep = File::open(&folder).unwrap();
    let part = "x".repeat(250);
    for _ in 0..20 {
        rustix::fs::mkdirat(&deep, part.as_str(), rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        deep = rustix::fs::openat(&deep, part.as_str(), flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let (number, written) = (deep.as_raw_fd(), File::create(folder.join("written")).unwrap());
    assert!(std::fs::read_link(format!("/proc/self/fd/{number}")).is_err(), "it has a name");
    let writer = written.as_raw_fd();
    let is_open = |number: i32| std::fs::exists(format!("/proc/thread-self/fdinfo/{number}")).unwrap();
    let found = thread::spawn(move || {
        let mut left = leave_descriptors().unwrap();
        let at_first = [number, writer].map(is_open);
        left.close_written();
        let without_written = [number, writer].map(is_open);
        drop(left);
        [at_first, without_written, [number, writer].map(is_open)]
    });
    assert_eq!(found.join().unwrap(), [[true, true], [true, false], [false, false]]);
    assert!(is_open(number) && is_open(writer));
    drop((deep, written));
    Command::new("rm").arg("-r").arg(&folder).status().unwrap();
}

#[test]
fn connections_are_taken_only_by_what_serves_and_only_at_sockets_that_listen() {
    const ACCEPTING: &[(libc::c_long, [libc::c_long; 2])] =
        &[(libc::SYS_accept, [-1, 0]), (libc::SYS_accept4, [-1, 0])];
    for duty in NOT_DECODING {
        let error = if duty == Duty::Serving { libc::EBADF } else { libc::EPERM };
        assert_eq!(errors_after(confined_to(duty), ACCEPTING), [Some(error); 2], "{duty:?}");
        let listening = errors_after(confined_to(duty), &[(libc::SYS_listen, [-1, 0])]);
        assert_eq!(listening, [Some(libc::EPERM)], "{duty:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"question").unwrap();
    let answered = thread::spawn(move || {
        confined_to(Duty::Serving)();
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = [0; 8];
        stream.read_exact(&mut question).unwrap();
        stream.write_all(b"answer").unwrap();
        (question, TcpStream::connect(address).map(drop).map_err(|error| error.raw_os_error()))
    });
    assert_eq!(answered.join().unwrap(), (*b"question", Err(Some(libc::EPERM))));
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

#[test]
fn what_opens_sockets_for_packets_connects_to_nobody() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_socket, [libc::AF_UNIX as _, libc::SOCK_STREAM as _]),
        (libc::SYS_socket, [libc::AF_INET6 as _, libc::SOCK_STREAM as _]),
        // They send without connecting, the second with MSG_FASTOPEN.
        (libc::SYS_socket, [libc::AF_INET as _, libc::SOCK_DGRAM as _]),
        (libc::SYS_socket, [libc::AF_INET as _, libc::SOCK_STREAM as _]),
        (libc::SYS_socketpair, [libc::AF_UNIX as _, libc::SOCK_STREAM as _]),
        (libc::SYS_connect, [-1, 0]),
        (libc::SYS_listen, [-1, 0]),
        (libc::SYS_sendmmsg, [-1, 0]),
    ];
    assert_eq!(errors_after(confined_to(Duty::Capturing), CALLS), [Some(libc::EPERM); 8]);
    // A list of interfaces, and passing a socket on.
    const OTHERS: &[(libc::c_long, [libc::c_long; 2])] =
        &[(libc::SYS_bind, [-1, 0]), (libc::SYS_sendmsg, [-1, 0])];
    assert_eq!(errors_after(confined_to(Duty::Capturing), OTHERS), [Some(libc::EBADF); 2]);
    let listed = thread::spawn(|| {
        confined_to(Duty::Capturing)();
        crate::interfaces::list().map(|interfaces| interfaces.len())
    });
    assert!(listed.join().unwrap().unwrap() > 0);
}

#[test]
fn landlock_keeps_signals_and_abstract_sockets_out_of_reach() {
    if landlock().is_none_or(|version| version < 6) {
        println!("skipped: this kernel's Landlock has no scopes");
        return;
    }
    let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
    let other = libc::c_long::from(victim.id());
    let name = format!("sonar-sys-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let tried = |limit: fn()| {
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            limit();
            (sys_process::fails(libc::SYS_kill, [other, 0]), UnixStream::connect_addr(&address).is_ok())
        })
        .join()
        .unwrap()
    };
    assert_eq!(tried(|| {}), (None, true));
    assert_eq!(tried(|| refuse_changes(true).unwrap()), (Some(libc::EPERM), false));
    assert_eq!(tried(|| refuse_changes(false).unwrap()), (None, false), "as Ctrl-Z takes it");
    let folder = || limit_files(&[], &[Path::new("/tmp")]).unwrap();
    assert_eq!(tried(folder), (Some(libc::EPERM), false));
    drop(listener);
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn no_thread_changes_attributes_of_files() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_truncate, [0, 0]),
        (libc::SYS_utimensat, [-1, 0]),
        (libc::SYS_fchmod, [-1, 0]),
        (libc::SYS_fchmodat, [-1, 0]),
        (libc::SYS_setxattr, [0, 0]),
        (libc::SYS_fchown, [-1, 0]),
        (libc::SYS_fsetxattr, [-1, 0]),
        (libc::SYS_removexattr, [0, 0]),
        (libc::SYS_lremovexattr, [0, 0]),
        (libc::SYS_fremovexattr, [-1, 0]),
        // FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR.
        (libc::SYS_ioctl, [-1, 0x4008_6602]),
        (libc::SYS_ioctl, [-1, 0x401c_5820]),
        // fchmodat2, setxattrat, removexattrat, file_setattr
        (452, [-1, 0]),
        (463, [-1, 0]),
        (466, [-1, 0]),
        (469, [-1, 0]),
    ];
    let unconfined = errors_after(|| {}, CALLS);
    assert!(unconfined.iter().all(|error| error.is_some_and(|error| error != libc::EPERM)), "{unconfined:?}");
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 16], "{duty:?}");
    }
}

#[test]
fn no_thread_has_others_wait_for_a_file() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] =
        &[(libc::SYS_fcntl, [-1, libc::F_SETLEASE as _]), (libc::SYS_fcntl, [-1, libc::F_GETLEASE as _])];
    assert_eq!(errors_after(|| {}, CALLS), [Some(libc::EBADF); 2]);
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [libc::EPERM, libc::EBADF].map(Some), "{duty:?}");
    }
}

#[test]
fn no_thread_creates_a_file_that_gives_its_rights_to_others() {
    let created = |what: &str, confined: Box<dyn FnOnce() + Send>| {
        let folder = std::env::temp_dir().join(format!("sonar-sys-set-id-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = folder.clone();
        let tried = thread::spawn(move || {
            confined();
            let file = |mode: u32| {
                let path = own.join(format!("{mode:o}"));
                let made = File::options().write(true).create_new(true).mode(mode).open(path);
                made.err().and_then(|error| error.raw_os_error())
            };
            let made = std::fs::DirBuilder::new().mode(0o2700).create(own.join("folder"));
            let folder = made.err().and_then(|error| error.raw_os_error());
            ([0o600, 0o4700, 0o2700].map(file), folder)
        });
        let tried = tried.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        tried
    };
    assert_eq!(created("unconfined", Box::new(|| {})), ([None; 3], None));
    let refused = Some(libc::EPERM);
    for duty in [Duty::Writing, Duty::Storing] {
        let tried = created(&format!("{duty:?}"), Box::new(confined_to(duty)));
        assert_eq!(tried, ([None, refused, refused], refused), "{duty:?}");
    }
}

#[test]
fn no_thread_makes_requests_to_file_systems_and_devices() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        // FS_IOC_ENABLE_VERITY, FS_IOC_SET_ENCRYPTION_POLICY, FS_IOC_SETVERSION, BTRFS_IOC_SUBVOL_SETFLAGS,
        // FAT_IOCTL_SET_ATTRIBUTES, WDIOC_SETOPTIONS.
        (libc::SYS_ioctl, [-1, 0x4080_6685]),
        (libc::SYS_ioctl, [-1, 0x800c_6613]),
        (libc::SYS_ioctl, [-1, 0x4008_7602]),
        (libc::SYS_ioctl, [-1, 0x4008_941a]),
        (libc::SYS_ioctl, [-1, 0x4004_7211]),
        (libc::SYS_ioctl, [-1, 0x8004_5704]),
    ];
    // TIOCGWINSZ, FIONBIO, SIOCGIFNAME, PERF_EVENT_IOC_ENABLE, PIDFD_GET_INFO.
    const IN_USE: &[(libc::c_long, [libc::c_long; 2])] = &[
        (libc::SYS_ioctl, [-1, 0x5413]),
        (libc::SYS_ioctl, [-1, 0x5421]),
        (libc::SYS_ioctl, [-1, 0x8910]),
        (libc::SYS_ioctl, [-1, 0x2400]),
        (libc::SYS_ioctl, [-1, 0xc050_ff0b]),
    ];
    assert_eq!(errors_after(|| {}, CALLS), [Some(libc::EBADF); 6]);
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 6], "{duty:?}");
        assert_eq!(errors_after(confined_to(duty), IN_USE), [Some(libc::EBADF); 5], "{duty:?}");
    }
}

#[test]
fn no_thread_uses_shared_memory_or_queues_of_others() {
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
        // No size, a number of semaphores that cannot be, a queue that is not there.
        (libc::SYS_shmget, [0, 0]),
        (libc::SYS_semget, [0, -1]),
        (libc::SYS_msgget, [0x736f_6e61, 0]),
        (libc::SYS_shmat, [-1, 0]),
        (libc::SYS_shmctl, [-1, libc::IPC_RMID as _]),
        (libc::SYS_semctl, [-1, libc::IPC_RMID as _]),
        (libc::SYS_msgctl, [-1, libc::IPC_RMID as _]),
        (libc::SYS_semop, [-1, 0]),
        (libc::SYS_semtimedop, [-1, 0]),
        (libc::SYS_msgsnd, [-1, 0]),
        (libc::SYS_msgrcv, [-1, 0]),
        (libc::SYS_mq_open, [0, 0]),
        (libc::SYS_mq_unlink, [0, 0]),
    ];
    let unconfined = errors_after(|| {}, CALLS);
    assert!(unconfined.iter().all(|error| error.is_some_and(|error| error != libc::EPERM)), "{unconfined:?}");
    for duty in NOT_DECODING {
        assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 13], "{duty:?}");
    }
}

#[test]
fn only_a_thread_that_attaches_programs_may_open_probes() {
    // A command that does not exist, and attributes that lie nowhere.
    const CALLS: &[(libc::c_long, [libc::c_long; 2])] =
        &[(libc::SYS_bpf, [-1, 0]), (libc::SYS_perf_event_open, [0, -1])];
    let refused = [Some(libc::EPERM); 2];
    for duty in NOT_DECODING.into_iter().filter(|duty| *duty != Duty::Attaching) {
        assert_eq!(errors_after(confined_to(duty), CALLS), refused, "{duty:?}");
    }
    let unconfined = errors_after(|| {}, CALLS);
    assert_eq!(errors_after(confined_to(Duty::Attaching), CALLS), unconfined);
}

#[test]
fn a_failed_step_does_not_keep_the_others() {
    let able = after(|| {
        set_no_new_privs(true).unwrap();
        sys_process::filter_calls(&refuse(&[&[(libc::SYS_capset, Test::Among(0, &[]))]]).unwrap()).unwrap();
        let failed: Vec<_> = drop_privileges(Duty::Client, FileAccess::ReadOnly, &[])
            .into_iter()
            .map(|(what, _)| what)
            .collect();
        let expected = ["capabilities", "files, by Landlock"];
        assert_eq!(failed, expected[..if landlock().is_some() { 1 } else { 2 }]);
    });
    let expected = Able { read: true, write: false, socket: true, run: false, trace: false, memory: true };
    assert_eq!(able, expected);
}

#[test]
fn landlock_too_limits_a_reader_to_reading() {
    let folder = std::env::temp_dir().join(format!("sonar-sys-read-only-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("file");
    std::fs::write(&file, "x").unwrap();
    let result = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        if let Err(error) = refuse_changes(true) {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            return None;
        }
        Some([
            std::fs::read(&file).is_ok(),
            File::open("/etc/passwd").is_ok(),
            TcpListener::bind("127.0.0.1:0").is_ok(),
            std::fs::write(&file, "y").is_ok(),
            std::fs::remove_file(&file).is_ok(),
            File::create(file.with_extension("new")).is_ok(),
        ])
    })
    .join()
    .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    match result {
        Some(allowed) => assert_eq!(allowed, [true, true, true, false, false, false]),
        None => println!("skipped: this kernel has no Landlock"),
    }
}

#[test]
fn landlock_refuses_requests_to_devices_that_are_opened_later() {
    if landlock().is_none_or(|version| version < 5) {
        return println!("skipped: this kernel's Landlock does not know devices");
    }
    let asked = |confine: fn()| {
        let asked = thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            let before = File::open("/dev/zero").unwrap();
            confine();
            let after = File::open("/dev/zero").unwrap();
            [before, after].map(|device| ioctl_fionread(device).unwrap_err())
        });
        asked.join().unwrap()
    };
    let limits: [fn(); 2] =
        [|| refuse_changes(true).unwrap(), || limit_files(&[Path::new("/dev")], &[]).unwrap()];
    for limit in limits {
        assert_eq!(asked(limit), [Errno::NOTTY, Errno::ACCESS]);
    }
}

#[test]
fn capabilities_are_gone_from_every_set() {
    let permitted = capabilities(None).unwrap().permitted;
    if !permitted.contains(one_capability(capability::SYS_PTRACE) | one_capability(capability::BPF)) {
        println!("skipped: without root there are no capabilities to drop");
        return;
    }
    let status = thread::spawn(|| {
        drop_capabilities(&[capability::SYS_PTRACE]).unwrap();
        std::fs::read_to_string("/proc/thread-self/status").unwrap()
    })
    .join()
    .unwrap();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let kept = 1 << capability::SYS_PTRACE;
    assert_eq!((set("CapEff:"), set("CapPrm:")), (kept, kept));
    assert_eq!((set("CapInh:"), set("CapAmb:"), set("NoNewPrivs:")), (0, 0, 1));
}

/// The fields of the calling thread's status with these names.
fn own_status<const N: usize>(names: [&str; N]) -> [String; N] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    names.map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn root_becomes_nobody_and_keeps_what_is_open_and_the_capabilities_that_it_needs() {
    let permitted = capabilities(None).unwrap().permitted;
    if !rustix::process::geteuid().is_root() || !permitted.contains(one_capability(capability::SYS_PTRACE)) {
        println!("skipped: it takes root to leave root");
        return;
    }
    let path = std::env::temp_dir().join(format!("sonar-sys-of-root-{}", std::process::id()));
    let of_root = path.clone();
    let found = thread::spawn(move || {
        let mut open = File::create_new(&of_root).unwrap();
        open.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
        let failed = drop_privileges(Duty::Reading, FileAccess::ReadOnly, &[capability::SYS_PTRACE]);
        let is_left = failed.iter().all(|(what, _)| what.starts_with("files"));
        let signal = parent_process_death_signal().unwrap();
        let later = thread::spawn(|| own_status(["Uid:"])).join().unwrap();
        let file = [File::open(&of_root).is_ok(), open.write(b"x").is_ok()];
        (is_left, signal, own_status(["Uid:", "Gid:", "Groups:", "CapEff:"]), later, file)
    });
    let (is_left, signal, status, later, file) = found.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(is_left);
    assert_eq!(signal, Some(rustix::process::Signal::KILL));
    let nobody = "65534 65534 65534 65534";
    assert_eq!(status, [nobody, nobody, "", "0000000000080000"]);
    assert_eq!(later, [nobody]);
    assert_eq!(file, [false, true], "a file of root is closed to it, but what is open stays usable");
    // The other threads are what they were.
    assert_eq!(own_status(["Uid:"]), ["0 0 0 0"]);
}

#[test]
fn a_thread_that_writes_files_by_name_stays_the_user_that_it_is() {
    let before = own_status(["Uid:"]);
    for duty in [Duty::Client, Duty::Writing, Duty::Storing] {
        let after = thread::spawn(move || {
            drop_privileges(duty, FileAccess::ReadOnly, &[]);
            own_status(["Uid:"])
        });
        assert_eq!(after.join().unwrap(), before, "{duty:?}");
    }
}

#[test]
fn files_outside_of_the_folders_are_out_of_reach() {
    let folder = std::env::temp_dir().join(format!("sonar-sys-landlock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = folder.clone();
    let result = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        if let Err(error) = limit_files(&[Path::new("/proc")], &[&own]) {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            return None;
        }
        let file = own.join("file");
        Some([
            std::fs::write(&file, "x").is_ok(),
            std::fs::remove_file(&file).is_ok(),
            File::open("/proc/self/status").is_ok(),
            File::options().write(true).open("/proc/self/comm").is_ok(),
            File::open("/etc/passwd").is_ok(),
            std::fs::read_dir("/").is_ok(),
            File::create(own.with_extension("beside")).is_ok(),
        ])
    })
    .join()
    .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    match result {
        Some(allowed) => assert_eq!(allowed, [true, true, true, false, false, false, false]),
        None => println!("skipped: this kernel has no Landlock"),
    }
}

#[test]
fn root_stays_root_where_nobody_could_not_read_what_it_is_to_read() {
    let permitted = capabilities(None).unwrap().permitted;
    if !rustix::process::geteuid().is_root() || !permitted.contains(one_capability(capability::SETUID)) {
        println!("skipped: it takes root to leave root");
        return;
    }
    // As in a container with an engine's default capabilities.
    let users = [capability::SETUID, capability::SETGID];
    let left = |keep: &'static [u32]| {
        let thread = thread::spawn(move || {
            drop_capabilities(&users).unwrap();
            (leave_root(keep).is_ok(), own_status(["Uid:"]))
        });
        thread.join().unwrap()
    };
    let root = ["0 0 0 0".to_owned()];
    assert_eq!(left(&[capability::DAC_READ_SEARCH]), (false, root));
    let nobody = ["65534 65534 65534 65534".to_owned()];
    assert_eq!(left(&[capability::SYS_PTRACE]), (true, nobody));
}

#[test]
fn what_nobody_could_do_is_tried_without_becoming_nobody() {
    if !rustix::process::geteuid().is_root() || missing_to_leave_root().is_some() {
        println!("skipped: only root can try");
        return;
    }
    let file = std::env::temp_dir().join(format!("sonar-sys-tried-{}", std::process::id()));
    File::options().write(true).create_new(true).mode(0o600).open(&file).unwrap();
    let (path, names) = (file.clone(), ["Uid:", "Gid:", "CapEff:", "CapPrm:"]);
    thread::spawn(move || {
        let before = own_status(names);
        let user = || own_status(["Uid:"])[0].clone();
        let reads = |keep: &[u32]| works_as_nobody(keep, || File::open(&path).is_ok());
        assert!(reads(&[capability::DAC_READ_SEARCH]) && reads(&[capability::DAC_OVERRIDE]) && !reads(&[]));
        assert!(works_as_nobody(&[], || user() == "0 65534 0 65534"), "{}", user());
        assert_eq!(own_status(names), before);
    })
    .join()
    .unwrap();
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_nobody_could_do_is_tried_without_the_groups_of_root_which_come_back() {
    if !rustix::process::geteuid().is_root() || missing_to_leave_root().is_some() {
        println!("skipped: only root can try");
        return;
    }
    const GROUP: u32 = 65_531;
    let file = std::env::temp_dir().join(format!("sonar-sys-of-group-{}", std::process::id()));
    File::options().write(true).create_new(true).mode(0o040).open(&file).unwrap();
    std::os::unix::fs::chown(&file, Some(65_533), Some(GROUP)).unwrap();
    let path = file.clone();
    thread::spawn(move || {
        set_thread_groups(&[Gid::from_raw(GROUP)]).unwrap();
        let signal = Some(rustix::process::Signal::USR1);
        set_parent_process_death_signal(signal).unwrap();
        assert!(works_as_nobody(&[], || own_status(["Groups:"]) == [""]));
        assert!(!works_as_nobody(&[], || File::open(&path).is_ok()));
        assert_eq!(own_status(["Groups:"]), [GROUP.to_string()]);
        assert_eq!(parent_process_death_signal().unwrap(), signal);
    })
    .join()
    .unwrap();
    std::fs::remove_file(&file).unwrap();
}

/// Set in a process that tries what `nobody` could do, and tells whether its memory can be dumped then.
const TRIES: &str = "SONAR_SYS_TRIES_AS_NOBODY";

/// The test of the next lines starts it: threads of other tests change the user too, which the kernel notes for all of
/// their process.
#[test]
#[ignore = "another test runs it, in a process of its own"]
fn a_process_that_tries_what_nobody_could_do() {
    if std::env::var(TRIES).is_err() {
        return;
    }
    set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    let worked = works_as_nobody(&[], || true);
    println!("worked: {worked}, {:?}", dumpable_behavior().unwrap());
}

#[test]
fn the_memory_of_a_process_can_be_dumped_after_what_nobody_could_do_was_tried() {
    if missing_to_leave_root().is_some() {
        println!("skipped: only root can try");
        return;
    }
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "privileges::tests::a_process_that_tries_what_nobody_could_do"])
        .args(["--ignored", "--nocapture"])
        .env(TRIES, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(told.contains("worked: true, Dumpable\n"), "{told}");
}
