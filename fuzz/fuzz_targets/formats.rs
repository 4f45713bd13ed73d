//! Fuzzes the formats in which hosts show and read representations.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::formats(data));
