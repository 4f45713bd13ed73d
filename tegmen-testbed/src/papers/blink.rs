//! The plan `blink-bytes`: the bytes of a Blink exchange and its handshake, compared with the paper.
//!
//! A real client and a real server exchange datagrams in this process. The plan measures the UDP payload of every
//! datagram under two profiles: the minimal profile, as in the paper, and the default profile of Tegmen. For the
//! default profile it reads the length of each extension from the ClientHello and the ServerHello. The figures of the
//! paper are in `plans/blink-bytes.toml`.

pub mod paper;

use crate::figure::Figure;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Code, Exchanges, Fixed, Handler, OptionNumber, RequestId, Response};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Config, Profile, Rank, Records};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{Application, Node, Reply, RequestHead};
use tegmen::time::Instant;

/// One row of the comparison with the paper.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    /// The name of the compared value.
    id: String,
    /// The value that the paper prints; `None` if the paper prints no value.
    paper: Option<u64>,
    /// The value that was measured with Tegmen.
    ours: u64,
    /// The unit of the values.
    unit: String,
}

impl Row {
    fn new(id: String, paper: Option<u64>, ours: u64, unit: String) -> Self {
        Self { id, paper, ours, unit }
    }
}

/// Measures all rows of the plan. The rows of tables II and III of the paper come first, and then the additional bytes
/// of the default profile.
fn blink_bytes() -> Vec<Row> {
    let plan = plan();
    let minimal = Run::new(Profile::Minimal);
    let default = Run::new(Profile::Default);
    let measured = minimal.lengths();

    let table = |name, figures: &Figures| {
        let rows = ORDER.iter().filter_map(|id| figures.get(*id).map(|paper| (id, *paper)));
        rows.map(|(id, paper)| {
            let ours = measured.get(*id).copied().unwrap_or(0);
            Row::new(format!("{name}/{id}"), Some(paper), ours, plan.unit.clone())
        })
        .collect::<Vec<_>>()
    };
    let mut rows = table("table2", &plan.table2);
    rows.extend(table("table3", &plan.table3));

    let mut add = |id: &str, ours: usize, unit: &str| {
        rows.push(Row::new(id.into(), None, ours as u64, unit.into()));
    };
    for (profile, run) in [("minimal", &minimal), ("default", &default)] {
        let bytes = run.handshake.iter().map(|sent| sent.bytes.len()).sum();
        add(&format!("{profile}/handshake"), bytes, &plan.unit);
        add(&format!("{profile}/handshake_datagrams"), run.handshake.len(), "datagrams");
    }
    for id in ORDER.iter().filter(|id| id.contains("hello")) {
        let ours = default.lengths().get(*id).copied().unwrap_or(0);
        add(&format!("default/{id}"), ours as usize, &plan.unit);
    }
    for hello in ["client_hello", "server_hello_and_done"] {
        let (with, without) = (default.find(hello), minimal.find(hello));
        for (part, bytes) in costs(with) {
            add(&format!("default/{hello}/{part}"), bytes, &plan.unit);
        }
        add(&format!("default/{hello}/all_extensions"), with.len().saturating_sub(without.len()), &plan.unit);
    }
    rows
}

/// Returns all figures of the plan `blink-bytes`.
pub fn figures() -> Vec<Figure> {
    let figure = |row: Row| {
        let (id, ours) = (row.id, row.ours as f64);
        let figure = match row.paper {
            Some(paper) => Figure::equal(id, paper as f64, ours, ""),
            None => Figure::shown(id, None, ours, "", "the paper has no such profile or does not print it"),
        };
        Figure { unit: row.unit.into(), ..figure }
    };
    blink_bytes().into_iter().map(figure).collect()
}

/// The figures of a table. The key is the name of the row.
type Figures = BTreeMap<String, u64>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    #[expect(dead_code, reason = "is in the file for its readers")]
    paper: String,
    unit: String,
    table2: Figures,
    table3: Figures,
}

fn plan() -> Plan {
    toml::from_str(include_str!("../../plans/blink-bytes.toml"))
        .expect("the plan is part of the program, and a test reads it")
}

