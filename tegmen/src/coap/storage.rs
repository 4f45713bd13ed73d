//! The memory of the message layer as a trait: a mote has arrays in the entry of each peer, and a host has one pool of
//! bytes for all peers of a shard.

use super::code::Code;
use super::exchange::{Busy, RequestId};
use super::message::Token;
use crate::buf::{Frame, Full};
use crate::time::Instant;

/// The effect of a request that is executed a second time (RFC 7252, sections 4.5 and 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// There is none: GET and FETCH. The same holds for an acknowledgement that was sent for a response.
    Safe,
    /// The state is the same as after the first time: PUT, DELETE and iPATCH. The same holds for a request that would be
    /// refused the second time, because its OSCORE context has seen it.
    Idempotent,
    /// The state is another one: POST and PATCH. The storage must know for EXCHANGE_LIFETIME that it was handled.
    Never,
}

impl Repeat {
    /// The effect of repeating this method.
    pub const fn of(method: Code) -> Self {
        match method {
            Code::GET | Code::FETCH => Self::Safe,
            Code::PUT | Code::DELETE | Code::IPATCH => Self::Idempotent,
            _ => Self::Never,
        }
    }
}

/// The state of an exchange that we began: a request, or a response that has to be acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The name of the exchange among those of its peer.
    pub id: RequestId,
    /// The exchange waits for this.
    pub waiting: Waiting,
    /// True of a request, false of a response.
    pub is_request: bool,
    /// The request registers for notifications.
    pub registers: bool,
    /// The number of retransmissions up to now.
    pub retransmissions: u8,
    /// The Message ID.
    pub message_id: u16,
    /// The time from the last transmission to the next, in milliseconds.
    pub timeout_ms: u32,
    /// The time at which something is due.
    pub deadline: Instant,
    /// The token.
    pub token: Token,
}

/// The event that an exchange waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// An acknowledgement, or a response that stands for it. The message is sent again until then.
    Acknowledgement,
    /// The response only.
    Response,
    /// Notifications (RFC 7641), until the observation is cancelled.
    Notifications,
}

/// The memory of the message layer of a node.
///
/// It has two places: itself, of which a node has one, and [`Self::Peer`], which stands in the entry of each peer. A
/// mote keeps everything in the second, and the first has no size.
pub trait ExchangeStorage {
    /// The part in the entry of a peer.
    type Peer: Default;
    /// The name of a received message among those of its peer.
    type Key: Copy;

    /// Returns the key of a message that was just received. Later the bytes may be decrypted in place.
    fn key(&mut self, now: Instant, peer: &mut Self::Peer, message_id: u16, datagram: &[u8]) -> Self::Key;

    /// Returns the reply to a message that was handled within EXCHANGE_LIFETIME; empty if nothing is to be sent.
    fn reply(&self, now: Instant, peer: &Self::Peer, key: Self::Key) -> Option<&[u8]>;

    /// Returns false if the storage cannot know for EXCHANGE_LIFETIME that a request was handled. The request is then
    /// answered with 5.03 and not executed.
    fn has_room(&mut self, now: Instant, peer: &mut Self::Peer, repeat: Repeat) -> bool;

    /// Keeps the reply to a message; empty if there was none. After [`Self::has_room`] returned true for the same
    /// message, its key is known for EXCHANGE_LIFETIME.
    fn keep(&mut self, now: Instant, peer: &mut Self::Peer, key: Self::Key, repeat: Repeat, reply: &[u8]);

    /// Returns the newest reply to this peer; empty if it is not kept any more.
    fn last_reply(&self, now: Instant, peer: &Self::Peer) -> &[u8];

    /// Keeps an exchange that we begin, with the message if it may have to be sent again.
    ///
    /// # Errors
    /// [`Busy`]; nothing is kept.
    fn open(&mut self, peer: &mut Self::Peer, exchange: Outgoing, message: &[u8]) -> Result<(), Busy>;

    /// Returns the exchanges with this peer, in the order in which they began.
    fn exchanges(&self, peer: &Self::Peer) -> impl Iterator<Item = &Outgoing>;

    /// Returns the first exchange for which `is_it` holds.
    fn find(&mut self, peer: &mut Self::Peer, is_it: impl FnMut(&Outgoing) -> bool) -> Option<&mut Outgoing>;

    /// Appends the message of an exchange to `frame`.
    ///
    /// # Errors
    /// [`Full`] if `frame` has no space for it.
    fn write(&self, peer: &Self::Peer, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full>;

    /// Frees the memory of a message that will not be sent again; its exchange stays.
    fn drop_message(&mut self, peer: &mut Self::Peer, id: RequestId);

    /// Ends an exchange.
    fn close(&mut self, peer: &mut Self::Peer, id: RequestId);

    /// Gives back everything that the peer has in the storage.
    fn forget(&mut self, peer: &mut Self::Peer);
}
