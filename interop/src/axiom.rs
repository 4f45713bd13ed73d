//! Groups of Axiom. A Python program that shares no code with Tegmen opens every record of a captured session.
//!
//! Each member of the group uses the code of `tegmen::axiom`, and has its own sockets. The members send requests to a
//! multicast address.

use crate::capture::{file_header, packet};
use crate::cell::{Cell, Check, Role, Scene};
use crate::peers::{Built, Places};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tegmen::address::Address;
use tegmen::axiom::{Association, GroupNumber, Kept, Member, Opened, Proof, SealRefused, SenderId, Signatures, Suite};
use tegmen::buf::Frame;
use tegmen::crypto::{Crypto as _, DIGEST_LEN, SignatureScheme};
use tegmen::dtls::Records;
use tegmen_host::hex::to_hex;
use tegmen_host::provider::HostCrypto;
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};

/// The version of the library in PyPI.
pub(crate) const CRYPTOGRAPHY: &str = "50.0.2";
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 84, 71);
const GROUP_ID: u8 = 7;
const IDENTITY: [u8; 16] = *b"a group of three";
/// The beginning of the content of a response. The content of the request follows it.
const ANSWER: &[u8] = b"response to ";
/// Number of members. Their addresses are 127.0.0.2, 127.0.0.3 and so on. Each member sends requests, and answers the
/// requests of the other members.
const MEMBERS: u8 = 3;
/// Number of requests of each member in each epoch.
const REQUESTS: u8 = 4;
const EPOCHS: u16 = 3;
/// Number of bytes that a buffer leaves free before and after a content, for the header and the end of its record.
const ROOM: usize = 128;

/// Returns one [`Cell`] (a row of the result table) for each scenario with the program `axiom_reader.py`, which reads
/// Axiom's records without code of Tegmen. Also returns the programs that must be built for these scenarios.
pub(crate) fn all(places: &Places) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let reader = places.python_peer("axiom_reader.py", "cryptography==50.0.2");
    let cell = |suite: Suite, signature: Option<SignatureScheme>, play: fn(&Scene, &Built, Protection) -> Check| {
        let reader = Arc::clone(&reader);
        let signed = match signature {
            None => "",
            Some(SignatureScheme::ED25519) => ", signed with Ed25519",
            Some(_) => ", signed with ECDSA",
        };
        let scenario = format!("Axiom: every record of a captured session, {suite:?}{signed}");
        Cell::new("cryptography", CRYPTOGRAPHY, Role::Reader, &scenario, move |scene| {
            reader.ready()?;
            play(&scene.with_new_deadline(), &reader, (suite, signature))
        })
    };
    let cells = vec![
        cell(Suite::Ccm, None, opened::<16>),
        cell(Suite::Ccm8, None, opened::<16>),
        cell(Suite::Gcm, None, opened::<16>),
        cell(Suite::MacOnly, None, opened::<32>),
        cell(Suite::Ccm, Some(SignatureScheme::ECDSA_SECP256R1_SHA256), opened::<16>),
        cell(Suite::Gcm, Some(SignatureScheme::ED25519), opened::<16>),
        cell(Suite::MacOnly, Some(SignatureScheme::ECDSA_SECP256R1_SHA256), opened::<32>),
    ];
    (cells, vec![reader])
}

/// The suite of a group, and the signature scheme of its members.
type Protection = (Suite, Option<SignatureScheme>);

