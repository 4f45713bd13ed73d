//! What kind of key a SubjectPublicKeyInfo holds (RFC 5280, section 4.1.2.7; RFC 3279; RFC 5480).

use super::der::{Der, OID, SEQUENCE};

/// A parsed SubjectPublicKeyInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicKey<'a> {
    /// What kind of key it is.
    pub kind: KeyKind,
    /// A point in its uncompressed form, or an RSAPublicKey.
    pub bytes: &'a [u8],
}

/// What a key can be used for here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// ECDSA and ECDH on secp256r1.
    P256,
    /// RSA.
    Rsa {
        /// Bits of the modulus.
        bits: usize,
    },
    /// One that may sign certificates, but not a handshake: another curve, Ed25519; or one that nobody here knows.
    Other,
}

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const SECP256R1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const NULL: &[u8] = &[5, 0];

impl<'a> PublicKey<'a> {
    /// Parses a SubjectPublicKeyInfo in DER, with nothing behind it; `None` if it is none.
    pub fn parse(spki: &'a [u8]) -> Option<Self> {
        let mut outside = Der::new(spki);
        let mut whole = outside.inside(SEQUENCE)?;
        let mut algorithm = whole.inside(SEQUENCE)?;
        let bytes = whole.whole_bits()?;
        if !outside.is_empty() || !whole.is_empty() {
            return None;
        }
        let kind = match algorithm.value(OID)? {
            EC_PUBLIC_KEY => match algorithm.value(OID) {
                // The compressed form may be left out (RFC 5480, section 2.2), and here it is.
                Some(SECP256R1) if algorithm.is_empty() && bytes.len() == 65 && bytes.first() == Some(&4) => {
                    KeyKind::P256
                }
                _ => KeyKind::Other,
            },
            RSA_ENCRYPTION => {
                let parameters = algorithm.element().map(|element| element.whole);
                let mut outside = Der::new(bytes);
                let mut pair = outside.inside(SEQUENCE)?;
                let (modulus, _exponent) = (pair.unsigned()?, pair.unsigned()?);
                let complete =
                    parameters == Some(NULL) && algorithm.is_empty() && pair.is_empty() && outside.is_empty();
                let top = modulus.first().filter(|_| complete)?;
                KeyKind::Rsa { bits: modulus.len() * 8 - top.leading_zeros() as usize }
            }
            _ => KeyKind::Other,
        };
        Some(Self { kind, bytes })
    }
}
