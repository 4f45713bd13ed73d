//! Tests attacks of a proxy on the messages that it stores.

use crate::world::{GROUPS, Line, Member, Origin, Person, SALT, SHARED, credential, get, open_proxy, with};
use tegmen::coap::{Code, MessageRef, OptionNumber};
use tegmen::crypto::Crypto;
use tegmen::crypto::hash::digest;
use tegmen::crypto::hkdf::Hkdf;
use tegmen_host::provider::HostCrypto;

/// Number of bytes of an authentication tag (`TAG`), and of a tag with a signature (`SIGNED`).
const TAG: usize = 8;
const SIGNED: usize = TAG + 64;
/// The paths of three requests. `VALUES` has the payloads of the responses.
const PATHS: [&str; 3] = ["door", "lamp", "door"];
const VALUES: [&str; 3] = ["it is open", "it is dark", "it is shut"];

/// A fault of a member or of the origin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The payload is not encrypted.
    InClear,
    /// The hash of the request does not cover the key of the Deterministic Client.
    HashWithoutKey,
    /// The encryption key does not depend on the hash of the request.
    OneKey,
    /// The origin uses the number 0 for each response.
    OneNumber,
}

/// The request and the response that a proxy sees. The proxy makes the key and the entry of its cache only from these
/// bytes.
struct Sight {
    request: Vec<u8>,
    response: Vec<u8>,
}

/// A Deterministic Client that was written from the text of the draft, with a fault.
struct Client {
    flaw: Flaw,
    crypto: HostCrypto,
    sender_key: [u8; 16],
    nonce: [u8; 13],
}

const OSCORE: [u8; 8] = *b"\x19\x00\x04grp1d";
const INFO_OF_KEY: &[u8] = b"\x85\x41d\x44grp1\x0a\x63Key\x10";

impl Client {
    fn new(flaw: Flaw) -> Self {
        let (_, _, secret) = GROUPS[0];
        let mut hkdf = Hkdf::none();
        hkdf.extract::<HostCrypto>(SALT, &[&secret]);
        let (mut sender_key, mut nonce) = ([0; 16], [0; 13]);
        hkdf.expand::<HostCrypto>(INFO_OF_KEY, &mut sender_key);
        hkdf.expand::<HostCrypto>(b"\x85\x40\x44grp1\x0a\x62IV\x0d", &mut nonce);
        // RFC 8613, section 5.2, with the number 0.
        nonce[0] ^= 1;
        nonce[7] ^= SHARED;
        Self { flaw, crypto: HostCrypto::from_os().unwrap(), sender_key, nonce }
    }

    /// Returns the `aad_array` of a request. OSCORE authenticates this array. All its content is public.
    fn aad_array() -> Vec<u8> {
        let manager = credential("manager");
        let head = b"\x89\x01\x84\x0a\x0a\x26\x38\x1a\x41d\x41\x00\x40\x44grp1\x48";
        [head.as_slice(), &OSCORE, b"\x40\x58", &[manager.len() as u8], &manager].concat()
    }

    fn request(&mut self, plaintext: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let array = Self::aad_array();
        let secret: &[u8] = if self.flaw == Flaw::HashWithoutKey { &[] } else { &self.sender_key };
        let hash = digest::<HostCrypto, 32>(&[secret, &array, plaintext]);
        let (mut hkdf, mut key) = (Hkdf::none(), self.sender_key);
        hkdf.extract::<HostCrypto>(&self.sender_key, &[&hash]);
        if self.flaw != Flaw::OneKey {
            hkdf.expand::<HostCrypto>(INFO_OF_KEY, &mut key);
        }
        let aad = [b"\x83\x68Encrypt0\x40\x58".as_slice(), &[array.len() as u8], &array].concat();
        let (mut body, mut tag) = (plaintext.to_vec(), [0; TAG]);
        if self.flaw != Flaw::InClear {
            self.crypto.seal(HostCrypto::AES_128_CCM, &key, &self.nonce, &aad, &mut body, &mut tag).unwrap();
        }
        body.extend_from_slice(&tag);
        (hash.to_vec(), body)
    }
}

/// Returns the plaintext of a request for a path: the code GET, and the Uri-Path option.
fn plaintext(path: &str) -> Vec<u8> {
    [&[1, 0xb0 | path.len() as u8], path.as_bytes()].concat()
}

