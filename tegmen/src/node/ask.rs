//! Sends requests.

use super::Node;
use crate::buf::Frame;
use crate::coap::exchange::{Busy, PeerExchanges};
use crate::coap::message::BuildError;
use crate::coap::storage::ExchangeStorage as _;
use crate::coap::{Builder, Code, MessageType, RequestId};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::{Misuse, Peers};
use crate::identity::PeerId;

/// The reason why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// As many exchanges with the peer are open as NSTART allows (RFC 7252, section 4.7), or as there is space for; wait
    /// for one to end.
    Busy,
    /// The message is longer than what can be kept for retransmission.
    TooLong,
    /// The message cannot be protected.
    Misuse(Misuse),
}

impl From<Busy> for SendError {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Outstanding => Self::Busy,
            Busy::TooLong => Self::TooLong,
        }
    }
}

impl From<BuildError> for SendError {
    fn from(_: BuildError) -> Self {
        Self::TooLong
    }
}

impl From<Misuse> for SendError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles> Node<P, R> {
    /// Writes a confirmable request to `peer` into `out`, protected; `write` adds its options and payload. The node sends
    /// it again until it is acknowledged. Returns the request, and the length of the datagram to send.
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
        self.send(cx, peer, (MessageType::Confirmable, code), token, write, out)
    }

    /// Gives up a request; its reply is then rejected, which also ends an observation (RFC 7641, section 3.6).
    pub fn cancel(&mut self, peer: PeerId, request: RequestId) {
        if let Some(attached) = self.endpoint.peers.attached(peer) {
            attached.exchanges().cancel(&mut self.storage, request);
        }
    }

    /// Writes a message that begins an exchange.
    #[inline]
    pub(super) fn send<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        (message_type, code): (MessageType, Code),
        token: &[u8],
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let mut random = [0];
        cx.crypto.random(&mut random);
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(peer));
        let exchanges = self.endpoint.peers.attached(peer).ok_or(Misuse::NotEstablished)?.exchanges();
        // Two nodes whose requests wait for each other's deferred responses must have a place to send these from.
        let places = <P::Attached as PeerExchanges>::Storage::PLACES;
        let reserved = usize::from(code.is_request() && places > 1);
        let has_place = places == 1 || exchanges.open(&self.storage).saturating_add(reserved) < places;
        if !has_place || exchanges.outstanding(&self.storage) >= self.nstart {
            return Err(SendError::Busy);
        }
        let mut builder = Builder::new(&mut frame, message_type, code, exchanges.message_id(), token)?;
        write(&mut builder)?;
        let [random] = random;
        let request = exchanges.sent(&mut self.storage, cx.now, frame.bytes(), random)?;
        self.schedule(peer);
        self.endpoint.seal(cx, peer, &mut frame)?;
        Ok((request, frame.len()))
    }
}
