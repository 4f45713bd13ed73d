//! A key tree and its members, over a network that loses, reorders and repeats, and with members that attack.

use std::collections::{BTreeMap, BTreeSet};
use tegmen::address::{Address, Path};
use tegmen::axiom::rekey::{MAX_MESSAGE, Place, parent_of, seal_epoch, seal_node};
use tegmen::axiom::{BadAssociation, KeyPath, Rekeyed};
use tegmen::buf::Writer;
use tegmen::crypto::Crypto;
use tegmen::cx::Discard;
use tegmen::secret::Secret;
use tegmen_control::group::{Change, KeyTree, Refused, RekeyMessage};
use tegmen_lowpan::flood::Header;
use tegmen_lowpan::frame::{self, LinkAddress, PanId};
use tegmen_lowpan::iphc::{Compressed, Context, Hop};
use tegmen_lowpan::{ip, write_flooded};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

const LEVELS: u8 = 4;
type Keys = KeyPath<5>;

/// A group, its members, and those that were evicted, with the keys that they had then.
struct World {
    crypto: HostCrypto,
    signer: SoftwareKey,
    tree: KeyTree,
    members: BTreeMap<u32, (Keys, bool)>,
    evicted: Vec<Keys>,
    /// All messages so far.
    history: Vec<RekeyMessage>,
    caught_up: usize,
}

fn software_key() -> SoftwareKey {
    let pair = rcgen::KeyPair::generate().unwrap();
    SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap()
}

impl World {
    fn new(seed: u64, members: u32, last: u16) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut crypto = HostCrypto::new(bytes, 0);
        let tree = KeyTree::new(&mut crypto, LEVELS, last, members);
        let mut world = Self {
            crypto,
            signer: software_key(),
            tree,
            members: BTreeMap::new(),
            evicted: Vec::new(),
            history: Vec::new(),
            caught_up: 0,
        };
        for leaf in (1 << LEVELS)..(1 << LEVELS) + members {
            world.admit(leaf, true);
        }
        world
    }

    fn admit(&mut self, leaf: u32, checks: bool) {
        let admitted = self.tree.admit::<HostCrypto>(leaf).unwrap();
        self.members.insert(leaf, (Keys::new(&admitted.admission()).unwrap(), checks));
    }

    fn draw(&mut self, below: usize) -> usize {
        let mut bytes = [0; 8];
        self.crypto.random(&mut bytes);
        (u64::from_be_bytes(bytes) % below as u64) as usize
    }

    fn join(&mut self, checks: bool) -> Result<(u32, Vec<RekeyMessage>), Refused> {
        let change = self.tree.join(&mut self.crypto, checks)?;
        Ok((change.leaf().unwrap(), self.make(change)))
    }

    fn make(&mut self, change: Change) -> Vec<RekeyMessage> {
        self.tree.apply(change);
        self.tree.messages(&mut self.crypto, Some(&self.signer)).unwrap()
    }

    fn rekey(&mut self) -> Vec<RekeyMessage> {
        let change = self.tree.rekey().unwrap();
        self.make(change)
    }

    fn evict(&mut self, leaf: u32) -> Vec<RekeyMessage> {
        let change = self.tree.evict(&mut self.crypto, leaf).unwrap();
        let messages = self.make(change);
        self.evicted.push(self.members.remove(&leaf).unwrap().0);
        messages
    }

    /// Gives the messages to all members. With `faults` one in five is lost, some are reordered, and old ones come again.
    fn deliver(&mut self, messages: &[RekeyMessage], faults: bool) {
        for leaf in self.members.keys().copied().collect::<Vec<_>>() {
            let mut heard: Vec<_> = messages.iter().filter(|it| it.to.is_none_or(|to| to == leaf)).cloned().collect();
            if faults {
                heard.retain(|_| self.draw(5) > 0);
                for _ in 0..2 {
                    let at = self.draw(heard.len() + 1);
                    let of = self.draw(self.history.len() + 1);
                    heard.extend(self.history.get(of).cloned());
                    let end = heard.len();
                    if at < end {
                        heard.swap(at, end - 1);
                    }
                }
            }
            let (path, checks) = self.members.get_mut(&leaf).unwrap();
            for message in heard {
                assert!(message.bytes.len() <= MAX_MESSAGE);
                let key = checks.then(|| self.signer.public_key());
                let _ = path.open(&mut self.crypto, key, &message.bytes);
            }
            if path.epoch() != self.tree.epoch() {
                assert!(faults, "a member without losses has all that it needs");
                path.catch_up(&self.tree.admit::<HostCrypto>(leaf).unwrap().admission()).unwrap();
                self.caught_up += 1;
            }
            let expected = self.tree.master_secret::<HostCrypto>();
            assert_eq!(path.master_secret::<HostCrypto>().expose(), expected.expose());
        }
        for path in &mut self.evicted {
            let before = path.epoch();
            for message in messages.iter().chain(&self.history) {
                let opened = path.open(&mut self.crypto, Some(self.signer.public_key()), &message.bytes);
                assert!(!matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch)), "an evicted member opened a message");
            }
            assert_eq!(path.epoch(), before);
        }
        self.history.extend_from_slice(messages);
    }

    /// One change of the group.
    fn step(&mut self, faults: bool) {
        let messages = match self.draw(3) {
            0 => {
                let checks = self.draw(4) > 0;
                match self.join(checks) {
                    Ok((leaf, messages)) => {
                        self.deliver(&messages, faults);
                        return self.admit(leaf, checks);
                    }
                    Err(refused) => return assert_eq!(refused, Refused::Full),
                }
            }
            1 if !self.members.is_empty() => {
                let at = self.draw(self.members.len());
                let leaf = *self.members.keys().nth(at).unwrap();
                self.evict(leaf)
            }
            _ => self.rekey(),
        };
        self.deliver(&messages, faults);
    }
}

