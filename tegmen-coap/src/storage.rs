//! The memory of the message layer as a trait: a mote has arrays in the entry of each peer, and a host has one pool of
//! bytes for all peers of a shard.

mod fixed;

pub use fixed::Fixed;

use super::code::Code;
use super::message::{MessageRef, Token};
use super::option::OptionNumber;
use tegmen_base::buf::{Frame, Full};
use tegmen_base::time::{Duration, Instant};

/// EXCHANGE_LIFETIME: the time in which a Message ID means the same message (RFC 7252, section 4.8.2).
pub const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);

/// Names a request, or a separate response, that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u32);

/// All space for outgoing messages is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// As many exchanges are open as there is space for; wait for one to end.
    Outstanding,
    /// The message is longer than what can be kept for retransmission.
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

impl Outgoing {
    /// A place without an exchange.
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

    /// Returns true unless the exchange is over.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.waiting != Waiting::Nothing
    }

    /// True if the exchange ends at its deadline.
    pub(super) const fn has_deadline(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response | Waiting::SeparateResponse)
    }

    /// True if nothing has been received for it (RFC 7252, section 4.7).
    pub(super) const fn is_outstanding(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response)
    }

    /// Handles the response. If the request registered an observation and the server confirms it, notifications
    /// follow. An error, or a response without the option, is the last one (RFC 7641, section 3.2).
    pub(super) fn respond(&mut self, response: &MessageRef<'_>) {
        let follow = self.registers && response.code().is_success() && response.option(OptionNumber::OBSERVE).is_some();
        self.waiting = if follow { Waiting::Notifications } else { Waiting::Nothing };
        self.deadline = Instant::NEVER;
    }
}

/// Identifies a message that was kept without a reply, because its reply comes later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// Its Message ID.
    pub message_id: u16,
    /// A number that no other message of the peer with this Message ID has.
    pub print: u32,
    /// The effect of executing it a second time.
    pub repeat: Repeat,
}

/// The event that an exchange waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// None: the exchange is over.
    Nothing,
    /// An acknowledgement, or a response that stands for it. The message is sent again until then.
    Acknowledgement,
    /// The response to a request that is not confirmable.
    Response,
    /// The separate response to a request that was acknowledged.
    SeparateResponse,
    /// Notifications (RFC 7641), until the observation is cancelled.
    Notifications,
}

/// The memory of the message layer of a node.
///
/// It has two places: itself, of which a node has one, and [`Self::Peer`], which is in the entry of each peer. A
/// mote keeps everything in the second, and the first has no size.
pub trait ExchangeStorage {
    /// The exchanges with one peer that can be open at the same time.
    const PLACES: usize;
    /// The part in the entry of a peer.
    type Peer: Default;
    /// The name of a received message among those of its peer.
    type Key: Copy;
    /// A message that was handled before.
    type Handled: Copy;

    /// Returns the key of a message that was just received. Later the bytes may be decrypted in place.
    fn key(&mut self, now: Instant, peer: &mut Self::Peer, message_id: u16, datagram: &[u8]) -> Self::Key;

    /// Returns the message of this key, if it was handled within [`EXCHANGE_LIFETIME`].
    fn handled(&self, now: Instant, peer: &Self::Peer, key: Self::Key) -> Option<Self::Handled>;

    /// Returns the reply to a message that was handled; empty if nothing is to be sent, or it is not kept any more.
    fn reply<'s>(&'s self, peer: &'s Self::Peer, handled: Self::Handled) -> &'s [u8];

    /// Returns false if the storage cannot know for [`EXCHANGE_LIFETIME`] that a request was handled. The request is then
    /// answered with 5.03 and not executed.
    fn has_room(&mut self, now: Instant, peer: &mut Self::Peer, repeat: Repeat) -> bool;

    /// Keeps the reply to a message; empty if there was none. After [`Self::has_room`] returned true for the same
    /// message, its key is known for [`EXCHANGE_LIFETIME`].
    fn keep(&mut self, now: Instant, peer: &mut Self::Peer, key: Self::Key, repeat: Repeat, reply: &[u8]);

    /// Returns the identification by which [`Self::keep_late`] finds a message that was kept without a reply; `None` if the
    /// storage takes no late replies.
    #[inline]
    fn late(key: Self::Key, repeat: Repeat) -> Option<Late> {
        let _ = (key, repeat);
        None
    }

    /// Keeps the reply to a message that [`Self::keep`] kept without one.
    #[inline]
    fn keep_late(&mut self, now: Instant, peer: &mut Self::Peer, late: Late, reply: &[u8]) {
        let _ = (now, peer, late, reply);
    }

    /// Returns the newest reply to this peer; empty if it is not kept any more.
    fn last_reply<'s>(&'s self, now: Instant, peer: &'s Self::Peer) -> &'s [u8];

    /// Returns a place for an exchange that we begin, which the caller fills. `message` is kept for retransmission, and
    /// is empty if it is never sent again.
    ///
    /// # Errors
    /// [`Busy`]; nothing is kept.
    fn open<'s>(&'s mut self, peer: &'s mut Self::Peer, message: &[u8]) -> Result<&'s mut Outgoing, Busy>;

    /// Returns the exchanges with this peer. Some may be over.
    fn exchanges<'s>(&'s self, peer: &'s Self::Peer) -> impl Iterator<Item = &'s Outgoing>;

    /// Returns an exchange for which `is_it` holds, and which is not over. If it then waits for something else,
    /// [`Self::settle`] is called.
    fn find<'s>(
        &'s mut self,
        peer: &'s mut Self::Peer,
        is_it: impl FnMut(&Outgoing) -> bool,
    ) -> Option<&'s mut Outgoing>;

    /// Appends the message of an exchange to `frame`.
    ///
    /// # Errors
    /// [`Full`] if `frame` has no space for it; nothing is appended.
    fn write(&self, peer: &Self::Peer, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full>;

    /// Gives back what an exchange does not need any more: the message, unless it waits for the acknowledgement, and the
    /// exchange itself, if it is over.
    fn settle(&mut self, peer: &mut Self::Peer, id: RequestId);

    /// Gives back everything that the peer has in the storage.
    fn forget(&mut self, peer: &mut Self::Peer);
}
