//! Tests the routes of datagrams, and sessions through a gateway. Two servers of this crate take the places of the
//! delegation server and of the device.

use super::*;
use crate::client::{ClientConfig, ClientKey, Session};
use crate::credentials::Credentials;
use crate::resources::{Resource, Resources};
use crate::resumption::ResumptionConfig;
use crate::server::{Listen, Server, ServerConfig};
use crate::uri::Scheme;
use std::path::Path;

/// Returns a record in clear.
fn record(content_type: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![content_type, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0];
    record.extend((body.len() as u16).to_be_bytes());
    record.extend(body);
    record
}

/// Returns a record with a fragment of a handshake message of the type `kind`: the bytes `offset..end` of `body`.
fn fragment(kind: u8, body: &[u8], offset: usize, end: usize) -> Vec<u8> {
    let triple = |number: usize| (number as u32).to_be_bytes()[1..].to_vec();
    let mut message = [&[kind][..], &triple(body.len()), &[0, 0], &triple(offset), &triple(end - offset)].concat();
    message.extend(&body[offset..end]);
    record(22, &message)
}

/// Returns the body of a ClientHello with a session id and a ticket extension.
fn hello(id: &[u8], ticket: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![254, 253];
    body.extend([7; 32]);
    body.push(id.len() as u8);
    body.extend(id);
    body.extend([0, 0, 2, 0xc0, 0xae, 1, 0]);
    if let Some(ticket) = ticket {
        let len = ticket.len() as u16;
        body.extend((len + 4).to_be_bytes());
        body.extend(35_u16.to_be_bytes());
        body.extend(len.to_be_bytes());
        body.extend(ticket);
    }
    body
}

fn whole_hello(id: &[u8], ticket: Option<&[u8]>) -> Vec<u8> {
    let body = hello(id, ticket);
    fragment(1, &body, 0, body.len())
}

fn server_hello() -> Vec<u8> {
    fragment(2, &hello(&[], None), 0, 20)
}

#[test]
fn a_hello_goes_to_an_end_by_what_it_shows() {
    for (id, ticket, end) in [
        (&[][..], None, End::Server),
        (&[], Some(&[][..]), End::Server),
        (&[], Some(&[9; 89]), End::Device),
        (&[5; 32], None, End::Device),
        (&[5; 32], Some(&[9; 89]), End::Device),
    ] {
        assert_eq!(Route::default().of(&mut whole_hello(id, ticket)), end, "{id:?} {ticket:?}");
    }
    let body = hello(&[5; 32], Some(&[9; 89]));
    let mut route = Route::default();
    assert_eq!(route.of(&mut fragment(1, &body, 0, 80)), End::Device, "by its id");
    assert_eq!(route.of(&mut fragment(1, &body, 80, body.len())), End::Device);
    let body = hello(&[], None);
    let mut route = Route::default();
    assert_eq!(route.of(&mut fragment(1, &body, 0, 38)), End::Server);
    assert_eq!(route.of(&mut fragment(1, &body, 38, body.len())), End::Server);
}

#[test]
fn other_datagrams_follow_the_last_server_hello() {
    let mut sealed = record(23, b"sealed");
    sealed[4] = 1;
    let mut route = Route::default();
    assert_eq!(route.of(&mut sealed), End::Device, "nothing is known of the remote");
    assert_eq!(route.of(&mut whole_hello(&[], None)), End::Server);
    assert_eq!(route.of(&mut sealed), End::Device, "a ClientHello alone changes nothing");
    route.answered(End::Server, &mut server_hello());
    assert_eq!(route.of(&mut sealed), End::Server);
    assert_eq!(route.of(&mut fragment(16, b"a ClientKeyExchange", 0, 10)), End::Server);
    // A ClientHello that somebody forges does not take the records to the other end.
    assert_eq!(route.of(&mut whole_hello(&[5; 32], None)), End::Device);
    assert_eq!(route.of(&mut sealed), End::Server);
    route.answered(End::Device, &mut server_hello());
    assert_eq!(route.of(&mut sealed), End::Device);
    for mut malformed in [vec![], vec![22], vec![0xff; 40], record(22, &[1, 0, 0, 9]), record(22, &[]), record(21, &[])]
    {
        assert_eq!(route.of(&mut malformed), End::Device);
        let before = route;
        route.answered(End::Server, &mut malformed);
        assert_eq!(route, before);
    }
}

