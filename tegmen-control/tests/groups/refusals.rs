//! Tests that bad input gives a defined error, whose message names the next step.

use super::world::{Counting, Devices, LAMPS, Scene, config, member, wait};
use crate::recorder::Recording;
use std::sync::Arc;
use tegmen_control::group::{Controller, GroupConfig, GroupError, NewMember, Refused};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{SignError, SignatureScheme, Signer};

/// A signing key that cannot sign at the moment.
struct Busy;

impl Signer for Busy {
    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256
    }

    fn public_key(&self) -> &[u8] {
        &[]
    }

    fn sign_digest(&self, _: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        Err(SignError("the TPM does not answer".to_owned()))
    }
}

fn controller(scene: &Scene, devices: &Devices) -> Controller<Counting, Recording> {
    devices.controller(Counting::new(scene.database(), None))
}

#[test]
fn a_full_group_and_used_up_sender_ids_are_refused() {
    let scene = Scene::new("full");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    let config = GroupConfig { levels: 2, senders: 2, ..config() };
    let first: Vec<NewMember> = (1..4).map(|host| member(&format!("m{host}"), host, host < 3)).collect();
    wait(controller.create(LAMPS, config, &first)).unwrap();
    let refused = wait(controller.admit(LAMPS, &member("m4", 4, true))).unwrap_err();
    assert!(matches!(refused, GroupError::NoSenderId(2)), "{refused}");
    assert!(refused.to_string().contains("evict a member that sends"));
    assert!(matches!(wait(controller.replica(LAMPS, "north")), Err(GroupError::NoSenderId(2))));
    wait(controller.admit(LAMPS, &member("m4", 4, false))).unwrap();
    let refused = wait(controller.admit(LAMPS, &member("m5", 5, false))).unwrap_err();
    assert!(matches!(refused, GroupError::Refused(Refused::Full)), "{refused}");
    assert_eq!(wait(controller.show(LAMPS)).unwrap().epoch, 2, "a refused change begins no epoch");
    // An eviction gives back both.
    wait(controller.evict(LAMPS, "m1")).unwrap();
    wait(controller.admit(LAMPS, &member("m5", 5, true))).unwrap();
}

#[test]
fn a_listener_has_an_address_of_its_own() {
    let scene = Scene::new("address");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    wait(controller.create(LAMPS, config(), &[member("hall", 1, false)])).unwrap();
    let refused = wait(controller.admit(LAMPS, &member("porch", 1, false))).unwrap_err();
    assert!(matches!(&refused, GroupError::AddressTaken { member, .. } if member == "hall"), "{refused}");
    wait(controller.admit(LAMPS, &member("hall", 1, true))).unwrap();
    wait(controller.evict(LAMPS, "hall")).unwrap();
    wait(controller.admit(LAMPS, &member("porch", 1, false))).unwrap();
}

#[test]
fn a_listener_has_an_address_of_the_family_of_its_group() {
    let scene = Scene::new("family");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    let at =
        |name: &str, address: &str| NewMember { address: Some(address.parse().unwrap()), ..member(name, 1, false) };
    let is_other = |refused: Result<_, GroupError>| matches!(refused, Err(GroupError::OtherFamily { .. }));
    assert!(is_other(wait(controller.create(LAMPS, config(), &[at("hall", "10.0.0.1")]))));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    for address in ["10.0.0.1", "::ffff:10.0.0.1"] {
        assert!(is_other(wait(controller.admit(LAMPS, &at("hall", address))).map(drop)), "{address}");
    }
    let fourth = GroupConfig { address: "239.1.1.1:5684".parse().unwrap(), ..config() };
    wait(controller.create("fourth", fourth, &[at("hall", "10.0.0.1")])).unwrap();
    assert!(is_other(wait(controller.admit("fourth", &at("porch", "fd00::1"))).map(drop)));
    let mapped = wait(controller.admit("fourth", &at("porch", "::ffff:10.0.0.1")));
    assert!(matches!(mapped, Err(GroupError::AddressTaken { .. })), "the same address");
}

#[test]
fn a_member_that_is_added_is_a_new_one() {
    let scene = Scene::new("added");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    wait(controller.create(LAMPS, config(), &[member("hall", 1, false)])).unwrap();
    let before = wait(controller.show(LAMPS)).unwrap();
    let refused = wait(controller.add(LAMPS, &member("hall", 1, false))).unwrap_err();
    assert!(matches!(refused, GroupError::MemberTaken { .. }), "{refused}");
    assert!(refused.to_string().contains("evict it before"), "{refused}");
    assert_eq!(wait(controller.show(LAMPS)).unwrap(), before, "no epoch began");
    assert_eq!(wait(controller.add(LAMPS, &member("porch", 3, true))).unwrap().epoch, 2);
}

#[test]
fn a_report_tells_what_a_group_lacks() {
    let scene = Scene::new("lacks");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    let config = GroupConfig { levels: 1, senders: 1, last_epoch: 12, ..config() };
    wait(controller.create(LAMPS, config, &[member("hall", 1, false)])).unwrap();
    let lacks = || wait(controller.show(LAMPS)).unwrap().lacks(LAMPS);
    assert_eq!(lacks(), Vec::<String>::new());
    wait(controller.add(LAMPS, &member("switch", 3, true))).unwrap();
    assert!(
        matches!(lacks().as_slice(), [full, ids] if full.contains("full") && ids.contains("SenderIDs")),
        "{:?}",
        lacks()
    );
    while wait(controller.rekey(LAMPS)).unwrap().warning.is_none() {}
    assert!(lacks()[0].contains("the group lamps has 2 more epochs, the last 1 for evictions only"), "{:?}", lacks());
}

