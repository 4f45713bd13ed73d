//! Tests of the informative response.

use super::*;
use crate::hex::from_hex;
use proptest::prelude::*;

/// The example of the draft (section 4.2.1.1): the example has host and port as elements of the CRI.
const EXAMPLE: &str =
    "a1 00 83 82 20 50 20010db80000000000000000000000ab 83 20 50 ff35003020010db80000000000000023 19f0b0 41 7b";

fn bytes(text: &str) -> Vec<u8> {
    from_hex(&text.replace(' ', "")).unwrap()
}

fn example() -> Informative {
    Informative {
        server: "[2001:db8::ab]:5683".parse().unwrap(),
        group: "[ff35:30:2001:db8::23]:61616".parse().unwrap(),
        token: Token::new(&[0x7b]),
        phantom: None,
        latest: None,
    }
}

fn message(code: Code, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, code, 0, b"tk").unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

#[test]
fn the_example_of_the_draft_is_read_and_the_grammar_of_the_draft_is_written() {
    assert_eq!(Informative::read(&bytes(EXAMPLE)), Ok(example()));
    let grammar = "a1 00 83 82 20 81 50 20010db80000000000000000000000ab 82 20 82 50 ff35003020010db80000000000000023 19f0b0 41 7b";
    assert_eq!(example().to_cbor(), bytes(grammar));
    assert_eq!(Informative::read(&bytes(grammar)), Ok(example()));
}

#[test]
fn what_is_no_address_of_a_server_or_of_a_group_is_refused() {
    let v4 =
        |server: &str, group: &str| bytes(&format!("a1 00 83 82 20 81 44 {server} 82 20 82 44 {group} 19f0b0 41 7b"));
    assert!(Informative::read(&v4("0a000001", "efff4f01")).is_ok());
    // The group is not a multicast address: the response would let the client receive the datagrams of its own port.
    assert_eq!(Informative::read(&v4("0a000001", "0a000002")), Err(Malformed::Value(0)));
    // The server is a multicast address.
    assert_eq!(Informative::read(&v4("efff4f01", "efff4f01")), Err(Malformed::Value(0)));
    // An address of one link.
    assert_eq!(Informative::read(&v4("a9fe0001", "efff4f01")), Err(Malformed::Value(0)));
    let on_link = "a1 00 83 82 20 81 44 0a000001 82 20 82 50 ff020000000000000000000000000023 19f0b0 41 7b";
    assert_eq!(Informative::read(&bytes(on_link)), Err(Malformed::Value(0)));
    for (wrong, why) in [
        ("a1 00 83 82 21 81 44 0a000001 82 20 82 44 efff4f01 19f0b0 41 7b", "the scheme coaps"),
        ("a1 00 83 82 20 81 44 0a000001 82 20 82 44 efff4f01 00 41 7b", "port 0"),
        ("a1 00 83 82 20 81 44 0a000001 82 20 82 44 efff4f01 19f0b0 49 010203040506070809", "a token of 9 bytes"),
        ("a1 00 83 82 20 81 63 666f6f 82 20 82 44 efff4f01 19f0b0 41 7b", "a host name"),
        ("a1 00 82 82 20 81 44 0a000001 82 20 82 44 efff4f01 19f0b0", "no token"),
        ("a1 00 83 82 20 81 43 0a0000 82 20 82 44 efff4f01 19f0b0 41 7b", "an address of 3 bytes"),
        ("a1 01 40", "no tp_info"),
        ("a0", "nothing"),
    ] {
        assert!(Informative::read(&bytes(wrong)).is_err(), "{why}");
    }
}

#[test]
fn an_ipv4_address_in_its_ipv6_form_is_an_ipv4_address() {
    let mapped = |server: &str| {
        let text = format!("a1 00 83 82 20 81 50 00000000000000000000ffff {server} 82 20 82 44 efff4f01 19f0b0 41 7b");
        Informative::read(&bytes(&text))
    };
    assert_eq!(mapped("0a000001").map(|read| read.server), Ok("10.0.0.1:5683".parse().unwrap()));
    assert_eq!(mapped("efff4f01"), Err(Malformed::Value(0)), "a multicast address");
    assert_eq!(mapped("a9fe0001"), Err(Malformed::Value(0)), "an address of one link");
}

#[test]
fn unknown_parameters_are_ignored() {
    let with_others = "a3 00 83 82 20 81 44 0a000001 82 20 82 44 efff4f01 19f0b0 41 7b 03 0a 04 1a69b7f000";
    assert!(Informative::read(&bytes(with_others)).is_ok());
}

