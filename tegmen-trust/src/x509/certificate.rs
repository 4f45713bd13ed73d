//! The fields of a certificate (RFC 5280, section 4), read in place. This module does not verify them.

use super::public_key::{KeyKind, PublicKey};
use super::refusal::moment;
use crate::digest::{Digest, sha256_of};
use crate::hex::to_hex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;
use tegmen::buf::Reader;
use tegmen_x509::der::{self, BOOLEAN, INTEGER, Malformed, OCTET_STRING, OID, SEQUENCE, SET, context};

/// A parsed certificate. Its fields are views into the DER of the certificate.
#[derive(Clone, Copy)]
pub(crate) struct Certificate<'a> {
    /// The whole certificate in DER.
    pub(crate) der: &'a [u8],
    /// The bytes that the issuer signed (TBSCertificate), with tag and length.
    pub(crate) tbs: &'a [u8],
    /// The bytes of the serial number, as the certificate contains them.
    pub(crate) serial: &'a [u8],
    /// The issuer's Name, with tag and length.
    pub(crate) issuer: &'a [u8],
    /// The subject's Name, with tag and length.
    pub(crate) subject: &'a [u8],
    /// SubjectPublicKeyInfo, with tag and length.
    pub(crate) spki: &'a [u8],
    /// The notBefore in seconds since 1970, which is the first second at which the certificate is valid. `not_after` is
    /// the last second.
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    extensions: Reader<'a>,
}

/// Bit 0 of KeyUsage (RFC 5280, section 4.2.1.3).
pub(crate) const DIGITAL_SIGNATURE: u8 = 0;
/// Bit 2 of KeyUsage.
pub(crate) const KEY_ENCIPHERMENT: u8 = 2;
/// Bit 5 of KeyUsage: signs certificates.
pub(crate) const KEY_CERT_SIGN: u8 = 5;

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// An empty list of extensions in DER.
const NO_EXTENSIONS: &[u8] = &[SEQUENCE, 0];

impl<'a> Certificate<'a> {
    pub(crate) fn parse(der: &'a [u8]) -> Option<Self> {
        Self::read(der).ok()
    }

    fn read(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outside = Reader::new(der);
        let mut whole = der::inside(&mut outside, SEQUENCE)?;
        der::end(&outside)?;
        let signed = der::whole(&mut whole, SEQUENCE)?;
        let _algorithm = der::value(&mut whole, SEQUENCE)?;
        let _signature = der::whole_bits(&mut whole)?;
        der::end(&whole)?;
        let mut tbs = der::inside(&mut Reader::new(signed), SEQUENCE)?;
        let _version = der::optional(&mut tbs, context(0))?;
        let serial = der::value(&mut tbs, INTEGER)?;
        let _algorithm = der::value(&mut tbs, SEQUENCE)?;
        let issuer = der::whole(&mut tbs, SEQUENCE)?;
        let mut validity = der::inside(&mut tbs, SEQUENCE)?;
        let (not_before, not_after) = (der::time(&mut validity)?, der::time(&mut validity)?);
        der::end(&validity)?;
        let subject = der::whole(&mut tbs, SEQUENCE)?;
        let spki = der::whole(&mut tbs, SEQUENCE)?;
        let _unique_identifiers = (der::optional(&mut tbs, 0x81)?, der::optional(&mut tbs, 0x82)?);
        let mut field = Reader::new(der::optional(&mut tbs, context(3))?.unwrap_or(NO_EXTENSIONS));
        let extensions = der::inside(&mut field, SEQUENCE)?;
        der::end(&field)?;
        der::end(&tbs)?;
        if not_before > not_after {
            return Err(Malformed);
        }
        Ok(Self { der, tbs: signed, serial, issuer, subject, spki, not_before, not_after, extensions })
    }

