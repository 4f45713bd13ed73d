//! Observations that OSCORE protects (RFC 8613, sections 4.1.3.5, 8.3 and 8.4).

use super::{Code, MessageRef, MessageType, Observation, OptionNumber, World};
use tegmen::node::{Observer, Observers as _};
use tegmen::oscore::{ProtectError, RequestBinding};

/// Writes the registration of node 0 for the temperature of node 1.
fn registration(world: &mut World) -> Vec<u8> {
    let (end, mut out) = (&mut world.ends[0], [0; 400]);
    let (peer, cx) = (end.peer.unwrap(), &mut end.environment.at(world.now));
    let observation = end.app.observation.insert(Observation::default().with_oscore());
    let len = end.node.observe(cx, peer, observation, Code::GET, |get| get.path("temperature"), &mut out);
    world.ends[1].app.counter.temperature = Some(0);
    out[..len.unwrap()].to_vec()
}

/// Changes the temperature of node 1, and marks its observers.
fn change(world: &mut World) -> u32 {
    let server = &mut world.ends[1];
    let temperature = server.app.counter.temperature.unwrap() + 1;
    server.app.counter.temperature = Some(temperature);
    server.node.notify("temperature");
    temperature
}

/// Delivers a datagram to a node, and returns the datagrams that it sends.
fn deliver(world: &mut World, to: usize, datagram: &[u8]) -> Vec<Vec<u8>> {
    world.ends[to].receive(world.now, false, &mut datagram.to_vec())
}

/// Changes the temperature, and delivers the notification and its acknowledgement. Returns the notification.
fn notified(world: &mut World) -> Vec<u8> {
    change(world);
    let now = world.now;
    let [notification] = world.ends[1].poll(now).try_into().unwrap();
    for acknowledgement in deliver(world, 0, &notification) {
        deliver(world, 1, &acknowledgement);
    }
    notification
}

fn observers(world: &mut World) -> usize {
    let (mut count, end) = (0, &mut world.ends[1]);
    end.node.features.observers.any(end.peer.unwrap(), |_: &Observer<RequestBinding>| {
        count += 1;
        false
    });
    count
}

/// Creates a world in plaintext without faults, in which node 0 observes node 1. Also returns the registration.
fn observed() -> (World, Vec<u8>) {
    let mut world = World::calm();
    let registration = registration(&mut world);
    let [response] = deliver(&mut world, 1, &registration).try_into().unwrap();
    deliver(&mut world, 0, &response);
    assert_eq!(world.ends[0].app.seen, [0]);
    assert_eq!(observers(&mut world), 1);
    (world, registration)
}

fn the_client_sees_the_last_state(secure: bool) {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let mut all = 0;
    for seed in 0..seeds {
        let mut world = World::new(seed, secure);
        world.run();
        if world.ends.iter().any(|end| end.peer.is_none()) {
            continue; // the handshake was lost
        }
        let registration = registration(&mut world);
        world.launch(1, vec![registration]);
        world.run();
        for round in 0..6 {
            let last = change(&mut world);
            world.ends.iter_mut().for_each(|end| end.to_ask.push_back((2 * round, None)));
            world.run();
            let seen = &world.ends[0].app.seen;
            assert!(seen.is_sorted(), "seed {seed}: an older state was taken for a newer one: {seen:?}");
            let seen = seen.last().copied();
            if observers(&mut world) == 1 && !world.ends[0].app.seen.is_empty() {
                assert_eq!(seen, Some(last), "seed {seed}: an observer did not see the last state");
                all += 1;
            }
        }
    }
    assert!(all > seeds * 4, "of {} notifications only {all} were seen", seeds * 6);
}

#[test]
fn an_observer_with_oscore_in_clear_sees_the_last_state_and_no_nonce_is_used_twice() {
    the_client_sees_the_last_state(false);
}

#[test]
fn an_observer_with_oscore_over_dtls_sees_the_last_state_and_no_nonce_is_used_twice() {
    the_client_sees_the_last_state(true);
}

#[test]
fn each_notification_is_protected_with_its_own_number() {
    let (mut world, _) = observed();
    let mut options = Vec::new();
    for _ in 0..3 {
        let notification = notified(&mut world);
        let outside = MessageRef::parse(&notification).unwrap();
        assert_eq!((outside.code(), outside.message_type()), (Code::CONTENT, MessageType::Confirmable));
        assert!(outside.option(OptionNumber::OBSERVE).is_some(), "a proxy must know that it is a notification");
        options.push(outside.option(OptionNumber::OSCORE).unwrap().to_vec());
    }
    assert_eq!(options, [[1, 0], [1, 1], [1, 2]], "one byte of Partial IV, and no kid");
    assert_eq!(world.ends[0].app.seen, [0, 1, 2, 3]);
}

#[test]
fn a_late_or_forged_notification_is_dropped_and_the_observation_continues() {
    let (mut world, _) = observed();
    let mut late = notified(&mut world);
    notified(&mut world);
    // The Message ID is not protected: an attacker changes it, so that the copy is no repetition.
    late[2] ^= 0x55;
    let mut forged = late.clone();
    forged[3] ^= 0x55;
    *forged.last_mut().unwrap() ^= 1;
    deliver(&mut world, 0, &late);
    deliver(&mut world, 0, &forged);
    assert_eq!(world.ends[0].app.seen, [0, 1, 2]);
    notified(&mut world);
    assert_eq!(world.ends[0].app.seen, [0, 1, 2, 3]);
}

#[test]
fn a_request_in_clear_ends_no_observation_with_oscore() {
    let (mut world, registration) = observed();
    let outside = MessageRef::parse(&registration).unwrap();
    let token = outside.token();
    for observe in [&[0x60][..], &[0x61, 1]] {
        let mut request = vec![0x40 | token.len() as u8, Code::GET.0, 0x77, observe.len() as u8];
        request.extend_from_slice(token);
        request.extend_from_slice(observe);
        request.extend_from_slice(b"\x5btemperature");
        let [refused] = deliver(&mut world, 1, &request).try_into().unwrap();
        assert_eq!(MessageRef::parse(&refused).unwrap().code(), Code::UNAUTHORIZED);
        assert_eq!(observers(&mut world), 1);
    }
    notified(&mut world);
    assert_eq!(world.ends[0].app.seen, [0, 1]);
}

#[test]
fn a_notification_that_cannot_be_protected_is_not_sent_and_ends_the_observation() {
    let (mut world, _) = observed();
    world.ends[1].node.features.oscore.context.lease_mut().stop();
    change(&mut world);
    let now = world.now;
    assert_eq!(world.ends[1].poll(now), Vec::<Vec<u8>>::new());
    assert_eq!(observers(&mut world), 0);
    let error = tegmen::node::SendError::Oscore(ProtectError::LeaseSpent);
    assert_eq!(world.ends[1].ask(now, 2, None), Err(error));
}
