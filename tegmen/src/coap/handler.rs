//! Authorizes a request and passes it to its handler.

use super::block::{self, Block};
use super::code::Code;
use super::message::{BuildError, Builder, MessageRef, MessageType, Token, empty_message};
use super::no_response::NoResponse;
use super::option::{self, OptionNumber};
pub use super::request::Request;
pub use super::response::Response;
use super::response::Window;
use crate::buf::Frame;
use crate::identity::{Identity, Principal, Protection};

/// Decides who may do what.
pub trait Policy {
    /// True if the sender may make this request.
    fn allows(&self, request: &Request<'_>) -> bool;
}

/// Allows everything to a sender of protected datagrams, and nothing to any other sender.
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
    pub(crate) fn new(policy: &impl Policy, request: Request<'r>) -> Result<Self, Code> {
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
    /// True if requests and responses may be longer than a message (RFC 7959). Otherwise the handler supports no Block-wise
    /// transfer, and an image links nothing of it: a request with Block1, or for a block that is not the first, is refused
    /// with 4.02.
    const IN_BLOCKS: bool = true;

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

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// The response is in the frame. Code 0.00 says that it is a Reset; and of a response that the client does not want
    /// (RFC 7967) only the acknowledgement is there, if one is due.
    Responded {
        /// The code of the response.
        code: Code,
        /// The client is an observer now.
        observed: bool,
    },
    /// The frame holds an acknowledgement, or nothing if the request was not confirmable. The response comes later, by
    /// [`separate_response`].
    Deferred {
        /// The token of the response.
        token: Token,
        /// The client is an observer once a response with a success code is sent.
        observed: bool,
    },
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
    if !confirmable && refusal(&message, handler) == Some(Code::BAD_OPTION) {
        return match frame.append(&empty_message(MessageType::Reset, message.message_id())) {
            Ok(()) => Served::Responded { code: Code::EMPTY, observed: false },
            Err(_) => Served::NoRoom,
        };
    }
    let (message_type, message_id) = heading(&message, message_id);
    let served = respond(request, policy, handler, message_type, message_id, frame);
    let silent = match served {
        Served::Deferred { .. } => true,
        Served::Responded { code, .. } => NoResponse::of(&message).suppresses(code),
        Served::NoRoom => false,
    };
    if silent {
        frame.truncate(0);
        if confirmable && frame.append(&empty_message(MessageType::Acknowledgement, message_id)).is_err() {
            return Served::NoRoom;
        }
    }
    served
}

/// Writes the response to `request` into `frame`, as a message of this type: what [`serve`] does with a request that
/// was received, and a server for each notification with the request that registered (RFC 7641, section 4.2).
pub(crate) fn respond<P: Policy, H: Handler>(
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
    let (window, refused) = match window::<H>(&message) {
        Ok(window) => (window, refusal(&message, handler)),
        Err(code) => (Window::Whole, Some(code)),
    };
    let mut response = Response::new(builder, &request, window, H::IN_BLOCKS);
    let handled = match refused {
        Some(code) => Err(code),
        None => match Authorized::new(policy, request) {
            Ok(request) => handler.handle(&request, &mut response),
            Err(code) => Err(code),
        },
    };
    let (deferred, observed) = (response.deferred, response.observed);
    let outcome = match handled {
        Ok(()) if deferred => return Served::Deferred { token: Token::new(token), observed },
        Ok(()) if response.builder.code().is_success() => response.finish(&message, H::IN_BLOCKS),
        other => other,
    };
    if let Err(code) = outcome {
        response.builder.restart(response.token_len);
        response.set_code(code);
    }
    let code = response.builder.code();
    Served::Responded { code, observed: response.observed && code.is_success() }
}

/// Returns type and Message ID of the response to a request. The response to a confirmable request is in its
/// acknowledgement; the response to another request is a separate message with `message_id` (RFC 7252, sections 5.2.1
/// and 5.2.3).
pub(crate) const fn heading(request: &MessageRef<'_>, message_id: u16) -> (MessageType, u16) {
    match request.message_type() {
        MessageType::Confirmable => (MessageType::Acknowledgement, request.message_id()),
        _ => (MessageType::NonConfirmable, message_id),
    }
}

/// What of the representation the request wants.
fn window<H: Handler>(message: &MessageRef<'_>) -> Result<Window, Code> {
    if !H::IN_BLOCKS {
        return Ok(Window::Whole);
    }
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

/// The error of a request with a critical option that nobody here acts upon.
pub(crate) fn refusal<H: Handler>(message: &MessageRef<'_>, handler: &H) -> Option<Code> {
    let (assembled, known) = (message.is_assembled(), handler.critical_options());
    let unknown = |(number, value): &(OptionNumber, &[u8])| match *number {
        // A response that fits a message is the first block of any size.
        OptionNumber::BLOCK2 => !H::IN_BLOCKS && option::uint(value).is_none_or(|block| block > MAX_FIRST),
        // A body in several blocks must have been put together before it comes here.
        OptionNumber::BLOCK1 if H::IN_BLOCKS => {
            let several = |block: Block| block.more || block.number > 0;
            let single = !message.block(OptionNumber::BLOCK1).ok().flatten().is_some_and(several);
            !assembled && !single && !known.contains(number)
        }
        other => other.is_critical() && !known.contains(number),
    };
    Some(match message.options().find(unknown)?.0 {
        OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => Code::PROXYING_NOT_SUPPORTED,
        _ => Code::BAD_OPTION,
    })
}

/// The largest value of a Block2 option that asks for the first block.
const MAX_FIRST: u32 = 7;

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
mod tests;
