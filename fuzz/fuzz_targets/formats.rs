//! Representations as people read them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::formats(data));
