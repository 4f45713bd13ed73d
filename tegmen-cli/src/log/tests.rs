use super::*;

#[test]
fn a_time_is_that_of_rfc_3339() {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_007);
    assert_eq!(rfc3339(moment), "2023-11-14T22:13:20.007Z");
    assert_eq!(rfc3339(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
}
