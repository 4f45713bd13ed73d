//! Fuzzes a node of 6LoWPAN with frames of IEEE 802.15.4.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::lowpan::frames(data));
