//! Certificates, keys and revocation lists.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::x509::x509(data));
