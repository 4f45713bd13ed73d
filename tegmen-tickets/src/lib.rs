//! Encrypted session tickets (RFC 5077, section 4). A server encrypts the state of a session into a ticket, and the
//! client stores the ticket for the server.
//!
//! ```text
//! key_name (2) | nonce (9) | sealed state | tag (16)
//! ```
//!
//! A ticket is encrypted with AES-128-CCM and a tag of 16 bytes. The nonce of CCM has 13 bytes: a secret salt that
//! belongs to the key (4 bytes), and the 9 bytes in the ticket. These 9 bytes come from an HMAC over the state and over
//! random bytes that are drawn for each ticket. A cloned machine draws the same random bytes, but if its state differs,
//! the HMAC gives another nonce. One key may encrypt 2^20 tickets. The probability that two of these tickets share a
//! nonce is below 2^-32. The caller decides the content of the state, for example a `tegmen::dtls::SessionState`.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

use tegmen_base::buf::{Full, Reader, Writer};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, KEY_LEN, hmac};
use tegmen_base::secret::Secret;

const NAME_LEN: usize = 2;
const SALT_LEN: usize = 4;
const DRAWN_LEN: usize = 9;
const TAG_LEN: usize = 16;
/// Number of bytes of a ticket in addition to its state.
pub const OVERHEAD: usize = NAME_LEN + DRAWN_LEN + TAG_LEN;
/// Maximum number of tickets that may be encrypted under one key.
const MAX_SEALED: u32 = 1 << 20;
/// Length in bytes of a ticket key when it is stored or shared: name, key, salt.
pub const TICKET_KEY_LEN: usize = NAME_LEN + KEY_LEN + SALT_LEN;

/// The bytes of one ticket key. The key was drawn by this server, was read from storage, or comes from another server
/// of the same service.
#[derive(Debug)]
pub struct TicketKey(pub Secret<TICKET_KEY_LEN>);

impl TicketKey {
    /// Draws a key.
    pub fn draw<C: Crypto>(crypto: &mut C) -> Self {
        let mut bytes = Secret::zeroed();
        crypto.random(bytes.expose_mut());
        Self(bytes)
    }

    /// Decrypts a ticket into `room`, and returns the length of its state. Returns `None` if the ticket was not
    /// encrypted under this key, or if its state is longer than `room`.
    pub fn open<C: Crypto>(&self, crypto: &mut C, ticket: &[u8], room: &mut [u8]) -> Option<usize> {
        let (_, key, salt) = self.parts();
        let mut reader = Reader::new(ticket);
        // Another name than that of the key is not authentic.
        let name = reader.array_ref::<NAME_LEN>().ok()?;
        let drawn = reader.array_ref::<DRAWN_LEN>().ok()?;
        let (sealed, tag) = reader.rest().split_last_chunk::<TAG_LEN>()?;
        let state = room.get_mut(..sealed.len())?;
        state.copy_from_slice(sealed);
        crypto.open(C::AES_128_CCM, key, &nonce(salt, drawn), name, state, tag).ok()?;
        Some(sealed.len())
    }

    fn parts(&self) -> (&[u8; NAME_LEN], &[u8; KEY_LEN], &[u8; SALT_LEN]) {
        let whole = self.0.expose();
        let key = whole.get(NAME_LEN..).and_then(|rest| rest.first_chunk());
        // The lengths are those of the types.
        (
            whole.first_chunk().unwrap_or(&[0; NAME_LEN]),
            key.unwrap_or(&[0; KEY_LEN]),
            whole.last_chunk().unwrap_or(&[0; SALT_LEN]),
        )
    }
}

/// The ticket keys of a server. The current key encrypts new tickets, and each of the keys decrypts tickets. If several
/// servers share keys, each server receives a new key as its next key before any server encrypts tickets with it. So
/// each server can decrypt the tickets of the other servers. [`Self::default`] has no key: it encrypts nothing and
/// decrypts nothing.
#[derive(Debug, Default)]
pub struct TicketKeys {
    current: Option<TicketKey>,
    next: Option<TicketKey>,
    old: [Option<TicketKey>; 2],
    /// Number of tickets that were encrypted under the current key.
    sealed: u32,
}

