//! The target `stacks` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sonar_fuzz::targets::stacks::run(input));
