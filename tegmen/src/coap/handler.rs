//! Decides whether a request is allowed, and passes an allowed request to its handler.

use super::Code;
use super::NoResponse;
use super::block::{self, Block};
use super::option::{self, OptionNumber};
pub use super::request::Request;
pub use super::response::Response;
use super::response::Window;
use super::{Builder, MessageRef, MessageType, Token, empty_message};
use crate::buf::Frame;
use crate::identity::{Identity, Principal, Protection};

/// A policy decides whether the sender of a request is allowed to make this request.
pub trait Policy {
    /// True if [`Self::decide`] may return `None`. If this constant is false, `None` denies the request, and the image
    /// of a mote contains no code for later decisions.
    const LATER: bool = false;

    /// Returns true if the sender is allowed to make the request. Returns `None` if the decision comes later, because
    /// another server must be asked first. A [`Node`](crate::node::Node) then gives the request to its application,
    /// which calls [`Node::decide`](crate::node::Node::decide) when it knows the decision. A node calls this function
    /// once for each request. The node also calls this function for each notification, with the request that registered
    /// the observation.
    fn decide(&self, request: &Request<'_>) -> Option<bool>;
}

/// Allows all requests of a sender of protected datagrams, and no request of any other sender.
pub struct AnyAuthenticated;

impl Policy for AnyAuthenticated {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        Some(request.identity.protection != Protection::Plain)
    }
}

/// Allows all requests of every sender, for resources that need no protection.
pub struct Anybody;

impl Policy for Anybody {
    fn decide(&self, _: &Request<'_>) -> Option<bool> {
        Some(true)
    }
}

/// A final decision of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decided {
    pub(crate) allows: bool,
}

impl Decided {
    /// Asks the policy. [`serve`] calls this function, because it cannot wait for a decision: if the policy decides
    /// later, the request is denied.
    #[inline]
    fn now(policy: &impl Policy, request: &Request<'_>) -> Self {
        Self { allows: policy.decide(request) == Some(true) }
    }

    /// Asks the policy. Returns `None` if the decision comes later. But if the handler will refuse the request because
    /// of a critical option, this function does not wait for a later decision: it denies the request at once.
    #[inline]
    pub(crate) fn ask<P: Policy, H: Handler>(policy: &P, handler: &H, request: &Request<'_>) -> Option<Self> {
        let decision = policy.decide(request);
        // The body is left out, because it might not be reassembled yet.
        if P::LATER && decision.is_none() && refusal(&request.with_body(&[]).message, handler).is_none() {
            return None;
        }
        Some(Self { allows: decision == Some(true) })
    }
}

/// A request that the policy allows. A value of this type can only be created with the decision of a policy. A handler
/// accepts only this type.
pub struct Authorized<'r> {
    request: &'r Request<'r>,
}

impl<'r> Authorized<'r> {
    /// Applies the decision of the policy to a request.
    ///
    /// # Errors
    /// If the policy denies the request: 4.01 for a sender that proved no identity, 4.03 for every other sender.
    pub(crate) fn new(decided: Decided, request: &'r Request<'r>) -> Result<Self, Code> {
        if decided.allows {
            return Ok(Self { request });
        }
        let nobody = request.identity.principal == Principal::NOBODY;
        Err(if nobody { Code::UNAUTHORIZED } else { Code::FORBIDDEN })
    }

    /// Returns the message of the request.
    pub const fn message(&self) -> &MessageRef<'r> {
        &self.request.message
    }

    /// Returns the identity of the sender.
    pub const fn identity(&self) -> &Identity {
        &self.request.identity
    }
}

/// The critical options that a handler acts upon by default: see [`Handler::critical_options`].
pub const USUAL_OPTIONS: &[OptionNumber] = &[
    OptionNumber::URI_HOST,
    OptionNumber::URI_PORT,
    OptionNumber::URI_PATH,
    OptionNumber::URI_QUERY,
    OptionNumber::ACCEPT,
];

