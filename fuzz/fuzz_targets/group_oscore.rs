//! Three members of a group with Group OSCORE, and attacks between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::group_oscore::script(data));
