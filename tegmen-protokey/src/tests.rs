use super::*;
use proptest::prelude::*;
use std::string::String;
use std::{format, vec};
use tegmen_base::crypto::{RustCrypto, hmac};

const IDENTITY: &str = "2001:db8::17;AAECAwQFBgcI";

fn identity(text: &str) -> SessionIdentity<'_> {
    SessionIdentity::parse(text.as_bytes()).expect(text)
}

fn protokey() -> Protokey {
    Protokey::new(&[7; 32]).expect("32 bytes")
}

#[test]
fn an_identity_is_a_name_and_random_bytes() {
    assert_eq!(identity(IDENTITY).publisher(), "2001:db8::17");
    let longest = format!("{};{}", "p".repeat(64), "n".repeat(63));
    assert_eq!(longest.len(), MAX_IDENTITY);
    for (text, right) in [
        (longest.as_str(), true),
        (&format!("{longest}n"), false),
        (&format!("{};{}", "p".repeat(65), "n".repeat(12)), false),
        (";AAECAwQFBgcI", false),
        ("p;AAECAwQFBgc", false),
        ("p;AAECAwQFBgcI", true),
        ("p;AAECAwQFBgcIA", false),
        ("p;AAECAwQFBgc=", false),
        ("p;AAECAwQF+/cI", false),
        ("p;AAECAwQF;gcI", false),
        ("p\0;AAECAwQFBgcI", false),
        ("p p;AAECAwQFBgcI", false),
        ("p", false),
        ("", false),
    ] {
        assert_eq!(SessionIdentity::parse(text.as_bytes()).is_some(), right, "{text}");
    }
    assert!(SessionIdentity::parse(b"\xff;AAECAwQFBgcI").is_none());
}

#[test]
fn an_identity_that_is_written_is_one() {
    let nonce = [0, 1, 2, 3, 4, 5, 6, 7, 8, 0x9a, 0xbc, 0xff];
    let written =
        |name: &str| SessionIdentity::write(name, &nonce, &mut [0; MAX_IDENTITY]).map(|is| String::from(is.as_str()));
    assert_eq!(written("oven").as_deref(), Some("oven;0001020304050607089abcff"));
    assert!(written(&"p".repeat(MAX_PUBLISHER)).is_some());
    for wrong in [&"p".repeat(MAX_PUBLISHER + 1), &"p".repeat(2 * MAX_IDENTITY), "", "p p", "p;q"] {
        assert_eq!(written(wrong), None, "{wrong}");
    }
}

/// Compares keys with values that OpenSSL computed: `printf 'IDENTITY' | openssl mac -digest SHA256 -macopt
/// hexkey:0707... HMAC`. For [`Mode::Bound`], `\0display-3` follows IDENTITY.
#[test]
fn a_key_is_that_of_openssl() {
    let hex = |key: Secret<DIGEST_LEN>| tegmen_base::hex::to_hex(key.expose());
    let key = |mode| hex(protokey().session_key::<RustCrypto>(mode, identity(IDENTITY), "display-3"));
    assert_eq!(key(Mode::Paper), "b915315b9367363ef5f71d0f103089226720c5d95140d336de9ac25c6b4f0ab8");
    assert_eq!(key(Mode::Bound), "2865b8610b02b664c9ff27e494f399cf64014d82db5464bf42515200a9d585a7");
}

/// Compares a key with the first 16 bytes that OpenSSL computed: `printf 'tegmen content key
/// 2001:db8::17;AAECAwQFBgcI\0/house/temp' | openssl mac -digest SHA256 -macopt hexkey:0707... HMAC`.
#[test]
fn a_content_key_is_that_of_openssl() {
    let key = protokey().content_key::<RustCrypto>(identity(IDENTITY), "/house/temp");
    assert_eq!(tegmen_base::hex::to_hex(key.expose()), "527da509cd9e392f1bdce624422aec7a");
}