#[test]
fn current_members_have_the_keys_and_evicted_ones_do_not() {
    let mut caught_up = 0;
    for seed in 0..2000 {
        let mut world = World::new(seed, (seed % 17) as u32, 20);
        for _ in 0..12 {
            world.step(seed % 4 > 0);
        }
        caught_up += world.caught_up;
    }
    assert!(caught_up > 1000, "losses had no effect");
}

/// A node message that a member makes: with the key `by`, or without a signature.
fn forged(world: &mut World, (leaf, node): (u32, u32), new: &Secret<16>, by: Option<&SoftwareKey>) -> Vec<u8> {
    let admitted = world.tree.admit::<HostCrypto>(leaf).unwrap();
    let admission = admitted.admission();
    let below = (leaf.ilog2() - node.ilog2()) as usize;
    assert_eq!(leaf >> below, node, "the forger has this secret");
    let place = Place { epoch: world.tree.epoch() + 1, under: node, up: 1 };
    let sign = |digest: &[u8; 32], out: &mut [u8; 72]| {
        let signature = by.unwrap().sign_digest(digest).ok()?;
        out.get_mut(..signature.len())?.copy_from_slice(&signature);
        Some(signature.len())
    };
    let sign = by.map(|_| &sign as &dyn Fn(&_, &mut _) -> _);
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    let key = Secret::new(admission.path[below]);
    seal_node(&mut world.crypto, admission.group, place, (&key, new), sign, &mut writer).unwrap();
    writer.written().to_vec()
}

/// Opens a message at the member with this leaf.
fn open(world: &mut World, leaf: u32, message: &[u8]) -> Result<Rekeyed, Discard> {
    let (path, _) = world.members.get_mut(&leaf).unwrap();
    path.open(&mut world.crypto, Some(world.signer.public_key()), message)
}

#[test]
fn a_member_cannot_forge_node_keys() {
    // The member 16 gives the others below node 4 a secret that its evicted friend knows.
    let friend = Secret::new([66; 16]);
    let (forger, victim, node) = (16, 18, 4);
    let other = software_key();
    let mut world = World::new(1, 16, 20);
    let unsigned = forged(&mut world, (forger, node), &friend, None);
    let by_another = forged(&mut world, (forger, node), &friend, Some(&other));
    assert_eq!(open(&mut world, victim, &unsigned), Err(Discard::NotAuthentic));
    assert_eq!(open(&mut world, victim, &by_another), Err(Discard::NotAuthentic));
    let messages = world.rekey();
    world.deliver(&messages, false);
    // With the key of the controller the same message does what the forger wants: nothing else stops it.
    let controller = std::mem::replace(&mut world.signer, software_key());
    let genuine = forged(&mut world, (forger, node), &friend, Some(&controller));
    world.signer = controller;
    assert_eq!(open(&mut world, victim, &genuine), Ok(Rekeyed::Nodes));
}

