//! A simulated node of a group. Node 0 sends requests, and the other members answer. Node 0 sends a request to all
//! members at once (RFC 7252, section 8), or a separate request to each member. Requests have no protection, or they
//! are protected by DTLS sessions or by Axiom.
//!
//! [`Protection::AxiomDtls`] is the older protocol that Axiom replaces (draft-keoh-dice-multicast-security). In this
//! protocol the keys of the group protect the request, and a DTLS session between node 0 and the member protects each
//! response.

mod application;

use super::{
    APPLICATION_DATA, Attached, DATAGRAM, IDENTITY, KEY, MESSAGE, Milestone, Mote, Protection, RESOURCE, Setup, Wish,
    dropped,
};
use crate::sim::random::{Purpose, Stream};
use application::Application;
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::axiom::{Association, Kept, Member, Suite};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, Exchanges, Fixed, MessageRef, MessageType, RequestId};
use tegmen::crypto::Compact;
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Config, Rank, Records, record};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray, Peers as _, Phase};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{self, GroupArray, GroupRequestArray, GroupRequests as _, LeisureArray, Parts, RequestHead};
use tegmen::time::{Duration, Instant};

/// The settings of the requests to a group.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// True if node 0 sends a separate request to each member, one after the other.
    pub each: bool,
    /// Maximum time that a member waits before it answers a request to the group. The time is random.
    pub leisure: Duration,
    /// The suite that protects records of the group.
    pub suite: Suite,
}

/// A node of a group. It has space for `PEERS` peers and `MEMBERS` members.
pub struct GroupNode<const PEERS: usize, const MEMBERS: usize> {
    setup: Setup,
    asking: Asking,
    node: node::Node<PeerArray<Attached, PEERS, HANDSHAKES>, Both, Features<MEMBERS>>,
    environment: Environment<Compact>,
    application: Application,
    random: Stream,
    /// The members to which node 0 sends requests. The list is empty at every other node.
    members: Vec<Asked>,
    /// The times at which the application made the requests that are not yet sent.
    made: VecDeque<Instant>,
    step: Step,
    /// For a request that is sent to each member separately: the time of the request, and the number of responses so
    /// far.
    round: (Instant, usize),
    /// True if a session was opened before the current request was sent.
    has_connected: bool,
    /// The requests to the group that still wait for responses. Each entry has the request, its time, and the number of
    /// responses so far.
    open: VecDeque<(RequestId, Instant, usize)>,
    /// The responses that a member will send over its DTLS sessions.
    waiting: Vec<Waiting>,
    /// True if this member has derived the key for its responses to node 0.
    has_key: bool,
    alarm: Option<Instant>,
    instructions: u64,
}

type Features<const MEMBERS: usize> =
    Parts<(), (), (), (), (), LeisureArray<2, DATAGRAM>, GroupRequestArray<OPEN, MEMBERS>, GroupArray<1, 1, MEMBERS>>;

/// The state that node 0 has for a member.
struct Asked {
    address: Address,
    session: Option<PeerId>,
    /// True if node 0 has derived the key with which this member protects its responses.
    has_key: bool,
}

/// The current step of node 0 in the work on its oldest request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    /// Node 0 opens a session with the member at this index of the list of members.
    Opens(usize),
    /// Node 0 has opened all sessions that could be opened. Next it sends the request.
    Ready,
    /// Node 0 waits for the response of the member at this index to this request.
    Asks(usize, RequestId),
}

/// A response that a member will send over its DTLS session.
struct Waiting {
    at: Instant,
    to: Address,
    token: Vec<u8>,
}

impl<const PEERS: usize, const MEMBERS: usize> GroupNode<PEERS, MEMBERS> {
    /// Creates a node. For node 0, `members` contains the addresses of the members. For every other node it is empty.
    pub fn new(seed: u64, number: usize, setup: Setup, asking: Asking, members: &[Address]) -> Self {
        let crypto = Compact::new(Stream::new(seed, number, Purpose::Crypto).seed());
        let mut environment = Environment::new(crypto);
        let config = Config { profile: setup.profile, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(START), PeerArray::new(), config);
        let mut groups = GroupArray::default();
        if setup.protection.is_in_group() {
            let member = join(&mut environment.crypto, setup, asking, number == 0);
            groups.join(member, Principal(1)).expect("the first group");
        }
        let features = Parts {
            queue: (),
            pacing: (),
            oscore: (),
            observers: (),
            bodies: (),
            leisure: LeisureArray::new(asking.leisure),
            group_requests: GroupRequestArray::default(),
            groups,
        };
        let asked = |address: &Address| Asked { address: *address, session: None, has_key: false };
        Self {
            setup,
            asking,
            node: node::Node::with_features(endpoint, Fixed, features),
            environment,
            application: Application::new(setup),
            random: Stream::new(seed, number, Purpose::Messages),
            members: members.iter().map(asked).collect(),
            made: VecDeque::new(),
            step: Step::Idle,
            round: (START, 0),
            has_connected: false,
            open: VecDeque::new(),
            waiting: Vec::new(),
            has_key: false,
            alarm: None,
            instructions: 0,
        }
    }
}

