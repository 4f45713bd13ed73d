//! A member of a group whose tree of keys has four leaves. The member gets rekey messages from its controller and from
//! another member, and garbage.

use proptest::prelude::*;
use tegmen::axiom::rekey::{MAX_MESSAGE, Place, link, master_secret, parent_of, seal_epoch, seal_node};
use tegmen::axiom::{Admission, BadAssociation, KeyPath, Rekeyed};
use tegmen::buf::Writer;
use tegmen::crypto::{RustCrypto, curves};
use tegmen::cx::Discard;
use tegmen::secret::Secret;

const GROUP: [u8; 16] = [7; 16];
const CONTROLLER: [u8; 32] = [9; 32];
/// The secrets of the leaf 4, of the node 2 and of the root.
const PATH: [[u8; 16]; 3] = [[4; 16], [2; 16], [1; 16]];
const LEAF: u32 = 4;

fn crypto() -> RustCrypto {
    RustCrypto::new([1; 32])
}

fn public_key() -> [u8; 91] {
    curves::public_key_of(&CONTROLLER).unwrap()
}

/// Returns the secret of an epoch.
fn secret(epoch: u16) -> Secret<32> {
    Secret::new([epoch as u8; 32])
}

/// Returns the element of the hash chain for an epoch up to 5.
fn chain(epoch: u16) -> [u8; 32] {
    if epoch == 5 {
        return [5; 32];
    }
    link::<RustCrypto>(&GROUP, epoch + 1, &chain(epoch + 1), &secret(epoch + 1))
}

fn member(epoch: u16) -> KeyPath<4> {
    try_member(epoch, LEAF, &PATH).unwrap()
}

fn try_member(epoch: u16, leaf: u32, path: &[[u8; 16]]) -> Result<KeyPath<4>, BadAssociation> {
    let (chain, secret) = (chain(epoch), secret(epoch));
    KeyPath::new(&Admission { group: &GROUP, epoch, chain: &chain, secret: secret.expose(), leaf, path })
}

/// Returns a node message. It is signed with the private key `by`, if `by` is `Some`.
fn node(by: Option<&[u8; 32]>, place: Place, under: [u8; 16], new: [u8; 16]) -> Vec<u8> {
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    let sign = |digest: &[u8; 32], out: &mut [u8; 72]| curves::sign(by.unwrap(), digest, out).ok();
    let sign = by.map(|_| &sign as &dyn Fn(&_, &mut _) -> _);
    let secrets = (&Secret::new(under), &Secret::new(new));
    seal_node(&mut crypto(), &GROUP, place, secrets, sign, &mut writer).unwrap();
    writer.written().to_vec()
}

fn epoch(epoch: u16, root: [u8; 16], secret: &Secret<32>) -> Vec<u8> {
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    let root = &Secret::new(root);
    seal_epoch(&mut crypto(), &GROUP, (epoch, &chain(epoch)), (root, secret), &mut writer).unwrap();
    writer.written().to_vec()
}

fn open(member: &mut KeyPath<4>, message: &[u8]) -> Result<Rekeyed, Discard> {
    member.open(&mut crypto(), Some(&public_key()), message)
}

#[test]
fn one_message_rekeys_all_members_periodically() {
    let mut member = member(1);
    assert_eq!(open(&mut member, &epoch(2, PATH[2], &secret(2))), Ok(Rekeyed::Epoch));
    assert_eq!(member.epoch(), 2);
    let expected = master_secret::<RustCrypto>(&GROUP, 2, &secret(2));
    assert_eq!(member.master_secret::<RustCrypto>().expose(), expected.expose());
}