/// Runs a session of three epochs, and lets the Python program `reader` decrypt the captured records. It must find each
/// content that a member sent, and no other content.
fn opened<const KEY: usize>(scene: &Scene, reader: &Built, (suite, signature): Protection) -> Check {
    let mut crypto = HostCrypto::from_os().map_err(|error| error.to_string())?;
    let drawn: Result<Vec<_>, _> =
        signature.iter().flat_map(|scheme| (0..MEMBERS).map(|_| SoftwareKey::draw(*scheme))).collect();
    let private: Vec<_> = drawn.map_err(|error| error.to_string())?.into_iter().map(|(key, _)| Arc::new(key)).collect();
    let public: Vec<Vec<u8>> = private.iter().map(|key| key.public_key().to_vec()).collect();
    let port = free_group_port()?;
    let mut session = Session { capture: file_header(), sent: Vec::new(), group: SocketAddrV4::new(GROUP, port) };
    let mut epochs = BTreeMap::new();
    let mut members = Vec::new();
    for epoch in 1..=EPOCHS {
        let secrets = Secrets::random(&mut crypto);
        for number in 1..=MEMBERS {
            let association = secrets.association(suite, epoch, session.group, number);
            match members.get_mut(usize::from(number).wrapping_sub(1)) {
                None => {
                    let private = private.get(usize::from(number).wrapping_sub(1)).cloned();
                    let keys = SigningKeys { private, public: public.clone(), requests: Vec::new() };
                    members.push(Device::<KEY>::new(&mut crypto, &association, session.group, keys)?);
                }
                Some(device) => device.member.rekey(&mut crypto, &association).map_err(|bad| format!("{bad:?}"))?,
            }
        }
        for device in &mut members {
            device.member.extend(&device.member.reserve(REQUESTS.into(), u64::from(REQUESTS * MEMBERS)));
        }
        epochs.insert(epoch.to_string(), secrets.json());
        for asking in 0..usize::from(MEMBERS) * usize::from(REQUESTS) {
            session.exchange(&mut crypto, &mut members, asking % usize::from(MEMBERS))?;
        }
    }
    let numbers: BTreeMap<String, u8> = (1..=MEMBERS).map(|number| (ip(number).to_string(), number)).collect();
    let public_keys: BTreeMap<String, String> =
        public.iter().zip(1_u8..).map(|(key, number)| (number.to_string(), to_hex(key))).collect();
    let keys = json!({
        "identity": to_hex(&IDENTITY), "public_keys": public_keys,
        "suite": format!("{suite:?}"), "group": [GROUP.to_string(), port], "group_id": GROUP_ID, "members": numbers,
        "epochs": epochs,
    });
    let keys = scene.file("keys.json", keys.to_string())?;
    let capture = scene.file("group.pcap", &session.capture)?;
    session.compare(reader, &keys, &capture)
}

/// The secrets of an epoch, which the controller generates.
struct Secrets {
    master_secret: [u8; 48],
    client_random: [u8; 32],
    server_random: [u8; 32],
}

impl Secrets {
    fn random(crypto: &mut HostCrypto) -> Self {
        let mut secrets = Self { master_secret: [0; 48], client_random: [0; 32], server_random: [0; 32] };
        crypto.random(&mut secrets.master_secret);
        crypto.random(&mut secrets.client_random);
        crypto.random(&mut secrets.server_random);
        secrets
    }

    fn association(&self, suite: Suite, epoch: u16, group: SocketAddrV4, number: u8) -> Association<'_> {
        Association {
            group_id: GROUP_ID,
            group: SocketAddr::from(group).into(),
            suite,
            epoch,
            senders: MEMBERS.into(),
            sender_id: Some(number),
            address: ip(number).to_ipv6_mapped().octets(),
            master_secret: &self.master_secret,
            client_random: &self.client_random,
            server_random: &self.server_random,
        }
    }

    fn json(&self) -> Value {
        let Self { master_secret, client_random, server_random } = self;
        json!({
            "master_secret": to_hex(master_secret), "client_random": to_hex(client_random), "server_random": to_hex(server_random),
        })
    }
}

/// The signing keys of a member, and the requests that it has sent. A response contains no token, but it repeats the
/// content of its request after [`ANSWER`]. So the member finds the request of a response by this content.
struct SigningKeys {
    private: Option<Arc<SoftwareKey>>,
    /// The public keys of all members, in the order of their numbers.
    public: Vec<Vec<u8>>,
    requests: Vec<(GroupNumber, Vec<u8>)>,
}

impl SigningKeys {
    fn key(&self, number: u8) -> Option<&[u8]> {
        self.public.get(usize::from(number).checked_sub(1)?).map(Vec::as_slice)
    }
}

impl Signatures for SigningKeys {
    fn scheme(&self) -> Option<SignatureScheme> {
        self.private.as_ref().map(|key| key.scheme())
    }

    fn group(&self) -> &[u8; 16] {
        &IDENTITY
    }

