use super::*;
use hyper::Response;

fn map(method: Code, status: u16, headers: &[(&str, &str)], body: &'static str) -> Result<Answered, &'static str> {
    let options = match status {
        304 => vec![(OptionNumber::ETAG, b"e1".to_vec())],
        _ => Vec::new(),
    };
    let response = headers
        .iter()
        .fold(Response::builder().status(status), |response, (name, value)| response.header(*name, *value));
    let (head, body) = response.body(Bytes::from_static(body.as_bytes())).unwrap().into_parts();
    super::map(&Asked { method, options: &options, payload: &[] }, "http://a:8080", &head, body, &mut Tags::default())
}

fn get(headers: &[(&str, &str)]) -> Vec<(OptionNumber, Vec<u8>)> {
    map(Code::GET, 200, headers, "").unwrap().options
}

fn age(headers: &[(&str, &str)]) -> Option<u32> {
    let options = get(headers);
    let age = options.iter().find(|(number, _)| *number == OptionNumber::MAX_AGE)?;
    tegmen::coap::uint(&age.1)
}

#[test]
fn a_status_is_a_code() {
    for (method, status, code) in [
        (Code::GET, 200, Code::CONTENT),
        (Code::GET, 304, Code::VALID),
        (Code::PUT, 200, Code::CHANGED),
        (Code::PUT, 204, Code::CHANGED),
        (Code::PUT, 201, Code::CREATED),
        (Code::POST, 202, Code::CHANGED),
        (Code::DELETE, 204, Code::DELETED),
        (Code::GET, 400, Code::BAD_REQUEST),
        (Code::GET, 401, Code::UNAUTHORIZED),
        (Code::GET, 403, Code::FORBIDDEN),
        (Code::GET, 404, Code::NOT_FOUND),
        (Code::GET, 410, Code::NOT_FOUND),
        (Code::PUT, 405, Code::METHOD_NOT_ALLOWED),
        (Code::PUT, 412, Code::PRECONDITION_FAILED),
        (Code::PUT, 413, Code::REQUEST_ENTITY_TOO_LARGE),
        (Code::GET, 418, Code::BAD_REQUEST),
        (Code::GET, 429, Code::TOO_MANY_REQUESTS),
        (Code::GET, 500, Code::INTERNAL_SERVER_ERROR),
        (Code::GET, 503, Code::SERVICE_UNAVAILABLE),
        (Code::GET, 508, Code::HOP_LIMIT_REACHED),
        (Code::GET, 599, Code::INTERNAL_SERVER_ERROR),
    ] {
        assert_eq!(map(method, status, &[], "").unwrap().code, code, "{status}");
    }
    for status in [206, 301, 302, 307, 999] {
        assert!(map(Code::GET, status, &[], "").is_err(), "{status}");
    }
}

#[test]
fn a_304_that_nobody_asked_for_is_no_answer() {
    let (head, ()) = Response::builder().status(304).body(()).unwrap().into_parts();
    let asked = Asked { method: Code::GET, options: &[], payload: &[] };
    assert!(super::map(&asked, "http://a", &head, Bytes::new(), &mut Tags::default()).is_err());
}

#[test]
fn cache_control_and_age_are_the_max_age() {
    assert_eq!(age(&[]), None);
    assert_eq!(age(&[("cache-control", "public, Max-Age=100")]), Some(100));
    assert_eq!(age(&[("cache-control", "max-age=100"), ("age", "30")]), Some(70));
    assert_eq!(age(&[("cache-control", "max-age=100"), ("age", "130")]), Some(0));
    assert_eq!(age(&[("cache-control", "max-age=100, s-maxage=\"5\"")]), Some(5));
    assert_eq!(age(&[("cache-control", "max-age=99999999999999")]), Some(u32::MAX));
    for never in ["no-store", "no-cache", "private", "private=\"x\", max-age=9", "max-age=-1", "max-age="] {
        assert_eq!(age(&[("cache-control", never)]), Some(0), "{never}");
    }
    assert_eq!(age(&[("expires", "Thu, 01 Dec 2094 16:00:00 GMT")]), Some(0));
    assert_eq!(age(&[("cache-control", "max-age=9"), ("vary", "Cookie")]), Some(0));
    assert_eq!(age(&[("cache-control", "max-age=9"), ("vary", "*")]), Some(0));
    assert_eq!(age(&[("cache-control", "max-age=9"), ("vary", "Accept, accept-encoding")]), Some(9));
}

/// RFC 9111, section 3: without explicit freshness, a cache stores only a response whose status permits it. RFC 7252,
/// section 5.9.3.4, and RFC 8516: Max-Age is the time after which a client may try again.
#[test]
fn a_response_that_http_does_not_let_caches_store_is_not_fresh() {
    let age = |status, headers: &[(&str, &str)]| {
        let options = map(Code::GET, status, headers, "").unwrap().options;
        let age = options.iter().find(|(number, _)| *number == OptionNumber::MAX_AGE)?;
        tegmen::coap::uint(&age.1)
    };
    for status in [202, 205, 207, 400, 403, 406, 409, 412, 500, 502, 503, 504, 508] {
        assert_eq!(age(status, &[]), Some(0), "{status}");
        assert_eq!(age(status, &[("cache-control", "max-age=9")]), Some(9), "{status}");
    }
    for status in [200, 203, 204, 404, 405, 410, 414, 501] {
        assert_eq!(age(status, &[]), None, "{status}");
    }
    for status in [429, 503] {
        assert_eq!(age(status, &[("retry-after", "7")]), Some(7), "{status}");
        assert_eq!(age(status, &[("retry-after", "7"), ("cache-control", "no-store")]), Some(0), "{status}");
        assert_eq!(age(status, &[("retry-after", "Thu, 01 Dec 2094 16:00:00 GMT")]), Some(0), "{status}");
    }
    assert_eq!(age(500, &[("retry-after", "7")]), Some(0));
}

#[test]
fn options_are_in_order_and_the_media_type_is_a_format() {
    let headers = [("cache-control", "max-age=9"), ("content-type", "application/json"), ("etag", "\"t\"")];
    let answered = map(Code::GET, 200, &headers, "{}").unwrap();
    let numbers: Vec<_> = answered.options.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [OptionNumber::ETAG, OptionNumber::CONTENT_FORMAT, OptionNumber::MAX_AGE]);
    assert_eq!((answered.options[1].1.as_slice(), answered.payload.as_slice()), (&[50][..], &b"{}"[..]));
    let format = |media_type| {
        let answered = map(Code::GET, 200, &[("content-type", media_type)], "x").unwrap();
        answered.options.iter().map(|(_, value)| value.clone()).next()
    };
    assert_eq!(format("text/html; charset=utf-8"), Some(vec![]));
    assert_eq!(format("text/html; charset=latin1"), Some(vec![42]));
    assert_eq!(format("image/png"), Some(vec![42]));
}

