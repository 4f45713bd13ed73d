//! A simulated node of a CoAP network with content objects: a consumer, a producer, or a forwarder.
//!
//! A consumer sends a request to one producer after the other, and then begins with the first producer again. A
//! forwarder is a caching CoAP proxy (RFC 7252, section 5.7). It retransmits a request to the next node until it
//! receives the response. The response that the proxy then sends to its own client also acknowledges the request of
//! this client. In a network without proxies, a forwarder forwards only IP packets, and consumers send their requests
//! directly to the producers.

mod application;
mod memory;

use super::objects::{Contexts, Kept};
use super::{Attached, DATAGRAM, Features, Mote, Protection, Setup, Wish, features};
use crate::sim::random::{Purpose, Stream};
use application::Application;
pub(super) use application::name;
use memory::Memory;
use tegmen::address::{Address, Path};
use tegmen::coap::{BuildError, Builder, Code, Exchanges, OptionNumber, RequestId};
use tegmen::crypto::Compact;
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Rank};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::PeerId;
use tegmen::node::{self, RequestHead};
use tegmen::time::{Duration, Instant};
use tegmen_proxy::Next;

/// The role of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A node that requests readings.
    Consumer {
        /// The index of the node among all consumers.
        place: usize,
        /// The addresses of the producers. The index is the number of the producer.
        producers: Vec<Address>,
        /// The proxy to which the consumer sends its requests. With `None` it sends each request to the producer
        /// itself.
        proxy: Option<Address>,
    },
    /// A node that forwards requests or packets.
    Forwarder {
        /// For each producer, the next proxy on the path to the producer, or the producer itself if no proxy follows.
        towards: Vec<Address>,
        /// The addresses of the producers. The index is the number of the producer.
        producers: Vec<Address>,
        /// True if the forwarder stores responses in a cache.
        stores: bool,
    },
    /// A node that answers requests for its readings.
    Producer {
        /// The index of the node among all producers.
        place: usize,
    },
}

/// A node that has space for `PEERS` peers.
pub struct ObjectNode<const PEERS: usize> {
    setup: Setup,
    node: node::Node<PeerArray<Attached<Memory>, PEERS, 1>, Both, Features>,
    environment: Environment<Compact>,
    application: Application,
    random: Stream,
    part: Part,
    /// Number of requests that the consumer has made.
    made: usize,
    /// The requests of a consumer that wait for a response. Each entry has the peer, the request, and the time of the
    /// request.
    asked: Vec<(PeerId, RequestId, Instant)>,
    next_token: u16,
    alarm: Option<Instant>,
    instructions: u64,
}

impl<const PEERS: usize> ObjectNode<PEERS> {
    /// Creates a node that has received and sent nothing.
    pub fn new(seed: u64, number: usize, setup: Setup, part: Part) -> Self {
        let crypto = Compact::new(Stream::new(seed, number, Purpose::Crypto).seed());
        let mut environment = Environment::new(crypto);
        let config = Config { profile: setup.profile, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(Instant::from_micros(1)), PeerArray::new(), config);
        let features = features(Contexts::new(number as u16, setup.costs, &Kept::default()));
        let mut node = node::Node::with_features(endpoint, Memory::default(), features);
        // As in the paper, a node sends a request even if earlier requests still wait for their responses.
        node.set_nstart(memory::OUT);
        Self {
            setup,
            node,
            environment,
            application: Application::new(&part),
            random: Stream::new(seed, number, Purpose::Messages),
            part,
            made: 0,
            asked: Vec::new(),
            next_token: 0,
            alarm: None,
            instructions: 0,
        }
    }

    /// Returns the peer at the address `at`. Creates the peer if it does not exist. Returns `None` if there is no space
    /// for the peer.
    fn peer(&mut self, now: Instant, at: Address) -> Option<PeerId> {
        let path = Path { local: self.setup.local, remote: at };
        let peer = self.node.endpoint.plain(&mut self.environment.at(now), &path, Rank::Ours).ok()?;
        let first = self.random.below(1 << 16) as u16;
        self.node.endpoint.peers.attached(peer)?.0.get_or_insert_with(|| Box::new(Exchanges::new(first)));
        Some(peer)
    }

    fn next_token(&mut self) -> [u8; 2] {
        self.next_token = self.next_token.wrapping_add(1);
        self.next_token.to_be_bytes()
    }

    /// Sends a request of a consumer. `write` adds the options of the request. Returns `None` if the request cannot be
    /// sent.
    fn request(
        &mut self,
        now: Instant,
        to: Address,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        wishes: &mut Vec<Wish>,
    ) -> Option<(PeerId, RequestId)> {
        let peer = self.peer(now, to)?;
        let token = self.next_token();
        let head = RequestHead::new(Code::GET).with_token(&token);
        let head = if self.setup.protection == Protection::Oscore { head.with_oscore() } else { head };
        let mut out = [0; DATAGRAM];
        let (request, len) = self.node.request(&mut self.environment.at(now), peer, head, write, &mut out).ok()?;
        self.instructions += self.setup.costs.build + self.setup.costs.keep;
        wishes.push(Wish::Send { to, datagram: out[..len].to_vec() });
        Some((peer, request))
    }