/// A ticket that was decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened<'t> {
    /// The state of the session.
    pub state: &'t [u8],
    /// True if the ticket was encrypted under the current key or the next key.
    pub fresh: bool,
}

impl TicketKeys {
    /// Draws a current key and a next key.
    pub fn draw<C: Crypto>(crypto: &mut C) -> Self {
        let (current, next) = (Some(TicketKey::draw(crypto)), Some(TicketKey::draw(crypto)));
        Self { current, next, old: [None, None], sealed: 0 }
    }

    /// Begins to encrypt with the next key, which becomes the current key. The argument `next` becomes the next key.
    /// The previous current key becomes the newer of the two old keys, and the oldest key is removed.
    pub fn rotate(&mut self, next: TicketKey) {
        let [newer, older] = &mut self.old;
        *older = newer.take();
        *newer = self.current.take();
        self.current = self.next.take();
        self.next = Some(next);
        self.sealed = 0;
    }

    /// Returns true if the current key has encrypted the maximum number of tickets. Then call [`Self::rotate`].
    pub const fn is_worn(&self) -> bool {
        self.sealed >= MAX_SEALED
    }

    /// Returns the keys: the current key, the next key, and two old keys.
    pub fn keys(&self) -> [Option<&TicketKey>; 4] {
        let [newer, older] = &self.old;
        [self.current.as_ref(), self.next.as_ref(), newer.as_ref(), older.as_ref()]
    }

    /// Makes a value with these keys, in the order of [`Self::keys`]. `sealed` is the number of tickets that the
    /// current key has encrypted.
    pub fn of(keys: [Option<TicketKey>; 4], sealed: u32) -> Self {
        let [current, next, newer, older] = keys;
        Self { current, next, old: [newer, older], sealed }
    }

    /// Encrypts a state, and writes the ticket.
    ///
    /// # Errors
    /// [`Full`] if the ticket does not fit, or there is no key, or the key [is worn](Self::is_worn).
    pub fn seal<C: Crypto>(&mut self, crypto: &mut C, state: &[u8], ticket: &mut Writer<'_>) -> Result<(), Full> {
        if self.is_worn() {
            return Err(Full);
        }
        let (name, key, salt) = self.current.as_ref().ok_or(Full)?.parts();
        // A machine that was cloned draws the same again: with another state it is another nonce all the same.
        let mut random = [0; 16];
        crypto.random(&mut random);
        let whole = self.current.as_ref().ok_or(Full)?.0.expose();
        let mac = hmac::<C, DIGEST_LEN>(&[whole], &[&random, state]);
        let drawn: [u8; DRAWN_LEN] = *mac.first_chunk().ok_or(Full)?;
        ticket.put(name)?;
        ticket.put(&drawn)?;
        self.sealed = self.sealed.saturating_add(1);
        let mut tag = [0; TAG_LEN];
        let body = ticket.put_and_lend(state)?;
        crypto.seal(C::AES_128_CCM, key, &nonce(salt, &drawn), name, body, &mut tag).map_err(|_| Full)?;
        ticket.put(&tag)
    }

    /// Decrypts a ticket into `room`. Returns `None` if none of the keys decrypts it, or if its state is longer than
    /// `room`.
    pub fn open<'r, C: Crypto>(&self, crypto: &mut C, ticket: &[u8], room: &'r mut [u8]) -> Option<Opened<'r>> {
        // Two keys may have one name, by chance.
        for (place, key) in self.keys().into_iter().enumerate() {
            let Some(key) = key.filter(|key| ticket.starts_with(key.parts().0)) else { continue };
            if let Some(len) = key.open(crypto, ticket, room) {
                return Some(Opened { state: room.get(..len)?, fresh: place < 2 });
            }
        }
        None
    }
}

fn nonce(salt: &[u8; SALT_LEN], drawn: &[u8; DRAWN_LEN]) -> [u8; SALT_LEN + DRAWN_LEN] {
    let mut nonce = [0; SALT_LEN + DRAWN_LEN];
    let (front, back) = nonce.split_at_mut(SALT_LEN);
    front.copy_from_slice(salt);
    back.copy_from_slice(drawn);
    nonce
}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
