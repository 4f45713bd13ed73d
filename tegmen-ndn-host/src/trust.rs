//! Verifies chains of certificates from a packet to an anchor. An anchor is a certificate that the owner trusts.
//!
//! [`Trust`] performs no input and output. When [`Trust::verify`] needs a certificate, it returns the name of this
//! certificate. The owner fetches the certificate and passes it to [`Trust::offer`].

use crate::client::{Client, ClientError};
use crate::schema::Schema;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen_base::crypto::RustCrypto;
use tegmen_ndn::certificate::{Certificate, CertificateError, Refusal, Validity};
use tegmen_ndn::signature::{KeyLocator, SignatureInfo};
use tegmen_ndn::tlv::Type;
use tegmen_ndn::{Interest, Name, ReceivedData};

/// Maximum number of certificates between a packet and an anchor.
pub const MAX_CHAIN: usize = 8;

/// Maximum number of certificates that are kept. If a further certificate comes, all certificates are removed first.
/// They are fetched again when a verification needs them.
const MAX_KEPT: usize = 256;

/// The reason why the origin of a packet is not proved.
#[derive(Debug)]
pub enum TrustError {
    /// An anchor is not a certificate.
    Anchor(CertificateError),
    /// An anchor is not valid now, or its own signature is wrong. The values are the name of the anchor, and the
    /// reason.
    AnchorRefused(String, Refusal),
    /// The anchors do not fit the schema. The value is the name of an anchor that matches no root of trust of the
    /// schema, or the rule of a root of trust that no anchor matches.
    AnchorOfSchema(String),
    /// The packet with this name does not name the key that signed it.
    NoKey(String),
    /// The packet that the KeyLocator names is not a certificate. The values are the KeyLocator, and the error.
    Certificate(String, CertificateError),
    /// The certificate does not prove the origin of the packet. The values are the name of the packet, the name of the
    /// certificate, and the reason.
    Refused(String, String, Refusal),
    /// The schema does not allow the key to sign the name of the packet. The values are the name of the packet, and the
    /// name of the key's certificate.
    Rule(String, String),
    /// The certificate with this name is signed with its own key, and is not an anchor.
    SelfSigned(String),
    /// The certificate with this name is in the chain twice.
    Loop(String),
    /// The chain has more than [`MAX_CHAIN`] certificates. The value is the name of the first certificate beyond this
    /// maximum.
    TooLong(String),
    /// The certificate with this name could not be fetched.
    NotFetched(String, ClientError),
    /// The verification needs this certificate, but the program has no certificate with this name.
    NotKnown(String),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anchor(error) => write!(f, "the anchor is no certificate: {error}"),
            Self::AnchorRefused(name, reason) => write!(f, "the anchor {name}: {reason}; name another anchor"),
            Self::AnchorOfSchema(name) => {
                write!(
                    f,
                    "the anchors do not fit the roots of trust of the schema at {name}: name an anchor for each root"
                )
            }
            Self::NoKey(name) => {
                write!(f, "{name} names no key, so its origin is not known; its producer must sign it")
            }
            Self::Certificate(name, error) => write!(f, "{name} is no certificate: {error}"),
            Self::Refused(name, key, Refusal::Signature) => {
                write!(f, "the signature of {name} is wrong: the key of {key} did not sign it")
            }
            Self::Refused(name, key, reason) => write!(f, "{name} is signed by the key of {key}: {reason}"),
            Self::Rule(name, key) => {
                write!(
                    f,
                    "the key of {key} must not sign {name}: sign with another key, or name a schema that allows it"
                )
            }
            Self::SelfSigned(name) => {
                write!(f, "{name} is signed by itself, and is no anchor: name it by --anchor if you trust its key")
            }
            Self::Loop(name) => write!(f, "the certificates sign each other in a loop at {name}"),
            Self::TooLong(name) => {
                write!(f, "more than {MAX_CHAIN} certificates are between the packet and an anchor at {name}")
            }
            Self::NotFetched(name, error) => {
                write!(
                    f,
                    "the certificate {name} is not fetched: {error}; its owner must publish it, or name it by --anchor if you trust its key"
                )
            }
            Self::NotKnown(name) => write!(f, "the certificate {name} is not known: name its file by --certificate"),
        }
    }
}

impl std::error::Error for TrustError {}

/// The result of a step of a verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The chain ends at an anchor.
    Authentic,
    /// The verification needs a certificate whose name is equal to this name, or begins with it. The bytes are the
    /// value of a Name element.
    Needs(Vec<u8>),
}

