//! Tests of changes of a group, and of their messages.

use crate::world::{World, software_key};
use std::collections::BTreeSet;
use tegmen::address::{Address, Path};
use tegmen::axiom::rekey::MAX_MESSAGE;
use tegmen_control::group::{KeyTree, Refused};
use tegmen_lowpan::flood::Header;
use tegmen_lowpan::frame::{self, LinkAddress, PanId};
use tegmen_lowpan::iphc::{Compressed, Context, Hop};
use tegmen_lowpan::{ip, write_flooded};
use tegmen_trust::provider::HostCrypto;

#[test]
fn current_members_have_the_keys_and_evicted_ones_do_not() {
    let mut caught_up = 0;
    for seed in 0..500 {
        let mut world = World::new(seed, (seed % 17) as u32, 20);
        for _ in 0..12 {
            world.step(seed % 4 > 0);
        }
        caught_up += world.caught_up;
    }
    assert!(caught_up > 250, "losses had no effect");
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

#[test]
fn members_that_join_together_get_no_message() {
    let mut world = World::new(7, 8, 20);
    let joining: Vec<_> = world.tree.free_leaves(1).map(|leaf| (leaf, true)).collect();
    assert_eq!(joining.len(), 8, "the other half of the tree");
    let change = world.tree.admit_all(&mut world.crypto, &joining).unwrap();
    let messages = world.make(change);
    assert_eq!(messages.len(), 2, "one for the half that has members, and that of the epoch");
    world.deliver(&messages, false);
    joining.into_iter().for_each(|(leaf, checks)| world.admit(leaf, checks));
    let messages = world.evict(20);
    world.deliver(&messages, false);
}

/// Returns the length in bytes of the frame that carries a rekey message from `source` to the group, including the
/// checksum.
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
