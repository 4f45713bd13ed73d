//! Verification of certificates on a mote (RFC 5280, in the profile of RFC 7925, section 4.4).
//!
//! A [`Path`] takes the certificates of a peer one at a time, the peer's own first. Of each certificate it keeps only
//! what the next one has to agree with: about 270 bytes, for any length of certificate. [`Path::take`] takes the certificates
//! that [`Need::VerifyCertificate`](tegmen::dtls::Need::VerifyCertificate) lends as they arrive, so that the receive buffer of
//! the handshake holds the longest of them alone. [`Rules::verify`] takes the whole list of
//! [`Need::VerifyPeer`](tegmen::dtls::Need::VerifyPeer), for which the buffer must hold the longest list and an eighth more.
//!
//! A path is accepted with: version 3, keys on secp256r1, signatures of ECDSA with SHA-256, each certificate signed by the
//! next, at most [`MAX_CERTIFICATES`] of them, the last signed by an [`Anchor`]. Basic constraints, key usage, extended key usage and
//! subjectAltName are understood; name constraints, and any other extension that is critical, are refused. Names are
//! compared byte by byte. Revocation is not checked: issue certificates that end soon, or remove an anchor.
//!
//! Hosts have a verifier that accepts more (`tegmen_host::x509`). A host trusts every certificate that this module
//! trusts, if the anchor's own certificate is valid. There is one exception: if a CA certified a new key of itself,
//! hosts count that certificate against the limit of the path.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

mod certificate;
pub mod der;
mod error;

use certificate::{Certificate, KeyUsage, PathLen};
use tegmen::crypto::{Crypto, DIGEST_LEN, MAX_SIGNATURE, SignatureScheme, digest as hash};
use tegmen::dtls::{AlertDescription, certificates};

/// The most certificates of a path: the end entity's, and those of two CAs below the anchor. For any list of a peer,
/// at most two signatures between certificates are verified, and three with each anchor.
pub const MAX_CERTIFICATES: u8 = 3;

/// A SubjectPublicKeyInfo on secp256r1, DER.
pub type PublicKey = [u8; 91];

/// A trusted CA (RFC 5280, section 6.1.1, d). Nothing else of its certificate is checked: neither its validity nor its
/// constraints.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The subject as in the anchor's certificate: a Name in DER.
    pub name: &'a [u8],
    /// The public key of the anchor.
    pub public_key: &'a PublicKey,
}

/// The purpose for which the peer uses its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPurpose {
    /// To be a server.
    Server,
    /// To be a client.
    Client,
}

impl KeyPurpose {
    /// Its OBJECT IDENTIFIER (RFC 5280, section 4.2.1.12).
    const fn id(self) -> [u8; 8] {
        let last = match self {
            Self::Server => 1,
            Self::Client => 2,
        };
        [0x2b, 6, 1, 5, 5, 7, 3, last]
    }
}

/// The name that the certificate must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name<'r> {
    /// Any name: the anchor alone decides.
    Any,
    /// A server: the one that has this DNS name as a dNSName of its subjectAltName, in letters of either case. There are no
    /// wildcards (RFC 7925, section 4.4.1).
    Dns(&'r [u8]),
    /// A device: the one with this EUI-64, as [`EndEntity::eui64`] finds it (RFC 7925, section 4.4.2).
    Eui64([u8; 8]),
}

/// Seconds since 1970, without leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnixTime(pub u64);

/// The requirements for a path.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'r> {
    /// The anchors at which paths may end. Each whose name fits is tried, so their number bounds the cost.
    pub anchors: &'r [Anchor<'r>],
    /// The purpose that the end entity must have.
    pub purpose: KeyPurpose,
    /// The name that the end entity must have.
    pub name: Name<'r>,
    /// The time, if there is a clock that can be trusted. Without it no certificate is too old or too new: a certificate
    /// is trusted for ever.
    pub now: Option<UnixTime>,
}