#[test]
fn members_are_shown_in_pages() {
    let scene = Scene::new("pages");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    let members: Vec<NewMember> = (1..6).map(|host| member(&format!("m{host}"), host, host == 2)).collect();
    wait(controller.create(LAMPS, config(), &members)).unwrap();
    let names = |after: Option<&str>, most: usize| {
        let report = wait(controller.page(LAMPS, after, most)).unwrap();
        assert_eq!((report.size, report.sender_ids), (5, 1));
        report.members.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 2), ["m1", "m2"]);
    assert_eq!(names(Some("m2"), 9), ["m3", "m4", "m5"]);
    assert_eq!(names(Some("m5"), 9), Vec::<String>::new());
}

#[test]
fn a_chain_near_its_end_warns_and_keeps_epochs_for_evictions() {
    let scene = Scene::new("chain");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    let config = GroupConfig { last_epoch: 20, ..config() };
    wait(controller.create(LAMPS, config, &[member("hall", 1, false), member("porch", 3, false)])).unwrap();
    let mut warned = 0;
    let refused = loop {
        match wait(controller.rekey(LAMPS)) {
            Ok(rekeying) => warned += usize::from(rekeying.warning.is_some()),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, GroupError::Refused(Refused::LastEpoch)), "{refused}");
    assert!(refused.to_string().contains("create a new group"));
    assert_eq!(warned, 3, "each change from the double reserve on warns");
    assert!(matches!(wait(controller.admit(LAMPS, &member("attic", 5, false))), Err(GroupError::Refused(_))));
    assert!(wait(controller.evict(LAMPS, "hall")).unwrap().warning.unwrap().contains("create a new group"));
    wait(controller.evict(LAMPS, "porch")).unwrap();
}

#[test]
fn an_eviction_is_made_also_while_nothing_can_be_signed() {
    let scene = Scene::new("unsigned");
    let mut devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let busy = Controller::with(
        store.clone(),
        Some(Arc::new(Busy)),
        Recording::new(&devices.seals, HostCrypto::from_os().unwrap()),
    );
    let members: Vec<NewMember> = (1..8).map(|host| member(&format!("m{host}"), host, false)).collect();
    wait(busy.create(LAMPS, config(), &members)).unwrap();
    let signing = devices.controller(store);
    for new in &members {
        devices.admit(&signing, &new.name);
    }
    let refused = wait(busy.evict(LAMPS, "m3")).unwrap_err();
    assert!(matches!(refused, GroupError::NotSigned), "{refused}");
    devices.evict("m3");
    devices.hear(&signing, &wait(signing.messages(LAMPS)).unwrap());
}

#[test]
fn names_and_configurations_are_checked() {
    let scene = Scene::new("names");
    let devices = Devices::new();
    let controller = controller(&scene, &devices);
    for name in ["", "a/b", ".hidden", "a b", &"x".repeat(65)] {
        assert!(matches!(wait(controller.create(name, config(), &[])), Err(GroupError::Name(_))), "{name}");
        assert!(matches!(wait(controller.show(name)), Err(GroupError::NoGroup(_))), "{name}");
    }
    for wrong in [
        GroupConfig { address: "10.0.0.1:5684".parse().unwrap(), ..config() },
        GroupConfig { address: "[ff15::1]:0".parse().unwrap(), ..config() },
        GroupConfig { levels: 24, ..config() },
        GroupConfig { last_epoch: 1, ..config() },
        GroupConfig { senders: 0, ..config() },
        GroupConfig { senders: 257, ..config() },
    ] {
        assert!(matches!(wait(controller.create(LAMPS, wrong, &[])), Err(GroupError::Config(_))), "{wrong:?}");
    }
    let refused =
        wait(controller.create(LAMPS, GroupConfig { group_id: Some(0), ..config() }, &[])).unwrap_err().to_string();
    assert!(refused.contains("GroupID 0") && refused.contains("a GroupID from 1 to 255"), "{refused}");
    let twice = [member("hall", 1, false), member("hall", 2, false)];
    assert!(matches!(wait(controller.create(LAMPS, config(), &twice)), Err(GroupError::Name(_))));
    let nine: Vec<NewMember> = (1..10).map(|host| member(&format!("m{host}"), host, false)).collect();
    assert!(matches!(wait(controller.create(LAMPS, config(), &nine)), Err(GroupError::Refused(Refused::Full))));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    assert!(matches!(wait(controller.create(LAMPS, config(), &[])), Err(GroupError::NameTaken(_))));
    assert!(matches!(wait(controller.evict(LAMPS, "hall")), Err(GroupError::NoMember { .. })));
    assert!(matches!(wait(controller.evict("lamp", "hall")), Err(GroupError::NoGroup(_))));
    assert!(matches!(wait(controller.admit(LAMPS, &member("tag:hall", 1, false))), Err(GroupError::Name(_))));
    wait(controller.create("lamp", config(), &[])).unwrap();
    assert_eq!(wait(controller.list(None, 1)).unwrap(), ["lamp"]);
    assert_eq!(wait(controller.list(Some("lamp"), 9)).unwrap(), [LAMPS]);
}
