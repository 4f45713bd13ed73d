//! Fuzzes the parsers of ACE messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::access::ace(data));
