//! Tests endpoints that send requests to each other and serve each other over the same sockets.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Endpoint, EndpointBuilder, Observation, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Event, Reply, Responder, Router, ServerCoap};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// Returns handlers that show the name of their endpoint.
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

/// Opens an endpoint that proves `identity`, and that serves the peers that prove `admitted`.
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

/// The events of an endpoint.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<(String, serde_json::Value)>>>);

impl Events {
    fn add(&self, event: &Event) {
        self.0.lock().unwrap().push((event.to_string(), serde_json::to_value(event).unwrap()));
    }

    fn names(&self) -> Vec<String> {
        let events = self.0.lock().unwrap();
        events.iter().map(|(_, event)| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the event of the request with this method and path. Leaves out events of blocks.
    fn request(&self, method: &str, path: &str) -> serde_json::Value {
        let events = self.0.lock().unwrap();
        let is_it = |event: &&(String, serde_json::Value)| {
            event.1["method"] == method && event.1["path"] == path && event.1["block"] == false
        };
        events.iter().find(is_it).map(|(_, event)| event.clone()).unwrap_or_default()
    }

    /// Waits until an event has this name.
    async fn wait_for(&self, name: &str) {
        while !self.names().iter().any(|each| each == name) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Returns the settings of an endpoint with a resource that clients can write and observe.
fn stores(value: &Arc<Mutex<Vec<u8>>>, events: &Events) -> EndpointBuilder {
    let (read, written, events) = (value.clone(), value.clone(), events.clone());
    let router = Router::new()
        .get("/value", move |_, response| {
            response.observable();
            response.payload(&read.lock().unwrap())
        })
        .put("/value", move |request, response| {
            *written.lock().unwrap() = request.payload().to_vec();
            request.changed("value");
            response.set_code(Code::CHANGED);
            Ok(())
        })
        .post("/echo", |request, response| response.payload(request.payload()))
        .get("/long", |_, response| response.payload(&[7; 3000]));
    let config = ClientConfig::psk("pair", KEY).with(|config| config.coap.timeout = Duration::from_secs(20));
    let builder = Endpoint::with(config).serve(router).credentials(credentials("pair"));
    builder.on_event(move |event| events.add(&event))
}

async fn next(observation: &mut Observation) -> Vec<u8> {
    observation.next().await.unwrap().unwrap().payload
}

#[tokio::test]
async fn both_take_bodies_in_blocks_and_observe_each_other() {
    let (left_value, right_value) = (Arc::new(Mutex::new(b"l".to_vec())), Arc::new(Mutex::new(b"r".to_vec())));
    let (left_events, right_events) = (Events::default(), Events::default());
    let left = stores(&left_value, &left_events).bind("127.0.0.1:0").await.unwrap();
    let right = stores(&right_value, &right_events).bind("127.0.0.1:0").await.unwrap();
    let to_right = left.connect_to(address(&right), Scheme::Coaps).await.unwrap();
    let mut of_right = to_right.get("/value").observe().await.unwrap();
    assert_eq!(next(&mut of_right).await, b"r");
    let to_left = right.accepted(address(&left)).unwrap();
    let mut of_left = to_left.get("/value").observe().await.unwrap();
    assert_eq!(next(&mut of_left).await, b"l");

    let body: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
    let (put, echoed) = tokio::join!(to_right.put("/value", &body), to_left.post("/echo", &body));
    assert_eq!((put.unwrap().code, echoed.unwrap().payload), (Code::CHANGED, body.clone()));
    assert_eq!(*right_value.lock().unwrap(), body);
    assert_eq!(next(&mut of_right).await, body);

    for round in 0..10u8 {
        *left_value.lock().unwrap() = vec![round];
        left.notifier().changed("value");
        assert_eq!(next(&mut of_left).await, [round]);
        right.notifier().changed("value");
        *right_value.lock().unwrap() = vec![round; 2000];
        right.notifier().changed("value");
        while next(&mut of_right).await != [round; 2000] {}
    }
    assert!(right.notifier().is_observed("value") && !right.notifier().is_observed("echo"));
    of_right.cancel().await.unwrap();
    of_left.cancel().await.unwrap();
    assert!(!right.notifier().is_observed("value"));

    let put = right_events.request("PUT", "/value");
    assert_eq!((&put["identity"], &put["code"], &put["request_bytes"]), (&"pair".into(), &"2.04".into(), &5000.into()));
    let echo = left_events.request("POST", "/echo");
    assert_eq!((&echo["request_bytes"], &echo["identity"]), (&5000.into(), &"pair".into()));
    to_right.close();
    right_events.wait_for("closed").await;
    assert_eq!(right_events.names().first().unwrap(), "established");
    let text = right_events.0.lock().unwrap()[0].0.clone();
    assert_eq!(text, format!("{} authenticated as pair", address(&left)));
    // Nobody opened a session with the left one.
    assert!(left_events.names().iter().all(|name| name == "request"), "{:?}", left_events.names());
}

#[tokio::test]
async fn the_limits_of_a_server_hold_at_an_endpoint() {
    let (value, events) = (Arc::new(Mutex::new(b"v".to_vec())), Events::default());
    let limits = |coap: &mut ServerCoap| {
        (coap.max_body, coap.max_observations, coap.response_timeout) = (2000, 1, Duration::from_millis(100));
    };
    let server = stores(&value, &events).limits(limits).bind("127.0.0.1:0").await.unwrap();
    let session = endpoint("client", "pair", "pair").await;
    let session = session.connect_to(address(&server), Scheme::Coaps).await.unwrap();
    assert_eq!(session.put("/value", &[1; 2000]).await.unwrap().code, Code::CHANGED);
    assert_eq!(session.put("/value", &[1; 2001]).await.unwrap().code, Code::REQUEST_ENTITY_TOO_LARGE);
    let first = session.get("/value").observe().await.unwrap();
    assert!(first.is_registered());
    assert!(!session.get("/value").observe().await.unwrap().is_registered());
}

#[tokio::test]
async fn a_deferred_response_that_is_late_is_answered_for_it() {
    let kept: Arc<Mutex<Vec<Responder>>> = Arc::default();
    let (keep, events) = (kept.clone(), Events::default());
    let seen = events.clone();
    let router = Router::new().get("/never", move |request, response| {
        keep.lock().unwrap().push(request.defer(response));
        Ok(())
    });
    let server = Endpoint::builder().serve(router).allow_plain().on_event(move |event| seen.add(&event));
    let server = server.limits(|coap| coap.response_timeout = Duration::from_millis(100));
    let server = server.bind("127.0.0.1:0").await.unwrap();
    let client = Endpoint::builder().bind("127.0.0.1:0").await.unwrap();
    let session = client.connect_to(address(&server), Scheme::Coap).await.unwrap();
    assert_eq!(session.get("/never").await.unwrap().code, Code::SERVICE_UNAVAILABLE);
    let cause = events.request("GET", "/never")["cause"].clone();
    assert_eq!(cause, "the application did not respond within 0.1 s");
}

#[tokio::test]
async fn a_peer_in_clear_shows_its_address_and_does_not_ask_too_often() {
    let (value, events) = (Arc::new(Mutex::new(b"v".to_vec())), Events::default());
    let limits = |coap: &mut ServerCoap| (coap.verify_addresses, coap.requests_per_second) = (true, 6);
    let server = stores(&value, &events).allow_plain().limits(limits).bind("127.0.0.1:0").await.unwrap();
    let client = Endpoint::builder().bind("127.0.0.1:0").await.unwrap();
    let session = client.connect_to(address(&server), Scheme::Coap).await.unwrap();
    assert_eq!(session.get("/long").await.unwrap().payload, [7; 3000]);
    let challenged = events.0.lock().unwrap().iter().filter(|(_, event)| event["code"] == "4.01").count();
    assert_eq!(challenged, 1, "a client that has shown its address is not asked again");
    let mut codes = Vec::new();
    for _ in 0..50 {
        codes.push(session.get("/value").await.unwrap().code);
    }
    assert!(codes.contains(&Code::TOO_MANY_REQUESTS), "{codes:?}");
    assert!(codes.contains(&Code::CONTENT));
}

#[tokio::test]
async fn a_peer_that_is_refused_is_reported() {
    let (value, events) = (Arc::new(Mutex::new(b"v".to_vec())), Events::default());
    let server = stores(&value, &events).bind("127.0.0.1:0").await.unwrap();
    let stranger = endpoint("stranger", "stranger", "pair").await;
    assert!(stranger.connect_to(address(&server), Scheme::Coaps).await.is_err());
    events.wait_for("failed").await;
    let (text, event) = events.0.lock().unwrap()[0].clone();
    assert_eq!(event["identity"], "stranger");
    assert!(text.starts_with(&format!("{} (\"stranger\"): connection failed", address(&stranger))), "{text}");
}

#[tokio::test]
async fn a_session_whose_key_is_taken_from_the_credentials_ends() {
    let dir = std::env::temp_dir().join(format!("tegmen-both-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("credentials.toml");
    // Files of different lengths, because a change within the same moment may have the same time.
    let write = |identity: &str| {
        let entry = format!("[[psk]]\nidentity = \"{identity}\"\nkey_text = \"0123456789abcdef\"\n");
        std::fs::write(&file, entry).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("pair");
    let (credentials, events) = (Credentials::from_file(&file).unwrap(), Events::default());
    let seen = events.clone();
    let server = Endpoint::builder().serve(router("server")).credentials(credentials);
    let server = server.on_event(move |event| seen.add(&event)).bind("127.0.0.1:0").await.unwrap();
    let client = endpoint("client", "pair", "pair").await;
    let session = client.connect_to(address(&server), Scheme::Coaps).await.unwrap();
    assert_eq!(name_of(&session).await, "server");
    let back = server.accepted(address(&client)).unwrap();
    write("another");
    events.wait_for("outdated").await;
    let over = back.get("/name").await;
    assert!(matches!(over, Err(ClientError::Ended { .. })), "{over:?}");
    assert!(events.names().contains(&"reloaded".to_owned()));
    assert!(server.clients().is_empty());
    std::fs::remove_dir_all(&dir).unwrap();
}