/// The end entity of a trusted path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndEntity {
    /// The public key for [`Answer::Peer`](tegmen::dtls::Answer::Peer).
    pub public_key: PublicKey,
    /// The EUI-64 in its subjectAltName, as a dNSName, or in the leftmost common name of its subject, both in the form
    /// `01-23-45-67-89-AB-CD-EF`; `None` if neither is one.
    pub eui64: Option<[u8; 8]>,
    /// The last moment at which all of the path is valid.
    pub not_after: UnixTime,
}

/// The reason why a path is not trusted. It is for the owner of this end; the peer receives [`Refusal::ALERT`] for
/// every reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The certificate is not strict DER, or not of version 3. Issue it again.
    Malformed,
    /// A signature is not ECDSA with SHA-256: have the certificate issued by a CA whose key is on secp256r1.
    UnsupportedAlgorithm,
    /// A key is not one on secp256r1 with its point uncompressed, be it weaker or stronger: make another.
    UnsupportedKey,
    /// Name constraints, or a critical extension that is not understood (RFC 5280, section 4.2): issue without it.
    UnsupportedExtension,
    /// A certificate is past its notAfter: renew it, or set the clock.
    Expired,
    /// A certificate is before its notBefore: wait, or set the clock.
    NotYetValid,
    /// The end entity has another name than the one that was asked for: connect to the name it has, or issue one for it.
    WrongName,
    /// The extended key usage of a certificate is without the purpose (RFC 5280, section 4.2.1.12): issue one with it.
    WrongPurpose,
    /// The key usage is without digitalSignature, or of a CA without keyCertSign (RFC 5280, section 4.2.1.3).
    WrongKeyUsage,
    /// The end entity is a CA. Issue a separate certificate for the end entity.
    EndEntityIsCa,
    /// An issuer is no CA (RFC 5280, section 4.2.1.9).
    IssuerIsNoCa,
    /// More CAs are below a CA than its pathLenConstraint allows.
    PathLenExceeded,
    /// More than [`MAX_CERTIFICATES`] without an anchor: issue from a CA nearer to it.
    TooLong,
    /// A certificate does not have the name of the issuer of the one before it (RFC 5246, section 7.4.2): have the peer send
    /// its list in order.
    WrongIssuer,
    /// The list ends, and no anchor has the name of the last issuer: add it, or have the peer send the certificates between.
    UnknownIssuer,
    /// A signature is not that of its issuer: the certificate was changed, or another CA of this name issued it.
    BadSignature,
}

impl Refusal {
    /// The alert that the peer receives (RFC 5246, section 7.2.2).
    pub const ALERT: AlertDescription = AlertDescription::CERTIFICATE_UNKNOWN;
}

impl From<der::Malformed> for Refusal {
    fn from(_: der::Malformed) -> Self {
        Self::Malformed
    }
}

impl Rules<'_> {
    /// Verifies a certificate_list, each certificate after its length in three bytes. Certificates
    /// after the one that an anchor signed, such as the anchor's own, are ignored.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify<C: Crypto>(&self, crypto: &mut C, list: &[u8]) -> Result<EndEntity, Refusal> {
        let mut path = Path::new(self);
        for certificate in certificates(list) {
            if let Some(end_entity) = path.add(crypto, certificate)? {
                return Ok(*end_entity);
            }
        }
        Err(path.end())
    }

    /// Verifies the requirements for every certificate.
    fn check(&self, certificate: &Certificate<'_>) -> Result<(), Refusal> {
        match self.now {
            Some(now) if now > certificate.not_after => return Err(Refusal::Expired),
            Some(now) if now < certificate.not_before => return Err(Refusal::NotYetValid),
            _ => {}
        }
        match certificate.extensions.allow(&self.purpose.id()) {
            true => Ok(()),
            false => Err(Refusal::WrongPurpose),
        }
    }

    /// Verifies the requirements for the first certificate.
    fn check_end_entity(&self, certificate: &Certificate<'_>) -> Result<EndEntity, Refusal> {
        if certificate.extensions.ca.is_some() {
            return Err(Refusal::EndEntityIsCa);
        }
        if !certificate.extensions.key_usage.has(KeyUsage::DIGITAL_SIGNATURE) {
            return Err(Refusal::WrongKeyUsage);
        }
        let eui64 = certificate.alt_names(DNS_NAME).find_map(eui64);
        let eui64 = eui64.or_else(|| certificate.common_name().and_then(self::eui64));
        let named = match self.name {
            Name::Any => true,
            Name::Dns(name) => certificate.alt_names(DNS_NAME).any(|found| found.eq_ignore_ascii_case(name)),
            Name::Eui64(id) => eui64 == Some(id),
        };
        match named {
            true => Ok(EndEntity { public_key: *certificate.public_key, eui64, not_after: certificate.not_after }),
            false => Err(Refusal::WrongName),
        }
    }
}

