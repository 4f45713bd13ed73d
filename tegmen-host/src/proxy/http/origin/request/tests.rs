use super::*;

fn map(method: Code, options: &[(OptionNumber, &[u8])], tags: &Tags) -> Result<Request<Full<Bytes>>, Code> {
    let options: Vec<_> = options.iter().map(|(number, value)| (*number, value.to_vec())).collect();
    super::map("a:8080", &Asked { method, options: &options, payload: b"p" }, tags)
}

fn header<'r>(request: &'r Request<Full<Bytes>>, name: &str) -> Option<&'r str> {
    request.headers().get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn methods_are_those_of_section_10_1() {
    for (code, method) in [(Code::GET, "GET"), (Code::POST, "POST"), (Code::PUT, "PUT"), (Code::DELETE, "DELETE")] {
        assert_eq!(map(code, &[], &Tags::default()).unwrap().method().as_str(), method);
    }
    for code in [Code::FETCH, Code::PATCH, Code::IPATCH] {
        assert_eq!(map(code, &[], &Tags::default()).unwrap_err(), Code::NOT_IMPLEMENTED);
    }
}

#[test]
fn path_and_query_are_encoded_so_that_they_read_as_before() {
    let (path, query) = (OptionNumber::URI_PATH, OptionNumber::URI_QUERY);
    let uri = |options: &[(OptionNumber, &[u8])]| map(Code::GET, options, &Tags::default()).unwrap().uri().to_string();
    assert_eq!(uri(&[]), "/");
    assert_eq!(uri(&[(path, b"a b"), (path, b"c/d"), (path, b"")]), "/a%20b/c%2Fd/");
    assert_eq!(uri(&[(path, "\u{e9}?#".as_bytes()), (query, b"x=1&2"), (query, b"y")]), "/%C3%A9%3F%23?x=1%262&y");
    assert_eq!(uri(&[(path, b"a\r\nX: y")]), "/a%0D%0AX:%20y");
    assert_eq!(map(Code::GET, &[(path, b"\xff")], &Tags::default()).unwrap_err(), Code::BAD_REQUEST);
}

#[test]
fn options_are_headers() {
    let mut tags = Tags::default();
    let tag = tags.remember("\"long tag of HTTP\"").unwrap();
    let request = map(
        Code::PUT,
        &[
            (OptionNumber::IF_MATCH, &tag),
            (OptionNumber::CONTENT_FORMAT, &[50]),
            (OptionNumber::ACCEPT, &[0xfd, 0xe9]),
            (OptionNumber::HOP_LIMIT, &[16]),
        ],
        &tags,
    );
    let request = request.unwrap();
    assert_eq!(header(&request, "if-match"), Some("\"long tag of HTTP\""));
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    assert_eq!(header(&request, "accept"), Some("application/coap-payload;cf=65001"));
    assert_eq!(header(&request, "host"), Some("a:8080"));
    let request = map(Code::GET, &[(OptionNumber::ETAG, &tag)], &tags).unwrap();
    assert_eq!(header(&request, "if-none-match"), Some("\"long tag of HTTP\""));
    let request = map(Code::GET, &[(OptionNumber::ETAG, b"e1")], &tags).unwrap();
    assert_eq!(header(&request, "if-none-match"), None);
    let request = map(Code::PUT, &[(OptionNumber::IF_NONE_MATCH, b"")], &tags).unwrap();
    assert_eq!(header(&request, "if-none-match"), Some("*"));
}

#[test]
fn a_condition_or_critical_option_is_never_left_out() {
    let refused = |number, value: &[u8]| map(Code::PUT, &[(number, value)], &Tags::default()).unwrap_err();
    assert_eq!(refused(OptionNumber::IF_MATCH, b"e1"), Code::PRECONDITION_FAILED);
    assert_eq!(refused(OptionNumber(0x2f9), b"x"), Code::BAD_OPTION);
    assert_eq!(refused(OptionNumber::OSCORE, b""), Code::BAD_OPTION);
    assert_eq!(refused(OptionNumber::ACCEPT, b"12345"), Code::BAD_REQUEST);
}