impl<const PEERS: usize, const MEMBERS: usize> GroupNode<PEERS, MEMBERS> {
    fn path_to(&self, remote: Address) -> Path {
        Path { local: self.setup.local, remote }
    }

    /// Begins the work on the oldest waiting request. Does nothing if no request waits, or if the work on another
    /// request has not ended.
    fn begin(&mut self, now: Instant) {
        if self.step == Step::Idle && !self.made.is_empty() {
            self.has_connected = false;
            self.connect(now, 0);
        }
    }

    /// Opens a session with the next member that needs a session. The search begins with the member at the index
    /// `from`.
    fn connect(&mut self, now: Instant, from: usize) {
        let needs_session = self.setup.protection.has_sessions();
        for place in from..self.members.len() {
            let Asked { address, session, .. } = self.members[place];
            if needs_session && session.is_none() {
                let path = self.path_to(address);
                if self.node.endpoint.connect(&mut self.environment.at(now), &path).is_ok() {
                    self.step = Step::Opens(place);
                    return;
                }
            }
        }
        self.step = Step::Ready;
    }

    /// Sends the oldest waiting request to all members at once, or a separate request to the first member.
    fn ask(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let Some(made) = self.made.pop_front() else { return };
        if self.asking.each {
            self.round = (made, 0);
            return self.ask_next(now, 0, wishes);
        }
        self.ask_group(now, made, wishes);
        self.step = Step::Idle;
        self.begin(now);
    }

    /// Sends a separate request to the next member to which node 0 can send. The search begins with the member at the
    /// index `from`.
    fn ask_next(&mut self, now: Instant, from: usize, wishes: &mut Vec<Wish>) {
        for place in from..self.members.len() {
            let Asked { address, session, .. } = self.members[place];
            let path = self.path_to(address);
            let cx = &mut self.environment.at(now);
            let peer = match self.setup.protection.has_sessions() {
                true => session,
                false => self.node.endpoint.plain(cx, &path, Rank::Ours).ok(),
            };
            let token = [self.random.below(256) as u8];
            let mut out = [0; DATAGRAM];
            let payload = &[0x42; MESSAGE][..self.setup.payload];
            let Some(exchanges) = peer.and_then(|peer| self.node.endpoint.peers.attached(peer)) else { continue };
            let first = self.random.below(1 << 16) as u16;
            exchanges.0.get_or_insert_with(|| Box::new(Exchanges::new(first)));
            let head = RequestHead::new(Code::PUT).with_token(&token);
            let write = |message: &mut Builder<'_, '_>| write_request(message, payload);
            let peer = peer.expect("a peer with exchanges");
            if let Ok((request, len)) = self.node.request(cx, peer, head, write, &mut out) {
                self.step = Step::Asks(place, request);
                self.instructions += self.setup.costs.build + self.setup.costs.keep;
                return self.send(address, &out[..len], wishes);
            }
        }
        if self.round.1 == self.members.len() {
            wishes.push(Wish::Noted(Milestone::Answered));
        }
        self.step = Step::Idle;
        self.begin(now);
    }

    /// Sends one request to the address of the group.
    fn ask_group(&mut self, now: Instant, made: Instant, wishes: &mut Vec<Wish>) {
        if self.open.len() == OPEN
            && let Some((oldest, ..)) = self.open.pop_front()
        {
            self.node.features.group_requests.close(oldest);
        }
        let until = now.after(self.asking.leisure).after(AFTER_LEISURE);
        let payload = &[0x42; MESSAGE][..self.setup.payload];
        let write = |message: &mut Builder<'_, '_>| write_request(message, payload);
        let mut out = [0; DATAGRAM];
        let to = group_address(self.setup.local.port);
        let cx = &mut self.environment.at(now);
        let asked = match self.setup.protection.is_in_group() {
            true => self.node.request_protected_group(cx, &to, until, Code::PUT, write, &mut out),
            false => self.node.request_group(cx, until, Code::PUT, write, &mut out),
        };
        if let Ok((request, len)) = asked {
            self.open.push_back((request, made, 0));
            self.instructions += self.setup.costs.build;
            self.send(to, &out[..len], wishes);
        }
    }

