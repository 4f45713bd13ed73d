//! Tests the member of the image `axiom_member`, compiled for this machine. The member joins, serves requests, and
//! requests its keys again after a missed message. Its messages must be those of `tegmen_host::group::groupcomm`.

#[path = "../../firmware/src/asking.rs"]
pub mod asking;
#[path = "../../firmware/src/axiom_controller.rs"]
pub mod axiom_controller;
#[path = "../../firmware/src/axiom_datagrams.rs"]
pub mod axiom_datagrams;
#[path = "../../firmware/src/axiom_group.rs"]
pub mod axiom_group;
#[path = "../../firmware/src/axiom_keys.rs"]
pub mod axiom_keys;
#[path = "../../firmware/src/axiom_listener.rs"]
pub mod axiom_listener;
#[path = "../../firmware/src/axiom_member.rs"]
pub mod axiom_member;
#[path = "../../firmware/src/axiom_provisioned.rs"]
pub mod axiom_provisioned;
#[path = "../../firmware/src/lamp.rs"]
pub mod lamp;
#[path = "pages/mod.rs"]
mod pages;

use asking::{REQUEST_LEN, write};
use axiom_controller::{Controller, LONGEST};
use axiom_group::{ADDRESS, CONTROLLER, LISTENER, Provisioning, SENDER, listener, member};
use axiom_keys::{parse, write_join};
use axiom_member::{GROUP, GROUPCOMM_CBOR, GroupMember, JOIN_LEN, OUT_LEN, PATH};
use axiom_provisioned::Provisioned;
use pages::Pages;
use tegmen::address::Path;
use tegmen::axiom::{Member, Suite};
use tegmen::buf::Writer;
use tegmen::crypto::Compact as Provider;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_flash::Kept;
use tegmen_host::group::groupcomm::{self, GroupKeys, JoinRequest};

/// Returns the controller's message with these parameters for an epoch.
fn keys(provisioning: &Provisioning<'_>, epoch: u16, secret: u8) -> GroupKeys {
    let Provisioning { association, admission, senders } = provisioning;
    GroupKeys {
        group: *admission.group,
        group_id: association.group_id,
        address: (association.group.ip, association.group.port),
        suite: association.suite,
        senders: association.senders,
        sender_id: association.sender_id,
        own_address: association.address,
        late: senders.to_vec(),
        epoch,
        chain: *admission.chain,
        secret: Secret::new([secret; 32]),
        randoms: [*association.client_random, *association.server_random],
        leaf: admission.leaf,
        path: admission.path.to_vec().into(),
        controller: None,
        signature: None,
        creds: None,
    }
}

/// Starts a member with this flash memory.
fn start(pages: &Pages) -> GroupMember<Pages> {
    let parts =
        (Box::leak(Box::new(Member::EMPTY)) as &mut _, Provider::new([1; 32]), Kept::open(pages.clone()).unwrap());
    GroupMember::new(NOW, Provider::new([2; 32]), TO_CONTROLLER, parts)
}

/// Lets the member and the controller exchange datagrams until neither sends another datagram. Returns the number of
/// the member's datagrams.
fn speak(member: &mut GroupMember<Pages>, controller: &mut Controller<'_>, now: Instant) -> usize {
    let (mut out, mut back, mut said) = ([0; OUT_LEN], [0; LONGEST], 0);
    while let Some((path, len)) = member.poll(now, &mut out) {
        assert_eq!(path, TO_CONTROLLER);
        said += 1;
        let mut answer_len = controller.receive(now, &mut out[..len], &mut back).unwrap();
        while answer_len > 0 {
            let len = member.handle(now, &TO_CONTROLLER, &mut back[..answer_len], &mut out);
            if len > 0 {
                controller.receive(now, &mut out[..len], &mut back).unwrap();
            }
            answer_len = controller.poll(now, &mut back);
        }
    }
    said
}

/// Passes a datagram that was sent to the group to the member.
fn to_group(member: &mut GroupMember<Pages>, now: Instant, datagram: &[u8]) {
    let path = Path { local: ADDRESS, remote: axiom_group::member(SENDER) };
    assert_eq!(member.handle(now, &path, &mut datagram.to_vec(), &mut [0; OUT_LEN]), 0);
}

