//! CertificateRequest (RFC 5246, section 7.4.4).

use super::{Write, end};
use crate::buf::{Reader, Truncated, Writer};
use crate::crypto::SignatureScheme;

/// A received CertificateRequest. The names of certificate authorities are ignored: a client does not use them to
/// choose its certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateRequest<'r> {
    certificate_types: &'r [u8],
    signature_algorithms: &'r [u8],
}

impl<'r> CertificateRequest<'r> {
    /// Reads the body of a CertificateRequest.
    pub(crate) fn read(body: &'r [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let certificate_types = reader.with_len8()?;
        let signature_algorithms = reader.with_len16()?;
        reader.with_len16()?; // certificate_authorities
        end(&reader)?;
        // Neither list may be empty.
        if certificate_types.is_empty() || signature_algorithms.is_empty() || signature_algorithms.len() & 1 == 1 {
            return Err(Truncated);
        }
        Ok(Self { certificate_types, signature_algorithms })
    }

    /// True if the server accepts a key for this scheme, and can verify signatures of this scheme. The message has one
    /// list of the accepted types of keys, and one list of the accepted schemes. The list of schemes also applies to
    /// the certificates of the authorities in the chain (RFC 5246, section 7.4.4).
    pub(crate) fn accepts(&self, scheme: SignatureScheme) -> bool {
        let kind = if scheme == SignatureScheme::RSA_PKCS1_SHA256 { RSA_SIGN } else { ECDSA_SIGN };
        self.certificate_types.contains(&kind) && contains(self.signature_algorithms, scheme.0)
    }
}

/// True if `list` contains `number`. Each number in the list has two bytes.
pub(crate) fn contains(list: &[u8], number: u16) -> bool {
    list.as_chunks::<2>().0.iter().any(|pair| u16::from_be_bytes(*pair) == number)
}

/// True if our own CertificateRequest contains this scheme.
pub(crate) fn asks_for(scheme: SignatureScheme) -> bool {
    let [_, _, schemes @ ..] = &SIGNATURE_ALGORITHMS;
    contains(schemes, scheme.0)
}

/// Writes the body of our CertificateRequest. It contains all supported types of keys, and no names of authorities.
pub(crate) fn write(writer: &mut Writer<'_>) -> Write {
    writer.put(&[2, ECDSA_SIGN, RSA_SIGN])?;
    writer.put(&SIGNATURE_ALGORITHMS)?;
    writer.u16(0) // no certificate_authorities
}

/// The ClientCertificateType of RSA keys (RFC 5246, section 7.4.4; RFC 8422, section 5.5).
const RSA_SIGN: u8 = 1;
const ECDSA_SIGN: u8 = 64;

/// The bytes of the list of signature schemes: its length (2 bytes), ecdsa_secp256r1_sha256 and rsa_pkcs1_sha256.
pub(crate) const SIGNATURE_ALGORITHMS: [u8; 6] = [0, 4, 0x04, 0x03, 0x04, 0x01];
