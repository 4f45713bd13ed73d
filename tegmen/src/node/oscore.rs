//! OSCORE in a node (RFC 8613): the trait that the owner of the node implements, and an implementation of this trait
//! for a mote with one context.

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

/// The security contexts of a node. The trait has one operation for each kind of message. All operations change a
/// message in place.
///
/// The order of the layers in the node is: the message layer of CoAP, then OSCORE, then DTLS. So the node finds a
/// repeated request before it decrypts the request, and sends the stored response. A response is protected before it is
/// stored. `()` is the type for a node without OSCORE: it has no size and no code, and the node refuses requests with
/// an OSCORE option.
///
/// Each operation has a default that refuses the message. A node that uses OSCORE only as a client, or only as a
/// server, implements only the operations of this role.
pub trait Oscore {
    /// False only for `()`, the type for a node without OSCORE.
    const IS_ON: bool = true;
    /// Maximum number of bytes that protection adds to a message: see [`OVERHEAD`].
    const OVERHEAD: usize;
    /// The type that identifies a decrypted request: its security context, and the data that protects its response.
    type Exchange: OpenedRequest;
    /// True if this node reassembles protected messages that a proxy divided into blocks. [`Self::gather`] reassembles
    /// requests. The application reassembles responses: it receives [`Reply::Cut`](super::Reply::Cut).
    const GATHERS: bool = false;
    /// True if the node can protect requests to groups and their responses (RFC 10021).
    const GROUPS: bool = false;
    /// The type of the memory that contains a protected request after it was reassembled from blocks.
    type Whole: AsMut<[u8]>;

    /// Protects the request in `frame` to `peer`, and stores the data that is needed to decrypt its response.
    ///
    /// # Errors
    /// [`SendError::Oscore`], or [`SendError::Busy`] if there is no space to store the data.
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

    /// Examines a request from `peer` before it is decrypted. If a proxy divided the protected request into blocks (RFC
    /// 8613, section 4.1.3.4.2), this message is one of the blocks, and this function stores it with the earlier
    /// blocks. Blocks are not authenticated. `is_unverified` is true if this message may be a replay. `sender` is the
    /// identity of the peer. If more blocks must follow, this function writes the response to the block into `frame`,
    /// with the type and the Message ID of `head`.
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

    /// Adds the Block1 option to the response in `frame`, if the request arrived in blocks. `last` is the last block of
    /// the request (RFC 7959, section 2.3).
    fn acknowledge(&self, last: Block, frame: &mut Frame<'_>) {
        let _ = (last, frame);
    }

    /// True if this node must decrypt a protected request. A proxy returns false for a request that names another
    /// target. The proxy then forwards the request without decrypting it (RFC 8613, section 10).
    #[inline]
    fn is_for_us(&self, request: &MessageRef<'_>) -> bool {
        let _ = request;
        true
    }

    /// Decrypts a request from `peer`.
    ///
    /// # Errors
    /// [`UnprotectError`]. The node responds with the code of this error. The default implementation returns an error
    /// with the code 4.02, which is also the response of a node without OSCORE.
    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, Self::Exchange>, UnprotectError> {
        let _ = (crypto, peer, datagram);
        Err(UnprotectError::BadOption)
    }

    /// Protects the response in `frame` to the request `exchange`. Uses the nonce of the request if `nonce` is `Some`,
    /// otherwise a new sequence number.
    ///
    /// # Errors
    /// [`ProtectError`] has the reason.
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

    /// Writes a response with a challenge, because the request may be a replay. The client must repeat the Echo value
    /// of the challenge in a new request (RFC 8613, appendix B.1.2).
    ///
    /// # Errors
    /// [`ProtectError`] has the reason.
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

    /// True if this node protected the request. The response must then be protected too.
    #[inline]
    fn is_protected(&self, peer: PeerId, request: RequestId) -> bool {
        let _ = (peer, request);
        false
    }

    /// True if responses from `peer` with an OSCORE option are passed to the application without decryption, although
    /// this node did not protect the request. This is the case in a proxy: its client protects the request, and the
    /// proxy forwards the request and the response (RFC 8613, section 10).
    #[inline]
    fn is_forwarded(&self, peer: PeerId) -> bool {
        let _ = peer;
        false
    }

