//! Events of a membership, for the operator of the member.

use std::fmt;
use std::time::Duration;

/// An event of a member. The text of the event contains no secret. If the operator can do something, the text also
/// proposes a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MembershipEvent {
    /// A message of the controller began the next epoch.
    Rekeyed {
        /// The number of the epoch that has begun.
        epoch: u16,
    },
    /// The member may have missed an epoch, and asks the controller for the current keys. The record or message that
    /// causes this event is not authenticated, so it can come from an attacker on the network. The member limits the
    /// number of its requests.
    Behind {
        /// The number of the epoch in which the member is.
        epoch: u16,
        /// The reason why the member may have missed an epoch.
        why: Behind,
    },
    /// The controller gave the member the keys of the current epoch.
    CaughtUp {
        /// The number of the current epoch.
        epoch: u16,
        /// True if the member already had the keys of this epoch.
        is_same: bool,
    },
    /// The controller has evicted the member.
    Evicted,
    /// The member asked the controller for the current keys, and did not get them.
    NotAsked {
        /// The error and its correction.
        problem: String,
        /// The time after which the member asks again; `None` if it does not ask again by itself.
        again: Option<Duration>,
    },
    /// The member cannot write its state to disk, so it sends nothing and begins no epoch.
    NotKept {
        /// The error and its correction.
        problem: String,
    },
    /// Two members have the same SenderID or the same address. A member that [follows](crate::controller::Controller::follow)
    /// its controller reports a SenderID to the controller.
    Clash {
        /// The SenderID; `None` if two listeners have the same address.
        sender: Option<u8>,
    },
    /// No more records may be protected with the keys of this epoch.
    Exhausted,
}

/// The reason why a member asks its controller for keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// The process has just started.
    Started,
    /// The file with the keys of the member is an old copy: its keys are of an earlier epoch than the stored sequence
    /// numbers.
    OldFile,
    /// A message of the controller cannot be opened, or skips at least one epoch.
    MissedMessage,
    /// A record of another member has this later epoch. The record is not authenticated.
    NewerRecord(u16),
    /// This number of consecutive records of the current epoch did not open, because this member or the sender has
    /// other keys.
    NotOpened(u32),
    /// The new keys of an epoch could not be written to disk.
    NotKept,
    /// The public key of a member is not known, or belongs to an earlier epoch.
    NoPublicKey,
    /// Two members use this SenderID.
    Clash(u8),
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("the program has just started"),
            Self::OldFile => f.write_str("the file of the member is an old copy"),
            Self::MissedMessage => f.write_str("a message of the controller was missed"),
            Self::NewerRecord(epoch) => write!(f, "another member uses epoch {epoch}"),
            Self::NotOpened(records) => {
                write!(f, "{records} records of this epoch do not open: this member or their sender has wrong keys")
            }
            Self::NotKept => f.write_str("the keys of the next epoch could not be written"),
            Self::NoPublicKey => f.write_str("the public key of a member is missing"),
            Self::Clash(id) => write!(f, "two devices use the SenderID {id}"),
        }
    }
}

impl MembershipEvent {
    /// True if the event requires an action of the operator.
    pub const fn needs_operator(&self) -> bool {
        matches!(
            self,
            Self::Evicted | Self::NotAsked { .. } | Self::NotKept { .. } | Self::Clash { .. } | Self::Exhausted
        )
    }
}

impl fmt::Display for MembershipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rekeyed { epoch } => write!(f, "epoch {epoch} has begun"),
            Self::Behind { epoch, why } => {
                write!(f, "{why}; the member is in epoch {epoch}, and asks the controller for its keys")
            }
            Self::CaughtUp { epoch, is_same: false } => write!(f, "the controller gave the keys of epoch {epoch}"),
            Self::CaughtUp { epoch, is_same: true } => write!(f, "epoch {epoch} is the current one; nothing was missed"),
            Self::Evicted => f.write_str(
                "the controller has evicted this member, which neither sends nor answers any more: ask the operator of the \
                 controller, then join again",
            ),
            Self::NotAsked { problem, again: Some(again) } => {
                write!(f, "no keys from the controller: {problem}; next try in {} s", again.as_secs().max(1))
            }
            Self::NotAsked { problem, again: None } => write!(f, "no keys from the controller: {problem}"),
            Self::NotKept { problem } => write!(f, "the member stops: {problem}"),
            Self::Clash { sender: Some(id) } => write!(
                f,
                "two devices use the SenderID {id}: a member that follows its controller reports it, and the controller then gives \
                 one of them another SenderID; use the credentials and the directory of each member in one place only"
            ),
            Self::Clash { sender: None } => f.write_str(
                "two members have the same address: let the controller rekey the group, and evict one of the two",
            ),
            Self::Exhausted => f.write_str(
                "the keys of this epoch have sealed as many messages as they may: let the controller rekey the group",
            ),
        }
    }
}
