//! Tests of deleted groups, and of the reports of changes for an operator.

use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, member, rows, wait};
use tegmen::crypto::SignatureScheme;
use tegmen_control::group::{GroupConfig, GroupError, GroupHappened, NewMember};
use tegmen_store::{Revision, Store};
use tegmen_trust::x509::signer::{Signer as _, SoftwareKey};

#[test]
fn a_deleted_group_is_gone_and_the_next_one_of_its_name_has_other_secrets() {
    let scene = Scene::new("deleted");
    let mut devices = Devices::new();
    let database = scene.database();
    let store = Counting::new(database.clone(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store));
    wait(one.create(LAMPS, config(), &[member("hall", 1, true), member("porch", 3, false)])).unwrap();
    wait(one.admit(LAMPS, &member("switch", 5, true))).unwrap();
    for name in ["hall", "porch", "switch"] {
        devices.admit(&one, name);
    }
    let read = wait(other.show(LAMPS)).unwrap();
    devices.hear(&one, &wait(one.rekey(LAMPS)).unwrap());
    let refused = wait(one.delete(LAMPS, Some(read.revision))).unwrap_err();
    assert!(matches!(refused, GroupError::Outdated(_)), "{refused}");
    let read = wait(other.show(LAMPS)).unwrap();
    wait(one.delete(LAMPS, Some(read.revision))).unwrap();
    assert_eq!(rows(&database), Vec::<String>::new());
    for controller in [&one, &other] {
        assert!(matches!(wait(controller.show(LAMPS)), Err(GroupError::NoGroup(_))));
        assert!(matches!(wait(controller.parameters(LAMPS, "hall")), Err(GroupError::NoGroup(_))));
        assert!(matches!(wait(controller.rekey(LAMPS)), Err(GroupError::NoGroup(_))));
        assert!(matches!(wait(controller.delete(LAMPS, None)), Err(GroupError::NoGroup(_))));
    }
    // The members of the deleted group read nothing of the next one.
    for name in ["hall", "porch", "switch"] {
        devices.evict(name);
    }
    wait(one.create(LAMPS, config(), &[member("attic", 7, false)])).unwrap();
    devices.admit(&one, "attic");
    let next = wait(other.show(LAMPS)).unwrap();
    assert!(next.identity != read.identity && next.epoch == 1);
    // Epoch 2 had other messages in the deleted group. The recorder finds no nonce twice.
    devices.hear(&other, &wait(other.rekey(LAMPS)).unwrap());
    devices.hear(&one, &wait(one.rekey(LAMPS)).unwrap());
}

/// The other controller has the deleted group in its memory, so it checks a proof for the scheme of that group.
#[test]
fn a_key_for_the_scheme_of_a_deleted_group_is_not_admitted_to_the_next_group() {
    let scene = Scene::new("deleted-scheme");
    let devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store));
    let signed = |scheme| GroupConfig { signature: Some(scheme), ..config() };
    let (before, after) = (SignatureScheme::ED25519, SignatureScheme::ECDSA_SECP256R1_SHA256);
    let with_key = |name: &str, host, scheme| {
        let key = SoftwareKey::draw(scheme).unwrap().0;
        NewMember { public_key: Some(key.public_key().to_vec()), ..member(name, host, true) }
    };
    wait(one.create(LAMPS, signed(before), &[])).unwrap();
    wait(other.admit(LAMPS, &with_key("hall", 1, before))).unwrap();
    wait(one.delete(LAMPS, None)).unwrap();
    wait(one.create(LAMPS, signed(after), &[])).unwrap();
    assert_eq!(wait(other.signature(LAMPS)).unwrap(), Some(before), "from its memory");
    let refused = wait(other.admit(LAMPS, &with_key("hall", 1, before))).unwrap_err();
    assert!(matches!(refused, GroupError::OtherCredential(_)), "{refused}");
    assert_eq!(wait(one.show(LAMPS)).unwrap().size, 0);
    assert_eq!(wait(other.signature(LAMPS)).unwrap(), Some(after), "the next proof is for the next group");
    wait(other.admit(LAMPS, &with_key("hall", 1, after))).unwrap();
}

