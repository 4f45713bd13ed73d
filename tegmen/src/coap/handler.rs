//! From a request to its response: identity, policy, handler.

use super::block::{self, Block};
use super::code::Code;
use super::message::{BuildError, Builder, MessageRef, MessageType, Token, empty};
use super::observe;
use super::option::OptionNumber;
pub use super::response::Response;
use super::response::Window;
use crate::buf::Frame;
use crate::endpoint::{Principal, Protection};

/// How the sender of a request proved itself. Which protection carried the request shows only here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Who it is; [`Principal::NOBODY`] if it proved nothing.
    pub principal: Principal,
    /// What protected the request.
    pub protection: Protection,
}

/// A request and who sent it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The message.
    pub message: MessageRef<'r>,
    /// Its sender.
    pub identity: Identity,
    /// The number that the response carries if the sender becomes an observer; `None` where it cannot.
    notification: Option<u32>,
}

impl<'r> Request<'r> {
    /// A request that is answered once.
    pub const fn new(message: MessageRef<'r>, identity: Identity) -> Self {
        Self { message, identity, notification: None }
    }

    /// A request whose sender may become an observer, if it asks for that and the handler lets it; the response then
    /// carries this number in its Observe option (RFC 7641, section 4.1).
    pub const fn observable(self, number: u32) -> Self {
        Self { notification: Some(number), ..self }
    }

    /// The number, if the client asks to be registered.
    pub(super) fn registration(&self) -> Option<u32> {
        let asked =
            self.message.code().is_safe() && self.message.uint(OptionNumber::OBSERVE) == Some(observe::REGISTER);
        self.notification.filter(|_| asked)
    }
}

/// Decides who may do what.
pub trait Policy {
    /// True if the sender may make this request.
    fn allows(&self, request: &Request<'_>) -> bool;
}

/// Everybody whose datagrams are protected may do everything; nobody else anything.
pub struct AnyAuthenticated;

impl Policy for AnyAuthenticated {
    fn allows(&self, request: &Request<'_>) -> bool {
        request.identity.protection != Protection::Plain
    }
}

/// Everybody may do everything: for resources that need no protection.
pub struct Anybody;

impl Policy for Anybody {
    fn allows(&self, _: &Request<'_>) -> bool {
        true
    }
}

/// A request whose sender may make it: only a policy makes one, and only with one does anybody reach a handler.
pub struct Authorized<'r> {
    request: Request<'r>,
}

impl<'r> Authorized<'r> {
    /// Asks the policy.
    ///
    /// # Errors
    /// 4.01 if the sender has proved nothing, 4.03 if it has and may not.
    pub fn new(policy: &impl Policy, request: Request<'r>) -> Result<Self, Code> {
        if policy.allows(&request) {
            return Ok(Self { request });
        }
        let nobody = request.identity.principal == Principal::NOBODY;
        Err(if nobody { Code::UNAUTHORIZED } else { Code::FORBIDDEN })
    }

    /// The message.
    pub const fn message(&self) -> &MessageRef<'r> {
        &self.request.message
    }

    /// The sender.
    pub const fn identity(&self) -> &Identity {
        &self.request.identity
    }
}

/// The options that a handler understands unless it says otherwise.
pub const USUAL_OPTIONS: &[OptionNumber] = &[
    OptionNumber::URI_HOST,
    OptionNumber::URI_PORT,
    OptionNumber::URI_PATH,
    OptionNumber::URI_QUERY,
    OptionNumber::ACCEPT,
];

/// The application.
pub trait Handler {
    /// Reads the request, then writes the response; success is 2.05 unless [`Response::set_code`] says otherwise.
    ///
    /// # Errors
    /// The code of an error response without payload.
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code>;