/// Returns the response that the member sends when it is due.
fn response(member: &mut GroupMember<Pages>, now: Instant) -> Option<Vec<u8>> {
    let mut out = [0; OUT_LEN];
    let (path, len) = member.poll(now.after_millis(255), &mut out)?;
    assert_eq!(path, Path { local: TO_CONTROLLER.local, remote: axiom_group::member(SENDER) });
    Some(out[..len].to_vec())
}

const NOW: Instant = Instant::from_micros(1);
const TO_CONTROLLER: Path = Path { local: member(LISTENER), remote: member(CONTROLLER) };

#[test]
fn the_image_has_the_keys_that_a_controller_sends() {
    let made = keys(&listener(), 1, 2).encode();
    let rows = made.chunks(16).map(|row| row.iter().map(|byte| format!("0x{byte:02x}, ")).collect::<String>());
    let rows = rows.map(|row| format!("    {}\n", row.trim_end())).collect::<String>();
    let is_current = made.as_slice() == axiom_datagrams::KEYS;
    assert!(is_current, "\npub static KEYS: [u8; {}] = [\n{rows}];\n", made.len());
}

#[test]
fn keys_are_read_as_the_controller_writes_them() {
    for (suite, sender_id) in [(Suite::Ccm, None), (Suite::Ccm8, Some(7))] {
        let mut given = keys(&listener(), 300, 9);
        (given.suite, given.sender_id) = (suite, sender_id);
        given.controller = Some(vec![5; 91]);
        let message = given.encode();
        let Provisioning { association, admission, senders } = parse(&message).unwrap();
        let secret = Secret::new([0; 48]);
        let expected = given.association(300, &secret);
        assert_eq!(
            (association.group_id, association.group, association.suite, association.epoch, association.senders),
            (expected.group_id, expected.group, expected.suite, expected.epoch, expected.senders)
        );
        assert_eq!((association.sender_id, association.address), (expected.sender_id, expected.address));
        assert_eq!(association.client_random, expected.client_random);
        assert_eq!(association.server_random, expected.server_random);
        let expected = given.admission();
        assert_eq!(
            (admission.group, admission.epoch, admission.chain),
            (expected.group, expected.epoch, expected.chain)
        );
        assert_eq!((admission.secret, admission.leaf, admission.path), (expected.secret, expected.leaf, expected.path));
        assert_eq!(senders, given.late);
        for len in 0..message.len() {
            assert!(parse(&message[..len]).is_none(), "cut at {len}");
        }
    }
}

#[test]
fn keys_that_the_image_has_no_space_or_no_cipher_for_are_refused() {
    let refuses = |change: &dyn Fn(&mut GroupKeys)| {
        let mut given = keys(&listener(), 1, 2);
        change(&mut given);
        parse(&given.encode()).is_none()
    };
    assert!(!refuses(&|_| {}));
    assert!(refuses(&|keys| keys.path.push([0; 16])));
    assert!(refuses(&|keys| keys.path.clear()));
    assert!(refuses(&|keys| keys.suite = Suite::MacOnly));
    assert!(refuses(&|keys| keys.suite = Suite::Gcm));
}

#[test]
fn a_changed_byte_of_the_keys_is_read_or_refused() {
    for at in 0..axiom_datagrams::KEYS.len() {
        for byte in 0..=u8::MAX {
            let mut message = axiom_datagrams::KEYS;
            message[at] = byte;
            let _ = parse(&message);
        }
    }
}

