//! Tests notifications that a server sends to all observers of a resource together
//! (draft-ietf-core-observe-multicast-notifications-14), over multicast on the loopback interface.
#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Policy, Request};
use tegmen::crypto::Curve;
use tegmen::oscore::Unprotected;
use tegmen::oscore::group::{GroupRequest, Mode};
use tegmen_host::client::{ClientConfig, ClientError, Observation, Response, Session};
use tegmen_host::contexts::{Contexts, MemberContext, StoredMember, create_group};
use tegmen_host::credentials::Credentials;
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, GroupObservation, Server, ServerConfig, Severity, StartError};
use tegmen_host::uri::Scheme;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::UdpSocket;

/// The Content-Format of an informative response.
const FORMAT: u32 = 65_064;
const OBSERVE: (OptionNumber, &[u8]) = (OptionNumber::OBSERVE, b"");
const PATH: (OptionNumber, &[u8]) = (OptionNumber::URI_PATH, b"value");

/// Returns a group that only one test uses.
fn group(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(239, 255, 79, last)
}

/// Returns a socket that receives the messages to the group.
async fn listener(group: Ipv4Addr) -> (UdpSocket, u16) {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from((group, port)).into()).unwrap();
    socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    (UdpSocket::from_std(socket.into()).unwrap(), port)
}

/// Receives a datagram, or nothing within this time.
async fn receive(socket: &UdpSocket, wait: Duration) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    let (len, from) = tokio::time::timeout(wait, socket.recv_from(&mut buffer)).await.ok()?.unwrap();
    Some((buffer[..len].to_vec(), from))
}

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(20);

fn offer(group: Ipv4Addr, port: u16, oscore: Option<&str>) -> ServerConfig {
    ServerConfig::default().with(|config| {
        config.shards = 2;
        config.trust.plain_allowed = oscore.is_none();
        let group = format!("{group}%127.0.0.1").parse().unwrap();
        config.group_observations =
            vec![GroupObservation { path: "value".to_owned(), group, port, oscore: oscore.map(str::to_owned) }];
    })
}

fn resources() -> Resources {
    Resources::new(["value", "other"].map(|path| (path.to_owned(), Resource::value(b"first"))))
}

async fn connect(address: SocketAddr, change: impl FnOnce(&mut ClientConfig)) -> Session {
    Session::connect_to(address, Scheme::Coap, ClientConfig::default().with(change)).await.unwrap()
}

async fn connect_in_clear(address: SocketAddr) -> Session {
    connect(address, |config| config.coap.multicast_in_clear = true).await
}

async fn next(observation: &mut Observation) -> Option<Response> {
    tokio::time::timeout(LONG, observation.next()).await.expect("no notification").unwrap()
}

async fn text(observation: &mut Observation) -> String {
    let response = next(observation).await.expect("it has ended");
    assert_eq!(response.code, Code::CONTENT);
    String::from_utf8(response.payload).unwrap()
}

