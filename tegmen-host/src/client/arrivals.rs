//! The replies that datagrams bring.

use super::Response;
use super::serving::Serving;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use tegmen::buf::Frame;
use tegmen::coap::Repeat;
use tegmen::coap::{Builder, MessageRef, MessageType, OptionNumber, Probing, RequestId};
use tegmen::coap::{Handler, Policy};
use tegmen::identity::PeerId;
use tegmen::node::{Answer, Application, DeferredRequest, Incoming, Pacing, Refusal, Reply};
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
    /// The peers whose replies are protected with OSCORE.
    pub(super) protected_peers: HashSet<PeerId>,
    /// The protected ones, behind one another.
    pub(super) protected: Vec<u8>,
    /// The serving side, if the endpoint serves.
    pub(super) serving: Option<Box<Serving>>,
}

pub(super) enum Arrival {
    Response(Response),
    /// The place of a message that is to be opened.
    Protected(Range<usize>),
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

    fn on_answered(&mut self, _: &Incoming<'_>, _: Answer, _: &[u8], repeat: Repeat) -> Repeat {
        self.serving.as_ref().map_or(repeat, |serving| serving.effect(repeat))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        if let Some(serving) = &mut self.serving {
            serving.keep(request);
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let is_protected = !self.protected_peers.is_empty() && self.protected_peers.contains(&peer);
        let arrival = match reply {
            Reply::Response(message) if !is_protected => Arrival::Response(Response::new(message)),
            Reply::Response(message) if is_cut(message) => {
                Arrival::Response(Response { is_cut: true, ..Response::new(message) })
            }
            Reply::Response(message) => Arrival::Protected(self.keep(message)),
            Reply::Acknowledged => Arrival::Acknowledged,
            Reply::Reset => Arrival::Reset,
            // This node has no queue, and opens no protected responses.
            Reply::TimedOut | Reply::NotSent(_) | Reply::Refused { .. } => Arrival::TimedOut,
        };
        self.list.push_back((peer, request, arrival));
    }
}

impl Arrivals {
    /// Returns the next reply.
    pub(super) fn take(&mut self) -> Option<(PeerId, RequestId, Arrival)> {
        let next = self.list.pop_front();
        if next.is_none() {
            self.protected.clear();
        }
        next
    }

    /// Keeps a message that can be opened once it was received.
    fn keep(&mut self, message: &MessageRef<'_>) -> Range<usize> {
        let options: usize = message.options().map(|(_, value)| value.len() + MAX_OPTION_HEAD).sum();
        let (start, most) = (self.protected.len(), MAX_HEAD + options + 1 + message.payload().len());
        self.protected.resize(start + most, 0);
        let mut frame = Frame::new(self.protected.get_mut(start..).unwrap_or(&mut []), 0);
        // It fits completely.
        let _ = write_again(message, &mut frame);
        let end = start + frame.len();
        self.protected.truncate(end);
        start..end
    }
}

fn write_again(message: &MessageRef<'_>, frame: &mut Frame<'_>) -> Result<(), tegmen::coap::BuildError> {
    let mut builder = Builder::new(frame, MessageType::NonConfirmable, message.code(), 0, message.token())?;
    message.options().try_for_each(|(number, value)| builder.option(number, value))?;
    builder.payload(message.payload())
}

/// Header and token of a message.
const MAX_HEAD: usize = 4 + 8;
/// Number and length of an option.
const MAX_OPTION_HEAD: usize = 5;

/// True for a block of a protected response.
fn is_cut(message: &MessageRef<'_>) -> bool {
    let block = message.block(OptionNumber::BLOCK2).ok().flatten();
    message.option(OptionNumber::OSCORE).is_some() && block.is_some_and(|block| block.more || block.number > 0)
}
