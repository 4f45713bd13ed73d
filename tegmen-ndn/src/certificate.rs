//! Certificates: Data packets with a public key (NDN certificate format v2).
//!
//! The name of a certificate consists of the name of its key, the issuer and a version: `/house/KEY/1/issuer/v=7`.
//! The name of the key consists of the name of its owner, the identity, followed by `KEY` and an identifier:
//! `/house/KEY/1`.

use crate::data::{ContentType, Data, ReceivedData};
use crate::error::{Error, WriteError};
use crate::name::{Component, Name};
use crate::signature::{EcdsaPublicKey, Ed25519PublicKey, KeyLocator, SignatureInfo, SignatureType, Signer, Verifier};
pub use crate::validity::{Validity, parse_time, time_bytes};
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::Frame;
use tegmen_base::crypto::{Crypto, GroupCrypto, MAX_SHARE, MAX_SIGNATURE, NotAuthentic, P256_PREFIX, Unsupported};

/// The component `KEY`, which precedes the identifier of the key in the name of a key.
pub const KEY: Component<'static> = Component::generic(b"KEY");

/// The bytes in front of the key in the SubjectPublicKeyInfo of an Ed25519 key (RFC 8410, section 4). They are the same
/// for each key, because DER allows only one encoding.
pub const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The milliseconds for which caches consider a certificate fresh.
const FRESHNESS: u64 = 3_600_000;

/// A public key. A certificate contains the SubjectPublicKeyInfo of this key as its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublicKey<'k> {
    /// A key on secp256r1 for ECDSA (RFC 5480, section 2).
    P256(&'k [u8]),
    /// A key of Ed25519 (RFC 8410, section 4), without the bytes of [`ED25519_PREFIX`].
    Ed25519([u8; 32]),
}

impl<'k> PublicKey<'k> {
    /// Reads a SubjectPublicKeyInfo. Does not check that the point is on its curve: [`Verifier::verify`] checks this.
    pub fn parse(info: &'k [u8]) -> Option<Self> {
        if let Some(point) = info.strip_prefix(&P256_PREFIX) {
            return (point.len() == MAX_SHARE && point.first() == Some(&4)).then_some(Self::P256(info));
        }
        Some(Self::Ed25519(info.strip_prefix(&ED25519_PREFIX)?.try_into().ok()?))
    }
}

impl<C: GroupCrypto> Verifier<C> for PublicKey<'_> {
    fn verify(
        &self,
        crypto: &mut C,
        info: &SignatureInfo<'_>,
        message: &[&[u8]],
        value: &[u8],
    ) -> Result<(), NotAuthentic> {
        match self {
            Self::P256(info_of_key) => EcdsaPublicKey(info_of_key).verify(crypto, info, message, value),
            Self::Ed25519(key) => Ed25519PublicKey(*key).verify(crypto, info, message, value),
        }
    }
}

/// The reason why a packet is not a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateError {
    /// The bytes are not a Data packet.
    Packet(Error),
    /// The ContentType is not KEY.
    ContentType,
    /// The name does not end with `KEY`, an identifier, an issuer and a version.
    Name,
    /// The ValidityPeriod is missing.
    Validity,
    /// The content is not a SubjectPublicKeyInfo of a key on secp256r1 or of Ed25519.
    PublicKey,
}

impl Display for CertificateError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet(error) => return write!(f, "no Data packet: {error}"),
            Self::ContentType => "the ContentType of the packet is not KEY",
            Self::Name => "the name does not end with KEY, an identifier, an issuer and a version",
            Self::Validity => "the ValidityPeriod is missing",
            Self::PublicKey => "the content is no public key on secp256r1 or of Ed25519",
        })
    }
}

impl core::error::Error for CertificateError {}

impl From<Error> for CertificateError {
    fn from(error: Error) -> Self {
        Self::Packet(error)
    }
}

/// The reason why a certificate does not prove the origin of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The KeyLocator of the packet does not name the certificate or its key.
    OtherKey,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate has expired.
    Expired,
    /// The signature is wrong.
    Signature,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherKey => "the packet names another key",
            Self::NotYetValid => "the certificate is not valid yet",
            Self::Expired => "the certificate has expired",
            Self::Signature => "the signature is wrong",
        })
    }
}

impl core::error::Error for Refusal {}

/// A certificate. Its own signature is not verified yet.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'p> {
    /// The Data packet that contains the certificate.
    pub received: ReceivedData<'p>,
    /// The period in which the certificate is valid (ValidityPeriod).
    pub validity: Validity,
    /// The public key that is the content of the Data packet.
    pub public_key: PublicKey<'p>,
    key_name_len: usize,
}

