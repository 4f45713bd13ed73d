//! The common part of the programs that measure DTLS stacks. Each stack has a program, and all programs do the same
//! work for the same commands.
//!
//! A program implements [`Stack`] and calls [`run`]. If the program has arguments, they are one [`Command`], which it
//! executes. Otherwise it executes each line of its standard input as a [`Command`]. It answers each command with a
//! [`Reply`] line. The module [`pair`] runs both ends of a session, and passes their datagrams in memory, so that only
//! the stack itself is measured. With `client` or `server` as its first argument, the same program runs a session over
//! a socket, with any stack at the other end.
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

/// The pre-shared key that every stack receives.
pub const KEY: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";

/// The identity that belongs to [`KEY`].
pub const IDENTITY: &str = "Client_identity";

/// Returns the PSK identity of this program. It is [`IDENTITY`], unless its arguments contain another identity.
pub fn identity() -> &'static str {
    &credentials().0
}

/// Returns the pre-shared key of this program. It is [`KEY`], unless its arguments contain another key.
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

/// Maximum length of a datagram that an end may send or receive, in bytes.
pub const DATAGRAM_MAX: usize = 2048;

/// The reason why a stack could not execute a command, as text for the reader of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl Failure {
    /// Makes a failure with this text.
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
