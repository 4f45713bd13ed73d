//! Fuzzes three members of a group with Group OSCORE, and attacks on their messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::group_oscore::script(data));
