//! Fuzzes packets of Named Data Networking, compressed packets, and a forwarder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => tegmen_fuzz::ndn::forwarder(rest),
        [2, rest @ ..] => tegmen_fuzz::ndn::compressed(rest),
        [_, rest @ ..] => tegmen_fuzz::ndn::packets(rest),
        [] => {}
    }
});
