//! Certificate requests (PKCS #10, RFC 2986): a key that asks for a certificate, signed by itself.

use super::certificate::name_text;
use super::der::{Der, INTEGER, OID, SEQUENCE, context};
use super::digest;
use super::signer::SignatureScheme;
use crate::provider::public::verify_digest;

/// A request whose signature was verified: its maker has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The subject it asks for (RFC 4514).
    pub subject: String,
    /// Its SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
}

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const SHA256_WITH_RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];

impl Request {
    /// Reads a request in DER and verifies its signature, with SHA-256 by ECDSA on P-256 or by RSA of 2048 to 4096 bits.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(der: &[u8]) -> Result<Self, &'static str> {
        let (signed, request, scheme, signature) = parse(der).ok_or("no certificate request (PKCS #10)")?;
        verify_digest(scheme, &request.spki, &digest(&[signed]), signature)
            .map_err(|_| "its signature does not verify, or its key is not used here")?;
        Ok(request)
    }
}

fn parse(der: &[u8]) -> Option<(&[u8], Request, SignatureScheme, &[u8])> {
    let mut outside = Der::new(der);
    let mut whole = outside.inside(SEQUENCE)?;
    let signed = whole.optional(SEQUENCE)?;
    let scheme = match whole.inside(SEQUENCE)?.value(OID)? {
        ECDSA_WITH_SHA256 => SignatureScheme::ECDSA_SECP256R1_SHA256,
        SHA256_WITH_RSA_ENCRYPTION => SignatureScheme::RSA_PKCS1_SHA256,
        _ => return None,
    };
    let signature = whole.whole_bits()?;
    let mut info = Der::new(signed.value);
    let _version = info.value(INTEGER)?;
    let subject = name_text(info.optional(SEQUENCE)?.whole)?;
    let spki = info.optional(SEQUENCE)?.whole.to_vec();
    let _attributes = info.optional(context(0))?;
    let complete = outside.is_empty() && whole.is_empty() && info.is_empty();
    complete.then_some((signed.whole, Request { subject, spki }, scheme, signature))
}
