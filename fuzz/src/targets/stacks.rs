//! An ELF file that is not what it says: its symbols are read, and a stack of its own bytes is unwound with it.

use std::io::Cursor;

use sonar_core::stacks::{Registers, ThreadSample, ThreadState};
use sonar_decode::stacks::{AddressSpace, Image, Mapping};

/// Where the file is mapped.
const BASE: u64 = 0x7f00_0000_0000;
/// Where the stack is.
const STACK: u64 = 0x7fff_0000_0000;

/// Takes an input.
pub fn run(input: &[u8]) {
    let Ok(mut image) = Image::read(Cursor::new(input)) else { return };
    for address in (0..0x4000).step_by(0x40) {
        let _ = image.name_at(address);
    }
    let _ = (image.build_id(), image.debug_link());
    let mapping = |offset: u64| Mapping {
        range: BASE + offset..BASE + offset + 0x1000,
        offset,
        inode: ("fe:01".to_owned(), 1),
        path: "/usr/lib/library.so".to_owned(),
    };
    let mut space = AddressSpace::default();
    assert!(space.add(image, &[mapping(0), mapping(0x1000)], false).is_some());
    for ip in (BASE..BASE + 0x2000).step_by(0x80) {
        // Every word of the file is a candidate for a return address.
        let stack = input.iter().copied().take(4096).collect();
        let registers = Registers { ip, sp: STACK, fp: STACK + 64, lr: ip };
        let sample = ThreadSample {
            thread: 1,
            name: "conn1".to_owned(),
            state: ThreadState::Sleeping,
            call: Some(0),
            registers: Some(registers),
            stack,
            changed: false,
        };
        assert!(space.unwind(&sample).frames.len() <= 512);
    }
}
