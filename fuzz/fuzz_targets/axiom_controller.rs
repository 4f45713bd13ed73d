//! Two controllers of a group on one database, and the devices of the group.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::controllers::script(data));
