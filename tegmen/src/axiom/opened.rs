//! Authentic records and their senders.

/// An authentic record that was opened.
#[derive(Debug)]
pub enum Opened<'r> {
    /// The record is new. Deliver its content.
    Fresh(&'r mut [u8]),
    /// The record may be a replay, because the TSNs of its sender are not known. Deliver its content only if the
    /// record proves that it is new, and only after [`Member::accept`](super::Member::accept).
    Unverified(&'r mut [u8], Unverified),
    /// This record has the same number as an earlier record, but other content. So two members use one SenderID or
    /// one address, and a nonce was used twice. Report this to the controller, which gives all members new keys. A
    /// replay of a record is never a clash.
    Clash,
}

/// The sender and the number of a record that may be a replay.
#[derive(Debug)]
pub struct Unverified {
    pub(super) from: Origin,
    pub(super) epoch: u16,
    pub(super) tsn: u64,
    pub(super) fingerprint: u32,
}

/// The proof that a record is not a replay.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// For a request: the value of its Echo option, which must be our [challenge](super::Member::challenge).
    Echo(&'a [u8]),
    /// For a response: the TSN of our request with the same token. The caller makes sure that the request is still
    /// open, and that the same listener has not answered the previous request. We must have sealed the request in
    /// this epoch and in this run, and since the last time that a silent listener was forgotten.
    AnswerTo(u64),
}

/// The member that sent a record.
#[derive(Debug)]
pub(super) enum Origin {
    Sender(u8),
    Listener([u8; 16]),
}

/// The three parts of the number of a record, in the order of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupNumber {
    /// The epoch.
    pub epoch: u16,
    /// The SenderID in a request, the GroupID in a response.
    pub id: u8,
    /// Truncated sequence number, below 2^40.
    pub tsn: u64,
}
