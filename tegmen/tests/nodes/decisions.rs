//! Tests with a policy that decides later.

use super::serving::{GET, POST, Scene, Seen};
use super::{World, both_ask_and_serve};
use tegmen::coap::{Block, Code, MessageType, OptionNumber};
use tegmen::cx::Cx;
use tegmen::endpoint::Misuse;
use tegmen::node::{Parts, QueueArray, SendError};
use tegmen::time::Duration;

const REGISTER: &[(OptionNumber, &[u8])] = &[(OptionNumber::OBSERVE, b"")];

/// Creates a server whose policy decides later. The client has proved its address to the server.
fn undecided() -> Scene {
    let mut scene = Scene::shown();
    scene.app.policy.is_later = true;
    scene
}

fn is_acknowledgement(seen: Option<Seen>) -> bool {
    seen.is_some_and(|it| (it.message_type, it.code) == (MessageType::Acknowledgement, Code::EMPTY))
}

#[test]
fn every_request_is_executed_at_most_once_and_only_if_it_is_allowed_later() {
    both_ask_and_serve::<()>(false, true);
}

#[test]
fn every_request_in_a_session_is_executed_at_most_once_and_only_if_it_is_allowed_later() {
    both_ask_and_serve::<()>(true, true);
}

#[test]
fn the_same_holds_where_responses_wait_in_a_queue() {
    both_ask_and_serve::<Parts<QueueArray<24, 64>>>(false, true);
}

#[test]
fn a_request_is_acknowledged_at_once_and_answered_once_it_is_decided_on() {
    let mut scene = undecided();
    let mut post = scene.message(POST, "n", &[]);
    for _ in 0..3 {
        assert!(is_acknowledgement(scene.receive(&mut post.clone())));
    }
    assert_eq!((scene.app.resources.counted, scene.app.undecided.len()), (0, 1), "a repetition is not asked about");
    let response = scene.decide(true).unwrap();
    assert_eq!((response.message_type, response.code), (MessageType::Confirmable, Code::CONTENT));
    assert_eq!((&response.payload[..], scene.app.resources.counted), (&[1][..], 1));
    assert!(is_acknowledgement(scene.receive(&mut post)), "the same holds for a late repetition");
    assert_eq!((scene.app.resources.counted, scene.app.undecided.len()), (1, 0));
}

#[test]
fn a_request_that_is_denied_or_never_decided_on_reaches_no_handler() {
    let mut scene = undecided();
    assert!(is_acknowledgement(scene.ask(POST, "n", &[])));
    let denied = scene.decide(false).unwrap();
    assert_eq!((denied.message_type, denied.code), (MessageType::Confirmable, Code::UNAUTHORIZED));
    scene.acknowledge(denied.message_id);
    assert!(is_acknowledgement(scene.ask(POST, "n", &[])));
    assert_eq!(scene.give_up().map(|it| it.code), Some(Code::SERVICE_UNAVAILABLE));
    assert_eq!(scene.app.resources.counted, 0);
}

#[test]
fn a_request_that_is_not_confirmable_has_no_acknowledgement() {
    let mut scene = undecided();
    assert_eq!(scene.ask((MessageType::NonConfirmable, Code::POST), "n", &[]), None);
    let response = scene.decide(true).unwrap();
    assert_eq!((response.message_type, response.code), (MessageType::Confirmable, Code::CONTENT));
}

#[test]
fn a_request_that_no_handler_can_act_upon_is_refused_at_once() {
    let mut scene = undecided();
    let refused = scene.ask(POST, "n", &[(OptionNumber::IF_MATCH, b"x")]).unwrap();
    assert_eq!((refused.code, scene.app.undecided.len()), (Code::BAD_OPTION, 0));
}

