//! Datagrams for two ends of CoAP exchanges.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::coap::exchange(data));