#[test]
fn the_body_of_an_error_is_a_diagnostic_or_nothing() {
    let error = |media_type| {
        let answered = map(Code::GET, 404, &[("content-type", media_type)], "gone").unwrap();
        (answered.options.len(), answered.payload)
    };
    assert_eq!(error("text/plain; charset=utf-8"), (0, b"gone".to_vec()));
    assert_eq!(error("application/json"), (1, b"gone".to_vec()));
    assert_eq!(error("text/html"), (0, vec![]));
    assert_eq!(map(Code::GET, 404, &[], "gone").unwrap().payload, b"");
}

#[test]
fn a_location_at_the_server_itself_is_a_path() {
    let location = |value| {
        let answered = map(Code::POST, 201, &[("location", value)], "").unwrap();
        answered.options.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(location("/made/a%20b?c=1"), ["made", "a b", "c=1"]);
    assert_eq!(location("HTTP://A:8080/made"), ["made"]);
    for elsewhere in [
        "http://b/made",
        "http://a:80801/made",
        "http://a:8080",
        "//b/made",
        "made",
        "https://a:8080/made",
        "http://",
        "/%zz",
        "/a/../b",
        "/a/%2E",
        "",
    ] {
        assert_eq!(location(elsewhere), [""; 0], "{elsewhere}");
    }
}

#[test]
fn a_body_that_is_compressed_cannot_be_used() {
    assert!(map(Code::GET, 200, &[("content-encoding", "gzip")], "x").is_err());
    assert!(map(Code::GET, 200, &[("content-encoding", "identity")], "x").is_ok());
}

proptest::proptest! {
    #[test]
    fn any_header_is_read(start in "(http://a:8080|/)?", text in "\\PC{0,40}", bytes in proptest::collection::vec(0u8.., 0..40)) {
        for value in [format!("{start}{text}").into_bytes(), bytes] {
            let Ok(value) = hyper::header::HeaderValue::from_bytes(&value) else { continue };
            let mut head = Response::builder().status(201).body(()).unwrap().into_parts().0;
            for name in [header::LOCATION, header::CACHE_CONTROL, header::VARY, header::AGE, header::CONTENT_TYPE] {
                head.headers.insert(name, value.clone());
            }
            let asked = Asked { method: Code::POST, options: &[], payload: &[] };
            let answered = super::map(&asked, "http://a:8080", &head, Bytes::from_static(b"x"), &mut Tags::default());
            assert!(answered.unwrap().options.iter().all(|(_, value)| value.len() <= 255));
        }
    }
}
