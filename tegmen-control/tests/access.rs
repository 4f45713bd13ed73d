//! Tests of an access control server over real sockets: certificates, raw public keys, tokens, and notifications of
//! revocations.

#[allow(dead_code, reason = "each test uses its part")]
mod scene;

use scene::{Access, Dir, KEY};
use std::sync::Arc;
use tegmen::coap::{Code, OptionNumber};
use tegmen_control::access::ace::trl::{Answer, Cursor, TrlError, TrlErrorId, Update};
use tegmen_control::access::ace::{
    ACE_CBOR, ACE_TRL_CBOR, Aif, IntrospectionRequest, Right, Scope, TokenRequest, TokenResponse,
};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::{AcceptedBounds, Mode, Protokey, SessionIdentity};
use tegmen_control::access::revocation::token_hash;
use tegmen_control::state::{Bounds, Change, Credential, NewDevice};
use tegmen_control::subscriber::{Introspector, NotGranted, content_key, introspect};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::problem;
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

async fn start(dir: &Dir) -> Access {
    Access::start(dir, None, Bounds::default()).await
}

async fn connect(server: &Server, device: &str) -> Session {
    let config = ClientConfig::psk(device, KEY);
    Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await.expect("a session")
}

fn request() -> Vec<u8> {
    let scope = Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }]));
    let request = TokenRequest { audience: Some("oven".to_owned()), scope: Some(scope), ..TokenRequest::default() };
    request.encode().to_vec()
}

fn hashes(payload: &[u8]) -> Vec<Vec<u8>> {
    match Answer::parse(payload).expect("a list") {
        Answer::Full { hashes, .. } => hashes,
        Answer::Diff { .. } => panic!("the whole list"),
    }
}

#[tokio::test]
async fn a_revoked_token_is_pushed_to_the_devices_that_it_concerns() {
    let dir = Dir::new("access-push");
    let Access { server, service, .. } = start(&dir).await;
    let display = connect(&server, "display").await;
    let mallory = connect(&server, "mallory").await;
    let mut list = display.observe("/revoke/trl").await.expect("an observation");
    let first = list.next().await.expect("a response").expect("the list");
    assert_eq!((first.content_format(), hashes(&first.payload)), (Some(ACE_TRL_CBOR.into()), Vec::new()));

    let mut of_mallory = mallory.observe("/revoke/trl").await.expect("an observation");
    assert_eq!(hashes(&of_mallory.next().await.expect("a response").expect("the list").payload), Vec::<Vec<u8>>::new());

    let request = request();
    let response = display.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
    assert_eq!(response.code, Code::CREATED);
    let token = TokenResponse::parse(&response.payload).expect("a response").access_token.expect("a token");
    assert!(!service.is_revoked(&token));
    let sessions = service.state().view().sessions(|_, subscriber| subscriber == "display");
    service.revoke_session("operator", &sessions[0].identity).await.expect("revoked");
    assert!(service.is_revoked(&token));

    let hash = token_hash::<HostCrypto>(&token);
    let pushed = list.next().await.expect("a response").expect("a notification");
    assert_eq!(hashes(&pushed.payload), vec![hash.clone()]);
    let diff = display.get("/revoke/trl?diff=1").await.expect("a response");
    let Ok(Answer::Diff { updates, .. }) = Answer::parse(&diff.payload) else { panic!("updates") };
    assert_eq!(updates, [Update { removed: Vec::new(), added: vec![hash] }]);
    // It does not concern others: they see no notification of it, but that of their own next one.
    let others = mallory.get("/revoke/trl").await.expect("a response");
    assert_eq!(hashes(&others.payload), Vec::<Vec<u8>>::new());
    let response = mallory.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
    let token = TokenResponse::parse(&response.payload).expect("a response").access_token.expect("a token");
    let sessions = service.state().view().sessions(|_, subscriber| subscriber == "mallory");
    service.revoke_session("operator", &sessions[0].identity).await.expect("revoked");
    let pushed = of_mallory.next().await.expect("a response").expect("a notification");
    assert_eq!(hashes(&pushed.payload), vec![token_hash::<HostCrypto>(&token)]);
}

