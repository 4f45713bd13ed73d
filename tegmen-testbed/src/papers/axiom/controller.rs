//! The messages of the controller of the product. This crate does not depend on it: the caller passes them.

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
    /// Members that need help after an eviction, by the share of messages that are lost.
    pub repairs: Vec<Repair>,
    /// The answer to a member of that group that asks for what it missed.
    pub answer: Vec<u8>,
}

/// The messages of one eviction.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// Members before it.
    pub members: u32,
    /// The messages of a key tree, all of them to the group; that of the epoch is the last one.
    pub key_tree: Change,
    /// Messages for each member alone, and last that of the epoch to the group.
    pub point_to_point: Change,
}

/// The messages of a change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The messages.
    pub messages: Vec<Vec<u8>>,
    /// Milliseconds of one thread to plan a change and to make its messages: the mean of several.
    pub milliseconds: f64,
}

impl Change {
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(Vec::len).sum()
    }

    /// Frames of messages to the group.
    pub(super) fn frames(&self) -> usize {
        self.messages.iter().map(|message| in_frames(message)).sum()
    }
}

/// The messages of an admission.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The payloads of the request of the member and of the answer (RFC 9594).
    pub session: [Vec<u8>; 2],
    /// The messages to the group that begin the next epoch.
    pub messages: Vec<Vec<u8>>,
}

/// An eviction from a group whose members lose messages.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Percent of messages to the group that a member loses.
    pub loss: u8,
    /// Members that remain.
    pub members: u32,
    /// Messages of the key tree.
    pub messages: u32,
    /// The number of members that do not get the next epoch, by the number of times that each message is sent.
    pub missed: Vec<(u8, u32)>,
    /// The same if each member gets its message alone, once and with retransmissions of the MAC, and the message of the epoch once.
    pub missed_point_to_point: u32,
}

/// Frames of a message to the group, in the star of the paper.
pub(super) fn in_frames(message: &[u8]) -> usize {
    let group = Address { ip: [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd], port: PORT, scope: 0 };
    let sender = Address { ip: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], port: PORT, scope: 0 };
    let link = LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]);
    frames((link, sender), (LinkAddress::BROADCAST, group), 64, message).len()
}

const PORT: u16 = 5683;
