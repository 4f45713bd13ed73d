use super::super::option::Class;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

type Opts = Vec<(u16, Vec<u8>)>;

/// A message with owned fields, as a test writes it.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    first_bits: u8,
    code: u8,
    id: u16,
    token: Vec<u8>,
    options: Opts,
    payload: Vec<u8>,
}

/// Draws options with numbers and lengths below and above 13 and 269, where the encoding changes.
fn options() -> impl Strategy<Value = Opts> {
    let number = prop_oneof![0u16..30, 0u16..300, 250u16..600, any::<u16>(), Just(u16::MAX)];
    let value = prop_oneof![vec(any::<u8>(), 0..16), vec(any::<u8>(), 260..280), vec(any::<u8>(), 0..700)];
    vec((number, value), 0..8).prop_map(|mut options| {
        options.sort_by_key(|(number, _)| *number);
        options
    })
}

fn messages() -> impl Strategy<Value = Plain> {
    (0u8..4, 1u8.., any::<u16>(), vec(any::<u8>(), 0..=8), options(), vec(any::<u8>(), 0..40)).prop_map(
        |(first_bits, code, id, token, options, payload)| Plain { first_bits, code, id, token, options, payload },
    )
}

fn build(plain: &Plain) -> Vec<u8> {
    let mut storage = std::vec![0; 8000];
    let mut frame = Frame::new(&mut storage, 7);
    let kind = MessageType::from_bits(plain.first_bits);
    let mut builder = Builder::new(&mut frame, kind, Code(plain.code), plain.id, &plain.token).unwrap();
    for (number, value) in &plain.options {
        builder.option(OptionNumber(*number), value).unwrap();
    }
    let (head, tail) = plain.payload.split_at(plain.payload.len() / 2);
    builder.payload(head).unwrap();
    builder.payload(tail).unwrap();
    frame.finish().to_vec()
}

fn view(message: &MessageRef<'_>) -> Plain {
    Plain {
        first_bits: message.message_type() as u8,
        code: message.code().0,
        id: message.message_id(),
        token: message.token().to_vec(),
        options: message.options().map(|(number, value)| (number.0, value.to_vec())).collect(),
        payload: message.payload().to_vec(),
    }
}

/// Parses a message as RFC 7252, section 3, defines. This second parser, which uses positions and owned bytes, gives
/// the results that the tests expect from the parser under test.
fn model(bytes: &[u8]) -> Result<Plain, Malformed> {
    if bytes.len() < 4 || bytes[0] / 64 != 1 {
        return Err(Malformed::NotCoap);
    }
    let first_bits = bytes[0] / 16 % 4;
    let id = u16::from(bytes[2]) * 256 + u16::from(bytes[3]);
    model_rest(bytes, first_bits, id)
        .ok_or(Malformed::Message { message_type: MessageType::from_bits(first_bits), message_id: id })
}

fn model_rest(bytes: &[u8], first_bits: u8, id: u16) -> Option<Plain> {
    let token_len = usize::from(bytes[0] % 16);
    if token_len > 8 || bytes[1] == 0 && bytes.len() > 4 {
        return None;
    }
    let token = bytes.get(4..4 + token_len)?.to_vec();
    let (mut at, mut number, mut options) = (4 + token_len, 0u32, Vec::new());
    let mut payload = Vec::new();
    while at < bytes.len() {
        if bytes[at] == 0xff {
            payload = bytes[at + 1..].to_vec();
            if payload.is_empty() {
                return None;
            }
            break;
        }
        let nibbles = [u32::from(bytes[at] >> 4), u32::from(bytes[at] & 15)];
        at += 1;
        let mut values = [0; 2];
        for (nibble, value) in nibbles.into_iter().zip(&mut values) {
            *value = match nibble {
                13 => 13 + u32::from(*bytes.get(at)?),
                14 => 269 + u32::from(*bytes.get(at)?) * 256 + u32::from(*bytes.get(at + 1)?),
                15 => return None,
                small => small,
            };
            at += [0, 1, 2][usize::from(nibble == 13) + 2 * usize::from(nibble == 14)];
        }
        let [delta, len] = values;
        number += delta;
        let value = bytes.get(at..at + len as usize)?.to_vec();
        at += len as usize;
        options.push((u16::try_from(number).ok()?, value));
    }
    Some(Plain { first_bits, code: bytes[1], id, token, options, payload })
}

fn agrees_with_the_model(bytes: &[u8]) {
    assert_eq!(MessageRef::parse(bytes).map(|message| view(&message)), model(bytes), "{bytes:02x?}");
}

fn malformed(bytes: &[u8]) -> bool {
    matches!(MessageRef::parse(bytes), Err(Malformed::Message { .. }))
}

