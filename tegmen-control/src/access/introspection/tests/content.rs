//! Tests of requests for content keys.

use super::*;

const IDENTITY: &str = "oven;AAECAwQFBgcI";

fn ask(server: &mut Server, consumer: &str, token: &str, rights: Option<&[(&str, u64)]>) -> Outcome {
    server.ask(Some(consumer), &request(token.as_bytes(), Some(HINT_CONTENT), rights))
}

fn derived(path: &str) -> Vec<u8> {
    let identity = SessionIdentity::parse(IDENTITY.as_bytes()).expect("an identity");
    protokey().content_key::<RustCrypto>(identity, path).expose().to_vec()
}

#[test]
fn a_consumer_gets_the_content_key_that_the_producer_derives() {
    let mut server = Server::new();
    // Each consumer gets the same key, and may request it again.
    for consumer in ["d tag:display", "e tag:display", "d tag:display"] {
        let outcome = ask(&mut server, consumer, IDENTITY, Some(&[("/temp", 1)]));
        assert_eq!(key(&outcome), Some(derived("/temp")), "{}", outcome.message);
        let expected = format!("{consumer} asks for the content key {IDENTITY} of /temp: granted");
        assert_eq!((outcome.message, outcome.session), (expected, None));
        let Claims { subject, cnf, ace_profile, expires_in, .. } =
            IntrospectionResponse::parse(&outcome.reply.payload).expect("a response").claims;
        assert_eq!((subject.as_deref(), ace_profile, expires_in), (Some("oven"), None, Some(600)));
        let Some(Confirmation::Key(CoseKey { kid, algorithm, .. })) = cnf else { panic!("no key") };
        assert_eq!((kid.as_deref(), algorithm), (Some(IDENTITY.as_bytes()), Some(10)));
    }
    assert_eq!(server.accepted.len(), 0, "the server stores nothing");
}

/// A consumer without the right to read a content asks for its key in each way that the form of a request allows. It
/// also asks for the key of a content that it may read, and tries that key for another content.
///
/// This test fails if `Introspection::content` does not call `permit`, if it derives the key of another path than the
/// path on which the policy decided, if it accepts a scope with several rights or another method, or if it gives the
/// key of a producer to each consumer whose name begins with the name of the producer.
#[test]
fn a_refused_consumer_gets_no_content_key() {
    let mut server = Server::new();
    let door: &[(&str, u64)] = &[("/door", 1)];
    let temp: &[(&str, u64)] = &[("/temp", 1)];
    for (consumer, token, rights, code) in [
        ("stranger", IDENTITY, Some(temp), "no-rule"),
        ("ovens", IDENTITY, Some(temp), "no-rule"),
        ("display-9 tag:display", IDENTITY, Some(temp), "denied-by-rule"),
        ("d tag:display", IDENTITY, Some(door), "no-rule"),
        ("d tag:display", IDENTITY, Some(&[("/temp", 1), ("/door", 1)]), "no-scope"),
        ("d tag:display", IDENTITY, Some(&[("/temp", 1), ("/temp", 1)]), "no-scope"),
        ("d tag:display", IDENTITY, Some(&[("/temp", 17)]), "no-scope"),
        ("d tag:display", IDENTITY, Some(&[("/temp", 0)]), "no-scope"),
        ("d tag:display", IDENTITY, Some(&[]), "no-scope"),
        ("d tag:display", IDENTITY, None, "no-scope"),
        ("d tag:display", IDENTITY, Some(&[("/temp/../door", 1)]), "bad-path"),
        ("d tag:display", IDENTITY, Some(&[("/temp/", 1)]), "no-rule"),
        ("d tag:display", IDENTITY, Some(&[("/%74emp", 1)]), "no-rule"),
        ("d tag:display", "lamp;AAECAwQFBgcI", Some(temp), "no-rule"),
        ("d tag:display", "toaster;AAECAwQFBgcI", Some(temp), "unknown-publisher"),
        ("d tag:display", "oven", Some(temp), "no-identity"),
    ] {
        let outcome = ask(&mut server, consumer, token, rights);
        assert_eq!(outcome.refused.map(Reason::code), Some(code), "{}", outcome.message);
        assert_eq!((outcome.reply.code, &outcome.reply.payload[..]), (Code::CREATED, &[0xa1, 0x0a, 0xf4][..]));
    }
    // The key for one content opens no other content, and no session of the producer.
    let granted = key(&ask(&mut server, "d tag:display", IDENTITY, Some(temp))).expect("a key");
    assert_eq!(granted, derived("/temp"));
    assert_ne!(granted, derived("/door"));
    let session = key(&server.ask_for("d tag:display", IDENTITY, None)).expect("a key");
    assert!(!session.starts_with(&granted));
    // A peer that proved no identity gets no key, either.
    let nobody = server.ask(None, &request(IDENTITY.as_bytes(), Some(HINT_CONTENT), Some(temp)));
    assert_eq!((nobody.reply.code, key(&nobody)), (Code::UNAUTHORIZED, None));
}

#[test]
fn a_producer_gets_its_own_keys_and_no_other_keys() {
    let mut server = Server::new();
    let door: &[(&str, u64)] = &[("/door", 1)];
    assert_eq!(key(&ask(&mut server, "oven", IDENTITY, Some(door))), Some(derived("/door")));
    assert_eq!(key(&ask(&mut server, "oven", "lamp;AAECAwQFBgcI", Some(door))), None);
    assert_eq!(key(&ask(&mut server, "oven", IDENTITY, None)), None);
}
