//! Fuzzes policy files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::access::policy(data));