    /// Passes a datagram to the simulation, and counts the instructions that the protection of the datagram needs.
    fn send(&mut self, to: Address, datagram: &[u8], wishes: &mut Vec<Wish>) {
        let is_to_group = to.ip[0] == 0xff;
        if let Some(content) = self.content_len(datagram, is_to_group || !self.setup.protection.has_sessions()) {
            self.instructions += self.setup.costs.seal_of(content);
        }
        wishes.push(Wish::Send { to, datagram: datagram.to_vec() });
    }

    /// Returns the length of the content if the datagram is a record with application data. `is_of_group` is true for a
    /// record that is protected with keys of the group. Returns `None` for any other datagram.
    fn content_len(&self, datagram: &[u8], is_of_group: bool) -> Option<usize> {
        let is_protected = self.setup.protection != Protection::Coap;
        let longer = if is_of_group && self.asking.suite == Suite::Ccm { 8 } else { 0 };
        let around = record::OVERHEAD + longer;
        let is_record = is_protected && datagram.first() == Some(&APPLICATION_DATA);
        is_record.then(|| datagram.len().saturating_sub(around))
    }

    /// Counts the instructions of the last call of the CoAP node, and reports the responses that the node received.
    fn settle(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let costs = self.setup.costs;
        for _ in 0..std::mem::take(&mut self.application.served) {
            self.instructions += costs.serve;
            wishes.push(Wish::Served);
        }
        while let Some((request, from)) = self.application.heard.pop_front() {
            self.instructions += costs.hear;
            let Some(open) = self.open.iter_mut().find(|(open, ..)| *open == request) else { continue };
            open.2 += 1;
            let (made, is_last) = (open.1, open.2 == self.members.len());
            wishes.push(Wish::Heard { made, member: from });
            let member = self.members.iter_mut().find(|member| member.address == from);
            if let Some(member) = member.filter(|member| self.setup.protection == Protection::Axiom && !member.has_key)
            {
                // The core derives the key twice: first to open the response, and then to store the key with the state
                // of the member.
                self.instructions += 2 * costs.derive;
                member.has_key = true;
            }
            if is_last {
                wishes.push(Wish::Noted(Milestone::Answered));
            }
        }
        while let Some((request, is_answered)) = self.application.replies.pop_front() {
            let Step::Asks(place, asked) = self.step else { continue };
            if asked != request {
                continue;
            }
            if is_answered {
                self.instructions += costs.hear;
                self.round.1 += 1;
                wishes.push(Wish::Heard { made: self.round.0, member: self.members[place].address });
            } else {
                wishes.push(Wish::GivenUp);
            }
            self.ask_next(now, place + 1, wishes);
        }
    }

