//! Sends requests.

use super::Node;
use super::error::SendError;
use super::features::Features;
use super::queue::Queue as _;
use super::send::Protect;
use crate::coap::exchange::PeerExchanges;
use crate::coap::message::BuildError;
use crate::coap::{Builder, Code, MessageType, RequestId};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::PeerId;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes a confirmable request to `peer` into `out`, protected; `write` adds its options and payload. The node sends
    /// it again until it is acknowledged. Returns the request, and the length of the datagram to send. The length is 0 if
    /// the request waits in the node's [`Queue`](super::Queue); [`Node::poll`] sends it when NSTART allows it.
    ///
    /// Draw a token of 4 or more bytes at random. The response to it verifies a session whose replay window was lost, and a
    /// token that an earlier request had would let a recorded response do so.
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent.
    pub fn request<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        code: Code,
        token: &[u8],
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.send(cx, peer, (MessageType::Confirmable, code), token, Protect::Nothing, write, out)
    }

    /// Does the same as [`Self::request`], with a request that is protected with OSCORE. Its reply is authentic, or
    /// [`Reply::Refused`](super::Reply::Refused).
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent.
    pub fn request_with_oscore<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        code: Code,
        token: &[u8],
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.send(cx, peer, (MessageType::Confirmable, code), token, Protect::Request, write, out)
    }

    /// Does the same as [`Self::request`], with a request that is not confirmable. It is sent once, when PROBING_RATE allows
    /// it (RFC 7252, section 4.7): the features of the node must include [`Pacing`](super::Pacing). A request that wants no
    /// response (RFC 7967) has no reply.
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent.
    pub fn request_non_confirmable<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        code: Code,
        token: &[u8],
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.send(cx, peer, (MessageType::NonConfirmable, code), token, Protect::Nothing, write, out)
    }

    /// Writes an empty confirmable message ("CoAP ping"; RFC 7252, section 4.3). Its reply is [`Reply::Reset`](super::Reply).
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent.
    pub fn ping<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.send(cx, peer, (MessageType::Confirmable, Code::EMPTY), &[], Protect::Nothing, |_| Ok(()), out)
    }

    /// Gives up a request; its reply is then rejected, which also ends an observation (RFC 7641, section 3.6).
    pub fn cancel(&mut self, peer: PeerId, request: RequestId) {
        if let Some(attached) = self.endpoint.peers.attached(peer) {
            attached.exchanges().cancel(&mut self.storage, request);
        }
        if F::Queue::PLACES > 0 {
            self.features.queue().retain(|queued| (queued.peer, queued.request) != (peer, request));
            self.schedule(peer);
        }
    }
}
