//! Verification of certificates on a mote (RFC 5280, in the profile of RFC 7925, section 4.4).
//!
//! A [`Path`] takes the certificates of a peer one after the other, beginning with the peer's own. It does not store
//! whole certificates, but only the data for the check of the next one: about 270 bytes, regardless of the length of
//! the certificates. The handshake can pass certificates in two ways. With
//! [`Need::VerifyCertificate`](tegmen::dtls::Need::VerifyCertificate) it passes them one at a time, and the application
//! gives each to [`Path::take`]. The receive buffer of the handshake then only has to hold the longest certificate.
//! With [`Need::VerifyPeer`](tegmen::dtls::Need::VerifyPeer) it passes the whole list, and the application gives the
//! list to [`Rules::verify`]. The receive buffer must then hold the longest list, and in addition one bit for each byte
//! of the list.
//!
//! An accepted path has certificates of version 3, keys on secp256r1, and signatures of ECDSA with SHA-256. Each
//! certificate is signed by the next one, and the last one is signed by an [`Anchor`]. There are at most
//! [`MAX_CERTIFICATES`] certificates. The extensions basic constraints, key usage, extended key usage and
//! subjectAltName are supported. Name constraints, and every other critical extension, are refused. Names are
//! compared byte by byte. Revocation is not checked: issue certificates that expire soon, or remove an anchor.
//!
//! A host has a verifier that accepts more certificates (`tegmen_host::x509`). A host trusts every certificate that
//! this module trusts, if the anchor's own certificate is valid. There are two exceptions:
//!
//! * If a CA issued a certificate for its own new key (a self-issued certificate), hosts count this certificate for the
//!   pathLenConstraint of the CAs above it. This module does not count it.
//! * This module reads a UTCTime before 1970 as the beginning of 1970, and hosts refuse a certificate with such a time.

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

/// Maximum number of certificates in a path: the certificate of the end entity, and the certificates of two CAs below
/// the anchor. So for one list, the verification checks at most two signatures with keys of the list, and for each
/// anchor at most three signatures with the key of the anchor.
pub const MAX_CERTIFICATES: u8 = 3;

/// A SubjectPublicKeyInfo with a key on secp256r1, in DER.
pub type PublicKey = [u8; 91];

/// A trusted CA (RFC 5280, section 6.1.1, d). Only its name and its key are used. The validity and the constraints of
/// its own certificate are not checked.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The subject in the certificate of the anchor: a Name in DER.
    pub name: &'a [u8],
    /// The public key of the anchor.
    pub public_key: &'a PublicKey,
}

/// The role in which the peer uses its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPurpose {
    /// The peer is a server.
    Server,
    /// The peer is a client.
    Client,
}

impl KeyPurpose {
    /// Returns the OBJECT IDENTIFIER of the purpose (RFC 5280, section 4.2.1.12).
    const fn id(self) -> [u8; 8] {
        let last = match self {
            Self::Server => 1,
            Self::Client => 2,
        };
        [0x2b, 6, 1, 5, 5, 7, 3, last]
    }
}

/// The name that the certificate of the peer must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name<'r> {
    /// Any name is allowed: only the anchor decides.
    Any,
    /// The certificate of a server, whose subjectAltName must have this DNS name as a dNSName. The case of letters is
    /// ignored. Wildcards are not supported (RFC 7925, section 4.4.1).
    Dns(&'r [u8]),
    /// The certificate of a device, which must have this EUI-64: see [`EndEntity::eui64`] (RFC 7925, section 4.4.2).
    Eui64([u8; 8]),
}

/// Seconds since 1970, without leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnixTime(pub u64);

/// The requirements for the certification path of a peer: the certificates from the certificate of the peer up to a
/// trust anchor.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'r> {
    /// The trust anchors at which certification paths may end. A signature is checked with the key of each anchor that
    /// has the name of the issuer, so the number of such anchors limits the cost of a check.
    pub anchors: &'r [Anchor<'r>],
    /// The purpose for which the end entity's certificate must be valid.
    pub purpose: KeyPurpose,
    /// The name that the end entity must have.
    pub name: Name<'r>,
    /// The current time, if the device has a trustworthy clock. With `None` the validity periods are not checked, so
    /// certificates are trusted forever.
    pub now: Option<UnixTime>,
}

/// The data of the end entity of a trusted certification path. The end entity is the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndEntity {
    /// The public key for [`Answer::Peer`](tegmen::dtls::Answer::Peer).
    pub public_key: PublicKey,
    /// The EUI-64 of the end entity in the form `01-23-45-67-89-AB-CD-EF`. It comes from a dNSName of subjectAltName,
    /// or from the leftmost common name of the subject. `None` if neither has this form.
    pub eui64: Option<[u8; 8]>,
    /// The last moment at which all certificates of the path are valid.
    pub not_after: UnixTime,
}