    fn on(&mut self, now: Instant, event: Event, wishes: &mut Vec<Wish>) {
        match event {
            Event::Need(id) => {
                let answer = Answer::Psk { identity: IDENTITY, key: KEY, principal: Principal(1) };
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on(now, event, wishes);
                }
            }
            Event::Established(id) => {
                wishes.push(Wish::Established);
                let Some(remote) = self.node.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
                let Some(place) = self.members.iter().position(|member| member.address == remote) else { return };
                self.members[place].session = Some(id);
                self.has_connected = true;
                wishes.push(Wish::Noted(Milestone::Opened));
                self.continue_after(now, place, wishes);
            }
            Event::Closed { peer, .. } => {
                let remote = self.node.endpoint.peers.peer(peer).map(|peer| peer.path().remote);
                for place in 0..self.members.len() {
                    let member = &mut self.members[place];
                    if member.session == Some(peer) {
                        member.session = None;
                    } else if Some(member.address) == remote {
                        // The handshake with this member failed.
                        self.continue_after(now, place, wishes);
                    }
                }
            }
            // `self.node` handles messages and alarms itself. No peer has a connection id, so the address of a peer
            // never changes.
            Event::Answer { .. }
            | Event::Transmit { .. }
            | Event::Message { .. }
            | Event::Alarm(_)
            | Event::Moved(_) => {}
        }
    }

    /// Opens the next session, after the handshake with the member at the index `place` has ended.
    fn continue_after(&mut self, now: Instant, place: usize, wishes: &mut Vec<Wish>) {
        if self.step == Step::Opens(place) {
            self.connect(now, place + 1);
            if self.step == Step::Ready && self.has_connected {
                wishes.push(Wish::Noted(Milestone::Connected));
            }
        }
    }

    /// Processes the records in a datagram that was sent only to this node.
    fn take_records(&mut self, now: Instant, path: &Path, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let mut records = Records::new(datagram);
        loop {
            let mut out = [0; DATAGRAM];
            let cx = &mut self.environment.at(now);
            // A member answers a request to the group over its session. This response does not belong to the CoAP
            // exchanges of the session.
            let is_asked_over_group = self.setup.protection == Protection::AxiomDtls && !self.members.is_empty();
            let event = match is_asked_over_group {
                true => self.node.endpoint.handle(cx, path, &mut records, &mut out),
                false => self.node.handle(cx, path, &mut records, &mut self.application, &mut out),
            };
            match event {
                None => break,
                Some(Event::Answer { len }) => {
                    let costs = self.setup.protection.handshake(&self.setup.costs.handshakes, false, false);
                    self.instructions += costs.answer;
                    self.send(path.remote, &out[..len.into()], wishes);
                }
                Some(Event::Transmit { len, .. }) => self.send(path.remote, &out[..len.into()], wishes),
                Some(Event::Message { bytes, .. }) => self.hear(now, path.remote, records.bytes(bytes)),
                Some(event) => self.on(now, event, wishes),
            }
            self.settle(now, wishes);
        }
    }

    /// Processes a member's response that arrived in a DTLS session.
    fn hear(&mut self, now: Instant, from: Address, message: &[u8]) {
        let Ok(response) = MessageRef::parse(message) else { return };
        let requests = &mut self.node.features.group_requests;
        let Some(request) = requests.find(now, |_, token| token.as_bytes() == response.token()) else { return };
        if response.code().is_success() && requests.note(request, &from, (None, now)) == Ok(true) {
            self.application.heard.push_back((request, from));
        }
    }

    /// Sends the responses that are due, each in the DTLS session with node 0.
    fn send_waiting(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        while let Some(place) = self.waiting.iter().position(|waiting| waiting.at <= now) {
            let Waiting { to, token, .. } = self.waiting.remove(place);
            let path = self.path_to(to);
            let Some(session) = self.node.endpoint.peers.find(&path, Phase::Established) else { continue };
            let (mut storage, id) = ([0; DATAGRAM], self.random.below(1 << 16) as u16);
            let mut frame = Frame::new(&mut storage, HEADROOM);
            let payload = &[0x24; MESSAGE][..self.setup.response];
            let built = Builder::new(&mut frame, MessageType::NonConfirmable, Code::CHANGED, id, &token)
                .and_then(|mut message| if payload.is_empty() { Ok(()) } else { message.payload(payload) });
            let cx = &mut self.environment.at(now);
            if built.is_ok() && self.node.endpoint.seal(cx, session, &mut frame).is_ok() {
                let datagram = frame.bytes().to_vec();
                self.send(to, &datagram, wishes);
            }
        }
    }

    /// Sends everything that is due: handshake flights, retransmissions and responses. Does not send the next request.
    fn send_due(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let mut flights = false;
        let mut out = [0; DATAGRAM];
        while self.node.endpoint.next_alarm().is_some_and(|alarm| alarm <= now) {
            let event = self.node.poll(&mut self.environment.at(now), &mut self.application, &mut out);
            match event {
                None => break,
                Some(Event::Transmit { peer, len }) => {
                    let datagram = &out[..len.into()];
                    if let Some(to) = self.node.path(peer).map(|path| path.remote) {
                        flights |= is_handshake(datagram);
                        self.send(to, datagram, wishes);
                    }
                }
                Some(event) => self.on(now, event, wishes),
            }
            self.settle(now, wishes);
        }
        self.settle(now, wishes);
        if flights {
            let is_client = !self.members.is_empty();
            self.instructions += self.setup.protection.handshake(&self.setup.costs.handshakes, is_client, false).flight;
        }
        self.send_waiting(now, wishes);
        let waiting = self.waiting.iter().map(|waiting| waiting.at).min();
        let ready = (self.step == Step::Ready).then_some(now);
        self.alarm = [self.node.endpoint.next_alarm(), waiting, ready].into_iter().flatten().min();
    }
}

