//! Fuzzes a device with delegated sessions, its delegation server, and an attacker.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::delegation::script(data));
