//! The messages of the product's controller. This crate does not depend on the controller: the caller passes its
//! messages.

use crate::frames::frames;
use tegmen::address::Address;
use tegmen_lowpan::frame::LinkAddress;

/// The messages of the controller.
#[derive(Clone, Debug)]
pub struct Rekeying {
    /// Evictions from groups of several sizes.
    pub evictions: Vec<Eviction>,
    /// The admission of a member to the smallest of these groups.
    pub joining: Joining,
    /// Evictions after which some members need help, for several shares of lost messages.
    pub repairs: Vec<Repair>,
    /// The answer to a member of the smallest group that requests the messages that it missed.
    pub answer: Vec<u8>,
}

/// The messages of one eviction.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// Number of members before the eviction.
    pub members: u32,
    /// The messages of a key tree, which all go to the group. The last message is that of the epoch.
    pub key_tree: Change,
    /// A separate message for each member, and then the message of the epoch to the group.
    pub point_to_point: Change,
}

/// The messages of a change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The messages.
    pub messages: Vec<Vec<u8>>,
    /// Mean time of one thread to plan the change and to make its messages, in milliseconds.
    pub milliseconds: f64,
}

impl Change {
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(Vec::len).sum()
    }

    /// Returns the number of frames of the messages to the group.
    pub(super) fn frames(&self) -> usize {
        self.messages.iter().map(|message| in_frames(message)).sum()
    }
}

/// The messages of an admission.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The payloads of the member's request and of the answer (RFC 9594).
    pub session: [Vec<u8>; 2],
    /// The messages to the group that begin the next epoch.
    pub messages: Vec<Vec<u8>>,
}

/// An eviction from a group whose members lose messages.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The share of messages to the group that a member loses, in percent.
    pub loss: u8,
    /// Number of members that remain.
    pub members: u32,
    /// Number of messages of the key tree.
    pub messages: u32,
    /// Number of members that do not get the next epoch, for each number of times that each message is sent.
    pub missed: Vec<(u8, u32)>,
    /// Number of members that do not get the next epoch if each member gets a separate message, once and with
    /// retransmissions of the MAC, and the message of the epoch once.
    pub missed_point_to_point: u32,
}

/// Returns the number of frames of a message to the group, in the star of the paper.
pub(super) fn in_frames(message: &[u8]) -> usize {
    let group = Address { ip: [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd], port: PORT, scope: 0 };
    let sender = Address { ip: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], port: PORT, scope: 0 };
    let link = LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]);
    frames((link, sender), (LinkAddress::BROADCAST, group), 64, message).len()
}

const PORT: u16 = 5683;