/// A path as it is walked, from the end entity up.
#[derive(Debug)]
pub struct Path<'r> {
    rules: &'r Rules<'r>,
    walked: Option<Walked>,
}

/// The facts that are kept of the certificates so far.
#[derive(Debug)]
struct Walked {
    end_entity: EndEntity,
    last: Signed,
    count: u8,
    /// CAs among them that are not self-issued (RFC 5280, section 6.1.4, l).
    cas: u8,
    /// The anchor of the last issuer.
    anchor: Found,
}

/// Outcome of the search for an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// No anchor has the name.
    Nothing,
    /// An anchor has the name, but not the key.
    Name,
    /// An anchor signed: the path is complete.
    Anchor,
}

/// The parts of a certificate with which its issuer has to agree.
#[derive(Debug)]
struct Signed {
    /// SHA-256 of the issuer's name.
    issuer: [u8; DIGEST_LEN],
    /// SHA-256 of what it signed.
    digest: [u8; DIGEST_LEN],
    signature: [u8; MAX_SIGNATURE],
    signature_len: u8,
}

impl<'r> Path<'r> {
    /// Before the first certificate.
    pub const fn new(rules: &'r Rules<'r>) -> Self {
        Self { rules, walked: None }
    }

    /// Takes the next certificate, in DER. Returns the end entity once an anchor has signed this certificate: then the
    /// path is complete.
    ///
    /// # Errors
    /// [`Refusal`]; nothing more may be added then.
    pub fn add<C: Crypto>(&mut self, crypto: &mut C, der: &[u8]) -> Result<Option<&EndEntity>, Refusal> {
        // Certificates are read apart from where signatures are checked, so that both do not stand on the stack together.
        if let Some(walked) = &self.walked {
            let key = walked.key_of_issuer::<C>(der)?;
            if !walked.last.is_signed_by(crypto, key) {
                return Err(Refusal::BadSignature);
            }
        }
        let issuer = self.keep::<C>(der)?;
        let Some(walked) = &mut self.walked else { return Err(Refusal::Malformed) };
        walked.anchor = Found::Nothing;
        for anchor in self.rules.anchors.iter().filter(|anchor| anchor.name == issuer) {
            walked.anchor = Found::Name;
            if walked.last.is_signed_by(crypto, anchor.public_key) {
                walked.anchor = Found::Anchor;
                return Ok(Some(&walked.end_entity));
            }
        }
        Ok(None)
    }

    /// Takes the next certificate of a list, in DER. The first one begins a path. Returns the end entity with the last one, if
    /// the path is trusted. Certificates after the one that an anchor signed, such as the anchor's own, are ignored.
    ///
    /// # Errors
    /// [`Refusal`]; the list is then refused.
    pub fn take<C: Crypto>(
        &mut self,
        crypto: &mut C,
        der: &[u8],
        is_first: bool,
        is_last: bool,
    ) -> Result<Option<&EndEntity>, Refusal> {
        if is_first {
            self.walked = None;
        }
        let is_complete = |walked: &Walked| walked.anchor == Found::Anchor;
        if !self.walked.as_ref().is_some_and(is_complete) {
            self.add(crypto, der)?;
        }
        match &self.walked {
            _ if !is_last => Ok(None),
            Some(walked) if is_complete(walked) => Ok(Some(&walked.end_entity)),
            _ => Err(self.end()),
        }
    }