#[test]
fn the_request_to_join_is_read_as_it_is_meant() {
    let mut out = [0; JOIN_LEN];
    let mut writer = Writer::new(&mut out);
    write_join(GROUP, &member(LISTENER).ip, &mut writer).unwrap();
    let join = JoinRequest::parse(writer.written()).unwrap();
    let control_uri = Some("coap://[fd00:0db8:0000:0000:0000:00ff:fe00:0002]".to_owned());
    assert_eq!(
        join,
        JoinRequest {
            group: GROUP.into(),
            sends: false,
            control_uri,
            checks_signatures: false,
            ..JoinRequest::default()
        }
    );
    assert_eq!(format!("{}/{GROUP}", groupcomm::GROUPS), PATH);
    assert_eq!(u32::from(groupcomm::GROUPCOMM_CBOR), GROUPCOMM_CBOR);
}

#[test]
fn a_member_joins_serves_and_asks_for_its_keys_after_a_missed_message() {
    let pages = Pages::written();
    let mut joining = start(&pages);
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &axiom_datagrams::KEYS);
    to_group(&mut joining, NOW, &axiom_datagrams::REQUEST);
    assert!(joining.listener().is_none(), "it has no keys");
    assert!(speak(&mut joining, &mut controller, NOW) > 3);
    to_group(&mut joining, NOW, &axiom_datagrams::REQUEST);
    assert!(joining.listener().unwrap().is_on());
    assert_eq!(response(&mut joining, NOW).unwrap(), axiom_datagrams::RESPONSE);
    assert_eq!(speak(&mut joining, &mut controller, NOW), 0, "it has all that it needs");

    // Epoch 3 begins without it. Anybody can send this message, so it asks once a minute.
    let mut of_epoch_3 = axiom_datagrams::EPOCH_MESSAGE;
    of_epoch_3[2] = 3;
    let mut now = NOW.after_millis(61_000);
    for _ in 0..3 {
        to_group(&mut joining, now, &of_epoch_3);
        assert_eq!(speak(&mut joining, &mut controller, now), usize::from(now == NOW.after_millis(61_000)));
        now = now.after_millis(1000);
    }
}

#[test]
fn a_member_catches_up_with_the_keys_of_a_later_epoch() {
    let (first, later) = (keys(&listener(), 1, 2).encode(), keys(&listener(), 3, 4).encode());
    let mut joining = start(&Pages::written());
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &first);
    speak(&mut joining, &mut controller, NOW);
    let mut of_epoch_3 = axiom_datagrams::EPOCH_MESSAGE;
    of_epoch_3[2] = 3;
    controller.set_keys(&later);
    let now = NOW.after_millis(61_000);
    to_group(&mut joining, now, &of_epoch_3);
    assert_eq!(speak(&mut joining, &mut controller, now), 1);
    // The old epoch is over, and its keys open nothing.
    to_group(&mut joining, now, &axiom_datagrams::REQUEST);
    assert!(!joining.listener().unwrap().is_on());
    to_group(&mut joining, now, &of_epoch_3);
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(61_000)), 0, "it is in epoch 3");
}

/// Returns a copy of the sender in epoch 1.
fn copy() -> Provisioned<Pages, 0, 1> {
    let member = Box::leak(Box::new(Member::<0, 1>::EMPTY));
    let kept = Kept::open(Pages::written()).unwrap();
    Provisioned::new(member, Provider::new([4; 32]), &axiom_group::sender(), kept).unwrap()
}

/// Returns the first request of a copy of the sender in the epoch of the copy. The request switches the lamps on if `on`
/// is true. `original` is the request of the sender with the same number, which does the opposite.
fn request_of(mut copy: Provisioned<Pages, 0, 1>, on: bool, original: &[u8]) -> Vec<u8> {
    let mut out = [0; REQUEST_LEN];
    let (number, request) = copy.request(&mut out, |number, frame| write(number, on, None, frame).ok()).unwrap();
    assert_eq!((number, &request[..11]), (0, &original[..11]), "one SenderID, and one number");
    request.to_vec()
}

/// Returns the first request of a copy of the sender in epoch 1.
fn request_of_copy() -> Vec<u8> {
    request_of(copy(), false, &axiom_datagrams::REQUEST)
}

/// Returns a member that has responded to a request of the sender, and its controller.
fn responding() -> (GroupMember<Pages>, Controller<'static>) {
    let mut joining = start(&Pages::written());
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &axiom_datagrams::KEYS);
    speak(&mut joining, &mut controller, NOW);
    to_group(&mut joining, NOW, &axiom_datagrams::REQUEST);
    response(&mut joining, NOW).unwrap();
    (joining, controller)
}

