//! Observation between two nodes (RFC 7641).

use super::{Outcome, World};
use tegmen::coap::{Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::cx::Cx;
use tegmen::dtls::Rank;
use tegmen::endpoint::Peers as _;
use tegmen::identity::PeerId;
use tegmen::node::{
    Notification, Observation, Observer, ObserverArray, Observers as _, PacingArray, Parts, QueueArray,
};
use tegmen::time::Duration;

type Observes = Parts<QueueArray<24, 64>, PacingArray<2>, (), ObserverArray<1, 48>>;

/// Creates a world in which node 0 observes the temperature of node 1. At most `unconfirmed` notifications in a row are
/// not confirmable.
fn observed(seed: u64, secure: bool, unconfirmed: u8) -> World<Observes> {
    let observers = ObserverArray::with_unconfirmed(unconfirmed);
    let mut world = World::with_features(seed, secure, || Observes { observers, ..Observes::default() });
    world.run();
    world.ends[0].app.observation = Some(Observation::default());
    world
}

/// Advances the clock by `seconds`.
fn pass(world: &mut World<Observes>, seconds: u64) {
    let until = world.now.after(Duration::from_secs(seconds));
    world.run_until(until);
}

/// Changes the temperature at the server.
fn change(world: &mut World<Observes>) -> u32 {
    let server = &mut world.ends[1];
    let temperature = server.app.counter.temperature.unwrap() + 1;
    server.app.counter.temperature = Some(temperature);
    server.node.notify("temperature");
    temperature
}

/// Returns the notifications that were sent, including lost notifications and copies.
fn notifications(world: &World<Observes>) -> Vec<(MessageType, u32)> {
    let sent = world.launched.iter().filter(|(to, _)| *to == 0).map(|(_, bytes)| MessageRef::parse(bytes).unwrap());
    let notifications = sent.filter(|message| message.message_type() != MessageType::Acknowledgement);
    notifications.filter_map(|it| Some((it.message_type(), it.uint(OptionNumber::OBSERVE)?))).collect()
}

/// The policy of the server allows every request and notification, or decides on each later.
fn the_client_sees_the_last_state(secure: bool, is_later: bool) {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let mut all = 0;
    for seed in 0..seeds {
        let mut world = observed(seed, secure, seed as u8 % 4);
        if world.ends.iter().any(|end| end.peer.is_none()) {
            continue; // the handshake was lost
        }
        world.ends[1].app.policy.is_later = is_later;
        for round in 0..10 {
            let seconds = world.random.below(20);
            pass(&mut world, seconds);
            change(&mut world);
            // Both ask at the same time, too.
            world.ends.iter_mut().for_each(|end| end.to_ask.push_back(round));
        }
        // As long as a lost message, and a refresh that is lost twice, can take.
        pass(&mut world, 600);
        let (client, server) = (&world.ends[0].app, &world.ends[1].app);
        assert!(client.seen.is_sorted(), "seed {seed}: an older state was taken for a newer one: {:?}", client.seen);
        assert_eq!(client.seen.last().copied(), server.counter.temperature, "seed {seed}: the last state was not seen");
        all += client.seen.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
    }
    assert!(all > seeds * 6, "of {} states only {all} were seen", seeds * 11);
}

#[test]
fn a_client_in_clear_sees_the_last_state_and_none_that_is_older_than_another() {
    the_client_sees_the_last_state(false, false);
}

#[test]
fn a_client_in_a_session_sees_the_last_state_and_none_that_is_older_than_another() {
    the_client_sees_the_last_state(true, false);
}

#[test]
fn a_client_whose_notifications_are_decided_on_later_sees_the_last_state() {
    the_client_sees_the_last_state(false, true);
}

#[test]
fn changes_before_an_acknowledgement_become_one_notification() {
    let mut world = observed(1, false, 0);
    world.loss = 0;
    pass(&mut world, 2);
    change(&mut world);
    let now = world.now;
    let [first] = world.ends[1].poll(now).try_into().unwrap();
    for _ in 0..5 {
        change(&mut world);
        assert_eq!(world.ends[1].poll(now), Vec::<Vec<u8>>::new(), "the first is not acknowledged");
    }
    world.launch(0, vec![first]);
    pass(&mut world, 5);
    assert_eq!(world.ends[0].app.seen, [0, 1, 6]);
}

#[test]
fn notifications_that_are_not_confirmable_are_followed_by_one_that_is() {
    let mut world = observed(1, false, 2);
    world.loss = 0;
    for round in 0..6 {
        // The request shows that the client is there, so PROBING_RATE allows the next notification.
        world.ends[0].to_ask.push_back(2 * round);
        pass(&mut world, 4);
        change(&mut world);
    }
    pass(&mut world, 4);
    let types: Vec<MessageType> = notifications(&world).into_iter().map(|(message_type, _)| message_type).collect();
    use MessageType::{Confirmable, NonConfirmable};
    assert!(types.windows(3).all(|three| three.contains(&Confirmable)), "{types:?}");
    assert!(types.contains(&NonConfirmable), "{types:?}");
}

#[test]
fn a_notification_that_comes_too_early_for_probing_rate_is_confirmable() {
    let mut world = observed(1, false, 9);
    world.loss = 0;
    pass(&mut world, 2);
    for _ in 0..2 {
        change(&mut world);
        pass(&mut world, 1);
    }
    let [first, second] = notifications(&world).try_into().unwrap();
    assert_eq!((first.0, second.0), (MessageType::NonConfirmable, MessageType::Confirmable));
}

/// Counts the entries of the server's list of observers.
fn observers(world: &mut World<Observes>) -> usize {
    let end = &mut world.ends[1];
    let mut count = 0;
    let Some(peer) = end.peer else { return 0 };
    end.node.features.observers.any(peer, |_| {
        count += 1;
        false
    });
    count
}

#[test]
fn a_client_that_is_silent_or_rejects_a_notification_is_removed() {
    for unconfirmed in [0, 9] {
        let mut world = observed(1, false, unconfirmed);
        world.loss = 0;
        pass(&mut world, 2);
        assert_eq!(observers(&mut world), 1);
        let (peer, client) = (world.ends[0].peer.unwrap(), &mut world.ends[0]);
        // The client forgets its registration, and rejects what it does not know.
        client.node.endpoint.peers.attached(peer).unwrap().forget(&mut tegmen::coap::Fixed);
        client.app.observation = None;
        change(&mut world);
        pass(&mut world, 2);
        assert_eq!(observers(&mut world), 0, "unconfirmed {unconfirmed}");
    }
    let mut world = observed(1, false, 0);
    pass(&mut world, 2);
    world.loss = 100;
    change(&mut world);
    world.ends[0].app.observation = None;
    pass(&mut world, 100);
    assert_eq!(observers(&mut world), 0);
    let sent = world.launched.iter().filter(|(to, _)| *to == 0).count();
    assert_eq!(sent, 1 + 5, "the response, the notification and its four retransmissions");
}

#[test]
fn an_error_is_the_last_notification() {
    let mut world = observed(1, true, 0);
    world.loss = 0;
    pass(&mut world, 2);
    world.ends[1].app.counter.temperature = None;
    world.ends[1].node.notify("temperature");
    pass(&mut world, 2);
    let client = &world.ends[0].app;
    assert_eq!((&client.seen[..], &client.others[..]), (&[0][..], &[Notification::Last][..]));
    assert_eq!(observers(&mut world), 0);
    world.ends[1].node.notify("temperature");
    pass(&mut world, 200);
    assert_eq!(world.ends[0].app.others.len(), 1);
}

#[test]
fn a_resource_that_cannot_be_observed_is_read_once_and_leaves_no_observer() {
    let mut world = observed(1, true, 0);
    world.loss = 0;
    world.ends[1].app.counter.temperature = None;
    pass(&mut world, 2);
    assert_eq!(world.ends[0].app.others, [Notification::Last]);
    assert_eq!(observers(&mut world), 0);
}

#[test]
fn a_client_that_deregisters_is_sent_no_more_notifications() {
    let mut world = observed(1, false, 0);
    world.loss = 0;
    pass(&mut world, 2);
    let (now, end, mut out) = (world.now, &mut world.ends[0], [0; 400]);
    let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
    let observation = end.app.observation.take().unwrap();
    let write = |get: &mut tegmen::coap::Builder<'_, '_>| get.path("temperature");
    let peer = end.peer.unwrap();
    let (request, len) = end.node.deregister(&mut cx, peer, observation, Code::GET, write, &mut out).unwrap();
    world.launch(1, vec![out[..len].to_vec()]);
    pass(&mut world, 2);
    assert_eq!(world.ends[0].app.outcomes[&request], Outcome::Response(Code::CONTENT, 0));
    assert_eq!(observers(&mut world), 0);
    change(&mut world);
    pass(&mut world, 2);
    assert_eq!(notifications(&world), []);
}

#[test]
fn an_observation_outlives_its_session() {
    let mut world = observed(1, true, 0);
    world.loss = 0;
    pass(&mut world, 2);
    // Both ends lose the session, and a new one is established.
    for end in &mut world.ends {
        end.node.endpoint.peers.remove(end.peer.take().unwrap());
        end.app.observation.iter_mut().for_each(Observation::on_closed);
    }
    change(&mut world);
    let (now, client) = (world.now, &mut world.ends[0]);
    let path = client.path();
    let mut cx = Cx { now, crypto: &mut client.crypto, counters: &mut client.counters };
    client.node.endpoint.connect(&mut cx, &path).unwrap();
    pass(&mut world, 5);
    change(&mut world);
    pass(&mut world, 5);
    assert_eq!(world.ends[0].app.seen, [0, 1, 2]);
    assert_eq!(observers(&mut world), 1);
}

#[test]
fn observers_whose_peers_are_gone_leave_their_places_to_others() {
    let mut world = observed(1, false, 0);
    world.loss = 0;
    for round in 0..2 {
        world.ends[0].app.observation = Some(Observation::default());
        pass(&mut world, 5);
        assert_eq!(observers(&mut world), 1, "round {round}");
        // The server forgets the client, which therefore has another entry next time.
        let (now, server) = (world.now, &mut world.ends[1]);
        server.node.endpoint.peers.remove(server.peer.unwrap());
        let path = server.path();
        let mut cx = Cx { now, crypto: &mut server.crypto, counters: &mut server.counters };
        server.peer = Some(server.node.endpoint.plain(&mut cx, &path, Rank::Ours).unwrap());
    }
}

#[test]
fn an_observer_for_whom_there_is_no_space_has_a_response_without_observe() {
    let mut world = observed(1, false, 0);
    world.loss = 0;
    for _ in 0..2 {
        world.ends[0].app.observation = Some(Observation::default());
        pass(&mut world, 5);
    }
    assert_eq!(world.ends[0].app.seen, [0]);
    assert_eq!(world.ends[0].app.others.last(), Some(&Notification::Last));
    assert_eq!(observers(&mut world), 1);
}

#[test]
fn observers_of_one_client_have_their_turn() {
    let mut observers: ObserverArray<3, 16> = ObserverArray::default();
    let peer = PeerId::new(0, 1);
    for token in 0..3 {
        let get = [0x41, Code::GET.0, 0, 0, token];
        let observer = Observer::new(peer, Token::new(&[token]), 1);
        observers.insert(observer, &MessageRef::parse(&get).unwrap()).unwrap();
    }
    let mut next = || observers.find(peer, |_| true).unwrap().0.observation.token.as_bytes()[0];
    assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
}