struct Kept {
    packet: Vec<u8>,
    /// The period in which this certificate and all certificates from it to the anchor are valid. It is `None` until
    /// the chain from this certificate to the anchor was verified.
    verified: Option<Validity>,
}

/// A verifier of packets. It contains the anchors, the rule for the names that a key may sign, and the known
/// certificates.
pub struct Trust {
    anchors: Vec<Vec<u8>>,
    schema: Option<Schema>,
    /// The known certificates. The key is the KeyLocator that names the certificate.
    kept: HashMap<Vec<u8>, Kept>,
}

impl Trust {
    /// Trusts certificates as anchors. `now` is in seconds since 1970. With a schema, a key may sign the names that the
    /// schema allows. Without a schema, a key may sign the names that begin with the identity of the key.
    ///
    /// # Errors
    /// [`TrustError`] if an anchor is not valid, or does not fit the schema.
    pub fn new(
        crypto: &mut RustCrypto,
        anchors: Vec<Vec<u8>>,
        schema: Option<Schema>,
        now: u64,
    ) -> Result<Self, TrustError> {
        let mut missing = schema.as_ref().map_or_else(Vec::new, Schema::roots);
        for packet in &anchors {
            let anchor = Certificate::parse(packet).map_err(TrustError::Anchor)?;
            let refused = |reason| TrustError::AnchorRefused(anchor.name().to_string(), reason);
            if anchor.is_self_signed() {
                anchor.verify(crypto, &anchor.received, now).map_err(refused)?;
            } else if !anchor.validity.contains(now) {
                let is_early = now < anchor.validity.not_before;
                return Err(refused(if is_early { Refusal::NotYetValid } else { Refusal::Expired }));
            }
            if let Some(schema) = &schema {
                let rules = schema.rules_of(&anchor.name());
                if !schema.roots().iter().any(|root| rules.contains(root)) {
                    return Err(TrustError::AnchorOfSchema(anchor.name().to_string()));
                }
                missing.retain(|root| !rules.contains(root));
            }
        }
        match missing.pop() {
            Some(root) => Err(TrustError::AnchorOfSchema(root)),
            None => Ok(Self { anchors, schema, kept: HashMap::new() }),
        }
    }

    /// Returns true if the key of a certificate may sign a name.
    fn allows(&self, name: &Name<'_>, certificate: &Certificate<'_>) -> bool {
        match &self.schema {
            Some(schema) => schema.allows(name, &certificate.name()),
            None => certificate.identity().is_prefix_of(name),
        }
    }

    /// Adds the certificate that a KeyLocator names.
    ///
    /// # Errors
    /// [`TrustError::Certificate`] if the packet is not a certificate, or if its name does not match `locator`.
    pub fn offer(&mut self, locator: &Name<'_>, packet: Vec<u8>) -> Result<(), TrustError> {
        let wrong = |error| TrustError::Certificate(locator.to_string(), error);
        let certificate = Certificate::parse(&packet).map_err(wrong)?;
        if !locator.is_prefix_of(&certificate.name()) || !certificate.key_name().is_prefix_of(locator) {
            return Err(wrong(CertificateError::Name));
        }
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        self.kept.insert(locator.as_bytes().to_vec(), Kept { packet, verified: None });
        Ok(())
    }

