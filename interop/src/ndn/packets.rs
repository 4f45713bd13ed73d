//! Checks that the packets of Tegmen, of python-ndn and of ndnd are equal byte for byte.

use crate::cell::{Check, Scene};
use crate::peers::Built;
use serde_json::{Value, json};
use std::fmt::Write as _;
use tegmen::buf::{Frame, Writer};
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto as _, RustCrypto, curves, ed25519};
use tegmen::secret::Secret;
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_ndn::signature::{
    DigestSha256, EcdsaPublicKey, Ed25519, Ed25519PublicKey, HmacWithSha256, KeyLocator, Sha256WithEcdsa,
    SignatureInfo, SignatureType, Signed, Signer,
};
use tegmen_ndn::tlv::Type;
use tegmen_ndn::{Component, ContentType, Data, Interest, MAX_HEAD, Name, Names, ReceivedData, ReceivedInterest};

/// Number of packets that each peer encodes and verifies.
const PACKETS: usize = 10_000;

/// Returns the name of the scenario.
pub(super) fn scenario() -> String {
    format!("NDN: {PACKETS} packets equal byte for byte, each signature verified by the other")
}

/// A name: the types and the values of its components.
type Parts = Vec<(u32, Vec<u8>)>;

/// A random packet.
struct Drawn {
    name: Parts,
    /// The kind of the signature; `None` for an Interest without a signature.
    signature: Option<SignatureType>,
    body: Body,
}

enum Body {
    Data {
        content_type: u64,
        freshness: Option<u64>,
        final_block: Option<(u32, Vec<u8>)>,
        content: Option<Vec<u8>>,
    },
    Interest {
        can_be_prefix: bool,
        must_be_fresh: bool,
        hint: Vec<Parts>,
        nonce: Option<u32>,
        lifetime: Option<u64>,
        hop_limit: Option<u8>,
        parameters: Option<Vec<u8>>,
        sig_nonce: Option<u64>,
        sig_time: Option<u64>,
        sig_sequence: Option<u64>,
    },
}

/// The kinds of signatures that Tegmen, python-ndn and ndnd all support.
pub(super) const KINDS: [SignatureType; 4] = [
    SignatureType::DIGEST_SHA256,
    SignatureType::SHA256_WITH_ECDSA,
    SignatureType::HMAC_WITH_SHA256,
    SignatureType::ED25519,
];

/// The keys that Tegmen and the peer share. All of them are derived from one secret.
pub(super) struct Keys {
    secret: Secret<32>,
    hmac: HmacKey,
    ecdsa: [u8; 91],
    ed25519: Ed25519PublicKey,
    locator: Parts,
}

impl Keys {
    pub(super) fn new() -> Result<Self, String> {
        let secret = [0x42; 32];
        Ok(Self {
            hmac: HmacKey::new::<RustCrypto>(&[&secret]),
            ecdsa: curves::public_key_of(&secret).map_err(|_| "the secret is no key of ECDSA")?,
            ed25519: Ed25519PublicKey(ed25519::public_key_of(&secret)),
            secret: Secret::new(secret),
            locator: vec![(8, b"house".to_vec()), (8, b"KEY".to_vec()), (8, b"\x01".to_vec())],
        })
    }

    /// Calls `f` with the signer of this kind.
    pub(super) fn with_signer<R>(&self, kind: SignatureType, f: impl FnOnce(&dyn Signer<RustCrypto>) -> R) -> R {
        let name = name_bytes(&self.locator);
        let locator = KeyLocator::Name(Name::parse(&name).unwrap_or_default());
        match kind {
            SignatureType::SHA256_WITH_ECDSA => f(&Sha256WithEcdsa { key: &self.secret, locator }),
            SignatureType::HMAC_WITH_SHA256 => f(&HmacWithSha256 { key: &self.hmac, locator }),
            SignatureType::ED25519 => f(&Ed25519 { key: &self.secret, locator }),
            _ => f(&DigestSha256),
        }
    }

