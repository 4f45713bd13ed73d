//! Fuzzes the decryption of records with CBC, and the reading of a premaster secret that RSA decrypted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::cbc(data));