    /// Returns the value of the extension with this OBJECT IDENTIFIER; `None` if the certificate does not have it.
    fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        let mut extensions = self.extensions;
        loop {
            let mut extension = der::inside(&mut extensions, SEQUENCE).ok()?;
            let same = der::value(&mut extension, OID).ok()? == id;
            let _critical = der::optional(&mut extension, BOOLEAN).ok()?;
            let value = der::value(&mut extension, OCTET_STRING).ok()?;
            if same {
                return Some(value);
            }
        }
    }

    /// Returns true if the key may be used for the purpose that `bit` of KeyUsage means: the bit is set, or the
    /// certificate has no KeyUsage.
    ///
    /// # Errors
    /// [`Malformed`] if KeyUsage is not valid DER.
    pub(crate) fn may(&self, bit: u8) -> Result<bool, Malformed> {
        let Some(usage) = self.extension(KEY_USAGE) else { return Ok(true) };
        let mut usage = Reader::new(usage);
        let bits = der::named_bits(&mut usage)?;
        der::end(&usage)?;
        Ok(bits << bit & 0x80 != 0)
    }

    /// Returns the names in subjectAltName: DNS names, addresses and URIs.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut value = Reader::new(self.extension(SUBJECT_ALT_NAME).unwrap_or(&[]));
        let mut list = der::inside(&mut value, SEQUENCE).unwrap_or(Reader::new(&[]));
        while let Ok(name) = der::element(&mut list) {
            match name {
                (0x82 | 0x86, text) => names.extend(printable(text)),
                (0x87, address) => {
                    let v4 = <[u8; 4]>::try_from(address).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
                    let v6 = <[u8; 16]>::try_from(address).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)));
                    names.extend(v4.or(v6).map(|address| address.to_string()));
                }
                _ => {}
            }
        }
        names
    }

    /// Parses the public key; `None` if it is not valid.
    pub(crate) fn key(&self) -> Option<PublicKey<'a>> {
        PublicKey::parse(self.spki)
    }

    /// Returns true if the key can be broken with current means, because it is RSA below 2048 bits.
    pub(crate) fn is_weak(&self) -> bool {
        matches!(self.key().map(|key| key.kind), Some(KeyKind::Rsa { bits, .. }) if bits < super::MIN_RSA_BITS)
    }
}

/// The content of a certificate in a readable form. The content is not verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateInfo {
    /// The serial number, without leading zeros.
    pub serial: Vec<u8>,
    /// The issuer (RFC 4514).
    pub issuer: String,
    /// The subject (RFC 4514).
    pub subject: String,
    /// The DNS names, addresses and URIs of subjectAltName.
    pub names: Vec<String>,
    /// The first moment at which the certificate is valid.
    pub not_before: SystemTime,
    /// The last moment at which the certificate is valid.
    pub not_after: SystemTime,
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// SHA-256 of the certificate in DER.
    pub digest: Digest,
}

impl CertificateInfo {
    /// Parses a certificate in DER. Returns `None` if `der` is not a certificate.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::parse(der)?;
        Some(Self {
            serial: significant(certificate.serial).to_vec(),
            issuer: name_text(certificate.issuer)?,
            subject: name_text(certificate.subject)?,
            names: certificate.names(),
            not_before: moment(certificate.not_before),
            not_after: moment(certificate.not_after),
            spki: certificate.spki.to_vec(),
            digest: sha256_of(&[der]),
        })
    }
}

/// Returns a number without its leading zeros.
pub(crate) fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or(&[])
}

fn printable(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Formats a Name as text (RFC 4514), with its last part first: `CN=device1,O=Works`. Returns `None` if `name` is not
/// a Name.
pub(crate) fn name_text(name: &[u8]) -> Option<String> {
    let mut parts = der::inside(&mut Reader::new(name), SEQUENCE).ok()?;
    let mut texts = Vec::new();
    while !parts.rest().is_empty() {
        let mut set = der::inside(&mut parts, SET).ok()?;
        let mut text = String::new();
        while !set.rest().is_empty() {
            let mut pair = der::inside(&mut set, SEQUENCE).ok()?;
            let kind = der::value(&mut pair, OID).ok()?;
            let whole = pair.rest();
            let (tag, value) = der::element(&mut pair).ok()?;
            der::end(&pair).ok()?;
            if !text.is_empty() {
                text.push('+');
            }
            text.push_str(&attribute(kind).map_or_else(|| dotted(kind), str::to_owned));
            text.push('=');
            let readable = match tag {
                // UTF8String, NumericString, PrintableString, IA5String
                12 | 18 | 19 | 22 => printable(value).filter(|_| attribute(kind).is_some()),
                _ => None,
            };
            text.push_str(&readable.map_or_else(|| format!("#{}", to_hex(whole)), |readable| escaped(&readable)));
        }
        texts.push(text);
    }
    texts.reverse();
    Some(texts.join(","))
}

/// Escapes special characters (RFC 4514, section 2.4).
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let last = text.chars().count().saturating_sub(1);
    for (at, letter) in text.chars().enumerate() {
        let edge = (at == 0 && (letter == ' ' || letter == '#')) || (at == last && letter == ' ');
        if edge || matches!(letter, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Returns the short name of an attribute type (RFC 4514, section 3).
fn attribute(id: &[u8]) -> Option<&'static str> {
    Some(match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 5] => "serialNumber",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        _ => return None,
    })
}

fn dotted(id: &[u8]) -> String {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    for byte in id {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}
