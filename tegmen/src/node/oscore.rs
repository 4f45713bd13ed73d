//! OSCORE at a node (RFC 8613): the operations that its owner supplies, and those of a mote with one context.

use super::error::SendError;
use crate::buf::Frame;
use crate::coap::{Block, MessageRef, MessageType, RequestId, Token};
use crate::crypto::Crypto;
use crate::identity::{Identity, PeerId, Principal};
use crate::oscore::{
    Context, OVERHEAD, OpenedRequest, Pending, ProtectError, RequestBinding, RequestNonce, UnprotectError, Unprotected,
};
use crate::time::Instant;
use core::convert::Infallible;

/// The security contexts of a node, as the operations on one message each. All of them work in place.
///
/// The node calls them between its exchanges and the protection of the datagram: a repeated request is answered again
/// before it is opened, and a response is protected before it is kept for that. `()` is a node without OSCORE: it has
/// neither size nor code, and the node then refuses requests with an OSCORE option.
///
/// The default operations refuse. A node that only asks, or only serves with OSCORE, supplies those of its side.
pub trait Oscore {
    /// True unless this is `()`.
    const IS_ON: bool = true;
    /// Maximum number of bytes that protection adds to a message: see [`OVERHEAD`].
    const OVERHEAD: usize;
    /// An opened request: its context, and the data that protects its response.
    type Exchange: OpenedRequest;
    /// True if protected messages that a proxy cut into blocks are reassembled: requests by [`Self::gather`], and
    /// responses by the application, which receives [`Reply::Cut`](super::Reply::Cut).
    const GATHERS: bool = false;
    /// True if requests to groups, and their responses, are protected (RFC 10021).
    const GROUPS: bool = false;
    /// The memory of a protected request that was reassembled from blocks.
    type Whole: AsMut<[u8]>;

    /// Protects the request in `frame` to `peer`, and keeps the data that opens its response.
    ///
    /// # Errors
    /// [`SendError::Oscore`], or [`SendError::Busy`] if there is no space to keep it.
    fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let _ = (crypto, peer, request, frame);
        Err(SendError::Oscore(ProtectError::Unsupported))
    }

    /// Takes a request from `peer` before it is opened. If it is a block of a protected request that a proxy cut (RFC
    /// 8613, section 4.1.3.4.2), adds it to the others. Blocks are not authentic: `is_unverified` is true if this one
    /// may be a replay, and `sender` is the identity of the peer. Writes the response to a block that is not the last
    /// into `frame`, with type and Message ID of `head`.
    fn gather(
        &mut self,
        now: Instant,
        peer: PeerId,
        (sender, is_unverified): (Identity, bool),
        datagram: &[u8],
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Outer<Self::Whole> {
        let _ = (now, peer, sender, is_unverified, datagram, head, frame);
        Outer::Uncut
    }

    /// Notes in the response in `frame` that it is for the last block of a request that was cut (RFC 7959, section 2.3).
    fn acknowledge(&self, last: Block, frame: &mut Frame<'_>) {
        let _ = (last, frame);
    }

    /// True if a protected request is to be opened here. A proxy forwards one that names another target as it is (RFC 8613,
    /// section 10).
    #[inline]
    fn is_for_us(&self, request: &MessageRef<'_>) -> bool {
        let _ = request;
        true
    }

    /// Opens a request that came from `peer`.
    ///
    /// # Errors
    /// [`UnprotectError`]; the node answers with its code. The default is 4.02, as without OSCORE.
    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, Self::Exchange>, UnprotectError> {
        let _ = (crypto, peer, datagram);
        Err(UnprotectError::BadOption)
    }

    /// Protects the response in `frame`, under the nonce of the request if that is given.
    ///
    /// # Errors
    /// [`ProtectError`].
    fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &Self::Exchange,
        nonce: Option<<Self::Exchange as OpenedRequest>::Nonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let _ = (crypto, exchange, nonce, frame);
        Err(ProtectError::Unsupported)
    }

    /// Writes the response to a request that is perhaps a replay: a challenge that the client is to repeat (RFC 8613,
    /// appendix B.1.2).
    ///
    /// # Errors
    /// [`ProtectError`].
    fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &Self::Exchange,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let _ = (crypto, exchange, head, token, frame);
        Err(ProtectError::Unsupported)
    }

    /// Returns true if the request was protected, so that its response must be.
    #[inline]
    fn is_protected(&self, peer: PeerId, request: RequestId) -> bool {
        let _ = (peer, request);
        false
    }

    /// True if a response with OSCORE to a request to `peer` that was not protected here goes to the application as it is: its client
    /// may have protected the request, and this end forwards both (RFC 8613, section 10).
    #[inline]
    fn is_forwarded(&self, peer: PeerId) -> bool {
        let _ = peer;
        false
    }

    /// Opens the response to a request that was protected.
    ///
    /// # Errors
    /// [`UnprotectError`]; the response must not be used.
    fn unprotect_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        let _ = (crypto, peer, request, datagram);
        Err(UnprotectError::UnknownContext)
    }

    /// True if a request that was sent to a group names a group that this node is a member of. The node drops any other. Only with
    /// [`Self::GROUPS`].
    #[inline]
    fn is_of_group(&self, request: &MessageRef<'_>) -> bool {
        let _ = request;
        false
    }

    /// Protects the request in `frame` to a group, and keeps the data that opens its responses. Only with
    /// [`Self::GROUPS`].
    ///
    /// # Errors
    /// [`SendError::Oscore`], or [`SendError::Busy`] if there is no space to keep it.
    fn protect_group_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let _ = (crypto, request, frame);
        Err(SendError::Oscore(ProtectError::Unsupported))
    }

    /// True if a request to a group was protected, so that each of its responses must be.
    #[inline]
    fn is_group_protected(&self, request: RequestId) -> bool {
        let _ = request;
        false
    }

    /// Opens the response of a member to a request that was protected for a group. Returns it with the member.
    ///
    /// # Errors
    /// [`UnprotectError`]; the response must not be used, and that of the member may still come.
    fn unprotect_member<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, Principal), UnprotectError> {
        let _ = (crypto, request, datagram);
        Err(UnprotectError::UnknownContext)
    }

    /// Forgets all requests for which `is_open` returns false: they have had their last response, or have none. The default
    /// is for an owner that forgets each request itself.
    #[inline]
    fn retain(&mut self, is_open: impl FnMut(PeerId, RequestId) -> bool) {
        let _ = is_open;
    }
}

