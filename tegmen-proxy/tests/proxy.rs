//! Tests a proxy for devices. Clients and an origin exchange datagrams with the proxy. There is a test for each rule
//! that the proxy follows.

mod scene;

use scene::{AGE, ETAG, HOST, ORIGIN, OTHER, Options, PATH, SCHEME, Scene, UNKNOWN, address, bytes};
use tegmen::coap::{Code, MessageRef, MessageType, OptionNumber};
use tegmen::endpoint::Event;

#[test]
fn a_request_reaches_its_origin_without_the_options_that_name_the_origin() {
    let mut scene = Scene::new();
    scene.ask(2, Code::POST, &[PATH, (OptionNumber::URI_QUERY, b"a=1"), (OptionNumber::HOP_LIMIT, &[5])], b"on");
    let request = scene.one_at_origin();
    let message = MessageRef::parse(&request).unwrap();
    let options: Vec<_> = message.options().map(|(number, value)| (number, value.to_vec())).collect();
    let expected = [
        (OptionNumber::URI_PATH, b"temp".to_vec()),
        (OptionNumber::URI_QUERY, b"a=1".to_vec()),
        (OptionNumber::HOP_LIMIT, vec![4]),
    ];
    let mut expected = expected.to_vec();
    expected.sort_by_key(|(number, _)| *number);
    assert_eq!((message.code(), options, message.payload()), (Code::POST, expected, b"on".as_slice()));
    scene.answer(&request, Code::CHANGED, &[], b"done");
    assert_eq!(scene.heard(2), (Code::CHANGED, None, b"done".to_vec()));
}

#[test]
fn a_stored_response_answers_another_client_with_the_seconds_that_remain() {
    let mut scene = Scene::new();
    scene.fetch(2, &[AGE], b"21");
    scene.wait(12);
    scene.ask(3, Code::GET, &[PATH], b"");
    assert_eq!(scene.heard(3), (Code::CONTENT, Some(18), b"21".to_vec()));
    scene.wait(18);
    scene.ask(3, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE], b"22");
    assert_eq!(scene.heard(3), (Code::CONTENT, Some(30), b"22".to_vec()));
}

#[test]
fn a_response_is_stored_for_its_host_and_port_alone() {
    let mut scene = Scene::new();
    scene.fetch(2, &[AGE], b"21");
    scene.message_id += 1;
    let options = [HOST, SCHEME, PATH, (OptionNumber::URI_PORT, &[0x16, 0x34][..])];
    let other_port = bytes((MessageType::NonConfirmable, Code::GET), scene.message_id, &[3], &options, b"");
    scene.give(3, other_port);
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE], b"99");
    assert_eq!(scene.heard(3).2, b"99");
}

#[test]
fn a_host_and_a_path_are_never_taken_for_another_host() {
    // The host of the second request has the bytes that end the host of the first one in a key without lengths.
    let target = |host: &'static [u8], path: &'static [u8]| {
        let options = [(OptionNumber::URI_HOST, host), SCHEME, (OptionNumber::URI_PATH, path)];
        bytes((MessageType::NonConfirmable, Code::GET), 1, &[2], &options, b"")
    };
    let [mut one, mut two] = [Scene::new(), Scene::new()];
    one.give(2, target(b"lamp", b"temp"));
    let request = one.one_at_origin();
    one.answer(&request, Code::CONTENT, &[AGE], b"21");
    one.heard(2);
    one.give(3, target(b"lamp\0\x0b\0\x04temp", b""));
    assert_eq!(one.sent.len(), 1);
    assert_eq!(MessageRef::parse(&one.sent[0].1).unwrap().code(), Code::BAD_GATEWAY, "no stored response");
    two.give(2, target(b"lamp", b"temp"));
    assert_eq!(two.at_origin().len(), 1);
}

