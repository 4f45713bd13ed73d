//! Authentic records and their senders.

/// An authentic record.
#[derive(Debug)]
pub enum Opened<'r> {
    /// It is new.
    Fresh(&'r mut [u8]),
    /// It may be a replay, because nothing is known of the numbers of its sender. Deliver it only if it proves that it is new,
    /// and only after [`Member::accept`](super::Member::accept).
    Unverified(&'r mut [u8], Unverified),
    /// Two members use one SenderID or one address: this record has the same number as an earlier record, but another
    /// content. A nonce was used twice. Report it to the controller, which gives all members new keys. A replay of a
    /// record is never a clash.
    Clash,
}

/// The number of a record that may be a replay.
#[derive(Debug)]
pub struct Unverified {
    pub(super) from: Origin,
    pub(super) epoch: u16,
    pub(super) tsn: u64,
    pub(super) fingerprint: u32,
}

/// The proof that a record is no replay.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// A request: the value of its Echo option, which must be our [challenge](super::Member::challenge).
    Echo(&'a [u8]),
    /// A response: the TSN of our request whose token it has. The caller makes sure that the token is that of an open request,
    /// and that the same listener has not answered the previous request. The request must have been sealed in this epoch and
    /// run, and since a silent listener was forgotten last.
    AnswerTo(u64),
}

/// The member that sent a record.
#[derive(Debug)]
pub(super) enum Origin {
    Sender(u8),
    Listener([u8; 16]),
}

/// The number of a record in its three parts, in the order of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupNumber {
    /// The epoch.
    pub epoch: u16,
    /// SenderID of a request, GroupID of a response.
    pub id: u8,
    /// Truncated sequence number, below 2^40.
    pub tsn: u64,
}