    /// Verifies a packet with the known certificates. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn verify(
        &mut self,
        crypto: &mut RustCrypto,
        packet: &ReceivedData<'_>,
        now: u64,
    ) -> Result<Verdict, TrustError> {
        let mut chain: Vec<Vec<u8>> = Vec::new();
        let walked = self.walk(crypto, packet, now, &mut chain);
        match &walked {
            Ok((Verdict::Authentic, end)) => self.remember(&chain, *end),
            // A wrong certificate is fetched again the next time.
            Err(_) => self.kept.retain(|locator, kept| kept.verified.is_some() || !chain.contains(locator)),
            Ok(_) => {}
        }
        walked.map(|(verdict, _)| verdict)
    }

    /// Marks the certificates of a chain as verified. `end` is the validity of the anchor. If the chain ends at a
    /// certificate that was verified before, `end` is the period that was stored for this certificate.
    fn remember(&mut self, chain: &[Vec<u8>], end: Option<Validity>) {
        let mut valid = end;
        for locator in chain.iter().rev() {
            let Some(kept) = self.kept.get_mut(locator) else { return };
            let Ok(certificate) = Certificate::parse(&kept.packet) else { return };
            let of = certificate.validity;
            let both = valid.map_or(of, |valid| Validity {
                not_before: valid.not_before.max(of.not_before),
                not_after: valid.not_after.min(of.not_after),
            });
            kept.verified = Some(both);
            valid = Some(both);
        }
    }

    /// Follows the KeyLocators from a packet to an anchor, or to a certificate that was verified before. Appends the
    /// KeyLocators of the certificates on this way to `chain`.
    fn walk(
        &self,
        crypto: &mut RustCrypto,
        packet: &ReceivedData<'_>,
        now: u64,
        chain: &mut Vec<Vec<u8>>,
    ) -> Result<(Verdict, Option<Validity>), TrustError> {
        let mut current = *packet;
        loop {
            let name = current.data.name;
            let locator = locator_of(&current.signed.info).ok_or_else(|| TrustError::NoKey(name.to_string()))?;
            if let Some(anchor) = self.anchor_of(&current.signed.info) {
                self.check(crypto, &current, &anchor, now)?;
                return Ok((Verdict::Authentic, Some(anchor.validity)));
            }
            if !chain.is_empty() && Certificate::of(current).is_ok_and(|certificate| certificate.is_self_signed()) {
                return Err(TrustError::SelfSigned(name.to_string()));
            }
            let Some(kept) = self.kept.get(locator.as_bytes()) else {
                return Ok((Verdict::Needs(locator.as_bytes().to_vec()), None));
            };
            if chain.iter().any(|passed| passed == locator.as_bytes()) {
                return Err(TrustError::Loop(locator.to_string()));
            }
            if chain.len() >= MAX_CHAIN {
                return Err(TrustError::TooLong(locator.to_string()));
            }
            // The name is added before the check, so that a certificate of a wrong key is also removed from `kept`.
            chain.push(locator.as_bytes().to_vec());
            let wrong = |error| TrustError::Certificate(locator.to_string(), error);
            let certificate = Certificate::parse(&kept.packet).map_err(wrong)?;
            self.check(crypto, &current, &certificate, now)?;
            if kept.verified.is_some_and(|verified| verified.contains(now)) {
                return Ok((Verdict::Authentic, kept.verified));
            }
            current = certificate.received;
        }
    }

    fn anchor_of(&self, info: &SignatureInfo<'_>) -> Option<Certificate<'_>> {
        let mut anchors = self.anchors.iter().filter_map(|anchor| Certificate::parse(anchor).ok());
        anchors.find(|anchor| anchor.is_named_by(info))
    }

    /// Checks that a certificate is valid now, that its key may sign a packet, and that this key signed the packet.
    fn check(
        &self,
        crypto: &mut RustCrypto,
        packet: &ReceivedData<'_>,
        certificate: &Certificate<'_>,
        now: u64,
    ) -> Result<(), TrustError> {
        let (name, key) = (packet.data.name, certificate.name());
        if !self.allows(&name, certificate) {
            return Err(TrustError::Rule(name.to_string(), key.to_string()));
        }
        let refused = |reason| TrustError::Refused(name.to_string(), key.to_string(), reason);
        certificate.verify(crypto, packet, now).map_err(refused)
    }

    /// Verifies a packet at the current time, and fetches the certificates that the verification needs. `within` is the
    /// time limit of one request for a certificate. While this function waits, it drops all other packets that arrive.
    ///
    /// # Errors
    /// [`TrustError`].
    pub async fn verify_by(
        &mut self,
        client: &mut Client,
        packet: &ReceivedData<'_>,
        within: Duration,
    ) -> Result<(), TrustError> {
        loop {
            let Verdict::Needs(locator) = self.verify(client.crypto(), packet, now())? else { return Ok(()) };
            let name = Name::of_checked(&locator);
            // A name without a version has newer certificates than those in caches.
            let must_be_fresh = name.last().is_none_or(|last| last.kind != Type::VERSION);
            let interest = Interest { name, can_be_prefix: true, must_be_fresh, ..Interest::default() };
            let fetched = client.ask(&interest, within).await;
            self.offer(&name, fetched.map_err(|error| TrustError::NotFetched(name.to_string(), error))?)?;
        }
    }
}

fn locator_of<'p>(info: &SignatureInfo<'p>) -> Option<Name<'p>> {
    match info.key {
        Some(KeyLocator::Name(name)) if !name.is_empty() => Some(name),
        _ => None,
    }
}

/// Returns the current time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
