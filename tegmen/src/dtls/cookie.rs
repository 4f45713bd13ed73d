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
    pub(crate) fn new<C: Crypto>(crypto: &mut C, now: Instant, config: &Config) -> Self {
        let keys = [random_key(crypto), random_key(crypto)];
        Self { keys, generation: 0, rotate_at: now.after(config.cookie_lifetime) }
    }

    pub(crate) fn rotate_if_due<C: Crypto>(&mut self, crypto: &mut C, now: Instant, config: &Config) {
        if now < self.rotate_at {
            return;
        }
        // After a long silence the current key is too old to become the previous one.
        let both = now >= self.rotate_at.after(config.cookie_lifetime);
        for _ in 0..if both { 2 } else { 1 } {
            self.generation = self.generation.wrapping_add(1);
            *self.key_mut() = random_key(crypto);
        }
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

fn random_key<C: Crypto>(crypto: &mut C) -> HmacKey {
    let mut key = Secret::<32>::zeroed();
    crypto.random(key.expose_mut());
    HmacKey::new::<C>(&[key.expose()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::compact::Compact;
    use crate::time::Duration;

    const START: Instant = Instant::from_micros(0);

    fn hello(cookie: &[u8]) -> ClientHello<'_> {
        let body = b"\xfe\xfd................................\0\0\0\x02\xc0\xa8\x01\0";
        let mut hello = ClientHello::read(body).unwrap();
        hello.cookie = cookie;
        hello
    }

    /// Whether a cookie made at the start is valid after these seconds, between which hellos came.
    fn valid_after(seconds: &[u64]) -> bool {
        let config = Config { cookie_lifetime: Duration::from_secs(60), ..Config::default() };
        let mut crypto = Compact::new([1; 32]);
        let mut keys = CookieKeys::new(&mut crypto, START, &config);
        let cookie = keys.make::<Compact>(b"address", &hello(&[]));
        for second in seconds {
            keys.rotate_if_due(&mut crypto, START.after(Duration::from_secs(*second)), &config);
        }
        keys.is_valid::<Compact>(b"address", &hello(&cookie))
    }

    #[test]
    fn a_cookie_is_valid_for_one_rotation_and_not_for_two() {
        assert!(valid_after(&[]));
        assert!(valid_after(&[59]));
        assert!(valid_after(&[60]));
        assert!(valid_after(&[119]));
        assert!(!valid_after(&[60, 120]));
    }

    #[test]
    fn a_cookie_is_not_valid_after_a_long_silence() {
        assert!(!valid_after(&[120]));
        assert!(!valid_after(&[100_000]));
    }

    #[test]
    fn a_cookie_is_bound_to_address_and_key() {
        let config = Config::default();
        let mut crypto = Compact::new([1; 32]);
        let keys = CookieKeys::new(&mut crypto, START, &config);
        let cookie = keys.make::<Compact>(b"address", &hello(&[]));
        assert!(keys.is_valid::<Compact>(b"address", &hello(&cookie)));
        assert!(!keys.is_valid::<Compact>(b"addresS", &hello(&cookie)));
        assert!(!keys.is_valid::<Compact>(b"address", &hello(&[])));
        let other = CookieKeys::new(&mut crypto, START, &config);
        assert!(!other.is_valid::<Compact>(b"address", &hello(&cookie)));
    }
}
