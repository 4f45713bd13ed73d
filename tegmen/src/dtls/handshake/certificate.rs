//! Two messages: Certificate, with certificates (RFC 5246, section 7.4.2) or a raw public key (RFC 7250, section 3),
//! and CertificateVerify (RFC 5246, section 7.4.8).

use super::{Write, end};
use crate::buf::{Reader, Truncated, Writer};
use crate::crypto::SignatureScheme;

/// The type of the content of a Certificate message (IANA registry TLS Certificate Types).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateType(pub u8);

impl CertificateType {
    /// A chain of X.509 certificates.
    pub const X509: Self = Self(0);
    /// A SubjectPublicKeyInfo without a certificate (RFC 7250).
    pub const RAW_PUBLIC_KEY: Self = Self(2);
}

/// Reads the content from the body of a Certificate message. For X.509, the content is the certificate_list. A length
/// of three bytes precedes each certificate, and the sender's own certificate is the first. For a raw public key, the
/// content is the SubjectPublicKeyInfo. The content is empty if the sender has no certificate or key.
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Truncated> {
    let mut reader = Reader::new(body);
    let len = reader.u24()? as usize;
    let content = reader.take(len)?;
    end(&reader)?;
    Ok(content)
}

/// Writes the body of a Certificate message with this content.
pub(crate) fn write(writer: &mut Writer<'_>, content: &[u8]) -> Write {
    writer.u24(content.len() as u32)?;
    writer.put(content)
}

/// Returns the certificates of a list, each in DER. Stops at the first certificate that does not parse.
pub fn certificates(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(list);
    core::iter::from_fn(move || {
        let len = reader.u24().ok()? as usize;
        reader.take(len).ok()
    })
}

/// Reads a signature scheme and the signature that follows it. They are the body of CertificateVerify, and the end of
/// ServerKeyExchange.
pub(crate) fn read_signature<'r>(reader: &mut Reader<'r>) -> Result<(SignatureScheme, &'r [u8]), Truncated> {
    let scheme = SignatureScheme(reader.u16()?);
    let signature = reader.with_len16()?;
    end(reader)?;
    Ok((scheme, signature))
}

/// Writes a signature scheme and then the signature.
pub(crate) fn write_signature(writer: &mut Writer<'_>, scheme: SignatureScheme, signature: &[u8]) -> Write {
    writer.u16(scheme.0)?;
    writer.with_len16(signature)
}
