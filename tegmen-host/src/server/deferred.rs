//! Requests whose response is deferred, and these responses.

use super::oscore_exchange::OscoreExchange;
use super::source::Source;
use tegmen::coap::{Block, Code, MessageRef, OptionNumber, Token};
use tegmen::identity::PeerId;

/// A deferred response.
pub(super) struct DeferredResponse {
    pub(super) request: DeferredRequest,
    pub(super) code: Code,
    pub(super) content_format: Option<u16>,
    pub(super) payload: Vec<u8>,
    pub(super) cause: Option<String>,
}

/// Of a request, what its deferred response needs.
pub(super) struct DeferredRequest {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) operation: u64,
    pub(super) to_group: bool,
    /// The OSCORE exchange that protects the response, if OSCORE protected the request.
    pub(super) oscore: Option<OscoreExchange>,
    pub(super) method: Code,
    /// The path, without a slash in front.
    pub(super) path: String,
    /// The Block2 option.
    pub(super) asked: Option<Block>,
    /// Bytes of the request's body.
    pub(super) received: usize,
}

impl DeferredRequest {
    pub(super) fn new(from: &Source, message: &MessageRef<'_>, path: &str) -> Self {
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        Self {
            peer: from.peer,
            token: Token::new(message.token()),
            operation: from.operation(message),
            to_group: from.to_group,
            oscore: from.oscore.clone(),
            method: message.code(),
            path: path.to_owned(),
            asked,
            received: message.payload().len(),
        }
    }
}