#[test]
fn a_token_of_nine_bytes_is_malformed() {
    for len in 9..16 {
        assert!(malformed(&[&[0x40 | len, 1, 0, 7][..], &[0; 15]].concat()), "{len}");
    }
}

#[test]
fn a_marker_without_payload_is_malformed() {
    assert!(malformed(&[0x40, 1, 0, 7, 0xff]));
    assert!(malformed(&[0x40, 1, 0, 7, 0xb1, b'a', 0xff]));
    assert!(!malformed(&[0x40, 1, 0, 7, 0xb1, b'a', 0xff, 0xff]));
}

#[test]
fn delta_and_length_fifteen_are_malformed() {
    assert!(malformed(&[&[0x40, 1, 0, 7, 0xf1][..], &[0; 20]].concat()));
    assert!(malformed(&[&[0x40, 1, 0, 7, 0x1f][..], &[0; 20]].concat()));
}

#[test]
fn code_zero_with_more_than_a_header_is_malformed() {
    assert!(!malformed(&[0x40, 0, 0, 7]));
    assert!(malformed(&[0x40, 0, 0, 7, 0xff, 1]));
    assert!(malformed(&[0x41, 0, 0, 7, 1]));
    assert!(malformed(&[0x40, 0, 0, 7, 0]));
    assert!(malformed(&[0x41, 0, 0, 7]), "the token is missing");
}

#[test]
fn another_version_is_no_coap() {
    for first in [0x00, 0x80, 0xc0] {
        assert_eq!(MessageRef::parse(&[first, 1, 0, 7]).unwrap_err(), Malformed::NotCoap);
    }
}

#[test]
fn an_option_number_past_65535_is_malformed() {
    // 65535 by an extended delta of 14, then one more.
    let at_the_end = [0x40, 1, 0, 7, 0xe0, 0xfe, 0xf2];
    assert_eq!(MessageRef::parse(&at_the_end).unwrap().options().next(), Some((OptionNumber(65535), &[][..])));
    assert!(malformed(&[&at_the_end[..], &[0x10]].concat()));
}

#[test]
fn options_must_rise_and_come_before_the_payload() {
    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, &[]).unwrap();
    builder.option(OptionNumber::URI_PATH, b"a").unwrap();
    assert_eq!(builder.option(OptionNumber::URI_HOST, b"b"), Err(BuildError::Order));
    builder.option(OptionNumber::URI_PATH, b"c").unwrap();
    builder.payload(b"x").unwrap();
    assert_eq!(builder.option(OptionNumber::ACCEPT, b""), Err(BuildError::Order));
    let message = MessageRef::parse(frame.bytes()).unwrap();
    assert!(message.path_is("a/c") && !message.path_is("a") && !message.path_is("a/c/d"));
}

#[test]
fn an_option_that_does_not_fit_leaves_the_message_whole() {
    let mut storage = [0; 12];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, &[1]).unwrap();
    builder.option(OptionNumber::URI_PATH, b"abc").unwrap();
    assert_eq!(builder.option(OptionNumber::URI_PATH, b"defg"), Err(BuildError::Full));
    assert!(MessageRef::parse(frame.bytes()).unwrap().path_is("abc"));
}

#[test]
fn a_restarted_builder_keeps_the_token_only() {
    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Acknowledgement, Code::CONTENT, 9, b"tok").unwrap();
    builder.option(OptionNumber::CONTENT_FORMAT, &[40]).unwrap();
    builder.payload(b"half a repr").unwrap();
    builder.restart(3);
    builder.set_code(Code::INTERNAL_SERVER_ERROR);
    assert_eq!(frame.bytes(), [0x63, 0xa0, 0, 9, b't', b'o', b'k']);
}

#[test]
fn a_uint_is_as_short_as_it_can_be() {
    for (value, expected) in
        [(0, &[][..]), (1, &[1]), (255, &[255]), (256, &[1, 0]), (1 << 16, &[1, 0, 0]), (u32::MAX, &[255; 4])]
    {
        let mut bytes = [0; 4];
        assert_eq!(option::uint_bytes(value, &mut bytes), expected);
        assert_eq!(option::uint(expected), Some(value));
    }
    assert_eq!(option::uint(&[0, 0, 0, 1]), Some(1));
    assert_eq!(option::uint(&[0; 5]), None);
}

