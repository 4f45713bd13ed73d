use super::*;
use std::vec::Vec;

const ALICE: Identity = Identity { principal: Principal(1), protection: Protection::Dtls };
const NOBODY: Identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };

/// A policy that allows only the requests of this principal.
struct Only(Principal);

impl Policy for Only {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        Some(request.identity.principal == self.0)
    }
}

/// A handler that responds as the payload of the request demands.
struct Obedient {
    called: usize,
}

impl Handler for Obedient {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.called += 1;
        match request.message().payload() {
            b"fail" => {
                response.option(OptionNumber::ETAG, b"half")?;
                response.payload(b"done")?;
                Err(Code::NOT_FOUND)
            }
            b"defer" => {
                response.defer();
                Ok(())
            }
            b"defer, fail" => {
                response.defer();
                Err(Code::SERVICE_UNAVAILABLE)
            }
            b"long" => response.payload(&[7; 1000]),
            b"order" => {
                response.option(OptionNumber::MAX_AGE, &[])?;
                response.option(OptionNumber::ETAG, &[])
            }
            b"changed" => {
                response.set_code(Code::CHANGED);
                Ok(())
            }
            _ => response.payload(b"hello"),
        }
    }
}

const TOKEN: &[u8] = b"token";

fn request(kind: MessageType, options: &[u16], payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, kind, Code::POST, 0x1234, TOKEN).unwrap();
    for number in options {
        builder.option(OptionNumber(*number), b"x").unwrap();
    }
    builder.payload(payload).unwrap();
    frame.finish().to_vec()
}

/// A policy that decides later.
struct Unsure<const LATER: bool>;

impl<const LATER: bool> Policy for Unsure<LATER> {
    const LATER: bool = LATER;

    fn decide(&self, _: &Request<'_>) -> Option<bool> {
        None
    }
}

struct Answer {
    served: Served,
    bytes: Vec<u8>,
    called: usize,
}

impl Answer {
    fn message(&self) -> MessageRef<'_> {
        MessageRef::parse(&self.bytes).unwrap()
    }
}

fn answer_in(room: usize, identity: Identity, policy: &impl Policy, bytes: &[u8]) -> Answer {
    let message = MessageRef::parse(bytes).unwrap();
    let mut storage = std::vec![0; room];
    let mut frame = Frame::new(&mut storage, 0);
    let mut handler = Obedient { called: 0 };
    let served = serve(Request::new(message, identity), policy, &mut handler, 0x4321, &mut frame);
    Answer { served, bytes: frame.bytes().to_vec(), called: handler.called }
}

fn answer(identity: Identity, policy: &impl Policy, bytes: &[u8]) -> Answer {
    answer_in(200, identity, policy, bytes)
}

#[test]
fn a_decision_that_nobody_waits_for_is_a_denial() {
    let post = request(MessageType::Confirmable, &[], b"");
    for answer in [answer(ALICE, &Unsure::<true>, &post), answer(ALICE, &Unsure::<false>, &post)] {
        assert_eq!(answer.served, Served::Responded { code: Code::FORBIDDEN, observed: false });
        assert_eq!(answer.called, 0);
    }
    let (message, handler) = (MessageRef::parse(&post).unwrap(), Obedient { called: 0 });
    let asked = Request::new(message, ALICE);
    assert_eq!(Decided::ask(&Unsure::<true>, &handler, &asked), None);
    assert_eq!(Decided::ask(&Unsure::<false>, &handler, &asked), Some(Decided { allows: false }));
}

/// Asserts that the response is an error without payload, with the token of the request, and that the handler was
/// called `called` times.
fn assert_refused(answer: &Answer, code: Code, called: usize) {
    assert_eq!((answer.served, answer.called), (Served::Responded { code, observed: false }, called));
    let message = answer.message();
    assert_eq!((message.code(), message.token()), (code, TOKEN));
    assert_eq!((message.payload(), message.options().count()), (&[][..], 0));
}

#[test]
fn a_confirmable_request_is_answered_in_its_acknowledgement() {
    let answer = answer(ALICE, &Anybody, &request(MessageType::Confirmable, &[11], b"changed"));
    let message = answer.message();
    assert_eq!((message.message_type(), message.message_id()), (MessageType::Acknowledgement, 0x1234));
    assert_eq!((message.code(), message.token()), (Code::CHANGED, TOKEN));
    assert_eq!(answer.served, Served::Responded { code: Code::CHANGED, observed: false });
}

#[test]
fn a_non_confirmable_request_is_answered_in_a_message_of_its_own() {
    let answer = answer(ALICE, &Anybody, &request(MessageType::NonConfirmable, &[11], b""));
    let message = answer.message();
    assert_eq!((message.message_type(), message.message_id()), (MessageType::NonConfirmable, 0x4321));
    assert_eq!((message.code(), message.token(), message.payload()), (Code::CONTENT, TOKEN, &b"hello"[..]));
}

#[test]
fn who_proved_nothing_gets_unauthorized_and_who_may_not_forbidden() {
    let bytes = request(MessageType::Confirmable, &[11], b"");
    assert_refused(&answer(NOBODY, &Only(Principal(1)), &bytes), Code::UNAUTHORIZED, 0);
    assert_refused(&answer(NOBODY, &AnyAuthenticated, &bytes), Code::UNAUTHORIZED, 0);
    assert_refused(&answer(ALICE, &Only(Principal(2)), &bytes), Code::FORBIDDEN, 0);
    assert_eq!(answer(ALICE, &Only(Principal(1)), &bytes).called, 1);
    assert_eq!(answer(ALICE, &AnyAuthenticated, &bytes).called, 1);
}

