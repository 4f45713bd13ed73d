use super::*;
use crate::buf::Frame;
use crate::coap::MessageRef;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The parts of a message that the tests compare.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Asked {
    block1: Option<(u32, bool, usize)>,
    block2: Option<(u32, bool, usize)>,
    size1: Option<u32>,
    echo: Vec<u8>,
    tag: Vec<u8>,
    payload: Vec<u8>,
}

/// A client in the middle of a transfer.
struct Client {
    transfer: Transfer,
    body: Vec<u8>,
    /// The last value of the simulated random generator.
    drawn: u8,
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

impl Client {
    fn new(method: Code, len: usize, block_size: usize) -> Self {
        let transfer = Transfer::new(method, len, block_size, 1000).unwrap();
        Self { transfer, body: body(len), drawn: 0 }
    }

    /// Writes the next message, and returns its parts. Also returns the token if the body is sent in blocks.
    fn asked(&mut self) -> (Asked, Option<Token>) {
        let drawn = &mut self.drawn;
        let token = self.transfer.draw(4, |random| {
            *drawn += 1;
            random.fill(*drawn);
        });
        let mut storage = [0; 1200];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, self.transfer.method, 1, b"t").unwrap();
        builder.path("long/path").unwrap();
        self.transfer.write_options(&mut builder).unwrap();
        builder.payload(self.transfer.payload(&self.body)).unwrap();
        let message = MessageRef::parse(frame.bytes()).unwrap();
        let block = |number| message.block(number).unwrap().map(|it| (it.number, it.more, it.size()));
        let asked = Asked {
            block1: block(OptionNumber::BLOCK1),
            block2: block(OptionNumber::BLOCK2),
            size1: message.uint(OptionNumber::SIZE1),
            echo: message.option(OptionNumber::ECHO).unwrap_or(&[]).to_vec(),
            tag: message.option(OptionNumber::REQUEST_TAG).unwrap_or(&[]).to_vec(),
            payload: message.payload().to_vec(),
        };
        (asked, token)
    }

    fn ask(&mut self) -> Asked {
        self.asked().0
    }

    /// Passes a response to the transfer.
    fn take(
        &mut self,
        code: Code,
        options: &[(OptionNumber, &[u8])],
        len: usize,
    ) -> Result<TransferStep, TransferError> {
        let option = |number| options.iter().find(|(of, _)| *of == number).map(|(_, value)| *value);
        self.transfer.on_response(code, option, len)
    }

    /// Passes a block of a response to the transfer.
    fn take_block(
        &mut self,
        (number, more, size): (u32, bool, usize),
        etag: &[u8],
        len: usize,
    ) -> Result<TransferStep, TransferError> {
        let value = block(number, more, size);
        self.take(Code::CONTENT, &[(OptionNumber::BLOCK2, &value), (OptionNumber::ETAG, etag)], len)
    }
}

/// Returns the value of a Block option.
fn block(number: u32, more: bool, size: usize) -> [u8; 3] {
    let [_, value @ ..] = Block { number, more, ..Block::first(size) }.value().to_be_bytes();
    value
}

const BLOCK1: OptionNumber = OptionNumber::BLOCK1;
const BLOCK2: OptionNumber = OptionNumber::BLOCK2;
const COMPLETE: Result<TransferStep, TransferError> = Ok(TransferStep::Complete(0));
const AGAIN: Result<TransferStep, TransferError> = Ok(TransferStep::Again);

#[test]
fn a_body_that_fits_goes_in_one_message() {
    for (block_size, block2) in [(64, Some((0, false, 64))), (1000, Some((0, false, 512))), (1024, None)] {
        let mut client = Client::new(Code::PUT, 64, block_size);
        let expected = Asked { block2, payload: body(64), ..Asked::default() };
        assert_eq!(client.asked(), (expected, None));
        assert_eq!(client.take(Code::CHANGED, &[], 0), COMPLETE);
        assert!(!client.transfer.lacks_block1());
    }
}

