//! Events of a membership, for the operator of the member.

use std::fmt;
use std::time::Duration;

/// An event of a member. Its text names the next step if there is one, and has no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MembershipEvent {
    /// The next epoch has begun, by messages of the controller.
    Rekeyed {
        /// The number of the epoch that has begun.
        epoch: u16,
    },
    /// The member seems to have missed an epoch. It asks the controller for its keys. Nothing authenticates the cause, so
    /// anybody on the network can bring this about; the member asks seldom enough.
    Behind {
        /// The number of the epoch of the member.
        epoch: u16,
        /// The observation.
        why: Behind,
    },
    /// The controller gave the member its keys.
    CaughtUp {
        /// The number of the epoch, which is current now.
        epoch: u16,
        /// True if the member was in this epoch already.
        is_same: bool,
    },
    /// The controller has evicted the member.
    Evicted,
    /// The controller did not give the member its keys.
    NotAsked {
        /// The error and its correction.
        problem: String,
        /// The time after which the member asks again; `None` if it does not ask again by itself.
        again: Option<Duration>,
    },
    /// The state of the member cannot be written, so it sends nothing and begins no epoch.
    NotKept {
        /// The error and its correction.
        problem: String,
    },
    /// Another member has the same SenderID or the same address.
    Clash,
    /// The keys may seal no more messages in this epoch.
    Exhausted,
}

/// The reason why a member asks its controller for keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// The process has just started.
    Started,
    /// The stored keys are older than the stored numbers: the file of the member is an old copy.
    OldFile,
    /// A message of the controller is of a later epoch than the next one, or does not open.
    MissedMessage,
    /// A record of another member is of a later epoch, which is this one. Nothing authenticates it.
    NewerRecord(u16),
    /// This number of records of our epoch in a row did not open: this member, or the one that sent them, has other keys.
    NotOpened(u32),
    /// The new keys could not be written.
    NotKept,
    /// The public key of a member is not known, or is that of an earlier epoch.
    NoPublicKey,
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
        }
    }
}

impl MembershipEvent {
    /// True if the operator has to do something.
    pub const fn needs_operator(&self) -> bool {
        matches!(self, Self::Evicted | Self::NotAsked { .. } | Self::NotKept { .. } | Self::Clash | Self::Exhausted)
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
            Self::Clash => f.write_str(
                "another member has the SenderID or the address of this one: let the controller rekey the group, and evict \
                 one of the two",
            ),
            Self::Exhausted => f.write_str(
                "the keys of this epoch have sealed as many messages as they may: let the controller rekey the group",
            ),
        }
    }
}
