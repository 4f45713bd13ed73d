//! HKDF with SHA-256 (RFC 5869) over a provider's compression function.

use super::Crypto;
use super::hash::{DIGEST_LEN, HmacKey};
use crate::secret::Secret;

/// A pseudorandom key, ready to be expanded.
pub struct Hkdf(HmacKey);

impl Hkdf {
    /// Makes a value without a key. Call [`Self::extract`] before the first use.
    pub const fn none() -> Self {
        Self(HmacKey::none())
    }

    /// HKDF-Extract: derives the key from `secret`, which is given in parts. `salt` may be empty.
    pub fn extract<C: Crypto>(&mut self, salt: &[u8], secret: &[&[u8]]) {
        let mut prk = Secret::<DIGEST_LEN>::zeroed();
        self.0.set::<C>(&[salt]);
        self.0.mac_into::<C>(secret, prk.expose_mut());
        self.0.set::<C>(&[prk.expose()]);
    }

    /// HKDF-Expand for the purpose `info`. Writes one digest at most: if `out` is longer, its further bytes do not
    /// change.
    pub fn expand<C: Crypto>(&self, info: &[u8], out: &mut [u8]) {
        self.0.mac_into::<C>(&[info, &[1]], out);
    }

    /// HKDF-Expand for the purpose `info`. Writes two digests.
    pub fn expand_twice<C: Crypto>(&self, info: &[u8], out: &mut [u8; 2 * DIGEST_LEN]) {
        let (first, second) = out.split_at_mut(DIGEST_LEN);
        self.0.mac_into::<C>(&[info, &[1]], first);
        self.0.mac_into::<C>(&[first, info, &[2]], second);
    }
}

#[cfg(test)]
mod tests;
