//! Targets for certificates that motes read.

use crate::x509::CA;
use tegmen::address::{Address, Path};
use tegmen::crypto::{Ccm, Compact, Crypto, DIGEST_LEN, NotAuthentic, RustCrypto, SignatureScheme, Unsupported};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, CipherSuite, ClientOnly, Config, Credential, Keys, Need, PublicKeys, Records, Suites};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Instant;
use tegmen_x509::{Anchor, KeyPurpose, MAX_CERTIFICATES, Name, PublicKey, Rules, UnixTime};

/// Reads a byte that selects the rules, and then a list of certificates. Verifies the whole list. Also sends the same
/// list in fragments to a client, which verifies each part that arrives. A list without a valid signature must be
/// refused.
///
/// A second provider accepts each signature, so that the verification reaches the end of a path. The verification must
/// then check at most as many signatures as a path can have, and the key in the result must be a key of the list.
pub fn x509_motes(data: &[u8]) {
    let Some((&form, list)) = data.split_first() else { return };
    // Finds the subject and the public key of the CA in the certificate of the CA.
    let find = |start: &[u8]| CA.windows(start.len()).rposition(|bytes| bytes == start).expect("our own");
    let (name, key) = (find(&[0x30, 0x12, 0x31, 0x10]), find(&[0x30, 0x59, 0x30, 0x13]));
    let public_key: &PublicKey = CA[key..].first_chunk().expect("our own");
    let anchors = [Anchor { name: &CA[name..name + 0x14], public_key }];
    let rules = Rules {
        anchors: &anchors,
        purpose: if form & 1 == 0 { KeyPurpose::Server } else { KeyPurpose::Client },
        name: match form & 6 {
            0 => Name::Any,
            2 => Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
            _ => Name::Dns(b"device.example"),
        },
        now: (form & 8 != 0).then_some(UnixTime(1_900_000_000)),
    };
    let mut careful = Believer { crypto: Compact::new([0; 32]), believes: false, asked: 0 };
    assert!(rules.verify(&mut careful, list).is_err());
    let mut gullible = Believer { believes: true, asked: 0, ..careful };
    if let Ok(end_entity) = rules.verify(&mut gullible, list) {
        assert!(list.windows(end_entity.public_key.len()).any(|bytes| bytes == end_entity.public_key));
        assert!((1..=MAX_CERTIFICATES).contains(&gullible.asked), "{}", gullible.asked);
    }
    match form >> 4 {
        0 => {}
        15 => Client::new().take_pieces(list),
        size => Client::new().take_list(list, usize::from(size).pow(2), form & 1 == 0),
    }
}

/// A client that waits for the Certificate message of a server, and verifies the certificates as they arrive.
struct Client {
    endpoint: Endpoint<PeerArray<(), 1, 1, 400, 432>, PublicKeys<ClientOnly, InParts>>,
    environment: Environment<RustCrypto>,
    /// The part of the list of certificates that the endpoint has passed on for verification.
    lent: Vec<u8>,
    is_complete: bool,
    is_over: bool,
}

struct InParts;

impl Keys for InParts {
    const CERTIFICATES_IN_PARTS: bool = true;

    fn credential(&self, _: u32, _: u8) -> Option<Credential<'_>> {
        None
    }

    fn suites(&self, _: u32) -> Suites {
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])
    }
}

impl Client {
    fn new() -> Self {
        let mut environment = Environment::new(RustCrypto::new([0; 32]));
        let role = PublicKeys { role: ClientOnly, keys: InParts };
        let cx = &mut environment.at(NOW);
        let mut endpoint = Endpoint::with_roles(cx, PeerArray::new(), Config::default(), role);
        let mut out = [0; 1400];
        endpoint.connect(cx, &PATH).expect("there is nobody else");
        assert!(matches!(endpoint.poll(cx, &mut out), Some(Event::Transmit { .. })));
        let mut client = Self { endpoint, environment, lent: Vec::new(), is_complete: false, is_over: false };
        let hello = [&[254, 253][..], &[7; 32], &[0, 0xc0, 0xae, 0]].concat();
        client.receive(&fragment(2, hello.len(), 0, 0, &hello));
        client
    }

