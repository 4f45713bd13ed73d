//! Messages that wait until NSTART and PROBING_RATE allow them, and requests that suppress all responses.

use super::{End, Outcome, World, both_ask_and_serve};
use std::collections::HashMap;
use tegmen::coap::{BuildError, Builder, Code, MessageRef, MessageType, OptionNumber, RequestId};
use tegmen::cx::Cx;
use tegmen::dtls::Rank;
use tegmen::endpoint::{Misuse, Peers as _, Phase};
use tegmen::node::{PacingArray, Parts, QueueArray, RequestHead, SendError};
use tegmen::time::{Duration, Instant};

type Waits = Parts<QueueArray<8, 100>, PacingArray<1>>;

#[test]
fn requests_in_clear_that_wait_are_answered_like_others() {
    both_ask_and_serve::<Waits>(false, false);
}

#[test]
fn requests_in_a_session_that_wait_are_answered_like_others() {
    both_ask_and_serve::<Waits>(true, false);
}

/// Sends a POST request; `write` adds options after the path. Returns the request, and the datagram if it is sent at
/// once.
fn post(
    end: &mut End<Waits>,
    now: Instant,
    message_type: MessageType,
    token: u8,
    write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
) -> Result<(RequestId, Vec<u8>), SendError> {
    let (peer, mut out) = (end.peer.unwrap(), [0; 400]);
    let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
    let options = |post: &mut Builder<'_, '_>| {
        post.path("now")?;
        write(post)
    };
    let token = [token];
    let head = RequestHead::new(Code::POST).with_token(&token);
    let head = if message_type == MessageType::Confirmable { head } else { head.non_confirmable() };
    let (request, len) = end.node.request(&mut cx, peer, head, options, &mut out)?;
    Ok((request, out[..len].to_vec()))
}

fn number(of: u32) -> impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError> {
    move |post| post.payload(&of.to_be_bytes())
}

