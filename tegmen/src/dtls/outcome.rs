//! The result of a step of a handshake.

use super::Fatal;
use crate::counters::Discard;

/// A result that ends the handling of a record: no later data of the record can apply. Only one variant has content,
/// so that a mote keeps the whole value in two registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Something is needed: ask [`Handshake::need`](super::Handshake::need), answer with `Handshake::resume`.
    Need,
    /// Both sides proved that they have the key.
    Established,
    /// The rest of the record is dropped: these are the reasons of [`Discard`].
    Malformed,
    UnknownPeer,
    Replayed,
    NotAuthentic,
    Unexpected,
    NoRoom,
    /// The association is over.
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