#[test]
fn a_node_message_replaces_all_secrets_above_it() {
    // The neighbour at leaf 5 leaves: the message is under our leaf. Then one at node 3 leaves: it is under node 2.
    let mut member = member(1);
    let new = Secret::new([20; 16]);
    let message = node(None, Place { epoch: 2, under: LEAF, up: 1 }, PATH[0], *new.expose());
    assert_eq!(open(&mut member, &message), Ok(Rekeyed::Nodes));
    assert_eq!(
        open(&mut member, &epoch(2, PATH[2], &secret(2))),
        Ok(Rekeyed::Missed),
        "the old root is no key any more"
    );
    let root = parent_of::<RustCrypto>(&GROUP, &new);
    assert_eq!(open(&mut member, &epoch(2, *root.expose(), &secret(2))), Ok(Rekeyed::Epoch));
    let message = node(Some(&CONTROLLER), Place { epoch: 3, under: 2, up: 1 }, *new.expose(), [30; 16]);
    assert_eq!(message.len(), MAX_MESSAGE);
    assert_eq!(open(&mut member, &message), Ok(Rekeyed::Nodes));
    assert_eq!(open(&mut member, &epoch(3, [30; 16], &secret(3))), Ok(Rekeyed::Epoch));
}

#[test]
fn a_node_message_under_a_common_secret_needs_the_signature_of_the_controller() {
    let place = Place { epoch: 2, under: 2, up: 1 };
    let genuine = node(Some(&CONTROLLER), place, PATH[1], [30; 16]);
    let by_member = node(Some(&[8; 32]), place, PATH[1], [30; 16]);
    let unsigned = node(None, place, PATH[1], [30; 16]);
    let mut member = member(1);
    assert_eq!(open(&mut member, &by_member), Err(Discard::NotAuthentic));
    assert_eq!(open(&mut member, &unsigned), Err(Discard::NotAuthentic));
    assert_eq!(member.open(&mut crypto(), None, &genuine), Err(Discard::Unexpected), "no key of the controller");
    for at in 0..genuine.len() {
        let mut spoiled = genuine.clone();
        spoiled[at] ^= 1;
        assert!(!matches!(open(&mut member, &spoiled), Ok(Rekeyed::Nodes | Rekeyed::Epoch)), "byte {at}");
    }
    assert_eq!(open(&mut member, &epoch(2, [30; 16], &secret(2))), Ok(Rekeyed::Missed), "no forgery was kept");
    assert_eq!(open(&mut member, &genuine), Ok(Rekeyed::Nodes));
}

#[test]
fn the_hash_chain_refuses_another_secret_an_old_epoch_and_a_gap() {
    let mut member = member(2);
    assert_eq!(open(&mut member, &epoch(3, PATH[2], &Secret::new([99; 32]))), Err(Discard::NotAuthentic));
    assert_eq!(open(&mut member, &epoch(2, PATH[2], &secret(2))), Err(Discard::Replayed));
    assert_eq!(open(&mut member, &epoch(1, PATH[2], &secret(1))), Err(Discard::Replayed));
    assert_eq!(open(&mut member, &epoch(4, PATH[2], &secret(4))), Ok(Rekeyed::Missed), "nothing is bridged");
    assert_eq!(member.epoch(), 2);
    assert_eq!(open(&mut member, &epoch(3, PATH[2], &secret(3))), Ok(Rekeyed::Epoch));
}

#[test]
fn a_member_that_was_kept_goes_on_where_it_was() {
    let mut member = member(1);
    let message = node(Some(&CONTROLLER), Place { epoch: 2, under: 2, up: 1 }, PATH[1], [30; 16]);
    assert_eq!(open(&mut member, &message), Ok(Rekeyed::Nodes));
    assert_eq!(open(&mut member, &epoch(2, [30; 16], &secret(2))), Ok(Rekeyed::Epoch));
    let mut path = [[0; 16]; 4];
    let kept = member.admission(&mut path);
    assert_eq!(
        (kept.epoch, kept.leaf, kept.path.len()),
        (2, LEAF, PATH.len()),
        "no more nodes than the tree has levels"
    );
    let mut again = KeyPath::<4>::new(&kept).unwrap();
    assert_eq!(open(&mut again, &message), Err(Discard::Replayed));
    assert_eq!(open(&mut again, &epoch(3, [30; 16], &secret(3))), Ok(Rekeyed::Epoch));
    let expected = master_secret::<RustCrypto>(&GROUP, 3, &secret(3));
    assert_eq!(again.master_secret::<RustCrypto>().expose(), expected.expose());
}