/// Returns a member whose controller refuses its reports of a clash, the controller, and the time. The next report is due
/// after 8 minutes.
fn refused() -> (GroupMember<Pages>, Controller<'static>, Instant) {
    let ((mut joining, mut controller), mut now) = (responding(), NOW);
    for interval in [61_000, 61_000, 61_000, 121_000, 241_000] {
        now = now.after_millis(interval);
        to_group(&mut joining, now, &request_of_copy());
        assert_eq!(speak(&mut joining, &mut controller, now), 1);
    }
    (joining, controller, now)
}

#[test]
fn a_member_reports_two_senders_with_one_sender_id_and_no_replay() {
    let (mut joining, mut controller) = responding();
    // Neither a replay nor a forgery is a clash.
    let of_copy = request_of_copy();
    let mut forged = of_copy.clone();
    *forged.last_mut().unwrap() ^= 1;
    let mut now = NOW.after_millis(61_000);
    for datagram in [&axiom_datagrams::REQUEST[..], &forged, &axiom_datagrams::REQUEST] {
        to_group(&mut joining, now, datagram);
    }
    assert_eq!((speak(&mut joining, &mut controller, now), controller.take_report()), (0, None));
    // The report names the epoch 1 and the SenderID 7.
    to_group(&mut joining, now, &of_copy);
    assert_eq!(speak(&mut joining, &mut controller, now), 1);
    assert_eq!(controller.take_report(), Some([0x82, 0x19, 0, 1, 0x18, 7]));
    assert!(joining.listener().unwrap().is_on(), "the request of the copy has no effect");
    // A peer that repeats the request of the copy causes one report a minute.
    let mut reports = 0;
    for _ in 0..130 {
        to_group(&mut joining, now, &of_copy);
        speak(&mut joining, &mut controller, now);
        reports += usize::from(controller.take_report().is_some());
        now = now.after_millis(1000);
    }
    assert_eq!(reports, 2);
}

#[test]
fn a_report_that_the_controller_refuses_is_repeated_at_longer_intervals() {
    let (mut joining, mut controller) = responding();
    let mut now = NOW.after_millis(61_000);
    // The controller accepts a report, and refuses the next one with 5.03.
    for _ in 0..2 {
        to_group(&mut joining, now, &request_of_copy());
        assert_eq!(speak(&mut joining, &mut controller, now), 1);
        now = now.after_millis(61_000);
    }
    let mut times = Vec::new();
    for second in 0..1500 {
        if speak(&mut joining, &mut controller, now) > 0 {
            times.push(second);
        }
        now = now.after_millis(1000);
    }
    assert_eq!(times, [0, 120, 360, 840, 1320]);
    assert!(controller.take_report().is_some());
    now = now.after_millis(480_000);
    assert_eq!(speak(&mut joining, &mut controller, now), 1);
    assert_eq!(controller.take_report(), Some([0x82, 0x19, 0, 1, 0x18, 7]));
    // The report is answered, and the next one has the shortest interval again.
    for _ in 0..2 {
        to_group(&mut joining, now, &request_of_copy());
        assert_eq!(speak(&mut joining, &mut controller, now.after_millis(59_000)), 0);
        now = now.after_millis(61_000);
        assert_eq!(speak(&mut joining, &mut controller, now), 1);
        assert!(controller.take_report().is_some());
    }
}