#[test]
fn a_stale_response_is_confirmed_by_its_etag() {
    let mut scene = Scene::new();
    scene.fetch(2, &[ETAG, AGE], b"21");
    scene.wait(31);
    scene.ask(3, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    assert_eq!(MessageRef::parse(&request).unwrap().option(OptionNumber::ETAG), Some(b"one".as_slice()));
    scene.answer(&request, Code::VALID, &[ETAG, AGE], b"");
    assert_eq!(scene.heard(3), (Code::CONTENT, Some(30), b"21".to_vec()));
    // It is fresh again, and a client that has it receives 2.03.
    scene.ask(4, Code::GET, &[PATH, ETAG], b"");
    assert_eq!(scene.heard(4), (Code::VALID, Some(30), Vec::new()));
}

#[test]
fn a_confirmation_that_nobody_asked_for_is_no_response() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH, ETAG], b"");
    let request = scene.one_at_origin();
    assert_eq!(MessageRef::parse(&request).unwrap().option(OptionNumber::ETAG), None);
    scene.answer(&request, Code::VALID, &[ETAG, AGE], b"");
    assert_eq!(scene.heard(2).0, Code::BAD_GATEWAY);
    scene.ask(3, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1, "a 2.03 is not stored");
}

#[test]
fn a_protected_response_to_a_request_in_clear_is_a_bad_gateway() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE, (OptionNumber::OSCORE, b"")], b"protected");
    assert_eq!(scene.heard(2).0, Code::BAD_GATEWAY);
    scene.ask(3, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1, "the response is not stored");
}

#[test]
fn an_unsafe_method_removes_what_is_stored_for_its_resource_alone() {
    let mut scene = Scene::new();
    scene.fetch(2, &[AGE], b"21");
    scene.ask(2, Code::GET, &[OTHER], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE], b"auto");
    scene.heard(2);
    for (code, is_removed) in [(Code::FORBIDDEN, false), (Code::CHANGED, true)] {
        scene.ask(3, Code::PUT, &[PATH], b"5");
        let request = scene.one_at_origin();
        scene.answer(&request, code, &[], b"");
        assert_eq!(scene.heard(3).0, code);
        scene.ask(4, Code::GET, &[PATH], b"");
        assert_eq!(scene.at_origin().len(), usize::from(is_removed), "{code:?}");
        scene.sent.clear();
    }
    scene.ask(4, Code::GET, &[OTHER], b"");
    assert_eq!(scene.heard(4).2, b"auto");
}

#[test]
fn a_block_is_forwarded_and_not_stored() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.ask(2, Code::GET, &[PATH, (OptionNumber::BLOCK2, &[0x10])], b"");
        let request = scene.one_at_origin();
        assert_eq!(MessageRef::parse(&request).unwrap().option(OptionNumber::BLOCK2), Some([0x10].as_slice()));
        scene.answer(&request, Code::CONTENT, &[AGE, (OptionNumber::BLOCK2, &[0x18])], &[7; 16]);
        let (_, datagram) = scene.sent.remove(0);
        let response = MessageRef::parse(&datagram).unwrap();
        assert_eq!(response.option(OptionNumber::BLOCK2), Some([0x18].as_slice()));
        scene.sent.clear();
    }
    // The first block of a response to a whole request is not stored as the whole, either.
    scene.ask(3, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE, (OptionNumber::BLOCK2, &[0x08])], &[7; 16]);
    scene.heard(3);
    scene.ask(4, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1);
}

/// Without the Request-Tag, the origin takes the blocks of two clients for blocks of one body (RFC 9175, section 3).
#[test]
fn a_block_is_forwarded_with_its_request_tag() {
    let mut scene = Scene::new();
    let tag = (OptionNumber::REQUEST_TAG, b"t1".as_slice());
    scene.ask(2, Code::PUT, &[PATH, (OptionNumber::BLOCK1, &[0x08]), tag], &[7; 16]);
    let request = scene.one_at_origin();
    let message = MessageRef::parse(&request).unwrap();
    assert_eq!(message.option(OptionNumber::BLOCK1), Some([0x08].as_slice()));
    assert_eq!(message.option(OptionNumber::REQUEST_TAG), Some(tag.1));
}

/// The response to a request from before the change may have the representation from before the change.
#[test]
fn a_response_that_a_change_overtook_is_not_stored() {
    for is_stale in [false, true] {
        let mut scene = Scene::new();
        if is_stale {
            scene.fetch(2, &[ETAG, AGE], b"20");
            scene.wait(31);
        }
        scene.ask(2, Code::GET, &[PATH], b"");
        let before = scene.one_at_origin();
        scene.ask(3, Code::PUT, &[PATH], b"5");
        let change = scene.one_at_origin();
        scene.answer(&change, Code::CHANGED, &[], b"");
        assert_eq!(scene.heard(3).0, Code::CHANGED);
        scene.answer(&before, Code::CONTENT, &[ETAG, AGE], b"21");
        assert_eq!(scene.heard(2).2, b"21");
        scene.ask(4, Code::GET, &[PATH], b"");
        assert_eq!(scene.at_origin().len(), 1, "the response is not stored");
    }
}

