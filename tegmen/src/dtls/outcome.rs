//! The result of a step of a handshake.

use super::Fatal;
use crate::counters::Discard;

/// A result that ends the processing of a record: no later part of the record is processed. Only one variant has
/// content, so that a mote holds the whole value in two registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The handshake needs input: ask [`Handshake::need`](super::Handshake::need), and answer with
    /// `Handshake::resume`.
    Need,
    /// Both endpoints proved that they have the key.
    Established,
    /// The rest of the record is dropped, because it is malformed. This and the next five variants are the reasons of
    /// [`Discard`].
    Malformed,
    UnknownPeer,
    Replayed,
    NotAuthentic,
    Unexpected,
    NoRoom,
    /// The association has ended with this error.
    Fatal(Fatal),
}

impl From<Discard> for Outcome {
    fn from(discard: Discard) -> Self {
        match discard {
            Discard::Malformed => Self::Malformed,
            Discard::UnknownPeer => Self::UnknownPeer,
            Discard::Replayed => Self::Replayed,
            Discard::NotAuthentic => Self::NotAuthentic,
            Discard::Unexpected => Self::Unexpected,
            Discard::NoRoom => Self::NoRoom,
        }
    }
}

impl From<Fatal> for Outcome {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}
