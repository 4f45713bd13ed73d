//! The events that an endpoint reports to its owner.

#[cfg(doc)]
use super::{Endpoint, Peer, Peers};
use crate::buf::Span;
use crate::dtls::Fatal;
#[cfg(doc)]
use crate::dtls::Records;
use crate::dtls::record::SealError;
use crate::identity::PeerId;

/// The result of processing a datagram or an alarm. Events contain positions in the caller's buffers instead of
/// references. So an event borrows nothing, and fits two registers of a host.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Send a datagram as an answer, over the path that was given to [`Endpoint::handle`].
    Answer {
        /// The length of the datagram, which is at the front of the output buffer.
        len: u16,
    },
    /// Send a datagram over the path of a peer.
    Transmit {
        /// The peer that gets the datagram: see [`Peer::path`].
        peer: PeerId,
        /// The length of the datagram, which is at the front of the output buffer.
        len: u16,
    },
    /// The handshake of this peer needs input: read the question with [`Endpoint::need`], and answer with
    /// [`Endpoint::resume`].
    Need(PeerId),
    /// The peer proved its key, and the session is ready.
    Established(PeerId),
    /// Authentic application data arrived. They are decrypted in place.
    Message {
        /// The sender of the data.
        peer: PeerId,
        /// The position of the data in the datagram: see [`Records::bytes`].
        bytes: Span,
    },
    /// The alarm that the owner set with [`Peers::schedule`] has arrived.
    Alarm(PeerId),
    /// The peer proved that it receives at the address from which its last records came. This is now its address.
    /// Datagrams that were sent to the old address meanwhile are probably lost.
    Moved(PeerId),
    /// The association has ended. The entry of the peer can be read until the next call of [`Endpoint::poll`].
    Closed {
        /// The peer of the association.
        peer: PeerId,
        /// The reason for the end of the association.
        reason: Fatal,
    },
}

/// The reason why content was not protected: a mistake of the caller, or a session that must be renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// There is no such peer, or its handshake is not complete.
    NotEstablished,
    /// The frame has no space for the bytes that the protection adds.
    Full,
    /// The content is longer than the limit of this session: see [`Peer::max_content`].
    TooLong,
    /// The key reached its limit. Open a new session.
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
