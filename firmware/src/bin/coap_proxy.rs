//! A proxy with a cache (RFC 7252, section 5.7). The proxy forwards a request, stores its response and sends it to the
//! client. The stored response then answers a request of another client. Clients and origin are in the same image.
#![no_std]
#![no_main]

use core::convert::Infallible;
use core::hint::black_box;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, RequestId, Response,
};
use tegmen::cx::Environment;
use tegmen::dtls::{Config, Rank, ServerOnly};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::PeerId;
use tegmen::node::{self, DeferredRequest, Node, Reply};
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};
use tegmen_proxy::{Next, Proxy};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 5] = [
    Note::operation(FORWARD, "forward request"),
    Note::operation(PASS, "store and pass response"),
    Note::operation(STORED, "answer from cache"),
    Note::size("Proxy", size_of::<Forwarding>()),
    Note::size("peer", size_of::<Exchanges<Storage>>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the proxy forward the request of one client to the origin, pass on the response of the origin, and answer the
/// request of another client from its cache. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let mut environment = Environment::new(Provider::new([1; 32]));
    let (node, proxy) = (make_node(&mut environment)?, make_proxy()?);
    let mote = &mut Mote { node, environment, application: Application(proxy) };
    let Wire { there, back } = WIRE.take()?;
    let request = get(there, 1)?;
    let forwarded = measured(FORWARD, || mote.take_request(1, request, back))?;
    let (id, token) = {
        let message = MessageRef::parse(forwarded).ok()?;
        let is_whole = message.code() == Code::GET && message.path_is(PATH);
        let token: [u8; TOKEN] = message.token().try_into().ok()?;
        is_whole.then_some((message.message_id(), token))?
    };
    let answer = content(there, id, &token)?;
    let passed = measured(PASS, || mote.take_response(answer, back))?;
    is_reading(passed)?;
    let request = get(there, 2)?;
    let answered = measured(STORED, || mote.receive(2, request, back))?;
    is_reading(answered)
}

/// Makes the node. This is a separate function, so that the stack holds the node only while it is made.
#[inline(never)]
fn make_node(environment: &mut Environment<Provider>) -> Option<&'static mut ProxyNode> {
    NODE.fill(|| {
        let endpoint = Endpoint::new(&mut environment.at(NOW), PeerArray::new(), Config::default());
        Node::with_features(endpoint, Storage::default(), ())
    })
}

#[inline(never)]
fn make_proxy() -> Option<&'static mut Forwarding> {
    PROXY.fill(Forwarding::default)
}

/// The mote that is the proxy.
struct Mote {
    node: &'static mut ProxyNode,
    environment: Environment<Provider>,
    application: Application,
}

impl Mote {
    /// Processes a datagram, and writes the answer into `out`.
    #[inline(never)]
    fn receive<'o>(&mut self, from: u8, datagram: &mut [u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
        let path = Path { local: address(0), remote: address(from) };
        let cx = &mut self.environment.at(NOW);
        match self.node.handle_plain(cx, &path, datagram, &mut self.application, out)? {
            Event::Answer { len } | Event::Transmit { len, .. } => out.get(..usize::from(len)),
            _ => None,
        }
    }

    /// Processes a request of a client, and writes the forwarded request into `out`.
    #[inline(never)]
    fn take_request<'o>(&mut self, from: u8, datagram: &mut [u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
        // The acknowledgement.
        self.receive(from, datagram, out)?;
        let Self { node, environment, application: Application(proxy) } = self;
        let target = proxy.target()?;
        if target.host != HOST.as_bytes() {
            return None;
        }
        let path = Path { local: address(0), remote: address(ORIGIN) };
        let cx = &mut environment.at(NOW);
        let peer = node.endpoint.plain(cx, &path, Rank::Ours).ok()?;
        let len = proxy.forward(cx, node, Next { peer, is_origin: true, token: None }, out).ok()?;
        out.get(..len)
    }

    /// Processes a response of the origin, and writes the response for the client into `out`.
    #[inline(never)]
    fn take_response<'o>(&mut self, datagram: &mut [u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
        let nothing = self.receive(ORIGIN, datagram, out);
        if nothing.is_some() {
            return None;
        }
        let Self { node, environment, application: Application(proxy) } = self;
        let (client, len) = proxy.respond(&mut environment.at(NOW), node, out)?;
        let path = node.endpoint.peers.peer(client)?.path();
        (path.remote == address(1)).then_some(())?;
        out.get(..len)
    }
}

