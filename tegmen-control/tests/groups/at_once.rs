//! Tests of members that join a group at the same time.

use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, member, wait};
use crate::recorder::Recording;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use tegmen_control::group::{Controller, GroupConfig, GroupError, NewMember, Rekeying};
use tokio::task::JoinSet;

type Joined = [Result<Rekeying, GroupError>; 4];

/// Creates a group with two members. One of them does not check signatures. `cut` is the number of the transaction at
/// which the database has a fault, and the kind of the fault; `None` for no fault. Returns the directory of the
/// database, the devices of the group, and the controller.
fn group(name: &str, cut: Option<(usize, Moment)>) -> (Scene, Devices, Controller<Counting, Recording>) {
    let (scene, mut devices) = (Scene::new(name), Devices::new());
    let controller = devices.controller(Counting::new(scene.database(), cut));
    wait(controller.create(LAMPS, config(), &[member("hall", 1, false), member("porch", 2, true)])).unwrap();
    devices.admit(&controller, "hall");
    devices.admit(&controller, "porch");
    (scene, devices, controller)
}

/// Begins an epoch, and admits four members at the same time. Returns the messages of this epoch, and the result for
/// each member.
fn join(controller: &Controller<Counting, Recording>, new: [NewMember; 4]) -> (Rekeying, Joined) {
    let [a, b, c, d] = &new;
    wait(async {
        let (rekeying, a, b, c, d) = tokio::join!(
            controller.rekey(LAMPS),
            controller.add(LAMPS, a),
            controller.admit(LAMPS, b),
            controller.admit(LAMPS, c),
            controller.admit(LAMPS, d)
        );
        (rekeying.unwrap(), [a, b, c, d])
    })
}

const NAMES: [&str; 4] = ["attic", "cellar", "hall", "stairs"];

/// Returns four members to be admitted: three new ones, and `hall`, which joins again.
fn new() -> [NewMember; 4] {
    let [attic, cellar, hall, stairs] = NAMES;
    [member(attic, 3, true), member(cellar, 4, true), member(hall, 1, false), member(stairs, 5, false)]
}

#[test]
fn members_that_join_at_once_share_an_epoch() {
    let (_scene, mut devices, controller) = group("at-once", None);
    let (first, joined) = join(&controller, new());
    devices.open(&first);
    let joined = joined.map(Result::unwrap);
    assert_eq!((first.epoch, joined.each_ref().map(|rekeying| rekeying.epoch)), (2, [3; 4]));
    let [told] = joined.iter().filter(|rekeying| !rekeying.messages.is_empty()).collect::<Vec<_>>()[..] else {
        panic!("the result of one of them has the messages")
    };
    devices.evict("hall");
    devices.hear(&controller, told);
    NAMES.iter().for_each(|name| devices.admit(&controller, name));
    devices.hear(&controller, &wait(controller.rekey(LAMPS)).unwrap());
    // Each of them leaves as if it had joined alone.
    for name in NAMES {
        devices.evict(name);
        devices.hear(&controller, &wait(controller.evict(LAMPS, name)).unwrap());
    }
}

#[test]
fn the_messages_of_members_that_joined_at_once_are_made_again_after_a_power_cut() {
    // The transactions before create the group and begin the epoch 2.
    let (scene, mut devices, controller) = group("at-once-cut", Some((2, Moment::BeforeAnswer)));
    let (first, joined) = join(&controller, new());
    devices.open(&first);
    assert!(joined.iter().all(|result| matches!(result, Err(GroupError::Store(_)))), "{joined:?}");
    drop(controller);
    let controller = devices.controller(Counting::new(scene.database(), None));
    assert_eq!(wait(controller.show(LAMPS)).unwrap().members.len(), 5);
    devices.evict("hall");
    devices.hear(&controller, &wait(controller.messages(LAMPS)).unwrap());
    devices.hear(&controller, &wait(controller.messages(LAMPS)).unwrap());
    NAMES.iter().for_each(|name| devices.admit(&controller, name));
    devices.evict("porch");
    devices.hear(&controller, &wait(controller.evict(LAMPS, "porch")).unwrap());
}

#[test]
fn a_member_that_is_refused_keeps_no_other_out() {
    let (_scene, mut devices, controller) = group("at-once-refused", None);
    let new =
        [member("hall", 9, false), member("attic", 3, false), member("cellar", 3, false), member("stairs", 5, false)];
    let (first, [taken, attic, cellar, stairs]) = join(&controller, new);
    devices.open(&first);
    assert!(matches!(taken, Err(GroupError::MemberTaken { .. })), "{taken:?}");
    assert!(matches!(&cellar, Err(GroupError::AddressTaken { member, .. }) if member == "attic"), "{cellar:?}");
    let (attic, stairs) = (attic.unwrap(), stairs.unwrap());
    assert_eq!((attic.epoch, stairs.epoch), (3, 3));
    devices.hear(&controller, &attic);
    // Eight leaves.
    for number in 10..14 {
        wait(controller.admit(LAMPS, &member(&number.to_string(), number, false))).unwrap();
    }
    let full = [20, 21, 22, 23].map(|number| member(&number.to_string(), number, false));
    let (_, joined) = join(&controller, full);
    assert!(joined.iter().all(|result| matches!(result, Err(GroupError::Refused(_)))), "{joined:?}");
}