#[tokio::test]
async fn all_observers_get_one_notification_and_the_end() {
    let (listener, port) = listener(group(1)).await;
    let reported = Arc::<Mutex<Vec<(Code, Severity)>>>::default();
    let report = Arc::clone(&reported);
    let server = Server::with(offer(group(1), port, None)).listen("coap://127.0.0.1:0").on_event(move |event| {
        if let Event::Request(answered) = &event {
            report.lock().unwrap().push((answered.code, event.severity()));
        }
    });
    let server = server.serve(resources()).unwrap();
    let address = server.addresses()[0].address;
    let (one, two) = (connect_in_clear(address).await, connect_in_clear(address).await);
    let mut observations = [one.observe("/value").await.unwrap(), two.observe("/value").await.unwrap()];
    for observation in &mut observations {
        assert!(observation.is_in_group());
        assert_eq!(text(observation).await, "first");
    }
    assert_eq!(*reported.lock().unwrap(), [(Code::SERVICE_UNAVAILABLE, Severity::Debug); 2], "nothing has failed");
    assert!(receive(&listener, SHORT).await.is_none(), "nothing has changed");
    one.put("/value", b"second").await.unwrap();
    for observation in &mut observations {
        assert_eq!(text(observation).await, "second");
    }
    let (datagram, from) = receive(&listener, SHORT).await.unwrap();
    let message = MessageRef::parse(&datagram).unwrap();
    assert_eq!(
        (message.message_type(), message.payload(), from),
        (MessageType::NonConfirmable, &b"second"[..], address)
    );
    assert!(message.option(OptionNumber::OBSERVE).is_some());
    // Two changes within 3 seconds are one notification.
    for value in [&b"third"[..], b"fourth"] {
        one.put("/value", value).await.unwrap();
    }
    assert!(receive(&listener, SHORT).await.is_none(), "a second notification within 3 seconds");
    for observation in &mut observations {
        assert_eq!(text(observation).await, "fourth");
    }
    assert!(receive(&listener, SHORT).await.is_some());
    // A client that comes later begins with the newest notification.
    let late = connect_in_clear(address).await;
    assert_eq!(text(&mut late.observe("/value").await.unwrap()).await, "fourth");
    // A client that cancels gets the representation, and the others still get notifications.
    let [mut remains, cancels] = observations;
    assert_eq!(cancels.cancel().await.unwrap().payload, b"fourth");
    server.stop();
    let last = next(&mut remains).await.unwrap();
    assert_eq!((last.code, last.payload.len()), (Code::SERVICE_UNAVAILABLE, 0));
    assert!(next(&mut remains).await.is_none());
    let (datagram, _) = receive(&listener, SHORT).await.unwrap();
    let message = MessageRef::parse(&datagram).unwrap();
    assert_eq!((message.code(), message.option(OptionNumber::OBSERVE)), (Code::SERVICE_UNAVAILABLE, None));
}

#[tokio::test]
async fn a_client_that_does_not_permit_it_takes_no_notification_in_clear() {
    let (_listener, port) = listener(group(2)).await;
    let server = Server::with(offer(group(2), port, None)).listen("coap://127.0.0.1:0").serve(resources()).unwrap();
    let address = server.addresses()[0].address;
    let session = connect(address, |_| {}).await;
    let refused = session.observe("/value").await.map(drop).unwrap_err();
    assert!(matches!(refused, ClientError::Informative { .. }), "{refused}");
    assert!(refused.to_string().contains("--multicast-in-clear"), "{refused}");
    // Other resources, and other representations of this resource, are observed as usual.
    let session = connect_in_clear(address).await;
    for path in ["/other", "/value?unit=F"] {
        let mut observation = session.observe(path).await.unwrap();
        assert!(observation.is_registered() && !observation.is_in_group(), "{path}");
        assert_eq!(text(&mut observation).await, "first");
        session.put(path, b"second").await.unwrap();
        assert_eq!(text(&mut observation).await, "second");
        session.put(path, b"first").await.unwrap();
    }
    assert_eq!(session.get("/value").await.unwrap().payload, b"first");
    server.stop();
}

#[test]
fn what_cannot_be_offered_is_refused_at_the_start() {
    let start = |change: &dyn Fn(&mut GroupObservation), listen: &str| {
        let mut config = offer(group(3), 61_616, None);
        change(&mut config.group_observations[0]);
        let refused = Server::with(config).listen(listen).serve(resources()).map(drop).unwrap_err();
        assert!(matches!(refused, StartError::GroupObservation(_)), "{refused}");
        refused.to_string()
    };
    let here = "coap://127.0.0.1:0";
    let oscore = start(&|offer| offer.oscore = Some("lights".to_owned()), here);
    assert!(oscore.contains("no context of the OSCORE group"), "{oscore}");
    let on_link = start(&|offer| offer.group = "ff02::fd%lo".parse().unwrap(), "coap://[::1]:0");
    assert!(on_link.contains("an address of one link"), "{on_link}");
    let path = start(&|offer| offer.path = "a//b".to_owned(), here);
    assert!(path.contains("the path is not valid"), "{path}");
    let family = start(&|_| {}, "coap://[::1]:0");
    assert!(family.contains("no address of the same family"), "{family}");
}