    fn sign(&mut self, digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]) -> Option<usize> {
        let signature = self.private.as_ref()?.sign_digest(digest).ok()?;
        out.get_mut(..signature.len())?.copy_from_slice(&signature);
        Some(signature.len())
    }

    fn key_of_sender(&mut self, id: u8) -> Option<&[u8]> {
        self.key(id)
    }

    fn key_of_listener(&mut self, address: &[u8; 16]) -> Option<&[u8]> {
        self.key(address.last()?.checked_sub(1)?)
    }

    fn note(&mut self, request: GroupNumber, message: &[u8]) {
        self.requests.push((request, message.to_vec()));
    }

    fn asked(&self, sender: u8, response: &[u8]) -> Option<GroupNumber> {
        let is_it = |(request, of): &&(GroupNumber, Vec<u8>)| {
            request.id == sender && response.strip_prefix(ANSWER) == Some(of.as_slice())
        };
        self.requests.iter().find(is_it).map(|(request, _)| *request)
    }
}

/// A member and its sockets.
struct Device<const KEY: usize> {
    member: Member<4, 4, KEY, SigningKeys>,
    ip: Ipv4Addr,
    /// The socket that receives the requests to the group.
    multicast: UdpSocket,
    /// The socket that sends requests, and receives and sends responses, at the port of the group.
    own: UdpSocket,
}

impl<const KEY: usize> Device<KEY> {
    fn new(
        crypto: &mut HostCrypto,
        association: &Association<'_>,
        group: SocketAddrV4,
        keys: SigningKeys,
    ) -> Result<Self, String> {
        let mut member = Member::with(keys);
        member.begin(crypto, association, &Kept::default()).map_err(|bad| format!("{bad:?}"))?;
        let ip = ip(association.sender_id.unwrap_or_default());
        let own = shared_socket(SocketAddrV4::new(ip, group.port()))?;
        let multicast = shared_socket(group)?;
        let set = || {
            multicast.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST)?;
            sockopt::set_ip_multicast_if(&own, &Ipv4Addr::LOCALHOST)?;
            own.set_multicast_loop_v4(true)
        };
        set().map_err(|error| format!("multicast on the loopback interface: {error}"))?;
        Ok(Self { member, ip, multicast, own })
    }

    /// Seals a content. Returns the record.
    fn sealed(
        &mut self,
        content: &[u8],
        seal: impl FnOnce(&mut Member<4, 4, KEY, SigningKeys>, &mut Frame<'_>) -> Result<u64, SealRefused>,
    ) -> Result<(u64, Vec<u8>), String> {
        let mut storage = vec![0; content.len().saturating_add(ROOM)];
        let mut frame = Frame::new(&mut storage, self.member.overhead().0);
        frame.append(content).map_err(|_| "no space")?;
        let tsn = seal(&mut self.member, &mut frame).map_err(|refused| format!("{refused:?}"))?;
        Ok((tsn, frame.finish().to_vec()))
    }
}

/// A capture of a session, and the contents of its records.
struct Session {
    capture: Vec<u8>,
    /// A JSON object for each record that was sent: its kind (request or response), and its content in hexadecimal.
    sent: Vec<Value>,
    group: SocketAddrV4,
}

impl Session {
    /// Lets one member send a request, and lets the others answer it.
    fn exchange<const KEY: usize>(
        &mut self,
        crypto: &mut HostCrypto,
        members: &mut [Device<KEY>],
        asking: usize,
    ) -> Check {
        let content = format!("request {}", self.sent.len()).into_bytes();
        let (before, rest) = members.split_at_mut(asking);
        let Some((asker, after)) = rest.split_first_mut() else { return Err("no member".into()) };
        let (tsn, record) = asker.sealed(&content, |member, frame| member.seal_request(crypto, frame))?;
        asker.own.send_to(&record, self.group).map_err(|error| error.to_string())?;
        self.keep((asker.ip, self.group), &record, json!({ "kind": "request", "content": to_hex(&content) }));
        for listener in before.iter_mut().chain(after) {
            let (mut request, from) = receive(&listener.multicast)?;
            let (sender, heard) = open_request(crypto, &mut listener.member, &mut request)?;
            if heard != content {
                return Err("another request was opened".into());
            }
            let answer = [ANSWER, &content].concat();
            let (_, record) =
                listener.sealed(&answer, |member, frame| member.seal_response(crypto, sender, frame).map(|()| 0))?;
            listener.own.send_to(&record, from).map_err(|error| error.to_string())?;
            self.keep((listener.ip, from), &record, json!({ "kind": "response", "content": to_hex(&answer) }));
            let (mut response, from) = receive(&asker.own)?;
            if open_response(crypto, &mut asker.member, (from, tsn), &mut response)? != answer {
                return Err("another response was opened".into());
            }
        }
        // The multicast socket of the member that asked has the request, too.
        receive(&members.get(asking).ok_or("no member")?.multicast).map(drop)?;
        Ok(())
    }

