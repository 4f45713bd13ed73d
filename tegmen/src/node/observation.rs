//! An observation of a resource by a client (RFC 7641, section 3).

use super::Node;
use super::application::Reply;
use super::error::SendError;
use super::features::Features;
use super::send::Protect;
use crate::coap::PeerExchanges;
use crate::coap::observe::{DEREGISTER, Order, REGISTER};
use crate::coap::option::{uint, uint_bytes};
use crate::coap::{BuildError, MAX_TOKEN};
use crate::coap::{Builder, Code, MessageType, OptionNumber, RequestId, Token};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::PeerId;
use crate::time::{Duration, Instant};

/// A client's observation of a resource. [`Node::observe`] registers the observation. A later call in the same session
/// refreshes the registration with the same token. After the end of the session with the server, the observation can
/// continue in another session: a call in that session registers the observation with a new token.
///
/// The owner of the node calls [`Node::observe`] at the time [`Self::refresh_at`], passes each reply of the server to
/// [`Self::on_reply`], and calls [`Self::on_closed`] when the session has ended.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The server, and the token of all requests to it; `None` before the first request.
    token: Option<(PeerId, Token)>,
    /// The server, and the id of the registration request that was sent to it; `None` if no registration is active.
    registration: Option<(PeerId, RequestId)>,
    /// The state that shows whether a notification is newer than the earlier ones; `None` until the server answers the
    /// registration.
    order: Option<Order>,
    refresh: Instant,
    /// True if OSCORE protects the registration and its notifications.
    with_oscore: bool,
}

/// The result of processing a server's reply for an observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification {
    /// The response contains the newest representation.
    Newest,
    /// The response is older than a response that arrived before. Ignore it.
    Late,
    /// No notification follows this response. The response is an error, or the server does not allow the observation.
    Last,
    /// The registration got no response. Send it again at the time [`Observation::refresh_at`].
    Unanswered,
    /// The server has received the registration. Its response follows separately.
    Acknowledged,
}

impl Observation {
    /// Returns this observation with a change: OSCORE protects the registration and the notifications. The order of the
    /// notifications is then the order of their sequence numbers in the security context, and the node drops a late
    /// notification (RFC 8613, section 4.1.3.5.2).
    pub const fn with_oscore(self) -> Self {
        Self { with_oscore: true, ..self }
    }

    /// Returns the time at which the observation must be registered again. The newest representation is then too old to
    /// count as current (RFC 7641, section 3.3.1). If a registration got no response, this is the time at which it must
    /// be sent again. After the last notification the time is [`Instant::NEVER`].
    pub const fn refresh_at(&self) -> Instant {
        self.refresh
    }

    /// Processes a reply of `peer`. Returns `None` if the reply belongs to another request. `random` delays the next
    /// refresh by up to ten seconds, so that the clients of a server do not all send requests at the same time.
    pub fn on_reply(
        &mut self,
        now: Instant,
        peer: PeerId,
        request: RequestId,
        reply: Reply<'_>,
        random: u8,
    ) -> Option<Notification> {
        if self.registration != Some((peer, request)) {
            return None;
        }
        Some(match reply {
            Reply::Response(response) => {
                self.on_response(now, response.code(), |number| response.option(number), random)
            }
            Reply::Acknowledged | Reply::Cut(_) => Notification::Acknowledged,
            Reply::Reset | Reply::TimedOut | Reply::NotSent(_) | Reply::Refused { .. } => {
                self.registration = None;
                self.refresh = now.after_millis(spread(random));
                Notification::Unanswered
            }
        })
    }

