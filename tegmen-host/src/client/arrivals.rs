//! The replies in received datagrams.

use super::Response;
use super::serving::Serving;
use crate::server::{CoapPeer, CoapServer, OscoreExchange, Router};
use std::collections::{HashMap, VecDeque};
use tegmen::coap::{Code, Handler, MessageRef, Policy, Probing, Repeat, RequestId};
use tegmen::identity::PeerId;
use tegmen::node::{Answer, Application, DeferredRequest, Incoming, Pacing, Refusal, Reply};
use tegmen::oscore::UnprotectError;
use tegmen::time::Instant;

/// The state of the limit PROBING_RATE for each peer (RFC 7252, section 4.7): a peer that does not answer receives at
/// most one byte a second. `heard` lists the peers that have just sent a message. The endpoint empties the list, and
/// records for the session of each peer that its server is not silent.
#[derive(Default)]
pub(super) struct PeerPacing {
    /// The peers to which non-confirmable messages were sent, and from which no message came afterwards.
    probing: HashMap<PeerId, Probing>,
    pub(super) heard: Vec<PeerId>,
}

impl PeerPacing {
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.probing.remove(&peer);
    }

    /// Removes the peers that no longer exist.
    pub(super) fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        self.probing.retain(|peer, _| is_there(*peer));
    }
}

impl Pacing for PeerPacing {
    fn sent(&mut self, now: Instant, peer: PeerId, len: usize) {
        self.probing.entry(peer).or_default().sent(now, len);
    }

    fn heard(&mut self, peer: PeerId) {
        if !self.probing.is_empty() {
            self.probing.remove(&peer);
        }
        self.heard.push(peer);
    }

    fn next(&self, peer: PeerId) -> Instant {
        if self.probing.is_empty() {
            return Instant::AT_ONCE;
        }
        self.probing.get(&peer).map_or(Instant::AT_ONCE, Probing::next)
    }
}

/// The replies in one datagram.
pub(super) struct Arrivals {
    list: VecDeque<(PeerId, RequestId, Arrival)>,
    /// The server side, if the endpoint serves requests.
    pub(super) serving: Option<Box<Serving>>,
}

pub(super) enum Arrival {
    Response(Response),
    /// A response that OSCORE cannot open. The values are the reason, and the response code that OSCORE does not
    /// protect.
    Refused(UnprotectError, Code),
    Acknowledged,
    Reset,
    TimedOut,
}

impl Application<OscoreExchange, CoapPeer> for Arrivals {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        self.coap_server()?.server()
    }

    fn admit(&mut self, incoming: &Incoming<'_>, coap_peer: Option<&mut CoapPeer>) -> Result<(), Refusal> {
        self.coap_server().map_or(Ok(()), |coap_server| coap_server.admit(incoming, coap_peer))
    }

    fn on_answered(&mut self, incoming: &Incoming<'_>, answer: Answer, response: &[u8], repeat: Repeat) -> Repeat {
        let coap_server = self.coap_server();
        coap_server.map_or(repeat, |coap_server| coap_server.on_answered(incoming, answer, response, repeat))
    }

    fn on_notification(&mut self, peer: PeerId, registration: &MessageRef<'_>) {
        if let Some(coap_server) = self.coap_server() {
            coap_server.on_notification(peer, registration);
        }
    }

    fn on_begun(&mut self, peer: PeerId, coap_peer: &mut CoapPeer) {
        if let Some(coap_server) = self.coap_server() {
            coap_server.on_begun(peer, coap_peer);
        }
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_, OscoreExchange>) {
        if let Some(coap_server) = self.coap_server() {
            coap_server.on_deferred(request);
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let arrival = match reply {
            Reply::Response(message) => Arrival::Response(Response::new(message)),
            Reply::Cut(message) => Arrival::Response(Response { is_cut: true, ..Response::new(message) }),
            Reply::Refused { reason, code } => Arrival::Refused(reason, code),
            Reply::Acknowledged => Arrival::Acknowledged,
            Reply::Reset => Arrival::Reset,
            // This node has no queue.
            Reply::TimedOut | Reply::NotSent(_) => Arrival::TimedOut,
        };
        self.list.push_back((peer, request, arrival));
    }
}

impl Arrivals {
    /// Returns an empty list of replies.
    pub(super) const fn new(serving: Option<Box<Serving>>) -> Self {
        Self { list: VecDeque::new(), serving }
    }

    fn coap_server(&mut self) -> Option<&mut CoapServer<Router>> {
        self.serving.as_mut().map(|serving| &mut serving.coap_server)
    }

    /// Removes and returns the next reply.
    pub(super) fn take(&mut self) -> Option<(PeerId, RequestId, Arrival)> {
        self.list.pop_front()
    }
}