/// The application's handler of requests.
pub trait Handler {
    /// True if requests and responses may be longer than a message (RFC 7959). If false, the handler supports no
    /// block-wise transfer, and the image of a mote contains no code for it. A request with Block1, or for a block
    /// after the first block, is then refused with 4.02. But a handler that forwards blocks ([`Self::acts_on`],
    /// [`Self::acts_on_blocks`]) receives each block unchanged.
    const IN_BLOCKS: bool = true;

    /// Reads the request and writes the response. The response has the code 2.05 (Content), unless
    /// [`Response::set_code`] sets another success code.
    ///
    /// # Errors
    /// The code of an error response. That response has no payload.
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code>;

    /// Returns the critical options that this handler understands and acts upon. A request with any other critical
    /// option is refused with 4.02 before the handler is called.
    fn critical_options(&self) -> &[OptionNumber] {
        USUAL_OPTIONS
    }

    /// True if the handler acts upon the critical option `number` of this request. The default returns true for the
    /// options of [`Self::critical_options`]. A proxy returns true also for options that it does not know, because it
    /// forwards them (RFC 7252, section 5.7.1).
    #[inline]
    fn acts_on(&self, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        let _ = request;
        self.critical_options().contains(&number)
    }

    /// True if the handler acts upon each single block of this request, in any order. The Block1 option of each
    /// response then does not set the bit M (RFC 7959, section 2.3). If false, the handler is called once, when the
    /// body is complete.
    fn acts_on_blocks(&self, request: &MessageRef<'_>) -> bool {
        let _ = request;
        false
    }
}

/// The result of serving a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// The response is in the frame. The code 0.00 means a Reset. If the client suppresses the response (RFC 7967), the
    /// frame holds only the acknowledgement, or it is empty if the request needs no acknowledgement.
    Responded {
        /// The code of the response.
        code: Code,
        /// True if the client is an observer now.
        observed: bool,
    },
    /// The handler defers the response, which follows later in a confirmable message. The frame holds an
    /// acknowledgement, or it is empty if the request was not confirmable.
    Deferred {
        /// The token of the response.
        token: Token,
        /// True if the client becomes an observer when a response with a success code is sent.
        observed: bool,
    },
    /// Not even an error response fits the frame.
    NoRoom,
}

/// Asks the policy about a request, passes an allowed request to the handler, and writes the response into `frame`.
/// This function cannot wait for a decision: if the policy decides later, the request is denied.
///
/// The response to a confirmable request is in the acknowledgement of the request. The response to any other request is
/// a message with the Message ID `message_id`.
pub fn serve<P: Policy, H: Handler>(
    request: Request<'_>,
    policy: &P,
    handler: &mut H,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let head = heading(&request.message, message_id);
    serve_as(&request, Decided::now(policy, &request), handler, head, frame)
}

