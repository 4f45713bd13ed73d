//! Fuzzes a DTLS server with datagrams of a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::duel::server(data));
