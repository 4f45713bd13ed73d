//! Tests of tokens that the access control server uploads to a publisher, over real sockets. The publisher opens a
//! session with the subscriber, or refuses the token.

#[allow(dead_code, reason = "each test uses its part")]
mod scene;

use scene::{Access, Dir, KEY};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tegmen::coap::Code;
use tegmen_control::access::ace::{
    ACE_CBOR, Aif, ConnectionRequest, Returned, Right, Scope, TokenRequest, TokenResponse, TokenUpload,
};
use tegmen_control::access::protokey::{Mode, Protokey, SessionIdentity};
use tegmen_control::publisher::{Refusal, Ticket, Tickets};
use tegmen_control::service::Service;
use tegmen_control::state::Bounds;
use tegmen_control::subscriber::{Introspector, NotGranted};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;
use tegmen_store::Database;
use tegmen_store::clock::now_millis;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;

const NOW: u64 = 1_800_000_000;

fn protokey() -> Protokey {
    Protokey::new(&KEY).expect("a protokey")
}

fn scope(path: &str) -> Scope {
    Scope::of(&Aif(vec![Right { path: path.to_owned(), permissions: 1 }]))
}

/// Starts a publisher that takes at most `most` tokens. Returns its server, its tokens, and a channel that receives
/// each token that the publisher takes.
fn publisher(most: usize) -> (Arc<Server>, Tickets, UnboundedReceiver<Arc<Ticket>>) {
    let tickets = Tickets::new("oven", protokey(), most).expect("randomness");
    let (taken, tickets_taken) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new()
        .post("/authz-info", tickets.handler(move |ticket| taken.send(ticket).expect("a test")))
        .get("/temp", |_, response| response.payload(b"21.5"))
        .get("/secret", |_, response| response.payload(b"no"));
    let server = Server::builder().listen("coaps://127.0.0.1:0").shards(1).key_store(tickets.clone());
    (Arc::new(server.serve(router).expect("a server")), tickets, tickets_taken)
}

/// Starts an access control server, which grants rights for `lifetime` seconds. `oven` is the address of the publisher.
async fn access(dir: &Dir, oven: Option<SocketAddr>, lifetime: u64) -> (Server, Arc<Service<Database>>) {
    let Access { server, service, .. } = Access::start(dir, oven, Bounds { lifetime, ..Bounds::default() }).await;
    (server, service)
}

fn at(server: &Server) -> SocketAddr {
    server.addresses()[0].address
}

async fn connect(to: SocketAddr, identity: &str, key: &[u8]) -> Result<Session, ClientError> {
    let config = ClientConfig::psk(identity, key).with(|config| config.recovery.reconnect = false);
    Session::connect_to(to, Scheme::Coaps, config).await
}

/// Starts a subscriber, to whose path `/temp` publishers write. Returns its server, its key store, and the last value
/// that was written.
async fn subscriber(access: &Server) -> (Arc<Server>, Introspector, Arc<Mutex<Vec<u8>>>) {
    let session = connect(at(access), "display", &KEY).await.expect("a session");
    let keys = Introspector::new(session, Handle::current(), vec!["PUT /temp".to_owned()]);
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let reading = Arc::clone(&written);
    let router = Router::new().put("/temp", move |request, response| {
        *reading.lock().expect("a lock") = request.payload().to_vec();
        response.set_code(Code::CHANGED);
        Ok(())
    });
    let server = Server::builder().listen("coaps://127.0.0.1:0").shards(1).key_store(keys.clone());
    (Arc::new(server.serve(router).expect("a server")), keys, written)
}

