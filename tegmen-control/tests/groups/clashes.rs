//! Tests of clashes: a member reports that two devices use one SenderID, and the controller ends this.

use super::server::{World, admitted, join, post};
use super::world::config;
use tegmen::axiom::{BadAssociation, KeyPath, Rekeyed};
use tegmen::coap::Code;
use tegmen_control::group::{Controller, GroupError};
use tegmen_host::client::Session;
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupKeys, GroupcommError};
use tegmen_host::problem::{self, Problem};
use tegmen_trust::provider::HostCrypto;

const PATH: &str = "/ace-group/lamps";
const CLASH: &str = "/ace-group/lamps/clash";

/// Reports that two devices have used a SenderID in an epoch. Returns the code of the response.
async fn report(session: &Session, epoch: u16, sender: u8) -> Code {
    let payload = minicbor::to_vec((epoch, sender)).unwrap();
    session.post(CLASH, &payload).content_format(GROUPCOMM_CBOR).await.unwrap().code
}

async fn epoch(world: &World) -> u16 {
    world.controller.show("lamps").await.unwrap().epoch
}

/// Passes the messages that the controller sent to a member. Returns the last result.
fn follow(world: &World, keys: &GroupKeys, path: &mut KeyPath<8>) -> Option<Rekeyed> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let sent = world.sent.lock().unwrap();
    let opened = sent.iter().map(|message| path.open(crypto, keys.controller.as_deref(), &message.bytes).ok());
    opened.last().flatten()
}

#[tokio::test]
async fn a_clash_ends_with_another_sender_id_for_the_device_that_joins_again() {
    let world = World::new("clash", config(), false).await;
    let (switch, hall) = (world.device("switch").await, world.device("hall").await);
    let (keys, node) = admitted(&post(&switch, PATH, &join(1, true)).await);
    let (of_hall, _) = admitted(&post(&hall, PATH, &join(2, false)).await);
    let now = hall.get(PATH).await.unwrap();
    let (mut lamp, current) =
        (KeyPath::<8>::new(&of_hall.admission()).unwrap(), GroupKeys::parse(&now.payload).unwrap());
    // A program and a copy of it have the keys of the switch.
    let current_of_switch = GroupKeys::parse(&switch.get(PATH).await.unwrap().payload).unwrap();
    let mut twins = [(); 2].map(|()| KeyPath::<8>::new(&current_of_switch.admission()).unwrap());
    assert_eq!((keys.sender_id, current.epoch), (Some(0), 3));

    world.sent.lock().unwrap().clear();
    assert_eq!(report(&hall, 3, 0).await, Code::CHANGED);
    assert!(
        world.logged("hall reports two devices with the SenderID 0 in the group lamps: switch gets another SenderID")
    );
    // The lamp follows, and none of the two devices does.
    assert_eq!(follow(&world, &of_hall, &mut lamp), Some(Rekeyed::Epoch));
    for twin in &mut twins {
        assert_eq!(follow(&world, &keys, twin), Some(Rekeyed::Missed));
    }
    for path in [PATH, &node, "/ace-group/lamps/num"] {
        let refused = switch.get(path).await.unwrap();
        assert_eq!((refused.code, refused.content_format()), (Code::CONFLICT, Some(problem::CONTENT_FORMAT.into())));
        let title = Problem::from_cbor(&refused.payload).unwrap().title;
        assert_eq!(title.as_deref(), Some("Two devices used the SenderID of this member"));
    }
    // The other controllers of the store refuse too.
    let other = Controller::<_, HostCrypto>::new(world.store.database.clone(), None).unwrap();
    assert!(matches!(other.parameters("lamps", "switch").await, Err(GroupError::Clashed { .. })));
    let shown = other.show("lamps").await.unwrap();
    let (_, member) = shown.members.iter().find(|(name, _)| name == "switch").unwrap();
    assert_eq!((member.sender_id, member.since, member.clashed), (Some(1), 4, true));

    // The device that joins again has the other SenderID, and the other device can use its keys no more.
    let again = post(&switch, PATH, &join(1, true)).await;
    let (keys, _) = admitted(&again);
    assert_eq!((again.code, keys.sender_id, keys.epoch), (Code::CHANGED, Some(1), 5));
    assert_eq!(switch.get(PATH).await.unwrap().code, Code::CONTENT);
    for twin in &mut twins {
        assert_eq!(twin.catch_up(&keys.admission()).err(), Some(BadAssociation::Admission));
    }
    let late = admitted(&post(&hall, PATH, &join(2, false)).await).0.late;
    assert_eq!(late, [1], "the SenderID 0 is free");
}