/// Returns three requests with their responses, as the proxy sees them. The client or the origin has the fault `flaw`.
/// The cache of the proxy is emptied after each exchange, so that each request reaches the origin.
fn watch(flaw: Flaw) -> Vec<Sight> {
    let mut member = Member::new("house", "origin");
    let origin = Origin::answering(move |datagram, count| {
        if flaw == Flaw::OneNumber {
            member = Member::new("house", "origin");
        }
        member.answer(datagram, |_| VALUES[count - 1].to_owned())
    });
    let (_server, address, proxy) = open_proxy();
    let (mut client, mut line) = (Client::new(flaw), Line::to(address));
    let mut alice = Person::new("house", "alice", address);
    for (path, value) in PATHS.into_iter().zip(VALUES) {
        let (hash, payload) = client.request(&plaintext(path));
        let (_, ours) = alice.member.ask(&get(origin.address, path));
        let request = with(&ours, (OptionNumber::REQUEST_HASH, &hash), &payload);
        if matches!(flaw, Flaw::None | Flaw::OneNumber) {
            assert_eq!(request, ours, "a client without a fault is ours");
            assert_eq!(alice.get(origin.address, path).unwrap(), value);
        } else {
            line.exchange(&request);
        }
        proxy.purge();
    }
    assert_eq!(origin.requests(), PATHS.len());
    origin.exchanges().into_iter().map(|(request, response)| Sight { request, response }).collect()
}

fn payload(datagram: &[u8]) -> &[u8] {
    MessageRef::parse(datagram).unwrap().payload()
}

/// Returns the names of the attacks in which a proxy succeeds. The proxy does not know the secrets of the group. When
/// it compares two ciphertexts, it knows the plaintext of one of them.
fn attacks(sights: &[Sight]) -> Vec<&'static str> {
    let all: Vec<_> = sights.iter().flat_map(|sight| [&sight.request, &sight.response]).collect();
    let contains = |word: &str| all.iter().any(|bytes| bytes.windows(word.len()).any(|at| at == word.as_bytes()));
    let reads = PATHS.iter().chain(&VALUES).any(|word| contains(word));
    let hash_of =
        |sight: &Sight| MessageRef::parse(&sight.request).unwrap().option(OptionNumber::REQUEST_HASH).unwrap().to_vec();
    let guess = |path: &&str| digest::<HostCrypto, 32>(&[&Client::aad_array(), &plaintext(path)]);
    let guesses = sights.iter().any(|sight| PATHS.iter().map(guess).any(|hash| hash_of(sight) == hash));
    // Under one key and nonce the difference of two texts is that of their ciphertexts.
    let difference = |one: &[u8], other: &[u8]| one.iter().zip(other).map(|(a, b)| a ^ b).collect::<Vec<_>>();
    let [first, second, third] = sights else { panic!("there are three") };
    let requests = difference(payload(&first.request), payload(&second.request));
    let compares_requests = requests.starts_with(&difference(&plaintext(PATHS[0]), &plaintext(PATHS[1])));
    let responses = difference(payload(&first.response), payload(&third.response));
    let texts = difference(VALUES[0].as_bytes(), VALUES[2].as_bytes());
    let text_len = responses.len().saturating_sub(SIGNED);
    let compares_responses = responses.get(..text_len).is_some_and(|texts_of| texts_of.ends_with(&texts));
    [
        ("reads", reads),
        ("guesses", guesses),
        ("compares requests", compares_requests),
        ("compares responses", compares_responses),
    ]
    .into_iter()
    .filter_map(|(attack, succeeds)| succeeds.then_some(attack))
    .collect()
}

/// Returns the code, the options and the length of the payload. Leaves out the bytes of hashes, numbers and
/// ciphertexts.
fn shape(datagram: &[u8]) -> (Code, Vec<(OptionNumber, Vec<u8>)>, usize) {
    let message = MessageRef::parse(datagram).unwrap();
    let options = message.options().map(|(number, value)| match number {
        OptionNumber::REQUEST_HASH => (number, vec![0; value.len()]),
        // A response has a number behind the flags.
        OptionNumber::OSCORE if message.code() == Code::CONTENT => (number, [&value[..1], &value[2..]].concat()),
        _ => (number, value.to_vec()),
    });
    (message.code(), options.collect(), message.payload().len())
}

/// docs/proxy.md describes the limits: a proxy sees which requests are equal, how long they are, and the fields outside
/// OSCORE. The proxy sees nothing else.
#[test]
fn a_proxy_learns_nothing_from_a_shared_entry() {
    let sights = watch(Flaw::None);
    assert_eq!(attacks(&sights), [""; 0]);
    let [first, second, third] = &sights[..] else { panic!("there are three") };
    for other in [second, third] {
        assert_eq!(shape(&first.request), shape(&other.request));
        assert_eq!(shape(&first.response), shape(&other.response));
    }
    // Equal requests are equal to everybody.
    assert_eq!(payload(&first.request), payload(&third.request));
    assert_ne!(payload(&first.request), payload(&second.request));
    // The mutants: each attack succeeds against one of them.
    for (flaw, attack) in [
        (Flaw::InClear, "reads"),
        (Flaw::HashWithoutKey, "guesses"),
        (Flaw::OneKey, "compares requests"),
        (Flaw::OneNumber, "compares responses"),
    ] {
        let succeed = attacks(&watch(flaw));
        assert!(succeed.contains(&attack), "{attack}: {succeed:?}");
    }
}