#[test]
fn an_unknown_critical_option_is_a_bad_option_and_an_elective_one_is_not() {
    for unknown in [1, 5, 9, 13, 25, 2049, 65535] {
        let bytes = request(MessageType::Confirmable, &[unknown], b"");
        assert_refused(&answer(ALICE, &Anybody, &bytes), Code::BAD_OPTION, 0);
    }
    for elective in [4, 6, 12, 14, 20, 60, 2048] {
        assert_eq!(answer(ALICE, &Anybody, &request(MessageType::Confirmable, &[elective], b"")).called, 1);
    }
    for usual in [3, 7, 11, 15, 17] {
        assert_eq!(answer(ALICE, &Anybody, &request(MessageType::Confirmable, &[usual], b"")).called, 1);
    }
}

#[test]
fn a_non_confirmable_request_with_an_unknown_critical_option_is_reset() {
    let answer = answer(ALICE, &Anybody, &request(MessageType::NonConfirmable, &[9], b""));
    assert_eq!((&answer.bytes[..], answer.called), (&[0x70, 0, 0x12, 0x34][..], 0));
    assert_eq!(answer.served, Served::Responded { code: Code::EMPTY, observed: false });
}

#[test]
fn proxy_options_are_answered_with_proxying_not_supported() {
    for proxy in [35, 39] {
        let bytes = request(MessageType::Confirmable, &[proxy], b"");
        assert_refused(&answer(ALICE, &Anybody, &bytes), Code::PROXYING_NOT_SUPPORTED, 0);
    }
}

#[test]
fn an_error_of_the_handler_carries_the_token_and_nothing_it_had_written() {
    let kind = MessageType::Confirmable;
    assert_refused(&answer(ALICE, &Anybody, &request(kind, &[], b"fail")), Code::NOT_FOUND, 1);
    assert_refused(&answer(ALICE, &Anybody, &request(kind, &[], b"long")), Code::INTERNAL_SERVER_ERROR, 1);
    assert_refused(&answer(ALICE, &Anybody, &request(kind, &[], b"order")), Code::INTERNAL_SERVER_ERROR, 1);
    assert_refused(&answer(ALICE, &Anybody, &request(kind, &[], b"defer, fail")), Code::SERVICE_UNAVAILABLE, 1);
}

#[test]
fn a_deferred_confirmable_request_is_only_acknowledged() {
    let answer = answer(ALICE, &Anybody, &request(MessageType::Confirmable, &[], b"defer"));
    assert_eq!(answer.served, Served::Deferred { token: Token::new(TOKEN), observed: false });
    assert_eq!(answer.bytes, [0x60, 0, 0x12, 0x34]);
}

#[test]
fn a_deferred_non_confirmable_request_is_not_answered_yet() {
    let answer = answer(ALICE, &Anybody, &request(MessageType::NonConfirmable, &[], b"defer"));
    assert_eq!(
        (answer.served, answer.bytes.len()),
        (Served::Deferred { token: Token::new(TOKEN), observed: false }, 0)
    );
}

#[test]
fn a_frame_too_small_for_an_error_is_no_room() {
    let bytes = request(MessageType::Confirmable, &[], b"");
    for room in 0..9 {
        let answer = answer_in(room, ALICE, &Anybody, &bytes);
        assert_eq!((answer.served, answer.called), (Served::NoRoom, 0), "{room}");
    }
    for room in 9..15 {
        assert_refused(&answer_in(room, ALICE, &Anybody, &bytes), Code::INTERNAL_SERVER_ERROR, 1);
    }
    assert_eq!(answer_in(15, ALICE, &Anybody, &bytes).message().payload(), b"hello");
}

/// A handler without block-wise transfer, which answers in one message.
struct Short;

impl Handler for Short {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, _: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        response.payload(&[7; 40])
    }
}

#[test]
fn a_handler_without_blocks_answers_the_first_block_whole_and_refuses_the_others() {
    let cases = [
        (OptionNumber::BLOCK2, 0x00, Code::CONTENT),
        (OptionNumber::BLOCK2, 0x06, Code::CONTENT),
        (OptionNumber::BLOCK2, 0x10, Code::BAD_OPTION),
        (OptionNumber::BLOCK2, 0xff_fff6, Code::BAD_OPTION),
        (OptionNumber::BLOCK1, 0x00, Code::BAD_OPTION),
        (OptionNumber::BLOCK1, 0x08, Code::BAD_OPTION),
        (OptionNumber::BLOCK1, 0x10, Code::BAD_OPTION),
        (OptionNumber::SIZE2, 0x00, Code::CONTENT),
    ];
    for ((number, value, expected), method) in
        cases.into_iter().flat_map(|case| [(case, Code::GET), (case, Code::POST)])
    {
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, method, 0x1234, TOKEN).unwrap();
        builder.uint(number, value).unwrap();
        let request = frame.finish().to_vec();
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, 0);
        let request = Request::new(MessageRef::parse(&request).unwrap(), ALICE);
        serve(request, &Only(Principal(1)), &mut Short, 7, &mut frame);
        let response = MessageRef::parse(frame.bytes()).unwrap();
        assert_eq!(response.code(), expected, "{method:?} {number:?} {value:#x}");
        assert!(response.options().next().is_none());
        assert_eq!(response.payload().len(), if expected == Code::CONTENT { 40 } else { 0 });
    }
}