#[test]
fn a_publisher_asks_for_the_hint_and_never_does_without() {
    let protokey = protokey();
    let publisher = Publisher { protokey: &protokey, mode: Mode::Bound, subscriber: "display-3" };
    let key = |hint: Option<&[u8]>| publisher.key::<RustCrypto>(identity(IDENTITY), hint).map(|key| *key.expose());
    let right = protokey.session_key::<RustCrypto>(Mode::Bound, identity(IDENTITY), "display-3");
    assert_eq!(key(Some(b"display-3")), Ok(*right.expose()));
    assert_eq!(key(Some(b"display-4")), Err(WrongHint::Other));
    assert_eq!(key(Some(b"display-33")), Err(WrongHint::Other));
    assert_eq!(key(Some(b"")), Err(WrongHint::Missing));
    assert_eq!(key(None), Err(WrongHint::Missing));
}

#[test]
fn a_protokey_has_16_to_64_bytes_and_is_not_printed() {
    for (len, right) in [(15, false), (16, true), (64, true), (65, false)] {
        assert_eq!(Protokey::new(&vec![1; len]).is_some(), right);
    }
    assert_eq!(format!("{:?}", protokey()), "Protokey");
}

proptest! {
    #[test]
    fn no_two_parts_make_the_message_of_others(
        nonces in ("[A-Za-z0-9_-]{12}", "[A-Za-z0-9_-]{12}"),
        names in ("[a-z:.]{1,9}", "[a-z:.]{1,9}"),
        subscribers in ("\\PC{1,9}", "\\PC{1,9}"),
    ) {
        let texts = (format!("{};{}", names.0, nonces.0), format!("{};{}", names.1, nonces.1));
        let key = |text: &str, subscriber: &str| {
            *protokey().session_key::<RustCrypto>(Mode::Bound, identity(text), subscriber).expose()
        };
        let alike = texts.0 == texts.1 && subscribers.0 == subscribers.1;
        prop_assert_eq!(key(&texts.0, &subscribers.0) == key(&texts.1, &subscribers.1), alike);
        // Nor is a key of the default that of the paper for any identity.
        let joined = format!("{}\0{}", texts.0, subscribers.0);
        prop_assert_eq!(key(&texts.0, &subscribers.0), hmac::<RustCrypto, 32>(&[&[7; 32]], &[joined.as_bytes()]));
        prop_assert!(SessionIdentity::parse(joined.as_bytes()).is_none());
    }

    #[test]
    fn a_content_key_opens_one_path_under_one_identity(
        nonces in ("[A-Za-z0-9_-]{12}", "[A-Za-z0-9_-]{12}"),
        is_same in any::<bool>(),
        paths in ("[/a-c\\x00;]{0,4}", "[/a-c\\x00;]{0,4}"),
    ) {
        let second = if is_same { &nonces.0 } else { &nonces.1 };
        let texts = (format!("p;{}", nonces.0), format!("p;{second}"));
        let key = |text: &str, path: &str| *protokey().content_key::<RustCrypto>(identity(text), path).expose();
        let keys = (key(&texts.0, &paths.0), key(&texts.1, &paths.1));
        prop_assert_eq!(keys.0 == keys.1, texts.0 == texts.1 && paths.0 == paths.1);
        let session = protokey().session_key::<RustCrypto>(Mode::Bound, identity(&texts.0), &paths.0);
        let server = protokey().server_key::<RustCrypto>();
        let token = protokey().token_key::<RustCrypto>();
        prop_assert!(!session.expose().starts_with(&keys.0) && !server.expose().starts_with(&keys.0));
        prop_assert!(*token.expose() != keys.0);
    }

    #[test]
    fn any_bytes_are_an_identity_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
        if let Some(identity) = SessionIdentity::parse(&bytes) {
            prop_assert!(identity.as_str().len() <= MAX_IDENTITY && identity.as_str().starts_with(identity.publisher()));
        }
    }
}
