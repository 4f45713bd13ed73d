use super::*;

#[test]
fn a_constant_behind_an_instruction_belongs_to_it_and_functions_are_apart() {
    let listing = "
000003c0 <one>:
     3c0:\tb510      \tpush\t{r4, lr}
     3c2:\tf000 f8a1 \tbl\t508 <two>
     3c6:\tbf00      \tnop
     3c8:\t20000400 \t.word\t0x20000400

00000508 <two>:
     508:\t4770      \tbx\tlr
";
    let expected = [("3c0", 2), ("3c2", 4), ("3c6", 6), ("508", 2)];
    assert_eq!(listed(listing), expected.map(|(at, len)| (at.to_owned(), len)));
}

#[test]
fn lines_and_symbols_are_laid_at_the_door_of_their_component() {
    assert_eq!(component("tegmen", "src/dtls/state.rs:3"), "DTLS");
    assert_eq!(component("tegmen", "src/buf.rs:3"), "common");
    assert_eq!(component("tegmen-base", "src/crypto/p256/point.rs:3"), "P-256");
    assert_eq!(component("tegmen-base", "src/crypto/p256.rs:3"), "P-256");
    assert_eq!(component("tegmen-base", "src/crypto/compact.rs:3"), "crypto");
    assert_eq!(component("p256-0.14.0", "src/lib.rs:3"), "crypto");
    assert_eq!(component("tegmen-lowpan", "src/iphc.rs:3"), "6LoWPAN");
    assert_eq!(component("tegmen-lowpan", "src/ip.rs:3"), "IP");
    assert_eq!(component("sha2-0.11.0", "src/sha256.rs:1"), "crypto");
    assert_eq!(component("tegmen-edhoc", "src/initiator.rs:3"), "EDHOC");
    assert_eq!(component("lakers-shared-0.8.0", "src/lib.rs:3"), "EDHOC");
    assert_eq!(component("tegmen-firmware", "src/bin/coap.rs:30"), "application");
    assert_eq!(component_of_symbol("tegmen::crypto::TABLE"), "crypto");
    assert_eq!(component_of_symbol("tegmen_base::crypto::p256::point::BASE"), "P-256");
    assert_eq!(component_of_symbol("tegmen_base::crypto::compact::TABLE"), "crypto");
    assert_eq!(component_of_symbol("tegmen_lowpan::iphc::TABLE"), "6LoWPAN");
    assert_eq!(component_of_symbol("dtls_psk_client::SENT"), "application");
}
