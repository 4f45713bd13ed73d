//! The key pairs and credentials of the members of a Group OSCORE group, and of its Group Manager.

use crate::cbor::{MapWriter, bytes, integer, text};
use crate::provider::HostCrypto;
use crate::provider::public::{Group, MAX_PUBLIC_LEN};
use tegmen::crypto::{Crypto as _, Curve, MAX_SHARE, MemberKey, NamedGroup, Unsupported, ed25519};
use tegmen::secret::Secret;

/// Returns a new private key.
///
/// # Errors
/// [`Unsupported`] for a curve that members cannot use.
pub fn draw(crypto: &mut HostCrypto, curve: Curve) -> Result<Secret<32>, Unsupported> {
    let mut private = Secret::zeroed();
    match curve {
        Curve::Ed25519 => crypto.random(private.expose_mut()),
        Curve::P256 => {
            crypto.key_pair(NamedGroup::SECP256R1, private.expose_mut(), &mut [0; MAX_SHARE])?;
        }
        Curve::X25519 => return Err(Unsupported),
    }
    Ok(private)
}

/// Returns the public key of a private key; `None` if the private key is not valid on the curve.
pub fn public_of(curve: Curve, private: &Secret<32>) -> Option<MemberKey> {
    match curve {
        Curve::Ed25519 => Some(MemberKey::Ed25519(ed25519::public_key_of(private.expose()))),
        Curve::P256 => {
            let mut point = [0; MAX_PUBLIC_LEN];
            Group::Secp256r1.public_key(private, &mut point).ok().map(|()| MemberKey::P256(point))
        }
        Curve::X25519 => None,
    }
}

/// Returns a CWT Claims Set (RFC 8392) with the name of a member, its public key and the signature algorithm of the
/// group. Without the algorithm, aiocoap does not accept the key.
pub fn credential(name: &str, key: &MemberKey) -> Vec<u8> {
    let mut ccs = MapWriter::default();
    ccs.entry(SUB, |to| text(to, name)).map(CNF, Some(key), |confirmation, key| {
        confirmation.map(COSE_KEY, Some(key), |cose, key| {
            let (kty, alg, crv, x, y) = match key {
                MemberKey::Ed25519(x) => (OKP, Some(EDDSA), ED25519, x.as_slice(), None),
                MemberKey::X25519(x) => (OKP, None, X25519, x.as_slice(), None),
                MemberKey::P256([_, point @ ..]) => {
                    let (x, y) = point.split_at(32);
                    (EC2, Some(ES256), P256, x, Some(y))
                }
            };
            cose.entry(KTY, |to| integer(to, kty)).optional(ALG, alg, integer).entry(CRV, |to| integer(to, crv));
            cose.entry(X, |to| bytes(to, x)).optional(Y, y, bytes);
        });
    });
    ccs.finish().to_vec()
}

/// The label of the CWT claim for the subject (`SUB`). `CNF` is the label of the claim for the confirmation.
const SUB: i64 = 2;
const CNF: i64 = 8;
/// The label of a COSE_Key in the confirmation.
const COSE_KEY: i64 = 1;
// Labels and values of a COSE_Key (RFC 9052, section 7.1; RFC 9053, section 7).
const KTY: i64 = 1;
const ALG: i64 = 3;
const CRV: i64 = -1;
const X: i64 = -2;
const Y: i64 = -3;
const OKP: i64 = 1;
const EC2: i64 = 2;
const P256: i64 = 1;
const X25519: i64 = 4;
const ED25519: i64 = 6;
const ES256: i64 = -7;
const EDDSA: i64 = -8;
