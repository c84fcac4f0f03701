//! The target `decryption` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sonar_fuzz::targets::decryption::run(input));
