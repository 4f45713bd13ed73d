use super::*;
use crate::{Builder, Code, MessageType};
use tegmen_base::buf::Frame;

const ECHO: [u8; 8] = *b"12345678";

/// Returns true if a request of this method with these bytes in its Echo option is admitted.
fn admits(freshness: &mut Freshness, method: Code, echo: &[u8], unverified: bool, plain: bool) -> bool {
    let mut storage = [0; 40];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, method, 1, b"t").unwrap();
    if !echo.is_empty() {
        builder.option(OptionNumber::ECHO, echo).unwrap();
    }
    freshness.admits(&MessageRef::parse(frame.bytes()).unwrap(), unverified, plain)
}

#[test]
fn a_request_that_may_be_a_replay_is_admitted_with_the_value_only() {
    let mut freshness = Freshness::new(ECHO);
    for echo in [&b""[..], b"1", b"12345679", b"123456789"] {
        assert!(!admits(&mut freshness, Code::GET, echo, true, false));
        assert!(!freshness.is_shown());
    }
    assert!(admits(&mut freshness, Code::POST, &ECHO, true, false));
    assert!(freshness.is_shown() && admits(&mut freshness, Code::POST, b"", true, false));
}

#[test]
fn an_address_is_shown_before_something_changes_or_a_long_response_goes_there() {
    let mut freshness = Freshness::new(ECHO);
    assert!(admits(&mut freshness, Code::POST, b"", false, true) && freshness.allows(true, 1, 100));
    freshness.verify_address(true);
    assert!(!admits(&mut freshness, Code::POST, b"", false, true));
    assert!(admits(&mut freshness, Code::POST, b"", false, false), "a session shows it");
    assert!(admits(&mut freshness, Code::GET, b"", false, true));
    assert!(freshness.allows(true, 10, 30) && !freshness.allows(true, 10, 31) && freshness.allows(false, 10, 31));
    assert!(admits(&mut freshness, Code::GET, &ECHO, false, true) && freshness.allows(true, 10, 31));
    assert!(admits(&mut freshness, Code::POST, b"", false, true));
}
