//! Endpoints that ask and serve each other over the same sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Endpoint, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Reply, Responder, Router};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// Handlers that show the name of their endpoint.
fn router(name: &'static str) -> Router {
    Router::new()
        .get("/name", move |_, response| response.payload(name.as_bytes()))
        .post("/echo", |request, response| response.payload(request.payload()))
        .get("/long", |_, response| response.payload(&[7; 3000]))
        .get("/later", |request, response| {
            let responder = request.defer(response);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                responder.send(Reply::content(0, "late"));
            });
            Ok(())
        })
        .get("/dropped", |request, response| {
            drop(request.defer(response));
            Ok(())
        })
}

fn credentials(identity: &str) -> Credentials {
    Credentials::single(identity, KEY)
}

/// An endpoint that uses an identity, and serves the peers that prove `admitted`.
async fn endpoint(name: &'static str, identity: &str, admitted: &str) -> Endpoint {
    let config = ClientConfig::psk(identity, KEY).with(|config| config.coap.timeout = Duration::from_secs(20));
    let builder = Endpoint::with(config).serve(router(name)).credentials(credentials(admitted));
    builder.bind("127.0.0.1:0").await.unwrap()
}

fn address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.addresses()[0]
}

async fn name_of(session: &Session) -> String {
    String::from_utf8(session.get("/name").await.unwrap().payload).unwrap()
}

#[tokio::test]
async fn a_peer_that_connected_to_us_can_be_asked_over_its_session() {
    let (gateway, device) = (endpoint("gateway", "pair", "pair").await, endpoint("device", "pair", "pair").await);
    let session = device.connect_to(address(&gateway), Scheme::Coaps).await.unwrap();
    assert_eq!(name_of(&session).await, "gateway");
    assert_eq!(gateway.clients(), [address(&device)]);
    let back = gateway.accepted(address(&device)).unwrap();
    assert_eq!(back.server().as_deref(), Some("pair"));
    for _ in 0..3 {
        assert_eq!((name_of(&back).await, name_of(&session).await), ("device".to_owned(), "gateway".to_owned()));
    }
    // A peer that proved the key with which we would connect is the one that is meant: there is no second handshake.
    let again = gateway.connect_to(address(&device), Scheme::Coaps).await.unwrap();
    assert_eq!(name_of(&again).await, "device");
    assert_eq!((gateway.counters().established, device.counters().established), (1, 1));
}

#[tokio::test]
async fn both_ask_at_the_same_time() {
    let (gateway, device) = (endpoint("gateway", "pair", "pair").await, endpoint("device", "pair", "pair").await);
    let session = device.connect_to(address(&gateway), Scheme::Coaps).await.unwrap();
    name_of(&session).await;
    let back = gateway.accepted(address(&device)).unwrap();
    let ask = async |session: &Session| {
        for number in 0..50u8 {
            assert_eq!(session.post("/echo", &[number]).await.unwrap().payload, [number]);
        }
        assert_eq!(session.get("/long").await.unwrap().payload, [7; 3000]);
        assert_eq!(session.get("/later").await.unwrap().payload, b"late");
        assert_eq!(session.get("/dropped").await.unwrap().code, Code::INTERNAL_SERVER_ERROR);
        assert_eq!(session.get("/nothing").await.unwrap().code, Code::NOT_FOUND);
    };
    tokio::join!(ask(&session), ask(&back));
}

#[tokio::test]
async fn peers_in_clear_are_served_if_that_is_allowed() {
    let open = Endpoint::builder().serve(router("open")).allow_plain().bind("127.0.0.1:0").await.unwrap();
    let shut = Endpoint::builder().serve(router("shut")).bind("127.0.0.1:0").await.unwrap();
    let client = Endpoint::with(ClientConfig::default().with(|config| config.coap.timeout = Duration::from_secs(3)));
    let client = client.serve(router("client")).allow_plain().bind("127.0.0.1:0").await.unwrap();
    let session = client.connect_to(address(&open), Scheme::Coap).await.unwrap();
    assert_eq!(name_of(&session).await, "open");
    let back = open.connect_to(address(&client), Scheme::Coap).await.unwrap();
    assert_eq!((name_of(&back).await, name_of(&session).await), ("client".to_owned(), "open".to_owned()));
    let refused = client.connect_to(address(&shut), Scheme::Coap).await.unwrap();
    assert!(matches!(refused.get("/name").await, Err(ClientError::Silence { .. })));
}

