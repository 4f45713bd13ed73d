//! Fuzzes the devices of a group and its two controllers, which share one database.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::controllers::script(data));