#[test]
fn a_handler_defers_a_request_that_was_decided_on() {
    let mut scene = undecided();
    assert!(is_acknowledgement(scene.ask(POST, "later", &[])));
    assert_eq!((scene.decide(true), scene.app.deferred.len()), (None, 1));
    let response = scene.respond(Code::CHANGED, b"done").unwrap();
    assert_eq!((response.code, &response.payload[..], scene.app.resources.counted), (Code::CHANGED, &b"done"[..], 1));
}

#[test]
fn nothing_is_executed_while_no_response_can_be_sent() {
    let mut scene = undecided();
    assert!(is_acknowledgement(scene.ask(POST, "n", &[])));
    assert!(is_acknowledgement(scene.ask(POST, "n", &[])));
    let first = scene.decide(true).unwrap();
    assert_eq!((scene.decide(true), scene.app.resources.counted), (None, 1), "NSTART is 1");
    scene.acknowledge(first.message_id);
    assert_eq!(scene.decide(true).map(|it| it.payload), Some(vec![2]));
}

#[test]
fn a_registration_is_complete_with_the_decision_and_each_notification_is_decided_on() {
    let mut scene = undecided();
    assert!(is_acknowledgement(scene.ask(GET, "changing", REGISTER)));
    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 1), "the client does not observe yet");
    let first = scene.decide(true).unwrap();
    assert_eq!((first.observe, &first.payload[..]), (Some(1), &[1][..]));
    scene.acknowledge(first.message_id);

    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 1), "nothing is sent without a decision");
    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 1), "one at a time");
    assert_eq!((scene.decide(true), scene.app.resources.counted), (None, 1));
    let second = scene.poll().unwrap();
    assert_eq!((second.code, &second.payload[..]), (Code::CONTENT, &[2][..]));
    assert!(second.observe > first.observe, "{second:?}");
    scene.acknowledge(second.message_id);
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 0), "both changes are in one notification");

    scene.node.notify("changing");
    assert_eq!(scene.poll(), None);
    assert_eq!(scene.decide(false), None);
    let last = scene.poll().unwrap();
    assert_eq!((last.code, last.observe), (Code::UNAUTHORIZED, None));
    scene.acknowledge(last.message_id);
    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 0), "an error is the last notification");
    assert_eq!(scene.app.resources.counted, 2);
}

#[test]
fn a_notification_that_is_never_decided_on_is_the_last_one() {
    let mut scene = undecided();
    scene.app.policy.is_later = false;
    assert_eq!(scene.ask(GET, "changing", REGISTER).and_then(|it| it.observe), Some(1));
    scene.app.policy.is_later = true;
    scene.node.notify("changing");
    assert_eq!(scene.poll(), None);
    let last = scene.give_up().unwrap();
    assert_eq!((last.code, last.observe), (Code::SERVICE_UNAVAILABLE, None));
    scene.acknowledge(last.message_id);
    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 0));
}

#[test]
fn a_decision_on_a_notification_is_lost_if_its_client_has_registered_again() {
    let mut scene = undecided();
    scene.app.policy.is_later = false;
    assert_eq!(scene.ask(GET, "changing", REGISTER).and_then(|it| it.observe), Some(1));
    scene.app.policy.is_later = true;
    scene.node.notify("changing");
    assert_eq!((scene.poll(), scene.app.undecided.len()), (None, 1));
    scene.app.policy.is_later = false;
    let renewed = scene.ask(GET, "changing", REGISTER).unwrap();
    assert_eq!(scene.decide(false), None);
    assert_eq!(scene.poll(), None, "the denial is for the registration before");
    scene.node.notify("changing");
    assert!(scene.poll().unwrap().observe > renewed.observe);
}

#[test]
fn a_client_that_wants_no_response_is_sent_none_after_the_decision() {
    let mut scene = undecided();
    for allows in [true, false] {
        assert!(is_acknowledgement(scene.ask(POST, "n", &[(OptionNumber::NO_RESPONSE, &[2 + 8 + 16])])));
        assert_eq!(scene.decide(allows), None);
    }
    assert_eq!((scene.app.resources.counted, scene.app.undecided.len()), (1, 0));
}

