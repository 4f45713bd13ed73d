//! Elliptic curves for [`RustCrypto`](super::RustCrypto), in constant time and without a heap. Key agreement on
//! secp256r1 and ECDSA use the crate `p256`. Key agreement on x25519 uses the crate `x25519-dalek`.

use super::hash::DIGEST_LEN;
use super::{
    MAX_SHARE, MAX_SIGNATURE, NamedGroup, NotAuthentic, P256_PREFIX, SCALAR_LEN, SignatureScheme, Unsupported,
};
use p256::ecdsa::signature::hazmat::{PrehashSigner, PrehashVerifier};
use p256::ecdsa::{DerSignature, Signature, SigningKey, VerifyingKey};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{PublicKey, SecretKey, ecdh};
#[cfg(feature = "x25519")]
use x25519_dalek::StaticSecret;

/// Implements [`Crypto::key_pair`](super::Crypto::key_pair). `random` fills a slice with unpredictable bytes.
pub(crate) fn key_pair(
    group: NamedGroup,
    mut random: impl FnMut(&mut [u8]),
    private: &mut [u8; SCALAR_LEN],
    share: &mut [u8; MAX_SHARE],
) -> Result<usize, Unsupported> {
    match group {
        #[cfg(feature = "x25519")]
        NamedGroup::X25519 => {
            random(private);
            let public = x25519_dalek::PublicKey::from(&StaticSecret::from(*private));
            let (place, _) = share.split_first_chunk_mut::<32>().ok_or(Unsupported)?;
            *place = public.to_bytes();
            Ok(place.len())
        }
        NamedGroup::SECP256R1 => {
            // About one random number in 2^32 is not a valid private key, and is drawn again.
            let secret = loop {
                random(private);
                if let Ok(secret) = SecretKey::from_slice(private) {
                    break secret;
                }
            };
            write_point(&secret.public_key(), share)
        }
        _ => Err(Unsupported),
    }
}

fn write_point(public: &PublicKey, share: &mut [u8; MAX_SHARE]) -> Result<usize, Unsupported> {
    let point = public.to_sec1_point(false);
    *share = *point.as_bytes().first_chunk().ok_or(Unsupported)?;
    Ok(MAX_SHARE)
}

/// Implements [`Crypto::agree`](super::Crypto::agree).
pub(crate) fn agree(
    group: NamedGroup,
    private: &[u8; SCALAR_LEN],
    share: &[u8],
    secret: &mut [u8; SCALAR_LEN],
) -> Result<(), NotAuthentic> {
    match group {
        #[cfg(feature = "x25519")]
        NamedGroup::X25519 => {
            let share: [u8; 32] = share.try_into().map_err(|_| NotAuthentic)?;
            let shared = StaticSecret::from(*private).diffie_hellman(&x25519_dalek::PublicKey::from(share));
            // If the share is a point of small order, the shared secret contains only zeros, and is refused (RFC 7748,
            // section 6.1).
            if !shared.was_contributory() {
                return Err(NotAuthentic);
            }
            *secret = *shared.as_bytes();
            Ok(())
        }
        NamedGroup::SECP256R1 if share.len() == MAX_SHARE => agree_on_p256(private, share, secret),
        _ => Err(NotAuthentic),
    }
}

/// Implements [`Crypto::agree_by_x`](super::Crypto::agree_by_x).
pub(crate) fn agree_by_x(
    private: &[u8; SCALAR_LEN],
    x: &[u8; SCALAR_LEN],
    secret: &mut [u8; SCALAR_LEN],
) -> Result<(), NotAuthentic> {
    // Two points of the curve have this x coordinate. `share` is the compressed form of one of them (SEC 1, section
    // 2.3.4).
    let mut share = [2; SCALAR_LEN + 1];
    let [_, place @ ..] = &mut share;
    *place = *x;
    agree_on_p256(private, &share, secret)
}

/// Agrees on a secret on secp256r1. `share` is an encoded point (SEC 1, section 2.3.3).
fn agree_on_p256(private: &[u8; SCALAR_LEN], share: &[u8], secret: &mut [u8; SCALAR_LEN]) -> Result<(), NotAuthentic> {
    let key = SecretKey::from_slice(private).map_err(|_| NotAuthentic)?;
    // Checks that the point is on the curve; the curve has no points of small order.
    let share = PublicKey::from_sec1_bytes(share).map_err(|_| NotAuthentic)?;
    let shared = ecdh::diffie_hellman(key.to_nonzero_scalar(), share.as_affine());
    *secret = *shared.raw_secret_bytes().first_chunk().ok_or(NotAuthentic)?;
    Ok(())
}

/// Implements [`Crypto::verify`](super::Crypto::verify), for ECDSA on secp256r1.
pub(crate) fn verify(
    scheme: SignatureScheme,
    public_key: &[u8],
    digest: &[u8; DIGEST_LEN],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let point = public_key.strip_prefix(&P256_PREFIX).filter(|point| point.len() == MAX_SHARE);
    let point = point.filter(|_| scheme == SignatureScheme::ECDSA_SECP256R1_SHA256).ok_or(NotAuthentic)?;
    let key = VerifyingKey::from_sec1_bytes(point).map_err(|_| NotAuthentic)?;
    let signature = Signature::from_der(signature).map_err(|_| NotAuthentic)?;
    key.verify_prehash(digest, &signature).map_err(|_| NotAuthentic)
}

/// Signs a SHA-256 `digest` with a private key on secp256r1, by deterministic ECDSA (RFC 6979). Returns the length of
/// the signature in DER.
///
/// # Errors
/// [`Unsupported`] if `private` is 0 or is not below the order of the curve.
pub fn sign(
    private: &[u8; SCALAR_LEN],
    digest: &[u8; DIGEST_LEN],
    out: &mut [u8; MAX_SIGNATURE],
) -> Result<usize, Unsupported> {
    let key = SigningKey::from_slice(private).map_err(|_| Unsupported)?;
    let signature: DerSignature = key.sign_prehash(digest).map_err(|_| Unsupported)?;
    let bytes = signature.as_bytes();
    out.get_mut(..bytes.len()).ok_or(Unsupported)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Returns the SubjectPublicKeyInfo for a private key on secp256r1: a raw public key (RFC 7250).
///
/// # Errors
/// [`Unsupported`] if `private` is 0 or is not below the order of the curve.
pub fn public_key_of(private: &[u8; SCALAR_LEN]) -> Result<[u8; P256_PREFIX.len() + MAX_SHARE], Unsupported> {
    let secret = SecretKey::from_slice(private).map_err(|_| Unsupported)?;
    let mut share = [0; MAX_SHARE];
    write_point(&secret.public_key(), &mut share)?;
    let mut info = [0; P256_PREFIX.len() + MAX_SHARE];
    let (prefix, point) = info.split_at_mut_checked(P256_PREFIX.len()).ok_or(Unsupported)?;
    prefix.copy_from_slice(&P256_PREFIX);
    point.copy_from_slice(&share);
    Ok(info)
}
