//! A DTLS client whose every byte the test decides, and the functions that make its messages.

use super::{Fate, World};
use tegmen::address::Address;
use tegmen::buf::Reader;
use tegmen::crypto::{Crypto, MAX_SHARE, MAX_SIGNATURE, NamedGroup, RustCrypto, SCALAR_LEN, curves, digest, hmac};
use tegmen::dtls::Config;
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::time::Duration;

pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

pub const HELLO_REQUEST: u8 = 0;
pub const CLIENT_HELLO: u8 = 1;
pub const SERVER_HELLO: u8 = 2;
pub const HELLO_VERIFY_REQUEST: u8 = 3;
pub const SERVER_KEY_EXCHANGE: u8 = 12;
pub const CERTIFICATE_REQUEST: u8 = 13;
pub const SERVER_HELLO_DONE: u8 = 14;
pub const CLIENT_KEY_EXCHANGE: u8 = 16;
pub const FINISHED: u8 = 20;

pub const CERTIFICATE: u8 = 11;
pub const CERTIFICATE_VERIFY: u8 = 15;

pub const CCM_8: [u8; 2] = [0xc0, 0xa8];
pub const ECDSA_CCM_8: [u8; 2] = [0xc0, 0xae];

/// Returns a record as it is sent on the network.
pub fn record(content_type: u8, epoch: u16, sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![content_type, 254, 253];
    bytes.extend(number(epoch, sequence));
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

pub fn number(epoch: u16, sequence: u64) -> [u8; 8] {
    (u64::from(epoch) << 48 | sequence).to_be_bytes()
}

/// Returns a fragment of a handshake message. The function checks nothing.
pub fn fragment(kind: u8, total: u32, seq: u16, offset: u32, piece: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(&total.to_be_bytes()[1..]);
    bytes.extend(seq.to_be_bytes());
    bytes.extend(&offset.to_be_bytes()[1..]);
    bytes.extend(&(piece.len() as u32).to_be_bytes()[1..]);
    bytes.extend(piece);
    bytes
}

/// Returns a whole handshake message.
pub fn message(kind: u8, seq: u16, body: &[u8]) -> Vec<u8> {
    fragment(kind, body.len() as u32, seq, 0, body)
}

/// Returns the body of a ClientHello. `tail` is the part after the compression methods.
pub fn client_hello(random: &[u8; 32], cookie: &[u8], suites: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut body = vec![254, 253];
    body.extend(random);
    body.push(0);
    body.push(cookie.len() as u8);
    body.extend(cookie);
    body.extend((suites.len() as u16).to_be_bytes());
    body.extend(suites);
    body.extend([1, 0]);
    body.extend(tail);
    body
}

/// Returns the cipher suites and the extensions of a ClientHello, which is the only message in its datagram.
pub fn offer_of(datagram: &[u8]) -> (Vec<u8>, Vec<(u16, Vec<u8>)>) {
    let (_, _, message) = records(datagram).remove(0);
    assert_eq!(message[0], CLIENT_HELLO);
    // The version and the random follow the header of the message.
    let mut reader = Reader::new(&message[12 + 2 + 32..]);
    let (_session_id, _cookie) = (reader.with_len8().unwrap(), reader.with_len8().unwrap());
    let suites = reader.with_len16().unwrap().to_vec();
    let _compression_methods = reader.with_len8().unwrap();
    let mut list = Reader::new(if reader.is_empty() { &[] } else { reader.with_len16().unwrap() });
    let next = || Some((list.u16().ok()?, list.with_len16().ok()?.to_vec()));
    (suites, std::iter::from_fn(next).collect())
}

/// Returns the body of a ServerHello. `tail` is the part after the compression method.
pub fn server_hello(version: [u8; 2], suite: [u8; 2], compression: u8, tail: &[u8]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([0x5a; 32]);
    body.push(0);
    body.extend(suite);
    body.push(compression);
    body.extend(tail);
    body
}

/// Returns the records of a datagram. Each has its content type, its number and its body.
pub fn records(mut datagram: &[u8]) -> Vec<(u8, u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !datagram.is_empty() {
        let number = u64::from_be_bytes(datagram[3..11].try_into().unwrap());
        let len = usize::from(u16::from_be_bytes(datagram[11..13].try_into().unwrap()));
        found.push((datagram[0], number, datagram[13..13 + len].to_vec()));
        datagram = &datagram[13 + len..];
    }
    found
}

/// If the last record in `datagrams` is a plaintext alert, returns its level and its description.
pub fn last_alert(datagrams: &[Vec<u8>]) -> Option<(u8, u8)> {
    let (kind, number, body) = records(datagrams.last()?).pop()?;
    (kind == ALERT && number >> 48 == 0).then(|| (body[0], body[1]))
}

struct Keys {
    master: [u8; 48],
    write: ([u8; 16], [u8; 4]),
    read: ([u8; 16], [u8; 4]),
}

/// Fills `out` with the result of the PRF of TLS 1.2 (RFC 5246, section 5).
fn prf(key: &[&[u8]], seed: &[&[u8]], out: &mut [u8]) {
    let seed = seed.concat();
    let mut a = seed.clone();
    for chunk in out.chunks_mut(32) {
        a = hmac::<RustCrypto, 32>(key, &[&a]).to_vec();
        let made = hmac::<RustCrypto, 32>(key, &[&a, &seed]);
        chunk.copy_from_slice(&made[..chunk.len()]);
    }
}

/// A DTLS client that sends nothing by itself: the test calls a function for each message of the client.
pub struct Puppet {
    pub address: Address,
    pub random: [u8; 32],
    pub cookie: Vec<u8>,
    /// The part of the client's ClientHello after the compression methods: the extensions.
    pub tail: Vec<u8>,
    /// The only cipher suite that the client offers.
    pub suite: [u8; 2],
    /// The server's share of the key agreement on secp256r1.
    server_share: Vec<u8>,
    /// The number of the client's next plaintext record. The next field is the number of the client's next protected
    /// record.
    pub plain_sequence: u64,
    pub sequence: u64,
    pub message_seq: u16,
    server_random: [u8; 32],
    transcript: Vec<u8>,
    keys: Option<Keys>,
    crypto: RustCrypto,
}

impl Puppet {
    pub fn new(port: u16) -> Self {
        let ip = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99];
        Self {
            address: Address { ip, port, scope: 0 },
            random: [port as u8; 32],
            cookie: Vec::new(),
            tail: Vec::new(),
            suite: CCM_8,
            server_share: Vec::new(),
            plain_sequence: 0,
            sequence: 0,
            message_seq: 0,
            server_random: [0; 32],
            transcript: Vec::new(),
            keys: None,
            crypto: RustCrypto::new([port as u8; 32]),
        }
    }

    /// Creates a client, and completes a handshake with the right key.
    pub fn established(world: &mut World, port: u16) -> Self {
        let mut puppet = Self::new(port);
        puppet.reach_server_hello_done(world);
        puppet.finish(world);
        puppet
    }

    /// Returns a puppet with the keys of the server. The peer of the puppet is the client of the world. The handshake
    /// must be complete, and the client must have the data for a resumption.
    pub fn of_server(world: &World) -> Self {
        let messages = |of_client: bool, kind| {
            let sent = world.sent.iter().filter(move |(is_clients, _)| *is_clients == of_client);
            let bodies = sent.flat_map(|(_, datagram)| records(datagram)).filter(|(content, ..)| *content == HANDSHAKE);
            bodies.map(|(_, _, body)| body).find(|body| body[0] == kind).unwrap()
        };
        let random = |body: &[u8]| body[14..46].try_into().unwrap();
        let mut puppet = Self::new(0);
        (puppet.random, puppet.server_random) =
            (random(&messages(true, CLIENT_HELLO)), random(&messages(false, SERVER_HELLO)));
        puppet.derive_keys(world.client.kept.as_ref().unwrap().master);
        if let Some(Keys { write, read, .. }) = &mut puppet.keys {
            std::mem::swap(write, read);
        }
        puppet.sequence = 10;
        puppet
    }

    pub fn send<const P: bool>(&self, world: &mut World<P>, datagram: &[u8]) -> Vec<Vec<u8>> {
        world.tell_server(self.address, datagram)
    }

    /// Returns a plaintext record with the next number.
    pub fn plain(&mut self, content_type: u8, body: &[u8]) -> Vec<u8> {
        self.plain_sequence += 1;
        record(content_type, 0, self.plain_sequence - 1, body)
    }

    /// Returns a ClientHello with the current cookie, as a datagram.
    pub fn hello(&mut self) -> Vec<u8> {
        let body = client_hello(&self.random, &self.cookie, &self.suite, &self.tail);
        let message = message(CLIENT_HELLO, self.message_seq, &body);
        self.plain(HANDSHAKE, &message)
    }

    /// Gets a cookie from the server. Returns the ClientHello with this cookie.
    pub fn hello_with_cookie<const P: bool>(&mut self, world: &mut World<P>) -> Vec<u8> {
        let hello = self.hello();
        let answer = self.send(world, &hello);
        assert_eq!(answer.len(), 1);
        let (_, _, body) = records(&answer[0]).remove(0);
        assert_eq!(body[0], HELLO_VERIFY_REQUEST);
        self.cookie = body[15..].to_vec();
        self.message_seq += 1;
        self.hello()
    }

    /// Returns a ClientHello with the current cookie in two fragments, each in a datagram. The first fragment has `cut`
    /// bytes of the body.
    pub fn hello_in_fragments(&mut self, cut: usize) -> [Vec<u8>; 2] {
        let body = client_hello(&self.random, &self.cookie, &self.suite, &self.tail);
        let (len, seq) = (body.len() as u32, self.message_seq);
        let (first, second) = body.split_at(cut);
        let pieces = [(0, first), (cut as u32, second)];
        pieces.map(|(offset, piece)| self.plain(HANDSHAKE, &fragment(CLIENT_HELLO, len, seq, offset, piece)))
    }

    /// Sends both ClientHellos, and processes the server's flight.
    pub fn reach_server_hello_done<const P: bool>(&mut self, world: &mut World<P>) {
        let hello = self.hello_with_cookie(world);
        self.take_server_flight(world, &hello);
    }

    /// Sends the second ClientHello, and processes the server's flight that answers it.
    pub fn take_server_flight<const P: bool>(&mut self, world: &mut World<P>, hello: &[u8]) {
        self.hash(&records(hello)[0].2);
        let flight = self.send(world, hello);
        self.take_flight(&flight);
    }

    /// Processes the server's flight after the second ClientHello, and adds it to the transcript.
    pub fn take_flight(&mut self, flight: &[Vec<u8>]) {
        for (kind, _, body) in flight.iter().flat_map(|datagram| records(datagram)) {
            assert_eq!(kind, HANDSHAKE);
            if body[0] == SERVER_HELLO {
                self.server_random = body[14..46].try_into().unwrap();
            }
            // Behind the header: ECCurveType, group, and the share behind its length.
            if body[0] == SERVER_KEY_EXCHANGE && self.suite == ECDSA_CCM_8 {
                self.server_share = body[16..][..usize::from(body[15])].to_vec();
            }
            self.hash(&body);
        }
        self.message_seq += 1;
    }

    pub fn hash(&mut self, message: &[u8]) {
        self.transcript.extend_from_slice(message);
    }

    /// Returns the body of a ClientKeyExchange with this PSK identity.
    pub fn identity(identity: &[u8]) -> Vec<u8> {
        [&(identity.len() as u16).to_be_bytes()[..], identity].concat()
    }

    /// Returns the ClientKeyExchange with this identity in a record. Adds the message to the transcript, and derives
    /// the keys from `psk`.
    pub fn key_exchange(&mut self, identity: &[u8], psk: &[u8]) -> Vec<u8> {
        let message = self.key_exchange_message(identity, psk);
        self.plain(HANDSHAKE, &message)
    }

    /// Does the same as [`Self::key_exchange`], but returns the message without a record, for tests that divide it.
    pub fn key_exchange_message(&mut self, identity: &[u8], psk: &[u8]) -> Vec<u8> {
        let message = message(CLIENT_KEY_EXCHANGE, self.message_seq, &Self::identity(identity));
        self.hash(&message);
        self.message_seq += 1;
        self.derive(psk);
        message
    }

    /// Returns a message of the client's flight in a record, and adds it to the transcript.
    pub fn next_message(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let message = message(kind, self.message_seq, body);
        self.hash(&message);
        self.message_seq += 1;
        self.plain(HANDSHAKE, &message)
    }

    /// Returns the ClientKeyExchange with a share on secp256r1 in a record. Adds the message to the transcript, and
    /// derives the keys from the agreed secret.
    pub fn share(&mut self) -> Vec<u8> {
        let (mut private, mut share, mut secret) = ([0; SCALAR_LEN], [0; MAX_SHARE], [0; SCALAR_LEN]);
        self.crypto.key_pair(NamedGroup::SECP256R1, &mut private, &mut share).unwrap();
        self.crypto.agree(NamedGroup::SECP256R1, &private, &self.server_share, &mut secret).unwrap();
        let record = self.next_message(CLIENT_KEY_EXCHANGE, &[&[MAX_SHARE as u8][..], &share].concat());
        self.derive_from(&[&secret]);
        record
    }

    /// Returns the CertificateVerify in a record. Its signature by `private` covers the transcript.
    pub fn certificate_verify(&mut self, private: &[u8; SCALAR_LEN]) -> Vec<u8> {
        let digest = digest::<RustCrypto, 32>(&[&self.transcript]);
        let mut signature = [0; MAX_SIGNATURE];
        let len = curves::sign(private, &digest, &mut signature).unwrap();
        let body = [&[4, 3, 0, len as u8][..], &signature[..len]].concat();
        self.next_message(CERTIFICATE_VERIFY, &body)
    }

    fn derive(&mut self, psk: &[u8]) {
        let len = (psk.len() as u16).to_be_bytes();
        self.derive_from(&[&len, &vec![0; psk.len()], &len, psk]);
    }

    fn derive_from(&mut self, premaster: &[&[u8]]) {
        let mut master = [0; 48];
        prf(premaster, &[b"master secret", &self.random, &self.server_random], &mut master);
        self.derive_keys(master);
    }

    /// Derives the keys of the connection from the master secret.
    fn derive_keys(&mut self, master: [u8; 48]) {
        let mut block = [0; 40];
        prf(&[&master], &[b"key expansion", &self.server_random, &self.random], &mut block);
        self.keys = Some(Keys {
            master,
            write: (block[..16].try_into().unwrap(), block[32..36].try_into().unwrap()),
            read: (block[16..32].try_into().unwrap(), block[36..].try_into().unwrap()),
        });
    }

    pub fn change_cipher_spec(&mut self) -> Vec<u8> {
        self.plain(CHANGE_CIPHER_SPEC, &[1])
    }

    /// Returns the Finished message without a record.
    pub fn finished_message(&mut self) -> Vec<u8> {
        let digest = digest::<RustCrypto, 32>(&[&self.transcript]);
        let mut verify_data = [0; 12];
        let keys = self.keys.as_ref().unwrap();
        prf(&[&keys.master], &[b"client finished", &digest], &mut verify_data);
        message(FINISHED, self.message_seq, &verify_data)
    }

    /// Returns the Finished message in a protected record.
    pub fn finished(&mut self) -> Vec<u8> {
        let message = self.finished_message();
        self.seal(HANDSHAKE, &message)
    }

    /// Completes the handshake after the ServerHelloDone.
    pub fn finish(&mut self, world: &mut World) {
        let key_exchange = self.key_exchange(b"Client_identity", b"0123456789abcdef");
        self.send(world, &key_exchange);
        self.change_and_finish(world);
    }

    /// Completes the handshake, beginning with the ChangeCipherSpec.
    pub fn change_and_finish<const P: bool>(&mut self, world: &mut World<P>) {
        let change = self.change_cipher_spec();
        self.send(world, &change);
        let finished = self.finished();
        let flight = self.send(world, &finished);
        let Some((HANDSHAKE, _, sealed)) = flight.iter().flat_map(|datagram| records(datagram)).last() else {
            panic!("no Finished came: {flight:02x?}");
        };
        assert_eq!(self.open(HANDSHAKE, &sealed).map(|message| message[0]), Some(FINISHED));
    }

    /// Seals a record with the next number.
    pub fn seal(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        self.seal_as(content_type, self.sequence - 1, content)
    }

    /// Seals a record with any number.
    pub fn seal_as(&mut self, content_type: u8, sequence: u64, content: &[u8]) -> Vec<u8> {
        let (key, salt) = self.keys.as_ref().unwrap().write;
        seal_with(&mut self.crypto, &key, &salt, content_type, sequence, content)
    }

    /// Opens the body of a protected record.
    pub fn open(&mut self, content_type: u8, body: &[u8]) -> Option<Vec<u8>> {
        let (key, salt) = self.keys.as_ref()?.read;
        let (explicit, sealed) = body.split_at(8);
        let (content, tag) = sealed.split_at(sealed.len() - 8);
        let mut content = content.to_vec();
        let aad = associated_data(content_type, explicit, content.len());
        let nonce = [&salt[..], explicit].concat();
        self.crypto.open(RustCrypto::AES_128_CCM, &key, &nonce, &aad, &mut content, tag).ok().map(|()| content)
    }
}