#[test]
fn a_group_has_no_response_from_a_member_that_denies() {
    const ASK: (MessageType, Code) = (MessageType::NonConfirmable, Code::GET);
    let mut scene = undecided();
    scene.ask_group(ASK, "n");
    assert_eq!((scene.decide(false), scene.app.resources.counted), (None, 0));
    scene.ask_group(ASK, "n");
    assert_eq!(scene.give_up(), None);
    scene.ask_group(ASK, "n");
    assert_eq!(scene.decide(true).map(|it| (it.code, it.payload)), Some((Code::CONTENT, vec![1])));
}

#[test]
fn each_block_is_a_request_that_is_decided_on() {
    let mut scene = undecided();
    scene.body = vec![7; 16];
    let block = |number, more| Block { more, ..Block { number, ..Block::first(16) } }.value().to_be_bytes();
    let ask = |scene: &mut Scene, number, more| {
        let value = block(number, more);
        assert!(is_acknowledgement(scene.ask(POST, "body", &[(OptionNumber::BLOCK1, &value[3..])])));
        let response = scene.decide(true).unwrap();
        scene.acknowledge(response.message_id);
        response
    };
    assert_eq!(ask(&mut scene, 0, true).code, Code::CONTINUE);
    let last = ask(&mut scene, 1, false);
    assert_eq!((last.code, last.payload, scene.app.resources.counted), (Code::CONTENT, vec![32], 1));

    scene.body.clear();
    let mut got = Vec::new();
    for number in 0..3 {
        let value = block(number, false);
        assert!(is_acknowledgement(scene.ask(GET, "long", &[(OptionNumber::BLOCK2, &value[3..])])));
        let response = scene.decide(true).unwrap();
        scene.acknowledge(response.message_id);
        assert_eq!(response.block.map(|block| block.number), Some(number));
        got.extend(response.payload);
    }
    assert_eq!(got.len(), 40);
}

#[test]
fn a_long_response_goes_to_no_address_that_nobody_has_shown_to_be_at() {
    let mut scene = Scene::new();
    scene.app.policy.is_later = true;
    assert!(is_acknowledgement(scene.ask(GET, "long", &[])));
    let challenge = scene.decide(true).unwrap();
    assert_eq!((challenge.code, &challenge.echo[..]), (Code::UNAUTHORIZED, &b"repeat i"[..]));
}

#[test]
fn a_decision_for_a_session_that_has_ended_reaches_no_handler() {
    let mut world = World::<()>::new(1, true);
    world.loss = 0;
    world.ends[1].app.policy.is_later = true;
    world.next_answer = world.now.after(Duration::from_secs(3600));
    world.ends[0].to_ask.push_back(0);
    let until = world.now.after(Duration::from_secs(5));
    world.run_until(until);
    let now = world.now;
    let server = &mut world.ends[1];
    let (undecided, copy) = server.app.undecided.pop_front().expect("a request");
    server.node.endpoint.take_session(server.peer.unwrap()).unwrap();
    let mut cx = Cx { now, crypto: &mut server.crypto, counters: &mut server.counters };
    let refused = server.node.decide(&mut cx, undecided, &copy, true, &mut server.app, &mut [0; 400]);
    let (error, _) = refused.expect_err("there is no session");
    assert_eq!(error, SendError::Misuse(Misuse::NotEstablished));
    assert!(server.app.counter.executed.is_empty());
}

#[test]
fn a_response_that_cannot_be_sent_after_the_decision_is_5_00_and_the_handler_is_called_once() {
    let mut scene = undecided();
    assert!(is_acknowledgement(scene.ask(POST, "too long", &[])));
    let failed = scene.decide(true).unwrap();
    assert_eq!((failed.message_type, failed.code), (MessageType::Confirmable, Code::INTERNAL_SERVER_ERROR));
    assert_eq!((scene.app.resources.counted, scene.app.undecided.len()), (1, 0));
}