#[test]
fn a_long_body_goes_in_blocks_with_one_token() {
    let mut client = Client::new(Code::PUT, 150, 64);
    let (asked, token) = client.asked();
    let expected = Asked { block1: Some((0, true, 64)), size1: Some(150), payload: body(64), ..Asked::default() };
    assert_eq!((asked, token), (expected, Some(Token::new(&[1; 4]))));
    assert_eq!(client.take(Code::CONTINUE, &[(BLOCK1, &block(0, true, 64))], 0), Ok(TransferStep::Sent(64)));
    let (asked, token) = client.asked();
    let expected = Asked { block1: Some((1, true, 64)), payload: body(150)[64..128].to_vec(), ..Asked::default() };
    assert_eq!((asked, token), (expected, Some(Token::new(&[1; 4]))));
    assert_eq!(client.take(Code::CONTINUE, &[(BLOCK1, &block(1, true, 64))], 0), Ok(TransferStep::Sent(128)));
    // The last block has the size for the blocks of the response.
    let expected = Asked {
        block1: Some((2, false, 64)),
        block2: Some((0, false, 64)),
        payload: body(150)[128..].to_vec(),
        ..Asked::default()
    };
    assert_eq!(client.ask(), expected);
    assert_eq!(client.take(Code::CHANGED, &[(BLOCK1, &block(2, false, 64))], 0), COMPLETE);
    assert!(!client.transfer.lacks_block1());
}

#[test]
fn a_smaller_size_is_used_from_the_next_block_on() {
    let mut client = Client::new(Code::PUT, 150, 64);
    client.take(Code::CONTINUE, &[(BLOCK1, &block(0, true, 16))], 0).unwrap();
    let asked = client.ask();
    assert_eq!((asked.block1, &asked.payload[..]), (Some((4, true, 16)), &body(150)[64..80]));
    // A larger size is not taken.
    client.take(Code::CONTINUE, &[(BLOCK1, &block(4, true, 1024))], 0).unwrap();
    assert_eq!(client.ask().block1, Some((5, true, 16)));
}

#[test]
fn a_server_that_takes_smaller_blocks_only_is_sent_these() {
    let refused =
        |client: &mut Client, size| client.take(Code::REQUEST_ENTITY_TOO_LARGE, &[(BLOCK1, &block(0, true, size))], 0);
    let mut client = Client::new(Code::PUT, 60, 64);
    assert_eq!(client.ask().block1, None);
    assert_eq!(refused(&mut client, 32), AGAIN);
    assert_eq!(client.ask().block1, Some((0, true, 32)));
    assert_eq!(refused(&mut client, 16), AGAIN);
    assert_eq!(client.ask().block1, Some((0, true, 16)));
    assert_eq!(refused(&mut client, 16), COMPLETE, "no smaller size");
    // There is a limit, and a refusal without a size is the response.
    let mut client = Client::new(Code::PUT, 200, 128);
    assert_eq!([64, 32, 16].map(|size| refused(&mut client, size)), [AGAIN, AGAIN, COMPLETE]);
    let mut client = Client::new(Code::PUT, 200, 128);
    assert_eq!(client.take(Code::REQUEST_ENTITY_TOO_LARGE, &[], 0), COMPLETE);
}

#[test]
fn a_server_that_lost_the_blocks_is_sent_them_again_with_a_new_request_tag() {
    let mut client = Client::new(Code::PUT, 60, 32);
    assert_eq!(client.take(Code::REQUEST_ENTITY_INCOMPLETE, &[], 0), COMPLETE, "there was no block before");
    let (mut client, mut tags) = (Client::new(Code::PUT, 60, 32), Vec::new());
    for answer in [AGAIN, AGAIN, COMPLETE] {
        let (asked, token) = client.asked();
        assert_eq!((asked.block1, asked.size1), (Some((0, true, 32)), Some(60)));
        assert_eq!(token, Some(Token::new(&[client.drawn; 4])), "each attempt has its token");
        tags.push(asked.tag);
        client.take(Code::CONTINUE, &[], 0).unwrap();
        assert_eq!(Some(&client.ask().tag), tags.last());
        assert_eq!(client.take(Code::REQUEST_ENTITY_INCOMPLETE, &[], 0), answer);
    }
    assert_eq!(tags, [vec![], vec![2; 4], vec![3; 4]]);
}

