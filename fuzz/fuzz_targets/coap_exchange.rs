//! Fuzzes the exchanges of a CoAP endpoint with datagrams of its peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::coap::exchange(data));