    /// Keeps what the next certificate has to agree with; the name of the issuer, which is that one's or an anchor's.
    #[inline(never)]
    fn keep<'c, C: Crypto>(&mut self, der: &'c [u8]) -> Result<&'c [u8], Refusal> {
        let certificate = Certificate::parse(der)?;
        self.rules.check(&certificate)?;
        match &mut self.walked {
            None => {
                let end_entity = self.rules.check_end_entity(&certificate)?;
                let last = Signed::new::<C>(&certificate)?;
                self.walked = Some(Walked { end_entity, last, count: 1, cas: 0, anchor: Found::Nothing });
            }
            Some(walked) => {
                walked.last = Signed::new::<C>(&certificate)?;
                walked.count = walked.count.saturating_add(1);
                walked.cas = walked.cas.saturating_add((certificate.subject != certificate.issuer).into());
                walked.end_entity.not_after = walked.end_entity.not_after.min(certificate.not_after);
            }
        }
        Ok(certificate.issuer)
    }

    /// Returns the reason for which the path is not trusted, if there are no more certificates.
    pub(crate) fn end(&self) -> Refusal {
        match &self.walked {
            None => Refusal::Malformed,
            Some(walked) if walked.anchor == Found::Name => Refusal::BadSignature,
            Some(_) => Refusal::UnknownIssuer,
        }
    }
}

impl Walked {
    /// The key in the certificate of the issuer, if it may issue (RFC 5280, section 6.1.4).
    #[inline(never)]
    fn key_of_issuer<'c, C: Crypto>(&self, der: &'c [u8]) -> Result<&'c PublicKey, Refusal> {
        if self.count >= MAX_CERTIFICATES {
            return Err(Refusal::TooLong);
        }
        let issuer = Certificate::parse(der)?;
        if self.last.issuer != digest::<C>(issuer.subject) {
            return Err(Refusal::WrongIssuer);
        }
        let path_len: PathLen = issuer.extensions.ca.ok_or(Refusal::IssuerIsNoCa)?;
        if !issuer.extensions.key_usage.has(KeyUsage::KEY_CERT_SIGN) {
            return Err(Refusal::WrongKeyUsage);
        }
        match path_len {
            Some(most) if self.cas > most => Err(Refusal::PathLenExceeded),
            _ => Ok(issuer.public_key),
        }
    }
}

impl Signed {
    fn new<C: Crypto>(certificate: &Certificate<'_>) -> Result<Self, Refusal> {
        let mut signature = [0; MAX_SIGNATURE];
        let kept = signature.get_mut(..certificate.signature.len()).ok_or(Refusal::Malformed)?;
        kept.copy_from_slice(certificate.signature);
        Ok(Self {
            issuer: digest::<C>(certificate.issuer),
            digest: digest::<C>(certificate.signed),
            signature,
            signature_len: certificate.signature.len() as u8,
        })
    }

    fn is_signed_by<C: Crypto>(&self, crypto: &mut C, public_key: &PublicKey) -> bool {
        let signature = self.signature.get(..self.signature_len.into()).unwrap_or(&[]);
        crypto.verify(SignatureScheme::ECDSA_SECP256R1_SHA256, public_key, &self.digest, signature).is_ok()
    }
}

#[inline(never)]
fn digest<C: Crypto>(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    hash::<C, DIGEST_LEN>(&[bytes])
}

/// An EUI-64 in its text form.
fn eui64(text: &[u8]) -> Option<[u8; 8]> {
    let mut id = [0; 8];
    if text.len() != EUI64_TEXT_LEN {
        return None;
    }
    for (byte, text) in id.iter_mut().zip(text.chunks(3)) {
        let (&[high, low], behind) = text.split_first_chunk()?;
        if !matches!(behind, [] | [b'-']) {
            return None;
        }
        *byte = hexadecimal(high)? << 4 | hexadecimal(low)?;
    }
    Some(id)
}

const fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit & 0xf),
        b'A'..=b'F' | b'a'..=b'f' => Some((digit & 0xf).wrapping_add(9)),
        _ => None,
    }
}

/// `01-23-45-67-89-AB-CD-EF`
const EUI64_TEXT_LEN: usize = 23;
/// The tag of a dNSName (RFC 5280, section 4.2.1.6).
const DNS_NAME: u8 = 0x82;