#[test]
fn a_request_with_oscore_is_forwarded_as_it_is_and_never_stored() {
    let mut scene = Scene::new();
    let oscore = (OptionNumber::OSCORE, b"\x09\x14s".as_slice());
    for _ in 0..2 {
        scene.ask(2, Code::FETCH, &[oscore], b"ciphertext");
        let request = scene.one_at_origin();
        let message = MessageRef::parse(&request).unwrap();
        assert_eq!(
            (message.option(OptionNumber::OSCORE), message.payload()),
            (Some(oscore.1), b"ciphertext".as_slice())
        );
        scene.answer(&request, Code::CONTENT, &[(OptionNumber::OSCORE, b"")], b"sealed");
        let (_, datagram) = scene.sent.remove(0);
        let response = MessageRef::parse(&datagram).unwrap();
        assert_eq!((response.option(OptionNumber::OSCORE), response.payload()), (Some(&[][..]), b"sealed".as_slice()));
    }
}

#[test]
fn a_loop_ends_with_the_last_hop() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH, (OptionNumber::HOP_LIMIT, &[1])], b"");
    assert_eq!(scene.heard(2).0, Code::HOP_LIMIT_REACHED);
    scene.ask(2, Code::GET, &[PATH, (OptionNumber::HOP_LIMIT, &[0])], b"");
    assert_eq!(scene.heard(2).0, Code::BAD_REQUEST);
    // A stored response needs no further hop.
    scene.fetch(2, &[AGE], b"21");
    scene.ask(3, Code::GET, &[PATH, (OptionNumber::HOP_LIMIT, &[1])], b"");
    assert_eq!(scene.heard(3).2, b"21");
}

#[test]
fn each_target_that_is_none_has_its_code() {
    let request = |options: Options<'_>| bytes((MessageType::Confirmable, Code::GET), 1, &[2], options, b"");
    for (options, code) in [
        (&[SCHEME, PATH][..], Code::BAD_REQUEST),
        (&[HOST, (OptionNumber::PROXY_SCHEME, b"http"), PATH], Code::PROXYING_NOT_SUPPORTED),
        (&[(OptionNumber::PROXY_URI, b"coap://lamp/temp")], Code::PROXYING_NOT_SUPPORTED),
        (&[HOST, SCHEME, (OptionNumber::URI_PORT, &[]), PATH], Code::BAD_REQUEST),
        (&[(OptionNumber::URI_HOST, b"elsewhere"), SCHEME, PATH], Code::BAD_GATEWAY),
        (&[HOST, SCHEME, PATH, (UNKNOWN, b"x")], Code::BAD_OPTION),
    ] {
        let mut scene = Scene::new();
        scene.give(2, request(options));
        assert_eq!(scene.heard(2).0, code, "{options:?}");
    }
}

#[test]
fn an_answer_with_an_option_that_is_unsafe_to_forward_is_a_bad_gateway() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE, (UNKNOWN, b"x")], b"21");
    // The node itself may refuse a critical option before the proxy does.
    assert_eq!(scene.heard(2).0, Code::BAD_GATEWAY);
    scene.ask(3, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1, "it is not stored");
}

#[test]
fn an_origin_that_does_not_answer_is_a_timeout_that_nobody_stores() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH], b"");
    let mut out = [0; 300];
    for _ in 0..200 {
        scene.wait(1);
        scene.app.now = Some(scene.now);
        while let Some(event) = scene.node.poll(&mut scene.environment.at(scene.now), &mut scene.app, &mut out) {
            if let Event::Transmit { len, .. } = event {
                scene.sent.push((address(ORIGIN), out[..usize::from(len)].to_vec()));
            }
        }
        scene.send();
    }
    assert_eq!(scene.at_origin().len(), 5, "one request and four retransmissions");
    assert_eq!(scene.heard(2), (Code::GATEWAY_TIMEOUT, Some(0), Vec::new()));
}