    /// Processes a response with this code. `option` takes the number of an option, and returns the value of the first
    /// such option in the response. An owner that receives responses without a [`Node`] calls this function. Every
    /// other owner calls [`Self::on_reply`]. An owner that calls this function creates a new [`Observation`] for each
    /// registration, because a server that restarted begins its Observe numbers again.
    pub fn on_response<'m>(
        &mut self,
        now: Instant,
        code: Code,
        option: impl Fn(OptionNumber) -> Option<&'m [u8]>,
        random: u8,
    ) -> Notification {
        let number = option(OptionNumber::OBSERVE).and_then(uint).filter(|_| code.is_success());
        let Some(number) = number else {
            (self.registration, self.order, self.refresh) = (None, None, Instant::NEVER);
            return Notification::Last;
        };
        if !self.with_oscore && self.order.as_mut().is_some_and(|order| !order.is_newer(number, now)) {
            return Notification::Late;
        }
        self.order = self.order.or(Some(Order::new(number, now)));
        let max_age = option(OptionNumber::MAX_AGE).and_then(uint).unwrap_or(DEFAULT_MAX_AGE);
        self.refresh = now.after(Duration::from_secs(max_age.into())).after_millis(spread(random));
        Notification::Newest
    }

    /// Processes the end of the session with the server. The observation must then be registered in another session.
    pub const fn on_closed(&mut self) {
        if self.registration.is_some() {
            (self.registration, self.refresh) = (None, Instant::AT_ONCE);
        }
    }
}

impl Default for Observation {
    /// Creates an observation that is not registered yet.
    fn default() -> Self {
        Self { token: None, registration: None, order: None, refresh: Instant::AT_ONCE, with_oscore: false }
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` a request that registers an observation at `peer`, and protects this request. `write` adds the
    /// options and the payload of the request. If there is an earlier registration, the new one replaces it. Like
    /// [`Self::request`], returns the length of the datagram to send.
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing. The earlier registration has then ended, and the observation must
    /// be registered later.
    pub fn observe<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        observation: &mut Observation,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, SendError> {
        let (request, len) = self.send_observe(cx, peer, (code, REGISTER), observation, write, out)?;
        observation.registration = Some((peer, request));
        // After a restart, a server begins its Observe numbers again.
        (observation.order, observation.refresh) = (None, Instant::NEVER);
        Ok(len)
    }

    /// Ends an observation. Writes into `out` a request that deregisters the client at `peer` (RFC 7641, section 3.6).
    /// The response to this request contains the current representation. Like [`Self::request`], returns the id of the
    /// request and the length of the datagram to send.
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing. The server ends the observation when the client rejects the next
    /// notification.
    pub fn deregister<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        mut observation: Observation,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        self.send_observe(cx, peer, (code, DEREGISTER), &mut observation, write, out)
    }

    /// Writes a request with an Observe option. If there is an earlier registration, the client no longer waits for
    /// responses to that registration.
    fn send_observe<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        (code, observe): (Code, u32),
        observation: &mut Observation,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        if let Some((peer, request)) = observation.registration.take() {
            observation.refresh = Instant::AT_ONCE;
            self.cancel(peer, request);
        }
        let write = |_: &mut F, builder: &mut Builder<'_, '_>| {
            write(builder)?;
            builder.insert(OptionNumber::OBSERVE, uint_bytes(observe, &mut [0; 4]))
        };
        // The token of another session must not be used again: a response that was recorded in that session would
        // verify a restored session.
        let token = match observation.token {
            Some((of, token)) if of == peer => token,
            _ => Token::new(self.draw_token(cx, peer, &mut [0; MAX_TOKEN])),
        };
        observation.token = Some((peer, token));
        let protect = if observation.with_oscore { Protect::Request } else { Protect::Nothing };
        self.send(cx, peer, (MessageType::Confirmable, code), token.as_bytes(), protect, write, out)
    }
}

/// The Max-Age of a response that has no Max-Age option (RFC 7252, section 5.10.5), in seconds.
const DEFAULT_MAX_AGE: u32 = 60;
/// The minimum time between the end of Max-Age and the refresh, in milliseconds (RFC 7641, section 3.3.1).
const SPREAD_MS: u32 = 5000;

/// Returns the number of milliseconds from the end of Max-Age until the refresh: 5,000, plus 40 for each unit of
/// `random`.
fn spread(random: u8) -> u32 {
    SPREAD_MS.wrapping_add(u32::from(random).wrapping_mul(40))
}
