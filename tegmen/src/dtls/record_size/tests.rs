use super::*;
use proptest::prelude::*;

fn hello(record_size_limit: Option<u16>, fragment: Option<u8>) -> Extensions {
    let max_fragment_length = fragment.map(MaxFragmentLength);
    Extensions { record_size_limit, max_fragment_length, ..Extensions::default() }
}

#[test]
fn a_server_that_is_asked_for_both_takes_the_limit() {
    let agreed = RecordSize::asked(&hello(Some(100), Some(2))).unwrap();
    assert_eq!((agreed.sent(), agreed.received(500), agreed.received(0)), (100, 500, MAX_CONTENT));
    assert_eq!(agreed.answer(500), (Some(500), None));
    // The other extension is ignored.
    assert_eq!(RecordSize::asked(&hello(Some(100), Some(9))), Ok(agreed));
    let agreed = RecordSize::asked(&hello(None, Some(2))).unwrap();
    assert_eq!((agreed.sent(), agreed.received(500)), (1024, 1024));
    assert_eq!(agreed.answer(500), (None, Some(MaxFragmentLength(2))));
}

#[test]
fn what_no_endpoint_may_say_is_an_illegal_parameter() {
    for limit in [0, 1, 63] {
        assert_eq!(RecordSize::asked(&hello(Some(limit), None)), Err(Fatal::IllegalParameter));
        assert_eq!(RecordSize::answered(&hello(Some(limit), None), 512, false), Err(Fatal::IllegalParameter));
    }
    for length in [0, 5, 255] {
        assert_eq!(RecordSize::asked(&hello(None, Some(length))), Err(Fatal::IllegalParameter));
        assert_eq!(RecordSize::answered(&hello(None, Some(length)), 512, false), Err(Fatal::IllegalParameter));
    }
    assert_eq!(RecordSize::answered(&hello(Some(64), Some(1)), 512, false), Err(Fatal::IllegalParameter));
    assert_eq!(RecordSize::answered(&hello(None, Some(2)), 512, false), Err(Fatal::IllegalParameter));
}

#[test]
fn what_was_not_offered_may_not_be_answered() {
    assert_eq!(RecordSize::answered(&hello(Some(64), None), 0, false), Err(Fatal::UnsupportedExtension));
    assert_eq!(RecordSize::answered(&hello(None, Some(1)), 0, false), Err(Fatal::UnsupportedExtension));
    // A limit below 512 has no length beside it.
    assert_eq!(RecordSize::answered(&hello(None, Some(1)), 511, false), Err(Fatal::UnsupportedExtension));
}

#[test]
fn a_client_sends_no_more_than_it_offers_if_a_resumption_does_not_answer() {
    let agreed = |limit, resumed| RecordSize::answered(&hello(None, None), limit, resumed).unwrap();
    for (limit, sent) in [(512, 512), (600, 512), (1024, 1024), (5000, 4096)] {
        let kept = RecordSize::from_bits(agreed(limit, true).to_bits());
        assert_eq!((kept.sent(), kept.received(limit)), (sent, MAX_CONTENT));
        assert_eq!(agreed(limit, false), RecordSize::UNLIMITED);
    }
    for limit in [0, 511, MAX_LIMIT] {
        assert_eq!(agreed(limit, true), RecordSize::UNLIMITED, "no length is offered");
    }
    // If the server answers, the limit is that of the answer, even if the answer is the largest limit.
    let answered = RecordSize::answered(&hello(Some(MAX_LIMIT), None), 600, true).unwrap();
    assert_eq!((answered.sent(), answered.received(600)), (MAX_CONTENT, 600));
}

proptest! {
    #[test]
    fn both_ends_agree(client in MIN_LIMIT..=MAX_LIMIT, server in prop::option::of(MIN_LIMIT..=MAX_LIMIT), old: bool) {
        let server = server.unwrap_or(0);
        let fragment = MaxFragmentLength::within(client);
        let asked = Extensions {
            record_size_limit: (!old).then_some(client),
            max_fragment_length: fragment,
            ..Extensions::default()
        };
        let at_server = RecordSize::asked(&asked).unwrap();
        let (record_size_limit, max_fragment_length) = at_server.answer(server);
        let answered = Extensions { record_size_limit, max_fragment_length, ..Extensions::default() };
        let at_client = RecordSize::answered(&answered, client, false).unwrap();
        prop_assert_eq!(at_server.sent(), at_client.received(client));
        prop_assert_eq!(at_client.sent(), at_server.received(server));
        prop_assert!(at_server.sent() <= usize::from(client) || old && fragment.is_none());
    }
}
