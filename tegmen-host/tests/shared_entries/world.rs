//! Three groups with their members, an origin that is a member of each group, and a proxy that is a member of no group.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen::crypto::{Curve, curves};
use tegmen::oscore::group::{
    Algorithms, DeterministicClient, DeterministicRequest, GroupContext, GroupParameters, GroupPending, Mode,
    Ourselves, Recipient, Replies,
};
use tegmen::oscore::{Id, ReplayWindow};
use tegmen::secret::Secret;
use tegmen_host::client::ClientConfig;
use tegmen_host::provider::HostCrypto;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::server::Server;

pub(crate) type Context = GroupContext<Vec<u8>, 512>;
type Pending = GroupPending<Vec<Replies>>;

/// The groups, each with its name, its Group Identifier and its Master Secret. Two groups have the same Group
/// Identifier.
pub(crate) const GROUPS: [(&str, &[u8], [u8; 16]); 3] =
    [("house", b"grp1", [1; 16]), ("shop", b"grp2", [1; 16]), ("clone", b"grp1", [2; 16])];
/// The Sender ID of the Deterministic Client, whose key all members of a group share.
pub(crate) const SHARED: u8 = b'd';
pub(crate) const SALT: &[u8] = b"salt";
/// Free bytes in a buffer in addition to the message.
const ROOM: usize = 200;

fn private_key(name: &str) -> [u8; 32] {
    core::array::from_fn(|at| name.as_bytes()[at % name.len()].wrapping_add(at as u8))
}

/// Returns the CWT Claims Set of the member with this name. It contains the public key of the member on P-256.
pub(crate) fn credential(name: &str) -> Vec<u8> {
    let spki = curves::public_key_of(&private_key(name)).unwrap();
    let (x, y) = spki[spki.len() - 64..].split_at(32);
    let head = [0xa1, 0x08, 0xa1, 0x01, 0xa4, 0x01, 0x02, 0x20, 0x01, 0x21, 0x58, 0x20];
    [&head[..], x, &[0x22, 0x58, 0x20], y].concat()
}

pub(crate) fn id(name: &str) -> Id {
    Id::new(&name.as_bytes()[..1]).unwrap()
}

/// A member of a group. The members are alice, carol and the origin.
pub(crate) struct Member {
    pub(crate) context: Context,
    pub(crate) others: Vec<Recipient<Vec<u8>>>,
    pub(crate) shared: DeterministicClient,
    pub(crate) crypto: HostCrypto,
}

impl Member {
    pub(crate) fn new(group: &str, name: &str) -> Self {
        let (_, gid, master_secret) = GROUPS.into_iter().find(|(of, ..)| *of == group).unwrap();
        let algorithms = Algorithms::both(Curve::P256);
        let parameters = GroupParameters { master_secret: &master_secret, master_salt: SALT, gid, algorithms };
        let ourselves = Ourselves {
            id: id(name),
            private_key: Secret::new(private_key(name)),
            credential: credential(name),
            kept: 0,
        };
        let mut crypto = HostCrypto::from_os().unwrap();
        let mut context = Context::new::<HostCrypto>(&parameters, ourselves, credential("manager")).unwrap();
        context.lease_mut().extend(100);
        let others = ["alice", "carol", "origin"].into_iter().filter(|other| *other != name);
        let others = others.map(|other| {
            context.recipient(&mut crypto, id(other), credential(other), Some(ReplayWindow::default())).unwrap()
        });
        let (others, shared) = (others.collect(), Id::new(&[SHARED]).unwrap());
        let shared = context.deterministic_client::<HostCrypto>(shared).unwrap();
        Self { context, others, shared, crypto }
    }

