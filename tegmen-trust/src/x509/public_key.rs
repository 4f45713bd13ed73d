//! The kind of key in a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7; RFC 3279; RFC 5480).

use tegmen::buf::Reader;
use tegmen_x509::der::{self, Malformed, OID, SEQUENCE};

/// A parsed SubjectPublicKeyInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicKey<'a> {
    /// The kind of the key.
    pub kind: KeyKind,
    /// An uncompressed point, an RSAPublicKey, or the 32 bytes of a key of Ed25519.
    pub bytes: &'a [u8],
}

/// The kind of a key, which decides its supported uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// ECDSA and ECDH on secp256r1.
    P256,
    /// RSA.
    Rsa {
        /// The length of the modulus in bits.
        bits: usize,
    },
    /// Ed25519 (RFC 8410). Such a key signs records of a group, but no handshake.
    Ed25519,
    /// A key on any other curve, or of an unknown kind. Such a key may sign certificates, but no handshake.
    Other,
}

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// The OBJECT IDENTIFIER of the curve, with tag and length.
const SECP256R1: &[u8] = &[OID, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const NULL: &[u8] = &[5, 0];
/// The OBJECT IDENTIFIER of Ed25519, which has no parameters (RFC 8410, section 3).
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl<'a> PublicKey<'a> {
    /// Parses a SubjectPublicKeyInfo in DER. Returns `None` if `spki` is not valid, or contains further bytes.
    pub fn parse(spki: &'a [u8]) -> Option<Self> {
        Self::read(spki).ok()
    }

    fn read(spki: &'a [u8]) -> Result<Self, Malformed> {
        let mut outside = Reader::new(spki);
        let mut whole = der::inside(&mut outside, SEQUENCE)?;
        der::end(&outside)?;
        let mut algorithm = der::inside(&mut whole, SEQUENCE)?;
        let bytes = der::whole_bits(&mut whole)?;
        der::end(&whole)?;
        let kind = match der::value(&mut algorithm, OID)? {
            // The compressed form may be left out (RFC 5480, section 2.2), and here it is.
            EC_PUBLIC_KEY if algorithm.rest() == SECP256R1 && bytes.len() == 65 && bytes.first() == Some(&4) => {
                KeyKind::P256
            }
            RSA_ENCRYPTION if algorithm.rest() == NULL => {
                let mut outside = Reader::new(bytes);
                let mut pair = der::inside(&mut outside, SEQUENCE)?;
                der::end(&outside)?;
                let (modulus, _exponent) = (der::positive(&mut pair)?, der::positive(&mut pair)?);
                der::end(&pair)?;
                let zeros = modulus.first().map_or(0, |top| top.leading_zeros());
                KeyKind::Rsa { bits: modulus.len() * 8 - zeros as usize }
            }
            RSA_ENCRYPTION => return Err(Malformed),
            ED25519 if algorithm.rest().is_empty() && bytes.len() == 32 => KeyKind::Ed25519,
            _ => KeyKind::Other,
        };
        Ok(Self { kind, bytes })
    }
}
