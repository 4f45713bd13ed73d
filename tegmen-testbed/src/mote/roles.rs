//! The DTLS roles of simulated nodes. They depend on the protection of the readings.

use super::credentials::Shown;
use super::delegated::{delegation, first_epoch, in_epoch, seal, second_epoch};
use super::sessions::{Memory, OfDevice, Resumed};
use super::{HUB, LEAF, Mote, Node, Protection, SMALL_HUB, Setup};
use std::cell::RefCell;
use std::rc::Rc;
use tegmen::crypto::Compact;
use tegmen::dtls::{Both, Config, ConnectionIdConfig, Extended, Handle, PublicKeys, Resuming, Roles};
use tegmen::time::{Duration, Instant};
use tegmen_delegation::{Delegation, Epoch, Issuer, PSK_LEN};

/// DTLS roles that [`Provisioned::provisioned`] creates for a node, together with the keys of the node.
pub trait Provisioned: Roles {
    /// Creates the roles of the node with this number. `seed` contains random bytes.
    fn provisioned(number: usize, setup: &Setup, config: &Config, seed: [u8; 32]) -> Self;
}

impl Provisioned for Both {
    fn provisioned(_: usize, _: &Setup, _: &Config, _: [u8; 32]) -> Self {
        Self
    }
}

impl Provisioned for PublicKeys<Both, Shown> {
    fn provisioned(_: usize, setup: &Setup, _: &Config, _: [u8; 32]) -> Self {
        let keys =
            if setup.protection == Protection::RawKey { Shown::raw_public_key() } else { Shown::certificate_chain() };
        Self { role: Both, keys }
    }
}

impl Provisioned for Resuming<Both, Memory> {
    fn provisioned(_: usize, _: &Setup, _: &Config, seed: [u8; 32]) -> Self {
        Self { role: Both, sessions: Memory::new(true, seed) }
    }
}

impl Provisioned for Extended<Both> {
    fn provisioned(_: usize, _: &Setup, config: &Config, _: [u8; 32]) -> Self {
        Self::with(Both, config)
    }
}

impl Provisioned for Resuming<Both, OfDevice> {
    fn provisioned(number: usize, _: &Setup, _: &Config, _: [u8; 32]) -> Self {
        let device = in_epoch(second_epoch(device_key(number)), Instant::from_micros(1), TIME);
        Self { role: Both, sessions: OfDevice(Rc::new(RefCell::new(device))) }
    }
}

/// Returns the DTLS settings of a node. Node 0 issues connection ids. Each other node has only one peer, so it needs no
/// connection id to recognize the peer's records.
pub(super) fn config(number: usize, setup: &Setup) -> Config {
    let len = if number == 0 { CONNECTION_ID } else { 0 };
    let connection_id = ConnectionIdConfig { len, ..ConnectionIdConfig::default() };
    let has_ids = setup.protection == Protection::ConnectionId;
    Config { profile: setup.profile, connection_id: has_ids.then_some(connection_id), ..Config::default() }
}

/// Makes the session with node 0 that a node receives from the delegation server. Its ticket belongs to the current
/// epoch of node 0.
pub(super) fn handed_over(number: usize, seed: [u8; 32]) -> Resumed {
    with_ticket(number, second_epoch(device_key(0)), seed)
}

/// Makes a session of a node with node 0. Its ticket belongs to an ended epoch of node 0.
pub(super) fn of_earlier_epoch(number: usize, seed: [u8; 32]) -> Resumed {
    with_ticket(number, first_epoch(device_key(0)), seed)
}

fn with_ticket(number: usize, epoch: Epoch, seed: [u8; 32]) -> Resumed {
    let ticket = seal(&mut Issuer::new(epoch, None, 0), &mut Compact::new(seed), &connection(number));
    Resumed::new(connection(number).session, Handle::Ticket(&ticket))
}

/// Makes the delegated connection of a node at node 0. It stays valid for longer than the longest run.
fn connection(number: usize) -> Delegation {
    delegation(number as u32, TIME, TIME + LASTS)
}

fn device_key(number: usize) -> [u8; PSK_LEN] {
    let mut key = [0x6b; PSK_LEN];
    key[..8].copy_from_slice(&(number as u64).to_be_bytes());
    key
}

/// Makes the node with this number in a deployment. `makers` is the number of nodes that make readings. Node 0 receives
/// the readings.
pub fn node(seed: u64, number: usize, makers: usize, setup: Setup) -> Box<dyn Mote> {
    match setup.protection {
        Protection::Certificate | Protection::RawKey => {
            of_size::<PublicKeys<Both, Shown>, LONG, LONGEST, 0, 0>(seed, number, makers, setup)
        }
        Protection::Ticket => of_size::<Resuming<Both, Memory>, LONG, LONG, 0, 0>(seed, number, makers, setup),
        Protection::Delegation => of_size::<Resuming<Both, OfDevice>, LONG, LONG, 0, 0>(seed, number, makers, setup),
        Protection::ConnectionId => of_size::<Extended<Both>, 64, 128, LEAF, HUB>(seed, number, makers, setup),
        _ => of_size::<Both, 64, 128, 0, 0>(seed, number, makers, setup),
    }
}

/// Makes a node with space for the connection ids of `LEAF_IDS` peers, or of `HUB_IDS` peers if it is node 0.
fn of_size<
    R: Provisioned + 'static,
    const OUTGOING: usize,
    const INCOMING: usize,
    const LEAF_IDS: usize,
    const HUB_IDS: usize,
>(
    seed: u64,
    number: usize,
    makers: usize,
    setup: Setup,
) -> Box<dyn Mote> {
    match (number, makers > SMALL_HUB) {
        (0, true) => Box::new(Node::<HUB, R, OUTGOING, INCOMING, HUB_IDS>::with_role(seed, number, setup)),
        (0, false) => Box::new(Node::<SMALL_HUB, R, OUTGOING, INCOMING, HUB_IDS>::with_role(seed, number, setup)),
        _ => Box::new(Node::<LEAF, R, OUTGOING, INCOMING, LEAF_IDS>::with_role(seed, number, setup)),
    }
}

/// Makes a node that tries again after a failed handshake, when the time `pause` is over. With
/// [`Protection::Delegation`] the node first tries to resume a session of an ended epoch of node 0. After the pause the
/// node has a ticket of the current epoch.
pub fn returning(seed: u64, number: usize, setup: Setup, pause: Duration) -> Box<dyn Mote> {
    match setup.protection {
        Protection::Certificate => returning_in::<PublicKeys<Both, Shown>, LONG, LONGEST>(seed, number, setup, pause),
        _ => returning_in::<Resuming<Both, OfDevice>, LONG, LONG>(seed, number, setup, pause),
    }
}

fn returning_in<R: Provisioned + 'static, const OUTGOING: usize, const INCOMING: usize>(
    seed: u64,
    number: usize,
    setup: Setup,
    pause: Duration,
) -> Box<dyn Mote> {
    let mut node = Node::<LEAF, R, OUTGOING, INCOMING, 0>::with_role(seed, number, setup);
    node.returns(pause);
    Box::new(node)
}

/// Length of a connection id, in bytes.
pub(super) const CONNECTION_ID: u8 = 8;
/// Size in bytes of the buffer for sent messages in a handshake that resumes a session or has public keys.
const LONG: usize = 400;
/// Size in bytes of the buffer for the longest message, which is a message with certificates.
const LONGEST: usize = 1400;
/// The time at the delegation server when the run begins, in seconds since 1970.
const TIME: u32 = 1_700_000_000;
/// Lifetime of a delegated session, in seconds.
const LASTS: u32 = 200_000_000;