#[test]
fn a_member_cannot_begin_an_epoch() {
    let mut world = World::new(2, 16, 20);
    let admitted = world.tree.admit::<HostCrypto>(16).unwrap();
    let admission = admitted.admission();
    let root = Secret::new(*admission.path.last().unwrap());
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    let secrets = (&root, &Secret::new([66; 32]));
    seal_epoch(&mut world.crypto, admission.group, (admission.epoch + 1, admission.chain), secrets, &mut writer)
        .unwrap();
    assert_eq!(open(&mut world, 18, writer.written()), Err(Discard::NotAuthentic));
}

#[test]
fn an_evicted_member_with_all_old_keys_opens_nothing() {
    let mut world = World::new(3, 16, 20);
    let old = world.tree.admit::<HostCrypto>(20).unwrap();
    let messages = world.evict(20);
    // Its old keys, as those of every member in turn that could be meant.
    let mut opened = 0;
    for message in &messages {
        let mut path = Keys::new(&old.admission()).unwrap();
        opened += usize::from(matches!(
            path.open(&mut world.crypto, Some(world.signer.public_key()), &message.bytes),
            Ok(Rekeyed::Nodes | Rekeyed::Epoch)
        ));
    }
    assert_eq!(opened, 0);
    let parent = parent_of::<HostCrypto>(old.admission().group, &Secret::new(old.admission().path[0]));
    let new = world.tree.admit::<HostCrypto>(21).unwrap();
    assert!(new.admission().path[1..].iter().all(|secret| secret != parent.expose()));
    assert!(new.admission().path[1..].iter().all(|secret| !old.admission().path.contains(secret)));
    world.deliver(&messages, false);
}

#[test]
fn an_old_rekey_message_replayed_takes_no_member_back() {
    let mut world = World::new(10, 16, 40);
    for leaf in 17..20 {
        let messages = world.evict(leaf);
        world.deliver(&messages, false);
        let messages = world.rekey();
        world.deliver(&messages, false);
    }
    for message in world.history.clone() {
        assert_eq!(open(&mut world, 16, &message.bytes), Err(Discard::Replayed));
    }
    let expected = world.tree.master_secret::<HostCrypto>();
    assert_eq!(world.members[&16].0.master_secret::<HostCrypto>().expose(), expected.expose());
}

#[test]
fn a_gap_of_the_hash_chain_is_not_bridged() {
    // The member misses an epoch whose messages were periodic, so it still has the secret of the root.
    let mut world = World::new(11, 16, 20);
    let missed = world.rekey();
    let next = world.rekey();
    assert_eq!(open(&mut world, 16, &next[0].bytes), Ok(Rekeyed::Missed));
    assert_eq!(world.members[&16].0.epoch(), 1);
    assert_eq!(open(&mut world, 16, &missed[0].bytes), Ok(Rekeyed::Epoch));
    assert_eq!(open(&mut world, 16, &next[0].bytes), Ok(Rekeyed::Epoch));
}

#[test]
fn an_epoch_rolled_back_by_an_old_admission_is_refused() {
    let mut world = World::new(12, 16, 20);
    let old = world.tree.admit::<HostCrypto>(16).unwrap();
    let messages = world.rekey();
    world.deliver(&messages, false);
    let (keys, _) = world.members.get_mut(&16).unwrap();
    assert_eq!(keys.catch_up(&old.admission()), Err(BadAssociation::Epoch));
    let expected = world.tree.master_secret::<HostCrypto>();
    assert_eq!(keys.master_secret::<HostCrypto>().expose(), expected.expose());
}

#[test]
fn a_joiner_has_no_secret_of_an_epoch_before() {
    let mut world = World::new(4, 8, 20);
    let before = world.tree.admit::<HostCrypto>(16).unwrap();
    let (leaf, messages) = world.join(true).unwrap();
    world.deliver(&messages, false);
    let joined = world.tree.admit::<HostCrypto>(leaf).unwrap();
    assert!(joined.admission().path.iter().all(|secret| !before.admission().path.contains(secret)));
    assert_eq!(joined.admission().epoch, before.admission().epoch + 1);
}

