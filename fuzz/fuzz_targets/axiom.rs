//! Members of a group, and what anybody may do between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::axiom::script(data));
