//! Tests that a simulated mote sends the same bytes as a real mote, even if other crates in the same build enable
//! features.
//!
//! `cargo test --workspace` builds this test with the features of a server, and `cargo test -p tegmen-testbed` without
//! them. The expected bytes are the same for both.

use tegmen::address::Address;
use tegmen::dtls::Profile;
use tegmen::oscore::{Context, OVERHEAD};
use tegmen::time::Instant;
use tegmen_testbed::cost::Costs;
use tegmen_testbed::mote::{LEAF, Mote as _, Node, Protection, Setup, Wish};

fn address(node: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, node], port: 5684, scope: 0 }
}

/// Returns the first datagram of a mote that makes a reading.
fn first_datagram(profile: Profile) -> String {
    let setup = Setup {
        local: address(1),
        protection: Protection::CoapDtls,
        profile,
        payload: 4,
        response: 0,
        costs: Costs::of_budget(),
    };
    let mut wishes = Vec::new();
    Node::<LEAF>::new(7, 1, setup).read(Instant::from_micros(1), address(0), &mut wishes);
    match wishes.as_slice() {
        [Wish::Send { datagram, .. }] => datagram.iter().map(|byte| format!("{byte:02x}")).collect(),
        other => panic!("no ClientHello alone: {other:?}"),
    }
}

#[test]
fn its_client_hello_offers_what_a_mote_has() {
    assert_eq!(first_datagram(Profile::Default), DEFAULT);
    assert_eq!(first_datagram(Profile::Minimal), MINIMAL);
}

#[test]
fn its_oscore_context_is_as_large_as_that_of_a_mote() {
    assert_eq!((size_of::<Context>(), OVERHEAD), (112, 55));
}

/// The datagram with the default profile. It offers TLS_PSK_WITH_AES_128_CCM_8 and the extended master secret.
const DEFAULT: &str = "16fefd0000000000000000003e010000320000000000000032fefda400b898bab2a97df71ae90ed84614c4c12da1824a2de3\
                       b36eed84e8970dfbbf00000004c0a800ff0100000400170000";
/// The datagram with the minimal profile. It offers only TLS_PSK_WITH_AES_128_CCM_8.
const MINIMAL: &str = "16fefd000000000000000000360100002a000000000000002afefda400b898bab2a97df71ae90ed84614c4c12da1824a2de3\
                       b36eed84e8970dfbbf00000002c0a80100";