#[test]
fn a_node_message_again_is_dropped_before_its_signature_is_checked() {
    let message = node(Some(&CONTROLLER), Place { epoch: 2, under: 2, up: 1 }, PATH[1], [30; 16]);
    let mut member = member(1);
    assert_eq!(open(&mut member, &message), Ok(Rekeyed::Nodes));
    let other = curves::public_key_of(&[8; 32]).unwrap();
    let again = member.open(&mut crypto(), Some(&other), &message);
    assert_eq!(again, Err(Discard::Replayed), "a check of the signature fails with this key");
    assert_eq!(open(&mut member, &epoch(2, [30; 16], &secret(2))), Ok(Rekeyed::Epoch));
}

#[test]
fn an_admission_must_fit_its_leaf_and_never_goes_back() {
    assert_eq!(try_member(1, 0, &PATH).err(), Some(BadAssociation::Suite));
    assert_eq!(try_member(1, LEAF, &PATH[..2]).err(), Some(BadAssociation::Suite));
    assert_eq!(try_member(1, 16, &[[0; 16]; 5]).err(), Some(BadAssociation::Suite), "longer than the space");
    assert_eq!(try_member(0, LEAF, &PATH).err(), Some(BadAssociation::Epoch));
    let mut member = member(2);
    let (chain, secret) = (chain(1), secret(1));
    let old = Admission { group: &GROUP, epoch: 1, chain: &chain, secret: secret.expose(), leaf: LEAF, path: &PATH };
    assert_eq!(member.catch_up(&old), Err(BadAssociation::Epoch));
    let other = Admission { group: &[8; 16], epoch: 3, ..old };
    assert_eq!(member.catch_up(&other), Err(BadAssociation::Epoch));
    assert_eq!(member.epoch(), 2);
}

#[test]
fn keys_of_another_admission_of_a_member_are_refused() {
    let mut member = member(1);
    let (chain, secret) = (chain(3), secret(3));
    let own = Admission { group: &GROUP, epoch: 3, chain: &chain, secret: secret.expose(), leaf: LEAF, path: &PATH };
    // The leaf has another secret, or the member has another leaf.
    let again = Admission { path: &[[5; 16], PATH[1], PATH[2]], ..own };
    let elsewhere = Admission { leaf: LEAF + 1, ..own };
    for other in [again, elsewhere] {
        assert_eq!(member.catch_up(&other), Err(BadAssociation::Admission));
        assert_eq!(member.epoch(), 1);
    }
    // Nodes above the leaf have other secrets after changes of other members.
    assert_eq!(member.catch_up(&Admission { path: &[PATH[0], [6; 16], [7; 16]], ..own }), Ok(()));
    assert_eq!(member.epoch(), 3);
}

proptest! {
    #[test]
    fn garbage_changes_nothing(mut bytes in prop::collection::vec(any::<u8>(), 0..128), kind in 0_u8..5, level in any::<u8>()) {
        let mut member = member(1);
        if let [first, high, low, up, node @ .., ] = bytes.as_mut_slice() {
            (*first, *high, *low, *up) = (kind, 0, 2, level);
            for byte in node.iter_mut().take(2) {
                *byte = 0;
            }
        }
        prop_assert!(!matches!(open(&mut member, &bytes), Ok(Rekeyed::Nodes | Rekeyed::Epoch)));
        prop_assert_eq!(open(&mut member, &epoch(2, PATH[2], &secret(2))), Ok(Rekeyed::Epoch));
    }
}
