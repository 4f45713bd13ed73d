//! Counters for the operator of an endpoint. They count the datagrams and records that the endpoint drops, the requests
//! that it refuses, and its handshakes.

/// The reason why a record is dropped and counted. The peer gets no response, and the association continues (RFC 6347,
/// section 4.1.2.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// The record or the message does not parse.
    Malformed,
    /// No peer is known at the source address, no keys are known for the epoch, or the public key of a group's member
    /// is not known.
    UnknownPeer,
    /// A record with this number was received before, or the number is older than the replay window.
    Replayed,
    /// The tag of the record does not match.
    NotAuthentic,
    /// The message is not allowed in the current state.
    Unexpected,
    /// The message does not fit the bounded buffer. The peer sends the message again.
    NoRoom,
}

/// Numbers of events since the start. Each dropped datagram or record increments one of these counters.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Records or messages that did not parse.
    pub malformed: u32,
    /// Records from an address without a session, or of an epoch for which no keys are known.
    pub unknown_peer: u32,
    /// Records whose number was received before, or is older than the replay window.
    pub replayed: u32,
    /// Records whose tag did not match.
    pub not_authentic: u32,
    /// Messages that were not allowed in the state of the handshake.
    pub unexpected: u32,
    /// Messages that were dropped because there was no space: records and handshake messages that arrived too early and
    /// did not fit the bounded buffer, and fragments of a later message. The peer sends them again.
    pub no_room: u32,
    /// ClientHellos that were answered with a HelloVerifyRequest.
    pub cookies_sent: u32,
    /// New peers, such as senders of a ClientHello, that were refused because the peer table was full. A new client
    /// does not displace an authenticated peer, or a peer to which this endpoint connected.
    pub table_full: u32,
    /// Peers that were removed from the full peer table to make space for a new peer.
    pub evicted: u32,
    /// Handshakes that were completed.
    pub established: u32,
    /// Handshakes that failed.
    pub failed: u32,
    /// Flights that were sent again.
    pub retransmitted: u32,
    /// Repeated requests that were answered with the stored response.
    pub duplicates: u32,
}

impl Counters {
    /// Creates counters that are all zero.
    pub const fn new() -> Self {
        Self {
            malformed: 0,
            unknown_peer: 0,
            replayed: 0,
            not_authentic: 0,
            unexpected: 0,
            no_room: 0,
            cookies_sent: 0,
            table_full: 0,
            evicted: 0,
            established: 0,
            failed: 0,
            retransmitted: 0,
            duplicates: 0,
        }
    }

    /// Counts a dropped record under this reason.
    #[inline(never)]
    pub(crate) fn discard(&mut self, why: Discard) {
        let counter = match why {
            Discard::Malformed => &mut self.malformed,
            Discard::UnknownPeer => &mut self.unknown_peer,
            Discard::Replayed => &mut self.replayed,
            Discard::NotAuthentic => &mut self.not_authentic,
            Discard::Unexpected => &mut self.unexpected,
            Discard::NoRoom => &mut self.no_room,
        };
        bump(counter);
    }
}

/// Adds one to a counter. A counter at its maximum does not change.
#[inline(never)]
pub(crate) fn bump(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

impl Counters {
    /// Adds the counts of another endpoint to these counts.
    pub const fn add(&mut self, other: &Self) {
        let Self { malformed, unknown_peer, replayed, not_authentic, unexpected, no_room, .. } = other;
        self.malformed = self.malformed.saturating_add(*malformed);
        self.unknown_peer = self.unknown_peer.saturating_add(*unknown_peer);
        self.replayed = self.replayed.saturating_add(*replayed);
        self.not_authentic = self.not_authentic.saturating_add(*not_authentic);
        self.unexpected = self.unexpected.saturating_add(*unexpected);
        self.no_room = self.no_room.saturating_add(*no_room);
        self.cookies_sent = self.cookies_sent.saturating_add(other.cookies_sent);
        self.table_full = self.table_full.saturating_add(other.table_full);
        self.evicted = self.evicted.saturating_add(other.evicted);
        self.established = self.established.saturating_add(other.established);
        self.failed = self.failed.saturating_add(other.failed);
        self.retransmitted = self.retransmitted.saturating_add(other.retransmitted);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
    }
}