/// Writes a message.
fn message(head: (MessageType, Code, u16), token: &[u8], options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 1500];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, head.0, head.1, head.2, token).unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

/// Returns the code, the options and the payload of a message with a token of `token_len` bytes.
fn independent(message: &[u8], token_len: usize) -> Vec<u8> {
    [&message[1..2], &message[4 + token_len..]].concat()
}

/// Writes the payload of an informative response.
fn informative(server: SocketAddr, group: SocketAddr, phantom: &[u8], latest: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut bytes);
    encoder.map(2 + u64::from(latest.is_some())).unwrap().u8(0).unwrap().array(3).unwrap();
    for address in [server, group] {
        let SocketAddr::V4(address) = address else { panic!("it is IPv4") };
        let host = encoder.array(2).unwrap().i8(-1).unwrap().array(2).unwrap();
        host.bytes(&address.ip().octets()).unwrap().u16(address.port()).unwrap();
    }
    encoder.bytes(TOKEN).unwrap().u8(1).unwrap().bytes(phantom).unwrap();
    if let Some(latest) = latest {
        encoder.u8(2).unwrap().bytes(latest).unwrap();
    }
    bytes
}

const TOKEN: &[u8] = b"{{";
const NON: MessageType = MessageType::NonConfirmable;

fn phantom(options: &[(OptionNumber, &[u8])]) -> Vec<u8> {
    independent(&message((NON, Code::GET, 0), TOKEN, options, b""), TOKEN.len())
}

fn notification(number: u8, payload: &[u8]) -> Vec<u8> {
    message((NON, Code::CONTENT, number.into()), TOKEN, &[(OptionNumber::OBSERVE, &[number])], payload)
}

/// A socket that sends to groups on the loopback interface.
async fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).await.unwrap();
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    socket
}

/// Answers the next request at `server` with an informative response.
async fn answer(server: &UdpSocket, payload: &[u8]) {
    let (request, client) = receive(server, LONG).await.unwrap();
    let request = MessageRef::parse(&request).unwrap();
    assert_eq!(request.uint(OptionNumber::OBSERVE), Some(0));
    let format = [(FORMAT >> 8) as u8, FORMAT as u8];
    let head = (MessageType::Acknowledgement, Code::SERVICE_UNAVAILABLE, request.message_id());
    let options = [(OptionNumber::CONTENT_FORMAT, &format[..]), (OptionNumber::MAX_AGE, b"")];
    server.send_to(&message(head, request.token(), &options, payload), client).await.unwrap();
}

#[tokio::test]
async fn a_forged_informative_response_is_refused() {
    let server = socket("127.0.0.4:0").await;
    let at = server.local_addr().unwrap();
    let to = SocketAddr::from((group(4), 61_616));
    let right = phantom(&[OBSERVE, PATH]);
    let other = SocketAddr::from(([127, 0, 0, 5], at.port()));
    let forged = [
        (informative(other, to, &right, None), "another address"),
        (informative(at, other, &right, None), "malformed"),
        (informative(at, to, &phantom(&[OBSERVE, (OptionNumber::URI_PATH, b"door")]), None), "another resource"),
        (informative(at, to, &phantom(&[PATH]), None), "another resource"),
        (informative(at, to, &[], None), "malformed"),
        (b"\xa0".to_vec(), "malformed"),
    ];
    for (payload, why) in forged {
        let session = connect_in_clear(at).await;
        let (refused, ()) = tokio::join!(session.observe("/value"), answer(&server, &payload));
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(refused, ClientError::Informative { .. }) && refused.to_string().contains(why), "{refused}");
    }
}

