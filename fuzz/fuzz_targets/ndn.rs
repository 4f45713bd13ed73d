//! Packets of Named Data Networking, and a forwarder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => tegmen_fuzz::ndn::forwarder(rest),
        [_, rest @ ..] => tegmen_fuzz::ndn::packets(rest),
        [] => {}
    }
});