#[tokio::test]
async fn a_publisher_opens_the_session_that_a_subscriber_asked_for() {
    let dir = Dir::new("tickets-opens");
    let (oven, _, mut taken) = publisher(4);
    let (access, service) = access(&dir, Some(at(&oven)), 600).await;
    let (display, keys, written) = subscriber(&access).await;
    let address = at(&display);
    let publishing = tokio::spawn(async move {
        let ticket = taken.recv().await.expect("a ticket");
        assert_eq!((ticket.connect, ticket.subscriber.as_str()), (Some(address), "display"));
        let session = connect(address, &ticket.identity, &ticket.key).await.expect("a session");
        assert_eq!(session.put("/temp", b"21.5").await.expect("a response").code, Code::CHANGED);
        assert_eq!(session.put("/other", b"1").await.expect("a response").code, Code::FORBIDDEN);
        (ticket, session)
    });
    let expected = keys.invite("oven", &scope("/temp"), address).await.expect("an invitation");
    assert_eq!(expected.expires_in, Some(600));
    let (ticket, session) = publishing.await.expect("a publisher");
    assert_eq!((&ticket.identity, &**written.lock().expect("a lock")), (&expected.identity, &b"21.5"[..]));

    // The subscriber does not have the token; a revocation ends the session all the same, and its key opens no other.
    let (ended, mut sessions) = tokio::sync::mpsc::unbounded_channel();
    let (following, own) = (keys.clone(), Arc::clone(&display));
    let following = tokio::spawn(async move {
        following.end_revoked(&own, |session| ended.send(session.identity.clone()).expect("a test")).await
    });
    service.revoke_session("operator", &expected.identity).await.expect("revoked");
    assert_eq!(sessions.recv().await, Some(expected.identity));
    assert!(session.put("/temp", b"1").await.is_err());
    assert!(connect(address, &ticket.identity, &ticket.key).await.is_err());
    following.abort();
}

#[tokio::test]
async fn a_publisher_without_resources_refuses_and_nobody_has_a_token() {
    let dir = Dir::new("tickets-busy");
    let (oven, tickets, mut taken) = publisher(1);
    let (access, service) = access(&dir, Some(at(&oven)), 600).await;
    let (display, keys, _) = subscriber(&access).await;
    keys.invite("oven", &scope("/temp"), at(&display)).await.expect("an invitation");
    let first = taken.recv().await.expect("a ticket");
    let refused = keys.invite("oven", &scope("/temp"), at(&display)).await;
    let Err(NotGranted::Later { code: Code::SERVICE_UNAVAILABLE, seconds }) = refused else { panic!("{refused:?}") };
    assert!((1..=600).contains(&seconds));
    let sessions = service.state().view().sessions(|_, _| true);
    assert_eq!(sessions.len(), 2);
    for session in &sessions {
        let hash = session.token.as_ref().expect("a token");
        let listed = service.state().view().is_revoked(hash);
        assert_eq!(listed, session.identity != first.identity);
    }
    // After the end of a session the publisher takes another token.
    tickets.end(&first.identity);
    keys.invite("oven", &scope("/temp"), at(&display)).await.expect("an invitation");
    drop((access, service));
    let log = std::fs::read_to_string(dir.0.join("audit.log")).expect("a log");
    assert_eq!(log.matches("\"publisher-busy\"").count(), 1, "{log}");
}

#[tokio::test]
async fn tokens_that_no_publisher_takes_leave_half_of_the_revocation_list_to_the_operator() {
    let dir = Dir::new("tickets-flood");
    let (oven, _tickets, mut taken) = publisher(1);
    let revoked = tegmen_control::access::revocation::Bounds { tokens: 4, ..Default::default() };
    let bounds = Bounds { lifetime: 600, revoked, ..Bounds::default() };
    let Access { server: access, service, .. } = Access::start(&dir, Some(at(&oven)), bounds).await;
    let (display, keys, _) = subscriber(&access).await;
    keys.invite("oven", &scope("/temp"), at(&display)).await.expect("an invitation");
    let first = taken.recv().await.expect("a ticket");
    for _ in 0..4 {
        let refused = keys.invite("oven", &scope("/temp"), at(&display)).await;
        assert!(matches!(refused, Err(NotGranted::Later { .. })), "{refused:?}");
    }
    assert_eq!(service.state().view().revoked_page(None, 10).0.len(), 2);
    service.revoke_session("operator", &first.identity).await.expect("revoked");
    drop((access, service));
    let log = std::fs::read_to_string(dir.0.join("audit.log")).expect("a log");
    assert_eq!(log.matches("\"not-revoked\"").count(), 2, "{log}");
}