#[test]
fn a_clash_of_the_next_epoch_is_reported_at_the_shortest_interval() {
    let (mut joining, mut controller, now) = refused();
    // Epoch 2 ends the clash.
    for message in [&axiom_datagrams::LISTENER_MESSAGE[..], &axiom_datagrams::EPOCH_MESSAGE] {
        to_group(&mut joining, now, message);
    }
    assert_eq!(speak(&mut joining, &mut controller, now), 0);
    to_group(&mut joining, now, &axiom_datagrams::NEXT_REQUEST);
    response(&mut joining, now).unwrap();
    let mut copy = copy();
    for message in [&axiom_datagrams::SENDER_MESSAGE[..], &axiom_datagrams::EPOCH_MESSAGE] {
        copy.rekey(message).unwrap();
    }
    to_group(&mut joining, now, &request_of(copy, true, &axiom_datagrams::NEXT_REQUEST));
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(59_000)), 0);
    controller.take_report();
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(61_000)), 1);
    assert_eq!(controller.take_report(), Some([0x82, 0x19, 0, 2, 0x18, 7]));
}

#[test]
fn a_refused_report_does_not_delay_a_request_for_keys_for_long() {
    let (mut joining, mut controller, now) = refused();
    let mut of_epoch_3 = axiom_datagrams::EPOCH_MESSAGE;
    of_epoch_3[2] = 3;
    to_group(&mut joining, now, &of_epoch_3);
    assert_eq!(speak(&mut joining, &mut controller, now), 0);
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(59_000)), 0);
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(61_000)), 1);
}

#[test]
fn a_report_reaches_a_controller_that_could_not_be_reached_and_has_lost_the_session() {
    let (mut joining, _) = responding();
    let mut now = NOW.after_millis(61_000);
    to_group(&mut joining, now, &request_of_copy());
    // All datagrams of the member are lost for longer than a request waits for its answer.
    for _ in 0..300 {
        while joining.poll(now, &mut [0; OUT_LEN]).is_some() {}
        now = now.after_millis(1000);
    }
    let mut restarted = Controller::new(now, Provider::new([5; 32]), TO_CONTROLLER, &axiom_datagrams::KEYS);
    for _ in 0..1200 {
        speak(&mut joining, &mut restarted, now);
        now = now.after_millis(1000);
    }
    assert_eq!(restarted.take_report(), Some([0x82, 0x19, 0, 1, 0x18, 7]));
}

#[test]
fn a_member_without_current_keys_asks_for_them_before_it_reports() {
    let (first, later) = (keys(&listener(), 1, 2).encode(), keys(&listener(), 3, 4).encode());
    let mut joining = start(&Pages::written());
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &first);
    speak(&mut joining, &mut controller, NOW);
    to_group(&mut joining, NOW, &axiom_datagrams::REQUEST);
    response(&mut joining, NOW).unwrap();
    to_group(&mut joining, NOW, &request_of_copy());
    let mut of_epoch_3 = axiom_datagrams::EPOCH_MESSAGE;
    of_epoch_3[2] = 3;
    to_group(&mut joining, NOW, &of_epoch_3);
    controller.set_keys(&later);
    let now = NOW.after_millis(61_000);
    assert_eq!((speak(&mut joining, &mut controller, now), controller.take_report()), (1, None));
    // The keys of the clash are not in use any more, so there is nothing to report.
    assert_eq!(speak(&mut joining, &mut controller, now.after_millis(61_000)), 0);
    assert_eq!(controller.take_report(), None);
}

#[test]
fn a_member_that_restarts_joins_again_and_repeats_no_number() {
    let pages = Pages::written();
    let mut responses = Vec::new();
    for _ in 0..2 {
        let mut joining = start(&pages);
        let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &axiom_datagrams::KEYS);
        speak(&mut joining, &mut controller, NOW);
        // After a restart the sender has to prove that its request is new: the response is a challenge.
        to_group(&mut joining, NOW, &axiom_datagrams::REQUEST);
        responses.push(response(&mut joining, NOW).unwrap());
    }
    assert_ne!(responses[0][5..11], responses[1][5..11]);
    // Keys of an epoch before that of the flash memory are no keys.
    let later = keys(&listener(), 3, 4).encode();
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &later);
    speak(&mut start(&pages), &mut controller, NOW);
    let mut joining = start(&pages);
    let mut controller = Controller::new(NOW, Provider::new([3; 32]), TO_CONTROLLER, &axiom_datagrams::KEYS);
    speak(&mut joining, &mut controller, NOW);
    assert!(joining.listener().is_none());
}
