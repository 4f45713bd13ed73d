//! A proxy, and the datagrams that it sent.

#![allow(dead_code, reason = "each test uses a part of it")]

use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, RequestId, Response,
};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Rank};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::PeerId;
use tegmen::node::{self, DeferredRequest, Node, Reply};
use tegmen::time::{Duration, Instant};
use tegmen_proxy::{Next, Proxy};

pub(crate) type Storage = Fixed<4, 128, 8, 512>;
pub(crate) type Forwarding = Proxy<core::convert::Infallible, 3, 96, 3, 128>;
pub(crate) type Options<'a> = &'a [(OptionNumber, &'a [u8])];

#[derive(Default)]
pub(crate) struct App {
    pub(crate) proxy: Forwarding,
    pub(crate) now: Option<Instant>,
}

impl App {
    fn now(&self) -> Instant {
        self.now.unwrap_or(Instant::AT_ONCE)
    }
}

impl Handler for App {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.proxy.handle(self.now(), request.message(), response)
    }

    fn acts_on(&self, _: &MessageRef<'_>, number: OptionNumber) -> bool {
        Forwarding::acts_on(number)
    }

    fn acts_on_blocks(&self, _: &MessageRef<'_>) -> bool {
        true
    }
}

impl node::Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        self.proxy.on_deferred(request);
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        // A response that no client acknowledges ends with a reply, too.
        self.proxy.on_reply(self.now(), (peer, request), &reply);
    }
}

/// A node with the proxy, and the datagrams that it sent.
pub(crate) struct Scene {
    pub(crate) node: Node<PeerArray<Exchanges<Storage>, 6, 1>, Both>,
    pub(crate) environment: Environment<RustCrypto>,
    pub(crate) app: App,
    pub(crate) now: Instant,
    pub(crate) message_id: u16,
    pub(crate) sent: Vec<(Address, Vec<u8>)>,
}

/// The last byte of the address of the origin. Clients have other addresses.
pub(crate) const ORIGIN: u8 = 9;
pub(crate) const HOST: (OptionNumber, &[u8]) = (OptionNumber::URI_HOST, b"lamp");
pub(crate) const SCHEME: (OptionNumber, &[u8]) = (OptionNumber::PROXY_SCHEME, b"coap");
pub(crate) const PATH: (OptionNumber, &[u8]) = (OptionNumber::URI_PATH, b"temp");
pub(crate) const OTHER: (OptionNumber, &[u8]) = (OptionNumber::URI_PATH, b"mode");
pub(crate) const ETAG: (OptionNumber, &[u8]) = (OptionNumber::ETAG, b"one");
pub(crate) const AGE: (OptionNumber, &[u8]) = (OptionNumber::MAX_AGE, &[30]);
/// An option that is critical, unsafe to forward, and not registered.
pub(crate) const UNKNOWN: OptionNumber = OptionNumber(0x2fb);

pub(crate) const fn address(last: u8) -> Address {
    Address { ip: [last; 16], port: 5683, scope: 0 }
}

