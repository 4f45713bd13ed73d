//! Attacks on the rekeying of a group, one in each test. An attack succeeds against a mutant, which is an
//! implementation with a fault, and fails against Tegmen.

use crate::scene::{Action, Mutant, Scene, Violation};
use crate::world::{Keys, World, software_key};
use tegmen::axiom::rekey::{MAX_MESSAGE, Place, master_secret, parent_of, seal_epoch, seal_node};
use tegmen::axiom::{Admission, BadAssociation, Rekeyed, Suite};
use tegmen::buf::Writer;
use tegmen::crypto::{Crypto, digest, hmac};
use tegmen::cx::Discard;
use tegmen::secret::Secret;
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

/// A member with a fault: it accepts each message that begins an epoch and whose tag is right under the secret of the
/// tree's root. All members have this secret. The members in the paper about Axiom have the same fault, because some
/// rekey messages of the paper are protected only by a key that the whole group has.
struct Trusting {
    group: [u8; 16],
    root: [u8; 16],
    epoch: u16,
    secret: [u8; 32],
}

impl Trusting {
    fn new(admission: &Admission<'_>) -> Self {
        let Admission { group, epoch, secret, path, .. } = *admission;
        Self { group: *group, root: *path.last().unwrap(), epoch, secret: *secret }
    }

    fn hear(&mut self, crypto: &mut HostCrypto, message: &[u8]) {
        let code = hmac::<HostCrypto, 32>(&[&self.root], &[b"axiom root", &self.group]);
        let nonce = [&[0; 4][..], &message[..7], &[0]].concat();
        let (aad, body) = message.split_at(35);
        let (body, tag) = body.split_at(32);
        let (mut secret, nonce) = (body.to_vec(), &nonce[..12]);
        if crypto.open(HostCrypto::AES_128_CCM, &code[..16], nonce, aad, &mut secret, tag).is_ok() {
            self.epoch = u16::from_be_bytes([message[1], message[2]]);
            self.secret.copy_from_slice(&secret);
        }
    }
}

/// Makes the faulty member at this leaf.
fn trusting(world: &World, leaf: u32) -> Trusting {
    Trusting::new(&world.tree.admit::<HostCrypto>(leaf).unwrap().admission())
}

/// Forges the message that begins the epoch `epoch`, with the keys of the member at this leaf. `secret` is the secret
/// of the new epoch, which the forger chose.
fn forged_epoch(world: &mut World, leaf: u32, (epoch, secret): (u16, [u8; 32])) -> Vec<u8> {
    let admitted = world.tree.admit::<HostCrypto>(leaf).unwrap();
    let Admission { group, chain, path, .. } = admitted.admission();
    let root = Secret::new(*path.last().unwrap());
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    seal_epoch(&mut world.crypto, group, (epoch, chain), (&root, &Secret::new(secret)), &mut writer).unwrap();
    writer.written().to_vec()
}

/// Forges a message with the new secret `new` for the parent of `node`, with the keys of the member at this leaf. The
/// message is signed with the key `by`, or is not signed.
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

/// Opens a message at the member at this leaf.
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
    // The mutant takes the signature of anybody. It has the secret of the friend then, and no message of the controller opens.
    let mut world = World::new(1, 16, 20);
    let by_another = forged(&mut world, (forger, node), &friend, Some(&other));
    let (mutant, _) = world.members.get_mut(&victim).unwrap();
    assert_eq!(mutant.open(&mut world.crypto, Some(other.public_key()), &by_another), Ok(Rekeyed::Nodes));
    let genuine = world.rekey();
    assert_eq!(open(&mut world, victim, &genuine[0].bytes), Ok(Rekeyed::Missed), "the mutant is shut out");

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
fn a_rekey_forged_by_a_member_begins_no_epoch() {
    let mut world = World::new(2, 16, 20);
    let forged = forged_epoch(&mut world, 16, (2, [66; 32]));
    let mut mutant = trusting(&world, 18);
    mutant.hear(&mut world.crypto, &forged);
    assert_eq!((mutant.epoch, mutant.secret), (2, [66; 32]), "the mutant has the secret of the forger");

    assert_eq!(open(&mut world, 18, &forged), Err(Discard::NotAuthentic));
    assert_eq!(world.members[&18].0.epoch(), 1);
    let messages = world.rekey();
    world.deliver(&messages, false);
}