#[test]
fn the_tag_of_a_body_in_blocks_is_that_of_the_blocks_of_its_response() {
    let mut client = Client::new(Code::POST, 60, 32);
    client.take(Code::CONTINUE, &[], 0).unwrap();
    assert_eq!(client.take(Code::REQUEST_ENTITY_INCOMPLETE, &[], 0), AGAIN);
    client.ask();
    client.take(Code::CONTINUE, &[], 0).unwrap();
    client.take_block((0, true, 32), b"a", 32).unwrap();
    let expected = Asked { block2: Some((1, false, 32)), tag: vec![1; 4], ..Asked::default() };
    assert_eq!(client.ask(), expected);
}

#[test]
fn a_challenge_is_answered_at_any_message() {
    let challenge =
        |client: &mut Client, echo: &[u8]| client.take(Code::UNAUTHORIZED, &[(OptionNumber::ECHO, echo)], 0);
    let mut client = Client::new(Code::PUT, 60, 32);
    assert_eq!(challenge(&mut client, b"one"), AGAIN);
    let asked = client.ask();
    assert_eq!((asked.block1, &asked.echo[..]), (Some((0, true, 32)), &b"one"[..]));
    client.take(Code::CONTINUE, &[], 0).unwrap();
    assert_eq!(challenge(&mut client, b"two"), AGAIN);
    let asked = client.ask();
    assert_eq!((asked.block1, &asked.echo[..]), (Some((1, false, 32)), &b"two"[..]), "the same block again");
    client.take_block((0, true, 32), b"", 32).unwrap();
    assert_eq!(challenge(&mut client, &[7; 40]), AGAIN);
    let asked = client.ask();
    assert_eq!((asked.block2, &asked.echo[..]), (Some((1, false, 32)), &[7; 40][..]));
    assert_eq!(challenge(&mut client, b"four"), Err(TransferError::Refused(Code::UNAUTHORIZED)));
}

#[test]
fn a_challenge_that_cannot_be_answered_is_the_response() {
    for echo in [&[][..], &[7; 41]] {
        let mut client = Client::new(Code::GET, 0, 32);
        assert_eq!(client.take(Code::UNAUTHORIZED, &[(OptionNumber::ECHO, echo)], 0), COMPLETE);
    }
    let mut client = Client::new(Code::GET, 0, 32);
    assert_eq!(client.take(Code::UNAUTHORIZED, &[], 0), COMPLETE);
}

#[test]
fn the_blocks_of_a_response_are_asked_for() {
    let mut client = Client::new(Code::GET, 0, 64);
    let value = block(0, true, 64);
    let options = [(BLOCK2, &value[..]), (OptionNumber::SIZE2, &[130])];
    assert_eq!(client.take(Code::CONTENT, &options, 64), Ok(TransferStep::Received { at: 0, total: Some(130) }));
    assert_eq!(client.ask(), Asked { block2: Some((1, false, 64)), ..Asked::default() });
    // A smaller block leads to smaller ones after it.
    let received = Ok(TransferStep::Received { at: 64, total: Some(130) });
    assert_eq!(client.take_block((2, true, 32), b"", 32), received);
    assert_eq!(client.ask(), Asked { block2: Some((3, false, 32)), ..Asked::default() });
    assert_eq!(client.take_block((3, false, 32), b"", 10), Ok(TransferStep::Complete(96)));
}

#[test]
fn the_size_of_a_response_that_is_too_large_for_us_is_lowered() {
    let mut client = Client::new(Code::GET, 0, 32);
    client.take_block((0, true, 64), b"", 64).unwrap();
    assert_eq!(client.ask().block2, Some((2, false, 32)));
}