impl<const PEERS: usize, const MEMBERS: usize> Mote for GroupNode<PEERS, MEMBERS> {
    fn read(&mut self, now: Instant, _: Address, wishes: &mut Vec<Wish>) {
        wishes.push(Wish::Noted(Milestone::Asked));
        self.made.push_back(now);
        self.begin(now);
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let path = self.path_to(from);
        let content = self.content_len(datagram, !self.setup.protection.has_sessions());
        let before = dropped(&self.environment.counters);
        if self.setup.protection == Protection::Coap {
            let mut out = [0; DATAGRAM];
            let cx = &mut self.environment.at(now);
            let event = self.node.handle_plain(cx, &path, datagram, &mut self.application, &mut out);
            self.settle(now, wishes);
            if let Some(Event::Transmit { len, .. } | Event::Answer { len }) = event {
                self.send(from, &out[..len.into()], wishes);
            }
        } else {
            self.take_records(now, &path, datagram, wishes);
        }
        if let Some(content) = content.filter(|_| before == dropped(&self.environment.counters)) {
            self.instructions += self.setup.costs.open_of(content);
        }
        self.send_due(now, wishes);
    }

    fn receive_group(&mut self, now: Instant, path: &Path, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let (content, before) = (self.content_len(datagram, true), dropped(&self.environment.counters));
        let mut out = [0; DATAGRAM];
        let cx = &mut self.environment.at(now);
        match self.setup.protection.is_in_group() {
            true => self.node.handle_protected_group(cx, path, datagram, &mut self.application, &mut out),
            false => self.node.handle_group(cx, path, datagram, &mut self.application, &mut out),
        }
        if let Some(content) = content.filter(|_| before == dropped(&self.environment.counters)) {
            self.instructions += self.setup.costs.open_of(content);
            if self.setup.protection == Protection::Axiom && !std::mem::replace(&mut self.has_key, true) {
                self.instructions += self.setup.costs.derive;
            }
        }
        for token in std::mem::take(&mut self.application.deferred) {
            let leisure = self.asking.leisure.as_micros() as u64;
            let at = now.after(Duration::from_micros(self.random.below(leisure + 1)));
            self.waiting.push(Waiting { at, to: path.remote, token });
        }
        self.send_due(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        self.send_due(now, wishes);
        if self.step == Step::Ready {
            self.ask(now, wishes);
            self.send_due(now, wishes);
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn take_instructions(&mut self) -> u64 {
        std::mem::take(&mut self.instructions)
    }

    // The nodes of a group neither restart nor change their addresses.
    fn reboot(&mut self, _: Instant) {}
    fn forget(&mut self, _: usize) {}
    fn moved(&mut self, _: Instant, _: Address, _: Address, _: &mut Vec<Wish>) {}
}

/// Makes the membership of a node in the group. Every member except node 0 already knows node 0 as a sender whose
/// requests begin with the number 0.
fn join<const MEMBERS: usize>(crypto: &mut Compact, setup: Setup, asking: Asking, asks: bool) -> Member<1, MEMBERS> {
    let association = Association {
        group_id: 1,
        group: group_address(setup.local.port),
        suite: asking.suite,
        epoch: 1,
        senders: 4,
        sender_id: asks.then_some(SENDER),
        address: setup.local.ip,
        master_secret: &[7; 48],
        client_random: &[8; 32],
        server_random: &[9; 32],
    };
    let mut member = Member::new(crypto, &association, &Kept::default()).expect("a suite of the provider");
    member.extend(&member.reserve(1 << 20, 1 << 20));
    if !asks {
        member.know_sender::<Compact>(SENDER, 0).expect("space for one sender");
    }
    member
}

fn write_request(message: &mut Builder<'_, '_>, payload: &[u8]) -> Result<(), tegmen::coap::BuildError> {
    message.path(RESOURCE)?;
    if payload.is_empty() { Ok(()) } else { message.payload(payload) }
}

/// Returns the group address of all CoAP nodes of the site (RFC 7252, section 12.8), with this port.
const fn group_address(port: u16) -> Address {
    Address { ip: [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd], port, scope: 0 }
}

/// Returns true if the datagram is a flight of a DTLS handshake: its first record has the content type handshake or
/// change_cipher_spec (RFC 5246, section 6.2.1).
pub(crate) const fn is_handshake(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(20 | 22))
}

/// Number of handshakes for which the table of peers has memory. This is enough, because node 0 performs only one
/// handshake at a time, and all other nodes perform handshakes only with node 0.
const HANDSHAKES: usize = 2;
/// The SenderID of node 0.
const SENDER: u8 = 0;
/// Maximum number of requests to the group that wait for responses at the same time.
const OPEN: usize = 2;
/// Time for which node 0 still accepts responses after the members' maximum waiting time.
const AFTER_LEISURE: Duration = Duration::from_secs(30);
const START: Instant = Instant::from_micros(1);

#[cfg(test)]
mod tests;