proptest! {
    #[test]
    fn options_inserted_in_any_order_are_those_written_in_order(
        plain in messages(),
        inserted in vec((0u16..700, vec(any::<u8>(), 0..9)), 0..5),
    ) {
        let mut expected = plain.clone();
        let mut storage = std::vec![0; 9000];
        let mut frame = Frame::new(&mut storage, 3);
        let kind = MessageType::from_bits(plain.first_bits);
        let mut builder = Builder::new(&mut frame, kind, Code(plain.code), plain.id, &plain.token).unwrap();
        for (number, value) in &plain.options {
            builder.option(OptionNumber(*number), value).unwrap();
        }
        builder.payload(&plain.payload).unwrap();
        for (number, value) in inserted {
            builder.insert(OptionNumber(number), &value).unwrap();
            expected.options.push((number, value));
            expected.options.sort_by_key(|(number, _)| *number);
        }
        prop_assert_eq!(view(&MessageRef::parse(frame.bytes()).unwrap()), expected);
    }

    #[test]
    fn what_is_built_is_parsed_again(plain in messages()) {
        let bytes = build(&plain);
        prop_assert_eq!(&view(&MessageRef::parse(&bytes).unwrap()), &plain);
        agrees_with_the_model(&bytes);
    }

    #[test]
    fn any_bytes_are_read_as_section_3_says(bytes in vec(any::<u8>(), 0..80)) {
        agrees_with_the_model(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_header_are_read_as_section_3_says(head in 0x40u8..0x80, rest in vec(any::<u8>(), 0..80)) {
        agrees_with_the_model(&[&[head][..], &rest].concat());
    }

    #[test]
    fn a_damaged_message_is_read_as_section_3_says(
        plain in messages(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = build(&plain);
        agrees_with_the_model(&bytes[..cut.index(bytes.len())]);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        agrees_with_the_model(&bytes);
    }

    #[test]
    fn outer_and_inner_options_merge_by_number(outer in messages(), code: u8, inner in options(), payload: Vec<u8>) {
        let outer = Plain { payload: b"ciphertext".to_vec(), ..outer };
        let bytes = build(&outer);
        let within = Plain { first_bits: 0, code: 1, id: 0, token: Vec::new(), options: inner, payload };
        let mut plaintext = build(&within).split_off(3);
        plaintext[0] = code;
        let message = MessageRef::parse(&bytes).unwrap().with_plaintext(&plaintext).unwrap();
        let mut expected = Plain { code, payload: within.payload, ..outer };
        expected.options.extend(within.options);
        expected.options.sort_by_key(|(number, _)| *number); // stable: outer first
        for (number, _) in &expected.options {
            let number = OptionNumber(*number);
            prop_assert_eq!(message.option(number), message.values(number).next());
        }
        prop_assert_eq!(view(&message), expected);
    }

    #[test]
    fn any_plaintext_is_total(plaintext: Vec<u8>) {
        let message = MessageRef::parse(&[0x40, 1, 0, 7]).unwrap();
        if let Ok(message) = message.with_plaintext(&plaintext) {
            let model = model(&[&[0x40, 1, 0, 7][..], &plaintext[1..]].concat()).unwrap();
            prop_assert_eq!(view(&message), Plain { code: plaintext[0], ..model });
        }
    }
}

#[test]
fn a_path_is_the_segments_that_it_has_outside_and_inside() {
    let is = |segments: &[&str], path: &str| {
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 7, &[]).unwrap();
        for segment in segments {
            builder.option(OptionNumber::URI_PATH, segment.as_bytes()).unwrap();
        }
        builder.option(OptionNumber::ACCEPT, &[]).unwrap();
        let bytes = frame.bytes();
        let mut plaintext = [&[Code::GET.0], &bytes[HEADER_LEN..]].concat();
        let inside = MessageRef::parse(&bytes[..HEADER_LEN]).unwrap().with_plaintext(&plaintext).unwrap().path_is(path);
        assert_eq!(MessageRef::parse(bytes).unwrap().path_is(path), inside);
        plaintext.truncate(1);
        assert_eq!(MessageRef::parse(bytes).unwrap().with_plaintext(&plaintext).unwrap().path_is(path), inside);
        inside
    };
    for (segments, path) in
        [(&[][..], ""), (&["a"], "a"), (&["a", "bc"], "a/bc"), (&["a", ""], "a/"), (&["", "a"], "/a"), (&["", ""], "/")]
    {
        assert!(is(segments, path), "{segments:?} {path}");
        for other in ["", "a", "a/bc", "a/", "/a", "/", "a/b", "a/bc/d"] {
            assert_eq!(is(segments, other), path == other, "{segments:?} {other}");
        }
    }
    assert!(!is(&["a/bc"], "a/bc") && !is(&[""], ""));
}

#[test]
fn no_option_of_class_u_is_overlooked() {
    for number in (0..=u16::MAX).map(OptionNumber) {
        let unprotected = number.class() == Class::Unprotected && number != OptionNumber::OSCORE;
        assert!(!unprotected || super::UNPROTECTED & bit(number.0) != 0, "{number:?}");
    }
}