    /// Decrypts the response to a protected request.
    ///
    /// # Errors
    /// [`UnprotectError`]. After an error, do not use the response.
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

    /// Takes a request that was sent to a group, and that OSCORE protects. Returns true if this node is a member of the
    /// group that the request names. If the result is false, the node drops the request. The node calls this function
    /// only if [`Self::GROUPS`] is true.
    #[inline]
    fn is_of_group(&self, request: &MessageRef<'_>) -> bool {
        let _ = request;
        false
    }

    /// Protects the request in `frame` to a group, and stores the data that is needed to decrypt its responses. The
    /// node calls this function only if [`Self::GROUPS`] is true.
    ///
    /// # Errors
    /// [`SendError::Oscore`], or [`SendError::Busy`] if there is no space to store the data.
    fn protect_group_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let _ = (crypto, request, frame);
        Err(SendError::Oscore(ProtectError::Unsupported))
    }

    /// True if this node protected the request to a group. Each response must then be protected too.
    #[inline]
    fn is_group_protected(&self, request: RequestId) -> bool {
        let _ = request;
        false
    }

    /// Decrypts the response of a member to a protected request to a group. Returns the response, and the principal of
    /// the member.
    ///
    /// # Errors
    /// [`UnprotectError`]. After an error, do not use the response. The genuine response of the member may still
    /// arrive.
    fn unprotect_member<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, Principal), UnprotectError> {
        let _ = (crypto, request, datagram);
        Err(UnprotectError::UnknownContext)
    }

    /// Forgets all requests for which `is_open` returns false: their last response has arrived, or no response will
    /// arrive. The default does nothing. The default is sufficient for an implementation that forgets each request in
    /// another way.
    #[inline]
    fn retain(&mut self, is_open: impl FnMut(PeerId, RequestId) -> bool) {
        let _ = is_open;
    }
}

/// A request after its decryption.
#[derive(Debug)]
pub enum Opened<'r, X: OpenedRequest> {
    /// The request is authentic and new.
    Fresh {
        /// The decrypted message.
        message: MessageRef<'r>,
        /// The owner of the security context.
        principal: Principal,
        /// The identity of the request in its security context. The response must be bound to this identity.
        exchange: X,
        /// The right to answer once with the nonce of the request.
        nonce: X::Nonce,
    },
    /// The request is authentic, but may be a replay, because the replay window was lost. The node does not execute
    /// it.
    Unverified {
        /// The decrypted message; `None` for the first message of a derivation of new keys (RFC 8613, appendix B.2).
        message: Option<MessageRef<'r>>,
        /// The owner of the security context.
        principal: Principal,
        /// The identity of the request in its security context. The response must be bound to this identity.
        exchange: X,
    },
}

/// The result of [`Oscore::gather`], which examines a protected request before it is decrypted.
#[derive(Debug)]
pub enum Outer<W> {
    /// The request is a single message: no proxy divided it into blocks.
    Uncut,
    /// The last block of the request has arrived.
    Whole {
        /// The reassembled request.
        message: W,
        /// The last block of the request.
        last: Block,
    },
    /// The message was a block, and more blocks must follow. The frame contains the response to this block.
    Answered,
}

/// A node without OSCORE.
impl Oscore for () {
    const IS_ON: bool = false;
    const OVERHEAD: usize = 0;
    type Exchange = Infallible;
    type Whole = [u8; 0];
}

/// One security context of a mote. It stores at most `REQUESTS` requests of this node that wait for their responses.
/// Messages of the context may arrive from any peer: from a proxy, or from the other endpoint at a new address.
///
/// The context may use only sequence numbers that are reserved for it. The owner of the node must reserve more sequence
/// numbers before all of them are used: see [`Context::lease_mut`].
#[derive(Debug)]
pub struct OneContext<const REQUESTS: usize> {
    /// The security context.
    pub context: Context,
    principal: Principal,
    asked: [Option<Asked>; REQUESTS],
}

/// A request from this node that waits for its response.
#[derive(Debug)]
struct Asked {
    peer: PeerId,
    request: RequestId,
    pending: Pending,
}

impl<const REQUESTS: usize> OneContext<REQUESTS> {
    /// Creates the memory for one context. `principal` identifies the other endpoint of the context.
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
