use super::*;
use hyper::Request;

fn map(method: &str, headers: &[(&str, &str)]) -> Result<Mapped, Refusal> {
    let path = "/hc/coap://s.example/light";
    let request = headers
        .iter()
        .fold(Request::builder().method(method).uri(path), |request, (name, value)| request.header(*name, *value));
    let (head, ()) = request.body(()).unwrap().into_parts();
    Mapped::of(&head, &Target::read(path, None).unwrap())
}

fn options(method: &str, headers: &[(&str, &str)]) -> Vec<(OptionNumber, Vec<u8>)> {
    let mapped = map(method, headers).unwrap();
    assert_eq!(mapped.options[0], (OptionNumber::PROXY_URI, b"coap://s.example/light".to_vec()));
    mapped.options[1..].to_vec()
}

fn status(method: &str, headers: &[(&str, &str)]) -> u16 {
    map(method, headers).unwrap_err().status.as_u16()
}

#[test]
fn methods_are_those_of_rfc_8075_and_rfc_8132() {
    let methods = [
        ("GET", Code::GET),
        ("HEAD", Code::GET),
        ("POST", Code::POST),
        ("PUT", Code::PUT),
        ("DELETE", Code::DELETE),
        ("PATCH", Code::PATCH),
    ];
    for (name, method) in methods {
        assert_eq!(map(name, &[]).unwrap().method, method);
    }
    for name in ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"] {
        assert_eq!(status(name, &[]), 501, "{name}");
    }
}

#[test]
fn conditions_are_options() {
    let none_match = ("if-none-match", "\"6531\", W/\"0102030405060708\", \"of another\", \"010203040506070809\"");
    let tags = vec![(OptionNumber::ETAG, b"e1".to_vec()), (OptionNumber::ETAG, vec![1, 2, 3, 4, 5, 6, 7, 8])];
    assert_eq!(options("GET", &[none_match]), tags);
    assert_eq!(options("PUT", &[("if-none-match", "*")]), [(OptionNumber::IF_NONE_MATCH, vec![])]);
    assert_eq!(options("PUT", &[("if-match", "\"6531\"")]), [(OptionNumber::IF_MATCH, b"e1".to_vec())]);
    assert_eq!(options("DELETE", &[("if-match", "*")]), [(OptionNumber::IF_MATCH, vec![])]);
}

#[test]
fn a_condition_that_coap_cannot_say_is_not_left_out() {
    assert_eq!(status("PUT", &[("if-match", "\"of another\"")]), 412);
    // A weak entity tag does not match in If-Match (RFC 9110, section 13.1.1).
    assert_eq!(status("PUT", &[("if-match", "W/\"6531\"")]), 412);
    assert_eq!(status("PUT", &[("if-none-match", "\"6531\"")]), 501);
    assert_eq!(status("GET", &[("if-none-match", "*")]), 501);
}

#[test]
fn formats_are_options_of_a_request_with_a_body() {
    let json = [("content-type", "application/json"), ("accept", "application/cbor")];
    let both = [(OptionNumber::CONTENT_FORMAT, vec![50]), (OptionNumber::ACCEPT, vec![60])];
    assert_eq!(options("POST", &json), both);
    assert_eq!(options("GET", &json), both[1..]);
    assert_eq!(status("PUT", &[("content-type", "text/plain;charset=latin1")]), 415);
    assert_eq!(status("PUT", &[("content-encoding", "gzip")]), 415);
    assert_eq!(options("PUT", &[("content-encoding", "identity")]), []);
    assert_eq!(options("GET", &[("accept", "text/html")]), []);
}

#[test]
fn a_request_of_a_web_page_is_not_forwarded() {
    assert_eq!(status("POST", &[("origin", "https://elsewhere.example")]), 403);
}

/// RFC 9112, section 3.2.
#[test]
fn a_request_has_one_valid_host() {
    let check = |version, hosts: &[&str]| {
        let builder = Request::builder().version(version).uri("/hc/coap://s.example/light");
        let request = hosts.iter().fold(builder, |request, host| request.header(header::HOST, *host));
        check_host(&request.body(()).unwrap().into_parts().0).map_err(|refused| refused.status.as_u16())
    };
    for host in ["p.example", "p.example:8080", "[2001:db8::1]:8080", ""] {
        assert_eq!(check(hyper::Version::HTTP_11, &[host]), Ok(()), "{host}");
    }
    for host in ["a b", "p.example/x", "p.example:x", "u@p.example", "p.example, q.example"] {
        assert_eq!(check(hyper::Version::HTTP_11, &[host]), Err(400), "{host}");
    }
    assert_eq!(check(hyper::Version::HTTP_11, &[]), Err(400));
    assert_eq!(check(hyper::Version::HTTP_11, &["p", "p"]), Err(400));
    assert_eq!(check(hyper::Version::HTTP_10, &[]), Ok(()));
    assert_eq!(check(hyper::Version::HTTP_10, &["p", "q"]), Err(400));
}