/// Tests section 6.3 of RFC 9770.
#[tokio::test]
async fn an_error_of_the_revocation_list_has_a_cursor_only_if_the_value_of_cursor_is_invalid() {
    let dir = Dir::new("access-cursor");
    let Access { server, service, .. } = start(&dir).await;
    let display = connect(&server, "display").await;
    let error = async |query: &str| {
        let response = display.get(&format!("/revoke/trl?{query}")).await.expect("a response");
        let format = (response.code, response.content_format());
        assert_eq!(format, (Code::BAD_REQUEST, Some(problem::CONTENT_FORMAT.into())), "{query}");
        let TrlError { error, cursor } = TrlError::parse(&response.payload).expect("problem details");
        (error, cursor)
    };
    for query in ["diff=-1", "diff=-1&cursor=7", "diff=x&cursor=x"] {
        assert_eq!(error(query).await, (TrlErrorId::INVALID_VALUE, None), "{query}");
    }
    for query in ["cursor=7", "cursor=-1"] {
        assert_eq!(error(query).await, (TrlErrorId::INVALID_SET, None), "{query}");
    }
    assert_eq!(error("diff=0&cursor=-1").await, (TrlErrorId::INVALID_VALUE, Some(Cursor::Null)));
    display.post("/token", &request()).content_format(ACE_CBOR).await.expect("a response");
    let session = service.state().view().sessions(|_, _| true).pop().expect("a session");
    service.revoke_session("operator", &session.identity).await.expect("revoked");
    for query in ["diff=0&cursor=-1", "diff=0&cursor=+0", "diff=0&cursor=18446744073709551616"] {
        assert_eq!(error(query).await, (TrlErrorId::INVALID_VALUE, Some(Cursor::At(0))), "{query}");
    }
    assert_eq!(error("diff=0&cursor=1").await, (TrlErrorId::OUT_OF_BOUND_CURSOR, None));
}

#[tokio::test]
async fn a_disabled_device_loses_its_tokens_and_gets_none() {
    let dir = Dir::new("access-disabled");
    let Access { server, service, .. } = start(&dir).await;
    let display = connect(&server, "display").await;
    let request = request();
    let ask = async || display.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
    let token = TokenResponse::parse(&ask().await.payload).expect("a response").access_token.expect("a token");
    assert_eq!(service.disable("operator", "display").await.expect("disabled"), 1);
    assert!(service.is_revoked(&token));
    assert_eq!(ask().await.code, Code::UNAUTHORIZED);
    assert_eq!(display.get("/revoke/trl").await.expect("a response").code, Code::UNAUTHORIZED);
    let other = display.post("/token", &request).content_format(0).await.expect("a response");
    assert_eq!(other.code, Code::UNSUPPORTED_CONTENT_FORMAT);
    assert_eq!(display.get("/token").await.expect("a response").code, Code::FORBIDDEN);
}

#[tokio::test]
async fn a_session_of_an_earlier_key_of_a_device_gives_no_right() {
    let dir = Dir::new("access-rekeyed");
    let Access { server, service, .. } = start(&dir).await;
    let request = request();
    let ask = async |session: &Session| {
        let response = session.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
        (response.code, session.get("/revoke/trl").await.expect("a response").code)
    };
    // Somebody else knows the key.
    let stolen = connect(&server, "display").await;
    assert_eq!(ask(&stolen).await, (Code::CREATED, Code::CONTENT));
    let party = OwnedParty::from_words(["display", "tag:display"]).expect("a party");
    let proof = NewDevice::secret(party, Credential::SharedKey, &[9; 16]).expect("a device");
    let change = Change { proof: Some(proof), ..Change::default() };
    service.change("operator", "display", None, change).await.expect("changed");
    assert_eq!(ask(&stolen).await, (Code::UNAUTHORIZED, Code::UNAUTHORIZED));
    let config = ClientConfig::psk("display", [9; 16]);
    let display = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await.expect("a session");
    assert_eq!(ask(&display).await, (Code::CREATED, Code::CONTENT));
    assert_eq!(ask(&stolen).await, (Code::UNAUTHORIZED, Code::UNAUTHORIZED));
    // The same holds for another device of this name.
    service.remove("operator", "display", None).await.expect("removed");
    let party = OwnedParty::from_words(["display", "tag:display"]).expect("a party");
    let other = NewDevice::secret(party, Credential::SharedKey, &[8; 16]).expect("a device");
    service.add("operator", &other).await.expect("added");
    assert_eq!(ask(&display).await, (Code::UNAUTHORIZED, Code::UNAUTHORIZED));
}