#[test]
fn the_body_of_a_request_is_sent_again_if_it_is_short_and_changes_nothing() {
    for (method, len, payload) in [(Code::FETCH, 20, body(20)), (Code::POST, 20, vec![]), (Code::FETCH, 60, vec![])] {
        let mut client = Client::new(method, len, 32);
        if len > 32 {
            client.take(Code::CONTINUE, &[], 0).unwrap();
        }
        client.take_block((0, true, 32), b"", 32).unwrap();
        let asked = client.ask();
        assert_eq!((asked.block1, asked.block2, asked.payload), (None, Some((1, false, 32)), payload));
    }
}

#[test]
fn a_representation_that_changes_is_asked_for_again() {
    let mut client = Client::new(Code::FETCH, 60, 32);
    for answer in [AGAIN, AGAIN, Err(TransferError::Changed)] {
        assert_eq!(client.ask().block1, Some((0, true, 32)));
        client.take(Code::CONTINUE, &[], 0).unwrap();
        client.take_block((0, true, 32), b"a", 32).unwrap();
        assert_eq!(client.take_block((1, false, 32), b"b", 1), answer);
    }
    for code in [Code::REQUEST_ENTITY_INCOMPLETE, Code::BAD_REQUEST] {
        let mut client = Client::new(Code::GET, 0, 32);
        client.take_block((0, true, 32), b"a", 32).unwrap();
        assert_eq!(client.take(code, &[], 0), AGAIN, "the server has forgotten it");
        let mut client = Client::new(Code::POST, 0, 32);
        client.take_block((0, true, 32), b"a", 32).unwrap();
        assert_eq!(client.take(code, &[], 0), Err(TransferError::Refused(code)), "POST is not repeated");
    }
    let mut client = Client::new(Code::POST, 0, 32);
    client.take_block((0, true, 32), b"a", 32).unwrap();
    assert_eq!(client.take_block((1, false, 32), b"", 1), Err(TransferError::Changed));
}

#[test]
fn blocks_that_were_not_asked_for_end_the_transfer() {
    let begun = || {
        let mut client = Client::new(Code::GET, 0, 32);
        client.take_block((0, true, 32), b"", 32).unwrap();
        client
    };
    assert_eq!(Client::new(Code::GET, 0, 32).take_block((0, true, 32), b"", 31), Err(TransferError::FirstBlock));
    let wrong =
        [((2, true, 32), 32), ((1, true, 32), 31), ((1, false, 32), 33), ((0, true, 32), 32), ((1, true, 64), 64)];
    for (block, len) in wrong {
        assert_eq!(begun().take_block(block, b"", len), Err(TransferError::WrongBlock), "{block:?} {len}");
    }
    assert_eq!(begun().take(Code::CONTENT, &[], 32), Err(TransferError::NoBlock2));
    assert_eq!(begun().take(Code::CONTENT, &[(BLOCK2, &[0x0f])], 32), Err(TransferError::NoBlock2));
    let refused = TransferError::Refused(Code::INTERNAL_SERVER_ERROR);
    assert_eq!(begun().take(Code::INTERNAL_SERVER_ERROR, &[], 0), Err(refused));
}

#[test]
fn an_error_response_may_be_long() {
    let mut client = Client::new(Code::GET, 0, 32);
    let value = block(0, true, 32);
    client.take(Code::NOT_FOUND, &[(BLOCK2, &value)], 32).unwrap();
    let value = block(1, false, 32);
    assert_eq!(client.take(Code::NOT_FOUND, &[(BLOCK2, &value)], 5), Ok(TransferStep::Complete(32)));
}

#[test]
fn a_response_that_is_too_long_is_refused() {
    let mut client = Client::new(Code::GET, 0, 1024);
    let value = block(0, true, 32);
    let announced = [(BLOCK2, &value[..]), (OptionNumber::SIZE2, &[3, 0xe9])];
    assert_eq!(client.take(Code::CONTENT, &announced, 32), Err(TransferError::TooLong), "1001 bytes");
    assert_eq!(Client::new(Code::GET, 0, 1024).take_block((0, true, 1024), b"", 1024), Err(TransferError::TooLong));
    let mut client = Client::new(Code::GET, 0, 512);
    client.take_block((0, true, 512), b"", 512).unwrap();
    assert_eq!(client.take_block((1, false, 512), b"", 489), Err(TransferError::TooLong));
    let mut client = Client::new(Code::GET, 0, 512);
    client.take_block((0, true, 512), b"", 512).unwrap();
    assert_eq!(client.take_block((1, false, 512), b"", 488), Ok(TransferStep::Complete(512)));
}