    /// The critical options that this handler acts upon; any other is refused with 4.02 before it is called.
    fn critical_options(&self) -> &[OptionNumber] {
        USUAL_OPTIONS
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// The response is in the frame. Code 0.00 says that it is a Reset; and of a response that the client does not want
    /// (RFC 7967) only the acknowledgement is there, if one is due.
    Responded {
        /// Of the response.
        code: Code,
        /// The client is an observer now.
        observed: bool,
    },
    /// The frame holds an acknowledgement, or nothing if the request was not confirmable; the response to this token is
    /// still to come, by [`separate_response`].
    Deferred(Token),
    /// Not even an error response fits the frame.
    NoRoom,
}

/// Takes a request through the policy to the handler, and writes what is to be answered into `frame`.
///
/// A confirmable request is answered in its acknowledgement; any other in a message with `message_id`.
pub fn serve<P: Policy, H: Handler>(
    request: Request<'_>,
    policy: &P,
    handler: &mut H,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let message = request.message;
    let confirmable = message.message_type() == MessageType::Confirmable;
    // What is not confirmable is rejected as a message, not answered as a request (RFC 7252, section 5.4.1).
    if !confirmable && refusal(&message, handler.critical_options()) == Some(Code::BAD_OPTION) {
        return match frame.append(&empty(MessageType::Reset, message.message_id())) {
            Ok(()) => Served::Responded { code: Code::EMPTY, observed: false },
            Err(_) => Served::NoRoom,
        };
    }
    let (message_type, message_id) = heading(&message, message_id);
    let served = respond(request, policy, handler, message_type, message_id, frame);
    let silent = match served {
        Served::Deferred(_) => true,
        Served::Responded { code, .. } => is_unwanted(&message, code),
        Served::NoRoom => false,
    };
    if silent {
        frame.truncate(0);
        if confirmable && frame.append(&empty(MessageType::Acknowledgement, message_id)).is_err() {
            return Served::NoRoom;
        }
    }
    served
}

/// Writes the response to `request` into `frame`, as a message of this type: what [`serve`] does with a request that
/// was received, and a server for each notification with the request that registered (RFC 7641, section 4.2).
pub fn respond<P: Policy, H: Handler>(
    request: Request<'_>,
    policy: &P,
    handler: &mut H,
    message_type: MessageType,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let message = request.message;
    let token = message.token();
    let Ok(builder) = Builder::new(frame, message_type, Code::CONTENT, message_id, token) else {
        return Served::NoRoom;
    };
    let (window, refused) = match window(&message) {
        Ok(window) => (window, refusal(&message, handler.critical_options())),
        Err(code) => (Window::Whole, Some(code)),
    };
    let mut response = Response::new(builder, &request, window);
    let handled = match refused {
        Some(code) => Err(code),
        None => Authorized::new(policy, request).and_then(|request| handler.handle(&request, &mut response)),
    };
    let deferred = response.deferred;
    let outcome = match handled {
        Ok(()) if deferred => return Served::Deferred(Token::new(token)),
        Ok(()) if response.builder.code().is_success() => response.finish(&message),
        other => other,
    };
    if let Err(code) = outcome {
        response.builder.restart(response.token_len);
        response.set_code(code);
    }
    let code = response.builder.code();
    Served::Responded { code, observed: response.observed && code.is_success() }
}

/// Type and Message ID of the response to a request: in its acknowledgement if it is confirmable, in a message of its
/// own with `message_id` if not (RFC 7252, sections 5.2.1 and 5.2.3).
pub const fn heading(request: &MessageRef<'_>, message_id: u16) -> (MessageType, u16) {
    match request.message_type() {
        MessageType::Confirmable => (MessageType::Acknowledgement, request.message_id()),
        _ => (MessageType::NonConfirmable, message_id),
    }
}

/// What of the representation the request wants.
fn window(message: &MessageRef<'_>) -> Result<Window, Code> {
    let asked = message.block(OptionNumber::BLOCK2)?;
    let in_parts = message.block(OptionNumber::BLOCK1)?.is_some();
    match asked {
        // Only what can be asked again is cut here: the response to a body in blocks, or to what changes something, is
        // kept by who put the body together.
        _ if !message.code().is_safe() || in_parts => Ok(Window::Whole),
        Some(block) => Ok(Window::Asked(block)),
        None => Ok(Window::UpTo(block::MAX_SIZE)),
    }
}

/// True if the client does not want a response of this class (RFC 7967, section 2.1).
fn is_unwanted(message: &MessageRef<'_>, code: Code) -> bool {
    let unwanted = message.uint(OptionNumber::NO_RESPONSE).unwrap_or(0);
    let class = u32::from(code.class()).saturating_sub(1);
    code.is_response() && unwanted.checked_shr(class).unwrap_or(0) & 1 == 1
}

/// The error of a request with a critical option that nobody here acts upon.
fn refusal(message: &MessageRef<'_>, known: &[OptionNumber]) -> Option<Code> {
    let assembled = message.is_assembled();
    let unknown = |number: &OptionNumber| match *number {
        OptionNumber::BLOCK2 => false,
        // A body in several blocks must have been put together before it comes here.
        OptionNumber::BLOCK1 => {
            let several = |block: Block| block.more || block.number > 0;
            let single = !message.block(OptionNumber::BLOCK1).ok().flatten().is_some_and(several);
            !assembled && !single && !known.contains(number)
        }
        other => other.is_critical() && !known.contains(number),
    };
    Some(match message.options().map(|(number, _)| number).find(unknown)? {
        OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => Code::PROXYING_NOT_SUPPORTED,
        _ => Code::BAD_OPTION,
    })
}

/// Begins a separate response, in a confirmable message.
///
/// # Errors
/// [`BuildError::Full`].
pub fn separate_response<'f, 't>(
    frame: &'f mut Frame<'t>,
    code: Code,
    message_id: u16,
    token: &Token,
) -> Result<Builder<'f, 't>, BuildError> {
    Builder::new(frame, MessageType::Confirmable, code, message_id, token.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const ALICE: Identity = Identity { principal: Principal(1), protection: Protection::Dtls };
    const NOBODY: Identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };

    /// Only this principal may.
    struct Only(Principal);

    impl Policy for Only {
        fn allows(&self, request: &Request<'_>) -> bool {
            request.identity.principal == self.0
        }
    }

    /// Does as the payload of the request says.
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

    /// An error response without payload, with the token of the request; the handler was (not) called.
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
        assert_eq!(answer.served, Served::Deferred(Token::new(TOKEN)));
        assert_eq!(answer.bytes, [0x60, 0, 0x12, 0x34]);
        let mut storage = [0; 40];
        let mut frame = Frame::new(&mut storage, 0);
        let Served::Deferred(token) = answer.served else { unreachable!() };
        separate_response(&mut frame, Code::CONTENT, 5, &token).unwrap().payload(b"late").unwrap();
        let message = MessageRef::parse(frame.bytes()).unwrap();
        assert_eq!((message.message_type(), message.message_id()), (MessageType::Confirmable, 5));
        assert_eq!((message.code(), message.token(), message.payload()), (Code::CONTENT, TOKEN, &b"late"[..]));
    }

    #[test]
    fn a_deferred_non_confirmable_request_is_not_answered_yet() {
        let answer = answer(ALICE, &Anybody, &request(MessageType::NonConfirmable, &[], b"defer"));
        assert_eq!((answer.served, answer.bytes.len()), (Served::Deferred(Token::new(TOKEN)), 0));
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
}
