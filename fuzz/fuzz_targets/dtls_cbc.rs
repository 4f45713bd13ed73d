//! What is in a record with CBC, and whether its code is right; and what is in a block that RSA decrypted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::parsers::cbc(data));
