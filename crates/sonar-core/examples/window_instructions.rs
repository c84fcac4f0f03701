//! Records OPERATIONS operations into a window, for a tool that counts instructions (`bench/window.py`):
//! `window_instructions OPERATIONS`. The difference of two runs is free of the start-up.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use sonar_core::testing::operation;
use sonar_core::window::WindowSettings;
use sonar_core::{Application, Class, Endpoint, Operation, ShapeId, ShapeInfo, Timestamp, Window};

const SHAPES: u64 = 40;
const APPLICATIONS: u64 = 8;
const CLIENT_HOSTS: u64 = 20;

/// Numbers without a pattern that the processor or the histogram could learn (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let operations: u64 = std::env::args().nth(1).ok_or("usage: window_instructions OPERATIONS")?.parse()?;
    let shape =
        |n: u64| ShapeInfo { id: ShapeId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), ..ShapeInfo::default() };
    let shapes: Vec<_> = (1..=SHAPES).map(|n| Arc::new(shape(n))).collect();
    let app = |n: u64| Application { name: format!("app {n}").into(), ..Application::default() };
    let apps: Vec<_> = (0..APPLICATIONS).map(|n| Arc::new(app(n))).collect();
    let mut window = Window::new(Timestamp::from_unix(1, 0), WindowSettings::default());
    // Made once: making it would count, too.
    let usual = Operation {
        transfer_ns: Some(0),
        request_bytes: 180,
        response_bytes: 420,
        docs_returned: Some(3),
        ..operation(&shapes[0], &apps[0])
    };
    let mut random = Random(0x1234_5678_9abc_def1);
    for n in 0..operations {
        let drawn = random.next();
        let shape = &shapes[(drawn % SHAPES) as usize];
        let start = 1_000_000_000 + n * 1_000;
        let latency = 100_000 + drawn % 5_000_000;
        let operation = Operation {
            start: Timestamp::from_unix_ns(start),
            end: Timestamp::from_unix_ns(start + latency),
            latency_ns: Some(latency),
            client: Endpoint::v4([10, 0, 0, ((drawn >> 20) % CLIENT_HOSTS) as u8], 40_000),
            shape,
            ordered_id: shape.id,
            app: &apps[((drawn >> 8) % APPLICATIONS) as usize],
            request_id: n as u32,
            ..usual
        };
        window.record(black_box(&operation));
    }
    println!("{}", window.totals(&Class::ALL).calls);
    Ok(())
}