impl<'p> Certificate<'p> {
    /// Reads a certificate. `wire` must contain only this packet.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn parse(wire: &'p [u8]) -> Result<Self, CertificateError> {
        Self::of(ReceivedData::parse(wire)?)
    }

    /// Reads the certificate of a packet.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn of(received: ReceivedData<'p>) -> Result<Self, CertificateError> {
        let data = &received.data;
        if data.content_type != Some(ContentType::KEY) {
            return Err(CertificateError::ContentType);
        }
        let key_name_len = data.name.len().checked_sub(2).ok_or(CertificateError::Name)?;
        identity_of(&data.name.prefix(key_name_len)).ok_or(CertificateError::Name)?;
        let validity = Validity::parse(received.signed.info.validity.ok_or(CertificateError::Validity)?)?;
        let public_key = PublicKey::parse(data.content.unwrap_or(&[])).ok_or(CertificateError::PublicKey)?;
        Ok(Self { received, validity, public_key, key_name_len })
    }

    /// Returns the name of the certificate.
    pub const fn name(&self) -> Name<'p> {
        self.received.data.name
    }

    /// Returns the name of the key: the name of the certificate without the issuer and the version.
    pub fn key_name(&self) -> Name<'p> {
        self.name().prefix(self.key_name_len)
    }

    /// Returns the name of the owner of the key.
    pub fn identity(&self) -> Name<'p> {
        self.name().prefix(self.key_name_len.saturating_sub(2))
    }

    /// Returns true if the certificate names its own key as the signer.
    pub fn is_self_signed(&self) -> bool {
        self.is_named_by(&self.received.signed.info)
    }

    /// Returns true if the KeyLocator of a packet names the key, or a certificate of the key.
    pub fn is_named_by(&self, info: &SignatureInfo<'_>) -> bool {
        matches!(info.key, Some(KeyLocator::Name(locator)) if self.key_name().is_prefix_of(&locator))
    }

    /// Verifies the signature of a packet that names this certificate or its key. `now` is in seconds since 1970.
    ///
    /// Does not verify the signature of this certificate.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify<C: GroupCrypto>(&self, crypto: &mut C, packet: &ReceivedData<'_>, now: u64) -> Result<(), Refusal> {
        if !self.is_named_by(&packet.signed.info) {
            return Err(Refusal::OtherKey);
        }
        if now < self.validity.not_before {
            return Err(Refusal::NotYetValid);
        }
        if !self.validity.contains(now) {
            return Err(Refusal::Expired);
        }
        packet.signed.verify(crypto, &self.public_key).map_err(|_| Refusal::Signature)
    }
}

/// Returns the name of the owner of a key. The name of a key consists of the name of its owner, the component `KEY`,
/// and an identifier. Returns `None` if `key_name` has another form.
pub fn identity_of<'n>(key_name: &Name<'n>) -> Option<Name<'n>> {
    let len = key_name.len().checked_sub(2)?;
    let marker = key_name.components().nth(len)?;
    (marker == KEY).then(|| key_name.prefix(len))
}

/// A signer that adds a ValidityPeriod.
struct Certifying<'s, S: ?Sized> {
    signer: &'s S,
    validity: [u8; Validity::LEN],
}

impl<C: Crypto, S: Signer<C> + ?Sized> Signer<C> for Certifying<'_, S> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo { validity: Some(&self.validity), ..self.signer.info() }
    }

    fn sign(&self, crypto: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        self.signer.sign(crypto, message, out)
    }
}

/// Writes a certificate for a public key, given as SubjectPublicKeyInfo, into an empty frame with
/// [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front. The name ends with the issuer and the version.
///
/// # Errors
/// [`WriteError`]. The frame is then empty. [`WriteError::Unsupported`] if the signer is a digest.
pub fn write<C: Crypto>(
    crypto: &mut C,
    name: &Name<'_>,
    public_key: &[u8],
    validity: Validity,
    signer: &(impl Signer<C> + ?Sized),
    frame: &mut Frame<'_>,
) -> Result<(), WriteError> {
    if signer.info().kind == SignatureType::DIGEST_SHA256 {
        return Err(WriteError::Unsupported);
    }
    let data = Data {
        name: *name,
        content_type: Some(ContentType::KEY),
        freshness: Some(FRESHNESS),
        content: Some(public_key),
        ..Data::default()
    };
    data.write(crypto, &Certifying { signer, validity: validity.to_bytes() }, frame)
}
