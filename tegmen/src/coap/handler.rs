//! From a request to its response: identity, policy, handler.

use super::code::Code;
use super::message::{BuildError, Builder, MessageRef, MessageType, Token, empty};
use super::option::OptionNumber;
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

/// The response under construction: options by rising number, then the payload.
pub struct Response<'f, 't> {
    builder: Builder<'f, 't>,
    token_len: usize,
    deferred: bool,
}

impl Response<'_, '_> {
    /// The code, 2.05 until it is set.
    pub fn set_code(&mut self, code: Code) {
        self.builder.set_code(code);
    }

    /// Adds an option.
    ///
    /// # Errors
    /// 5.00 if it does not fit or comes too late.
    pub fn option(&mut self, number: OptionNumber, value: &[u8]) -> Result<(), Code> {
        self.builder.option(number, value).map_err(failed)
    }

    /// Adds an option of format `uint`.
    ///
    /// # Errors
    /// 5.00 if it does not fit or comes too late.
    pub fn uint(&mut self, number: OptionNumber, value: u32) -> Result<(), Code> {
        self.builder.uint(number, value).map_err(failed)
    }

    /// Adds to the payload.
    ///
    /// # Errors
    /// 5.00 if it does not fit.
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), Code> {
        self.builder.payload(bytes).map_err(failed)
    }

    /// Bytes of payload that fit.
    pub fn room(&self) -> usize {
        self.builder.room().saturating_sub(1)
    }

    /// The response comes later, in a message of its own (RFC 7252, section 5.2.2); only an acknowledgement goes now.
    pub fn defer(&mut self) {
        self.deferred = true;
    }
}

fn failed(_: BuildError) -> Code {
    Code::INTERNAL_SERVER_ERROR
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// The response is in the frame.
    Responded(Code),
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
    let (message_type, message_id) = match confirmable {
        true => (MessageType::Acknowledgement, message.message_id()),
        false => (MessageType::NonConfirmable, message_id),
    };
    let token = message.token();
    let Ok(builder) = Builder::new(frame, message_type, Code::CONTENT, message_id, token) else {
        return Served::NoRoom;
    };
    let mut response = Response { builder, token_len: token.len(), deferred: false };
    let outcome = dispatch(request, policy, handler, &mut response);
    let deferred = response.deferred && outcome.is_ok();
    if let Err(code) = outcome {
        response.builder.restart(response.token_len);
        response.set_code(code);
    }
    if deferred {
        frame.truncate(0);
        if confirmable && frame.append(&empty(MessageType::Acknowledgement, message_id)).is_err() {
            return Served::NoRoom;
        }
        return Served::Deferred(Token::new(token));
    }
    Served::Responded(frame.bytes().get(1).map_or(Code::EMPTY, |code| Code(*code)))
}

fn dispatch<P: Policy, H: Handler>(
    request: Request<'_>,
    policy: &P,
    handler: &mut H,
    response: &mut Response<'_, '_>,
) -> Result<(), Code> {
    let message = request.message;
    match message.unknown_critical(handler.critical_options()) {
        None => {}
        Some(OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME) => return Err(Code::PROXYING_NOT_SUPPORTED),
        Some(_) => return Err(Code::BAD_OPTION),
    }
    handler.handle(&Authorized::new(policy, request)?, response)
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
