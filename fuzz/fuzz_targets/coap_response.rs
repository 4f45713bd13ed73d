//! A representation and the blocks of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::coap::response(data));
