//! Fuzzes the reader of a serial line.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::slip_ip(data));
