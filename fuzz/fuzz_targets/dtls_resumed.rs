//! Fuzzes the client and the server of a DTLS session that is resumed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::duel::resumed(data));
