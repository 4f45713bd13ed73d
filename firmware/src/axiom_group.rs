//! The group of the provisioned images. The parameters that the controller of the group gives to each member are
//! compiled into these images. **Do not do this in a product: there, each device gets its own secret parameters from
//! the controller.**

use tegmen::address::Address;
use tegmen::axiom::{Admission, Association, Kept, Suite};

/// The parameters that the controller of the group gives to one member.
pub struct Provisioning<'a> {
    /// The security association of the epoch, without the master secret, which is derived from [`Self::admission`].
    pub association: Association<'a>,
    /// The secrets of the member, from which it derives the keys of the group.
    pub admission: Admission<'a>,
    /// SenderIDs whose record numbers begin with 0 in the epoch.
    pub senders: &'a [u8],
}

/// Returns the parameters of the listener.
pub const fn listener() -> Provisioning<'static> {
    Provisioning {
        association: association(None, LISTENER),
        admission: admission(FIRST_LEAF, &LISTENER_PATH),
        senders: &[SENDER_ID],
    }
}

/// Returns the parameters of the sender.
pub const fn sender() -> Provisioning<'static> {
    Provisioning {
        association: association(Some(SENDER_ID), SENDER),
        admission: admission(FIRST_LEAF + 1, &SENDER_PATH),
        senders: &[],
    }
}

const fn association(sender_id: Option<u8>, last: u8) -> Association<'static> {
    Association {
        group_id: 1,
        group: ADDRESS,
        suite: Suite::Ccm,
        epoch: EPOCH,
        senders: 4,
        sender_id,
        address: member(last).ip,
        master_secret: &[0; 48],
        client_random: &[3; 32],
        server_random: &[4; 32],
    }
}

const fn admission(leaf: u32, path: &'static [[u8; 16]; LEVELS]) -> Admission<'static> {
    Admission { group: &GROUP, epoch: EPOCH, chain: &CHAIN, secret: &[2; 32], leaf, path }
}

/// Returns the address of the member whose IP address ends with the byte `last`. The port is that of the group.
pub const fn member(last: u8) -> Address {
    Address { ip: [0xfd, 0, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, last], port: ADDRESS.port, scope: 0 }
}

/// The last byte of the address of the sender.
pub const SENDER: u8 = 1;
/// The last byte of the address of the listener.
pub const LISTENER: u8 = 2;
/// The last byte of the address of the controller.
pub const CONTROLLER: u8 = 3;
/// The multicast address of the group: all nodes of the realm (RFC 7346). The address is for private use, and the port
/// is that of CoAP over DTLS.
pub const ADDRESS: Address =
    Address { ip: [0xff, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x8a], port: 5684, scope: 0 };

/// The identity of the group: 16 random bytes in a product.
pub const GROUP: [u8; 16] = [1; 16];
/// Number of levels of the group's key tree, which has at most 256 members.
pub const LEVELS: usize = 9;
/// The number of the listener's leaf in the key tree. The sender has the next leaf.
pub const FIRST_LEAF: u32 = 1 << (LEVELS - 1);

const SENDER_ID: u8 = 7;
const EPOCH: u16 = 1;
const LISTENER_PATH: [[u8; 16]; LEVELS] = path(1);
const SENDER_PATH: [[u8; 16]; LEVELS] = path(0);

/// Returns the secrets on the path from a leaf to the root.
const fn path(leaf: u8) -> [[u8; 16]; LEVELS] {
    let mut path = [[leaf; 16]; LEVELS];
    let mut level = 1;
    while level < LEVELS {
        path[level] = [level as u8 + 1; 16];
        level += 1;
    }
    path
}

/// The element h(1) of the controller's hash chain (see `tegmen::axiom::rekey`). With h(1) a member verifies the rekey
/// message of epoch 2. The message contains h(2), which is `[6; 32]`, and the secret of epoch 2, which is `[5; 32]`.
const CHAIN: [u8; 32] = [
    0x7d, 0xc8, 0xd9, 0x5b, 0x4e, 0x95, 0xdc, 0x01, 0x6f, 0x82, 0xee, 0x90, 0x08, 0xa2, 0xc4, 0xeb, 0xef, 0x3d, 0xee,
    0xa1, 0x81, 0x5b, 0x22, 0x58, 0xe3, 0x46, 0x77, 0x5f, 0x69, 0xdd, 0xaf, 0x2d,
];

/// Returns a reservation of record numbers as one number that only increases. It contains three fields: the epoch (16
/// bits), the end of the reserved numbers of requests (24 bits), and the end of the reserved numbers of responses (24
/// bits). A field of 24 bits suffices, because a key seals at most 2^23 records.
pub const fn packed(kept: &Kept) -> u64 {
    let Kept { epoch, requests, responses } = kept;
    (*epoch as u64) << 48 | limited(*requests) << 24 | limited(*responses)
}

/// Returns the reservation that [`packed`] encoded as the number `kept`.
pub const fn unpacked(kept: u64) -> Kept {
    Kept { epoch: (kept >> 48) as u16, requests: kept >> 24 & MAX_NUMBER, responses: kept & MAX_NUMBER }
}

const fn limited(number: u64) -> u64 {
    if number < MAX_NUMBER { number } else { MAX_NUMBER }
}

const MAX_NUMBER: u64 = (1 << 24) - 1;
