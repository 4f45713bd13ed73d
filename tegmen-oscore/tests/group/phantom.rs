//! Notifications to all observers of a resource at once: the server protects the request itself, and each client opens
//! it without a replay check (draft-ietf-core-observe-multicast-notifications-14, section 8).

use crate::world::{Group, Member, Pending, Said, id_of, message, said};
use proptest::prelude::*;
use tegmen_base::crypto::Curve;
use tegmen_base::secret::Secret;
use tegmen_coap::{Code, OptionNumber};
use tegmen_oscore::UnprotectError;
use tegmen_oscore::group::{GroupParameters, GroupRequest, Ourselves, Replies};

fn phantom() -> Vec<u8> {
    message(Code::GET, &[(OptionNumber::OBSERVE, b""), (OptionNumber::URI_PATH, b"light")], b"")
}

fn notification(number: u8) -> Vec<u8> {
    message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[number])], &[number])
}

fn open(member: &mut Member, datagram: &[u8]) -> Result<(Said, Pending), UnprotectError> {
    let mut datagram = datagram.to_vec();
    let Member { context, others, crypto } = member;
    let replies = vec![Replies::default(); 1];
    let (message, pending) =
        context.unprotect_phantom_request(crypto, others.as_mut_slice(), replies, &mut datagram)?;
    Ok((said(&message), pending))
}

/// Returns a server that has protected a phantom request, and the request before and after the protection.
fn served(group: &Group) -> (Member, GroupRequest, Vec<u8>) {
    let mut lamp = group.member("lamp");
    let (pending, datagram) = lamp.ask(&phantom(), None).unwrap();
    (lamp, *pending.request(), datagram)
}

#[test]
fn all_clients_take_the_same_notifications_in_their_order() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let group = Group::of(curve);
        let (mut lamp, request, datagram) = served(&group);
        let first = lamp.answer(&notification(1), None, &request, None).unwrap();
        let second = lamp.answer(&notification(2), None, &request, None).unwrap();
        for name in ["client", "bell"] {
            let mut client = group.member(name);
            let (opened, mut pending) = open(&mut client, &datagram).unwrap();
            assert_eq!((opened.0, pending.request()), (Code::GET, &request));
            let ((_, _, payload), from) = client.learn(&mut pending, &first).unwrap();
            assert_eq!((payload, from), (vec![1], id_of("lamp")));
            let ((_, _, payload), _) = client.learn(&mut pending, &second).unwrap();
            assert_eq!(payload, [2]);
            for old in [&first, &second] {
                assert_eq!(client.learn(&mut pending, old).unwrap_err(), UnprotectError::Replayed);
            }
        }
    }
}

#[test]
fn a_phantom_request_is_opened_again_and_moves_no_window() {
    let group = Group::of(Curve::Ed25519);
    let (mut lamp, _, datagram) = served(&group);
    let mut client = group.member("client");
    for _ in 0..2 {
        open(&mut client, &datagram).unwrap();
    }
    // A request that the server sends itself is new, also with a lower number.
    client.hear_fresh(&datagram);
    open(&mut client, &datagram).unwrap();
    // A request with a higher number does not make the phantom request old.
    let (_, later) = lamp.ask(&phantom(), None).unwrap();
    client.hear_fresh(&later);
    open(&mut client, &datagram).unwrap();
}

#[test]
fn a_phantom_request_is_in_the_group_mode_and_of_another_member_of_this_group() {
    let group = Group::of(Curve::Ed25519);
    let mut client = group.member("client");
    let (_, pairwise) = group.member("lamp").ask(&phantom(), Some("client")).unwrap();
    assert_eq!(open(&mut client, &pairwise).unwrap_err(), UnprotectError::BadOption);
    assert_eq!(open(&mut client, &phantom()).unwrap_err(), UnprotectError::Unprotected);
    let (_, own) = client.ask(&phantom(), None).unwrap();
    assert_eq!(open(&mut client, &own).unwrap_err(), UnprotectError::UnknownMember);
    let (_, _, other) = served(&Group { gid: b"floor 8", ..group });
    assert_eq!(open(&mut client, &other).unwrap_err(), UnprotectError::UnknownContext);
    let (mut lamp, request, _) = served(&group);
    let response = lamp.answer(&notification(1), None, &request, None).unwrap();
    assert_eq!(open(&mut client, &response).unwrap_err(), UnprotectError::UnknownContext);
}

/// Returns a member with the keys of `bell` and the name of `lamp`.
fn forger(group: &Group) -> Member {
    let parameters = GroupParameters {
        master_secret: &group.secret,
        master_salt: b"salt",
        gid: group.gid,
        algorithms: group.algorithms,
    };
    let curve = group.algorithms.signature.unwrap();
    let ourselves = Ourselves {
        id: id_of("lamp"),
        private_key: Secret::new(crate::world::private_key("bell")),
        credential: crate::world::credential(curve, "lamp"),
        kept: 0,
    };
    let manager = crate::world::credential(curve, group.manager);
    let mut forger = group.member("lamp");
    forger.context = crate::world::Context::new::<crate::world::Recorder>(&parameters, ourselves, manager).unwrap();
    forger.context.lease_mut().extend(1000);
    forger
}

#[test]
fn a_member_forges_neither_the_phantom_request_nor_a_notification_of_the_server() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let group = Group::of(curve);
        let mut client = group.member("client");
        let mut forger = forger(&group);
        let (_, forged) = forger.ask(&phantom(), None).unwrap();
        assert_eq!(open(&mut client, &forged).unwrap_err(), UnprotectError::NotAuthentic);
        let (_, request, datagram) = served(&group);
        let (_, mut pending) = open(&mut client, &datagram).unwrap();
        let forged = forger.answer(&notification(9), None, &request, None).unwrap();
        assert_eq!(client.learn(&mut pending, &forged).unwrap_err(), UnprotectError::NotAuthentic);
        // A response of another member with its own Sender ID: the phantom request is not a request to this member.
        let own = group.member("bell").answer(&notification(9), None, &request, None).unwrap();
        assert_eq!(client.learn(&mut pending, &own).unwrap_err(), UnprotectError::UnknownMember);
    }
}

#[test]
fn a_notification_of_another_phantom_request_is_refused() {
    let group = Group::of(Curve::Ed25519);
    let (mut lamp, first, datagram) = served(&group);
    let (pending, _) = lamp.ask(&phantom(), None).unwrap();
    let second = *pending.request();
    let mut client = group.member("client");
    let (_, mut pending) = open(&mut client, &datagram).unwrap();
    let other = lamp.answer(&notification(1), None, &second, None).unwrap();
    assert_eq!(client.learn(&mut pending, &other).unwrap_err(), UnprotectError::NotAuthentic);
    let right = lamp.answer(&notification(2), None, &first, None).unwrap();
    client.learn(&mut pending, &right).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_bytes_are_a_phantom_request(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(open(&mut Group::of(Curve::Ed25519).member("client"), &bytes).is_err());
    }

    #[test]
    fn a_changed_phantom_request_is_refused(at in any::<prop::sample::Index>(), bit in 0..8) {
        let group = Group::of(Curve::Ed25519);
        let (_, _, mut datagram) = served(&group);
        let covered = crate::world::covered(&datagram);
        datagram[*at.get(&covered)] ^= 1_u8 << bit;
        prop_assert!(open(&mut group.member("client"), &datagram).is_err());
    }
}
