//! A parsed certificate (RFC 5280, section 4.1), in the profile of RFC 7925, section 4.4.

use crate::der::{self, INTEGER, OCTET_STRING, OID, SEQUENCE, SET, context};
use crate::{PublicKey, Refusal, UnixTime};
use tegmen::buf::Reader;
use tegmen::crypto::{P256_PREFIX, SCALAR_LEN};

/// The fields of a certificate. The parser has checked the whole certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certificate<'c> {
    /// The TBSCertificate, with its tag and length.
    pub(crate) signed: &'c [u8],
    /// The signature: an Ecdsa-Sig-Value.
    pub(crate) signature: &'c [u8],
    /// The Name of the issuer, with its tag and length.
    pub(crate) issuer: &'c [u8],
    /// The Name of the subject, with its tag and length.
    pub(crate) subject: &'c [u8],
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) public_key: &'c PublicKey,
    pub(crate) extensions: Extensions<'c>,
}

/// The extensions that this parser supports (RFC 5280, section 4.2.1).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Extensions<'c> {
    /// The basic constraints of a CA; `None` for an end entity.
    pub(crate) ca: Option<PathLen>,
    /// The first eight bits of the key usage; all bits are set if the extension is absent.
    pub(crate) key_usage: KeyUsage,
    /// The allowed key purposes as a sequence of OBJECT IDENTIFIERs; `None` allows all purposes.
    pub(crate) purposes: Option<&'c [u8]>,
    /// The general names of subjectAltName, one after the other.
    pub(crate) alt_names: &'c [u8],
}

/// Maximum number of CAs between this certificate and the end entity; `None` for no limit.
pub(crate) type PathLen = Option<u8>;

/// The bits of the key usage. Bit 0 of the extension is the highest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyUsage(u8);

impl KeyUsage {
    pub(crate) const DIGITAL_SIGNATURE: Self = Self(0x80);
    pub(crate) const KEY_CERT_SIGN: Self = Self(0x04);

    pub(crate) const fn has(self, usage: Self) -> bool {
        self.0 & usage.0 != 0
    }
}

impl Default for KeyUsage {
    /// Allows every use of the key. This is the value for a certificate without the KeyUsage extension, which does not
    /// restrict the use of its key.
    fn default() -> Self {
        Self(0xff)
    }
}

impl<'c> Certificate<'c> {
    pub(crate) fn parse(der: &'c [u8]) -> Result<Self, Refusal> {
        let mut outer = Reader::new(der);
        let mut certificate = der::inside(&mut outer, SEQUENCE)?;
        der::end(&outer)?;
        let signed = der::whole(&mut certificate, SEQUENCE)?;
        let outer_algorithm = der::value(&mut certificate, SEQUENCE)?;
        let signature = der::whole_bits(&mut certificate)?;
        der::end(&certificate)?;

        let mut body = der::inside(&mut Reader::new(signed), SEQUENCE)?;
        // The certificate must contain version 3. A certificate of version 1 would omit the field.
        if der::value(&mut body, context(0))? != [INTEGER, 1, 2] {
            return Err(Refusal::Malformed);
        }
        if der::positive(&mut body)?.len() > MAX_SERIAL {
            return Err(Refusal::Malformed);
        }
        let algorithm = der::value(&mut body, SEQUENCE)?;
        if algorithm != ECDSA_WITH_SHA256 || outer_algorithm != algorithm {
            return Err(Refusal::UnsupportedAlgorithm);
        }
        check_signature(signature)?;
        let issuer = name(&mut body)?;
        let mut validity = der::inside(&mut body, SEQUENCE)?;
        let (not_before, not_after) = (der::time(&mut validity)?, der::time(&mut validity)?);
        der::end(&validity)?;
        let subject = name(&mut body)?;
        let public_key = public_key(der::whole(&mut body, SEQUENCE)?)?;
        // Unique identifiers are not read, because CAs no longer issue them (RFC 5280, section 4.1.2.8).
        let mut extensions = Extensions::default();
        if let Some(list) = der::optional(&mut body, context(3))? {
            let mut list = Reader::new(list);
            let inner = der::inside(&mut list, SEQUENCE)?;
            der::end(&list)?;
            extensions = Extensions::parse(inner)?;
        }
        der::end(&body)?;
        let (not_before, not_after) = (UnixTime(not_before), UnixTime(not_after));
        Ok(Self { signed, signature, issuer, subject, not_before, not_after, public_key, extensions })
    }

    /// Returns the text of the leftmost attribute of the subject, if this is a common name (RFC 7925, section 4.4.2).
    pub(crate) fn common_name(&self) -> Option<&'c [u8]> {
        let mut names = der::inside(&mut Reader::new(self.subject), SEQUENCE).ok()?;
        let mut set = der::inside(&mut names, SET).ok()?;
        let mut pair = der::inside(&mut set, SEQUENCE).ok()?;
        (der::value(&mut pair, OID).ok()? == COMMON_NAME).then_some(())?;
        der::element(&mut pair).ok().map(|(_, text)| text)
    }

    /// Returns the names of this kind in subjectAltName (RFC 5280, section 4.2.1.6).
    pub(crate) fn alt_names(&self, kind: u8) -> impl Iterator<Item = &'c [u8]> {
        let mut names = Reader::new(self.extensions.alt_names);
        core::iter::from_fn(move || der::element(&mut names).ok())
            .filter(move |(tag, _)| *tag == kind)
            .map(|(_, name)| name)
    }
}