pub(crate) fn bytes(head: (MessageType, Code), id: u16, token: &[u8], options: Options<'_>, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, head.0, head.1, id, token).unwrap();
    let mut options = options.to_vec();
    options.sort_by_key(|(number, _)| *number);
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut environment = Environment::new(RustCrypto::new([7; 32]));
        let now = Instant::from_micros(1_000_000);
        let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
        let mut node = Node::with_features(endpoint, Storage::default(), ());
        node.set_nstart(4);
        Self { node, environment, app: App::default(), now, message_id: 0, sent: Vec::new() }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// Gives a datagram from the address `from` to the node with the proxy. Then lets the node send all datagrams that
    /// it has to send.
    pub(crate) fn give(&mut self, from: u8, mut datagram: Vec<u8>) {
        self.app.now = Some(self.now);
        let path = Path { local: address(1), remote: address(from) };
        let mut out = [0; 300];
        let cx = &mut self.environment.at(self.now);
        if let Some(Event::Answer { len } | Event::Transmit { len, .. }) =
            self.node.handle_plain(cx, &path, &mut datagram, &mut self.app, &mut out)
        {
            self.sent.push((address(from), out[..usize::from(len)].to_vec()));
        }
        self.send();
    }

    pub(crate) fn send(&mut self) {
        let mut out = [0; 300];
        while let Some(target) = self.app.proxy.target() {
            if target.host != b"lamp" {
                self.app.proxy.refuse(Code::BAD_GATEWAY);
                continue;
            }
            let path = Path { local: address(1), remote: address(ORIGIN) };
            let cx = &mut self.environment.at(self.now);
            let peer = self.node.endpoint.plain(cx, &path, Rank::Ours).unwrap();
            let next = Next { peer, is_origin: true, token: None };
            let len = self.app.proxy.forward(cx, &mut self.node, next, &mut out).unwrap();
            self.sent.push((address(ORIGIN), out[..len].to_vec()));
        }
        while let Some((client, len)) =
            self.app.proxy.respond(&mut self.environment.at(self.now), &mut self.node, &mut out)
        {
            let to = self.node.endpoint.peers.peer(client).unwrap().path().remote;
            self.sent.push((to, out[..len].to_vec()));
        }
    }

    /// Sends a request of a client. The token of the request is the number of the client.
    pub(crate) fn ask(&mut self, client: u8, code: Code, options: Options<'_>, payload: &[u8]) {
        self.message_id += 1;
        let request = bytes(
            (MessageType::NonConfirmable, code),
            self.message_id,
            &[client],
            &[&[HOST, SCHEME], options].concat(),
            payload,
        );
        self.give(client, request);
    }

    /// Returns the requests that arrived at the origin since the last call.
    pub(crate) fn at_origin(&mut self) -> Vec<Vec<u8>> {
        let (there, others) = std::mem::take(&mut self.sent).into_iter().partition(|(to, _)| *to == address(ORIGIN));
        self.sent = others;
        let there: Vec<(Address, Vec<u8>)> = there;
        there
            .into_iter()
            .map(|(_, datagram)| datagram)
            .filter(|datagram| MessageRef::parse(datagram).unwrap().code().is_request())
            .collect()
    }

    /// Returns the request that arrived at the origin. Panics unless there is exactly one.
    pub(crate) fn one_at_origin(&mut self) -> Vec<u8> {
        let requests = self.at_origin();
        assert_eq!(requests.len(), 1, "one request at the origin");
        requests.into_iter().next().unwrap()
    }

    /// Lets the origin answer a request.
    pub(crate) fn answer(&mut self, request: &[u8], code: Code, options: Options<'_>, payload: &[u8]) {
        let request = MessageRef::parse(request).unwrap();
        let head = (MessageType::Acknowledgement, code);
        self.give(ORIGIN, bytes(head, request.message_id(), request.token(), options, payload));
    }

    /// Returns the response that a client received: its code, its Max-Age, and its payload.
    pub(crate) fn heard(&mut self, client: u8) -> (Code, Option<u32>, Vec<u8>) {
        let at = self.sent.iter().position(|(to, datagram)| {
            *to == address(client) && MessageRef::parse(datagram).unwrap().code().is_response()
        });
        let (_, datagram) = self.sent.remove(at.expect("a response"));
        let response = MessageRef::parse(&datagram).unwrap();
        assert_eq!(response.token(), [client]);
        (response.code(), response.uint(OptionNumber::MAX_AGE), response.payload().to_vec())
    }

    /// Sends a request of a client, and lets the origin answer with 2.05. Checks that the client receives this payload.
    pub(crate) fn fetch(&mut self, client: u8, options: Options<'_>, payload: &[u8]) {
        self.ask(client, Code::GET, &[PATH], b"");
        let request = self.one_at_origin();
        self.answer(&request, Code::CONTENT, options, payload);
        assert_eq!(self.heard(client).2, payload);
    }
}
