use super::*;
use crate::buf::Frame;
use crate::coap::handler::{Anybody, Handler, Request, serve};
use crate::coap::{Builder, MessageRef, MessageType};
use crate::identity::{Identity, Principal, Protection};
use std::string::String;
use std::vec::Vec;

const LINKS: [Link<'static>; 5] = [
    Link { path: "sensors/temp", resource_type: "temperature-c sensor", content_format: Some(0), observable: false },
    Link { path: "sensors/light", resource_type: "light-lux", content_format: Some(65535), observable: true },
    Link { path: "blink", resource_type: "", content_format: None, observable: false },
    Link { path: "t", resource_type: "sensor", content_format: Some(50), observable: false },
    Link { path: "a%20b/%C3%A9%3E%252f,c", resource_type: "", content_format: None, observable: false },
];

struct WellKnown;

impl Handler for WellKnown {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        respond(request, response, LINKS.into_iter())
    }
}

/// Returns the code and the payload of the response to a request with these options, in a frame of `room` bytes.
fn ask(method: Code, options: &[(OptionNumber, &[u8])], room: usize) -> (Code, String) {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, method, 1, b"t").unwrap();
    builder.path(WELL_KNOWN_CORE).unwrap();
    for (number, value) in options {
        builder.option(*number, value).unwrap();
    }
    let request = frame.finish().to_vec();
    let message = MessageRef::parse(&request).unwrap();
    assert!(message.path_is(WELL_KNOWN_CORE));
    let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
    let mut storage = std::vec![0; room];
    let mut frame = Frame::new(&mut storage, 0);
    serve(Request::new(message, identity), &Anybody, &mut WellKnown, 0, &mut frame);
    let response = MessageRef::parse(frame.bytes()).unwrap();
    if response.code() == Code::CONTENT {
        assert_eq!(response.uint(OptionNumber::CONTENT_FORMAT), Some(CONTENT_FORMAT));
    }
    (response.code(), String::from_utf8(response.payload().to_vec()).unwrap())
}

fn paths(queries: &[&str]) -> Vec<String> {
    let options: Vec<_> = queries.iter().map(|q| (OptionNumber::URI_QUERY, q.as_bytes())).collect();
    let (code, list) = ask(Code::GET, &options, 500);
    assert_eq!(code, Code::CONTENT);
    list.split("</").skip(1).map(|link| link[..link.find('>').unwrap()].into()).collect()
}

#[test]
fn all_links_are_listed_in_the_format_of_rfc_6690() {
    let (_, list) = ask(Code::GET, &[], 500);
    let expected = "</sensors/temp>;rt=\"temperature-c sensor\";ct=0,</sensors/light>;rt=\"light-lux\";ct=65535;obs,\
                        </blink>,</t>;rt=\"sensor\";ct=50,</a%20b/%C3%A9%3E%252f,c>";
    assert_eq!(list, expected);
}

#[test]
fn a_query_filters_the_list() {
    assert_eq!(paths(&["href=/blink"]), ["blink"]);
    assert_eq!(paths(&["href=/sensors/*"]), ["sensors/temp", "sensors/light"]);
    assert_eq!(paths(&["href=/*"]).len(), 5);
    assert_eq!(paths(&["href=*"]).len(), 5);
    for query in ["href=/a%20b/%C3%A9%3E%252f,c", "href=/a%20*", "href=/a%2*"] {
        assert_eq!(paths(&[query]), ["a%20b/%C3%A9%3E%252f,c"], "{query}");
    }
    assert_eq!(paths(&["rt=sensor"]), ["sensors/temp", "t"]);
    assert_eq!(paths(&["rt=light*"]), ["sensors/light"]);
    assert_eq!(paths(&["ct=50"]), ["t"]);
    assert_eq!(paths(&["ct=6*"]), ["sensors/light"]);
    assert_eq!(paths(&["ct=*"]), ["sensors/temp", "sensors/light", "t"]);
    assert_eq!(paths(&["rt=sensor", "ct=0"]), ["sensors/temp"]);
}

#[test]
fn what_nobody_has_matches_nothing() {
    for query in ["if=x", "rt=", "rt=sens", "ct=", "ct=x", "href=blink", "href=", "rt", "", "\u{7f}", "=", "*"] {
        assert!(paths(&[query]).is_empty(), "{query}");
    }
    for query in ["ct=00", "ct=+0", "ct=050", "ct=05*", "href=/a b*", "href=/a%20b", "href=/blink/a"] {
        assert!(paths(&[query]).is_empty(), "{query}");
    }
}

#[test]
fn a_link_without_resource_type_matches_none() {
    assert_eq!(paths(&["rt=*"]).len(), 3);
}

#[test]
fn only_get_and_only_link_format() {
    assert_eq!(ask(Code::PUT, &[], 500).0, Code::METHOD_NOT_ALLOWED);
    assert_eq!(ask(Code::GET, &[(OptionNumber::ACCEPT, &[40])], 500).0, Code::CONTENT);
    assert_eq!(ask(Code::GET, &[(OptionNumber::ACCEPT, &[50])], 500).0, Code::NOT_ACCEPTABLE);
}

#[test]
fn a_list_that_does_not_fit_one_message_comes_in_blocks() {
    let (_, whole) = ask(Code::GET, &[], 500);
    let (code, first) = ask(Code::GET, &[], 80);
    assert_eq!((code, first.as_str()), (Code::CONTENT, &whole[..32]));
    // Blocks of 32 bytes.
    let (code, second) = ask(Code::GET, &[(OptionNumber::BLOCK2, &[0x11])], 80);
    assert_eq!((code, second.as_str()), (Code::CONTENT, &whole[32..64]));
}
