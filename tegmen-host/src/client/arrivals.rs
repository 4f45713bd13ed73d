//! The replies that datagrams bring.

use super::Response;
use super::serving::Serving;
use std::collections::{HashMap, VecDeque};
use tegmen::coap::{Code, Handler, Policy, Probing, Repeat, RequestId};
use tegmen::identity::PeerId;
use tegmen::node::{Answer, Application, DeferredRequest, Incoming, Pacing, Refusal, Reply};
use tegmen::oscore::UnprotectError;
use tegmen::time::Instant;

/// PROBING_RATE for each peer (RFC 7252, section 4.7), and the peers that were heard.
#[derive(Default)]
pub(super) struct PeerPacing {
    /// The peers that were sent messages without acknowledgement, and not heard since then.
    probing: HashMap<PeerId, Probing>,
    pub(super) heard: Vec<PeerId>,
}

impl PeerPacing {
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.probing.remove(&peer);
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

/// The replies that one datagram brought.
#[derive(Default)]
pub(super) struct Arrivals {
    list: VecDeque<(PeerId, RequestId, Arrival)>,
    /// The serving side, if the endpoint serves.
    pub(super) serving: Option<Box<Serving>>,
}

pub(super) enum Arrival {
    Response(Response),
    /// A response that does not open, and its code outside.
    Refused(UnprotectError, Code),
    Acknowledged,
    Reset,
    TimedOut,
}

impl Application for Arrivals {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        self.serving.as_mut().map(|serving| serving.parts())
    }

    fn admit(&mut self, incoming: &Incoming<'_>, _: Option<&mut ()>) -> Result<(), Refusal> {
        self.serving.as_mut().map_or(Ok(()), |serving| serving.admit(incoming.message))
    }

    fn on_answered(&mut self, _: &Incoming<'_>, answer: Answer, _: &[u8], repeat: Repeat) -> Repeat {
        self.serving.as_ref().map_or(repeat, |serving| serving.effect(answer, repeat))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        if let Some(serving) = &mut self.serving {
            serving.keep(request);
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
    /// Returns the next reply.
    pub(super) fn take(&mut self) -> Option<(PeerId, RequestId, Arrival)> {
        self.list.pop_front()
    }
}
