//! Every DTLS stack is measured by a program of its own: the same work, asked for in the same words.
//!
//! A program implements [`Stack`] and calls [`run`]. It then obeys one [`Command`] per line of standard input, or the
//! single one given as arguments, and answers each with a [`Reply`] line. [`pair`] holds both ends of a session and
//! moves datagrams between them in memory, so nothing but the stack itself is in the numbers.
mod heap;
mod measure;
pub mod pair;
mod words;

pub use heap::in_use as heap_in_use;
pub use measure::{cpu_time, run, run_with};
pub use pair::{End, Outbox, Pair, Stack, Tally, Wire};
pub use words::{Command, Reply};

use std::fmt;

/// The pre-shared key every stack is given.
pub const KEY: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";

/// The identity that names [`KEY`].
pub const IDENTITY: &str = "Client_identity";

/// The largest datagram that any end may send or take.
pub const DATAGRAM_MAX: usize = 2048;

/// A stack did not do what was asked; the text is for the person who reads the report.
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