/// A request that was opened.
#[derive(Debug)]
pub enum Opened<'r, X: OpenedRequest> {
    /// It is authentic and new.
    Fresh {
        /// The message inside.
        message: MessageRef<'r>,
        /// The owner of the context.
        principal: Principal,
        /// The request in its context, which its response is bound to.
        exchange: X,
        /// The right to answer under its nonce.
        nonce: X::Nonce,
    },
    /// It is authentic, but perhaps a replay, because the replay window was lost. It is not executed.
    Unverified {
        /// The message inside; `None` for the first message of a derivation of new keys (RFC 8613, appendix B.2).
        message: Option<MessageRef<'r>>,
        /// The owner of the context.
        principal: Principal,
        /// The request in its context.
        exchange: X,
    },
}

/// A protected request before it is opened: see [`Oscore::gather`].
#[derive(Debug)]
pub enum Outer<W> {
    /// It was not cut into blocks.
    Uncut,
    /// Its last block has arrived.
    Whole {
        /// The request.
        message: W,
        /// The last block.
        last: Block,
    },
    /// The response to its block is in the frame.
    Answered,
}

/// No OSCORE.
impl Oscore for () {
    const IS_ON: bool = false;
    const OVERHEAD: usize = 0;
    type Exchange = Infallible;
    type Whole = [u8; 0];
}

/// One security context, as a mote has it, with at most `REQUESTS` requests of ours that wait for responses. Any peer may
/// carry its messages: a proxy, or the other end at a new address.
///
/// The owner keeps its lease from running out: [`Context::lease_mut`].
#[derive(Debug)]
pub struct OneContext<const REQUESTS: usize> {
    /// The context.
    pub context: Context,
    principal: Principal,
    asked: [Option<Asked>; REQUESTS],
}

/// A request of ours that waits for its response.
#[derive(Debug)]
struct Asked {
    peer: PeerId,
    request: RequestId,
    pending: Pending,
}

impl<const REQUESTS: usize> OneContext<REQUESTS> {
    /// Returns a context whose other end is `principal`.
    pub const fn new(context: Context, principal: Principal) -> Self {
        Self { context, principal, asked: [const { None }; REQUESTS] }
    }
}

impl<const REQUESTS: usize> Oscore for OneContext<REQUESTS> {
    const OVERHEAD: usize = OVERHEAD;
    type Exchange = RequestBinding;
    type Whole = [u8; 0];

    fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let place = self.asked.iter_mut().find(|place| place.is_none()).ok_or(SendError::Busy)?;
        let pending = self.context.protect_request(crypto, frame)?;
        *place = Some(Asked { peer, request, pending });
        Ok(())
    }

    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        _: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, RequestBinding>, UnprotectError> {
        Ok(match self.context.unprotect_request(crypto, datagram)? {
            Unprotected::Fresh(message, nonce) => {
                Opened::Fresh { message, principal: self.principal, exchange: nonce.binding(), nonce }
            }
            Unprotected::Unverified(message, exchange) => {
                Opened::Unverified { message: Some(message), principal: self.principal, exchange }
            }
        })
    }

    fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &RequestBinding,
        nonce: Option<RequestNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        self.context.protect_response(crypto, exchange, nonce, frame)
    }

    fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &RequestBinding,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        self.context.write_challenge(crypto, exchange, head, token, frame)
    }

    fn is_protected(&self, peer: PeerId, request: RequestId) -> bool {
        self.asked.iter().flatten().any(|asked| (asked.peer, asked.request) == (peer, request))
    }

    fn unprotect_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        let asked = self.asked.iter_mut().flatten().find(|asked| (asked.peer, asked.request) == (peer, request));
        let asked = asked.ok_or(UnprotectError::UnknownContext)?;
        self.context.unprotect_response(crypto, &mut asked.pending, datagram)
    }

    fn retain(&mut self, mut is_open: impl FnMut(PeerId, RequestId) -> bool) {
        for place in &mut self.asked {
            if place.as_ref().is_some_and(|asked| !is_open(asked.peer, asked.request)) {
                *place = None;
            }
        }
    }
}
