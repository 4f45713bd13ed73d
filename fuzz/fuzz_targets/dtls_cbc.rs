//! The content and the MAC of a record with CBC, and the secret in a block that RSA decrypted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::cbc(data));
