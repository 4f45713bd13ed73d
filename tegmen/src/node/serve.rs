//! Answers requests.

use super::Node;
use super::application::{Application, Deferred, DeferredRequest};
use super::error::SendError;
use super::features::Features;
use crate::buf::Frame;
use crate::coap::exchange::{Exchanges, PeerExchanges};
use crate::coap::handler::{Request, Served, heading, serve};
use crate::coap::message::{BuildError, empty};
use crate::coap::storage::{ExchangeStorage, Repeat};
use crate::coap::{Builder, Code, MessageRef, MessageType};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, PeerId};
use crate::time::Instant;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes the response to a deferred request into `out`, protected, as a confirmable message; `write` adds its options
    /// and payload. The node sends it again until it is acknowledged. Returns the length of the datagram to send. The length
    /// is 0 if the response waits in the node's [`Queue`](super::Queue), or the client does not want it (RFC 7967).
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent. After [`SendError::Busy`] the response may be sent later: it returns the
    /// right to answer.
    pub fn respond<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        deferred: Deferred,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, (SendError, Deferred)> {
        if deferred.no_response.suppresses(code) {
            return Ok(0);
        }
        let (peer, token) = (deferred.peer, deferred.token);
        let sent = self.send(cx, peer, (MessageType::Confirmable, code), token.as_bytes(), write, out);
        sent.map(|(_, len)| len).map_err(|error| (error, deferred))
    }
}

/// Writes the response to `message` into `frame`, and keeps it for a repetition of the request. A request that must not be
/// executed twice is refused with 5.03 if there is no room to remember it.
#[inline]
pub(super) fn answer<S: ExchangeStorage, A: Application>(
    now: Instant,
    peer: PeerId,
    (exchanges, storage): (&mut Exchanges<S>, &mut S),
    (message, key): (MessageRef<'_>, S::Key),
    identity: Identity,
    application: &mut A,
    frame: &mut Frame<'_>,
) {
    let Some((policy, handler)) = application.server() else {
        if message.message_type() == MessageType::Confirmable {
            let _ = frame.append(&empty(MessageType::Reset, message.message_id()));
        }
        return;
    };
    let own_id = exchanges.message_id();
    let repeat = Repeat::of(message.code());
    if !exchanges.has_room(storage, now, repeat) {
        let (message_type, message_id) = heading(&message, own_id);
        let _ = Builder::new(frame, message_type, Code::SERVICE_UNAVAILABLE, message_id, message.token());
        return;
    }
    if let Served::Deferred(token) = serve(Request::new(message, identity), policy, handler, own_id, frame) {
        application.on_deferred(DeferredRequest { peer, token, message: &message });
    }
    exchanges.keep_reply(storage, now, key, repeat, frame.bytes());
}
