//! Cookies of HelloVerifyRequest: proof that a client receives at the address it sends from, without state here.

use super::Settings;
use super::handshake::client_hello::ClientHello;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::endpoint::Address;
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
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C, now: Instant, settings: &Settings) {
        self.rotate(crypto, now, settings);
        self.rotate(crypto, now, settings);
    }

    pub(crate) fn rotate_if_due<C: Crypto>(&mut self, crypto: &mut C, now: Instant, settings: &Settings) {
        if now < self.rotate_at {
            return;
        }
        // After a long silence the current key is too old to become the previous one.
        if now >= self.rotate_at.after_millis(settings.cookie_lifetime_ms) {
            self.rotate(crypto, now, settings);
        }
        self.rotate(crypto, now, settings);
    }

    fn rotate<C: Crypto>(&mut self, crypto: &mut C, now: Instant, settings: &Settings) {
        self.generation = self.generation.wrapping_add(1);
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        self.key_mut().set::<C>(&[key.expose()]);
        self.rotate_at = now.after_millis(settings.cookie_lifetime_ms);
    }

    fn key_mut(&mut self) -> &mut HmacKey {
        let [even, odd] = &mut self.keys;
        if self.generation & 1 == 0 { even } else { odd }
    }

    pub(crate) fn make<C: Crypto>(&self, address: &Address, hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        self.cookie::<C>(self.generation & 1, address, hello)
    }

    pub(crate) fn is_valid<C: Crypto>(&self, address: &Address, hello: &ClientHello<'_>) -> bool {
        let Some(&first) = hello.cookie.first() else { return false };
        same(&self.cookie::<C>(first & 1, address, hello), hello.cookie)
    }

    /// Bound to the address and to everything in the hello but the cookie (RFC 6347, section 4.2.1).
    #[inline(never)]
    fn cookie<C: Crypto>(&self, which: u8, address: &Address, hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        let [even, odd] = &self.keys;
        let key = if which == 0 { even } else { odd };
        let [before, behind] = hello.around_cookie;
        let mut cookie = [0; COOKIE_LEN];
        key.mac_into::<C>(&[&address.ip, &address.port.to_be_bytes(), before, behind], &mut cookie);
        let [first, ..] = &mut cookie;
        *first = *first & 0xfe | which;
        cookie
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::compact::Compact;
    use crate::dtls::Config;
    use crate::time::Duration;

    const HERE: Address = Address { ip: [1; 16], port: 1, scope: 0 };
    const THERE: Address = Address { ip: [1; 16], port: 2, scope: 0 };
    const START: Instant = Instant::from_micros(0);

    fn keys_of(crypto: &mut Compact, settings: &Settings) -> CookieKeys {
        let mut keys = CookieKeys::none();
        keys.begin(crypto, START, settings);
        keys
    }

    fn hello(cookie: &[u8]) -> ClientHello<'_> {
        let body = b"\xfe\xfd................................\0\0\0\x02\xc0\xa8\x01\0";
        let mut hello = ClientHello::read(body).unwrap();
        hello.cookie = cookie;
        hello
    }

    /// Whether a cookie made at the start is valid after these seconds, between which hellos came.
    fn valid_after(seconds: &[u64]) -> bool {
        let settings = Settings::from(Config { cookie_lifetime: Duration::from_secs(60), ..Config::default() });
        let mut crypto = Compact::new([1; 32]);
        let mut keys = keys_of(&mut crypto, &settings);
        let cookie = keys.make::<Compact>(&HERE, &hello(&[]));
        for second in seconds {
            keys.rotate_if_due(&mut crypto, START.after(Duration::from_secs(*second)), &settings);
        }
        keys.is_valid::<Compact>(&HERE, &hello(&cookie))
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
        let settings = Settings::from(Config::default());
        let mut crypto = Compact::new([1; 32]);
        let keys = keys_of(&mut crypto, &settings);
        let cookie = keys.make::<Compact>(&HERE, &hello(&[]));
        assert!(keys.is_valid::<Compact>(&HERE, &hello(&cookie)));
        assert!(!keys.is_valid::<Compact>(&THERE, &hello(&cookie)));
        assert!(!keys.is_valid::<Compact>(&HERE, &hello(&[])));
        let other = keys_of(&mut crypto, &settings);
        assert!(!other.is_valid::<Compact>(&HERE, &hello(&cookie)));
    }
}