    /// Processes the content of a record.
    fn receive(&mut self, content: &[u8]) {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let mut datagram = [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, high, low][..], content].concat();
        let mut records = Records::new(&mut datagram);
        let mut out = [0; 1400];
        while let Some(event) = self.endpoint.handle(&mut self.environment.at(NOW), &PATH, &mut records, &mut out) {
            let mut next = Some(event);
            while let Some(event) = next.take() {
                match event {
                    Event::Need(id) => next = self.answer(id),
                    Event::Closed { .. } => self.is_over = true,
                    _ => {}
                }
            }
        }
    }

    fn answer(&mut self, id: PeerId) -> Option<Event> {
        let Some(Need::VerifyCertificate { certificate, is_first, is_last }) = self.endpoint.need(id) else {
            panic!("asked for what is not needed");
        };
        assert_eq!((is_first, self.is_complete), (self.lent.is_empty(), false));
        self.lent.extend(listed(certificate));
        self.is_complete = is_last;
        let peer = Answer::Peer { public_key: &[7; 91], principal: Principal(1) };
        let answer = if is_last { peer } else { Answer::Continue };
        self.endpoint.resume(&mut self.environment.at(NOW), id, answer)
    }

    /// Sends a list in fragments of `size` bytes, up to three times. If `is_swapped` is true, the first time sends each
    /// pair of fragments in reverse order. The other times send all fragments in order.
    fn take_list(mut self, list: &[u8], size: usize, is_swapped: bool) {
        let body = listed(list);
        let mut pieces: Vec<_> = body.chunks(size).enumerate().collect();
        for round in 0..3 {
            if is_swapped && round == 0 {
                pieces.chunks_mut(2).for_each(<[_]>::reverse);
            } else {
                pieces.sort_by_key(|(at, _)| *at);
            }
            for (at, piece) in &pieces {
                if self.is_complete || self.is_over {
                    break;
                }
                self.receive(&fragment(11, body.len(), 1, at * size, piece));
                assert!(list.starts_with(&self.lent));
            }
        }
        assert!(self.is_over || self.is_complete);
        assert_eq!(self.is_complete, list == self.lent && !list.is_empty());
    }

    /// Sends fragments with any content. A length precedes each fragment.
    fn take_pieces(mut self, mut pieces: &[u8]) {
        while let Some((&len, rest)) = pieces.split_first() {
            let (piece, rest) = rest.split_at(rest.len().min(len.into()));
            if self.is_complete || self.is_over {
                return;
            }
            self.receive(piece);
            pieces = rest;
        }
    }
}

/// Makes a handshake message, or a fragment of a handshake message.
fn fragment(kind: u8, len: usize, seq: u8, offset: usize, piece: &[u8]) -> Vec<u8> {
    let u24 = |n: usize| [(n >> 16) as u8, (n >> 8) as u8, n as u8];
    [&[kind][..], &u24(len), &[0, seq], &u24(offset), &u24(piece.len()), piece].concat()
}

/// Returns the bytes, preceded by their length in three bytes.
fn listed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat()
}

const NOW: Instant = Instant::from_micros(0);
const PATH: Path =
    Path { local: Address { ip: [1; 16], port: 1, scope: 0 }, remote: Address { ip: [2; 16], port: 2, scope: 0 } };

/// A cryptographic provider that accepts all signatures, or none.
struct Believer {
    crypto: Compact,
    believes: bool,
    asked: u8,
}

impl Crypto for Believer {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.crypto.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.open(aead, key, nonce, aad, body, tag)
    }

    fn verify(&mut self, _: SignatureScheme, _: &[u8], _: &[u8; DIGEST_LEN], _: &[u8]) -> Result<(), NotAuthentic> {
        self.asked += 1;
        if self.believes { Ok(()) } else { Err(NotAuthentic) }
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
