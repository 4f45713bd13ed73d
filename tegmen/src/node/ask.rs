//! Sends requests.

use super::error::SendError;
use super::features::Features;
use super::group_requests::GroupRequests as _;
use super::queue::Queue as _;
use super::request_head::{RequestHead, RequestToken};
use super::send::Protect;
use super::{FRESH_TOKEN, Node};
use crate::coap::PeerExchanges;
use crate::coap::{BuildError, MAX_TOKEN};
use crate::coap::{Builder, Code, MessageType, RequestId};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{PeerId, Protection};

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` a request to `peer`, and protects it as the session and `head` require. `head` is a [`Code`],
    /// or a [`RequestHead`]. `write` adds the options and the payload of the request. Returns the id of the request,
    /// and the length of the datagram to send. The length is 0 if the request waits in the node's
    /// [`Queue`](super::Queue). [`Node::poll`] then sends the request when NSTART allows it. If the request is
    /// confirmable, the node sends it again until it is acknowledged.
    ///
    /// If `head` has no token, the node draws one: 8 bytes for a plaintext request (RFC 7252, section 5.3.1), and 4
    /// bytes in a session.
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing.
    #[inline]
    pub fn request<'t, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        head: impl Into<RequestHead<'t>>,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let RequestHead { code, message_type, with_oscore, token } = head.into();
        let protect = if with_oscore { Protect::Request } else { Protect::Nothing };
        let mut drawn = [0; MAX_TOKEN];
        let token = match token {
            RequestToken::Given(token) => {
                let requests = self.features.group_requests();
                if F::GroupRequests::IS_ON && requests.find(cx.now, |_, open| open.as_bytes() == token).is_some() {
                    return Err(SendError::Busy);
                }
                token
            }
            RequestToken::Drawn => self.draw_token(cx, peer, &mut drawn),
        };
        let write = |_: &mut F, builder: &mut Builder<'_, '_>| write(builder);
        self.send(cx, peer, (message_type, code), token, protect, write, out)
    }

    /// Draws a token with the random generator of the crypto provider. Also draws the first Message ID for the peer, if
    /// there is none yet.
    pub(super) fn draw_token<'d, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        drawn: &'d mut [u8; MAX_TOKEN],
    ) -> &'d [u8] {
        let peer_entry = self.endpoint.peers.peer(peer);
        let is_plain = peer_entry.is_some_and(|peer| peer.protection() == Protection::Plain);
        let (token, _) = drawn.split_at_mut(if is_plain { MAX_TOKEN } else { FRESH_TOKEN });
        cx.crypto.random(token);
        self.draw_message_id(cx, peer);
        token
    }

    /// Draws the first Message ID for messages to the peer, if there is none yet (RFC 7252, section 4.4). In a session
    /// that is never restored, the first Message ID need not be random, because no attacker can forge the messages of
    /// the session, and the peer remembers no earlier messages.
    pub(super) fn draw_message_id<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, peer: PeerId) {
        if let Some(exchanges) = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges) {
            exchanges.draw_message_id(cx.crypto);
        }
    }

    /// Writes an empty confirmable message into `out` ("CoAP ping"; RFC 7252, section 4.3). The peer replies with a
    /// Reset: [`Reply::Reset`](super::Reply).
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing.
    pub fn ping<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.draw_message_id(cx, peer);
        self.send(cx, peer, (MessageType::Confirmable, Code::EMPTY), &[], Protect::Nothing, |_, _| Ok(()), out)
    }

    /// Cancels a request. The node rejects a later response to it. If the request registered an observation, this also
    /// ends the observation (RFC 7641, section 3.6).
    pub fn cancel(&mut self, peer: PeerId, request: RequestId) {
        if let Some(exchanges) = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges) {
            exchanges.cancel(&mut self.storage, request);
        }
        if F::Queue::PLACES > 0 {
            self.features.queue().retain(|queued| (queued.peer, queued.request) != (peer, request));
            self.schedule(peer);
        }
    }
}
