use super::*;
use crate::buf::Frame;
use crate::coap::MessageType;
use crate::coap::handler::{Anybody, Authorized, Decided, Handler, Served, respond, serve};
use crate::identity::{Identity, Principal, Protection};
use proptest::prelude::*;
use std::vec::Vec;

const NOBODY: Identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };

/// A handler that writes a representation in pieces. If `skipping`, it skips the bytes outside the requested block.
struct Body {
    bytes: Vec<u8>,
    piece: usize,
    skipping: bool,
}

impl Handler for Body {
    fn handle(&mut self, _: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        response.observable();
        response.uint(OptionNumber::CONTENT_FORMAT, 42)?;
        response.uint(OptionNumber::MAX_AGE, 7)?;
        if self.skipping {
            let wanted = response.wanted();
            let start = wanted.start.min(self.bytes.len());
            let end = wanted.end.min(self.bytes.len());
            response.skip(start)?;
            response.payload(&self.bytes[start..end])?;
            return response.skip(self.bytes.len() - end);
        }
        self.bytes.chunks(self.piece.max(1)).try_for_each(|piece| response.payload(piece))
    }
}

fn get(options: &[(OptionNumber, u32)]) -> Vec<u8> {
    let mut storage = [0; 100];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"tok").unwrap();
    for (number, value) in options {
        builder.uint(*number, *value).unwrap();
    }
    frame.finish().to_vec()
}

fn ask(body: &mut impl Handler, options: &[(OptionNumber, u32)], room: usize) -> Vec<u8> {
    let request = get(options);
    let message = MessageRef::parse(&request).unwrap();
    let mut storage = std::vec![0; room + 3];
    let mut frame = Frame::new(&mut storage, 3);
    serve(Request::new(message, NOBODY).observable(5), &Anybody, body, 9, &mut frame);
    frame.bytes().to_vec()
}

/// Asks for one block after the other, as a client does. Returns the body, and the number of messages.
fn download(body: &mut Body, mut asked: Option<Block>, room: usize) -> (Vec<u8>, usize) {
    let (mut all, mut etags, mut turns) = (Vec::new(), Vec::new(), 0);
    loop {
        turns += 1;
        let options: Vec<_> = asked.iter().map(|block| (OptionNumber::BLOCK2, block.value())).collect();
        let bytes = ask(body, &options, room);
        let message = MessageRef::parse(&bytes).unwrap();
        assert_eq!(message.code(), Code::CONTENT, "{asked:?}");
        assert_eq!(
            (message.uint(OptionNumber::CONTENT_FORMAT), message.uint(OptionNumber::MAX_AGE)),
            (Some(42), Some(7))
        );
        let Some(block) = message.block(OptionNumber::BLOCK2).unwrap() else {
            assert!(asked.is_none());
            return (message.payload().to_vec(), 1);
        };
        assert!(asked.is_none_or(|asked| block.size_exponent <= asked.size_exponent));
        assert_eq!(block.offset(), all.len());
        assert!(block.more || message.payload().len() <= block.size());
        assert!(!block.more || message.payload().len() == block.size());
        all.extend_from_slice(message.payload());
        etags.extend(message.option(OptionNumber::ETAG).map(<[u8]>::to_vec));
        if block.number == 0 && block.more {
            assert_eq!(message.uint(OptionNumber::SIZE2), Some(body.bytes.len() as u32));
        }
        if !block.more {
            etags.dedup();
            assert!(etags.len() <= 1 && (body.skipping || turns == 1 || etags.len() == 1));
            return (all, turns);
        }
        asked = Some(Block { number: block.number + 1, more: false, ..block });
    }
}

proptest! {
    #[test]
    fn blocks_put_together_are_the_representation(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        piece in 1usize..700,
        exponent in proptest::option::of(0u8..7),
        room in 64usize..1300,
        skipping in any::<bool>(),
    ) {
        let asked = exponent.map(|size_exponent| Block { number: 0, more: false, size_exponent });
        let mut body = Body { bytes, piece, skipping };
        let (got, turns) = download(&mut body, asked, room);
        prop_assert_eq!(&got, &body.bytes);
        if body.bytes.len() <= room.saturating_sub(24).min(1024) && asked.is_none() {
            prop_assert_eq!(turns, 1);
        }
    }
}

