//! Fuzzes the parsers of certificates, keys and revocation lists on hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::x509::x509(data));
