//! The events that an endpoint reports to its owner.

#[cfg(doc)]
use super::{Endpoint, Peer, Peers};
use crate::buf::Span;
use crate::dtls::Fatal;
#[cfg(doc)]
use crate::dtls::Records;
use crate::dtls::record::SealError;
use crate::identity::PeerId;

/// The result of a datagram or of the clock. Bytes are named by their place in the caller's buffers, so that an event
/// borrows nothing, and fits two registers of a host.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Send a datagram back over the path that was given to [`Endpoint::handle`].
    Answer {
        /// The length of the datagram, which lies at the front of the buffer for output.
        len: u16,
    },
    /// Send a datagram over the path of a peer.
    Transmit {
        /// The receiver: see [`Peer::path`].
        peer: PeerId,
        /// The length of the datagram, which lies at the front of the buffer for output.
        len: u16,
    },
    /// The handshake needs an answer: see [`Endpoint::need`], and answer with [`Endpoint::resume`].
    Need(PeerId),
    /// The peer proved its key, and the session is ready.
    Established(PeerId),
    /// Authentic application data, decrypted in place.
    Message {
        /// The sender of the data.
        peer: PeerId,
        /// The place of the bytes in the datagram: see [`Records::bytes`].
        bytes: Span,
    },
    /// The alarm that the owner set with [`Peers::schedule`] has arrived.
    Alarm(PeerId),
    /// The peer proved that it receives at the address from which its last records came. That is its address now.
    /// Datagrams that were sent to the old address meanwhile are probably lost.
    Moved(PeerId),
    /// The association is over. The entry of the peer can be read until the next call of [`Endpoint::poll`].
    Closed {
        /// The peer.
        peer: PeerId,
        /// The reason.
        reason: Fatal,
    },
}

/// A mistake of the caller, or a session that has to be renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// There is no such peer, or its handshake is not over.
    NotEstablished,
    /// The frame has no space for the bytes that the protection adds.
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