    pub(crate) fn ask(&mut self, plain: &[u8]) -> (Pending, Vec<u8>) {
        let mut storage = vec![0; plain.len() + 2 * ROOM];
        let mut frame = Frame::new(&mut storage, ROOM);
        frame.append(plain).unwrap();
        let (to, replies) = (Some(id("origin")), vec![Replies::default()]);
        let Self { context, shared, crypto, .. } = self;
        let pending = context.protect_deterministic_request(crypto, shared, to, replies, &mut frame).unwrap();
        (pending, frame.bytes().to_vec())
    }

    /// Answers a request of the Deterministic Client of this group. `value` makes the payload of the response from the
    /// path of the request. Returns `None` if the request cannot be decrypted.
    pub(crate) fn answer(&mut self, datagram: &[u8], value: impl FnOnce(&str) -> String) -> Option<Vec<u8>> {
        let mut opened = datagram.to_vec();
        let Self { context, shared, crypto, .. } = self;
        let request = context.unprotect_deterministic_request(crypto, shared, &mut opened).ok()?;
        let DeterministicRequest::Safe(message, request) = request else { return None };
        let path = message.values(OptionNumber::URI_PATH).next().unwrap_or(b"");
        let value = value(std::str::from_utf8(path).unwrap());
        let max_age = 300u16.to_be_bytes();
        let plain = response_to(&message, Code::CONTENT, &[(OptionNumber::MAX_AGE, &max_age)], value.as_bytes());
        let mut storage = vec![0; plain.len() + 2 * ROOM];
        let mut frame = Frame::new(&mut storage, ROOM);
        frame.append(&plain).unwrap();
        context.protect_response(crypto, Mode::Group, &request, None, &mut frame).unwrap();
        Some(frame.bytes().to_vec())
    }
}

pub(crate) type Options<'a> = &'a [(OptionNumber, &'a [u8])];

fn message(kind: MessageType, code: Code, id: u16, token: &[u8], options: Options<'_>, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 1000];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, kind, code, id, token).unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

pub(crate) fn response_to(request: &MessageRef<'_>, code: Code, options: Options<'_>, payload: &[u8]) -> Vec<u8> {
    message(MessageType::Acknowledgement, code, request.message_id(), request.token(), options, payload)
}

/// Returns a GET of a path of an origin, for a forward proxy.
pub(crate) fn get(origin: SocketAddr, path: &str) -> Vec<u8> {
    let (host, port) = (origin.ip().to_string(), origin.port().to_be_bytes());
    let options = [
        (OptionNumber::URI_HOST, host.as_bytes()),
        (OptionNumber::URI_PORT, &port),
        (OptionNumber::URI_PATH, path.as_bytes()),
        (OptionNumber::PROXY_SCHEME, b"coap"),
    ];
    message(MessageType::Confirmable, Code::GET, 1, b"token", &options, b"")
}

/// Returns the message with another value of the option `changed`, and with another payload.
pub(crate) fn with(datagram: &[u8], (changed, new): (OptionNumber, &[u8]), payload: &[u8]) -> Vec<u8> {
    let of = MessageRef::parse(datagram).unwrap();
    let options: Vec<_> =
        of.options().map(|(number, value)| (number, if number == changed { new } else { value })).collect();
    message(of.message_type(), of.code(), of.message_id(), of.token(), &options, payload)
}

/// The socket of a client that sends requests to a proxy.
pub(crate) struct Line {
    socket: UdpSocket,
    proxy: SocketAddr,
    last: u16,
}

impl Line {
    pub(crate) fn to(proxy: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, proxy, last: 0 }
    }

    /// Sends a request with a new Message ID, and returns the response.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Vec<u8> {
        let mut request = request.to_vec();
        self.last += 1;
        request[2..4].copy_from_slice(&self.last.to_be_bytes());
        self.socket.send_to(&request, self.proxy).unwrap();
        let mut datagram = [0; 1500];
        loop {
            let (len, _) = self.socket.recv_from(&mut datagram).unwrap();
            let message = MessageRef::parse(&datagram[..len]).unwrap();
            if message.message_type() == MessageType::Confirmable {
                let acknowledged =
                    self::message(MessageType::Acknowledgement, Code::EMPTY, message.message_id(), b"", &[], b"");
                self.socket.send_to(&acknowledged, self.proxy).unwrap();
            }
            if message.code() != Code::EMPTY && message.token() == MessageRef::parse(&request).unwrap().token() {
                return datagram[..len].to_vec();
            }
        }
    }
}

/// A member with a socket.
pub(crate) struct Person {
    pub(crate) member: Member,
    line: Line,
    /// The two values of Max-Age in the last response: outside OSCORE, and inside OSCORE. `None` if a value is missing.
    pub(crate) ages: Option<(u32, u32)>,
}

impl Person {
    pub(crate) fn new(group: &str, name: &str, proxy: SocketAddr) -> Self {
        Self { member: Member::new(group, name), line: Line::to(proxy), ages: None }
    }

    pub(crate) fn get(&mut self, origin: SocketAddr, path: &str) -> Result<String, String> {
        let (mut pending, request) = self.member.ask(&get(origin, path));
        let mut response = self.line.exchange(&request);
        let outside = MessageRef::parse(&response).unwrap().uint(OptionNumber::MAX_AGE);
        let Member { context, others, crypto, .. } = &mut self.member;
        let opened = context.unprotect_response(crypto, others.as_mut_slice(), &mut pending, &mut response);
        let (message, _) = opened.map_err(|error| error.to_string())?;
        self.ages = outside.zip(message.uint(OptionNumber::MAX_AGE));
        Ok(String::from_utf8(message.payload().to_vec()).unwrap())
    }
}

/// Requests, each with its response.
type Exchanges = Vec<(Vec<u8>, Vec<u8>)>;

/// An origin, which is a member of each group, and counts its requests.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Exchanges>>,
}

