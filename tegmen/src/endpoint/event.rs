//! The events that an endpoint reports to its owner.

#[cfg(doc)]
use super::{Endpoint, Peer, Peers};
use crate::buf::Span;
use crate::dtls::Fatal;
#[cfg(doc)]
use crate::dtls::Records;
use crate::dtls::record::SealError;
use crate::identity::PeerId;

/// The result of processing a datagram or an alarm. An event contains positions in the caller's buffers, and no
/// references. So an event borrows nothing, and fits two registers of a host.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Send the datagram in the output buffer as an answer. Send it over the path that was given to
    /// [`Endpoint::handle`].
    Answer {
        /// The length of the datagram, which is at the front of the output buffer.
        len: u16,
    },
    /// Send the datagram in the output buffer over the path of a peer.
    Transmit {
        /// The peer to which the datagram is sent: see [`Peer::path`].
        peer: PeerId,
        /// The length of the datagram, which is at the front of the output buffer.
        len: u16,
    },
    /// The handshake of this peer needs input from the owner of the endpoint. [`Endpoint::need`] returns the required
    /// input, and the owner answers with [`Endpoint::resume`].
    Need(PeerId),
    /// The peer has proved that it has its key, and the session is ready.
    Established(PeerId),
    /// Authentic application data arrived. The data are decrypted in place, in the received datagram.
    Message {
        /// The sender of the data.
        peer: PeerId,
        /// The position of the data in the datagram: see [`Records::bytes`].
        bytes: Span,
    },
    /// The owner of the endpoint has set a time for this peer with [`Peers::schedule`], and this time is reached.
    Alarm(PeerId),
    /// The peer has proved that it receives at the address from which its last records came. From now on, our records
    /// go to this address. Datagrams that we sent to the old address after the peer had moved are probably lost.
    Moved(PeerId),
    /// The association has ended. The entry of the peer can be read until the next call of [`Endpoint::poll`].
    Closed {
        /// The peer of the association.
        peer: PeerId,
        /// The reason for the end of the association.
        reason: Fatal,
    },
}

/// The reason why content was not protected. Either the caller made a mistake, or the session must be renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// The table has no such peer, or the handshake of the peer is not complete.
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
