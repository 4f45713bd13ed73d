//! Certificates: Data packets with a public key (NDN certificate format v2).
//!
//! The name of a certificate is that of its key, the issuer and a version: `/house/KEY/1/issuer/v=7`. The name of the key is that of
//! its owner, the identity, with `KEY` and an identifier: `/house/KEY/1`.

use crate::data::{ContentType, Data, ReceivedData};
use crate::error::{Error, WriteError};
use crate::name::{Component, Name};
use crate::signature::{EcdsaPublicKey, Ed25519PublicKey, KeyLocator, SignatureInfo, SignatureType, Signer, Verifier};
use crate::tlv::{self, Type};
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::{Frame, Full, Reader, Writer};
use tegmen_base::crypto::{Crypto, GroupCrypto, MAX_SHARE, MAX_SIGNATURE, NotAuthentic, P256_PREFIX, Unsupported};

/// The component of a name in front of the identifier of a key.
pub const KEY: Component<'static> = Component::generic(b"KEY");

/// The bytes in front of the key in the SubjectPublicKeyInfo of a key of Ed25519 (RFC 8410, section 4). DER allows no others.
pub const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The milliseconds for which caches take a certificate for fresh.
const FRESHNESS: u64 = 3_600_000;

/// The time in which a certificate is valid, in seconds since 1970. Both ends are part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// NotBefore.
    pub not_before: u64,
    /// NotAfter.
    pub not_after: u64,
}

impl Validity {
    /// The bytes of a time: `yyyymmddThhmmss`.
    pub const TIME_LEN: usize = 15;

    /// The last time that can be written: the end of the year 9999.
    pub const MAX_TIME: u64 = 253_402_300_799;

    /// The bytes of the element ValidityPeriod.
    pub(crate) const ELEMENT_LEN: usize = tlv::element_len(Type::VALIDITY_PERIOD, Self::VALUE_LEN);

    const VALUE_LEN: usize = 2 * tlv::element_len(Type::NOT_BEFORE, Self::TIME_LEN);

    /// True at a time in seconds since 1970.
    pub const fn contains(&self, now: u64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Reads the value of the element.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, Error> {
        let [before, after] = tlv::fields(value, &[Type::NOT_BEFORE, Type::NOT_AFTER])?;
        let before = before.ok_or(Error::Missing(Type::NOT_BEFORE))?;
        let after = after.ok_or(Error::Missing(Type::NOT_AFTER))?;
        let time = |value| parse_time(value).ok_or(Error::Time);
        Ok(Self { not_before: time(before.value)?, not_after: time(after.value)? })
    }

    /// Writes the element. Times after [`Self::MAX_TIME`] are written as that.
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        tlv::write_head(out, Type::VALIDITY_PERIOD, Self::VALUE_LEN)?;
        tlv::write(out, Type::NOT_BEFORE, &time_bytes(self.not_before))?;
        tlv::write(out, Type::NOT_AFTER, &time_bytes(self.not_after))
    }
}