#[test]
fn an_evicted_member_with_all_old_keys_opens_nothing() {
    // The mutant evicts by a new epoch alone, which the paper has for periodic renewal.
    let mut world = World::new(3, 16, 20);
    let old = world.tree.admit::<HostCrypto>(20).unwrap();
    let message = world.rekey().remove(0);
    let mut evicted = Keys::new(&old.admission()).unwrap();
    let opened = evicted.open(&mut world.crypto, Some(world.signer.public_key()), &message.bytes);
    assert_eq!(opened, Ok(Rekeyed::Epoch));
    let expected = world.tree.master_secret::<HostCrypto>();
    assert_eq!(evicted.master_secret::<HostCrypto>().expose(), expected.expose(), "it reads on");

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
    // Periodic epochs keep the secret of the root, so an old message has a right tag.
    let mut world = World::new(10, 16, 40);
    let mut mutant = trusting(&world, 16);
    let messages: Vec<_> = (0..3).flat_map(|_| world.rekey()).collect();
    messages.iter().for_each(|message| mutant.hear(&mut world.crypto, &message.bytes));
    assert_eq!(mutant.epoch, 4);
    mutant.hear(&mut world.crypto, &messages[0].bytes);
    assert_eq!(mutant.epoch, 2, "the mutant goes back");
    for message in &messages {
        assert_eq!(open(&mut world, 16, &message.bytes), Ok(Rekeyed::Epoch));
    }
    for message in &messages {
        assert_eq!(open(&mut world, 16, &message.bytes), Err(Discard::Replayed));
    }

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
    // A member forges the message of the epoch after the next one. A mutant that takes it without the elements between has the
    // secret of the forger.
    let mut world = World::new(11, 16, 20);
    let forged = forged_epoch(&mut world, 17, (3, [66; 32]));
    let mut mutant = trusting(&world, 16);
    mutant.hear(&mut world.crypto, &forged);
    assert_eq!((mutant.epoch, mutant.secret), (3, [66; 32]));

    assert_eq!(open(&mut world, 16, &forged), Ok(Rekeyed::Missed));
    // The member misses an epoch whose messages were periodic, so it still has the secret of the root.
    let missed = world.rekey();
    let next = world.rekey();
    assert_eq!(open(&mut world, 16, &next[0].bytes), Ok(Rekeyed::Missed));
    assert_eq!(world.members[&16].0.epoch(), 1);
    assert_eq!(open(&mut world, 16, &missed[0].bytes), Ok(Rekeyed::Epoch));
    assert_eq!(open(&mut world, 16, &forged), Err(Discard::NotAuthentic));
    assert_eq!(open(&mut world, 16, &next[0].bytes), Ok(Rekeyed::Epoch));
}

#[test]
fn hole_5_a_secret_of_an_epoch_reveals_no_older_one() {
    let hash = |secret: &[u8; 32]| digest::<HostCrypto, 32>(&[secret]);
    // In the paper the secret of an epoch is the next element of the reversed chain: its hash is the secret before.
    let in_epoch_3 = [7; 32];
    let in_epoch_2 = hash(&in_epoch_3);
    let (mut before, joiner) = (in_epoch_2, in_epoch_3);
    assert_eq!(hash(&joiner), before, "a member that joins in epoch 3 reads all of epoch 2");
    before = hash(&before);
    assert_eq!(hash(&hash(&joiner)), before);

    // Ours: what a member of epoch 3 has, hashed in each way that it can be, is no secret of epoch 2.
    let mut world = World::new(13, 16, 20);
    let _ = world.rekey();
    let of_2 = world.tree.master_secret::<HostCrypto>();
    let _ = world.rekey();
    let admitted = world.tree.admit::<HostCrypto>(16).unwrap();
    let Admission { group, epoch, chain, secret, .. } = admitted.admission();
    let link = tegmen::axiom::rekey::link::<HostCrypto>(group, epoch, chain, &Secret::new(*secret));
    for known in [*secret, *chain, link, hash(secret), hash(chain), hash(&link)] {
        let master = master_secret::<HostCrypto>(group, 2, &Secret::new(known));
        assert_ne!(master.expose(), of_2.expose());
    }
    let own = master_secret::<HostCrypto>(group, 3, &Secret::new(*secret));
    assert_eq!(own.expose(), world.tree.master_secret::<HostCrypto>().expose());
}

