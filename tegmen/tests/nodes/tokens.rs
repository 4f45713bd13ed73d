//! Tests of the tokens and Message IDs that a node draws. After a loss of the replay window, only the response to a new
//! request verifies the session.

use super::{APPLICATION_DATA, Entry, Outcome, Storage, World, WorldOf};
use std::collections::HashSet;
use tegmen::coap::{Code, Exchanges, Freshness, MessageRef, PeerExchanges};
use tegmen::cx::Cx;
use tegmen::node::RequestHead;

/// Sends a plaintext request in each of `seeds` worlds. Returns the tokens and Message IDs of the requests.
fn drawn(seeds: u64) -> Vec<(Vec<u8>, u16)> {
    let request = |seed| {
        let mut world = World::<()>::new(seed, false);
        let (now, end, mut out) = (world.now, &mut world.ends[0], [0; 400]);
        let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
        let (_, len) = end.node.request(&mut cx, end.peer.unwrap(), Code::GET, |_| Ok(()), &mut out).unwrap();
        let message = MessageRef::parse(&out[..len]).unwrap();
        (message.token().to_vec(), message.message_id())
    };
    (0..seeds).map(request).collect()
}

#[test]
fn a_node_draws_each_token_and_the_first_message_id() {
    let all = drawn(100);
    let tokens: HashSet<_> = all.iter().map(|(token, _)| token).collect();
    let ids: HashSet<_> = all.iter().map(|(_, id)| id).collect();
    assert!(all.iter().all(|(token, _)| token.len() == 8), "{all:?}");
    assert_eq!(tokens.len(), 100);
    assert!(ids.len() > 95, "{} Message IDs", ids.len());
}

#[test]
fn a_node_that_only_serves_in_clear_draws_its_first_message_id() {
    let ids = (0..20).map(|seed| {
        let mut world = World::<()>::new(seed, false);
        let mut request = vec![0x51, Code::POST.0, 0, 1, seed as u8, 0xb3];
        request.extend(b"now\xff\0\0\0\0");
        let sent = world.ends[1].receive(world.now, false, &mut request);
        MessageRef::parse(&sent[0]).unwrap().message_id()
    });
    assert!(HashSet::<u16>::from_iter(ids).len() > 18);
}

/// Returns the datagrams with application data that were sent to a node.
fn recorded<E: Entry>(world: &WorldOf<(), E>, end: usize) -> Vec<Vec<u8>> {
    let sent = world.launched.iter().filter(|(to, datagram)| *to == end && datagram[0] == APPLICATION_DATA);
    sent.map(|(_, datagram)| datagram.clone()).collect()
}

#[test]
fn only_the_response_to_a_new_request_verifies_a_session_whose_replay_window_was_lost() {
    let mut world = World::<()>::new(1, true);
    world.loss = 0;
    // Each end asks: an attacker records a response to end 0, and a request.
    world.ends.iter_mut().for_each(|end| end.to_ask.push_back(0));
    world.run();
    let old = recorded(&world, 0);
    assert_eq!(old.len(), 2, "a request and a response");
    let now = world.now;
    world.ends[0].lose_replay_window(now);
    world.ends[0].app.outcomes.clear();
    let is_unverified = |world: &mut World<()>| {
        let end = &mut world.ends[0];
        end.node.endpoint.is_unverified(end.peer.unwrap())
    };
    assert!(is_unverified(&mut world));
    // The node asks the same once more, so that it waits for a response when the recorded ones come.
    world.ends[0].to_ask.push_back(0);
    let [request] = world.ends[0].speak(now, false).try_into().unwrap();
    for datagram in old {
        assert_eq!(world.ends[0].receive(now, true, &mut datagram.clone()), Vec::<Vec<u8>>::new());
        assert!(is_unverified(&mut world), "a recorded datagram verified the session");
    }
    assert_eq!(world.ends[0].app.counter.executed[&0], 1, "a replayed request was executed");
    assert!(world.ends[0].app.outcomes.is_empty(), "a recorded response was taken");
    world.launch(1, vec![request]);
    world.run();
    assert!(!is_unverified(&mut world));
    let asked = world.ends[0].asked[&0];
    assert_eq!(world.ends[0].app.outcomes[&asked], Outcome::Response(Code::CHANGED, 0));
    // Requests of the other end are executed again.
    world.ends[1].to_ask.push_back(2);
    world.run();
    assert_eq!(world.ends[0].app.counter.executed[&2], 1);
}

/// A peer that can be challenged.
struct Challenged(Exchanges<Storage>, Freshness);

impl Default for Challenged {
    fn default() -> Self {
        Self(Exchanges::default(), Freshness::new(*b"repeat i"))
    }
}

impl PeerExchanges for Challenged {
    type Storage = Storage;
    type State = ();
    const VERIFIES: bool = true;

    fn exchanges(&mut self) -> Option<&mut Exchanges<Storage>> {
        Some(&mut self.0)
    }

    fn freshness(&mut self) -> Option<&mut Freshness> {
        Some(&mut self.1)
    }
}

#[test]
fn a_node_that_challenges_its_peers_takes_no_recorded_response() {
    let mut world = WorldOf::<(), Challenged>::new(1, true);
    world.loss = 0;
    world.run();
    // With a token that is short, so that a later request may have the same one.
    let ask = |world: &mut WorldOf<(), Challenged>| {
        let (now, end, mut out) = (world.now, &mut world.ends[0], [0; 400]);
        let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
        let head = RequestHead::new(Code::POST).with_token(b"t");
        let write = |post: &mut tegmen::coap::Builder<'_, '_>| {
            post.path("now")?;
            post.payload(&[0; 4])
        };
        let (_, len) = end.node.request(&mut cx, end.peer.unwrap(), head, write, &mut out).unwrap();
        out[..len].to_vec()
    };
    let request = ask(&mut world);
    world.launch(1, vec![request]);
    world.run();
    let now = world.now;
    let [mut old] = recorded(&world, 0).try_into().unwrap();
    assert_eq!(world.ends[0].app.outcomes.len(), 1);
    world.ends[0].lose_replay_window(now);
    world.ends[0].app.outcomes.clear();
    ask(&mut world);
    let replayed = world.ends[0].counters.replayed;
    assert_eq!(world.ends[0].receive(now, true, &mut old), Vec::<Vec<u8>>::new());
    assert!(world.ends[0].app.outcomes.is_empty(), "a recorded response was taken");
    assert_eq!(world.ends[0].counters.replayed, replayed + 1);
}