#[test]
fn an_eviction_has_one_encrypted_key_a_level_or_one_a_member_pairwise() {
    let members = 1000;
    let mut crypto = HostCrypto::new([5; 32], 0);
    let signer = software_key();
    let mut tree = KeyTree::new(&mut crypto, 10, 9, members);
    let change = tree.evict(&mut crypto, 1024 + 500).unwrap();
    tree.apply(change);
    let messages = tree.messages(&mut crypto, Some(&signer)).unwrap();
    assert_eq!(messages.len(), 10 + 1, "one for each level, and that of the epoch");
    assert!(messages.iter().all(|it| it.bytes.len() <= MAX_MESSAGE));
    assert_eq!(messages.iter().filter(|it| it.to.is_some()).count(), 1, "the neighbour's has no signature");
    let change = tree.evict(&mut crypto, 1024 + 501).unwrap();
    tree.apply(change);
    let messages = tree.messages(&mut crypto, None).unwrap();
    assert_eq!(messages.len(), 998 + 1);
}

/// Bytes of the frame that takes a rekey message from `source` to the group, with its checksum.
fn frame_len(message: &[u8], source: LinkAddress, flood: bool) -> usize {
    let prefix = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut ip = prefix;
    ip[8..].copy_from_slice(&source.interface_id().unwrap());
    let group = [0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3];
    let end = |ip| Address { ip, port: 5684, scope: 0 };
    let headers = ip::headers(&Path { local: end(ip), remote: end(group) }, 64, message).unwrap();
    let packet = [&headers[..], message].concat();
    let contexts = [Context { id: 0, prefix, len: 64 }];
    let hop = Hop { source, destination: LinkAddress::BROADCAST };
    let mut out = [0; 256];
    let compressed = Compressed::of(&packet, &hop, &contexts).unwrap();
    let rest = [compressed.bytes(), &packet[compressed.replaces..]].concat();
    let header = Header { hops_left: 4, originator: source, destination: LinkAddress::BROADCAST, sequence: 1 };
    let rest = if flood { write_flooded(&header, &rest, &mut out).unwrap() } else { &rest };
    frame::Header::data(PanId(9), source, LinkAddress::BROADCAST, 1).len() + rest.len() + frame::FCS_LEN
}

#[test]
fn each_rekey_message_fits_one_radio_frame() {
    let mut world = World::new(8, 12, 20);
    let mut messages = Vec::new();
    messages.extend(world.join(false).unwrap().1);
    messages.extend(world.evict(18));
    messages.extend(world.rekey());
    let lens: BTreeSet<_> = messages.iter().map(|it| it.bytes.len()).collect();
    assert_eq!(lens, BTreeSet::from([39, 83, MAX_MESSAGE]), "pairwise, epoch, signed");
    let (short, extended) = (LinkAddress::Short(1), LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]));
    for message in &messages {
        for (source, flood) in [(short, false), (short, true), (extended, false)] {
            let len = frame_len(&message.bytes, source, flood);
            assert!(len <= frame::MAX_LEN, "{len} bytes from {source:?}, flooded: {flood}");
        }
    }
}

#[test]
fn joins_and_periodic_epochs_leave_some_for_evictions() {
    let mut world = World::new(9, 16, 40);
    let reserved = world.tree.epochs_reserved();
    assert_eq!(reserved, 4);
    while world.tree.epochs_left() > reserved {
        let messages = world.rekey();
        world.deliver(&messages, false);
    }
    assert_eq!(world.tree.rekey().err(), Some(Refused::LastEpoch));
    let messages = world.evict(17);
    world.deliver(&messages, false);
    assert_eq!(world.join(true).err(), Some(Refused::LastEpoch), "an attacker that joins and leaves uses them up");
    for leaf in 18..18 + reserved as u32 - 1 {
        let messages = world.evict(leaf);
        world.deliver(&messages, false);
    }
    assert_eq!(world.tree.epochs_left(), 0);
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut world = World::new(6, 16, 2);
    assert_eq!(world.join(true).err(), Some(Refused::Full));
    assert_eq!(world.tree.evict(&mut world.crypto, 5).err(), Some(Refused::NoMember));
    assert_eq!(world.tree.epochs_left(), 1);
    let messages = world.evict(17);
    world.deliver(&messages, false);
    assert_eq!(world.tree.epochs_left(), 0);
    assert_eq!(world.tree.evict(&mut world.crypto, 17).err(), Some(Refused::NoMember));
    assert_eq!(world.tree.evict(&mut world.crypto, 18).err(), Some(Refused::LastEpoch));
    assert_eq!(world.tree.rekey().err(), Some(Refused::LastEpoch));
    assert!(world.tree.admit::<HostCrypto>(18).is_ok());
    assert_eq!(world.tree.epoch(), 2);
}