/// Reads a time as `yyyymmddThhmmss`, in UTC. Returns the seconds since 1970.
pub fn parse_time(text: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(text);
    let mut number = |len: usize| {
        reader.take(len).ok()?.iter().try_fold(0u64, |number, byte| {
            let digit = byte.is_ascii_digit().then_some(u64::from(byte & 0x0f))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let [b'T', clock @ ..] = reader.rest() else { return None };
    let mut reader = Reader::new(clock);
    let mut number = || {
        let [tens, ones] = reader.array().ok().filter(|pair: &[u8; 2]| pair.iter().all(u8::is_ascii_digit))?;
        Some(u64::from(tens & 0x0f).wrapping_mul(10).wrapping_add(u64::from(ones & 0x0f)))
    };
    let (hour, minute, second) = (number()?, number()?, number()?);
    let is_time = reader.is_empty() && hour < 24 && minute < 60 && second < 60;
    if !is_time || year < 1970 || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return None;
    }
    let days = days_before(year).wrapping_add((1..month).map(|month| days_of(year, month)).sum()).wrapping_add(day);
    let hours = days.wrapping_sub(1).wrapping_mul(24).wrapping_add(hour);
    Some(hours.wrapping_mul(60).wrapping_add(minute).wrapping_mul(60).wrapping_add(second))
}

/// Returns a time in seconds since 1970 as `yyyymmddThhmmss`, in UTC. Of later times than [`Validity::MAX_TIME`] it returns that.
pub fn time_bytes(time: u64) -> [u8; Validity::TIME_LEN] {
    let time = time.min(Validity::MAX_TIME);
    let (mut day, seconds) = (time / 86_400, time % 86_400);
    // The estimate is a few years late at most: leap years have a day more.
    let mut year = (day / 365).saturating_add(1970);
    while days_before(year) > day {
        year = year.saturating_sub(1);
    }
    day = day.saturating_sub(days_before(year));
    let mut month = 1;
    while day >= days_of(year, month) {
        day = day.saturating_sub(days_of(year, month));
        month = month.saturating_add(1);
    }
    let parts = [
        (year, 4),
        (month, 2),
        (day.saturating_add(1), 2),
        (seconds / 3600, 2),
        (seconds / 60 % 60, 2),
        (seconds % 60, 2),
    ];
    let mut bytes = [b'T'; Validity::TIME_LEN];
    let mut places = bytes.iter_mut();
    for (place, (mut number, len)) in parts.into_iter().enumerate() {
        if place == 3 {
            let _the_letter = places.next();
        }
        let mut digits = [0; 4];
        for digit in digits.iter_mut().take(len).rev() {
            (*digit, number) = (b'0' | (number % 10) as u8, number / 10);
        }
        for (from, to) in digits.iter().take(len).zip(places.by_ref()) {
            *to = *from;
        }
    }
    bytes
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// The days from 1970 to the begin of a year, which is not before 1970.
const fn days_before(year: u64) -> u64 {
    let past = year.saturating_sub(1);
    let leaps = (past / 4).saturating_sub(past / 100).saturating_add(past / 400);
    // There are 477 leap years before 1970.
    year.saturating_sub(1970).saturating_mul(365).saturating_add(leaps.saturating_sub(477))
}

/// A public key: the content of a certificate, a SubjectPublicKeyInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublicKey<'k> {
    /// A key on secp256r1 for ECDSA (RFC 5480, section 2).
    P256(&'k [u8]),
    /// A key of Ed25519 (RFC 8410, section 4), without the bytes in front of it.
    Ed25519([u8; 32]),
}

impl<'k> PublicKey<'k> {
    /// Reads a SubjectPublicKeyInfo. It does not check that the point is on its curve: [`Verifier::verify`] does.
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

/// The reason why a packet is no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateError {
    /// The bytes are no Data packet.
    Packet(Error),
    /// The ContentType is not KEY.
    ContentType,
    /// The name does not end with `KEY`, an identifier, an issuer and a version.
    Name,
    /// The ValidityPeriod is missing.
    Validity,
    /// The content is no SubjectPublicKeyInfo of a key on secp256r1 or of Ed25519.
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

/// A certificate, whose own signature is not verified yet.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'p> {
    /// The packet.
    pub received: ReceivedData<'p>,
    /// ValidityPeriod.
    pub validity: Validity,
    /// The content.
    pub public_key: PublicKey<'p>,
    key_name_len: usize,
}

impl<'p> Certificate<'p> {
    /// Reads a packet, which `wire` has nothing but.
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
        let validity = received.signed.info.validity.ok_or(CertificateError::Validity)?;
        let public_key = PublicKey::parse(data.content.unwrap_or(&[])).ok_or(CertificateError::PublicKey)?;
        Ok(Self { received, validity, public_key, key_name_len })
    }

    /// Returns the name.
    pub const fn name(&self) -> Name<'p> {
        self.received.data.name
    }

    /// Returns the name of the key: that of the certificate without the issuer and the version.
    pub fn key_name(&self) -> Name<'p> {
        self.name().prefix(self.key_name_len)
    }

    /// Returns the name of the owner of the key.
    pub fn identity(&self) -> Name<'p> {
        self.name().prefix(self.key_name_len.saturating_sub(2))
    }

    /// True if the certificate names its own key as the signer.
    pub fn is_self_signed(&self) -> bool {
        self.is_named_by(&self.received.signed.info)
    }

    /// True if the KeyLocator of a packet names the key, or a certificate of it.
    pub fn is_named_by(&self, info: &SignatureInfo<'_>) -> bool {
        matches!(info.key, Some(KeyLocator::Name(locator)) if self.key_name().is_prefix_of(&locator))
    }

    /// Verifies the signature of a packet that names this certificate or its key, at a time in seconds since 1970.
    ///
    /// It does not verify the certificate itself.
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

/// Returns the name of the owner of a key, whose name ends with `KEY` and an identifier.
pub fn identity_of<'n>(key_name: &Name<'n>) -> Option<Name<'n>> {
    let len = key_name.len().checked_sub(2)?;
    let marker = key_name.components().nth(len)?;
    (marker == KEY).then(|| key_name.prefix(len))
}

/// A signer that adds a ValidityPeriod.
struct Certifying<'s, S: ?Sized> {
    signer: &'s S,
    validity: Validity,
}

impl<C: Crypto, S: Signer<C> + ?Sized> Signer<C> for Certifying<'_, S> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo { validity: Some(self.validity), ..self.signer.info() }
    }

    fn sign(&self, crypto: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        self.signer.sign(crypto, message, out)
    }
}

/// Writes a certificate for a public key, a SubjectPublicKeyInfo, into an empty frame with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in
/// front. The name ends with the issuer and the version.
///
/// # Errors
/// [`WriteError`]; the frame is then empty. [`WriteError::Unsupported`] if the signer is a digest.
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
    data.write(crypto, &Certifying { signer, validity }, frame)
}