#[test]
fn a_hello_that_the_device_refused_is_followed_by_one_to_the_server() {
    let (mut refusal, mut warning) = (record(21, &[2, 40]), record(21, &[1, 90]));
    let mut ticket = whole_hello(&[], Some(&[9; 89]));
    let mut route = Route::default();
    assert_eq!(route.of(&mut ticket), End::Device);
    route.answered(End::Device, &mut warning);
    assert_eq!(route.of(&mut ticket), End::Device);
    route.answered(End::Server, &mut refusal);
    assert_eq!(route.of(&mut ticket), End::Device, "the refusal of another end");
    route.answered(End::Device, &mut refusal);
    assert_eq!(route.of(&mut ticket), End::Server);
    assert_eq!(route.of(&mut ticket), End::Server, "again with a cookie");
    route.answered(End::Server, &mut server_hello());
    assert_eq!(route.of(&mut ticket), End::Device, "a new ticket");
}

/// Starts a server whose resource has this value. Servers with the same ticket keys accept each other's tickets.
fn end(value: &'static [u8], keys: &Path) -> (Server, SocketAddr) {
    let config = ServerConfig {
        listen: vec![Listen { address: ([127, 0, 0, 1], 0).into(), scheme: Scheme::Coaps }],
        resumption: Some(ResumptionConfig { keys: Some(keys.to_owned()), ..ResumptionConfig::default() }),
        ..ServerConfig::default()
    };
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
    let server = Server::with(config).credentials(credentials).serve(resources).unwrap();
    let address = server.addresses()[0].address;
    (server, address)
}

async fn ask(gateway: SocketAddr, resume: &Path) -> (bool, Vec<u8>) {
    let config = ClientConfig::default().with(|config| {
        config.trust.key = Some(ClientKey { identity: "me".to_owned(), key: b"0123456789abcdef".to_vec().into() });
        config.state.resume = Some(resume.to_owned());
    });
    let session = Session::connect_to(gateway, Scheme::Coaps, config).await.unwrap();
    let answer = session.get("value").await.unwrap();
    (session.is_resumed(), answer.payload.to_vec())
}

#[tokio::test]
async fn a_peer_meets_the_server_first_and_then_the_device() {
    let directory = std::env::temp_dir().join(format!("tegmen-steering-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let keys = directory.join("ticket.keys");
    let (_server, server) = end(b"server", &keys);
    let (_device, device) = end(b"device", &keys);
    let any = ([127, 0, 0, 1], 0).into();
    let config = SteeringConfig { listen: any, server, device, max_remotes: 2, idle: Duration::from_secs(60) };
    let gateway = Steering::open(config, Arc::new(|_| {})).await.unwrap();
    let address = gateway.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(gateway.run(async move { _ = stopped.await }));
    assert_eq!(ask(address, &directory).await, (false, b"server".to_vec()));
    assert_eq!(ask(address, &directory).await, (true, b"device".to_vec()));
    // The gateway removes remotes for others.
    let strangers: Vec<_> =
        (0..8).map(|_| std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()).collect();
    for stranger in &strangers {
        stranger.send_to(b"neither a hello nor a record", address).unwrap();
    }
    assert_eq!(ask(address, &directory).await, (true, b"device".to_vec()));
    stop.send(()).unwrap();
    let totals = running.await.unwrap().unwrap();
    assert_eq!(totals.unsent, 0);
    assert!(totals.to_server >= 4 && totals.to_device >= 12 && totals.remotes >= 11, "{totals:?}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn a_gateway_does_not_send_to_itself() {
    let other: SocketAddr = ([127, 0, 0, 1], 9).into();
    let taken = std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let own = taken.local_addr().unwrap();
    drop(taken);
    let any = SocketAddr::from(([0, 0, 0, 0], own.port()));
    for (listen, server, device) in [(own, own, other), (own, other, own), (any, other, own)] {
        let config = SteeringConfig { listen, server, device, max_remotes: 2, idle: Duration::from_secs(60) };
        let opened = Steering::open(config, Arc::new(|_| {})).await.err();
        assert!(matches!(&opened, Some(SteeringError::Loop { end }) if *end == own), "{opened:?}");
    }
}

#[tokio::test]
async fn a_port_without_a_program_is_reported_once() {
    let closed = std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap().local_addr().unwrap();
    let config = SteeringConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        server: closed,
        device: closed,
        max_remotes: 2,
        idle: Duration::from_secs(60),
    };
    let (report, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let gateway = Steering::open(config, Arc::new(move |end| report.send(end).unwrap())).await.unwrap();
    let address = gateway.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(gateway.run(async move { _ = stopped.await }));
    let remote = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    for _ in 0..5 {
        remote.send_to(&whole_hello(&[], None), address).await.unwrap();
        tokio::task::yield_now().await;
    }
    let first = tokio::time::timeout(Duration::from_secs(10), reported.recv()).await.unwrap();
    assert_eq!(first, Some(closed));
    remote.send_to(&whole_hello(&[], None), address).await.unwrap();
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert!(reported.try_recv().is_err());
}
