//! The memory of the message layer as a trait. A mote has arrays in the entry of each peer. A host has one pool of
//! bytes for all peers of a shard. A shard is a thread of the server with its own sockets.

mod fixed;

pub use fixed::Fixed;

use super::code::Code;
use super::message::{MessageRef, Token};
use super::option::OptionNumber;
use tegmen_base::buf::{Frame, Full};
use tegmen_base::time::{Duration, Instant};

/// EXCHANGE_LIFETIME (RFC 7252, section 4.8.2): the time for which an endpoint does not use the Message ID of a message
/// for another message.
pub const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);

/// Identifies a request, or a separate response, that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u32);

/// The reason why an outgoing message cannot be stored for retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// The maximum number of exchanges is open. Wait until one of them ends.
    Outstanding,
    /// The message is longer than the space that a message has for retransmission.
    TooLong,
}

impl From<Full> for Busy {
    fn from(_: Full) -> Self {
        Self::TooLong
    }
}

/// The effect of a request that is executed a second time (RFC 7252, sections 4.5 and 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// The second execution changes nothing, and takes hardly longer than the search for the first reply. A storage may
    /// keep no reply to such a request (RFC 7252, section 4.5). [`Exchanges::last_reply`](crate::Exchanges::last_reply) is
    /// then empty, so the reply cannot be sent again to a peer that has another address meanwhile.
    Cheap,
    /// The second execution changes nothing. This is the case for GET and FETCH, and for a received response, whose
    /// reply is only an acknowledgement.
    Safe,
    /// The second execution leaves the resource in the same state as the first: PUT, DELETE and iPATCH. This variant is
    /// also for a request that the OSCORE context would refuse the second time.
    Idempotent,
    /// The second execution changes the state of the resource again, so the request must not be executed twice: POST,
    /// PATCH, and each unknown method. The storage must remember for EXCHANGE_LIFETIME that the request was handled.
    Never,
}

impl Repeat {
    /// Returns the effect of repeating a request with this method.
    pub const fn of(method: Code) -> Self {
        match method {
            Code::GET | Code::FETCH => Self::Safe,
            Code::PUT | Code::DELETE | Code::IPATCH => Self::Idempotent,
            _ => Self::Never,
        }
    }
}

/// The state of an exchange that this endpoint began: a request, or a response that must be acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The identifier of the exchange among the exchanges of its peer.
    pub id: RequestId,
    /// The event that the exchange waits for.
    pub waiting: Waiting,
    /// True for a request, false for a response.
    pub is_request: bool,
    /// True if the request registers for notifications.
    pub registers: bool,
    /// The number of retransmissions up to now.
    pub retransmissions: u8,
    /// The Message ID.
    pub message_id: u16,
    /// The time from the last transmission of the message to its next transmission, in milliseconds.
    pub timeout_ms: u32,
    /// The time of the next action.
    pub deadline: Instant,
    /// The token of the request or of the response.
    pub token: Token,
}

impl Outgoing {
    /// An element of the storage that has no exchange.
    pub const NONE: Self = Self {
        id: RequestId(0),
        waiting: Waiting::Nothing,
        is_request: false,
        registers: false,
        retransmissions: 0,
        message_id: 0,
        timeout_ms: 0,
        deadline: Instant::NEVER,
        token: Token::new_empty(),
    };

    /// Returns true until the exchange ends.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.waiting != Waiting::Nothing
    }

    /// Returns true if something happens at the deadline of the exchange: a retransmission, or the end of the exchange.
    pub(super) const fn has_deadline(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response | Waiting::SeparateResponse)
    }

    /// Returns true if nothing has been received for the exchange (RFC 7252, section 4.7).
    pub(super) const fn is_outstanding(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response)
    }

    /// Handles the response. If the request registered an observation and the server confirms it, notifications
    /// follow. An error, or a response without Observe, is the last response (RFC 7641, section 3.2).
    pub(super) fn respond(&mut self, response: &MessageRef<'_>) {
        let follow = self.registers && response.code().is_success() && response.option(OptionNumber::OBSERVE).is_some();
        self.waiting = if follow { Waiting::Notifications } else { Waiting::Nothing };
        self.deadline = Instant::NEVER;
    }
}

/// Identifies a message that was kept without a reply, because its reply follows later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// The Message ID of the message.
    pub message_id: u16,
    /// A fingerprint that distinguishes the message from other messages of the peer with this Message ID.
    pub print: u32,
    /// The effect of executing the message a second time.
    pub repeat: Repeat,
}