    /// Sends the requests and responses that the last call of the CoAP node has produced. Reports each answered request
    /// of a consumer to the simulation.
    fn settle(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let costs = self.setup.costs;
        self.instructions += costs.serve * u64::from(std::mem::take(&mut self.application.served));
        self.forward(now, wishes);
        for (peer, request, is_content) in std::mem::take(&mut self.application.replies) {
            self.instructions += costs.hear;
            let Some(place) = self.asked.iter().position(|asked| (asked.0, asked.1) == (peer, request)) else {
                continue;
            };
            let (_, _, made) = self.asked.swap_remove(place);
            wishes.push(match is_content {
                true => Wish::Answered { made, at_once: now.since(made) < SENT_AGAIN },
                false => Wish::GivenUp,
            });
        }
        self.instructions += costs.hear * u64::from(std::mem::take(&mut self.application.heard));
        self.answer(now, wishes);
    }

    /// If this node is a proxy, forwards the request that it received last to the next proxy, or to the producer. Does
    /// nothing if this node is a consumer or a producer.
    fn forward(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let Part::Forwarder { towards, producers, .. } = &self.part else { return };
        let Some(target) = self.application.proxy.as_ref().and_then(|proxy| proxy.target()) else { return };
        let producer = application::producer(target.host);
        let hop = producer.and_then(|producer| towards.get(producer).zip(producers.get(producer)));
        let hop = hop.map(|(to, last)| (*to, to == last));
        let peer = hop.and_then(|(to, is_origin)| Some((self.peer(now, to)?, to, is_origin)));
        let token = self.next_token();
        let Self { node, environment, application: Application { proxy: Some(proxy), .. }, .. } = self else { return };
        let Some((peer, to, is_origin)) = peer else { return proxy.refuse(Code::BAD_GATEWAY) };
        let mut out = [0; DATAGRAM];
        let next = Next { peer, is_origin, token: Some(&token) };
        if let Ok(len) = proxy.forward(&mut environment.at(now), node, next, &mut out) {
            self.instructions += self.setup.costs.build + self.setup.costs.keep;
            wishes.push(Wish::Send { to, datagram: out[..len].to_vec() });
        }
    }

    /// Sends the responses that have arrived at this proxy. Each response goes to the clients that wait for it.
    fn answer(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let Self { node, environment, application: Application { proxy: Some(proxy), .. }, .. } = self else { return };
        let mut out = [0; DATAGRAM];
        while let Some((client, len)) = proxy.respond(&mut environment.at(now), node, &mut out) {
            let Some(to) = node.endpoint.peers.peer(client).map(|peer| peer.path().remote) else { continue };
            wishes.push(Wish::Send { to, datagram: out[..len].to_vec() });
        }
    }
}

impl<const PEERS: usize> Mote for ObjectNode<PEERS> {
    fn read(&mut self, now: Instant, _: Address, wishes: &mut Vec<Wish>) {
        let Part::Consumer { place, producers, proxy } = &self.part else { return };
        let producer = self.made % producers.len();
        let (to, is_by_proxy) = (proxy.unwrap_or(producers[producer]), proxy.is_some());
        self.made += 1;
        // A consumer has a separate OSCORE context for each producer.
        self.node.features.oscore.pair = (1 + place * producers.len() + producer) as u16;
        let item = self.random.below(ITEMS);
        let write = |message: &mut Builder<'_, '_>| {
            if is_by_proxy {
                message.option(OptionNumber::URI_HOST, application::name(producer).as_bytes())?;
            }
            message.path(&application::path(item))?;
            if is_by_proxy { message.option(OptionNumber::PROXY_SCHEME, b"coap") } else { Ok(()) }
        };
        match self.request(now, to, write, wishes) {
            Some((peer, request)) => self.asked.push((peer, request, now)),
            None => wishes.push(Wish::GivenUp),
        }
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let path = Path { local: self.setup.local, remote: from };
        let mut out = [0; DATAGRAM];
        self.application.now = now;
        let cx = &mut self.environment.at(now);
        let event = self.node.handle_plain(cx, &path, datagram, &mut self.application, &mut out);
        if let Some(Event::Transmit { len, .. }) = event {
            wishes.push(Wish::Send { to: from, datagram: out[..len.into()].to_vec() });
        }
        self.settle(now, wishes);
        self.poll(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let mut out = [0; DATAGRAM];
        self.application.now = now;
        while self.node.endpoint.next_alarm().is_some_and(|alarm| alarm <= now) {
            let event = self.node.poll(&mut self.environment.at(now), &mut self.application, &mut out);
            let Some(event) = event else { break };
            if let Event::Transmit { peer, len } = event
                && let Some(to) = self.node.endpoint.peers.peer(peer).map(|peer| peer.path().remote)
            {
                self.instructions += self.setup.costs.again;
                wishes.push(Wish::Send { to, datagram: out[..len.into()].to_vec() });
            }
        }
        self.settle(now, wishes);
        self.alarm = self.node.endpoint.next_alarm();
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn take_instructions(&mut self) -> u64 {
        std::mem::take(&mut self.instructions) + std::mem::take(&mut self.node.features.oscore.instructions)
    }

    fn reboot(&mut self, _: Instant) {}

    fn forget(&mut self, _: usize) {}

    fn moved(&mut self, _: Instant, _: Address, _: Address, _: &mut Vec<Wish>) {}
}

/// Number of different readings that each producer has.
pub(super) const ITEMS: u64 = 10;
/// The first component of the paths of all readings.
pub(super) const RESOURCE: &str = "temperature";
/// The shortest time after which CoAP sends a request again (ACK_TIMEOUT of RFC 7252, section 4.8).
const SENT_AGAIN: Duration = Duration::from_secs(2);
