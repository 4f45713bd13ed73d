//! The events that an endpoint reports to its owner.

use super::PeerId;
#[cfg(doc)]
use super::{Endpoint, Peer, Peers};
use crate::dtls::Fatal;
use crate::dtls::record::SealError;

/// The result of a datagram or of the clock.
#[derive(Debug)]
pub enum Event<'r, 't> {
    /// Send this datagram back over the path that was given to [`Endpoint::handle`]; it lies in the buffer for output.
    Answer(&'t mut [u8]),
    /// Send this datagram over the path of a peer.
    Transmit {
        /// To whom: see [`Peer::path`].
        peer: PeerId,
        /// Its bytes, in the buffer that was given to [`Endpoint::poll`] for output.
        datagram: &'t mut [u8],
    },
    /// A key is needed: see [`Endpoint::need`], answer with [`Endpoint::resume`].
    Need(PeerId),
    /// The peer proved its key, and the session is ready.
    Established(PeerId),
    /// Authentic bytes of the application, decrypted where they lay.
    Message {
        /// The sender of the data.
        peer: PeerId,
        /// The bytes.
        bytes: &'r mut [u8],
    },
    /// The alarm that the owner set with [`Peers::schedule`] has come.
    Alarm(PeerId),
    /// The peer proved that it receives at the address that its last records came from, and that is its address now. What
    /// was sent to the old one meanwhile is probably lost.
    Moved(PeerId),
    /// The association is over. The peer can be asked about until the next call of [`Endpoint::poll`].
    Closed {
        /// The peer.
        peer: PeerId,
        /// The reason.
        reason: Fatal,
    },
}

/// A mistake of our own caller, or a session that has to be renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// No such peer, or its handshake is not over.
    NotEstablished,
    /// The frame has no room for what the protection adds.
    Full,
    /// The content is longer than records of this session may be: [`Peer::max_content`].
    TooLong,
    /// The key reached its limit; open a new session.
    KeyExhausted,
}

impl From<SealError> for Misuse {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Full => Self::Full,
            SealError::KeyExhausted => Self::KeyExhausted,
        }
    }
}
