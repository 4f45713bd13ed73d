//! Fuzzes the parsers of handshake messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::hello(data));
