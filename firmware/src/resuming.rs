//! Two nodes in one image that resume sessions. Each is client and server. `dtls_resume_coap` and `dtls_delegated`
//! share this code.

use super::Provider;
use super::measure::Region;
use super::pair::Either;
use tegmen::address::{Address, Path};
use tegmen::coap::{Code, Exchanges, Fixed, RequestId};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Config, Need, Records, Resuming, Resumption};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::PeerId;
use tegmen::node::{self, Node, Reply};
use tegmen::secret::Secret;
use tegmen::time::Instant;

/// A node with the sessions `S` and the application `A`.
pub struct Side<S: Resumption, A> {
    /// The CoAP node, which contains the endpoint.
    pub node: Node<&'static mut Table, Role<S>, ()>,
    /// The crypto provider and the counters.
    pub environment: Environment<Provider>,
    /// The application that answers the requests to the node.
    pub application: A,
    /// The newest session.
    pub session: Option<PeerId>,
    /// Number of sessions and handshakes that ended.
    pub ended: u8,
    /// The path from this node to the other node.
    pub path: Path,
    /// The measured region in which the instructions of the node are counted.
    pub region: Region,
}

/// An application of a node that resumes sessions.
pub trait Resumes: node::Application {
    /// Called before each call of the node.
    fn begin(&mut self, now: Instant);

    /// Called when a session is established, before the handshake is discarded.
    fn established<S: Resumption>(&mut self, endpoint: &mut Endpoint<&'static mut Table, Role<S>>, peer: PeerId);

    /// Returns the pre-shared key that a handshake needs.
    fn key<'k>(&mut self, need: Need<'_>, room: &'k mut KeyRoom) -> Answer<'k>;
}

/// The roles of a node that is client and server. `S` is the store of the sessions that the node can resume.
pub type Role<S> = Resuming<Either, S>;

/// A buffer for a pre-shared key.
pub type KeyRoom = Secret<32>;

impl<S: Resumption, A: Resumes> Side<S, A> {
    /// Creates a node without a session.
    #[inline(never)]
    pub fn new(
        table: &'static mut Table,
        crypto: Provider,
        sessions: S,
        application: A,
        (path, region): (Path, Region),
    ) -> Self {
        let mut environment = Environment::new(crypto);
        let config = Config { mtu: LONGEST as u16, ..Config::default() };
        let role = Resuming { role: Either, sessions };
        let endpoint = Endpoint::with_roles(&mut environment.at(NOW), table, config, role);
        let node = Node::new(endpoint, Default::default());
        Self { node, environment, application, session: None, ended: 0, path, region }
    }

    /// Processes a datagram. Returns the length of the answer in `out`, or 0 if there is none.
    #[inline(never)]
    pub fn take(&mut self, datagram: &mut [u8], out: &mut [u8; LONGEST]) -> usize {
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        self.application.begin(NOW);
        loop {
            let cx = &mut self.environment.at(NOW);
            let event =
                self.region.measured(|| self.node.handle(cx, &self.path, &mut records, &mut self.application, out));
            match event {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => answer_len = len.into(),
                Some(event) => self.on_event(event),
                None => return answer_len,
            }
        }
    }