#[tokio::test]
async fn a_notification_of_another_address_or_that_is_old_is_not_shown() {
    let server = socket("127.0.0.4:0").await;
    let at = server.local_addr().unwrap();
    let to = SocketAddr::from((group(5), listener(group(5)).await.1));
    let session = connect_in_clear(at).await;
    let latest = independent(&notification(5, b"five"), TOKEN.len());
    let payload = informative(at, to, &phantom(&[OBSERVE, PATH]), Some(&latest));
    let (observation, ()) = tokio::join!(session.observe("/value"), answer(&server, &payload));
    let mut observation = observation.unwrap();
    assert_eq!(text(&mut observation).await, "five");
    // The same port at another address, and another port at the same address.
    for forger in [socket(&format!("127.0.0.6:{}", at.port())).await, socket("127.0.0.4:0").await] {
        forger.send_to(&notification(9, b"forged"), to).await.unwrap();
    }
    let wrong = [
        notification(5, b"repeated"),
        notification(4, b"old"),
        message((NON, Code::CONTENT, 7), b"token", &[(OptionNumber::OBSERVE, &[9])], b"of another request"),
        message((MessageType::Confirmable, Code::CONTENT, 8), TOKEN, &[(OptionNumber::OBSERVE, &[9])], b"confirmable"),
        message((NON, Code::PUT, 9), TOKEN, &[(OptionNumber::OBSERVE, &[9])], b"a request"),
        b"nothing".to_vec(),
    ];
    for datagram in wrong {
        server.send_to(&datagram, to).await.unwrap();
    }
    server.send_to(&notification(6, b"six"), to).await.unwrap();
    assert_eq!(text(&mut observation).await, "six");
    assert!(receive(&server, SHORT).await.is_none(), "the client answers no notification");
}

#[tokio::test]
async fn a_client_waits_for_the_first_notification_if_the_server_has_sent_none() {
    let server = socket("127.0.0.4:0").await;
    let at = server.local_addr().unwrap();
    let to = SocketAddr::from((group(12), listener(group(12)).await.1));
    let session = connect_in_clear(at).await;
    let payload = informative(at, to, &phantom(&[OBSERVE, PATH]), None);
    let (observation, ()) = tokio::join!(session.observe("/value"), answer(&server, &payload));
    let mut observation = observation.unwrap();
    assert!(observation.is_in_group() && observation.is_registered());
    tokio::select! {
        request = receive(&server, Duration::from_secs(2)) => assert!(request.is_none(), "it registers again at once"),
        _ = observation.next() => panic!("there is no notification"),
    }
    server.send_to(&notification(1, b"one"), to).await.unwrap();
    assert_eq!(text(&mut observation).await, "one");
}

/// The Feedback-Divider option, and the No-Response option that suppresses all responses.
const DIVIDER: OptionNumber = OptionNumber(18);
const NO_RESPONSE: (OptionNumber, &[u8]) = (OptionNumber::NO_RESPONSE, &[26]);

#[tokio::test]
async fn a_client_confirms_that_it_takes_part_when_a_notification_asks() {
    let server = socket("127.0.0.4:0").await;
    let at = server.local_addr().unwrap();
    let to = SocketAddr::from((group(10), listener(group(10)).await.1));
    let session = connect_in_clear(at).await;
    let asking = |number: u8, divider: &[u8]| {
        let options = [(OptionNumber::OBSERVE, &[number][..]), (DIVIDER, divider)];
        message((NON, Code::CONTENT, number.into()), TOKEN, &options, b"value")
    };
    // The option has no meaning in the informative response.
    let payload = informative(at, to, &phantom(&[OBSERVE, PATH]), Some(&independent(&asking(1, b""), TOKEN.len())));
    let (observation, ()) = tokio::join!(session.observe("/value"), answer(&server, &payload));
    let mut observation = observation.unwrap();
    assert_eq!(text(&mut observation).await, "value");
    tokio::select! {
        request = receive(&server, Duration::from_secs(6)) => assert!(request.is_none(), "nobody asked"),
        _ = observation.next() => panic!("there is no notification"),
    }
    // Each client confirms with the divider 0, and almost none with the divider 60.
    server.send_to(&asking(2, &[60]), to).await.unwrap();
    assert_eq!(text(&mut observation).await, "value");
    server.send_to(&asking(3, b""), to).await.unwrap();
    assert_eq!(text(&mut observation).await, "value");
    tokio::select! {
        request = receive(&server, LONG) => {
            let (request, _) = request.unwrap();
            let request = MessageRef::parse(&request).unwrap();
            assert_eq!((request.message_type(), request.code()), (NON, Code::GET));
            let options: Vec<_> = request.options().collect();
            assert_eq!(options, [OBSERVE, PATH, (DIVIDER, &b""[..]), NO_RESPONSE]);
        }
        _ = observation.next() => panic!("there is no notification"),
    }
    assert!(receive(&server, SHORT).await.is_none(), "one confirmation for one question");
}