impl<'c> Extensions<'c> {
    fn parse(mut list: Reader<'c>) -> Result<Self, Refusal> {
        let mut extensions = Self::default();
        // One bit for each supported extension, so that none of them may occur twice.
        let mut seen = 0_u8;
        if list.rest().is_empty() {
            return Err(Refusal::Malformed);
        }
        while !list.rest().is_empty() {
            let mut extension = der::inside(&mut list, SEQUENCE)?;
            let id = der::value(&mut extension, OID)?;
            let critical = der::optional_true(&mut extension)?;
            let mut value = der::inside(&mut extension, OCTET_STRING)?;
            der::end(&extension)?;
            let bit = match id {
                [0x55, 0x1d, 15] => 1,
                [0x55, 0x1d, 17] => 2,
                [0x55, 0x1d, 19] => 4,
                [0x55, 0x1d, 37] => 8,
                // Name constraints must not be ignored, even if they are not marked as critical (RFC 5280, section
                // 4.2.1.10).
                [0x55, 0x1d, 30] => return Err(Refusal::UnsupportedExtension),
                _ if critical => return Err(Refusal::UnsupportedExtension),
                _ => continue,
            };
            if seen & bit != 0 {
                return Err(Refusal::Malformed);
            }
            seen |= bit;
            match bit {
                1 => extensions.key_usage = KeyUsage(der::named_bits(&mut value)?),
                2 => extensions.alt_names = all(der::value(&mut value, SEQUENCE)?, None)?,
                4 => extensions.ca = basic_constraints(der::inside(&mut value, SEQUENCE)?)?,
                _ => extensions.purposes = Some(all(der::value(&mut value, SEQUENCE)?, Some(OID))?),
            }
            der::end(&value)?;
        }
        Ok(extensions)
    }

    /// True if the key may be used for this purpose, which is an OBJECT IDENTIFIER (RFC 5280, section 4.2.1.12). A
    /// certificate that lists only anyExtendedKeyUsage does not allow the purpose.
    pub(crate) fn allow(&self, purpose: &[u8]) -> bool {
        let Some(purposes) = self.purposes else { return true };
        let mut purposes = Reader::new(purposes);
        core::iter::from_fn(|| der::element(&mut purposes).ok()).any(|(_, allowed)| allowed == purpose)
    }
}

/// Reads the basic constraints (RFC 5280, section 4.2.1.9).
fn basic_constraints(mut value: Reader<'_>) -> Result<Option<PathLen>, Refusal> {
    let ca = der::optional_true(&mut value)?;
    let mut path_len = None;
    if ca && !value.rest().is_empty() {
        path_len = Some(der::small(&mut value)?);
    }
    der::end(&value)?;
    Ok(ca.then_some(path_len))
}

/// Checks that `elements` contains at least one element of DER. If `tag` is not `None`, each element must have this
/// tag. Returns `elements`.
fn all(elements: &[u8], tag: Option<u8>) -> Result<&[u8], Refusal> {
    let mut reader = Reader::new(elements);
    loop {
        let (found, _) = der::element(&mut reader)?;
        if tag.is_some_and(|tag| tag != found) {
            return Err(Refusal::Malformed);
        }
        if reader.rest().is_empty() {
            return Ok(elements);
        }
    }
}

/// Reads a Name, and returns it with its tag and length (RFC 5280, section 4.1.2.4).
fn name<'c>(body: &mut Reader<'c>) -> Result<&'c [u8], Refusal> {
    let name = der::whole(body, SEQUENCE)?;
    let mut parts = der::inside(&mut Reader::new(name), SEQUENCE)?;
    while !parts.rest().is_empty() {
        let mut set = der::inside(&mut parts, SET)?;
        loop {
            let mut pair = der::inside(&mut set, SEQUENCE)?;
            der::value(&mut pair, OID)?;
            der::element(&mut pair)?;
            der::end(&pair)?;
            if set.rest().is_empty() {
                break;
            }
        }
    }
    Ok(name)
}

/// Returns the public key, which must be an uncompressed point on secp256r1. In DER the bytes before such a point are
/// always the same.
fn public_key(info: &[u8]) -> Result<&PublicKey, Refusal> {
    let key: &PublicKey = info.try_into().map_err(|_| Refusal::UnsupportedKey)?;
    match key.strip_prefix(&P256_PREFIX) {
        Some([UNCOMPRESSED, ..]) => Ok(key),
        _ => Err(Refusal::UnsupportedKey),
    }
}

/// Checks that a signature consists of two numbers of at most 32 bytes, each in its only valid form (RFC 3279,
/// section 2.2.3).
fn check_signature(signature: &[u8]) -> Result<(), Refusal> {
    let mut outer = Reader::new(signature);
    let mut numbers = der::inside(&mut outer, SEQUENCE)?;
    der::end(&outer)?;
    for _ in 0..2 {
        if der::positive(&mut numbers)?.len() > SCALAR_LEN {
            return Err(Refusal::Malformed);
        }
    }
    der::end(&numbers)?;
    Ok(())
}

/// The AlgorithmIdentifier ecdsa-with-SHA256, without tag and length. It has no parameters (RFC 5758, section 3.2).
const ECDSA_WITH_SHA256: [u8; 10] = [OID, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const UNCOMPRESSED: u8 = 4;
/// Maximum number of bytes of a serial number (RFC 5280, section 4.1.2.2).
const MAX_SERIAL: usize = 20;
