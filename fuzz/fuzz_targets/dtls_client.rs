//! Fuzzes a DTLS client with datagrams of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::duel::client(data));
