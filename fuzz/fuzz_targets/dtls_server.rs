//! Datagrams for a DTLS server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::duel::server(data));