#[test]
fn an_epoch_rolled_back_by_an_old_admission_is_refused() {
    let mut world = World::new(12, 16, 20);
    let old = world.tree.admit::<HostCrypto>(16).unwrap();
    let of_1 = world.tree.master_secret::<HostCrypto>();
    let messages = world.rekey();
    world.deliver(&messages, false);
    // The mutant forgets its epoch when it asks the controller.
    let mutant = Keys::new(&old.admission()).unwrap();
    assert_eq!(mutant.master_secret::<HostCrypto>().expose(), of_1.expose());

    let (keys, _) = world.members.get_mut(&16).unwrap();
    assert_eq!(keys.catch_up(&old.admission()), Err(BadAssociation::Epoch));
    let expected = world.tree.master_secret::<HostCrypto>();
    assert_eq!(keys.master_secret::<HostCrypto>().expose(), expected.expose());
}

/// An attacker joins with the credentials of a member. The controller then gives the keys of this new admission to the
/// attacker, and also to the member. If the member accepted these keys, the member and the attacker would number their
/// records from 0 under the same key.
#[test]
fn keys_of_an_admission_by_an_attacker_are_refused() {
    let mut world = World::new(14, 16, 20);
    let renewed = world.tree.renew(&mut world.crypto, 16, true).unwrap();
    world.tree.apply(renewed);
    let of_attacker = world.tree.admit::<HostCrypto>(16).unwrap();
    // The mutant takes all keys that the controller gives: it seals with those of the attacker.
    let mutant = Keys::new(&of_attacker.admission()).unwrap();
    let (mutant, attacker) = (mutant.master_secret::<HostCrypto>(), world.tree.master_secret::<HostCrypto>());
    assert_eq!(mutant.expose(), attacker.expose());

    let (keys, _) = world.members.get_mut(&16).unwrap();
    assert_eq!(keys.catch_up(&of_attacker.admission()), Err(BadAssociation::Admission));
    assert_eq!(keys.epoch(), 1);
    let (others, _) = world.members.get_mut(&17).unwrap();
    assert_eq!(others.catch_up(&world.tree.admit::<HostCrypto>(17).unwrap().admission()), Ok(()));
}

#[test]
fn a_member_that_reboots_without_storage_begins_in_a_new_epoch() {
    let scene = |mutant| Scene::new((1, Suite::Ccm, mutant), (1, 2, 8), None);
    // The mutant begins with number 0 again, in the same epoch.
    let mut mutant = scene(Mutant::NoStorage);
    let reboot = [Action::Ask(0), Action::Restart(0), Action::Ask(0)];
    let repeated = Violation("a key and a nonce were used for two contents".to_owned());
    assert_eq!(reboot.map(|action| mutant.act(action)), [Ok(true), Ok(true), Err(repeated)]);

    // Ours joins again, and the group has a new epoch. Its earlier request is refused.
    let mut group = scene(Mutant::None);
    for action in [Action::Ask(0), Action::Join(0), Action::Ask(0)] {
        assert_eq!(group.act(action), Ok(true));
    }
    let (before, now) = (0, group.sent.len() - 1);
    for at in group.rekeying(1) {
        assert_eq!(group.act(Action::Deliver(at, 1)), Ok(true));
    }
    assert_eq!((group.devices[0].epoch(), group.devices[1].epoch()), (2, 2));
    assert_eq!(group.act(Action::Deliver(before, 1)), Ok(false));
    assert_eq!(group.act(Action::Deliver(now, 1)), Ok(true));
    // With storage it continues in the same epoch.
    for action in [Action::Restart(0), Action::Ask(0)] {
        assert_eq!(group.act(action), Ok(true));
    }
    assert_eq!(group.devices[0].epoch(), 2);
}
