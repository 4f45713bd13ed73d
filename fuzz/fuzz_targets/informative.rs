//! Fuzzes the informative response of a group observation.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::informative::informative(data));
