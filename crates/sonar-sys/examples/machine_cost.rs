//! What `bench/agent.py` measures: prints the microseconds of processor time that a reading of the machine takes beside a
//! server of 500 threads, which is this process.

use std::time::Duration;

use sonar_core::Endpoint;
use sonar_core::machine::{MachineMonitor, WatchedProcess};
use sonar_sys::host::Host;
use sonar_sys::host::machine::MachineReader;
use sonar_sys::resource::ResourceUsage;

const THREADS: u32 = 500;
const READINGS: u32 = 60;

fn main() {
    for number in 0..THREADS {
        let thread = std::thread::Builder::new().name(format!("conn{number}")).stack_size(64 << 10);
        let wait = || loop {
            std::thread::park_timeout(Duration::from_secs(60));
        };
        thread.spawn(wait).expect("room for a thread");
    }
    let server = Endpoint::v4([0; 4], 27_017);
    let servers = [WatchedProcess { pid: std::process::id(), server }];
    let mut reader = MachineReader::new(Host::live());
    let mut monitor = MachineMonitor::default();
    monitor.step(reader.read(&servers));
    let used = || ResourceUsage::now().expect("the usage of this process").processor();
    let before = used();
    for _ in 0..READINGS {
        assert!(!monitor.step(reader.read(&servers)).values.is_empty(), "nothing was read");
    }
    println!("{}", ((used() - before) / READINGS).as_micros());
}
