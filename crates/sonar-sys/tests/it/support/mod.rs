//! Network namespaces, links between them and hand-made frames.
//!
//! A namespace here has no name: it belongs to a thread and disappears, with its links, when that ends. So nothing is
//! left behind and tests do not affect each other.

use std::any::Any;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;
type Outcome = std::thread::Result<Box<dyn Any + Send>>;

/// A network namespace, with its loopback interface up.
pub struct Namespace {
    jobs: Option<Sender<(Job, Sender<Outcome>)>>,
    thread: Option<JoinHandle<()>>,
    id: i32,
}

impl Namespace {
    /// `None`, after printing why, without permission or without `ip`.
    pub fn new() -> Option<Self> {
        let (jobs, queue) = channel::<(Job, Sender<Outcome>)>();
        let (ready, id) = channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes and returns integers; only this thread changes its namespace.
            let (unshared, id) = unsafe { (libc::unshare(libc::CLONE_NEWNET), libc::gettid()) };
            let result = if unshared == 0 { Ok(id) } else { Err(io::Error::last_os_error()) };
            let _ = ready.send(result);
            for (job, answer) in queue {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                let _ = answer.send(outcome);
            }
        });
        let id = match id.recv().unwrap() {
            Ok(id) => id,
            Err(error) => {
                eprintln!("skipped: no network namespace can be made ({error}); run as root");
                return None;
            }
        };
        if Command::new("ip").arg("-V").output().is_err() {
            eprintln!("skipped: no `ip` (Debian package iproute2)");
            return None;
        }
        let namespace = Self { jobs: Some(jobs), thread: Some(thread), id };
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Runs `job` inside.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (answer, result) = channel();
        let job: Job = Box::new(move || Box::new(job()));
        self.jobs.as_ref().unwrap().send((job, answer)).unwrap();
        match result.recv().unwrap() {
            Ok(value) => *value.downcast().unwrap(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// `ip ARGUMENTS`, which must succeed.
    pub fn ip(&self, arguments: &str) -> String {
        self.try_ip(arguments).unwrap_or_else(|error| panic!("ip {arguments}: {error}"))
    }

    /// `ip ARGUMENTS`: its output, or its error message.
    pub fn try_ip(&self, arguments: &str) -> Result<String, String> {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        self.run(move || {
            let output = Command::new("ip").args(&arguments).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
            if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
        })
    }

    /// Connects this namespace (`va`, 10.77.0.1, fd77::1) and `other` (`vb`, 10.77.0.2, fd77::2) with a veth pair.
    pub fn join(&self, other: &Self) {
        self.ip(&format!("link add va type veth peer name vb netns {}", other.id));
        for (namespace, name, number) in [(self, "va", 1), (other, "vb", 2)] {
            namespace.ip(&format!("addr add 10.77.0.{number}/24 dev {name}"));
            namespace.ip(&format!("addr add fd77::{number}/64 dev {name} nodad"));
            namespace.ip(&format!("link set {name} up"));
        }
        for (namespace, name) in [(self, "va"), (other, "vb")] {
            // A worker of the kernel activates a link that is up. What is sent before is lost, without an error.
            while !namespace.ip(&format!("-brief link show {name}")).contains(" UP ") {}
            // The worker holds a lock for which this waits.
            namespace.ip(&format!("link set {name} up"));
        }
    }

    /// The index of an interface inside.
    pub fn index(&self, name: &'static str) -> u32 {
        self.run(move || {
            let all = sonar_sys::interfaces::list().unwrap();
            all.into_iter().find(|interface| interface.name == name).unwrap().index
        })
    }

    /// Sends frames as they are on an interface inside.
    pub fn send(&self, name: &'static str, frames: Vec<Vec<u8>>) {
        let index = self.index(name);
        self.run(move || send_frames(index, &frames).unwrap());
    }
}

/// The other end of a tun interface: what is written to it arrives there.
pub struct Tun(std::fs::File);

impl Tun {
    /// Makes interface `t0` in the calling thread's namespace.
    pub fn new() -> io::Result<Self> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: ifreq is bytes and a union of plain values: all zero is a value of it.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name[0] = b't' as libc::c_char;
        request.ifr_name[1] = b'0' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: TUNSETIFF reads and writes `request`, which lives through the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(file)) }
    }

    pub fn write(&self, packet: &[u8]) {
        (&self.0).write_all(packet).unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().unwrap().join();
    }
}

fn send_frames(index: u32, frames: &[Vec<u8>]) -> io::Result<()> {
    // SAFETY: takes integers only; closed below.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sockaddr_ll is integers and bytes: all zero is a value of it.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_ifindex = index as i32;
    let mut result = Ok(());
    for frame in frames {
        // SAFETY: the frame and the address live through the call, and their true sizes are given.
        let sent = unsafe {
            libc::sendto(
                fd,
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const addr).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent != frame.len() as isize {
            result = Err(io::Error::last_os_error());
        }
    }
    // SAFETY: `fd` is ours and not used again.
    unsafe { libc::close(fd) };
    result
}

/// A frame to build.
#[derive(Clone)]
pub struct Frame {
    pub tags: Vec<(u16, u16)>,
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub protocol: u8,
    pub fragment: u16,
    /// IPv6: kinds of extension headers, eight bytes each.
    pub extensions: Vec<u8>,
    pub payload: usize,
}

pub fn frame(source: (&str, u16), destination: (&str, u16)) -> Frame {
    Frame {
        tags: Vec::new(),
        source: (source.0.parse().unwrap(), source.1),
        destination: (destination.0.parse().unwrap(), destination.1),
        protocol: 6,
        fragment: 0,
        extensions: Vec::new(),
        payload: 40,
    }
}

impl Frame {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (ethertype, tci) in &self.tags {
            bytes.extend(ethertype.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        let tcp = 20 + self.payload;
        match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes.extend([0x08, 0x00, 0x45, 0]);
                bytes.extend((20 + tcp as u16).to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(self.fragment.to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let chain: Vec<u8> = self.extensions.iter().copied().chain([self.protocol]).collect();
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend(((tcp + 8 * self.extensions.len()) as u16).to_be_bytes());
                bytes.extend([chain[0], 64]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
                for next in &chain[1..] {
                    bytes.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            _ => panic!("two families"),
        }
        bytes.extend(self.source.1.to_be_bytes());
        bytes.extend(self.destination.1.to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend([5 << 4, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + self.payload, 0xee);
        bytes
    }
}