#[tokio::test]
async fn a_request_in_clear_gets_no_key() {
    let dir = Dir::new("access-clear");
    let Access { server, service, .. } = start(&dir).await;
    let identity = SessionIdentity::parse(b"oven;AAECAwQFBgcI").expect("an identity");
    let plain = Session::connect_to(server.addresses()[1].address, Scheme::Coap, ClientConfig::default());
    let refused = introspect(&plain.await.expect("a session"), identity).await;
    assert!(matches!(refused, Err(NotGranted::NotADevice)), "{refused:?}");
    assert!(service.state().view().sessions(|_, _| true).is_empty());
    // With the same request, a device gets the key.
    let display = connect(&server, "display").await;
    let granted = introspect(&display, identity).await.expect("a key");
    let request = IntrospectionRequest { scope: None, token: b"unknown".to_vec(), hint: None }.encode();
    let response = display.post("/introspect", &request).content_format(ACE_CBOR).await.expect("a response");
    assert_eq!((response.code, response.content_format()), (Code::CREATED, Some(ACE_CBOR.into())));
    let protokey = Protokey::new(&KEY).expect("a protokey");
    assert_eq!(*granted.key, *protokey.session_key::<HostCrypto>(Mode::Bound, identity, "display").expose());
}

#[tokio::test]
async fn without_the_store_nothing_is_granted_and_revocations_are_still_listed() {
    let dir = Dir::new("access-store");
    let access = start(&dir).await;
    let display = connect(&access.server, "display").await;
    let service = &access.service;
    let request = request();
    let ask = async || display.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
    assert_eq!(ask().await.code, Code::CREATED);
    let session = service.state().view().sessions(|_, _| true).pop().expect("a session");
    service.revoke_session("operator", &session.identity).await.expect("revoked");
    access.database.abandon();
    let response = ask().await;
    assert_eq!((response.code, response.uint(OptionNumber::MAX_AGE)), (Code::SERVICE_UNAVAILABLE, Some(10)));
    assert_eq!(response.payload, b"", "the client does not learn the cause");
    let failures = access.failures();
    assert!(
        matches!(failures.as_slice(), [one] if one.contains("POST /token: 5.03") && one.contains("is not stored")),
        "{failures:?}"
    );
    assert_eq!(hashes(&display.get("/revoke/trl").await.expect("a response").payload).len(), 1);
    // A revocation that is not durable is not acknowledged.
    let other = service.state().view().sessions(|identity, _| identity.as_str() != session.identity);
    assert!(service.revoke_session("operator", &other[0].identity).await.is_err());
    let Access { server, service, .. } = access;
    server.stop();
    drop(service);
    let log = std::fs::read_to_string(dir.0.join("audit.log")).expect("a log");
    assert!(log.contains("\"not-stored\""), "{log}");
}

#[tokio::test]
async fn the_operator_reads_why_a_request_is_answered_with_5_03() {
    let request = request();
    let full = AcceptedBounds { identities: 0, ..AcceptedBounds::default() };
    for (name, sessions, longest, cause) in [
        ("access-full", full, u64::MAX, "table of session identities is full"),
        ("access-log", AcceptedBounds::default(), 0, "audit log cannot be written"),
    ] {
        let dir = Dir::new(name);
        let access = Access::start(&dir, None, Bounds { sessions, ..Bounds::default() }).await;
        let display = connect(&access.server, "display").await;
        access.service.audit().set_longest(longest);
        // The first request finds that the log cannot be written, and the server knows it at the second one.
        for _ in 0..2 {
            let response = display.post("/token", &request).content_format(ACE_CBOR).await.expect("a response");
            assert_eq!(response.code, Code::SERVICE_UNAVAILABLE);
            assert!(response.uint(OptionNumber::MAX_AGE).is_some());
            let failures = access.failures();
            assert!(matches!(failures.as_slice(), [one] if one.contains(cause)), "{cause}: {failures:?}");
        }
    }
}

/// Asks an agent in a separate thread, and returns the answer of the agent.
#[cfg(unix)]
async fn ask_agent(path: &std::path::Path, question: tegmen_control::agent::Question) -> tegmen_control::agent::Answer {
    let path = path.to_owned();
    let asked = tokio::task::spawn_blocking(move || tegmen_control::agent::ask(&path, &question));
    asked.await.expect("a thread").expect("an answer")
}