impl Origin {
    /// Starts an origin that answers each request with the name of the group, the path, and the number of the request.
    pub(crate) fn start() -> Self {
        let mut members = GROUPS.map(|(group, ..)| (group, Member::new(group, "origin")));
        Self::answering(move |datagram, count| {
            members
                .iter_mut()
                .find_map(|(group, member)| member.answer(datagram, |path| format!("{group} {path} {count}")))
        })
    }

    /// Starts an origin that calls `answer` with each request and its number, and sends the returned response. If
    /// `answer` returns `None`, the response is 4.00.
    pub(crate) fn answering(mut answer: impl FnMut(&[u8], usize) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let exchanges = heard.clone();
        std::thread::spawn(move || {
            let mut datagram = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut datagram) {
                let request = &datagram[..len];
                let message = MessageRef::parse(request).unwrap();
                if !message.code().is_request() {
                    continue;
                }
                let count = exchanges.lock().unwrap().len() + 1;
                let refused = || response_to(&message, Code::BAD_REQUEST, &[(OptionNumber::MAX_AGE, b"")], b"");
                let answer = answer(request, count).unwrap_or_else(refused);
                exchanges.lock().unwrap().push((request.to_vec(), answer.clone()));
                socket.send_to(&answer, from).unwrap();
            }
        });
        Self { address, heard }
    }

    pub(crate) fn requests(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// Returns the requests that the proxy sent, with the responses.
    pub(crate) fn exchanges(&self) -> Exchanges {
        self.heard.lock().unwrap().clone()
    }
}

pub(crate) fn settings() -> ProxyConfig {
    ProxyConfig::default().with(|config| {
        config.targets = vec!["coap://127.0.0.1:*".parse().unwrap()];
        config.client = ClientConfig::default().with(|config| config.coap.timeout = Duration::from_secs(20));
    })
}

/// Starts a server with a proxy. Each client may send every request.
pub(crate) fn open_proxy() -> (Server, SocketAddr, Proxy) {
    let proxy = Proxy::new(settings()).unwrap();
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
    let server = builder.serve(proxy.clone()).unwrap();
    let address = server.addresses()[0].address;
    (server, address, proxy)
}
