//! Fuzzes two controllers of a group that have one database, and the devices of the group.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::controllers::script(data));