#[test]
fn a_message_is_rebuilt_with_another_token() {
    let original = message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[5])], b"21.5");
    let rebuilt = rebuilt(&independent(&original).unwrap(), &Token::new(b"other")).unwrap();
    let rebuilt = MessageRef::parse(&rebuilt).unwrap();
    assert_eq!((rebuilt.code(), rebuilt.token(), rebuilt.payload()), (Code::CONTENT, &b"other"[..], &b"21.5"[..]));
    assert_eq!(rebuilt.uint(OptionNumber::OBSERVE), Some(5));
    assert!(super::rebuilt(&[], &Token::new(b"t")).is_err());
    // A payload marker without a payload.
    assert!(super::rebuilt(&[0x45, 0xff], &Token::new(b"t")).is_err());
}

#[test]
fn a_phantom_request_is_compared_by_its_cache_key() {
    let (observe, path) = ((OptionNumber::OBSERVE, &b""[..]), (OptionNumber::URI_PATH, &b"temp"[..]));
    let phantom = message(Code::GET, &[observe, path], b"");
    let is_same_as = |code, options: &[(OptionNumber, &[u8])]| {
        let request = message(code, options, b"");
        let messages = (MessageRef::parse(&phantom).unwrap(), MessageRef::parse(&request).unwrap());
        is_same(&messages.0, &messages.1) && is_same(&messages.1, &messages.0)
    };
    let host = (OptionNumber::URI_HOST, &b"h"[..]);
    assert!(is_same_as(Code::GET, &[observe, path]));
    assert!(is_same_as(Code::GET, &[host, observe, path]));
    assert!(!is_same_as(Code::GET, &[path]));
    assert!(!is_same_as(Code::GET, &[(OptionNumber::OBSERVE, &[1]), path]));
    assert!(!is_same_as(Code::FETCH, &[observe, path]));
    assert!(!is_same_as(Code::GET, &[observe, (OptionNumber::URI_PATH, b"door")]));
    assert!(!is_same_as(Code::GET, &[observe, path, (OptionNumber::URI_QUERY, b"unit=F")]));
    assert!(!is_same_as(Code::GET, &[observe, path, (OptionNumber::ACCEPT, &[50])]));
    // The first block, in blocks of 64 bytes, and the second block.
    assert!(is_same_as(Code::GET, &[observe, path, (OptionNumber::BLOCK2, &[2])]));
    assert!(!is_same_as(Code::GET, &[observe, path, (OptionNumber::BLOCK2, &[0x12])]));
    assert!(!is_same_as(Code::GET, &[observe, path, (OptionNumber::PROXY_SCHEME, b"coap")]));
    assert!(is_same_as(Code::GET, &[observe, path, (FEEDBACK_DIVIDER, b"")]));
    // An option that is not known, and unsafe to forward.
    assert!(!is_same_as(Code::GET, &[observe, path, (OptionNumber(4098), b"")]));
}

#[test]
fn the_feedback_divider_is_added_between_the_other_options() {
    let (observe, block) = ((OptionNumber::OBSERVE, &[5][..]), (OptionNumber::BLOCK2, &[8][..]));
    let original = message(Code::CONTENT, &[observe, block], b"21.5");
    for (divider, value) in [(0, &b""[..]), (7, &[7])] {
        let with = with_feedback_divider(&original, divider).unwrap();
        let expected = message(Code::CONTENT, &[observe, (FEEDBACK_DIVIDER, value), block], b"21.5");
        assert_eq!(with, expected);
    }
    assert_eq!(with_feedback_divider(b"nothing", 1), None);
}

fn address(ip: impl Strategy<Value = IpAddr>) -> impl Strategy<Value = SocketAddr> {
    (ip, 1..=u16::MAX).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        server in address(prop_oneof![Just(IpAddr::from([10, 0, 0, 7])), Just(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7]))]),
        group in address(prop_oneof![Just(IpAddr::from([239, 255, 79, 1])), Just(IpAddr::from([0xff35, 0, 0, 0, 0, 0, 0, 7]))]),
        token in proptest::collection::vec(any::<u8>(), 0..=8),
        phantom in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60)),
        latest in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..1200)),
    ) {
        let informative = Informative { server, group, token: Token::new(&token), phantom, latest };
        prop_assert_eq!(Informative::read(&informative.to_cbor()), Ok(informative));
    }

    #[test]
    fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>()) {
        let _ = Informative::read(&bytes);
        let _ = rebuilt(&bytes, &Token::new(b"t"));
        let mut example = self::bytes(EXAMPLE);
        let at = at.index(example.len());
        example[at] = bytes.first().copied().unwrap_or(0);
        let _ = Informative::read(&example);
    }
}
