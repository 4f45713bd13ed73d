//! Fuzzes the parser and the builder of CoAP messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::coap::message(data));