#[test]
fn rows_that_a_failure_leaves_of_a_deleted_group_are_deleted_later() {
    let scene = Scene::new("deleted-partly");
    let devices = Devices::new();
    // The transactions create, admit and delete; then the power is cut.
    let controller = devices.controller(Counting::new(scene.database(), Some((3, Moment::BeforeCommit))));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    wait(controller.admit(LAMPS, &member("hall", 1, true))).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    drop(controller);
    let database = scene.database();
    assert_eq!(rows(&database).len(), 2, "the member and the mark: {:?}", rows(&database));
    let controller = devices.controller(Counting::new(database.clone(), None));
    assert!(matches!(wait(controller.show(LAMPS)), Err(GroupError::NoGroup(_))));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    assert_eq!(rows(&database), Vec::<String>::new());
}

#[test]
fn a_group_is_deleted_whole_or_not_at_all() {
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        let scene = Scene::new(&format!("deleted-{moment:?}"));
        let devices = Devices::new();
        let controller = devices.controller(Counting::new(scene.database(), Some((1, moment))));
        wait(controller.create(LAMPS, config(), &[])).unwrap();
        assert!(matches!(wait(controller.delete(LAMPS, None)), Err(GroupError::Store(_))));
        drop(controller);
        let controller = devices.controller(Counting::new(scene.database(), None));
        let shown = wait(controller.show(LAMPS));
        match moment {
            Moment::BeforeCommit => assert_eq!(shown.unwrap().epoch, 1),
            _ => assert!(matches!(shown, Err(GroupError::NoGroup(_)))),
        }
    }
}

#[test]
fn each_change_is_told_once_and_with_the_name_of_the_group() {
    let scene = Scene::new("happened");
    let devices = Devices::new();
    let database = scene.database();
    let controller = devices.controller(Counting::new(database.clone(), None));
    // Names that look like rows of another kind.
    wait(controller.create("head", config(), &[member("hall", 1, false)])).unwrap();
    let config = GroupConfig { last_epoch: 9, group_id: Some(5), ..config() };
    wait(controller.create(LAMPS, config, &[])).unwrap();
    wait(controller.admit(LAMPS, &member("switch", 3, true))).unwrap();
    wait(controller.replica(LAMPS, "north")).unwrap();
    wait(controller.retire(LAMPS, "north")).unwrap();
    wait(controller.evict(LAMPS, "switch")).unwrap();
    wait(controller.rekey("head")).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    let changes = database.changes(b"", Revision(0), 1000).wait().unwrap().changes;
    let happened: Vec<GroupHappened> =
        changes.chunk_by(|one, next| one.revision == next.revision).flat_map(GroupHappened::of).collect();
    let group = || LAMPS.to_owned();
    let head = || "head".to_owned();
    let epoch = |group, epoch, epochs_left| GroupHappened::Epoch { group, epoch, epochs_left };
    assert!(matches!(&happened[0], GroupHappened::Created { group, .. } if group == "head"), "{happened:?}");
    assert!(
        matches!(&happened[2], GroupHappened::Admitted { name, member, .. }
            if name == "switch" && member.sender_id == Some(0) && member.since == 2),
        "{happened:?}"
    );
    assert_eq!(happened[1], GroupHappened::Created { group: group(), config });
    assert_eq!(
        happened[3..],
        [
            epoch(group(), 2, 7),
            epoch(group(), 3, 6),
            GroupHappened::Left { group: group(), name: "switch".to_owned() },
            epoch(group(), 4, 5),
            epoch(head(), 2, 98),
            GroupHappened::Deleted { group: group() },
        ]
    );
}
