use super::*;

#[test]
fn days_are_counted_as_calendars_do() {
    for (text, seconds) in [
        ("1970-01-01", 0),
        ("2000-02-29T12:00:00Z", 951_825_600),
        ("2026-11-22T08:00:00+01:00", 1_795_330_800),
        ("2100-03-01", 4_107_542_400),
    ] {
        assert_eq!(unix_seconds(&text.parse().unwrap()), Some(seconds), "{text}");
        assert_eq!(unix_seconds(&utc(seconds).parse().unwrap()), Some(seconds), "{text}");
    }
}
