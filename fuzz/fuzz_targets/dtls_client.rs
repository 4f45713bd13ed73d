//! Datagrams for a DTLS client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::duel::client(data));
