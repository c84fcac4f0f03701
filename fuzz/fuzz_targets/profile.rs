//! The target `profile` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sonar_fuzz::targets::profile::run(input));