#[tokio::test]
async fn a_subscriber_with_an_uploaded_token_may_do_what_the_token_allows_until_it_expires() {
    let dir = Dir::new("tickets-expires");
    let (oven, tickets, mut taken) = publisher(4);
    let (access, _) = access(&dir, Some(at(&oven)), 2).await;
    let display = connect(at(&access), "display", &KEY).await.expect("a session");
    let ask = async |upload| {
        let request = TokenRequest {
            audience: Some("oven".to_owned()),
            scope: Some(scope("/temp")),
            upload: Some(upload),
            ..TokenRequest::default()
        };
        let response = display.post("/token", &request.encode()).content_format(ACE_CBOR).await.expect("a response");
        assert_eq!(response.code, Code::CREATED);
        TokenResponse::parse(&response.payload).expect("a response")
    };
    let response = ask(Returned::Hash).await;
    assert_eq!((response.uploaded, response.access_token), (Some(true), None));
    assert!(response.token_hash.is_some());
    let response = ask(Returned::Token).await;
    assert_eq!((response.uploaded, response.token_hash), (Some(true), None));
    let token = response.access_token.expect("a token");
    let _ = taken.recv().await.expect("a ticket");
    let ticket = taken.recv().await.expect("a ticket");
    assert_eq!(ticket.connect, None);
    let session = connect(at(&oven), &ticket.identity, &ticket.key).await.expect("a session");
    assert_eq!(session.get("/temp").await.expect("a response").payload, b"21.5");
    assert_eq!(session.get("/secret").await.expect("a response").code, Code::FORBIDDEN);
    let upload = TokenUpload { access_token: token, connect: None }.encode();
    let own = session.post("/authz-info", &upload).content_format(ACE_CBOR).await.expect("a response");
    assert_eq!(own.code, Code::FORBIDDEN);

    // A token that is taken after the end of another one does not keep the session of that one.
    while now_millis() / 1000 < ticket.expires {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    ask(Returned::Hash).await;
    let server = Arc::clone(&oven);
    let ending = tokio::spawn(async move { tickets.end_expired(&server).await });
    while session.get("/temp").await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(connect(at(&oven), &ticket.identity, &ticket.key).await.is_err());
    ending.abort();
}

#[tokio::test]
async fn a_publisher_that_is_not_there_leaves_the_token_to_the_subscriber() {
    let dir = Dir::new("tickets-unreachable");
    // A port where nobody listens.
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let (access, _) = access(&dir, Some(unused), 600).await;
    let (display, keys, _) = subscriber(&access).await;
    let refused = keys.invite("oven", &scope("/temp"), at(&display)).await;
    assert!(matches!(refused, Err(NotGranted::Unreachable)), "{refused:?}");
    let session = connect(at(&access), "display", &KEY).await.expect("a session");
    let request = TokenRequest {
        audience: Some("oven".to_owned()),
        scope: Some(scope("/temp")),
        upload: Some(Returned::Nothing),
        ..TokenRequest::default()
    };
    let response = session.post("/token", &request.encode()).content_format(ACE_CBOR).await.expect("a response");
    let response = TokenResponse::parse(&response.payload).expect("a response");
    assert_eq!((response.uploaded, response.access_token.is_some()), (Some(false), true));
    // Something else than an address is no connection request.
    for to_rs in [&b""[..], &[0xa0], &ConnectionRequest { address: "0.0.0.0:1".parse().expect("one") }.encode()] {
        let request = TokenRequest { to_rs: Some(to_rs.to_vec()), ..request.clone() };
        let response = session.post("/token", &request.encode()).content_format(ACE_CBOR).await.expect("a response");
        assert_eq!(response.code, Code::BAD_REQUEST);
    }
}

#[tokio::test]
async fn without_an_address_of_the_publisher_the_subscriber_gets_the_token() {
    let dir = Dir::new("tickets-none");
    let (access, service) = access(&dir, None, 600).await;
    let display = connect(at(&access), "display", &KEY).await.expect("a session");
    let request = TokenRequest {
        audience: Some("oven".to_owned()),
        scope: Some(scope("/temp")),
        upload: Some(Returned::Nothing),
        ..TokenRequest::default()
    };
    let response = display.post("/token", &request.encode()).content_format(ACE_CBOR).await.expect("a response");
    let response = TokenResponse::parse(&response.payload).expect("a response");
    assert_eq!(response.uploaded, None);
    let token = response.access_token.expect("a token");
    assert!(!service.is_revoked(&token));

    // The subscriber itself cannot upload it: it does not have the key of the access control server.
    let (oven, _, _taken) = publisher(4);
    for key in [&KEY[..], &[0; 32]] {
        assert!(connect(at(&oven), "access control server", key).await.is_err());
    }
}

/// Makes the content of requests that upload a token of `oven`, from the name of the subscriber, a number for the
/// session identity, and the lifetime of the token in seconds.
fn uploads() -> impl FnMut(&str, u64, u64) -> (String, Vec<u8>) {
    use tegmen_control::access::ace::cwt::seal;
    use tegmen_control::access::ace::{Claims, Confirmation, CoseKey};
    let mut crypto = HostCrypto::from_os().expect("randomness");
    move |subscriber, number, lifetime| {
        let identity = format!("oven;AAECAwQFBg{number:02}");
        let session = SessionIdentity::parse(identity.as_bytes()).expect("an identity");
        let key = protokey().session_key::<HostCrypto>(Mode::Bound, session, subscriber);
        let key = CoseKey { kid: Some(identity.clone().into()), ..CoseKey::symmetric(key.expose()) };
        let claims = Claims {
            subject: Some(subscriber.to_owned()),
            audience: Some("oven".to_owned()),
            cnf: Some(Confirmation::Key(key)),
            scope: Some(scope("/temp")),
            issued_at: Some(NOW),
            expires: Some(NOW + lifetime),
            ..Claims::default()
        };
        let access_token = seal(&claims, &protokey().token_key::<HostCrypto>(), &mut crypto);
        (identity, TokenUpload { access_token, connect: None }.encode().to_vec())
    }
}

#[test]
fn a_subscriber_has_a_share_of_the_tokens_of_a_publisher() {
    let mut upload = uploads();
    let tickets = Tickets::new("oven", protokey(), 3).expect("randomness");
    let (first, token) = upload("display", 1, 11);
    tickets.take(&token, NOW).expect("taken");
    tickets.take(&upload("display", 2, 12).1, NOW).expect("taken");
    let third = upload("display", 3, 12).1;
    assert_eq!(tickets.take(&third, NOW).expect_err("refused"), Refusal::Busy { seconds: 11 });
    tickets.take(&upload("lamp", 4, 14).1, NOW).expect("a place of another subscriber");
    assert_eq!(tickets.take(&upload("door", 5, 15).1, NOW).expect_err("refused"), Refusal::Busy { seconds: 11 });
    // After the end of a session the subscriber gets its next one.
    tickets.end(&first);
    tickets.take(&third, NOW).expect("taken");
}

/// A subscriber that has restarted several times gets a session.
#[test]
fn a_newer_token_ends_the_oldest_session_of_its_subscriber() {
    let mut upload = uploads();
    let tickets = Tickets::new("oven", protokey(), 3).expect("randomness");
    let (old, token) = upload("display", 1, 11);
    let (kept, second) = upload("display", 2, 12);
    for taken in [&token, &second, &upload("lamp", 3, 11).1] {
        tickets.take(taken, NOW).expect("taken");
    }
    let (new, third) = upload("display", 4, 13);
    tickets.take(&third, NOW).expect("taken");
    assert!(tickets.in_use(&old, NOW).is_none());
    assert!(tickets.in_use(&kept, NOW).is_some() && tickets.in_use(&new, NOW).is_some());
    assert_eq!(tickets.take(&token, NOW).expect_err("refused"), Refusal::Used);
    assert_eq!(tickets.take(&upload("display", 5, 13).1, NOW).expect_err("refused"), Refusal::Busy { seconds: 12 });
}

#[test]
fn a_publisher_takes_no_token_twice_and_none_that_is_not_for_it() {
    use tegmen_control::access::ace::cwt::seal;
    use tegmen_control::access::ace::{Claims, Confirmation, CoseKey};
    let mut crypto = HostCrypto::from_os().expect("randomness");
    let identity = "oven;AAECAwQFBgcI";
    let session = SessionIdentity::parse(identity.as_bytes()).expect("an identity");
    let key = |subscriber| protokey().session_key::<HostCrypto>(Mode::Bound, session, subscriber);
    let claims = |secret: &[u8], path: &str| Claims {
        subject: Some("display".to_owned()),
        audience: Some("oven".to_owned()),
        cnf: Some(Confirmation::Key(CoseKey { kid: Some(identity.into()), ..CoseKey::symmetric(secret) })),
        scope: Some(scope(path)),
        expires: Some(NOW + 10),
        ..Claims::default()
    };
    let right = claims(key("display").expose(), "/temp");
    let mut upload = |claims: &Claims| {
        let access_token = seal(claims, &protokey().token_key::<HostCrypto>(), &mut crypto);
        TokenUpload { access_token, connect: None }.encode()
    };
    let tickets = Tickets::new("oven", protokey(), 1).expect("randomness");
    let wrong = [
        (claims(key("mallory").expose(), "/temp"), Refusal::NotAuthentic),
        (Claims { subject: Some("mallory".to_owned()), ..right.clone() }, Refusal::NotAuthentic),
        (Claims { audience: Some("stove".to_owned()), ..right.clone() }, Refusal::NotAuthentic),
        (Claims { cnf: None, ..right.clone() }, Refusal::NotAuthentic),
        (Claims { expires: Some(NOW), ..right.clone() }, Refusal::Expired),
        (Claims { expires: None, ..right.clone() }, Refusal::Expired),
        (Claims { not_before: Some(NOW + 1), ..right.clone() }, Refusal::Expired),
        (Claims { scope: None, ..right.clone() }, Refusal::Scope),
        // A rule of the credentials would read each of these as more than one resource.
        (claims(key("display").expose(), "/*"), Refusal::Scope),
        (claims(key("display").expose(), "temp"), Refusal::Scope),
        (claims(key("display").expose(), "/authz-info"), Refusal::Scope),
    ];
    for (claims, refusal) in &wrong {
        assert_eq!(tickets.take(&upload(claims), NOW).expect_err("refused"), *refusal);
    }
    assert_eq!(tickets.take(&upload(&right), NOW).expect("taken").identity, identity);
    assert_eq!(tickets.take(&upload(&right), NOW).expect_err("refused"), Refusal::Used);
    let other = Claims { cnf: right.cnf.clone(), ..claims(key("display").expose(), "/temp") };
    assert_eq!(tickets.take(&upload(&other), NOW + 9).expect_err("refused"), Refusal::Used);
    tickets.end(identity);
    assert_eq!(tickets.take(&upload(&right), NOW + 9).expect_err("refused"), Refusal::Used);
    // It is sealed under the key of another publisher.
    let foreign = Protokey::new(&[8; 16]).expect("a protokey").token_key::<HostCrypto>();
    let access_token = seal(&right, &foreign, &mut HostCrypto::from_os().expect("randomness"));
    let foreign = TokenUpload { access_token, connect: None }.encode();
    assert_eq!(tickets.take(&foreign, NOW).expect_err("refused"), Refusal::NotAuthentic);
    assert!(matches!(tickets.take(b"\xa0", NOW), Err(Refusal::Malformed(_))));
}
