//! The result of a step of a handshake.

use super::Fatal;
use crate::counters::Discard;

/// A result after which the rest of the record is not processed. Only one variant has content, so that a mote can hold
/// the whole value in two registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The handshake needs input from the owner of the endpoint: [`Handshake::need`](super::Handshake::need) returns
    /// the required input, and the owner answers with `Handshake::resume`.
    Need,
    /// The handshake is complete: both endpoints have proved that they have the key.
    Established,
    /// The rest of the record is dropped, because it is malformed. This variant and the next five variants are the
    /// reasons of [`Discard`].
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