    pub(super) fn verify(&self, crypto: &mut RustCrypto, signed: &Signed<'_>) -> Result<(), String> {
        let verified = match signed.info.kind {
            SignatureType::SHA256_WITH_ECDSA => signed.verify(crypto, &EcdsaPublicKey(&self.ecdsa)),
            SignatureType::HMAC_WITH_SHA256 => signed.verify(crypto, &self.hmac),
            SignatureType::ED25519 => signed.verify(crypto, &self.ed25519),
            _ => signed.verify(crypto, &DigestSha256),
        };
        verified.map_err(|_| format!("the signature of kind {} is wrong", signed.info.kind.0))
    }
}

/// A generator of random numbers from a seed.
struct Draw {
    random: RustCrypto,
    /// Maximum length of a component, in bytes.
    longest: u64,
}

impl Draw {
    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.random.random(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    fn bytes(&mut self, limit: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.below(limit) as usize];
        self.random.random(&mut bytes);
        bytes
    }

    /// Returns a random number with a random length, below 2 to the power of `bits`.
    fn of_any_length(&mut self, bits: u32) -> u64 {
        let len = self.below(u64::from(bits)) as u32;
        self.number() >> (63 - len)
    }

    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| draw(self))
    }

    fn component(&mut self) -> (u32, Vec<u8>) {
        match self.below(8) {
            0 => (self.below(0xff00) as u32 + 10, self.bytes(self.longest + 1)),
            1 => {
                let number = self.of_any_length(64);
                let kinds = [Type::SEGMENT, Type::BYTE_OFFSET, Type::VERSION, Type::TIMESTAMP, Type::SEQUENCE];
                (kinds[self.below(5) as usize].0, tegmen_ndn::tlv::integer_bytes(number, &mut [0; 8]).to_vec())
            }
            _ => (Type::GENERIC.0, self.bytes(20)),
        }
    }

    fn name(&mut self) -> Parts {
        (0..=self.below(6)).map(|_| self.component()).collect()
    }

    fn packet(&mut self) -> Drawn {
        // ECDSA takes longer than all others, so fewer packets have it.
        let kind = [0, 0, 0, 1, 2, 2, 2, 3][self.below(8) as usize];
        let signature = Some(KINDS[kind]);
        let name = self.name();
        if self.below(2) == 0 {
            let body = Body::Data {
                // Without ContentType and FreshnessPeriod ndnd writes an empty MetaInfo.
                content_type: self.of_any_length(16),
                freshness: self.maybe(|draw| draw.of_any_length(40)),
                final_block: self.maybe(Self::component),
                content: self.maybe(|draw| draw.bytes(1_200)),
            };
            return Drawn { name, signature, body };
        }
        let signature = signature.filter(|_| self.below(2) == 0);
        let is_signed = signature.is_some();
        let body = Body::Interest {
            can_be_prefix: self.below(2) == 0,
            must_be_fresh: self.below(2) == 0,
            hint: if self.below(4) == 0 { (0..=self.below(2)).map(|_| self.name()).collect() } else { Vec::new() },
            nonce: self.maybe(|draw| draw.number() as u32),
            lifetime: self.maybe(|draw| draw.of_any_length(40)),
            hop_limit: self.maybe(|draw| draw.number() as u8),
            parameters: if is_signed { Some(self.bytes(400)) } else { self.maybe(|draw| draw.bytes(400)) },
            sig_nonce: self.maybe(|draw| draw.of_any_length(64)).filter(|_| is_signed),
            sig_time: self.maybe(|draw| draw.of_any_length(40)).filter(|_| is_signed),
            sig_sequence: self.maybe(|draw| draw.of_any_length(64)).filter(|_| is_signed),
        };
        Drawn { name, signature, body }
    }
}

fn name_bytes(parts: &Parts) -> Vec<u8> {
    let mut storage = vec![0; 4_000];
    let mut out = Writer::new(&mut storage);
    for (kind, value) in parts {
        let written = Component { kind: Type(*kind), value }.write(&mut out);
        debug_assert!(written.is_ok());
    }
    out.written().to_vec()
}