#[test]
fn requests_wait_in_their_order_and_one_too_many_is_refused() {
    let mut world = World::<Waits>::new(1, false);
    world.loss = 0;
    let (now, end) = (world.now, &mut world.ends[0]);
    let (_, first) = post(end, now, MessageType::Confirmable, 0, number(0)).unwrap();
    assert!(!first.is_empty(), "nothing is before it");
    for token in 1..=8 {
        let (_, waits) = post(end, now, MessageType::Confirmable, token, number(token.into())).unwrap();
        assert!(waits.is_empty(), "NSTART is 1");
    }
    assert_eq!(post(end, now, MessageType::Confirmable, 9, number(9)), Err(SendError::Busy));
    world.launch(1, vec![first]);
    world.run();
    let requests = world.launched.iter().filter(|(to, _)| *to == 1);
    let mut tokens: Vec<u8> = requests.map(|(_, bytes)| MessageRef::parse(bytes).unwrap().token()[0]).collect();
    tokens.dedup();
    assert_eq!(tokens, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(world.ends[0].app.outcomes.len(), 9);
}

#[test]
fn a_request_that_waits_and_is_given_up_is_not_sent() {
    let mut world = World::<Waits>::new(1, false);
    world.loss = 0;
    let (now, end) = (world.now, &mut world.ends[0]);
    let (_, first) = post(end, now, MessageType::Confirmable, 0, number(0)).unwrap();
    let (second, _) = post(end, now, MessageType::Confirmable, 1, number(1)).unwrap();
    let (third, _) = post(end, now, MessageType::Confirmable, 2, number(2)).unwrap();
    end.node.cancel(end.peer.unwrap(), second);
    world.launch(1, vec![first]);
    world.run();
    let (client, server) = (&world.ends[0].app, &world.ends[1].app);
    assert_eq!(server.counter.executed.get(&1), None);
    assert_eq!(client.outcomes.get(&second), None);
    assert_eq!(client.outcomes[&third], Outcome::Response(Code::CHANGED, 2));
}

#[test]
fn a_request_that_waits_and_cannot_be_sent_ends_with_the_reason() {
    let mut world = World::<Waits>::new(1, false);
    world.loss = 0;
    let (now, end) = (world.now, &mut world.ends[0]);
    let (_, first) = post(end, now, MessageType::Confirmable, 0, number(0)).unwrap();
    // It fits the queue, and not the memory for retransmission.
    let (long, _) = post(end, now, MessageType::Confirmable, 1, |post| post.payload(&[7; 70])).unwrap();
    let (third, _) = post(end, now, MessageType::Confirmable, 2, number(2)).unwrap();
    world.launch(1, vec![first]);
    world.run();
    assert_eq!(world.ends[0].app.outcomes[&long], Outcome::NotSent(SendError::TooLong));
    assert_eq!(world.ends[0].app.outcomes[&third], Outcome::Response(Code::CHANGED, 2));
}

fn unanswered(post: &mut Builder<'_, '_>) -> Result<(), BuildError> {
    post.uint(OptionNumber::NO_RESPONSE, 0b1_1010)?;
    post.payload(&5_u32.to_be_bytes())
}

#[test]
fn a_peer_that_does_not_answer_is_sent_a_byte_a_second() {
    let mut world = World::<Waits>::new(1, false);
    let (now, end) = (world.now, &mut world.ends[0]);
    end.node.set_nstart(2);
    let (_, first) = post(end, now, MessageType::NonConfirmable, 0, unanswered).unwrap();
    let (_, second) = post(end, now, MessageType::NonConfirmable, 1, unanswered).unwrap();
    assert!(second.is_empty(), "sent faster than PROBING_RATE allows");
    assert_eq!(end.poll(now), Vec::<Vec<u8>>::new());
    let due = now.after(Duration::from_secs(first.len() as u64));
    assert_eq!(end.node.endpoint.next_alarm(), Some(due));
    let [second] = end.poll(due).try_into().unwrap();
    assert_eq!(MessageRef::parse(&second).unwrap().token(), [1]);
    // A confirmable request does not wait behind one that is not.
    let (_, third) = post(end, due, MessageType::NonConfirmable, 2, unanswered).unwrap();
    let (_, fourth) = post(end, due, MessageType::Confirmable, 3, number(3)).unwrap();
    assert_eq!((third, fourth), (vec![], vec![]));
    let [fourth] = end.poll(due).try_into().unwrap();
    assert_eq!(MessageRef::parse(&fourth).unwrap().token(), [3]);
    // Whatever the peer sends shows that it is there.
    let mut ping = [0x40, 0, 1, 2];
    assert_eq!(end.receive(due, false, &mut ping).len(), 1);
    let [third] = end.poll(due).try_into().unwrap();
    assert_eq!(MessageRef::parse(&third).unwrap().token(), [2]);
}

#[test]
fn a_request_that_wants_no_response_is_executed_and_leaves_nothing_behind() {
    for message_type in [MessageType::NonConfirmable, MessageType::Confirmable] {
        let mut world = World::<Waits>::new(1, false);
        world.loss = 0;
        let (now, end) = (world.now, &mut world.ends[0]);
        let (_, request) = post(end, now, message_type, 0, unanswered).unwrap();
        world.launch(1, vec![request]);
        world.run();
        assert_eq!(world.ends[1].app.counter.executed[&5], 1);
        let answers = world.launched.iter().filter(|(to, _)| *to == 0);
        let codes: Vec<Code> = answers.map(|(_, bytes)| MessageRef::parse(bytes).unwrap().code()).collect();
        match message_type {
            MessageType::Confirmable => assert!(codes.iter().all(|code| *code == Code::EMPTY) && !codes.is_empty()),
            _ => assert_eq!(codes, []),
        }
        assert_eq!(world.ends[0].open(), 0);
    }
}

#[test]
fn a_deferred_response_that_is_not_wanted_is_not_sent() {
    let mut world = World::<Waits>::new(1, false);
    world.loss = 0;
    let (now, end) = (world.now, &mut world.ends[0]);
    let (peer, mut out) = (end.peer.unwrap(), [0; 400]);
    let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
    let write = |post: &mut Builder<'_, '_>| {
        post.path("later")?;
        unanswered(post)
    };
    let asked = end.node.request(&mut cx, peer, RequestHead::new(Code::POST).non_confirmable(), write, &mut out);
    let (_, len) = asked.unwrap();
    world.launch(1, vec![out[..len].to_vec()]);
    world.run();
    assert_eq!(world.ends[1].app.counter.executed[&5], 1);
    assert!(world.ends[1].app.deferred.is_empty(), "it was answered");
    assert!(!world.launched.iter().any(|(to, _)| *to == 0), "the response was sent");
}

#[test]
fn messages_to_a_peer_that_is_gone_leave_their_places_to_others() {
    let mut world = World::<Waits>::new(1, false);
    let (now, end) = (world.now, &mut world.ends[0]);
    for token in 0..9 {
        post(end, now, MessageType::Confirmable, token, number(token.into())).unwrap();
    }
    assert_eq!(post(end, now, MessageType::Confirmable, 9, number(9)), Err(SendError::Busy));
    end.node.endpoint.peers.remove(end.peer.unwrap());
    let path = end.path();
    let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
    end.peer = Some(end.node.endpoint.plain(&mut cx, &path, Rank::Ours).unwrap());
    for token in 0..9 {
        post(end, now, MessageType::Confirmable, token, number(token.into())).unwrap();
    }
}

#[test]
fn a_request_that_cannot_be_protected_is_never_sent() {
    let mut world = World::<Waits>::new(1, true);
    world.loss = 0;
    let (now, end) = (world.now, &mut world.ends[0]);
    let path = end.path();
    end.peer = end.node.endpoint.peers.find(&path, Phase::Handshaking);
    let refused = post(end, now, MessageType::Confirmable, 0, number(0));
    assert_eq!(refused, Err(SendError::Misuse(Misuse::NotEstablished)), "the handshake has not ended");
    world.run();
    assert_eq!(world.ends[0].open(), 0);
    assert_eq!(world.ends[0].app.outcomes, HashMap::new());
    assert_eq!(world.ends[1].app.counter.executed, HashMap::new());
}