/// The origin may have made the change, and its response was lost.
#[test]
fn an_unsafe_method_without_a_response_removes_what_is_stored() {
    let mut scene = Scene::new();
    scene.fetch(2, &[AGE], b"21");
    scene.ask(3, Code::PUT, &[PATH], b"5");
    let id = MessageRef::parse(&scene.one_at_origin()).unwrap().message_id();
    scene.give(ORIGIN, bytes((MessageType::Reset, Code::EMPTY), id, &[], &[], b""));
    assert_eq!(scene.heard(3).0, Code::BAD_GATEWAY);
    scene.ask(4, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1, "the stored response is removed");
}

#[test]
fn a_reset_of_the_origin_is_a_bad_gateway() {
    let mut scene = Scene::new();
    scene.ask(2, Code::GET, &[PATH], b"");
    let id = MessageRef::parse(&scene.one_at_origin()).unwrap().message_id();
    scene.give(ORIGIN, bytes((MessageType::Reset, Code::EMPTY), id, &[], &[], b""));
    assert_eq!(scene.heard(2).0, Code::BAD_GATEWAY);
}

#[test]
fn a_full_proxy_refuses_and_serves_again_when_a_response_came() {
    let mut scene = Scene::new();
    let paths = [b"a", b"b", b"c", b"d"];
    let mut waiting = Vec::new();
    for (client, path) in (2..).zip(&paths[..3]) {
        scene.ask(client, Code::GET, &[(OptionNumber::URI_PATH, &path[..])], b"");
        waiting.push(scene.one_at_origin());
    }
    scene.ask(5, Code::GET, &[(OptionNumber::URI_PATH, paths[3])], b"");
    assert_eq!(scene.heard(5).0, Code::SERVICE_UNAVAILABLE);
    scene.answer(&waiting[1], Code::CONTENT, &[AGE], b"b");
    assert_eq!(scene.heard(3).2, b"b");
    scene.ask(5, Code::GET, &[(OptionNumber::URI_PATH, paths[3])], b"");
    assert_eq!(scene.at_origin().len(), 1);
}

#[test]
fn a_message_that_is_too_long_has_its_code() {
    let mut scene = Scene::new();
    scene.ask(2, Code::PUT, &[PATH], &[7; 140]);
    assert_eq!(scene.heard(2).0, Code::REQUEST_ENTITY_TOO_LARGE);
    scene.ask(2, Code::GET, &[PATH], b"");
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE], &[7; 140]);
    assert_eq!(scene.heard(2).0, Code::BAD_GATEWAY);
}

#[test]
fn a_response_that_does_not_fit_the_cache_reaches_its_client() {
    let mut scene = Scene::new();
    scene.fetch(2, &[AGE], &[7; 100]);
    scene.ask(3, Code::GET, &[PATH], b"");
    assert_eq!(scene.at_origin().len(), 1);
}

#[test]
fn a_proxy_without_a_cache_forwards_each_request() {
    let mut scene = Scene::new();
    scene.app.proxy.stores = false;
    scene.fetch(2, &[AGE], b"21");
    scene.fetch(3, &[AGE], b"22");
}

#[test]
fn a_confirmable_request_is_acknowledged_before_its_response_comes() {
    let mut scene = Scene::new();
    let request = bytes((MessageType::Confirmable, Code::GET), 77, &[2], &[HOST, SCHEME, PATH], b"");
    scene.give(2, request);
    let (to, acknowledgement) = scene.sent.remove(0);
    assert_eq!((to, acknowledgement), (address(2), vec![0x60, 0, 0, 77]));
    let request = scene.one_at_origin();
    scene.answer(&request, Code::CONTENT, &[AGE], b"21");
    let (_, response) = scene.sent.first().unwrap();
    assert_eq!(MessageRef::parse(response).unwrap().message_type(), MessageType::Confirmable);
    assert_eq!(scene.heard(2).2, b"21");
}

#[test]
fn a_client_that_acknowledges_nothing_delays_no_other() {
    let mut scene = Scene::new();
    // One unacknowledged response for each client.
    scene.node.set_nstart(1);
    for (id, path) in [(70, &b"a"[..]), (71, b"b")] {
        let options = [HOST, SCHEME, (OptionNumber::URI_PATH, path)];
        scene.give(2, bytes((MessageType::Confirmable, Code::GET), id, &[2], &options, b""));
        let request = scene.one_at_origin();
        scene.answer(&request, Code::CONTENT, &[AGE], path);
    }
    assert_eq!(scene.heard(2).2, b"a");
    scene.fetch(3, &[AGE], b"21");
}
