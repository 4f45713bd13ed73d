//! Tests of properties of the keys and messages of enrolment.

use super::*;
use proptest::prelude::*;
use tegmen_base::crypto::RustCrypto;

fn key() -> OneTimeKey {
    OneTimeKey::new("oven", Secret::new([5; KEY_LEN]))
}

#[test]
fn a_one_time_key_is_read_as_it_was_written_and_shows_nothing_of_itself() {
    let read = OneTimeKey::parse(&key().text()).expect("a key");
    assert_eq!((read.name(), read.secret.expose()), ("oven", key().secret.expose()));
    assert_ne!(read.proof::<RustCrypto>().expose(), read.session_key::<RustCrypto>().expose());
    assert_eq!(format!("{read:?}"), "OneTimeKey(oven)");
    for wrong in ["", "oven", "oven;", ";00", "oven;00", &format!(";{}", "0".repeat(64))] {
        assert!(OneTimeKey::parse(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn the_identity_of_a_session_names_the_device() {
    assert_eq!(name_of(&identity("oven")), Some("oven"));
    assert_eq!(name_of("oven;AAECAwQFBgcI"), None);
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let bytes = Request::encode::<RustCrypto>(&key(), "protokey-paper", &value);
        let read = Request::parse(&bytes).expect("a request");
        let proof = key().proof::<RustCrypto>();
        prop_assert_eq!((read.proof, read.kind, read.value), (proof.expose().as_slice(), "protokey-paper", value.as_slice()));
        prop_assert!(Request::parse(&bytes[1..]).is_none());
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::parse(&bytes);
    }
}
