//! The target `capture_file` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sonar_fuzz::targets::capture_file::run(input));