struct Application(&'static mut Forwarding);

impl Handler for Application {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.0.handle(NOW, request.message(), response)
    }

    fn acts_on(&self, _: &MessageRef<'_>, number: OptionNumber) -> bool {
        Forwarding::acts_on(number)
    }

    fn acts_on_blocks(&self, _: &MessageRef<'_>) -> bool {
        true
    }
}

impl node::Application for Application {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        self.0.on_deferred(request);
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        self.0.on_reply(NOW, (peer, request), &reply);
    }
}

/// Writes the GET of the client with the number `client` into `storage`.
#[inline(never)]
fn get(storage: &mut [u8; LONGEST], client: u8) -> Option<&mut [u8]> {
    let mut frame = Frame::new(storage, 0);
    let id = black_box(u16::from(client));
    let mut message = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, id, &[client]).ok()?;
    message.option(OptionNumber::URI_HOST, HOST.as_bytes()).ok()?;
    message.path(PATH).ok()?;
    message.option(OptionNumber::PROXY_SCHEME, b"coap").ok()?;
    let len = frame.len();
    storage.get_mut(..len)
}

/// Writes the response of the origin.
#[inline(never)]
fn content<'s>(storage: &'s mut [u8; LONGEST], id: u16, token: &[u8]) -> Option<&'s mut [u8]> {
    let mut frame = Frame::new(storage, 0);
    let mut message = Builder::new(&mut frame, MessageType::Acknowledgement, Code::CONTENT, id, token).ok()?;
    message.option(OptionNumber::ETAG, b"one").ok()?;
    message.uint(OptionNumber::MAX_AGE, black_box(30)).ok()?;
    message.payload(&READING).ok()?;
    let len = frame.len();
    storage.get_mut(..len)
}

fn is_reading(datagram: &[u8]) -> Option<()> {
    let message = MessageRef::parse(datagram).ok()?;
    let is_whole = message.code() == Code::CONTENT && message.payload() == READING;
    (is_whole && message.uint(OptionNumber::MAX_AGE) == Some(30)).then_some(())
}

/// Returns the address whose last byte is `last`: 0 for the proxy, [`ORIGIN`] for the origin, and another number for a
/// client.
const fn address(last: u8) -> Address {
    let mut ip = [0; 16];
    (ip[0], ip[15]) = (0xfd, last);
    Address { ip, port: 5683, scope: 0 }
}

/// The buffers for a datagram in each direction.
struct Wire {
    there: [u8; LONGEST],
    back: [u8; LONGEST],
}

const LONGEST: usize = 128;

/// The exchanges with a peer: one request under way, four remembered requests of the peer, and 64 bytes of replies.
type Storage = Fixed<1, LONGEST, 4, 64>;
type ProxyNode = Node<PeerArray<Exchanges<Storage>, 3, 1>, ServerOnly>;
/// The memory of the proxy. It has space for eight stored responses, of at most 64 bytes each with the cache key, and
/// for two requests that wait.
type Forwarding = Proxy<Infallible, 8, 64, 2, LONGEST>;

static NODE: Place<ProxyNode> = Place::empty();
static PROXY: Place<Forwarding> = Place::empty();
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; LONGEST], back: [0; LONGEST] });

const FORWARD: u32 = 0;
const PASS: u32 = 1;
const STORED: u32 = 2;

const ORIGIN: u8 = 9;
const HOST: &str = "lamp";
const PATH: &str = "sensors/temperature";
/// Length of the token that the node chooses for a request without protection, in bytes.
const TOKEN: usize = 8;
const READING: [u8; 2] = [0, 215];
/// The time of every call. No exchange of this image depends on the clock.
const NOW: Instant = Instant::from_micros(1_000_000);