/// The names of the datagrams in tables II and III, in the order in which they are sent.
const ORDER: [&str; 13] = [
    "unsecured_request",
    "unsecured_response",
    "secured_request",
    "secured_response",
    "client_hello",
    "hello_verify_request",
    "client_hello_with_cookie",
    "server_hello_and_done",
    "client_key_exchange",
    "client_change_cipher_spec",
    "client_finished",
    "server_change_cipher_spec",
    "server_finished",
];

/// A datagram, and its sender (client or server).
pub(crate) struct Sent {
    pub(crate) by_client: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    /// Returns the name of this datagram in tables II and III of the paper; `None` if the tables do not contain it. The
    /// name follows from the first record of the datagram.
    fn name(&self) -> Option<&'static str> {
        let epoch = self.bytes.get(3..5)?;
        Some(match (self.bytes.first()?, epoch, self.bytes.get(13)?) {
            (22, [0, 0], 1) if self.bytes.get(CLIENT_HELLO_COOKIE_LEN) == Some(&0) => "client_hello",
            (22, [0, 0], 1) => "client_hello_with_cookie",
            (22, [0, 0], 2) => "server_hello_and_done",
            (22, [0, 0], 3) => "hello_verify_request",
            (22, [0, 0], 16) => "client_key_exchange",
            (20, [0, 0], _) if self.by_client => "client_change_cipher_spec",
            (20, [0, 0], _) => "server_change_cipher_spec",
            (22, [0, 1], _) if self.by_client => "client_finished",
            (22, [0, 1], _) => "server_finished",
            (23, [0, 1], _) if self.by_client => "secured_request",
            (23, [0, 1], _) => "secured_response",
            _ => return None,
        })
    }
}

/// Offset of the cookie length in a ClientHello. The header of the record, the header of the handshake message, the
/// version, the random and an empty session_id precede it.
const CLIENT_HELLO_COOKIE_LEN: usize = 13 + 12 + 2 + 32 + 1;

/// All datagrams that were sent with one profile.
struct Run {
    handshake: Vec<Sent>,
    secured: Vec<Sent>,
    unsecured: Vec<Sent>,
}

impl Run {
    fn new(profile: Profile) -> Self {
        let mut lab = Lab::new(profile);
        let session = lab.connect();
        let handshake = std::mem::take(&mut lab.sent);
        lab.blink(session);
        let secured = std::mem::take(&mut lab.sent);
        let path = plain(lab.client.path(lab.server.local));
        let plain = lab.client.node.endpoint.plain(&mut lab.client.environment.at(NOW), &path, Rank::Ours);
        lab.blink(plain.expect("a table with a free place"));
        Self { handshake, secured, unsecured: lab.sent }
    }

    fn lengths(&self) -> Figures {
        self.datagrams().into_iter().map(|(name, datagram)| (name.into(), datagram.len() as u64)).collect()
    }

    /// Returns every datagram that tables II and III of the paper contain. The key of the map is the name of the
    /// datagram.
    fn datagrams(&self) -> BTreeMap<&'static str, &[u8]> {
        let named = self.handshake.iter().chain(&self.secured);
        let named = named.filter_map(|sent| Some((sent.name()?, &sent.bytes[..])));
        let plain = ["unsecured_request", "unsecured_response"].into_iter();
        named.chain(plain.zip(self.unsecured.iter().map(|sent| &sent.bytes[..]))).collect()
    }

    /// Returns the handshake datagram with this name; empty if there is none.
    fn find(&self, name: &str) -> &[u8] {
        self.handshake.iter().find(|sent| sent.name() == Some(name)).map_or(&[], |sent| &sent.bytes)
    }
}

/// Returns the fields that a ClientHello or ServerHello has in addition to the minimal profile, with their lengths.
fn costs(hello: &[u8]) -> Vec<(&'static str, usize)> {
    read_costs(hello).unwrap_or_default()
}