#[test]
fn a_first_block_is_as_large_as_the_frame_allows() {
    for (room, size) in [(1300, 1024), (1100, 1024), (600, 512), (80, 32)] {
        let mut body = Body { bytes: std::vec![1; 5000], piece: 5000, skipping: false };
        let bytes = ask(&mut body, &[], room);
        assert_eq!(MessageRef::parse(&bytes).unwrap().payload().len(), size, "{room}");
    }
}

#[test]
fn a_block_behind_the_end_is_a_bad_request() {
    let mut body = Body { bytes: std::vec![1; 64], piece: 64, skipping: false };
    for (number, code) in [(3, Code::CONTENT), (4, Code::BAD_REQUEST), (0xf_ffff, Code::BAD_REQUEST)] {
        let asked = Block { number, more: false, size_exponent: 0 };
        let bytes = ask(&mut body, &[(OptionNumber::BLOCK2, asked.value())], 200);
        assert_eq!(MessageRef::parse(&bytes).unwrap().code(), code);
    }
}

#[test]
fn the_more_bit_of_a_request_for_a_block_is_ignored() {
    let mut body = Body { bytes: std::vec![1; 64], piece: 64, skipping: false };
    let [one, other] = [true, false].map(|more| {
        let asked = Block { number: 1, more, size_exponent: 0 };
        ask(&mut body, &[(OptionNumber::BLOCK2, asked.value())], 200)
    });
    assert_eq!(one, other);
}

#[test]
fn the_reserved_block_size_is_a_bad_request() {
    for number in [OptionNumber::BLOCK2, OptionNumber::BLOCK1] {
        let bytes = ask(&mut Body { bytes: Vec::new(), piece: 1, skipping: false }, &[(number, 7)], 200);
        assert_eq!(MessageRef::parse(&bytes).unwrap().code(), Code::BAD_REQUEST);
    }
}

#[test]
fn an_observer_is_registered_only_if_it_asks_and_the_number_is_in_the_response() {
    for (length, value, expected) in [(10, 0, Some(5)), (10, 1, None), (10, 2, None), (3000, 0, Some(5))] {
        let mut body = Body { bytes: std::vec![3; length], piece: 50, skipping: false };
        let bytes = ask(&mut body, &[(OptionNumber::OBSERVE, value)], 1200);
        let message = MessageRef::parse(&bytes).unwrap();
        assert_eq!((message.code(), message.uint(OptionNumber::OBSERVE)), (Code::CONTENT, expected));
    }
}

/// A handler that allows the client to observe its resource, and then returns an error.
struct Failing;

impl Handler for Failing {
    fn handle(&mut self, _: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        response.observable();
        Err(Code::NOT_FOUND)
    }
}

#[test]
fn an_error_has_no_observe() {
    let bytes = ask(&mut Failing, &[(OptionNumber::OBSERVE, 0)], 100);
    let message = MessageRef::parse(&bytes).unwrap();
    assert_eq!((message.code(), message.option(OptionNumber::OBSERVE)), (Code::NOT_FOUND, None));
}

#[test]
fn a_notification_is_the_response_to_the_registration_in_a_message_of_its_own() {
    let registration = get(&[(OptionNumber::OBSERVE, 0)]);
    let message = MessageRef::parse(&registration).unwrap();
    let mut body = Body { bytes: b"21 C".to_vec(), piece: 4, skipping: false };
    let mut storage = [0; 100];
    let mut frame = Frame::new(&mut storage, 0);
    let request = Request::new(message, NOBODY).observable(0x01_02_03);
    let served = respond(&request, Decided { allows: true }, &mut body, MessageType::NonConfirmable, 77, &mut frame);
    assert_eq!(served, Served::Responded { code: Code::CONTENT, observed: true });
    let message = MessageRef::parse(frame.bytes()).unwrap();
    assert_eq!((message.message_type(), message.message_id()), (MessageType::NonConfirmable, 77));
    assert_eq!((message.token(), message.payload()), (&b"tok"[..], &b"21 C"[..]));
    assert_eq!(message.uint(OptionNumber::OBSERVE), Some(0x01_02_03));
}

#[test]
fn what_the_client_does_not_want_is_only_acknowledged() {
    for (unwanted, silent) in [(0, false), (2, true), (8, false), (26, true), (24, false)] {
        let mut body = Body { bytes: b"x".to_vec(), piece: 1, skipping: false };
        let bytes = ask(&mut body, &[(OptionNumber::NO_RESPONSE, unwanted)], 100);
        assert_eq!(MessageRef::parse(&bytes).unwrap().code() == Code::EMPTY, silent, "{unwanted}");
    }
}