#[test]
fn blocks_that_cannot_be_numbered_are_not_begun() {
    let most = 16 << 20;
    assert!(Transfer::new(Code::PUT, most, 16, 0).is_ok());
    let error = TransferError::TooManyBlocks { len: most + 1, block_size: 16 };
    assert_eq!(Transfer::new(Code::PUT, most + 1, 16, 0).err(), Some(error));
    // A smaller size of the server has the same limit.
    let mut transfer = Transfer::new(Code::PUT, most + 1, 32, 0).unwrap();
    let hint = block(0, true, 16);
    let option = |number| (number == BLOCK1).then_some(&hint[..]);
    assert_eq!(transfer.on_response(Code::CONTINUE, option, 0), Err(error));
    let mut transfer = Transfer::new(Code::GET, 0, 16, usize::MAX).unwrap();
    let (first, total) = (block(0, true, 16), (most as u32 + 1).to_be_bytes());
    let option = |number| match number {
        BLOCK2 => Some(&first[..]),
        OptionNumber::SIZE2 => Some(&total[..]),
        _ => None,
    };
    assert_eq!(transfer.on_response(Code::CONTENT, option, 16), Err(error));
}

#[test]
fn an_upload_whose_end_is_accepted_without_block1_says_so() {
    let mut client = Client::new(Code::PUT, 60, 32);
    client.take(Code::CONTINUE, &[], 0).unwrap();
    assert_eq!(client.take(Code::CHANGED, &[], 0), COMPLETE);
    assert!(client.transfer.lacks_block1());
    let mut client = Client::new(Code::PUT, 60, 32);
    assert_eq!(client.take(Code::NOT_FOUND, &[], 0), COMPLETE);
    assert!(!client.transfer.lacks_block1(), "an error is not an acceptance");
}

proptest! {
    /// No sequence of responses makes a transfer endless, or makes the client request bytes after the end of the
    /// response body.
    #[test]
    fn each_transfer_ends(
        method in prop::sample::select(vec![Code::GET, Code::PUT, Code::FETCH]),
        len in 0_usize..100,
        answers in prop::collection::vec((
            prop::sample::select(vec![
                Code::CONTINUE,
                Code::CONTENT,
                Code::UNAUTHORIZED,
                Code::REQUEST_ENTITY_INCOMPLETE,
                Code::REQUEST_ENTITY_TOO_LARGE,
            ]),
            prop::collection::vec((prop::sample::select(vec![23_u16, 27, 28, 4, 252]), prop::collection::vec(any::<u8>(), 0..4)), 0..4),
            prop::sample::select(vec![0_usize, 16, 32, 64]),
        ), 300),
    ) {
        let (mut client, mut received) = (Client::new(method, len, 32), 0);
        let mut answers = answers.into_iter();
        let ended = answers.by_ref().any(|(code, options, len)| {
            let asked = client.ask();
            assert!(asked.payload.len() <= 32);
            assert!(asked.block1.is_none_or(|(_, more, size)| !more || asked.payload.len() == size));
            let options: Vec<_> = options.iter().map(|(number, value)| (OptionNumber(*number), &value[..])).collect();
            match client.take(code, &options, len) {
                Ok(TransferStep::Received { at, .. }) => {
                    assert!(at == received || at == 0);
                    received = at + len;
                    received > 1000
                }
                Ok(TransferStep::Complete(at)) => {
                    assert!(at == received || at == 0);
                    true
                }
                Ok(_) => false,
                Err(_) => true,
            }
        });
        prop_assert!(ended);
    }
}
