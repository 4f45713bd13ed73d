//! HKDF with SHA-256 (RFC 5869) over a provider's compression function.

use super::Crypto;
use super::hash::{DIGEST_LEN, HmacKey};
use crate::secret::{self, Secret};

/// A pseudorandom key, ready to be expanded.
pub struct Hkdf(HmacKey);

/// More bytes were asked for than one key may give: 255 digests (RFC 5869, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl Hkdf {
    /// HKDF-Extract: concentrates `secret`, given in parts, under `salt`, which may be empty.
    pub fn extract<C: Crypto>(salt: &[u8], secret: &[&[u8]]) -> Self {
        let mut hkdf = Self::none();
        hkdf.set::<C>(salt, secret);
        hkdf
    }

    /// A place for a key.
    pub(crate) const fn none() -> Self {
        Self(HmacKey::none())
    }

    /// Does the same as [`Self::extract`], and replaces the key.
    pub(crate) fn set<C: Crypto>(&mut self, salt: &[u8], secret: &[&[u8]]) {
        let mut prk = Secret::<DIGEST_LEN>::zeroed();
        self.0.set::<C>(&[salt]);
        self.0.mac_into::<C>(secret, prk.expose_mut());
        self.0.set::<C>(&[prk.expose()]);
    }

    /// Does the same as [`Self::expand`] for at most one digest. Bytes of `out` behind the digest do not change.
    pub(crate) fn expand_short<C: Crypto>(&self, info: &[u8], out: &mut [u8]) {
        self.0.mac_into::<C>(&[info, &[1]], out);
    }

    /// HKDF-Expand: fills `out` with key material for the purpose `info`.
    ///
    /// # Errors
    /// [`TooLong`]; `out` is then not filled.
    pub fn expand<C: Crypto>(&self, info: &[u8], out: &mut [u8]) -> Result<(), TooLong> {
        if out.len() > const { 255 * DIGEST_LEN } {
            return Err(TooLong);
        }
        let mut block = Secret::<DIGEST_LEN>::zeroed();
        let mut previous = 0;
        for (chunk, number) in out.chunks_mut(DIGEST_LEN).zip(1..=255u8) {
            let before = block.expose().get(..previous).unwrap_or(&[]);
            let mut next = self.0.mac::<C>(&[before, info, &[number]]);
            chunk.iter_mut().zip(next).for_each(|(to, from)| *to = from);
            *block.expose_mut() = next;
            secret::wipe(&mut next);
            previous = DIGEST_LEN;
        }
        Ok(())
    }
}
