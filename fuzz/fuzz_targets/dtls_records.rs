//! Fuzzes the parser of DTLS records.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::records(data));
