//! Frames of IEEE 802.15.4 with 6LoWPAN in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::lowpan::frames(data));
