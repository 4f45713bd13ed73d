//! A client and a server in one process. Each end immediately receives the datagrams that the other end sends.

use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Code, Exchanges, Fixed, Handler, Response};
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Answer, ClientOnly, Config, Extended, Need, Records, Roles, ServerOnly};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{Application, Node};
use tegmen::time::Instant;
use tegmen_host::provider::HostCrypto;

type Table = PeerArray<Exchanges<Fixed<1, 64, 32, 512>>, 2, 1, 255, 512>;

struct End<N> {
    node: N,
    crypto: HostCrypto,
    counters: Counters,
    path: Path,
    session: Option<PeerId>,
}

/// Both ends.
pub(crate) struct Pair {
    client: End<Endpoint<Table, Extended<ClientOnly>>>,
    server: End<Node<Table, Extended<ServerOnly>>>,
}

struct Thermometer;

impl Handler for Thermometer {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is("temp") {
            return Err(Code::NOT_FOUND);
        }
        response.set_code(Code::CONTENT);
        response.payload(b"21.5")
    }
}

struct App(Thermometer);

impl Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, &mut self.0))
    }
}

const NOW: Instant = Instant::from_micros(1_000_000);
const KEY: &[u8] = b"0123456789abcdef";
const PRINCIPAL: Principal = Principal(7);

impl<N> End<N> {
    fn new(seed: u8, ports: [u16; 2], node: impl FnOnce(&mut Cx<'_, HostCrypto>) -> N) -> Self {
        let (mut crypto, mut counters) = (HostCrypto::new([seed; 32], 16), Counters::default());
        let node = node(&mut Cx { now: NOW, crypto: &mut crypto, counters: &mut counters });
        let [local, remote] = ports.map(|port| Address { ip: [1; 16], port, scope: 0 });
        Self { node, crypto, counters, path: Path { local, remote }, session: None }
    }
}

/// Gives an endpoint the pre-shared key that its handshake requests. Refuses any other request of the handshake.
fn answer<R: Roles>(cx: &mut Cx<'_, HostCrypto>, endpoint: &mut Endpoint<Table, R>, id: PeerId) -> Option<Event> {
    let identity: &[u8] = match endpoint.need(id)? {
        Need::PskForServer { .. } => b"sensor-17",
        Need::PskOfClient { identity: b"sensor-17" } => &[],
        _ => return endpoint.resume(cx, id, Answer::Unknown),
    };
    endpoint.resume(cx, id, Answer::Psk { identity, key: KEY, principal: PRINCIPAL })
}

/// Processes a datagram, if there is one. Returns the next datagram that the end sends.
fn step<R: Roles>(
    endpoint: &mut Endpoint<Table, R>,
    (crypto, counters): (&mut HostCrypto, &mut Counters),
    path: &Path,
    session: &mut Option<PeerId>,
    datagram: Option<&mut [u8]>,
    out: &mut [u8],
) -> usize {
    let cx = &mut Cx { now: NOW, crypto, counters };
    if let Some(datagram) = datagram {
        let mut records = Records::new(datagram);
        while let Some(mut event) = endpoint.handle(cx, path, &mut records, out) {
            if let Event::Need(id) = event {
                match answer(cx, endpoint, id) {
                    Some(next) => event = next,
                    None => continue,
                }
            }
            match event {
                Event::Answer { len } => return len.into(),
                Event::Established(id) => *session = Some(id),
                event => panic!("{event:?}"),
            }
        }
    }
    match endpoint.poll(cx, out) {
        Some(Event::Transmit { len, .. }) => len.into(),
        _ => 0,
    }
}

impl Pair {
    pub(crate) fn new(seed: u8) -> Self {
        let client = End::new(seed, [1, 2], |cx| Endpoint::new(cx, Table::new(), Config::default()));
        let server = End::new(!seed, [2, 1], |cx| Node::new(Endpoint::new(cx, Table::new(), Config::default()), Fixed));
        Self { client, server }
    }

    pub(crate) fn handshake(&mut self) {
        let Self { client, server } = self;
        let cx = &mut Cx { now: NOW, crypto: &mut client.crypto, counters: &mut client.counters };
        client.node.connect(cx, &client.path).expect("a place");
        let (mut there, mut back) = ([0; 1500], [0; 1500]);
        let mut answered = 0;
        while client.session.is_none() || server.session.is_none() {
            let received = (answered > 0).then(|| &mut back[..answered]);
            let with = (&mut client.crypto, &mut client.counters);
            let len = step(&mut client.node, with, &client.path, &mut client.session, received, &mut there);
            if len == 0 {
                break;
            }
            let with = (&mut server.crypto, &mut server.counters);
            let received = Some(&mut there[..len]);
            answered = step(&mut server.node.endpoint, with, &server.path, &mut server.session, received, &mut back);
        }
        assert!(client.session.is_some() && server.session.is_some());
    }

    /// Makes a protected datagram with a confirmable GET for /temp.
    pub(crate) fn request(&mut self, message_id: u16) -> Vec<u8> {
        let [high, low] = message_id.to_be_bytes();
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(&[0x41, 1, high, low, 7, 0xb4, b't', b'e', b'm', b'p']).expect("space for it");
        let End { node, crypto, counters, session, .. } = &mut self.client;
        let mut cx = Cx { now: NOW, crypto, counters };
        node.seal(&mut cx, session.expect("a session"), &mut frame).expect("space for a tag");
        frame.finish().to_vec()
    }

    /// Lets the server process a request. Writes its response into `out`, and returns the length of the response.
    pub(crate) fn answer(&mut self, request: &mut [u8], out: &mut [u8]) -> usize {
        let End { node, crypto, counters, path, .. } = &mut self.server;
        let mut cx = Cx { now: NOW, crypto, counters };
        let mut records = Records::new(request);
        let mut answered = 0;
        while let Some(event) = node.handle(&mut cx, path, &mut records, &mut App(Thermometer), out) {
            let Event::Transmit { len, .. } = event else { panic!("{event:?}") };
            answered = len.into();
        }
        answered
    }

    /// Lets the client process the response, which must be a 2.05 Content.
    pub(crate) fn expect_content(&mut self, datagram: &mut [u8]) {
        let End { node, crypto, counters, path, .. } = &mut self.client;
        let mut cx = Cx { now: NOW, crypto, counters };
        let mut records = Records::new(datagram);
        let event = node.handle(&mut cx, path, &mut records, &mut []);
        let Some(Event::Message { bytes, .. }) = event else { panic!("{event:?}") };
        let message = records.bytes(bytes);
        assert!(message[1] == Code::CONTENT.0 && message.ends_with(b"21.5"));
    }
}
