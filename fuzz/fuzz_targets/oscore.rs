//! Fuzzes the two endpoints of an OSCORE context, with an attacker between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::oscore::script(data));