#[cfg(unix)]
#[tokio::test]
async fn an_agent_gives_its_own_user_the_key_that_the_publisher_derives() {
    use std::io::{Read as _, Write as _};
    use tegmen_control::agent::{Agent, Answer, Question};
    let dir = Dir::new("access-agent");
    let Access { server, .. } = start(&dir).await;
    let path = dir.0.join("agent.sock");
    let agent = Agent::bind(&path, None).expect("a socket");
    let session = connect(&server, "display").await;
    let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let serving =
        tokio::spawn(async move { agent.serve(session, move |event| events.send(event).expect("a test")).await });
    let derived = |identity: &str| {
        let identity = SessionIdentity::parse(identity.as_bytes()).expect("an identity");
        let protokey = Protokey::new(&KEY).expect("a protokey");
        protokey.session_key::<HostCrypto>(Mode::Bound, identity, "display").expose().to_vec()
    };

    for question in [Question::Session("oven;AAECAwQFBgcI".to_owned()), Question::Publisher("oven".to_owned())] {
        let Answer::Key { identity, key } = ask_agent(&path, question).await else { panic!("a key") };
        assert_eq!(**key.key, *derived(&identity));
        assert!(key.expires_in.is_some());
        let event = seen.recv().await.expect("an event");
        assert_eq!((event.code, event.identity.as_deref()), ("given", Some(identity.as_str())));
        assert!(!format!("{event:?}").contains(&tegmen_base::hex::to_hex(&key.key)));
    }
    for (question, expected) in [("session oven;AAECAwQFBgcI", "refused"), ("publisher nobody", "refused")] {
        let question = Question::parse(question.as_bytes()).expect("a question");
        let Answer::Error { code, .. } = ask_agent(&path, question).await else { panic!("an error") };
        assert_eq!((code.as_str(), seen.recv().await.expect("an event").code), (expected, expected));
    }
    // A line that is too long, or ends early, gets an answer too.
    for line in ["session oven\n".to_owned(), "x".repeat(500), "session ".to_owned()] {
        let path = path.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = std::os::unix::net::UnixStream::connect(path).expect("a connection");
            stream.write_all(line.as_bytes()).expect("written");
            stream.shutdown(std::net::Shutdown::Write).expect("ended");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            answer
        });
        let answer = answer.await.expect("a thread");
        assert!(answer.starts_with(b"error malformed "), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(seen.recv().await.expect("an event").code, "malformed");
    }
    serving.abort();
    let _ = serving.await;
    assert!(!path.exists());

    // The file belongs to another user, which only root can arrange. Root passes its permissions, and is refused all the same.
    let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&dir.0).expect("a directory"));
    let Ok(agent) = Agent::bind(&path, Some(own + 1)) else { return };
    let session = connect(&server, "display").await;
    let serving = tokio::spawn(async move { agent.serve(session, |_| {}).await });
    let question = Question::Publisher("oven".to_owned());
    let Answer::Error { code, .. } = ask_agent(&path, question).await else { panic!("an error") };
    assert_eq!(code, "other-user");
    serving.abort();
}

#[tokio::test]
async fn a_revocation_ends_the_session_of_the_subscriber_and_no_other() {
    let dir = Dir::new("access-ends");
    let Access { server, service, .. } = start(&dir).await;
    let display = connect(&server, "display").await;
    let allow = vec!["PUT /temp".to_owned()];
    let keys = Introspector::new(display.clone(), tokio::runtime::Handle::current(), allow);
    let subscriber = Server::builder().listen("coaps://127.0.0.1:0").shards(1).key_store(keys.clone());
    let router = Router::new().put("/temp", |_, response| {
        response.set_code(Code::CHANGED);
        Ok(())
    });
    let subscriber = Arc::new(subscriber.serve(router).expect("a server"));
    let at = subscriber.addresses()[0].address;
    let publisher = async |identity: &str| {
        let protokey = Protokey::new(&KEY).expect("a protokey");
        let session = SessionIdentity::parse(identity.as_bytes()).expect("an identity");
        let key = protokey.session_key::<HostCrypto>(Mode::Bound, session, "display");
        let config = ClientConfig::psk(identity, key.expose()).with(|config| config.recovery.reconnect = false);
        Session::connect_to(at, Scheme::Coaps, config).await.expect("a session")
    };
    let (one, other) = (publisher("oven;AAECAwQFBgcI").await, publisher("oven;AAECAwQFBgcJ").await);
    let (ended, mut sessions) = tokio::sync::mpsc::unbounded_channel();
    let following = tokio::spawn(async move {
        keys.end_revoked(&subscriber, |session| ended.send(session.identity.clone()).expect("a test")).await
    });
    assert_eq!(one.put("/temp", b"1").await.expect("a response").code, Code::CHANGED);

    service.revoke_session("operator", "oven;AAECAwQFBgcI").await.expect("revoked");
    assert_eq!(sessions.recv().await.as_deref(), Some("oven;AAECAwQFBgcI"));
    let refused = one.put("/temp", b"2").await;
    assert!(matches!(refused, Err(ClientError::Ended { .. })), "{refused:?}");
    assert_eq!(other.put("/temp", b"3").await.expect("a response").code, Code::CHANGED);

    // The second revocation finds the first still on the list, and ends what is new.
    service.revoke_session("operator", "oven;AAECAwQFBgcJ").await.expect("revoked");
    assert_eq!(sessions.recv().await.as_deref(), Some("oven;AAECAwQFBgcJ"));
    assert!(other.put("/temp", b"4").await.is_err());
    following.abort();
}

