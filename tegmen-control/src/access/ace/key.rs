//! Confirmation of a key (RFC 8747, section 3), and COSE keys (RFC 9052, section 7).

use super::oscore::InputMaterial;
use minicbor::Decoder;
use minicbor::data::Type;
use std::fmt;
use tegmen_host::cbor::{Malformed, MapWriter, bytes, integer, read_array, read_map};
use zeroize::Zeroizing;

/// The label of a COSE key in a confirmation.
const COSE_KEY: i64 = 1;
/// The label of the identifier of a key in a confirmation.
const KID: i64 = 3;
/// The label of OSCORE input material in a confirmation.
const OSC: i64 = 4;
/// The label of the type of a COSE key.
const KTY: i64 = 1;
/// The label of the identifier in a COSE key.
const KEY_ID: i64 = 2;
/// The label of the algorithm in a COSE key.
const ALG: i64 = 3;
/// The label of the operations in a COSE key.
const KEY_OPS: i64 = 4;
/// The label of the bytes of a symmetric COSE key, and of the curve of a COSE key on an elliptic curve.
const K_OR_CURVE: i64 = -1;
/// The label of the x-coordinate in a COSE key.
const X: i64 = -2;
/// The label of the y-coordinate in a COSE key.
const Y: i64 = -3;
/// The numbers of the algorithms that agree on keys by ECDH, and derive them with HKDF and SHA-256 (RFC 9053, section
/// 6.3.1).
const ECDH: [i64; 2] = [-25, -27];
/// The number of the type of keys on an elliptic curve (RFC 9053, section 7).
const EC2: i64 = 2;
/// The number of the type of symmetric keys (RFC 9053, section 7).
const SYMMETRIC: i64 = 4;

/// The key of which the holder of a token proves possession. The claim or parameter `cnf` contains it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Confirmation {
    /// The key itself.
    Key(CoseKey),
    /// The identifier of a key that client and resource server have.
    Kid(Vec<u8>),
    /// The input material of an OSCORE Security Context (RFC 9203, section 3.2.1).
    Osc(InputMaterial),
}

impl Confirmation {
    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut found = None;
        let mut methods = 0_u8;
        read_map(decoder, |label, decoder| {
            found = Some(match label {
                COSE_KEY => Self::Key(CoseKey::read(decoder)?),
                KID => Self::Kid(decoder.bytes()?.to_owned()),
                OSC => Self::Osc(InputMaterial::read(decoder)?),
                _ => return Ok(false),
            });
            methods = methods.saturating_add(1);
            Ok(true)
        })?;
        // Exactly one key (RFC 8747, section 3.1).
        if methods > 1 {
            return Err(Malformed::Value(COSE_KEY));
        }
        found.ok_or(Malformed::Missing(COSE_KEY))
    }

    pub(super) fn write(&self, map: &mut MapWriter) {
        match self {
            Self::Key(key) => map.map(COSE_KEY, Some(key), |map, key| key.write(map)),
            Self::Kid(kid) => map.entry(KID, |encoder| bytes(encoder, kid)),
            Self::Osc(material) => map.map(OSC, Some(material), |map, material| material.write(map)),
        };
    }
}

/// A COSE key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoseKey {
    /// The identifier of the key; `None` if the key has none.
    pub kid: Option<Vec<u8>>,
    /// The algorithm for which the key is used, by its number in the COSE registry; `None` if the key is not limited to
    /// one algorithm.
    pub algorithm: Option<i64>,
    /// The type of the key, and its bytes.
    pub material: Material,
}

/// The type and the bytes of a [`CoseKey`].
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// A secret key; the bytes are wiped on drop.
    Symmetric(Zeroizing<Vec<u8>>),
    /// A public key on an elliptic curve, with two coordinates.
    Ec2 {
        /// The curve, by its number in the COSE registry: 1 is P-256.
        curve: i64,
        /// The x-coordinate.
        x: Vec<u8>,
        /// The y-coordinate.
        y: Vec<u8>,
    },
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symmetric(_) => f.write_str("Symmetric"),
            Self::Ec2 { curve, .. } => write!(f, "Ec2 on curve {curve}"),
        }
    }
}

impl CoseKey {
    /// Makes a secret key without an identifier.
    pub fn symmetric(key: &[u8]) -> Self {
        Self { kid: None, algorithm: None, material: Material::Symmetric(Zeroizing::new(key.to_vec())) }
    }

    /// Returns true if the key may be used for ECDH: it is not limited to another algorithm (RFC 9052, section 7.1).
    pub(crate) fn is_for_ecdh(&self) -> bool {
        self.algorithm.is_none_or(|algorithm| ECDH.contains(&algorithm))
    }

    fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let (mut kty, mut kid, mut algorithm, mut has_operation) = (None, None, None, false);
        let (mut secret, mut curve, mut x, mut y) = (None, None, None, None);
        read_map(decoder, |label, decoder| {
            match label {
                KTY => kty = Some(decoder.i64()?),
                KEY_ID => kid = Some(decoder.bytes()?.to_owned()),
                ALG => algorithm = Some(decoder.i64()?),
                KEY_OPS => read_array(decoder, |decoder| {
                    has_operation = true;
                    match decoder.datatype()? {
                        Type::String => _ = decoder.str()?,
                        _ => _ = decoder.i64()?,
                    }
                    Ok(())
                })?,
                K_OR_CURVE if decoder.datatype()? == Type::Bytes => {
                    secret = Some(Zeroizing::new(decoder.bytes()?.to_vec()))
                }
                K_OR_CURVE => curve = Some(decoder.i64()?),
                X => x = Some(decoder.bytes()?.to_owned()),
                Y => y = Some(decoder.bytes()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let material = match kty.ok_or(Malformed::Missing(KTY))? {
            SYMMETRIC => Material::Symmetric(secret.ok_or(Malformed::Missing(K_OR_CURVE))?),
            // A public key for ECDH has no operations (RFC 9053, section 6.3.1), and there are no others here.
            EC2 if has_operation => return Err(Malformed::Value(KEY_OPS)),
            EC2 => Material::Ec2 {
                curve: curve.ok_or(Malformed::Missing(K_OR_CURVE))?,
                x: x.ok_or(Malformed::Missing(X))?,
                y: y.ok_or(Malformed::Missing(Y))?,
            },
            _ => return Err(Malformed::Value(KTY)),
        };
        Ok(Self { kid, algorithm, material })
    }

    /// Writes the key. The labels are in the order of their encodings (RFC 8949, section 4.2.1), so negative labels
    /// come last.
    fn write(&self, map: &mut MapWriter) {
        let kty = if matches!(self.material, Material::Symmetric(_)) { SYMMETRIC } else { EC2 };
        map.entry(KTY, |encoder| integer(encoder, kty));
        map.optional(KEY_ID, self.kid.as_deref(), bytes);
        map.optional(ALG, self.algorithm, integer);
        match &self.material {
            Material::Symmetric(secret) => _ = map.entry(K_OR_CURVE, |encoder| bytes(encoder, secret)),
            Material::Ec2 { curve, x, y } => {
                map.entry(K_OR_CURVE, |encoder| integer(encoder, *curve));
                map.entry(X, |encoder| bytes(encoder, x)).entry(Y, |encoder| bytes(encoder, y));
            }
        }
    }
}
