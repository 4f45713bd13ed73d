//! Each DTLS stack has a program for its measurement. All programs do the same work for the same commands.
//!
//! A program implements [`Stack`] and calls [`run`]. It then obeys one [`Command`] per line of standard input, or the
//! single one given as arguments, and answers each with a [`Reply`] line. [`pair`] holds both ends of a session and
//! moves datagrams between them in memory, so nothing but the stack itself is in the numbers. With `client` or `server`
//! as its first argument, the same program runs a session over a socket, with any stack at the other end.
mod heap;
mod measure;
pub mod pair;
pub mod public_keys;
mod socket;
mod words;

pub use heap::in_use as heap_in_use;
pub use measure::{cpu_time, run, run_with};
pub use pair::{End, Outbox, Pair, Resumption, Stack, Tally, Wire};
pub use public_keys::{Agreed, KeyForm, PublicKeys};
pub use words::{Certificates, Command, Reply};

use std::{fmt, sync::OnceLock};

/// The pre-shared key every stack is given.
pub const KEY: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";

/// The identity that names [`KEY`].
pub const IDENTITY: &str = "Client_identity";

/// The identity of this program: [`IDENTITY`], unless its arguments name another.
pub fn identity() -> &'static str {
    &credentials().0
}

/// The key of this program: [`KEY`], unless its arguments name another.
pub fn key() -> &'static [u8] {
    &credentials().1
}

fn credentials() -> &'static (String, Vec<u8>) {
    static CREDENTIALS: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    CREDENTIALS.get_or_init(|| {
        let words: Vec<String> = std::env::args().collect();
        match words.as_slice() {
            [_, _, _, word, _, identity, key] if word == "psk" => (identity.clone(), from_hex(key).unwrap_or_default()),
            [_, role, _, identity, key, ..] if ["client", "server"].contains(&role.as_str()) => {
                (identity.clone(), from_hex(key).unwrap_or_default())
            }
            _ => (IDENTITY.to_owned(), KEY.to_vec()),
        }
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().as_bytes().chunks(2).map(str::from_utf8);
    digits.map(|digits| u8::from_str_radix(digits.ok().filter(|digits| digits.len() == 2)?, 16).ok()).collect()
}

/// The largest datagram that any end may send or take.
pub const DATAGRAM_MAX: usize = 2048;

/// A stack failed to obey a command. The text is for the reader of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
