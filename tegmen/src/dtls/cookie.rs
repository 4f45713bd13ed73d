//! The cookies in HelloVerifyRequests. A cookie proves that a client receives datagrams at its source address. The
//! server keeps no state for cookies.

use super::Settings;
use super::handshake::Random;
use super::handshake::client_hello::ClientHello;
use crate::address::Address;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::secret::Secret;
use crate::time::Instant;

/// Number of bytes of a cookie.
pub(crate) const COOKIE_LEN: usize = 16;

/// The key from which cookies are computed. A cookie also depends on the current generation, a number that increases
/// with time. So a new generation makes old cookies invalid, as a new key would (RFC 6347, section 4.2.1). The server
/// accepts cookies of the current and of the previous generation.
pub(crate) struct Cookies {
    key: HmacKey,
}

impl Cookies {
    /// Creates a [`Cookies`] value that has no key, for an endpoint that never answers a ClientHello.
    pub(crate) const fn none() -> Self {
        Self { key: HmacKey::none() }
    }

    /// Draws a random key.
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C) {
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        self.key.set::<C>(&[key.expose()]);
    }

    /// Returns the cookie that the ClientHello must contain. If the client's cookie is different, the server sends the
    /// returned cookie in a HelloVerifyRequest. The cookie is computed from `generation`, a number that increases with
    /// time. The lowest bit of the first byte of a cookie is the lowest bit of its generation. If this bit shows that
    /// the client's cookie is from the previous generation, the returned cookie is also computed from the previous
    /// generation. So the server computes only one cookie for each ClientHello.
    ///
    /// The cookie depends on the address and on the parameters of the client (RFC 6347, section 4.2.1). It does not
    /// depend on the extensions, because some clients write them in another order when they repeat the ClientHello.
    ///
    /// If the endpoint accepts ClientHellos in fragments, it replaces the first half of this cookie by the first half
    /// of the cookie that [`Self::of_front`] returns. The endpoint can verify this half with the first fragment alone.
    #[inline(never)]
    pub(crate) fn of<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        hello: &ClientHello<'_>,
    ) -> [u8; COOKIE_LEN] {
        self.over::<C>(generation, address, hello.cookie, hello.parameters())
    }

    /// Does the same as [`Self::of`], but needs only the first fragment of a ClientHello. `before` has the bytes before
    /// the cookie of the ClientHello, and `shown` is this cookie.
    pub(crate) fn of_front<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        shown: &[u8],
        before: &[u8],
    ) -> [u8; COOKIE_LEN] {
        self.over::<C>(generation, address, shown, [before, &[], &[]])
    }

    /// Returns the cookie that replaces `cookie` if both endpoints open a session with each other at the same time.
    /// `bound` is the random of the ClientHello that we have sent to the peer, or the random of the peer's ServerHello.
    pub(crate) fn bind<C: Crypto>(&self, cookie: &[u8; COOKIE_LEN], bound: &Random) -> [u8; COOKIE_LEN] {
        let mut bound_cookie = [0; COOKIE_LEN];
        self.key.mac_into::<C>(&[cookie, bound], &mut bound_cookie);
        let ([first, ..], [generation, ..]) = (&mut bound_cookie, cookie);
        *first = *first & 0xfe | *generation & 1;
        bound_cookie
    }

    #[inline(always)] // once for a mote
    fn over<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        shown: &[u8],
        [before, suites, compression]: [&[u8]; 3],
    ) -> [u8; COOKIE_LEN] {
        // The lowest bit of the first byte of a cookie is the lowest bit of its generation.
        let older = shown.first().map_or(0, |first| (generation ^ u32::from(*first)) & 1);
        let generation = generation.wrapping_sub(older);
        let mut cookie = [0; COOKIE_LEN];
        let (generation_bytes, port) = (generation.to_be_bytes(), address.port.to_be_bytes());
        let message = [&generation_bytes[..], &address.ip, &port, before, suites, compression];
        self.key.mac_into::<C>(&message, &mut cookie);
        let [first, ..] = &mut cookie;
        *first = *first & 0xfe | (generation & 1) as u8;
        cookie
    }
}

/// Returns the generation of cookies at the time `now`. The lowest bit of a cookie's first byte is the lowest bit of
/// its generation.
pub(crate) const fn generation(now: Instant, settings: &Settings) -> u32 {
    // Both times are in units of about a second, so that a mote needs only one division.
    let lifetime = settings.cookie_lifetime_ms >> 10 | 1;
    match now.coarse().checked_div(lifetime) {
        Some(generation) => generation,
        None => 0,
    }
}

#[cfg(test)]
mod tests;
