//! Authentic records and their senders.

/// The result of opening a record that is authentic.
#[derive(Debug)]
pub enum Opened<'r> {
    /// The record is new. The value is the content of the record: deliver this content.
    Fresh(&'r mut [u8]),
    /// The record may be a replay, because the member does not know which record numbers (TSNs) the sender has used.
    /// The first value is the content of the record. Deliver this content only after
    /// [`Member::accept`](super::Member::accept) has accepted the second value, together with a proof that the record
    /// is new.
    Unverified(&'r mut [u8], Unverified),
    /// Two members use one SenderID or one address, so a nonce was used twice. The reason for this result is that the
    /// record has the same number as an earlier record, but other content. Report the clash to the controller, which
    /// gives all members new keys. A replay of a record never has this result.
    Clash,
}

/// The sender and the record number of a record that may be a replay.
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
    /// open, and that the same listener has not already answered it. [`Member::accept`](super::Member::accept) checks
    /// that the member sealed the request in this epoch, after its last restart, and after it last removed the state of
    /// a silent listener.
    AnswerTo(u64),
}

/// The member that sent a record.
#[derive(Debug)]
pub(super) enum Origin {
    Sender(u8),
    Listener([u8; 16]),
}

/// The record number of a record, in three parts. The fields have the order of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupNumber {
    /// The epoch of the group in which the record was sealed.
    pub epoch: u16,
    /// The SenderID of a request, or the GroupID of a response.
    pub id: u8,
    /// Truncated sequence number, below 2^40.
    pub tsn: u64,
}