#[tokio::test]
async fn a_session_that_begins_after_its_revocation_is_ended() {
    let dir = Dir::new("access-late");
    let Access { server, service, .. } = start(&dir).await;
    let display = connect(&server, "display").await;
    let identity = "oven;AAECAwQFBgcI";
    let hash = token_hash::<HostCrypto>(identity.as_bytes());
    let expires = 1 << 40;
    service.revoke_token("operator", &hash, expires, &["oven", "display"]).await.expect("revoked");
    let keys = Introspector::new(display, tokio::runtime::Handle::current(), Vec::new());
    // Its key is known here without the question that the access control server would refuse.
    let credentials = Credentials::single(identity, &KEY);
    let subscriber = Server::builder().listen("coaps://127.0.0.1:0").shards(1).credentials(credentials);
    let subscriber = Arc::new(subscriber.serve(Router::new()).expect("a server"));
    let at = subscriber.addresses()[0].address;
    let (ended, mut sessions) = tokio::sync::mpsc::unbounded_channel();
    let following = tokio::spawn(async move {
        keys.end_revoked(&subscriber, |session| ended.send(session.identity.clone()).expect("a test")).await
    });
    // The second session begins after the list was read, and no notification follows.
    for _ in 0..2 {
        let config = ClientConfig::psk(identity, KEY);
        // The server may end the session before the client has the end of the handshake.
        let _session = Session::connect_to(at, Scheme::Coaps, config).await;
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), sessions.recv()).await;
        assert_eq!(ended.expect("the session ends").as_deref(), Some(identity));
    }
    following.abort();
}

#[tokio::test]
async fn a_content_key_goes_to_consumers_with_the_right_and_to_the_producer() {
    let dir = Dir::new("access-content");
    let Access { server, service, .. } = start(&dir).await;
    let identity = SessionIdentity::parse(b"oven;AAECAwQFBgcI").expect("an identity");
    let display = connect(&server, "display").await;
    let granted = content_key(&display, identity, "/temp").await.expect("a key");
    let again = content_key(&display, identity, "/temp").await.expect("the same key");
    assert_eq!((granted.key.expose(), granted.expires_in), (again.key.expose(), Some(3600)));
    let refused = content_key(&connect(&server, "mallory").await, identity, "/temp/../door").await;
    assert!(matches!(refused, Err(NotGranted::Refused)), "{refused:?}");
    // A producer with a shared key gets the keys of its own content, and its consumers get the same keys.
    let own = SessionIdentity::parse(b"display;AAECAwQFBgcI").expect("an identity");
    content_key(&display, own, "/screen").await.expect("the key of its own content");
    let mallory = connect(&server, "mallory").await;
    assert!(matches!(content_key(&mallory, own, "/screen").await, Err(NotGranted::Refused)));
    // Nobody gets the keys of a disabled producer, and a disabled consumer gets no keys.
    service.disable("operator", "oven").await.expect("disabled");
    assert!(matches!(content_key(&display, identity, "/temp").await, Err(NotGranted::Refused)));
    service.enable("operator", "oven").await.expect("enabled");
    service.disable("operator", "display").await.expect("disabled");
    assert!(matches!(content_key(&display, identity, "/temp").await, Err(NotGranted::NotADevice)));
}
