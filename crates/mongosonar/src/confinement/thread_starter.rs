//! Starts threads that are no longer root, for a thread that stays root.
//!
//! A new thread has the user of the one that starts it, and without capabilities it cannot leave that user. So a thread that
//! has left root starts the others.

use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use sonar_sys::privileges::{Duty, InheritedFiles};
use sonar_sys::resource;

use super::start_order::{self, StartStep};
use crate::confinement::privileges;
use crate::locking::lock;

/// Starts threads.
#[derive(Clone, Debug, Default)]
pub enum ThreadStarter {
    /// The thread that asks.
    #[default]
    Here,
    /// Another thread.
    There(Sender<StartJob>, OrdinaryNice),
}

/// The nice value of threads that do not come before others, if it is known.
type OrdinaryNice = Option<i32>;

/// Starts one thread.
pub struct StartJob(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for StartJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StartJob")
    }
}

impl ThreadStarter {
    /// Starts the thread that starts others. It drops all privileges, but that to read below `/proc` and `/sys`. Call it
    /// before this thread drops its own.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn confined() -> io::Result<Self> {
        let (to, jobs) = channel::<StartJob>();
        let nice = resource::nice().ok();
        start_order::take(StartStep::Opened);
        Builder::new().name("starter".to_owned()).spawn(move || {
            // Later, without capabilities, a thread can only give way.
            resource::prefer_this_thread().ok();
            privileges::drop_privileges(Duty::Observing, &["/proc", "/sys"], &[]);
            for StartJob(start) in jobs {
                start();
            }
        })?;
        Ok(Self::There(to, nice))
    }

    /// Starts threads that talk to servers. They keep the privileges of this thread until they drop them, but have a table of
    /// descriptors of their own: all of them the same, as tokio keeps some for the whole process. Call it before this
    /// thread drops its privileges.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn network(confined: bool) -> io::Result<Self> {
        start_order::take(StartStep::Opened);
        if !confined {
            return Ok(Self::Here);
        }
        let mut network = lock(&NETWORK);
        let starter = match network.take() {
            Some(starter) => starter,
            None => {
                start_order::before_dropping(end_network_starter);
                NetworkStarter::start()?
            }
        };
        let to = starter.to.clone();
        *network = Some(starter);
        Ok(Self::There(to, None))
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: String,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let nice = if let Self::There(_, nice) = self { *nice } else { None };
        self.spawn_preferred(name, move || {
            if let Some(nice) = nice {
                resource::set_nice(nice).ok();
            }
            run()
        })
    }

    /// Starts a thread that reads what comes whether there is time or not: it comes before other programs where that is
    /// allowed.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn_preferred<T: Send + 'static>(
        &self,
        name: String,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let start = move || Builder::new().name(name).spawn(run);
        let Self::There(to, _) = self else { return start() };
        let (give, started) = channel();
        let job = StartJob(Box::new(move || drop(give.send(start()))));
        to.send(job).map_err(|_| ErrorKind::BrokenPipe)?;
        started.recv().map_err(|_| ErrorKind::BrokenPipe)?
    }
}

/// The thread behind [`ThreadStarter::network`], while it runs.
static NETWORK: Mutex<Option<NetworkStarter>> = Mutex::new(None);

/// Starts threads that talk to servers.
struct NetworkStarter {
    to: Sender<StartJob>,
    has_dropped: Receiver<()>,
}

impl NetworkStarter {
    fn start() -> io::Result<Self> {
        let (to, jobs) = channel::<StartJob>();
        let (say, has_dropped) = channel();
        Builder::new().name("network".to_owned()).spawn(move || {
            let mut inherited = privileges::leave_descriptors();
            for StartJob(start) in jobs {
                start();
            }
            privileges::drop_privileges(Duty::Showing, &[], &[]);
            inherited.iter_mut().for_each(InheritedFiles::close_written);
            say.send(()).ok();
            // Nobody waits for the others.
            drop(inherited);
        })?;
        Ok(Self { to, has_dropped })
    }
}

/// No more threads that talk to servers are started. The thread that did so has dropped its privileges afterwards.
fn end_network_starter() {
    let network = lock(&NETWORK).take();
    if let Some(NetworkStarter { to, has_dropped }) = network {
        drop(to);
        // It is an error that it has ended already.
        has_dropped.recv().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use sonar_mongo::Server;
    use sonar_sys::privileges::{capability, holds};

    use super::*;

    #[test]
    fn threads_are_started_here_or_by_a_thread_without_privileges() {
        let filters = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line =
                |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            [name, line("Uid:"), line("CapEff:"), line("Seccomp:")].map(|text| text.trim().to_owned())
        };
        let own = filters();
        let here = ThreadStarter::Here.spawn("here".to_owned(), filters).unwrap().join().unwrap();
        assert_eq!((&*here[0], &here[1..]), ("here", &own[1..]));
        let starter = ThreadStarter::confined().unwrap();
        let [name, user, capabilities, filter] =
            starter.spawn("there".to_owned(), filters).unwrap().join().unwrap();
        // In some containers root may not become another user.
        let may_leave = [capability::SETUID, capability::SETGID].into_iter().all(holds);
        let leaves = own[1].starts_with('0') && may_leave;
        let user_expected = if leaves { "65534\t65534\t65534\t65534" } else { &own[1] };
        let expected = ("there", user_expected, "0000000000000000", "2");
        assert_eq!((&*name, &*user, &*capabilities, &*filter), expected);
    }

    #[test]
    fn threads_that_talk_to_servers_share_a_table_of_descriptors_without_those_of_others() {
        let others = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = format!("/proc/thread-self/fd/{}", others.as_raw_fd());
        let socket = std::fs::read_link(&path).unwrap();
        let is_open = move || std::fs::read_link(&path).is_ok_and(|found| found == socket);
        let asks = is_open.clone();
        let connect = move || {
            let open = asks();
            // Nothing listens there.
            let server = Server::connect("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1", 1);
            (open, server.err().map(|error| error.to_string()).unwrap_or_default())
        };
        for name in ["first", "second"] {
            let network = ThreadStarter::network(true).unwrap();
            let (open, error) = network.spawn(name.to_owned(), connect.clone()).unwrap().join().unwrap();
            assert!(
                !open && error.contains("127.0.0.1:1") && !error.contains("descriptor"),
                "{name}: {error}"
            );
        }
        end_network_starter();
        assert!(is_open());
    }

    #[test]
    fn only_what_may_not_wait_comes_before_other_programs() {
        let own = resource::nice().unwrap();
        // CAP_SYS_NICE of capabilities(7).
        let may = holds(23);
        let starter = ThreadStarter::confined().unwrap();
        let nice = || resource::nice().unwrap();
        assert_eq!(starter.spawn("ordinary".to_owned(), nice).unwrap().join().unwrap(), own);
        let preferred = starter.spawn_preferred("preferred".to_owned(), nice).unwrap().join().unwrap();
        assert_eq!(preferred, if may { -10 } else { own });
    }
}