#[test]
fn more_members_than_a_transaction_takes_join_in_several_epochs() {
    let (scene, devices) = (Scene::new("at-once-many"), Devices::new());
    let controller = Arc::new(devices.controller(Counting::new(scene.database(), None)));
    wait(controller.create(LAMPS, GroupConfig { levels: 8, ..config() }, &[])).unwrap();
    wait(async {
        let mut all = JoinSet::new();
        for host in 0..200 {
            let controller = Arc::clone(&controller);
            all.spawn(async move { controller.admit(LAMPS, &member(&host.to_string(), host, false)).await });
        }
        while let Some(joined) = all.join_next().await {
            joined.unwrap().unwrap();
        }
    });
    let report = wait(controller.show(LAMPS)).unwrap();
    assert_eq!(report.members.len(), 200);
    assert!((3..12).contains(&report.epoch), "{}", report.epoch);
}

#[test]
fn an_admission_to_a_group_in_memory_reads_no_row() {
    let (scene, devices) = (Scene::new("no-row"), Devices::new());
    let store = Counting::new(scene.database(), None);
    let controller = devices.controller(store.clone());
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    wait(controller.show(LAMPS)).unwrap();
    let before = store.reads.load(Ordering::Relaxed);
    assert_eq!(wait(controller.signature(LAMPS)).unwrap(), None);
    let epoch = wait(controller.add(LAMPS, &member("attic", 3, true))).unwrap().epoch;
    assert_eq!(wait(controller.admitted(LAMPS, "attic", epoch)).unwrap().epoch, epoch);
    assert_eq!(store.reads.load(Ordering::Relaxed), before);
}

#[test]
fn the_keys_of_an_admission_do_not_wait_for_the_next_change() {
    // The transactions before create the group and admit a member. The store never answers the third one.
    let (_scene, _, controller) = group("no-wait", Some((2, Moment::NoAnswer)));
    let epoch = wait(controller.admit(LAMPS, &member("attic", 3, true))).unwrap().epoch;
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut change = Box::pin(controller.rekey(LAMPS));
    assert!(change.as_mut().poll(&mut cx).is_pending());
    let mut signature = Box::pin(controller.signature(LAMPS));
    assert!(signature.as_mut().poll(&mut cx).is_ready());
    let mut keys = Box::pin(controller.admitted(LAMPS, "attic", epoch));
    let Poll::Ready(keys) = keys.as_mut().poll(&mut cx) else { panic!("the group in memory has the admission") };
    assert_eq!(keys.unwrap().epoch, epoch, "the store has not confirmed the next epoch");
    // A call that reads the rows of the group, and a second change, wait for the change.
    let mut report = Box::pin(controller.show(LAMPS));
    let mut eviction = Box::pin(controller.evict(LAMPS, "hall"));
    assert!(report.as_mut().poll(&mut cx).is_pending() && eviction.as_mut().poll(&mut cx).is_pending());
    drop((change, report));
    // The change is durable. The next call reads it from the store.
    assert_eq!(wait(eviction).unwrap().epoch, epoch + 2);
}

#[test]
fn an_admission_gives_its_keys_once() {
    let (_scene, _, controller) = group("once", None);
    let first = wait(controller.admit(LAMPS, &member("attic", 3, true))).unwrap().epoch;
    assert_eq!(wait(controller.admitted(LAMPS, "attic", first)).unwrap().epoch, first);
    // A later epoch without an admission of this member changes nothing.
    let second = wait(controller.rekey(LAMPS)).unwrap().epoch;
    assert_eq!(wait(controller.admitted(LAMPS, "attic", first)).unwrap().epoch, second);
    let third = wait(controller.admit(LAMPS, &member("attic", 3, true))).unwrap().epoch;
    let refused = wait(controller.admitted(LAMPS, "attic", first)).err();
    assert!(matches!(refused, Some(GroupError::AdmittedAgain { .. })), "{refused:?}");
    assert!(wait(controller.admitted(LAMPS, "attic", third)).is_ok());
}

#[test]
fn a_join_that_is_dropped_while_it_waits_admits_nobody() {
    let (_scene, _, controller) = group("dropped", None);
    let (attic, cellar) = (member("attic", 3, true), member("cellar", 4, true));
    wait(async {
        let mut change = Box::pin(controller.rekey(LAMPS));
        let mut dropped = Box::pin(controller.admit(LAMPS, &attic));
        // The change is under way, and the join waits for it.
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(change.as_mut().poll(&mut cx).is_pending() && dropped.as_mut().poll(&mut cx).is_pending());
        drop(dropped);
        change.await.unwrap();
        controller.admit(LAMPS, &cellar).await.unwrap();
    });
    let report = wait(controller.show(LAMPS)).unwrap();
    let names: Vec<_> = report.members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cellar", "hall", "porch"]);
}