impl Drawn {
    /// Encodes the packet with Tegmen.
    fn encode(&self, keys: &Keys, crypto: &mut RustCrypto) -> Result<Vec<u8>, String> {
        let name = name_bytes(&self.name);
        let name = Name::parse(&name).map_err(|error| error.to_string())?;
        let mut storage = vec![0; 12_000];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let written = match &self.body {
            Body::Data { content_type, freshness, final_block, content } => {
                let final_block = final_block.as_ref().map(|(kind, value)| Component { kind: Type(*kind), value });
                let data = Data {
                    name,
                    content_type: Some(ContentType(*content_type)),
                    freshness: *freshness,
                    final_block,
                    content: content.as_deref(),
                };
                keys.with_signer(self.signature.unwrap_or(SignatureType::DIGEST_SHA256), |signer| {
                    data.write(crypto, signer, &mut frame)
                })
            }
            Body::Interest { hint, nonce, sig_nonce, sig_time, sig_sequence, .. } => {
                let hints: Vec<u8> = hint.iter().flat_map(|parts| element(Type::NAME, &name_bytes(parts))).collect();
                let hint = (!hint.is_empty()).then(|| Names::parse(&hints).unwrap_or_default());
                let mut interest = Interest { name, hint, nonce: nonce.map(u32::to_be_bytes), ..Interest::default() };
                self.fill(&mut interest);
                match self.signature {
                    None => interest.write::<RustCrypto>(&mut frame),
                    Some(kind) => keys.with_signer(kind, |signer| {
                        let mut bytes = [0; 8];
                        let nonce = sig_nonce.map(|nonce| tegmen_ndn::tlv::integer_bytes(nonce, &mut bytes));
                        let info = SignatureInfo { nonce, time: *sig_time, sequence: *sig_sequence, ..signer.info() };
                        interest.write_signed(crypto, signer, &info, &mut frame)
                    }),
                }
            }
        };
        written.map_err(|error| error.to_string())?;
        Ok(frame.bytes().to_vec())
    }

    /// Sets all elements of `interest` except the name, the hint and the nonce. The elements borrow from this packet.
    fn fill<'p>(&'p self, interest: &mut Interest<'p>) {
        if let Body::Interest { can_be_prefix, must_be_fresh, lifetime, hop_limit, parameters, .. } = &self.body {
            interest.can_be_prefix = *can_be_prefix;
            interest.must_be_fresh = *must_be_fresh;
            interest.lifetime = *lifetime;
            interest.hop_limit = *hop_limit;
            interest.parameters = parameters.as_deref();
        }
    }

    /// Returns the line that describes the packet to a peer.
    fn describe(&self, wire: &[u8]) -> Value {
        let component = |(kind, value): &(u32, Vec<u8>)| json!([kind, to_hex(value)]);
        let name = |parts: &Parts| Value::Array(parts.iter().map(component).collect());
        let digits = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| to_hex(bytes));
        let mut line = match &self.body {
            Body::Data { content_type, freshness, final_block, content } => json!({
                "kind": "data",
                "content_type": content_type,
                "freshness": freshness,
                "final_block": final_block.as_ref().map(component),
                "content": digits(content),
            }),
            Body::Interest {
                can_be_prefix,
                must_be_fresh,
                hint,
                nonce,
                lifetime,
                hop_limit,
                parameters,
                sig_nonce,
                sig_time,
                sig_sequence,
            } => json!({
                "kind": "interest",
                "can_be_prefix": can_be_prefix,
                "must_be_fresh": must_be_fresh,
                "hint": hint.iter().map(name).collect::<Vec<_>>(),
                "nonce": nonce,
                "lifetime": lifetime,
                "hop_limit": hop_limit,
                "parameters": digits(parameters),
                "sig_nonce": sig_nonce,
                "sig_time": sig_time,
                "sig_sequence": sig_sequence,
            }),
        };
        line["name"] = name(&self.name);
        line["signature"] = json!(self.signature.map(|kind| kind.0));
        line["wire"] = json!(to_hex(wire));
        line
    }

    /// Compares Tegmen's packet with the packet of the peer, and verifies the signature of the peer.
    fn compare(&self, keys: &Keys, crypto: &mut RustCrypto, ours: &[u8], theirs: &[u8]) -> Result<(), String> {
        let error = |error: tegmen_ndn::Error| error.to_string();
        let signed = match &self.body {
            Body::Data { .. } => Some(ReceivedData::parse(theirs).map_err(error)?.signed),
            Body::Interest { .. } => {
                let received = ReceivedInterest::parse(theirs).map_err(error)?;
                if !received.has_valid_digest::<RustCrypto>() {
                    return Err("the digest of the parameters is wrong".into());
                }
                received.signed
            }
        };
        if let Some(signed) = &signed {
            keys.verify(crypto, signed)?;
        }
        if ours == theirs {
            return Ok(());
        }
        if self.signature != Some(SignatureType::SHA256_WITH_ECDSA) {
            return Err("the packets differ".into());
        }
        // A signature of ECDSA is random there, and so is the digest of parameters that cover it.
        self.signed_portions_are_equal(ours, theirs)
    }

    fn signed_portions_are_equal(&self, ours: &[u8], theirs: &[u8]) -> Result<(), String> {
        let equal = match &self.body {
            Body::Data { .. } => {
                let portion = |wire| ReceivedData::parse(wire).map(|received| received.signed.portion.concat());
                portion(ours) == portion(theirs)
            }
            Body::Interest { .. } => {
                let parts = |wire| {
                    ReceivedInterest::parse(wire).map(|received| {
                        let portion = received.signed.map(|signed| signed.portion.concat());
                        // The name, without the digest, is in the portion.
                        let interest = Interest { name: Name::default(), ..received.interest };
                        (portion, format!("{interest:?}"))
                    })
                };
                parts(ours) == parts(theirs)
            }
        };
        if equal { Ok(()) } else { Err("the signed portions differ".into()) }
    }
}

