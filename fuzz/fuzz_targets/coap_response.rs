//! Fuzzes the block-wise transfer of a representation.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::coap::response(data));