#[tokio::test]
async fn an_endpoint_that_does_not_serve_answers_no_client_hello() {
    let client = Endpoint::builder().psk("pair", KEY).bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig::psk("pair", KEY).with(|config| config.dtls.handshake_timeout = Duration::from_secs(2));
    let other = Endpoint::with(config).bind("127.0.0.1:0").await.unwrap();
    let refused = other.connect_to(address(&client), Scheme::Coaps).await;
    assert!(matches!(refused, Err(ClientError::Silence { .. })), "{:?}", refused.err());
}

#[tokio::test]
async fn a_client_with_an_unknown_identity_is_refused() {
    let gateway = endpoint("gateway", "pair", "another").await;
    let device = endpoint("device", "pair", "pair").await;
    let refused = device.connect_to(address(&gateway), Scheme::Coaps).await;
    assert!(matches!(refused, Err(ClientError::IdentityOrKey { .. })), "{:?}", refused.err());
    assert!(gateway.clients().is_empty());
}

#[tokio::test]
async fn rights_limit_a_peer_that_we_connected_to() {
    let config = ClientConfig::psk("pair", KEY);
    // The credentials do not have the key that the endpoint uses, so its server has no rights here.
    let device = Endpoint::with(config).serve(router("device")).credentials(credentials("another"));
    let device = device.bind("127.0.0.1:0").await.unwrap();
    let gateway = endpoint("gateway", "pair", "pair").await;
    let session = device.connect_to(address(&gateway), Scheme::Coaps).await.unwrap();
    assert_eq!(name_of(&session).await, "gateway");
    let back = gateway.accepted(address(&device)).unwrap();
    assert_eq!(back.get("/name").await.unwrap().code, Code::UNAUTHORIZED);
}

#[tokio::test]
async fn two_that_connect_to_each_other_at_the_same_time_have_one_session() {
    for _ in 0..20 {
        let (left, right) = (endpoint("left", "pair", "pair").await, endpoint("right", "pair", "pair").await);
        let (to_right, to_left) = tokio::join!(
            left.connect_to(address(&right), Scheme::Coaps),
            right.connect_to(address(&left), Scheme::Coaps)
        );
        let (to_right, to_left) = (to_right.unwrap(), to_left.unwrap());
        let names = tokio::join!(name_of(&to_right), name_of(&to_left));
        assert_eq!(names, ("right".to_owned(), "left".to_owned()));
    }
}

#[tokio::test]
async fn a_peer_that_connects_at_the_same_time_with_another_identity_is_not_taken_for_the_server() {
    // Each admits the other, but neither proves the identity that the other one used.
    let (left, right) = (endpoint("left", "l", "r").await, endpoint("right", "r", "l").await);
    let (to_right, to_left) =
        tokio::join!(left.connect_to(address(&right), Scheme::Coaps), right.connect_to(address(&left), Scheme::Coaps));
    assert!(to_right.is_err() || to_left.is_err(), "one of them became the server of a client that was not meant");
}

#[tokio::test]
async fn a_responder_that_outlives_its_endpoint_does_no_harm() {
    let kept: Arc<Mutex<Vec<Responder>>> = Arc::default();
    let keep = kept.clone();
    let router = Router::new().get("/never", move |request, response| {
        keep.lock().unwrap().push(request.defer(response));
        Ok(())
    });
    let server = Endpoint::builder().serve(router).allow_plain().bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig::default().with(|config| config.coap.timeout = Duration::from_millis(500));
    let client = Endpoint::with(config).bind("127.0.0.1:0").await.unwrap();
    let session = client.connect_to(address(&server), Scheme::Coap).await.unwrap();
    assert!(session.get("/never").await.is_err());
    server.close();
    drop(server);
    for responder in kept.lock().unwrap().drain(..) {
        responder.send(Reply::new(Code::CONTENT).option(OptionNumber::ETAG, b"x"));
    }
}