/// Encodes an element.
fn element(kind: Type, value: &[u8]) -> Vec<u8> {
    let mut storage = vec![0; value.len() + 10];
    let mut out = Writer::new(&mut storage);
    let written = tegmen_ndn::tlv::write(&mut out, kind, value);
    debug_assert!(written.is_ok());
    out.written().to_vec()
}

/// Checks that `program` and Tegmen write the same bytes for each of [`PACKETS`] random packets. `longest` is the maximum
/// length of a component of a name in bytes.
pub(super) fn are_equal(scene: &Scene, program: &Built, longest: u64) -> Check {
    let keys = Keys::new()?;
    let mut crypto = RustCrypto::new([1; 32]);
    let mut draw = Draw { random: RustCrypto::new([21; 32]), longest };
    let locator: Vec<_> = keys.locator.iter().map(|(kind, value)| json!([kind, to_hex(value)])).collect();
    let mut lines = json!({ "secret": to_hex(keys.secret.expose()), "locator": locator }).to_string() + "\n";
    let mut packets = Vec::with_capacity(PACKETS);
    for _ in 0..PACKETS {
        let drawn = draw.packet();
        let wire = drawn.encode(&keys, &mut crypto)?;
        let _ = writeln!(lines, "{}", drawn.describe(&wire));
        packets.push((drawn, wire));
    }
    let file = scene.file("packets.jsonl", lines)?;
    let mut command = program.command()?;
    command.arg("packets").arg(file);
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the peer fails: {}", told.lines().last().unwrap_or_default()).into());
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let mut answers = told.lines();
    for (number, (drawn, ours)) in packets.iter().enumerate() {
        let answer = answers.next().ok_or_else(|| format!("there is no packet {number} of the peer"))?;
        let (digits, verdict) = answer.split_once(' ').ok_or("a line of the peer is no packet")?;
        let theirs = from_hex(digits).ok_or("a line of the peer is no packet")?;
        let compared = drawn.compare(&keys, &mut crypto, ours, &theirs);
        compared.map_err(|why| format!("packet {number}: {why}: {} and {digits}", to_hex(ours)))?;
        if verdict != "valid" {
            return Err(format!("the peer does not verify packet {number}: {}", to_hex(ours)).into());
        }
    }
    Ok(())
}
