//! Cookies of HelloVerifyRequest: proof that a client receives at the address it sends from, without state here.

use super::Settings;
use super::handshake::client_hello::ClientHello;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::endpoint::Address;
use crate::secret::Secret;
use crate::time::Instant;

/// Bytes of a cookie.
pub(crate) const COOKIE_LEN: usize = 16;

/// The key. What a cookie is computed from holds the generation, which is counted by the clock: a new one makes the old
/// cookies worthless as a new key would (RFC 6347, section 4.2.1). Cookies are made in the current generation and accepted
/// of the last two.
pub(crate) struct Cookies {
    key: HmacKey,
}

impl Cookies {
    /// No key yet, for an endpoint that never answers.
    pub(crate) const fn none() -> Self {
        Self { key: HmacKey::none() }
    }

    /// Draws the key.
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C) {
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        self.key.set::<C>(&[key.expose()]);
    }

    /// What a client has to show with its hello, and is sent if it does not: of this generation, or of the one before if
    /// it says to have that. So a wrong cookie costs no more than none.
    ///
    /// Bound to the address and to the parameters of the client (RFC 6347, section 4.2.1). Extensions are none of them: some
    /// clients write them in another order when they come back.
    #[inline(never)]
    pub(crate) fn of<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        hello: &ClientHello<'_>,
    ) -> [u8; COOKIE_LEN] {
        // The lowest bit of a cookie is that of its generation.
        let before = hello.cookie.first().map_or(0, |first| (generation ^ u32::from(*first)) & 1);
        let generation = generation.wrapping_sub(before);
        let [before, suites, compression] = hello.parameters();
        let mut cookie = [0; COOKIE_LEN];
        let (generation_bytes, port) = (generation.to_be_bytes(), address.port.to_be_bytes());
        let message = [&generation_bytes[..], &address.ip, &port, before, suites, compression];
        self.key.mac_into::<C>(&message, &mut cookie);
        let [first, ..] = &mut cookie;
        *first = *first & 0xfe | (generation & 1) as u8;
        cookie
    }
}

/// The generation at `now`, the lowest bit of which is the first of a cookie.
pub(crate) const fn generation(now: Instant, settings: &Settings) -> u32 {
    // Both in units of about a second, for which a mote needs no more than one division.
    let lifetime = settings.cookie_lifetime_ms >> 10 | 1;
    match now.coarse().checked_div(lifetime) {
        Some(generation) => generation,
        None => 0,
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

    fn cookies_of(crypto: &mut Compact) -> Cookies {
        let mut cookies = Cookies::none();
        cookies.begin(crypto);
        cookies
    }

    fn hello(cookie: &[u8]) -> ClientHello<'_> {
        let body = b"\xfe\xfd................................\0\0\0\x02\xc0\xa8\x01\0";
        let mut hello = ClientHello::read(body, false).unwrap();
        hello.cookie = cookie;
        hello
    }

    /// Whether a cookie made at the start of a generation is valid after these seconds.
    fn is_valid(cookies: &Cookies, generation: u32, address: &Address, hello: &ClientHello<'_>) -> bool {
        cookies.of::<Compact>(generation, address, hello) == hello.cookie
    }

    fn valid_after(seconds: u64) -> bool {
        let settings = Settings::from(Config { cookie_lifetime: Duration::from_secs(60), ..Config::default() });
        let cookies = cookies_of(&mut Compact::new([1; 32]));
        let cookie = cookies.of::<Compact>(generation(START, &settings), &HERE, &hello(&[]));
        let later = generation(START.after(Duration::from_secs(seconds)), &settings);
        is_valid(&cookies, later, &HERE, &hello(&cookie))
    }

    #[test]
    fn a_cookie_is_valid_for_one_generation_more_and_not_for_two() {
        assert!(valid_after(0));
        assert!(valid_after(59));
        assert!(valid_after(63));
        assert!(valid_after(119));
        assert!(!valid_after(125));
    }

    #[test]
    fn a_cookie_is_not_valid_after_a_long_silence() {
        assert!(!valid_after(180));
        assert!(!valid_after(100_000));
    }

    #[test]
    fn a_wrong_cookie_of_either_generation_is_answered_with_one_that_is_taken() {
        let cookies = cookies_of(&mut Compact::new([1; 32]));
        for generation in [0, 1, u32::MAX] {
            for wrong in [&[0; 16][..], &[1; 16], &[1], &[0; 255]] {
                let sent = cookies.of::<Compact>(generation, &HERE, &hello(wrong));
                assert!(!is_valid(&cookies, generation, &HERE, &hello(wrong)));
                assert!(is_valid(&cookies, generation, &HERE, &hello(&sent)));
            }
        }
    }

    #[test]
    fn a_cookie_is_bound_to_address_and_key() {
        let mut crypto = Compact::new([1; 32]);
        let cookies = cookies_of(&mut crypto);
        let cookie = cookies.of::<Compact>(1, &HERE, &hello(&[]));
        assert!(is_valid(&cookies, 1, &HERE, &hello(&cookie)));
        assert!(!is_valid(&cookies, 1, &THERE, &hello(&cookie)));
        assert!(!is_valid(&cookies, 1, &HERE, &hello(&[])));
        let other = cookies_of(&mut crypto);
        assert!(!is_valid(&other, 1, &HERE, &hello(&cookie)));
    }

    /// wolfSSL writes the extensions of its second hello in another order than those of the first.
    #[test]
    fn a_cookie_is_bound_to_the_parameters_of_the_client_and_not_to_its_extensions() {
        let hello = |random: u8, suite: u8, extensions: [u8; 2]| {
            let mut body =
                [b"\xfe\xfd".as_slice(), &[random; 32], b"\0\0\0\x02\xc0", &[suite], b"\x01\0\0\x08"].concat();
            extensions.iter().for_each(|kind| body.extend([0, *kind, 0, 0]));
            body
        };
        let cookies = cookies_of(&mut Compact::new([1; 32]));
        let first = hello(7, 0xa8, [22, 23]);
        let cookie = cookies.of::<Compact>(1, &HERE, &ClientHello::read(&first, false).unwrap());
        let shown_with = |body: &[u8]| {
            let mut hello = ClientHello::read(body, false).unwrap();
            hello.cookie = &cookie;
            is_valid(&cookies, 1, &HERE, &hello)
        };
        assert!(shown_with(&first));
        assert!(shown_with(&hello(7, 0xa8, [23, 22])));
        assert!(!shown_with(&hello(8, 0xa8, [22, 23])));
        assert!(!shown_with(&hello(7, 0xae, [22, 23])));
    }
}
