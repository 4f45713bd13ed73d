use super::*;
use tegmen_base::time::{Duration, Instant};

fn identity(text: &str) -> SessionIdentity<'_> {
    SessionIdentity::parse(text.as_bytes()).expect(text)
}

fn at(seconds: u64) -> Instant {
    Instant::AT_ONCE.after(Duration::from_secs(seconds))
}

#[test]
fn a_table_is_bounded_in_number_and_time() {
    let bounds = AcceptedBounds { identities: 3, each: 2, lifetime: Duration::from_secs(10) };
    let mut table = Accepted::new(bounds);
    let texts: Vec<String> = (0..5).map(|number| format!("p{number};AAECAwQFBgcI")).collect();
    let mut accept =
        |number: usize, subscriber, seconds| table.accept(identity(&texts[number]), subscriber, at(seconds));
    assert_eq!(accept(0, "a", 0), Ok(()));
    assert_eq!(accept(1, "a", 1), Ok(()));
    assert_eq!(accept(2, "a", 1), Err(NotAccepted::TooMany));
    assert_eq!(accept(2, "b", 1), Ok(()));
    assert_eq!(accept(3, "b", 1), Err(NotAccepted::Full), "nothing is forgotten early");
    assert_eq!(accept(0, "a", 9), Err(NotAccepted::Used));
    assert_eq!(accept(0, "b", 9), Err(NotAccepted::OfAnother));
    assert_eq!(accept(3, "b", 10), Ok(()), "the first ended");
    assert_eq!(table.len(), 3);
    assert_eq!(table.has_room("c", at(30)), Ok(()));
    assert!(table.is_empty());
}

#[test]
fn an_identity_that_was_taken_back_is_accepted_again_and_ends_by_its_later_time() {
    let bounds = AcceptedBounds { identities: 3, each: 2, lifetime: Duration::from_secs(10) };
    let mut table = Accepted::new(bounds);
    let texts: Vec<String> = (0..3).map(|number| format!("p{number};AAECAwQFBgcI")).collect();
    assert_eq!(table.accept(identity(&texts[0]), "a", at(0)), Ok(()));
    assert_eq!(table.accept(identity(&texts[1]), "a", at(1)), Ok(()));
    table.take_back(&texts[0]);
    table.take_back(&texts[0]);
    assert_eq!(table.iter().map(|known| known.identity).collect::<Vec<_>>(), [&texts[1]]);
    assert_eq!(table.accept(identity(&texts[0]), "a", at(5)), Ok(()), "the subscriber has room again");
    assert_eq!(table.accept(identity(&texts[2]), "a", at(5)), Err(NotAccepted::TooMany));
    assert_eq!(
        table.accept(identity(&texts[0]), "b", at(14)),
        Err(NotAccepted::OfAnother),
        "it ends by its later time"
    );
    assert_eq!((table.len(), table.has(&texts[1])), (1, false));
    assert_eq!(table.accept(identity(&texts[0]), "b", at(15)), Ok(()));
}

#[test]
fn the_identity_that_was_accepted_last_is_bound_once_and_only_for_its_subscriber() {
    let mut table = Accepted::new(AcceptedBounds::default());
    let [first, last] = ["p0;AAECAwQFBgcI", "p1;AAECAwQFBgcI"];
    assert_eq!(table.accept(identity(first), "a", at(0)), Ok(()));
    assert_eq!(table.accept(identity(last), "a", at(0)), Ok(()));
    assert!(!table.bind_last(first, "a"), "it is not the last");
    assert!(!table.bind_last(last, "b"), "it belongs to another subscriber");
    assert!(table.bind_last(last, "a"));
    assert!(!table.bind_last(last, "a"), "it is bound already");
    assert_eq!(table.bind(identity(last), "a", at(9), None), Err(NotAccepted::Used));
    assert_eq!(table.bind(identity(first), "a", at(9), None), Ok(()), "the search finds it");
    table.take_back(last);
    assert!(!table.bind_last(last, "a"), "it is gone");
}

#[test]
fn identities_of_each_length_are_accepted_once_and_shown_unchanged() {
    let mut table = Accepted::new(AcceptedBounds::default());
    let texts: Vec<String> =
        (12..=126).filter(|len| len % 4 != 1).map(|len| format!("p;{}", "A".repeat(len))).collect();
    assert!(texts.iter().any(|text| text.len() == 38) && texts.iter().any(|text| text.len() == 128));
    for text in &texts {
        assert_eq!(table.accept(identity(text), "a", at(0)), Ok(()), "{text}");
        assert!(table.bind_last(text, "a"), "{text}");
    }
    for text in &texts {
        assert_eq!(table.accept(identity(text), "a", at(1)), Err(NotAccepted::Used), "{text}");
        let known = table.of_subscriber(text, "a", at(1)).expect("an accepted identity");
        assert_eq!((known.identity, known.subscriber), (text.as_str(), "a"));
    }
    assert_eq!(table.iter().map(|known| known.identity).collect::<Vec<_>>(), texts);
}
