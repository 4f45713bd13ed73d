//! Fuzzes the reader of certificates on motes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::x509_motes::x509_motes(data));
