//! The secret number of a signature, derived from the key and the digest (RFC 6979, section 3.2).

use super::modulus::{N, Wide, Words, is_within, read, write};
use crate::crypto::hash::{DIGEST_LEN, HmacKey};
use crate::crypto::{Crypto, SCALAR_LEN};
use crate::secret::Secret;

/// The state of the generator: HMAC_DRBG, instantiated with the key and the digest.
struct Generator {
    k: HmacKey,
    v: Secret<DIGEST_LEN>,
}

/// Derives the secret number for the key `private` and a digest that is already below the order of the curve
/// (bits2octets).
#[inline(never)]
pub(super) fn derive<C: Crypto>(private: &[u8; SCALAR_LEN], digest: &Words, wide: &mut Wide, nonce: &mut Words) {
    let mut octets = [0; DIGEST_LEN];
    write(&mut octets, digest);
    let mut generator = Generator { k: HmacKey::none(), v: Secret::new([1; DIGEST_LEN]) };
    generator.k.set::<C>(&[&[0; DIGEST_LEN]]);
    generator.update::<C>(&[&[0], private, &octets]);
    generator.update::<C>(&[&[1], private, &octets]);
    loop {
        generator.next::<C>();
        read(nonce, generator.v.expose());
        if is_within(nonce, &N, wide) {
            return;
        }
        generator.update::<C>(&[&[0], &[], &[]]);
    }
}

impl Generator {
    /// Computes K = HMAC_K(V || data), and then V = HMAC_K(V). These are the steps d and e of RFC 6979, section 3.2,
    /// and also the steps f and g, and the last computation of step h.
    #[inline(never)]
    fn update<C: Crypto>(&mut self, data: &[&[u8]; 3]) {
        let [octet, private, digest] = data;
        let mut key = Secret::<DIGEST_LEN>::zeroed();
        self.k.mac_into::<C>(&[self.v.expose(), octet, private, digest], key.expose_mut());
        self.k.set::<C>(&[key.expose()]);
        self.next::<C>();
    }

    /// Computes V = HMAC_K(V).
    #[inline(never)]
    fn next<C: Crypto>(&mut self) {
        let before = Secret::new(*self.v.expose());
        self.k.mac_into::<C>(&[before.expose()], self.v.expose_mut());
    }
}
