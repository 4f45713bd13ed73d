//! Cookies of HelloVerifyRequest: proof that a client receives at the address it sends from, without state here.

use super::Config;
use super::handshake::client_hello::ClientHello;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::secret::{Secret, same};
use crate::time::Instant;

/// Bytes of a cookie.
pub(crate) const COOKIE_LEN: usize = 16;

/// Two keys that rotate: cookies are made with the current one and accepted under both.
pub(crate) struct CookieKeys {
    keys: [HmacKey; 2],
    /// The low bit says which of the two is current, and stands in the cookie's first bit.
    generation: u8,
    rotate_at: Instant,
}

impl CookieKeys {
    /// No keys yet, for an endpoint that never answers.
    pub(crate) const fn none() -> Self {
        Self { keys: [HmacKey::none(), HmacKey::none()], generation: 0, rotate_at: Instant::NEVER }
    }

    /// Draws both keys.
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C, now: Instant, config: &Config) {
        self.rotate(crypto, now, config);
        self.rotate(crypto, now, config);
    }

    pub(crate) fn rotate_if_due<C: Crypto>(&mut self, crypto: &mut C, now: Instant, config: &Config) {
        if now >= self.rotate_at.after(config.cookie_lifetime) {
            // After a long silence the current key is too old to become the previous one.
            self.begin(crypto, now, config);
        } else if now >= self.rotate_at {
            self.rotate(crypto, now, config);
        }
    }

    fn rotate<C: Crypto>(&mut self, crypto: &mut C, now: Instant, config: &Config) {
        self.generation = self.generation.wrapping_add(1);
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        *self.key_mut() = HmacKey::new::<C>(&[key.expose()]);
        self.rotate_at = now.after(config.cookie_lifetime);
    }

    fn key_mut(&mut self) -> &mut HmacKey {
        let [even, odd] = &mut self.keys;
        if self.generation & 1 == 0 { even } else { odd }
    }

    pub(crate) fn make<C: Crypto>(&self, address: &[u8], hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        self.cookie::<C>(self.generation & 1, address, hello)
    }

    pub(crate) fn is_valid<C: Crypto>(&self, address: &[u8], hello: &ClientHello<'_>) -> bool {
        let Some(&first) = hello.cookie.first() else { return false };
        same(&self.cookie::<C>(first & 1, address, hello), hello.cookie)
    }

    /// Bound to the address and to everything in the hello but the cookie (RFC 6347, section 4.2.1).
    fn cookie<C: Crypto>(&self, which: u8, address: &[u8], hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        let [even, odd] = &self.keys;
        let key = if which == 0 { even } else { odd };
        let [before, behind] = hello.around_cookie;
        let mac = key.mac::<C>(&[address, before, behind]);
        let mut cookie = [0; COOKIE_LEN];
        for (to, from) in cookie.iter_mut().zip(mac) {
            *to = from;
        }
        let [first, ..] = &mut cookie;
        *first = *first & 0xfe | which;
        cookie
    }
}