#[tokio::test]
async fn a_confirmation_gets_no_response_and_begins_no_observation() {
    let (_listener, port) = listener(group(11)).await;
    let server = Server::with(offer(group(11), port, None)).listen("coap://127.0.0.1:0").serve(resources()).unwrap();
    let address = server.addresses()[0].address;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let confirmation = message((NON, Code::GET, 1), b"c", &[OBSERVE, PATH, (DIVIDER, b""), NO_RESPONSE], b"");
    client.send_to(&confirmation, address).await.unwrap();
    assert!(receive(&client, SHORT).await.is_none());
    assert!(!server.notifier().is_observed("value"));
    let session = connect_in_clear(address).await;
    let observation = session.observe("/value").await.unwrap();
    assert!(server.notifier().is_observed("value"));
    let again = message((NON, Code::GET, 2), b"c", &[OBSERVE, PATH, (DIVIDER, b""), NO_RESPONSE], b"");
    client.send_to(&again, address).await.unwrap();
    assert!(receive(&client, SHORT).await.is_none());
    drop(observation);
    server.stop();
}

/// A directory with the group `lights`. Its members are `switch`, `hall` and `porch`.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str, curve: Curve) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-multicast-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let names = ["switch", "hall", "porch"].map(str::to_owned);
        create_group(&dir.join("lights"), &names, curve, &Default::default(), None).unwrap();
        create_group(&dir.join("doors"), &names, curve, &Default::default(), None).unwrap();
        Self(dir)
    }

    fn at(&self, member: &str) -> PathBuf {
        self.0.join(member)
    }

    async fn connect(&self, member: &str, address: SocketAddr) -> Session {
        connect(address, |config| {
            config.oscore = Some(self.at(member));
            config.oscore_member = Some("hall".to_owned());
        })
        .await
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn members_of_the_oscore_group_get_one_signed_notification() {
    for (curve, last) in [(Curve::Ed25519, 6), (Curve::P256, 7)] {
        let scene = Scene::new(&format!("signed-{last}"), curve);
        let (listener, port) = listener(group(last)).await;
        let credentials = Credentials::default();
        let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
        let contexts = Contexts::open(&[scene.at("lights/hall"), scene.at("doors/hall")], learn).unwrap();
        let builder = Server::with(offer(group(last), port, Some("lights"))).listen("coap://127.0.0.1:0");
        let server = builder.oscore(contexts).credentials(credentials).serve(resources()).unwrap();
        let address = server.addresses()[0].address;
        let (switch, porch) =
            (scene.connect("lights/switch", address).await, scene.connect("lights/porch", address).await);
        let mut observations = [switch.observe("/value").await.unwrap(), porch.observe("/value").await.unwrap()];
        for observation in &mut observations {
            assert!(observation.is_in_group());
            assert_eq!(text(observation).await, "first");
        }
        for value in ["second", "third"] {
            switch.put("/value", value.as_bytes()).await.unwrap();
            for observation in &mut observations {
                assert_eq!(text(observation).await, value);
            }
            let (datagram, from) = receive(&listener, SHORT).await.unwrap();
            let message = MessageRef::parse(&datagram).unwrap();
            assert!(message.option(OptionNumber::OSCORE).is_some() && from == address);
            assert!(!datagram.windows(value.len()).any(|part| part == value.as_bytes()));
            assert!(receive(&listener, SHORT).await.is_none());
        }
        // A member of another group observes the resource alone.
        let other = scene.connect("doors/switch", address).await;
        let mut alone = other.observe("/value").await.unwrap();
        assert!(!alone.is_in_group());
        assert_eq!(text(&mut alone).await, "third");
        // A client without keys gets no notification.
        let stranger = connect_in_clear(address).await;
        let refused = stranger.observe("/value").await.unwrap();
        assert!(!refused.is_registered());
        server.stop();
        for observation in &mut observations {
            let last = next(observation).await.unwrap();
            assert_eq!((last.code, last.payload.len()), (Code::SERVICE_UNAVAILABLE, 0));
        }
    }
}

/// A policy that permits everything until the first value is true, and counts the refused requests with the second.
struct Revocable(Arc<AtomicBool>, Arc<AtomicUsize>);

impl Policy for Revocable {
    fn decide(&self, _: &Request<'_>) -> Option<bool> {
        let is_refused = self.0.load(Ordering::SeqCst);
        self.1.fetch_add(usize::from(is_refused), Ordering::SeqCst);
        Some(!is_refused)
    }
}

#[tokio::test]
async fn a_client_that_loses_its_right_does_not_end_the_observation_of_the_others() {
    let (listener, port) = listener(group(14)).await;
    let (refuses, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (served, policy) = (resources(), Revocable(refuses.clone(), refused.clone()));
    let builder = Server::with(offer(group(14), port, None)).listen("coap://127.0.0.1:0").policy(policy);
    let server = builder.serve(served.clone()).unwrap();
    let client = connect_in_clear(server.addresses()[0].address).await;
    let mut observation = client.observe("/value").await.unwrap();
    assert_eq!(text(&mut observation).await, "first");
    refuses.store(true, Ordering::SeqCst);
    let changed = Resource::value(b"second");
    served.replace(&Resources::new([("value".to_owned(), changed)]), &server.notifier());
    while refused.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(receive(&listener, SHORT).await.is_none(), "a message that ends the observation of all clients");
    // Another client begins the group observation again.
    refuses.store(false, Ordering::SeqCst);
    let other = connect_in_clear(server.addresses()[0].address).await;
    let mut further = other.observe("/value").await.unwrap();
    assert!(further.is_in_group());
    assert_eq!(text(&mut further).await, "second");
}

#[tokio::test]
async fn no_notification_is_sent_with_an_expired_context() {
    let (listener, port) = listener(group(13)).await;
    // On a slow machine the context can expire before the client has registered.
    for lifetime in [3, 12, 48] {
        let scene = Scene::new(&format!("expired-{lifetime}"), Curve::P256);
        let end = OffsetDateTime::now_utc() + Duration::from_secs(lifetime);
        let names = ["switch", "hall"].map(str::to_owned);
        let expires = end.format(&Rfc3339).unwrap();
        create_group(&scene.at("short"), &names, Curve::P256, &Default::default(), Some(&expires)).unwrap();
        let credentials = Credentials::default();
        let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
        let Ok(contexts) = Contexts::open(&[scene.at("short/hall")], learn) else { continue };
        let served = resources();
        let builder = Server::with(offer(group(13), port, Some("short"))).listen("coap://127.0.0.1:0");
        let server = builder.oscore(contexts).credentials(credentials).serve(served.clone()).unwrap();
        let switch = scene.connect("short/switch", server.addresses()[0].address).await;
        let Ok(mut observation) = switch.observe("/value").await else { continue };
        if !observation.is_in_group() {
            continue;
        }
        assert_eq!(text(&mut observation).await, "first");
        let left = Duration::try_from(end - OffsetDateTime::now_utc()).unwrap_or_default();
        tokio::time::sleep(left + Duration::from_secs(1)).await;
        let changed = Resource::value(b"second");
        served.replace(&Resources::new([("value".to_owned(), changed)]), &server.notifier());
        // The pause between two notifications is 3 seconds.
        assert!(receive(&listener, Duration::from_secs(4)).await.is_none());
        server.stop();
        assert!(receive(&listener, SHORT).await.is_none(), "the message that ends the observation");
        return;
    }
    panic!("the client has not registered within 48 seconds");
}

/// The member `hall`, whose messages the test writes.
struct Hall {
    socket: UdpSocket,
    stored: StoredMember,
    crypto: HostCrypto,
}

/// Protects a message of a member.
fn protect<T>(plain: &[u8], with: impl FnOnce(&mut Frame<'_>) -> T) -> (T, Vec<u8>) {
    let mut storage = [0; 2048];
    let mut frame = Frame::new(&mut storage, MemberContext::OVERHEAD);
    frame.append(plain).unwrap();
    let done = with(&mut frame);
    (done, frame.bytes().to_vec())
}

/// Protects a notification of a member as a response to `request`.
fn notify((stored, crypto): (&mut StoredMember, &mut HostCrypto), request: &GroupRequest, plain: &[u8]) -> Vec<u8> {
    let context = &mut stored.context;
    let (done, datagram) = protect(plain, |frame| context.protect_response(crypto, Mode::Group, request, None, frame));
    done.unwrap();
    datagram
}

impl Hall {
    async fn new(scene: &Scene) -> Self {
        let stored = StoredMember::open(&scene.at("lights/hall")).unwrap();
        Self { socket: socket("127.0.0.4:0").await, stored, crypto: HostCrypto::from_os().unwrap() }
    }

    /// Returns a phantom request, and its form in an informative response.
    fn phantom(&mut self) -> (GroupRequest, Vec<u8>) {
        let plain = message((NON, Code::GET, 0), TOKEN, &[OBSERVE, PATH], b"");
        let Self { stored, crypto, .. } = self;
        let (pending, datagram) =
            protect(&plain, |frame| stored.context.protect_request(crypto, Mode::Group, [], frame).unwrap());
        (*pending.request(), independent(&datagram, TOKEN.len()))
    }

    fn notification(&mut self, request: &GroupRequest, number: u8, payload: &[u8]) -> Vec<u8> {
        notify((&mut self.stored, &mut self.crypto), request, &notification(number, payload))
    }

    /// Answers the next request with a protected informative response.
    async fn answer(&mut self, payload: &[u8]) {
        let Self { socket, stored: StoredMember { context, recipients, .. }, crypto } = self;
        let (mut request, client) = receive(socket, LONG).await.unwrap();
        let (id, token) = {
            let outside = MessageRef::parse(&request).unwrap();
            (outside.message_id(), outside.token().to_vec())
        };
        let opened = context.unprotect_request(crypto, recipients.as_mut_slice(), &mut request).unwrap();
        let Unprotected::Fresh(_, nonce) = opened else { panic!("the windows are known") };
        let head = (MessageType::Acknowledgement, Code::SERVICE_UNAVAILABLE, id);
        let format = [(FORMAT >> 8) as u8, FORMAT as u8];
        let plain = message(head, &token, &[(OptionNumber::CONTENT_FORMAT, &format)], payload);
        let of = nonce.request();
        let recipient = recipients.iter_mut().find(|recipient| recipient.id() == of.client()).unwrap();
        let (done, datagram) = protect(&plain, |frame| {
            context.protect_response(crypto, Mode::Pairwise(recipient), &of, Some(nonce), frame)
        });
        done.unwrap();
        socket.send_to(&datagram, client).await.unwrap();
    }
}

#[tokio::test]
async fn a_member_that_forges_a_notification_and_a_repeated_notification_are_refused() {
    let scene = Scene::new("forged", Curve::Ed25519);
    let (listener, port) = listener(group(8)).await;
    let to = SocketAddr::from((group(8), port));
    let mut hall = Hall::new(&scene).await;
    let at = hall.socket.local_addr().unwrap();
    let (request, phantom) = hall.phantom();
    let session = scene.connect("lights/switch", at).await;
    let latest = hall.notification(&request, 1, b"one");
    let payload = informative(at, to, &phantom, Some(&independent(&latest, TOKEN.len())));
    let (observation, ()) = tokio::join!(session.observe("/value"), hall.answer(&payload));
    let mut observation = observation.unwrap();
    assert_eq!(text(&mut observation).await, "one");
    // Another member signs with its own key. It also sends from the address of the server.
    let mut porch = StoredMember::open(&scene.at("lights/porch")).unwrap();
    let forged = notify((&mut porch, &mut hall.crypto), &request, &notification(9, b"forged"));
    let two = hall.notification(&request, 2, b"two");
    let three = hall.notification(&request, 3, b"three");
    let (other, _) = hall.phantom();
    let of_other = hall.notification(&other, 4, b"of another phantom request");
    let mut changed = two.clone();
    *changed.last_mut().unwrap() ^= 1;
    for datagram in
        [&latest, &forged, &notification(9, b"in clear"), &of_other, &changed, &two, &two, &latest, &three, &two]
    {
        hall.socket.send_to(datagram, to).await.unwrap();
    }
    assert_eq!(text(&mut observation).await, "two");
    assert_eq!(text(&mut observation).await, "three");
    assert!(tokio::time::timeout(SHORT, observation.next()).await.is_err());
    while receive(&listener, SHORT).await.is_some() {}
}

#[tokio::test]
async fn a_notification_from_before_a_second_registration_is_refused() {
    let scene = Scene::new("again", Curve::Ed25519);
    let to = SocketAddr::from((group(13), listener(group(13)).await.1));
    let mut hall = Hall::new(&scene).await;
    let at = hall.socket.local_addr().unwrap();
    let (request, phantom) = hall.phantom();
    let session = connect(at, |config| {
        config.oscore = Some(scene.at("lights/switch"));
        config.oscore_member = Some("hall".to_owned());
        config.recovery.alive = Some(Duration::from_secs(1));
    });
    let session = session.await;
    let payload = informative(at, to, &phantom, None);
    let (observation, ()) = tokio::join!(session.observe("/value"), hall.answer(&payload));
    let mut observation = observation.unwrap();
    let [one, two] = [(1, b"one"), (2, b"two")].map(|(number, text)| hall.notification(&request, number, text));
    hall.socket.send_to(&one, to).await.unwrap();
    assert_eq!(text(&mut observation).await, "one");
    // The server sends nothing for a second, so the client registers again. The response contains no notification.
    let again = async {
        hall.answer(&payload).await;
        tokio::time::sleep(SHORT).await;
        for datagram in [&one, &two] {
            hall.socket.send_to(datagram, to).await.unwrap();
        }
    };
    let (shown, ()) = tokio::join!(text(&mut observation), again);
    assert_eq!(shown, "two");
}

#[tokio::test]
async fn a_protected_client_takes_no_phantom_request_of_another_and_none_in_clear() {
    let scene = Scene::new("phantoms", Curve::Ed25519);
    let to = SocketAddr::from((group(9), 61_616));
    let mut hall = Hall::new(&scene).await;
    let at = hall.socket.local_addr().unwrap();
    let (_, right) = hall.phantom();
    let mut changed = right.clone();
    *changed.last_mut().unwrap() ^= 1;
    // A member that is not the server makes the phantom request, so its notifications would be accepted.
    let mut porch = StoredMember::open(&scene.at("lights/porch")).unwrap();
    let plain = message((NON, Code::GET, 0), TOKEN, &[OBSERVE, PATH], b"");
    let (_, of_porch) = protect(&plain, |frame| {
        let context = &mut porch.context;
        context.protect_request(&mut hall.crypto, Mode::Group, [], frame).unwrap()
    });
    let of_porch = independent(&of_porch, TOKEN.len());
    let session = scene.connect("lights/switch", at).await;
    for wrong in [changed, of_porch, phantom(&[OBSERVE, PATH]), Vec::new()] {
        let payload = informative(at, to, &wrong, None);
        let (refused, ()) = tokio::join!(session.observe("/value"), hall.answer(&payload));
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(refused, ClientError::Informative { .. }), "{refused}");
    }
    let payload = informative(at, to, &right, None);
    let (observation, ()) = tokio::join!(session.observe("/value"), hall.answer(&payload));
    assert!(observation.unwrap().is_in_group());
}