/// The reason why a certification path is not trusted. The reason is for the owner of this endpoint. The peer gets the
/// alert [`Refusal::ALERT`] for every reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The certificate is not strict DER, or not of version 3. Issue it again.
    Malformed,
    /// A signature is not ECDSA with SHA-256. Have the certificate issued by a CA whose key is on secp256r1.
    UnsupportedAlgorithm,
    /// A public key is not an uncompressed point on secp256r1. Keys of other kinds are refused, even if they are
    /// longer. Make a key on secp256r1.
    UnsupportedKey,
    /// The certificate has name constraints, or an unsupported critical extension (RFC 5280, section 4.2). Issue it
    /// without this extension.
    UnsupportedExtension,
    /// The notAfter of a certificate has passed. Renew the certificate, or set the clock.
    Expired,
    /// The notBefore of a certificate has not come yet. Wait, or set the clock.
    NotYetValid,
    /// The end entity does not have the required name. Connect to the name in the certificate, or issue a certificate
    /// with the required name.
    WrongName,
    /// The extended key usage of a certificate does not contain the required purpose (RFC 5280, section 4.2.1.12).
    /// Issue a certificate with this purpose.
    WrongPurpose,
    /// The key usage of the end entity lacks digitalSignature, or the key usage of a CA lacks keyCertSign (RFC 5280,
    /// section 4.2.1.3).
    WrongKeyUsage,
    /// The end entity is a CA. Issue a separate certificate for the end entity.
    EndEntityIsCa,
    /// An issuer is not a CA according to its basic constraints (RFC 5280, section 4.2.1.9).
    IssuerIsNoCa,
    /// The path has more CAs below a CA than the pathLenConstraint of that CA allows.
    PathLenExceeded,
    /// The path has [`MAX_CERTIFICATES`] certificates, and no anchor signed the last of them. Issue the certificate
    /// from a CA nearer to the anchor.
    TooLong,
    /// The subject of a certificate in the list is not the issuer of the previous certificate (RFC 5246, section
    /// 7.4.2). Configure the peer to send its list in order.
    WrongIssuer,
    /// No anchor has the name of the issuer of the last certificate in the peer's list. Add the anchor, or configure
    /// the peer to send the certificates between its own certificate and the anchor.
    UnknownIssuer,
    /// A signature in a certificate does not match the key of the certificate's issuer. The certificate was changed, or
    /// another CA with the same name issued it.
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
    /// Verifies a certificate_list, in which a length of three bytes precedes each certificate. When an anchor signed a
    /// certificate, ignores all certificates after it, such as the certificate of the anchor.
    ///
    /// # Errors
    /// [`Refusal`] has the reason.
    pub fn verify<C: Crypto>(&self, crypto: &mut C, list: &[u8]) -> Result<EndEntity, Refusal> {
        let mut path = Path::new(self);
        for certificate in certificates(list) {
            if let Some(end_entity) = path.add(crypto, certificate)? {
                return Ok(*end_entity);
            }
        }
        Err(path.end())
    }

    /// Checks the requirements for every certificate of a path: the validity period and the purpose.
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

    /// Checks the requirements for the certificate of the end entity: it is no CA, its key may sign, and it has the
    /// required name. Returns the end entity.
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

/// The state of the verification of one path, which takes the certificates one at a time. The certificate of the end
/// entity comes first.
#[derive(Debug)]
pub struct Path<'r> {
    rules: &'r Rules<'r>,
    walked: Option<Walked>,
}

/// The data that a [`Path`] stores about the certificates that it has taken.
#[derive(Debug)]
struct Walked {
    end_entity: EndEntity,
    last: Signed,
    count: u8,
    /// Number of CAs in the path that are not self-issued (RFC 5280, section 6.1.4, l).
    cas: u8,
    /// The result of the search for an anchor with the name of the last issuer.
    anchor: Found,
}

/// The result of the search for an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// No anchor has the name of the issuer.
    Nothing,
    /// An anchor has the name of the issuer, but the signature was not made with the key of this anchor.
    Name,
    /// An anchor signed the certificate, so the path is complete.
    Anchor,
}

/// The data of a certificate from which its signature is verified when the certificate of its issuer arrives.
#[derive(Debug)]
struct Signed {
    /// SHA-256 of the issuer's Name.
    issuer: [u8; DIGEST_LEN],
    /// SHA-256 of the part of the certificate that the issuer signed.
    digest: [u8; DIGEST_LEN],
    signature: [u8; MAX_SIGNATURE],
    signature_len: u8,
}

impl<'r> Path<'r> {
    /// Creates a path without certificates.
    pub const fn new(rules: &'r Rules<'r>) -> Self {
        Self { rules, walked: None }
    }

    /// Takes the next certificate, in DER. If an anchor signed this certificate, the path is complete, and the
    /// function returns the end entity.
    ///
    /// # Errors
    /// [`Refusal`] has the reason. Add no more certificates after an error.
    pub fn add<C: Crypto>(&mut self, crypto: &mut C, der: &[u8]) -> Result<Option<&EndEntity>, Refusal> {
        // Certificates are parsed and signatures are checked in separate functions, so that their stack frames do not
        // add up.
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

    /// Takes the next certificate of a list, in DER. The first certificate begins a new path. With the last
    /// certificate, returns the end entity if the path is trusted. When an anchor signed a certificate, ignores all
    /// certificates after it, such as the certificate of the anchor.
    ///
    /// # Errors
    /// [`Refusal`] has the reason. The list is then refused.
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

    /// Checks a certificate, and stores the data for the check of the next certificate. Returns the issuer's Name,
    /// which is the subject of the next certificate or the name of an anchor.
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

    /// Returns the reason why the path is not trusted, if no more certificates follow.
    pub(crate) fn end(&self) -> Refusal {
        match &self.walked {
            None => Refusal::Malformed,
            Some(walked) if walked.anchor == Found::Name => Refusal::BadSignature,
            Some(_) => Refusal::UnknownIssuer,
        }
    }
}

impl Walked {
    /// Returns the public key of the issuer from its certificate `der`. Checks that this CA may issue the certificate
    /// that was added before `der` (RFC 5280, section 6.1.4).
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

/// Reads an EUI-64 from its text form.
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

/// Number of characters of an EUI-64 in the form `01-23-45-67-89-AB-CD-EF`.
const EUI64_TEXT_LEN: usize = 23;
/// The tag of a dNSName (RFC 5280, section 4.2.1.6).
const DNS_NAME: u8 = 0x82;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
