//! Counters for the operator of an endpoint: the datagrams and records that it drops, the requests that it refuses,
//! and its handshakes.

/// The reason why a record is dropped and counted, without a response to the peer (RFC 6347, section 4.1.2.7). The
/// association continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// The record or the message does not parse.
    Malformed,
    /// No peer is known at the source address, or no keys are known for the epoch, or the public key of a member of a
    /// group is not known.
    UnknownPeer,
    /// A record with this number was received before, or the number is older than the window.
    Replayed,
    /// The tag of the record does not match.
    NotAuthentic,
    /// The message is not allowed in the current state.
    Unexpected,
    /// The message does not fit the bounded buffer. The peer sends it again.
    NoRoom,
}

/// Counts since the start. Each dropped datagram or record increments one of the counters.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Records or messages that did not parse.
    pub malformed: u32,
    /// Records from an address without a session, or of an epoch that has no keys.
    pub unknown_peer: u32,
    /// Records whose number was seen before or is too old.
    pub replayed: u32,
    /// Records whose tag did not match.
    pub not_authentic: u32,
    /// Messages that were not allowed in the state of the handshake.
    pub unexpected: u32,
    /// Messages that were dropped for lack of space: early records and handshake messages that did not fit the
    /// bounded buffer, and fragments of a message that is not due yet. The peer sends them again.
    pub no_room: u32,
    /// ClientHellos answered with a HelloVerifyRequest.
    pub cookies_sent: u32,
    /// ClientHellos refused because the peer table is full of peers of higher rank.
    pub table_full: u32,
    /// Peers displaced from a full table.
    pub evicted: u32,
    /// Handshakes that were completed.
    pub established: u32,
    /// Handshakes that failed.
    pub failed: u32,
    /// Flights that were sent again.
    pub retransmitted: u32,
    /// Requests answered again from the deduplication table.
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

    /// Counts a dropped record.
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
    /// Adds the counts of another endpoint.
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