fn read_costs(hello: &[u8]) -> Option<Vec<(&'static str, usize)>> {
    let length = |at: usize| Some(usize::from(u16::from_be_bytes(hello.get(at..at + 2)?.try_into().ok()?)));
    let mut found = Vec::new();
    let message_end = 13 + length(11)?;
    let mut at = CLIENT_HELLO_COOKIE_LEN;
    if *hello.get(13)? == 1 {
        at += 1 + usize::from(*hello.get(at)?);
        let suites = hello.get(at + 2..at + 2 + length(at)?)?;
        if suites.chunks(2).any(|suite| suite == [0x00, 0xff]) {
            found.push(("renegotiation_info_scsv", 2));
        }
        at += 2 + suites.len() + 2;
    } else {
        at += 2 + 1;
    }
    if at < message_end {
        found.push(("length_of_extensions", 2));
        at += 2;
    }
    while at < message_end {
        let name = match length(at)? {
            0x0017 => "extended_master_secret",
            0xff01 => "renegotiation_info",
            _ => "other_extension",
        };
        let bytes = 4 + length(at + 2)?;
        found.push((name, bytes));
        at += bytes;
    }
    Some(found)
}

/// A client and a server whose datagrams are delivered without losses.
pub(crate) struct Lab {
    client: End,
    server: End,
    /// All datagrams that client and server have sent, in order.
    pub(crate) sent: Vec<Sent>,
}

impl Lab {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { client: End::new(1, profile), server: End::new(2, profile), sent: Vec::new() }
    }

    pub(crate) fn connect(&mut self) -> PeerId {
        let path = self.client.path(self.server.local);
        let End { node, environment, .. } = &mut self.client;
        node.endpoint.connect(&mut environment.at(NOW), &path).expect("a table with a free place");
        self.deliver(VecDeque::new(), true);
        self.client.session.expect("a handshake without faults")
    }

    /// Seals a message as a record in the session. The client seals it if `by_client` is true, and otherwise the
    /// server.
    pub(crate) fn seal(&mut self, by_client: bool, message: &[u8]) -> Vec<u8> {
        let End { node, environment, session, .. } = if by_client { &mut self.client } else { &mut self.server };
        let session = session.expect("a session");
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(message).expect("room");
        node.endpoint.seal(&mut environment.at(NOW), session, &mut frame).expect("a session");
        frame.finish().to_vec()
    }

    /// Runs one exchange: the client sends PUT /blink, and the server answers with its counter.
    fn blink(&mut self, peer: PeerId) {
        let End { node, environment, session, blinks, .. } = &mut self.client;
        let (secured, before) = (*session == Some(peer), blinks.0);
        let mut out = [0; DATAGRAM];
        let asked = node.request(
            &mut environment.at(NOW),
            peer,
            RequestHead::new(Code::PUT).with_token(&[1]),
            |put| {
                put.option(OptionNumber::URI_PATH, b"blink")?;
                put.payload(&[1])
            },
            &mut out,
        );
        let (_, len) = asked.expect("no exchange is open");
        self.deliver(VecDeque::from([Sent { by_client: true, bytes: out[..len].to_vec() }]), secured);
        assert_eq!(self.client.blinks.0, before + 1, "every blink is answered");
    }

    /// Delivers the datagrams in `flying`, and all datagrams that client and server then send, until neither sends
    /// another datagram. `dtls` is true in a DTLS session.
    fn deliver(&mut self, mut flying: VecDeque<Sent>, dtls: bool) {
        loop {
            flying.extend(self.client.poll().into_iter().map(|bytes| Sent { by_client: true, bytes }));
            flying.extend(self.server.poll().into_iter().map(|bytes| Sent { by_client: false, bytes }));
            let Some(sent) = flying.pop_front() else { return };
            let (from, to) = match sent.by_client {
                true => (self.client.local, &mut self.server),
                false => (self.server.local, &mut self.client),
            };
            let answers = if dtls { to.receive(from, &sent.bytes) } else { to.receive_plain(from, &sent.bytes) };
            let by_client = !sent.by_client;
            self.sent.push(sent);
            flying.extend(answers.into_iter().map(|bytes| Sent { by_client, bytes }));
        }
    }
}

/// The client or the server of an exchange.
struct End {
    node: Node<PeerArray<Exchanges<Fixed<1, 64, 4, 64>>, 2, 1>, Both>,
    environment: Environment<RustCrypto>,
    local: Address,
    session: Option<PeerId>,
    counter: Counter,
    blinks: Blinks,
}

