//! Key agreement on secp256r1 and ECDSA with SHA-256 in little memory, for [`Compact`](super::Compact).
//!
//! No branch and no address depends on a private key, on the secret number of a signature, or on values that are
//! computed from them. So each operation takes constant time on a processor that multiplies two words in constant time.
//! **A Cortex-M3 does not:** it ends `UMULL` and `UMLAL` early for small operands. Therefore the coordinates of each
//! point and the numbers of a signature are multiplied by a random number, so that the operands differ from call to
//! call. A Cortex-M4 and later processors do not have this fault.

mod der;
mod modulus;
mod nonce;
mod point;

use super::hash::DIGEST_LEN;
use super::{Crypto, MAX_SHARE, MAX_SIGNATURE, NotAuthentic, P256_PREFIX, SCALAR_LEN, SignatureScheme, Unsupported};
use crate::secret::Secret;
use modulus::{N, Wide, Words, is_within, read, reduce, write};
use point::{Machine, ONE_OF_P, to_digits};
use zeroize::optimization_barrier;

/// A number that may be secret, wiped on drop.
struct Number(Words);

impl Number {
    const fn zero() -> Self {
        Self([0; 8])
    }

    /// Draws an unpredictable number that is not 0 and is below 2^255. So the number is below the prime of the field
    /// and below the order of the curve.
    #[inline(never)]
    fn draw<C: Crypto>(&mut self, crypto: &mut C) {
        let mut bytes = Secret::zeroed();
        crypto.random(bytes.expose_mut());
        read(&mut self.0, bytes.expose());
        let [lowest, .., highest] = &mut self.0;
        *lowest |= 1;
        *highest >>= 1;
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// [`Unsupported`] if `private` is 0 or is not below the order of the curve.
    fn read_key(&mut self, private: &[u8; SCALAR_LEN], wide: &mut Wide) -> Result<(), Unsupported> {
        read(&mut self.0, private);
        if is_within(&self.0, &N, wide) { Ok(()) } else { Err(Unsupported) }
    }
}

impl Drop for Number {
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = [0; 8];
        optimization_barrier(self);
    }
}

/// Implements [`Crypto::key_pair`] for secp256r1.
pub(crate) fn key_pair<C: Crypto>(crypto: &mut C, private: &mut [u8; SCALAR_LEN], share: &mut [u8; MAX_SHARE]) {
    // About one random number in 2^32 is not a valid private key, and is drawn again.
    loop {
        crypto.random(private);
        if write_share(crypto, private, share).is_ok() {
            return;
        }
    }
}

/// Writes the point of a private key, uncompressed (SEC 1, section 2.3.3).
#[inline(never)]
fn write_share<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
    share: &mut [u8; MAX_SHARE],
) -> Result<(), Unsupported> {
    let mut machine = Machine::ZERO;
    multiply_key(crypto, &mut machine, private, true)?;
    let (x, y) = machine.affine();
    let [format, coordinates @ ..] = share;
    *format = 4;
    coordinates.as_chunks_mut().0.iter_mut().zip([x, y]).for_each(|(to, from)| write(to, from));
    Ok(())
}

/// Multiplies the base point, or the point that was loaded into the [`Machine`], by a private key.
#[inline(never)]
fn multiply_key<C: Crypto>(
    crypto: &mut C,
    machine: &mut Machine,
    private: &[u8; SCALAR_LEN],
    is_base: bool,
) -> Result<(), Unsupported> {
    let (mut key, mut blind) = (Number::zero(), Number::zero());
    key.read_key(private, &mut machine.wide)?;
    blind.draw(crypto);
    to_digits(&mut key.0, &mut machine.wide);
    let (base, point) = if is_base { (Some(&key.0), None) } else { (None, Some(&key.0)) };
    machine.multiply(&blind.0, base, point);
    Ok(())
}

/// Implements [`Crypto::agree`] for secp256r1.
#[inline(never)]
pub(crate) fn agree<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
    share: &[u8],
    secret: &mut [u8; SCALAR_LEN],
) -> Result<(), NotAuthentic> {
    let mut machine = Machine::ZERO;
    machine.load(share)?;
    agree_with_loaded(crypto, &mut machine, private, secret)
}

/// Implements [`Crypto::agree_by_x`].
#[inline(never)]
pub(crate) fn agree_by_x<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
    x: &[u8; SCALAR_LEN],
    secret: &mut [u8; SCALAR_LEN],
) -> Result<(), NotAuthentic> {
    let mut machine = Machine::ZERO;
    machine.load_x(x)?;
    agree_with_loaded(crypto, &mut machine, private, secret)
}