/// Does the same as [`serve`], but the policy has already decided on the request. The response is a message of the
/// given type: an acknowledgement, a non-confirmable message, or a separate confirmable response if the request was
/// already acknowledged.
pub(crate) fn serve_as<H: Handler>(
    request: &Request<'_>,
    decided: Decided,
    handler: &mut H,
    (message_type, message_id): (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Served {
    let message = &request.message;
    // A non-confirmable request with a critical option that is not known is rejected with a Reset, not answered (RFC
    // 7252, section 5.4.1).
    let rejects = message_type == MessageType::NonConfirmable;
    if rejects && refusal(message, handler) == Some(Code::BAD_OPTION) {
        return match frame.append(&empty_message(MessageType::Reset, message.message_id())) {
            Ok(()) => Served::Responded { code: Code::EMPTY, observed: false },
            Err(_) => Served::NoRoom,
        };
    }
    let served = respond(request, decided, handler, message_type, message_id, frame);
    let silent = match served {
        Served::Deferred { .. } => true,
        Served::Responded { code, .. } => NoResponse::of(message).suppresses(code),
        Served::NoRoom => false,
    };
    if silent {
        frame.truncate(0);
        let acknowledges = message_type == MessageType::Acknowledgement;
        if acknowledges && frame.append(&empty_message(MessageType::Acknowledgement, message_id)).is_err() {
            return Served::NoRoom;
        }
    }
    served
}

/// Calls the handler for `request`, and writes the response into `frame` as a message of the type `message_type`.
/// [`serve`] calls this function for a received request. A server calls it for each notification, with the request that
/// registered the observation (RFC 7641, section 4.2).
pub(crate) fn respond<H: Handler>(
    request: &Request<'_>,
    decided: Decided,
    handler: &mut H,
    message_type: MessageType,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let message = &request.message;
    let token = message.token();
    let Ok(builder) = Builder::new(frame, message_type, Code::CONTENT, message_id, token) else {
        return Served::NoRoom;
    };
    let (window, refused) = match window::<H>(message) {
        Ok(window) => (window, refusal(message, handler)),
        Err(code) => (Window::Whole, Some(code)),
    };
    let mut response = Response::new(builder, request, window, H::IN_BLOCKS);
    let handled = match refused {
        Some(code) => Err(code),
        None => match Authorized::new(decided, request) {
            Ok(request) => handler.handle(&request, &mut response),
            Err(code) => Err(code),
        },
    };
    let (deferred, observed) = (response.deferred, response.observed);
    let outcome = match handled {
        Ok(()) if deferred => return Served::Deferred { token: Token::new(token), observed },
        Ok(()) if response.builder.code().is_success() => response.finish(message, H::IN_BLOCKS),
        other => other,
    };
    if let Err(code) = outcome {
        response.builder.restart(response.token_len);
        response.set_code(code);
    }
    let code = response.builder.code();
    Served::Responded { code, observed: response.observed && code.is_success() }
}

/// Returns the type and the Message ID of the response to a request. The response to a confirmable request is in the
/// acknowledgement. The response to any other request is a separate message with `message_id` (RFC 7252, sections
/// 5.2.1 and 5.2.3).
pub(crate) const fn heading(request: &MessageRef<'_>, message_id: u16) -> (MessageType, u16) {
    match request.message_type() {
        MessageType::Confirmable => (MessageType::Acknowledgement, request.message_id()),
        _ => (MessageType::NonConfirmable, message_id),
    }
}

/// Returns the part of the representation that the request asks for, according to its Block2 option.
fn window<H: Handler>(message: &MessageRef<'_>) -> Result<Window, Code> {
    if !H::IN_BLOCKS {
        return Ok(Window::Whole);
    }
    let asked = message.block(OptionNumber::BLOCK2)?;
    let in_parts = message.block(OptionNumber::BLOCK1)?.is_some();
    match asked {
        // Only the response to a safe request is cut here, because the client can repeat that request. The response to
        // any other request, and to a body in blocks, is kept by the code that reassembles the body.
        _ if !message.code().is_safe() || in_parts => Ok(Window::Whole),
        Some(block) => Ok(Window::Asked(block)),
        None => Ok(Window::UpTo(block::MAX_SIZE)),
    }
}

/// Returns the error for a request with a critical option that the handler does not act upon. Returns `None` if the
/// handler acts upon all critical options.
pub(crate) fn refusal<H: Handler>(message: &MessageRef<'_>, handler: &H) -> Option<Code> {
    let assembled = message.is_assembled();
    let unknown = |(number, value): &(OptionNumber, &[u8])| match *number {
        // A response that fits a message is the first block of any size.
        OptionNumber::BLOCK2 => {
            let is_other = || option::uint(value).is_none_or(|block| block > MAX_FIRST);
            !H::IN_BLOCKS && !handler.acts_on_blocks(message) && is_other()
        }
        // A body in several blocks must be reassembled before this function is called.
        OptionNumber::BLOCK1 if H::IN_BLOCKS => {
            let several = |block: Block| block.more || block.number > 0;
            let single = !message.block(OptionNumber::BLOCK1).ok().flatten().is_some_and(several);
            !assembled && !single && !handler.acts_on(message, *number) && !handler.acts_on_blocks(message)
        }
        other => other.is_critical() && !handler.acts_on(message, other),
    };
    Some(match message.options().find(unknown)?.0 {
        OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => Code::PROXYING_NOT_SUPPORTED,
        _ => Code::BAD_OPTION,
    })
}

/// The largest value of a Block2 option that requests the first block: the block number is 0, and the lowest three bits
/// contain any size exponent.
const MAX_FIRST: u32 = 7;

#[cfg(test)]
mod tests;