/// The number of answers that the client has received.
struct Blinks(usize);

/// The application of the client or of the server. It supports both roles: a client that sends requests, and a server
/// that answers them.
struct ClientAndServer<'e>(&'e mut Blinks, &'e mut Counter);

impl Application for ClientAndServer<'_> {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, &mut *self.1))
    }

    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        if let Reply::Response(response) = reply {
            assert_eq!(response.code(), Code::CHANGED);
            self.0.0 += 1;
        }
    }
}

impl End {
    fn new(last: u8, profile: Profile) -> Self {
        let mut environment = Environment::new(RustCrypto::new([last; 32]));
        let config = Config { profile, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(NOW), PeerArray::new(), config);
        Self {
            node: Node::new(endpoint, Fixed),
            environment,
            local: Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 },
            session: None,
            counter: Counter(0),
            blinks: Blinks(0),
        }
    }

    fn path(&self, remote: Address) -> Path {
        Path { local: self.local, remote }
    }

    fn poll(&mut self) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), [0; DATAGRAM]);
        loop {
            let Self { node, environment, blinks, counter, .. } = self;
            let application = &mut ClientAndServer(blinks, counter);
            let Some(event) = node.poll(&mut environment.at(NOW), application, &mut out) else { return sent };
            self.on(event, &out, &mut sent);
        }
    }

    fn receive(&mut self, from: Address, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut datagram = datagram.to_vec();
        let mut records = Records::new(&mut datagram);
        let path = self.path(from);
        let (mut sent, mut out) = (Vec::new(), [0; DATAGRAM]);
        loop {
            let Self { node, environment, blinks, counter, .. } = self;
            let application = &mut ClientAndServer(blinks, counter);
            let handled = node.handle(&mut environment.at(NOW), &path, &mut records, application, &mut out);
            let Some(event) = handled else { return sent };
            self.on(event, &out, &mut sent);
        }
    }

    fn receive_plain(&mut self, from: Address, datagram: &[u8]) -> Vec<Vec<u8>> {
        let path = plain(self.path(from));
        let (mut sent, mut out) = (Vec::new(), [0; DATAGRAM]);
        let Self { node, environment, blinks, counter, .. } = self;
        let application = &mut ClientAndServer(blinks, counter);
        let mut datagram = datagram.to_vec();
        let handled = node.handle_plain(&mut environment.at(NOW), &path, &mut datagram, application, &mut out);
        if let Some(event) = handled {
            self.on(event, &out, &mut sent);
        }
        sent
    }

    fn on(&mut self, event: Event, out: &[u8], sent: &mut Vec<Vec<u8>>) {
        match event {
            Event::Answer { len } | Event::Transmit { len, .. } => sent.push(out[..len.into()].to_vec()),
            Event::Established(id) => self.session = Some(id),
            Event::Need(id) => {
                let answer = Answer::Psk { identity: IDENTITY, key: KEY, principal: Principal(1) };
                let Self { node, environment, .. } = self;
                if let Some(event) = node.endpoint.resume(&mut environment.at(NOW), id, answer) {
                    self.on(event, out, sent);
                }
            }
            _ => {}
        }
    }
}

/// The number of received PUT requests for /blink. The server answers each request with this number.
struct Counter(u8);

impl Handler for Counter {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if !message.path_is("blink") || message.code() != Code::PUT {
            return Err(Code::NOT_FOUND);
        }
        self.0 = self.0.wrapping_add(1);
        response.set_code(Code::CHANGED);
        response.payload(&[self.0])
    }
}

/// Returns `path` with the port 5683 as local and as remote port, which is the port of CoAP without DTLS (RFC 7252,
/// section 6).
fn plain(path: Path) -> Path {
    let unsecured = |address| Address { port: 5683, ..address };
    Path { local: unsecured(path.local), remote: unsecured(path.remote) }
}

/// The time of every call. It never changes, so no datagram is retransmitted.
const NOW: Instant = Instant::from_micros(0);
const IDENTITY: &[u8] = b"Client_identity";
const KEY: &[u8] = b"0123456789abcdef";
const DATAGRAM: usize = 1280;

#[cfg(test)]
mod tests;