fn agree_with_loaded<C: Crypto>(
    crypto: &mut C,
    machine: &mut Machine,
    private: &[u8; SCALAR_LEN],
    secret: &mut [u8; SCALAR_LEN],
) -> Result<(), NotAuthentic> {
    multiply_key(crypto, machine, private, false).map_err(|_| NotAuthentic)?;
    let (x, _) = machine.affine();
    write(secret, x);
    Ok(())
}

/// Implements [`Crypto::verify`] for ECDSA on secp256r1 (FIPS 186-5, section 6.4.2).
#[inline(never)]
pub(crate) fn verify(
    scheme: SignatureScheme,
    public_key: &[u8],
    digest: &[u8; DIGEST_LEN],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let point = public_key.strip_prefix(&P256_PREFIX).ok_or(NotAuthentic)?;
    if scheme != SignatureScheme::ECDSA_SECP256R1_SHA256 {
        return Err(NotAuthentic);
    }
    let mut machine = Machine::ZERO;
    machine.load(point)?;
    let (mut r, mut s, mut hash, mut inverse) = ([0; 8], [0; 8], [0; 8], [0; 8]);
    der::read(signature, &mut r, &mut s).ok_or(NotAuthentic)?;
    let wide = &mut machine.wide;
    if !is_within(&r, &N, wide) || !is_within(&s, &N, wide) {
        return Err(NotAuthentic);
    }
    read(&mut hash, digest);
    reduce(&mut hash, wide);
    N.multiply(wide, &mut s, &N.square);
    N.invert(wide, &s, &mut inverse);
    N.multiply(wide, &mut hash, &inverse);
    N.multiply(wide, &mut inverse, &r);
    to_digits(&mut hash, wide);
    to_digits(&mut inverse, wide);
    machine.multiply(&ONE_OF_P, Some(&hash), Some(&inverse));
    if machine.has_x(&mut r) { Ok(()) } else { Err(NotAuthentic) }
}

/// Implements [`Crypto::sign`] for secp256r1 (FIPS 186-5, section 6.4.1), with the secret number of RFC 6979.
#[inline(never)]
pub(crate) fn sign<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
    digest: &[u8; DIGEST_LEN],
    out: &mut [u8; MAX_SIGNATURE],
) -> Result<usize, Unsupported> {
    let mut machine = Machine::ZERO;
    let mut signing =
        Signing { key: Number::zero(), hash: Number::zero(), nonce: Number::zero(), blind: Number::zero() };
    signing.key.read_key(private, &mut machine.wide)?;
    read(&mut signing.hash.0, digest);
    reduce(&mut signing.hash.0, &mut machine.wide);
    nonce::derive::<C>(private, &signing.hash.0, &mut machine.wide, &mut signing.nonce.0);
    signing.blind.draw(crypto);
    signing.sign(&mut machine, out)
}

/// The four numbers from which a signature is computed: the private key, the hash of the message, the secret number
/// (nonce), and a random number that blinds the other three.
struct Signing {
    key: Number,
    hash: Number,
    nonce: Number,
    blind: Number,
}

impl Signing {
    #[inline(never)]
    fn sign(&mut self, machine: &mut Machine, out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        let Self { key: Number(key), hash: Number(hash), nonce: Number(nonce), blind: Number(blind) } = self;
        let mut digits = Number(*nonce);
        to_digits(&mut digits.0, &mut machine.wide);
        machine.multiply(blind, Some(&digits.0), None);
        let mut r = *machine.affine().0;
        let wide = &mut machine.wide;
        reduce(&mut r, wide);
        // Multiplies the key, the hash and the secret number by the blind. The blind cancels in the quotient.
        for number in [&mut *key, &mut *hash, &mut *nonce] {
            N.multiply(wide, number, blind);
        }
        N.multiply(wide, key, &N.square);
        N.multiply(wide, key, &r);
        N.add(wide, key, hash);
        N.multiply(wide, nonce, &N.square);
        let s = hash;
        N.invert(wide, nonce, s);
        N.multiply(wide, s, key);
        if !is_within(&r, &N, wide) || !is_within(s, &N, wide) {
            return Err(Unsupported);
        }
        der::write(&r, s, out).map_err(|_| Unsupported)
    }
}

/// Returns the SubjectPublicKeyInfo for a private key on secp256r1: a raw public key (RFC 7250).
///
/// # Errors
/// [`Unsupported`] if `private` is 0 or is not below the order of the curve.
pub fn public_key_of<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
) -> Result<[u8; P256_PREFIX.len() + MAX_SHARE], Unsupported> {
    let mut info = [0; P256_PREFIX.len() + MAX_SHARE];
    let (prefix, point) = info.split_first_chunk_mut().ok_or(Unsupported)?;
    *prefix = P256_PREFIX;
    write_share(crypto, private, point.first_chunk_mut().ok_or(Unsupported)?)?;
    Ok(info)
}

#[cfg(test)]
mod tests;
