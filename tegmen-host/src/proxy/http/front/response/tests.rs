use super::*;

#[test]
fn statuses_are_those_of_table_2() {
    let with_payload = [
        (Code::CREATED, 201),
        (Code::DELETED, 200),
        (Code::VALID, 304),
        (Code::CHANGED, 200),
        (Code::CONTENT, 200),
        (Code::BAD_REQUEST, 400),
        (Code::UNAUTHORIZED, 403),
        (Code::BAD_OPTION, 400),
        (Code::FORBIDDEN, 403),
        (Code::NOT_FOUND, 404),
        (Code::METHOD_NOT_ALLOWED, 400),
        (Code::NOT_ACCEPTABLE, 406),
        (Code::CONFLICT, 409),
        (Code::PRECONDITION_FAILED, 412),
        (Code::REQUEST_ENTITY_TOO_LARGE, 413),
        (Code::UNSUPPORTED_CONTENT_FORMAT, 415),
        (Code::UNPROCESSABLE_ENTITY, 422),
        (Code::TOO_MANY_REQUESTS, 429),
        (Code::INTERNAL_SERVER_ERROR, 500),
        (Code::NOT_IMPLEMENTED, 501),
        (Code::BAD_GATEWAY, 502),
        (Code::SERVICE_UNAVAILABLE, 503),
        (Code::GATEWAY_TIMEOUT, 504),
        (Code::PROXYING_NOT_SUPPORTED, 502),
        (Code::HOP_LIMIT_REACHED, 508),
        (Code::new(2, 30), 200),
        (Code::new(4, 30), 400),
        (Code::new(5, 30), 500),
    ];
    for (code, expected) in with_payload {
        assert_eq!(status(code, true, true).as_u16(), expected, "{code}");
    }
    assert_eq!(status(Code::CHANGED, false, true).as_u16(), 204);
    assert_eq!(status(Code::DELETED, false, true).as_u16(), 204);
    assert_eq!(status(Code::CONTENT, false, true).as_u16(), 200);
    // Only the proxy can have caused it.
    assert_eq!(status(Code::BAD_OPTION, true, false).as_u16(), 500);
}