    fn keep(&mut self, (from, to): (Ipv4Addr, SocketAddrV4), record: &[u8], sent: Value) {
        packet(&mut self.capture, SocketAddrV4::new(from, self.group.port()), to, record);
        self.sent.push(sent);
    }

    /// Runs the Python program `reader`, which decrypts the file `capture` with the keys in the file `keys`. Compares
    /// the contents that it prints with those that were sent.
    fn compare(&self, reader: &Built, keys: &Path, capture: &Path) -> Check {
        let output = reader.command()?.args([keys, capture]).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str::<Value>).collect();
        let lines = lines.map_err(|error| format!("{error}: {text}"))?;
        let read: Vec<_> =
            lines.iter().map(|line| json!({ "kind": line["kind"], "content": line["content"] })).collect();
        if read != self.sent || !output.status.success() {
            return Err(format!(
                "{} records were sent: {text}{}",
                self.sent.len(),
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
        Ok(())
    }
}

/// Opens a request at a listener. The first request of a sender may be a replay. The listener accepts this request as
/// if it contained the challenge of the listener.
fn open_request<const KEY: usize>(
    crypto: &mut HostCrypto,
    listener: &mut Member<4, 4, KEY, SigningKeys>,
    datagram: &mut [u8],
) -> Result<(SenderId, Vec<u8>), String> {
    let challenge = listener.challenge().to_vec();
    let mut records = Records::new(datagram);
    let record = records.next_record().ok_or("no record")?.map_err(|discard| format!("{discard:?}"))?;
    let (sender, opened) = listener.open_request(crypto, record).map_err(|discard| format!("{discard:?}"))?;
    match opened {
        Opened::Fresh(content) => Ok((sender, content.to_vec())),
        Opened::Unverified(content, number) => {
            let content = content.to_vec();
            listener.accept::<HostCrypto>(number, Proof::Echo(&challenge)).map_err(|discard| format!("{discard:?}"))?;
            Ok((sender, content))
        }
        Opened::Clash => Err("a clash".to_owned()),
    }
}

/// Opens a response to the request with this TSN (truncated sequence number of the record).
fn open_response<const KEY: usize>(
    crypto: &mut HostCrypto,
    sender: &mut Member<4, 4, KEY, SigningKeys>,
    (from, tsn): (SocketAddrV4, u64),
    datagram: &mut [u8],
) -> Result<Vec<u8>, String> {
    let from: Address = SocketAddr::from(from).into();
    let mut records = Records::new(datagram);
    let record = records.next_record().ok_or("no record")?.map_err(|discard| format!("{discard:?}"))?;
    match sender.open_response(crypto, &from, record).map_err(|discard| format!("{discard:?}"))? {
        Opened::Fresh(content) => Ok(content.to_vec()),
        Opened::Unverified(content, number) => {
            let content = content.to_vec();
            sender.accept::<HostCrypto>(number, Proof::AnswerTo(tsn)).map_err(|discard| format!("{discard:?}"))?;
            Ok(content)
        }
        Opened::Clash => Err("a clash".to_owned()),
    }
}

fn receive(socket: &UdpSocket) -> Result<(Vec<u8>, SocketAddrV4), String> {
    let mut buffer = vec![0; 2048];
    match socket.recv_from(&mut buffer) {
        Ok((len, SocketAddr::V4(from))) => {
            buffer.truncate(len);
            Ok((buffer, from))
        }
        Ok((_, from)) => Err(format!("a datagram from {from}")),
        Err(error) => Err(format!("no datagram: {error}")),
    }
}

const fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number.saturating_add(1))
}

/// Returns a port that no member in another scenario uses.
fn free_group_port() -> Result<u16, String> {
    let socket = UdpSocket::bind((ip(1), 0)).map_err(|error| error.to_string())?;
    socket.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Opens a socket at an address that other sockets may also use.
fn shared_socket(address: SocketAddrV4) -> Result<UdpSocket, String> {
    let open = || {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(socket)
    };
    open().map_err(|error: std::io::Error| format!("{address}: {error}"))
}
