//! The rekey messages that Tegmen's controller makes. The caller passes them, because this crate does not depend on the
//! controller.

use crate::frames::frames;
use tegmen::address::Address;
use tegmen_lowpan::frame::LinkAddress;

/// The messages of the controller.
#[derive(Clone, Debug)]
pub struct Rekeying {
    /// For each of several group sizes, the messages that evict one member.
    pub evictions: Vec<Eviction>,
    /// The messages that admit a new member to a group. The group has the size of the smallest group in `evictions`.
    pub joining: Joining,
    /// For several shares of lost messages, the number of members that miss an eviction.
    pub repairs: Vec<Repair>,
    /// The controller's answer when a member of the smallest group requests the messages that it missed.
    pub answer: Vec<u8>,
}

/// The messages that follow the eviction of one member.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// Number of members in the group before the eviction.
    pub members: u32,
    /// The messages of an eviction if the keys of the group form a tree. All messages go to the whole group. The last
    /// message begins the next epoch.
    pub key_tree: Change,
    /// The messages of an eviction without a key tree: a separate message for each remaining member, and then a message
    /// that goes to the group and begins the next epoch.
    pub point_to_point: Change,
}

/// The messages that evict one member, with a key tree or without a key tree.
#[derive(Clone, Debug)]
pub struct Change {
    /// The messages.
    pub messages: Vec<Vec<u8>>,
    /// Mean time that one thread needs to plan the eviction and to make its messages, in milliseconds.
    pub milliseconds: f64,
}

impl Change {
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(Vec::len).sum()
    }

    /// Returns the number of frames that the messages need if all go to the group.
    pub(super) fn frames(&self) -> usize {
        self.messages.iter().map(|message| in_frames(message)).sum()
    }
}

/// The messages that admit a new member to a group.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The payload of the member's request, and the payload of the answer (RFC 9594).
    pub session: [Vec<u8>; 2],
    /// The messages to the group that begin the next epoch, to which the new member belongs.
    pub messages: Vec<Vec<u8>>,
}

/// An eviction from a group whose members lose some of the messages.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The share of messages to the group that each member loses, in percent.
    pub loss: u8,
    /// Number of members that remain in the group.
    pub members: u32,
    /// Number of messages of the eviction, if the keys of the group form a tree.
    pub messages: u32,
    /// The results with a key tree. Each entry has a number of transmissions, and the number of members that do not
    /// reach the next epoch if each message is sent this number of times.
    pub missed: Vec<(u8, u32)>,
    /// Number of members that do not reach the next epoch if the controller uses no key tree. The controller then sends
    /// a separate message to each member, and the MAC layer retransmits the lost frames of these messages. One more
    /// message goes to the whole group and begins the next epoch. The lost frames of this message are not
    /// retransmitted.
    pub missed_point_to_point: u32,
}

/// Returns the number of frames of a message to the group, in the star topology of the paper.
pub(super) fn in_frames(message: &[u8]) -> usize {
    let group = Address { ip: [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd], port: PORT, scope: 0 };
    let sender = Address { ip: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], port: PORT, scope: 0 };
    let link = LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]);
    frames((link, sender), (LinkAddress::BROADCAST, group), 64, message).len()
}

const PORT: u16 = 5683;