    /// Writes into `out` the next datagram that the node has to send now. Returns its length, or 0 if there is none.
    #[inline(never)]
    pub fn poll(&mut self, out: &mut [u8; LONGEST]) -> usize {
        self.application.begin(NOW);
        loop {
            let cx = &mut self.environment.at(NOW);
            match self.region.measured(|| self.node.poll(cx, &mut self.application, out)) {
                Some(Event::Transmit { len, .. }) => return len.into(),
                Some(event) => self.on_event(event),
                None => return 0,
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Need(id) => {
                let mut room = Secret::zeroed();
                let Some(need) = self.node.endpoint.need(id) else { return };
                let answer = self.application.key(need, &mut room);
                let event = self.node.endpoint.resume(&mut self.environment.at(NOW), id, answer);
                if let Some(event) = event {
                    self.on_session(event);
                }
            }
            event => self.on_session(event),
        }
    }

    fn on_session(&mut self, event: Event) {
        match event {
            Event::Established(peer) => {
                self.application.established(&mut self.node.endpoint, peer);
                self.session = Some(peer);
            }
            Event::Closed { .. } => self.ended = self.ended.wrapping_add(1),
            _ => {}
        }
    }

    /// Closes the newest session.
    pub fn close(&mut self) {
        if let Some(peer) = self.session.take() {
            self.node.endpoint.close(peer);
        }
    }
}

/// Exchanges datagrams between both nodes until neither has a datagram to send.
pub fn settle<S: Resumption, A: Resumes, T: Resumption, B: Resumes>(
    one: &mut Side<S, A>,
    other: &mut Side<T, B>,
    buffers: &mut Buffers,
) {
    let Buffers { there, back } = buffers;
    loop {
        let sent = speak(one, other, there, back) | speak(other, one, there, back);
        if !sent {
            return;
        }
    }
}

/// Sends all datagrams that `from` has to send now. Returns false if there are none.
#[inline(never)]
pub fn speak<S: Resumption, A: Resumes, T: Resumption, B: Resumes>(
    from: &mut Side<S, A>,
    to: &mut Side<T, B>,
    there: &mut [u8; LONGEST],
    back: &mut [u8; LONGEST],
) -> bool {
    let mut sent = false;
    loop {
        let len = from.poll(there);
        if len == 0 {
            return sent;
        }
        sent = true;
        deliver(from, to, len, there, back);
    }
}

/// Delivers a datagram of `len` bytes from `from` to `to`. Delivers the answer too, and the answer to that answer.
pub fn deliver<S: Resumption, A: Resumes, T: Resumption, B: Resumes>(
    from: &mut Side<S, A>,
    to: &mut Side<T, B>,
    len: usize,
    there: &mut [u8; LONGEST],
    back: &mut [u8; LONGEST],
) {
    let answer_len = to.take(there.get_mut(..len).unwrap_or(&mut []), back);
    if answer_len > 0 {
        let answer_len = from.take(back.get_mut(..answer_len).unwrap_or(&mut []), there);
        if answer_len > 0 {
            to.take(there.get_mut(..answer_len).unwrap_or(&mut []), back);
        }
    }
}

/// Sends a request, and exchanges datagrams until neither node has a datagram to send.
#[inline(never)]
pub fn ask<S: Resumption, A: Resumes, T: Resumption, B: Resumes>(
    one: &mut Side<S, A>,
    other: &mut Side<T, B>,
    (code, path, payload): (Code, &str, &[u8]),
    buffers: &mut Buffers,
) -> Option<RequestId> {
    let cx = &mut one.environment.at(NOW);
    let write = |request: &mut tegmen::coap::Builder<'_, '_>| {
        request.path(path)?;
        request.payload(payload)
    };
    let there = &mut buffers.there;
    let peer = one.session?;
    let (id, len) = one.region.measured(|| one.node.request(cx, peer, code, write, there)).ok()?;
    deliver(one, other, len, there, &mut buffers.back);
    settle(one, other, buffers);
    Some(id)
}

/// The code of the last response.
#[derive(Default)]
pub struct LastReply(pub Option<Code>);

impl LastReply {
    /// Stores the code of a response.
    pub fn note(&mut self, reply: Reply<'_>) {
        if let Reply::Response(response) = reply {
            self.0 = Some(response.code());
        }
    }
}

/// The buffers for the datagrams between the two nodes.
pub struct Buffers {
    /// A datagram from the node that sends first.
    pub there: [u8; LONGEST],
    /// A datagram to the node that sends first.
    pub back: [u8; LONGEST],
}

impl Buffers {
    /// Creates buffers of zeros.
    pub const fn new() -> Self {
        Self { there: [0; LONGEST], back: [0; LONGEST] }
    }
}

/// A table for three peers and two handshakes, with 400 bytes for tickets and secrets, and 160 bytes for fragments and
/// early records.
pub type Table = PeerArray<Exchanges<Storage>, 3, 2, 400, 160>;
type Storage = Fixed<1, 192, 1, 64>;

/// Maximum length of a datagram, in bytes.
pub const LONGEST: usize = 400;
/// The time of all calls.
pub const NOW: Instant = Instant::from_micros(1_000_000);

/// Returns the address of a node.
pub const fn address(number: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number], port: 5684, scope: 0 }
}
