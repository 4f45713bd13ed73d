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

/// A key, and the generation that is part of what a cookie is computed from: a new one makes the old cookies worthless as
/// a new key would (RFC 6347, section 4.2.1). Cookies are made in the current generation and accepted of the last two.
pub(crate) struct Cookies {
    key: HmacKey,
    /// Its lowest bit is the first of the cookie.
    generation: u32,
    ends: Instant,
}

impl Cookies {
    /// No key yet, for an endpoint that never answers.
    pub(crate) const fn none() -> Self {
        Self { key: HmacKey::none(), generation: 0, ends: Instant::NEVER }
    }

    /// Draws the key.
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C, now: Instant, settings: &Settings) {
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        self.key.set::<C>(&[key.expose()]);
        self.ends = now.after_millis(settings.cookie_lifetime_ms);
    }

    /// Begins a new generation if it is time for one.
    pub(crate) fn renew_if_due(&mut self, now: Instant, settings: &Settings) {
        if now < self.ends {
            return;
        }
        // After a long silence the current one is too old to become the previous one.
        let long = now >= self.ends.after_millis(settings.cookie_lifetime_ms);
        self.generation = self.generation.wrapping_add(if long { 2 } else { 1 });
        self.ends = now.after_millis(settings.cookie_lifetime_ms);
    }

    pub(crate) fn make<C: Crypto>(&self, address: &Address, hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        self.cookie::<C>(self.generation, address, hello)
    }

    pub(crate) fn is_valid<C: Crypto>(&self, address: &Address, hello: &ClientHello<'_>) -> bool {
        let Some(&first) = hello.cookie.first() else { return false };
        let age = (self.generation ^ u32::from(first)) & 1;
        same(&self.cookie::<C>(self.generation.wrapping_sub(age), address, hello), hello.cookie)
    }

    /// Bound to the address and to everything in the hello but the cookie (RFC 6347, section 4.2.1).
    #[inline(never)]
    fn cookie<C: Crypto>(&self, generation: u32, address: &Address, hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        let [before, behind] = hello.around_cookie;
        let mut cookie = [0; COOKIE_LEN];
        let message = [&generation.to_be_bytes(), &address.ip[..], &address.port.to_be_bytes(), before, behind];
        self.key.mac_into::<C>(&message, &mut cookie);
        let [first, ..] = &mut cookie;
        *first = *first & 0xfe | (generation & 1) as u8;
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

    fn cookies_of(crypto: &mut Compact, settings: &Settings) -> Cookies {
        let mut cookies = Cookies::none();
        cookies.begin(crypto, START, settings);
        cookies
    }

    fn hello(cookie: &[u8]) -> ClientHello<'_> {
        let body = b"\xfe\xfd................................\0\0\0\x02\xc0\xa8\x01\0";
        let mut hello = ClientHello::read(body, false).unwrap();
        hello.cookie = cookie;
        hello
    }

    /// Whether a cookie made at the start is valid after these seconds, between which hellos came.
    fn valid_after(seconds: &[u64]) -> bool {
        let settings = Settings::from(Config { cookie_lifetime: Duration::from_secs(60), ..Config::default() });
        let mut crypto = Compact::new([1; 32]);
        let mut cookies = cookies_of(&mut crypto, &settings);
        let cookie = cookies.make::<Compact>(&HERE, &hello(&[]));
        for second in seconds {
            cookies.renew_if_due(START.after(Duration::from_secs(*second)), &settings);
        }
        cookies.is_valid::<Compact>(&HERE, &hello(&cookie))
    }

    #[test]
    fn a_cookie_is_valid_for_one_generation_more_and_not_for_two() {
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
        let cookies = cookies_of(&mut crypto, &settings);
        let cookie = cookies.make::<Compact>(&HERE, &hello(&[]));
        assert!(cookies.is_valid::<Compact>(&HERE, &hello(&cookie)));
        assert!(!cookies.is_valid::<Compact>(&THERE, &hello(&cookie)));
        assert!(!cookies.is_valid::<Compact>(&HERE, &hello(&[])));
        let other = cookies_of(&mut crypto, &settings);
        assert!(!other.is_valid::<Compact>(&HERE, &hello(&cookie)));
    }
}
