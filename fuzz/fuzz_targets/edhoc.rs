//! Fuzzes both roles of EDHOC.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::edhoc::edhoc(data));