/// The event that an exchange waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// No event: the exchange has ended.
    Nothing,
    /// An acknowledgement, or a response that replaces the acknowledgement. Until one of them arrives, the message of
    /// the exchange is retransmitted.
    Acknowledgement,
    /// The response to a non-confirmable request.
    Response,
    /// The separate response to a request that was acknowledged.
    SeparateResponse,
    /// The notifications of an observation (RFC 7641). The exchange waits for them until the observation is cancelled.
    Notifications,
}

/// The memory of the message layer of a node.
///
/// It has two parts: the value itself, of which a node has one, and [`Self::Peer`], which is in the entry of each
/// peer. On a mote, all memory is in the entries of peers, and the value itself has size zero.
pub trait ExchangeStorage {
    /// Maximum number of exchanges with one peer that can be open at the same time.
    const PLACES: usize;
    /// The part in the entry of a peer.
    type Peer: Default;
    /// The identifier of a received message among the messages of its peer.
    type Key: Copy;
    /// A message that was handled before.
    type Handled: Copy;

    /// Returns the key of a message that was just received. Call it before the bytes are decrypted in place.
    fn key(&mut self, now: Instant, peer: &mut Self::Peer, message_id: u16, datagram: &[u8]) -> Self::Key;

    /// Returns the message of this key, if it was handled within [`EXCHANGE_LIFETIME`].
    fn handled(&self, now: Instant, peer: &Self::Peer, key: Self::Key) -> Option<Self::Handled>;

    /// Returns the reply to a message that was handled. The reply is empty if there is nothing to send, or if it is no
    /// longer kept.
    fn reply<'s>(&'s self, peer: &'s Self::Peer, handled: Self::Handled) -> &'s [u8];

    /// Returns false if the storage has no space to remember for [`EXCHANGE_LIFETIME`] that a request was handled.
    /// The request is then answered with 5.03 and not executed.
    fn has_room(&mut self, now: Instant, peer: &mut Self::Peer, repeat: Repeat) -> bool;

    /// Keeps the reply to a message. The reply is empty if none was sent. If [`Self::has_room`] returned true for this
    /// message, the storage remembers the key of the message for [`EXCHANGE_LIFETIME`].
    fn keep(&mut self, now: Instant, peer: &mut Self::Peer, key: Self::Key, repeat: Repeat, reply: &[u8]);

    /// Returns the identification with which [`Self::keep_late`] finds a message that was kept without a reply, or
    /// `None` if the storage accepts no late replies.
    #[inline]
    fn late(key: Self::Key, repeat: Repeat) -> Option<Late> {
        let _ = (key, repeat);
        None
    }

    /// Keeps the reply to a message for which [`Self::keep`] kept no reply.
    #[inline]
    fn keep_late(&mut self, now: Instant, peer: &mut Self::Peer, late: Late, reply: &[u8]) {
        let _ = (now, peer, late, reply);
    }

    /// Returns the newest reply to this peer, or no bytes if this reply is no longer kept.
    fn last_reply<'s>(&'s self, now: Instant, peer: &'s Self::Peer) -> &'s [u8];

    /// Allocates the state of an exchange that this endpoint begins. The caller fills the returned state. `message` is
    /// kept for retransmission, and is empty if the message is never retransmitted.
    ///
    /// # Errors
    /// [`Busy`]. Nothing is then kept.
    fn open<'s>(&'s mut self, peer: &'s mut Self::Peer, message: &[u8]) -> Result<&'s mut Outgoing, Busy>;

    /// Returns the exchanges with this peer, including exchanges that have ended.
    fn exchanges<'s>(&'s self, peer: &'s Self::Peer) -> impl Iterator<Item = &'s Outgoing>;

    /// Returns an open exchange for which `is_it` returns true. If the caller changes the field
    /// [`waiting`](Outgoing::waiting) of the exchange, the caller must then call [`Self::settle`].
    fn find<'s>(
        &'s mut self,
        peer: &'s mut Self::Peer,
        is_it: impl FnMut(&Outgoing) -> bool,
    ) -> Option<&'s mut Outgoing>;

    /// Appends the message of an exchange to `frame`.
    ///
    /// # Errors
    /// [`Full`] if `frame` has no space for it. Nothing is then appended.
    fn write(&self, peer: &Self::Peer, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full>;

    /// Frees the memory that an exchange no longer needs: its message, unless the exchange waits for the
    /// acknowledgement, and the exchange itself, if it has ended.
    fn settle(&mut self, peer: &mut Self::Peer, id: RequestId);

    /// Frees all memory of the peer in the storage.
    fn forget(&mut self, peer: &mut Self::Peer);
}
