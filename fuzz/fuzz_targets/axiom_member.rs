//! Fuzzes two members of a group, with an attacker on the network between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tegmen_fuzz::axiom::script(data));