fn associated_data(content_type: u8, number: &[u8], len: usize) -> Vec<u8> {
    [number, &[content_type, 254, 253], &(len as u16).to_be_bytes()].concat()
}

/// Seals a record of epoch 1 with any key.
pub fn seal_with(
    crypto: &mut RustCrypto,
    key: &[u8; 16],
    salt: &[u8; 4],
    content_type: u8,
    sequence: u64,
    content: &[u8],
) -> Vec<u8> {
    let explicit = number(1, sequence);
    let mut sealed = content.to_vec();
    let mut tag = [0; 8];
    let aad = associated_data(content_type, &explicit, content.len());
    let nonce = [&salt[..], &explicit].concat();
    crypto.seal(RustCrypto::AES_128_CCM, key, &nonce, &aad, &mut sealed, &mut tag).unwrap();
    record(content_type, 1, sequence, &[&explicit[..], &sealed, &tag].concat())
}

/// Asserts that the server's session with this puppet receives application data.
pub fn assert_alive(world: &mut World, puppet: &mut Puppet) {
    let before = world.server.heard.len();
    let sealed = puppet.seal(APPLICATION_DATA, b"alive?");
    puppet.send(world, &sealed);
    assert_eq!(world.server.heard[before..], [b"alive?"]);
}

/// Asserts that the server accepts another client.
pub fn assert_serves(world: &mut World) {
    let mut next = Puppet::established(world, 4999);
    assert_alive(world, &mut next);
}

pub fn server_phase(world: &World, puppet: &Puppet) -> Option<Phase> {
    let path = world.server.path(puppet.address);
    let phases = [Phase::Established, Phase::Handshaking];
    phases.into_iter().find(|phase| world.server.endpoint.peers.find(&path, *phase).is_some())
}

/// Returns a world whose client waits for the answer to its second ClientHello.
pub fn client_awaits_server_hello() -> World {
    let mut world = World::new(11, Config::default());
    world.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    assert!(world.client.closed.is_none());
    world
}