#[tokio::test]
async fn a_report_of_a_clash_that_is_over_changes_nothing() {
    let world = World::new("clash-over", config(), false).await;
    let (switch, hall) = (world.device("switch").await, world.device("hall").await);
    post(&switch, PATH, &join(1, true)).await;
    post(&hall, PATH, &join(2, false)).await;
    let porch = world.device("porch").await;
    post(&porch, PATH, &join(3, false)).await;
    // An epoch that is over, one that never was, and a SenderID that nobody has.
    for (of, sender) in [(0, 0), (3, 0), (5, 0), (260, 0), (4, 1), (4, 255)] {
        assert_eq!(report(&hall, of, sender).await, Code::CHANGED);
        assert_eq!(epoch(&world).await, 4, "epoch {of}, SenderID {sender}");
    }
    // Each listener reports the same clash, and each repeats its report. The lamp is a mote, whose numbers have a fixed
    // length.
    let of_mote = [0x82, 0x19, 0, 4, 0x18, 0];
    assert_eq!(hall.post(CLASH, &of_mote).content_format(GROUPCOMM_CBOR).await.unwrap().code, Code::CHANGED);
    for session in [&hall, &porch, &hall, &porch] {
        assert_eq!(report(session, 4, 0).await, Code::CHANGED);
        assert_eq!(epoch(&world).await, 5);
    }
    assert_eq!(report(&switch, 5, 1).await, Code::CONFLICT, "a device without keys reports nothing");
    assert_eq!(epoch(&world).await, 5);
}

#[tokio::test]
async fn only_members_report_a_clash_and_only_a_few_times() {
    let world = World::new("clash-limit", config(), false).await;
    let (switch, hall, porch) = (world.device("switch").await, world.device("hall").await, world.device("porch").await);
    post(&switch, PATH, &join(1, true)).await;
    // A device that may join, but has not.
    let payload = minicbor::to_vec((2, 0)).unwrap();
    let refused = porch.post(CLASH, &payload).content_format(GROUPCOMM_CBOR).await.unwrap();
    assert_eq!((refused.code, refused.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()));
    let oven = world.device("oven").await;
    let refused = oven.post(CLASH, &payload).content_format(GROUPCOMM_CBOR).await.unwrap();
    assert_eq!((refused.code, refused.payload), (Code::FORBIDDEN, Vec::new()), "a device without rights");
    assert_eq!(hall.get(CLASH).await.unwrap().code, Code::METHOD_NOT_ALLOWED);
    post(&hall, PATH, &join(2, false)).await;
    assert_eq!(hall.post(CLASH, &payload).await.unwrap().code, Code::UNSUPPORTED_CONTENT_FORMAT);
    for payload in [&[][..], &[0x82, 3], &[0x81, 3], &[0x83, 3, 0, 0], &[0x82, 3, 0x19, 1, 0], &[0x82, 0x20, 0]] {
        let refused = hall.post(CLASH, payload).content_format(GROUPCOMM_CBOR).await.unwrap();
        assert_eq!(refused.code, Code::BAD_REQUEST, "{payload:02x?}");
    }
    assert_eq!(epoch(&world).await, 3);
    // The join of the lamp was its first change of the four that it may cause at once.
    for sender in [0, 1, 0] {
        let before = epoch(&world).await;
        assert_eq!(report(&hall, before, sender).await, Code::CHANGED);
        assert_eq!(epoch(&world).await, before + 1);
        // The SenderID that the switch will have when it joins again, and that no device has before.
        assert_eq!(report(&hall, before + 1, 1 - sender).await, Code::CHANGED);
        assert_eq!(epoch(&world).await, before + 1);
        assert_eq!(post(&switch, PATH, &join(1, true)).await.code, Code::CHANGED);
    }
    let before = epoch(&world).await;
    assert_eq!(report(&hall, before, 1).await, Code::TOO_MANY_REQUESTS);
    assert_eq!((epoch(&world).await, before), (9, 9));
    // Another member may report it.
    post(&porch, PATH, &join(3, false)).await;
    assert_eq!(report(&porch, 10, 1).await, Code::CHANGED);
    assert_eq!(epoch(&world).await, 11);
}

/// The report of a clash needs no evidence. The joins to which the reports of others force a member are not counted as
/// its own joins.
#[tokio::test]
async fn reports_of_clashes_do_not_use_up_the_joins_of_the_member() {
    let world = World::new("clash-forced", config(), false).await;
    let (switch, hall, porch) = (world.device("switch").await, world.device("hall").await, world.device("porch").await);
    let mut id = admitted(&post(&switch, PATH, &join(1, true)).await).0.sender_id.unwrap();
    post(&hall, PATH, &join(2, false)).await;
    post(&porch, PATH, &join(3, false)).await;
    for reporter in [&hall, &hall, &hall, &porch, &porch, &porch] {
        let before = epoch(&world).await;
        assert_eq!(report(reporter, before, id).await, Code::CHANGED);
        assert_eq!(epoch(&world).await, before + 1);
        let again = post(&switch, PATH, &join(1, true)).await;
        assert_eq!(again.code, Code::CHANGED);
        id = admitted(&again).0.sender_id.unwrap();
    }
    // The first join of the switch was the only one that counts.
    for code in [Code::CHANGED, Code::CHANGED, Code::CHANGED, Code::TOO_MANY_REQUESTS] {
        assert_eq!(post(&switch, PATH, &join(1, true)).await.code, code);
    }
}
