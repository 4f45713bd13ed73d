//! Cookies of HelloVerifyRequest: they prove that a client receives datagrams at its source address. The server keeps
//! no state for them.

use super::Settings;
use super::handshake::Random;
use super::handshake::client_hello::ClientHello;
use crate::address::Address;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::secret::Secret;
use crate::time::Instant;

/// Bytes of a cookie.
pub(crate) const COOKIE_LEN: usize = 16;

/// The key of cookies. A cookie is computed over the current generation, a number that increases with time. So a new
/// generation invalidates old cookies, as a new key would (RFC 6347, section 4.2.1). Cookies of the current and of
/// the previous generation are accepted.
pub(crate) struct Cookies {
    key: HmacKey,
}

impl Cookies {
    /// No key, for an endpoint that never answers a ClientHello.
    pub(crate) const fn none() -> Self {
        Self { key: HmacKey::none() }
    }

    /// Draws a random key.
    pub(crate) fn begin<C: Crypto>(&mut self, crypto: &mut C) {
        let mut key = Secret::<32>::zeroed();
        crypto.random(key.expose_mut());
        self.key.set::<C>(&[key.expose()]);
    }

    /// Returns the cookie that a client must show in its ClientHello. A client with another cookie receives this one
    /// in a HelloVerifyRequest. The cookie belongs to this generation, or to the previous one if the client's cookie
    /// belongs to that. So a wrong cookie causes no more work than a missing one.
    ///
    /// The cookie is bound to the address and to the parameters of the client (RFC 6347, section 4.2.1). It is not
    /// bound to the extensions, because some clients write them in another order when they repeat the ClientHello.
    ///
    /// If the endpoint accepts ClientHellos that arrive in fragments, the first half of the required cookie comes
    /// from [`Self::of_front`], because the first fragment alone must prove that half.
    #[inline(never)]
    pub(crate) fn of<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        hello: &ClientHello<'_>,
    ) -> [u8; COOKIE_LEN] {
        self.over::<C>(generation, address, hello.cookie, hello.parameters())
    }

    /// Does the same as [`Self::of`], for a ClientHello with the bytes `before` its cookie and with the cookie
    /// `shown`.
    pub(crate) fn of_front<C: Crypto>(
        &self,
        generation: u32,
        address: &Address,
        shown: &[u8],
        before: &[u8],
    ) -> [u8; COOKIE_LEN] {
        self.over::<C>(generation, address, shown, [before, &[], &[]])
    }

    /// Returns the cookie that replaces `cookie` while both endpoints open a session with each other. `bound` is the
    /// random of the ClientHello that we have sent to the peer, or the random of the peer's ServerHello.
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

/// Returns the generation at `now`. Its lowest bit is the lowest bit of the first byte of a cookie.
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
