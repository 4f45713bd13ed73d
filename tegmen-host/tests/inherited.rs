//! Tests servers whose sockets a parent process has bound, and the datagrams that wait in these sockets while no server
//! runs.
#![cfg(unix)]

use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tegmen::coap::{Code, Response};
use tegmen::dtls::ConnectionIdConfig;
use tegmen_host::client::{ClientConfig, ClientKey, Session, Tap, Tapped};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{
    Application, InheritError, Listen, Request, Responder, Server, ServerConfig, ServerLimits, StartError,
};
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;

/// Time after which a test fails if the expected event does not occur.
const PATIENCE: Duration = Duration::from_secs(60);

/// Binds `count` sockets of the parent process to one free port.
fn bound(count: usize) -> Vec<UdpSocket> {
    let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_recv_buffer_size(1 << 20).unwrap();
        socket.bind(&address.into()).unwrap();
        address = socket.local_addr().unwrap().as_socket().unwrap();
        sockets.push(socket.into());
    }
    sockets
}

/// Returns copies of sockets. The parent process passes the copies to a server, and keeps its own sockets.
fn copies(sockets: &[UdpSocket]) -> Vec<UdpSocket> {
    sockets.iter().map(|socket| socket.try_clone().unwrap()).collect()
}

fn both(some: &[UdpSocket], more: &[UdpSocket]) -> Vec<UdpSocket> {
    [copies(some), copies(more)].into_iter().flatten().collect()
}

fn at(sockets: &[UdpSocket], scheme: Scheme) -> Listen {
    Listen { address: sockets[0].local_addr().unwrap(), scheme }
}

fn config(listen: Vec<Listen>) -> ServerConfig {
    ServerConfig::default().with(|config| {
        config.listen = listen;
        config.trust.plain_allowed = true;
    })
}

fn resources() -> Resources {
    Resources::new([("value".to_owned(), Resource::value(b"first"))])
}

fn start(config: ServerConfig, sockets: Vec<UdpSocket>) -> Result<Server, StartError> {
    Server::with(config).credentials(Credentials::single("me", b"key")).inherit(sockets).serve(resources())
}

/// Returns the socket of a client that sends each request only once.
fn asker(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a non-confirmable GET of /value with this id.
fn send_get(client: &UdpSocket, id: u8) {
    client.send(&[0x51, 1, 7, id, id, 0xb5, b'v', b'a', b'l', b'u', b'e']).unwrap();
}

/// Waits for the response to the GET with this id.
fn receive(client: &UdpSocket, id: u8) {
    let mut response = [0; 64];
    let len = client.recv(&mut response).expect("the request was lost");
    assert_eq!((response[1], response[4]), (0x45, id));
    assert!(response[..len].ends_with(b"first"));
}

#[test]
fn datagrams_that_wait_while_no_server_runs_are_answered() {
    for shards in [1, 3] {
        let sockets = bound(shards);
        let listen = at(&sockets, Scheme::Coap);
        let clients: Vec<UdpSocket> = (0..100).map(|_| asker(listen.address)).collect();
        for round in 0..4 {
            clients.iter().for_each(|client| send_get(client, round));
            let server = start(config(vec![listen]), copies(&sockets)).unwrap();
            assert_eq!(server.addresses(), &[listen]);
            clients.iter().for_each(|client| receive(client, round));
            let totals = if round % 2 == 0 { server.stop() } else { server.drain(PATIENCE) };
            assert_eq!(totals.requests, clients.len() as u64);
        }
    }
}

/// A directory of a test, which is removed at the end.
struct Scene(PathBuf);

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn sessions_of_several_shards_lose_no_request_over_a_restart() {
    let scene = Scene(std::env::temp_dir().join(format!("tegmen-inherited-{}", std::process::id())));
    std::fs::create_dir_all(&scene.0).unwrap();
    let sockets = bound(2);
    let listen = at(&sockets, Scheme::Coaps);
    let start = || {
        let mut config = config(vec![listen]);
        config.state = Some(Database::open(&scene.0.join("state.db")).unwrap());
        start(config, copies(&sockets)).unwrap()
    };
    let mut server = start();
    let sent = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for number in 0..16 {
        let (count, mut config) = (sent.clone(), ClientConfig::default());
        config.trust.key = Some(ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() });
        // With connection ids, a shard may receive what belongs to another.
        config.dtls.connection_id = (number % 2 == 0).then(ConnectionIdConfig::default);
        (config.coap.confirmable, config.coap.timeout) = (false, PATIENCE);
        config.recovery.reconnect = false;
        config.log.tap = Some(Tap(Arc::new(move |tapped| {
            count.fetch_add(usize::from(matches!(tapped, Tapped::Datagram { sent: true, .. })), Ordering::Relaxed);
        })));
        clients.push(Session::connect_to(listen.address, Scheme::Coaps, config).await.unwrap());
    }
    for round in 1..4 {
        tokio::task::spawn_blocking(move || server.drain(PATIENCE)).await.unwrap();
        sent.store(0, Ordering::Relaxed);
        let mut tasks = tokio::task::JoinSet::new();
        for client in clients.clone() {
            tasks.spawn(async move { client.get("/value").await.unwrap().code });
        }
        while sent.load(Ordering::Relaxed) < clients.len() {
            tokio::task::yield_now().await;
        }
        server = start();
        while let Some(code) = tasks.join_next().await {
            assert_eq!(code.unwrap(), Code::CONTENT);
        }
        assert_eq!(sent.load(Ordering::Relaxed), clients.len(), "round {round}: each request was sent once");
        assert_eq!(server.totals().counters.established, 0, "round {round}: there was no handshake");
    }
}

#[test]
fn sockets_that_do_not_match_the_addresses_are_refused_by_address() {
    let (one, other) = (bound(1), bound(1));
    let (first, second) = (at(&one, Scheme::Coap), at(&other, Scheme::Coaps));
    let start = |listen: Vec<Listen>, sockets, shards| {
        let error = start(config(listen).with(|config| config.shards = shards), sockets).err().unwrap();
        let StartError::Inherit(error) = error else { panic!("{error}") };
        error
    };
    let error = start(vec![first, second], copies(&one), 0);
    assert!(
        matches!(error, InheritError::Missing { listen } if listen == second) && error.to_string().contains("coaps")
    );
    let error = start(vec![first], both(&one, &other), 0);
    assert!(matches!(error, InheritError::Unused { address } if address == second.address));
    let error = start(vec![first], copies(&one), 2);
    assert!(matches!(error, InheritError::Count { sockets: 1, shards: 2, .. }), "{error}");
    let several = bound(2);
    let error = start(vec![first, at(&several, Scheme::Coap)], both(&one, &several), 0);
    assert!(matches!(error, InheritError::Count { sockets: 2, shards: 1, .. }), "{error}");
    let narrow = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    narrow.set_only_v6(true).unwrap();
    narrow.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let narrow = [UdpSocket::from(narrow)];
    let error = start(vec![at(&narrow, Scheme::Coap)], copies(&narrow), 0);
    assert!(matches!(error, InheritError::NoIpv4 { .. }), "{error}");
}

/// An application that defers the response to each POST, and passes the responder to the test.
#[derive(Clone)]
struct Slow(std::sync::mpsc::Sender<Responder>, Resources);

impl Application for Slow {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if request.method() != Code::POST {
            return self.1.handle(request, response);
        }
        self.0.send(request.defer(response)).unwrap();
        Ok(())
    }
}

#[test]
fn after_a_pulse_the_counts_are_current() {
    let sockets = bound(1);
    let server = start(config(vec![at(&sockets, Scheme::Coap)]), copies(&sockets)).unwrap();
    let client = asker(at(&sockets, Scheme::Coap).address);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for requests in 1..=20_u8 {
        send_get(&client, requests);
        receive(&client, requests);
        assert!(runtime.block_on(server.pulse().beats()));
        assert_eq!(server.totals().requests, u64::from(requests));
    }
}

#[test]
fn a_server_that_drains_answers_what_is_deferred_and_leaves_the_rest_to_the_next() {
    let sockets = bound(1);
    let listen = at(&sockets, Scheme::Coap);
    let (sender, responders) = std::sync::mpsc::channel();
    let slow = Server::with(config(vec![listen])).inherit(copies(&sockets)).serve(Slow(sender, resources())).unwrap();
    let (client, other) = (asker(listen.address), asker(listen.address));
    client.send(&[0x51, 2, 7, 1, 1]).unwrap();
    let responder = responders.recv_timeout(PATIENCE).unwrap();
    let pulse = slow.pulse();
    let draining = std::thread::spawn(move || slow.drain(PATIENCE));
    // It receives nothing from now on, and is still there.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(pulse.beats()));
    assert!(!draining.is_finished());
    responder.send(tegmen_host::server::Reply::content(0, b"late".to_vec()));
    let mut response = [0; 64];
    let len = client.recv(&mut response).unwrap();
    assert!(response[..len].ends_with(b"late"));
    assert_eq!(draining.join().unwrap().requests, 1);
    assert!(!runtime.block_on(pulse.beats()), "it has ended");
    send_get(&other, 9);
    let next = start(config(vec![listen]), copies(&sockets)).unwrap();
    receive(&other, 9);
    assert_eq!(next.stop().requests, 1);
}

#[test]
fn a_server_that_drains_waits_no_longer_than_it_may() {
    let sockets = bound(1);
    let listen = at(&sockets, Scheme::Coap);
    let (sender, responders) = std::sync::mpsc::channel();
    let slow = Server::with(config(vec![listen])).inherit(copies(&sockets)).serve(Slow(sender, resources())).unwrap();
    asker(listen.address).send(&[0x51, 2, 7, 1, 1]).unwrap();
    let _responder = responders.recv_timeout(PATIENCE).unwrap();
    slow.drain(Duration::ZERO);
}

#[test]
fn limits_and_resources_change_while_the_server_runs() {
    let sockets = bound(1);
    let listen = at(&sockets, Scheme::Coap);
    let (settings, served) = (config(vec![listen]), resources());
    let server = Server::with(settings.clone()).inherit(copies(&sockets)).serve(served.clone()).unwrap();
    let client = asker(listen.address);
    let ask = |client: &UdpSocket, id: u8| {
        send_get(client, id);
        let mut response = [0; 2048];
        client.recv(&mut response).unwrap();
        response[1]
    };
    assert_eq!(ask(&client, 1), 0x45);
    let long = Resource::value(&[b'x'; 900]);
    served.replace(&Resources::new([("other".to_owned(), long.clone())]), &server.notifier());
    assert_eq!(ask(&client, 2), 0x84, "4.04");
    served.replace(&Resources::new([("value".to_owned(), long)]), &server.notifier());
    assert_eq!(ask(&client, 3), 0x45);
    // A client of unknown address that is to be sent more than three times what it sent.
    let mut limits = ServerLimits::from(&settings);
    limits.verify_addresses = true;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    server.set_limits(limits);
    assert!(runtime.block_on(server.pulse().beats()));
    assert_eq!(ask(&asker(listen.address), 1), 0x81, "4.01");
    server.set_limits(ServerLimits::from(&settings));
    assert!(runtime.block_on(server.pulse().beats()));
    assert_eq!(ask(&asker(listen.address), 1), 0x45);
}

/// An application that waits in each POST until the test releases it.
#[derive(Clone)]
struct Stuck(Arc<std::sync::Barrier>);

impl Application for Stuck {
    fn handle(&mut self, _: &Request<'_>, _: &mut Response<'_, '_>) -> Result<(), Code> {
        self.0.wait();
        self.0.wait();
        Ok(())
    }
}

#[test]
fn a_shard_that_is_stuck_does_not_answer() {
    let sockets = bound(1);
    let (listen, barrier) = (at(&sockets, Scheme::Coap), Arc::new(std::sync::Barrier::new(2)));
    let server = Server::with(config(vec![listen])).inherit(sockets).serve(Stuck(barrier.clone())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(server.pulse().beats()));
    asker(listen.address).send(&[0x51, 2, 7, 1, 1]).unwrap();
    barrier.wait();
    let mut beats = std::pin::pin!(tokio::task::unconstrained(async { server.pulse().beats().await }));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(beats.as_mut().poll(context).is_pending());
    barrier.wait();
    assert!(runtime.block_on(beats), "a shard that is free again answers");
}

#[tokio::test]
async fn a_group_is_joined_beside_a_socket_of_all_addresses() {
    let sockets = vec![UdpSocket::bind("0.0.0.0:0").unwrap()];
    let listen = at(&sockets, Scheme::Coap);
    let config = config(vec![listen]).with(|config| {
        config.groups = vec!["224.0.1.187%127.0.0.1".parse().unwrap()];
        config.coap.leisure = Duration::ZERO;
    });
    let server = start(config.clone(), copies(&sockets)).unwrap();
    let (get, port) = (tegmen_host::client::Request::new(Code::GET, "value"), listen.address.port());
    let wait = Duration::from_secs(1);
    let mut payloads = Vec::new();
    tegmen_host::client::ask_group(&config.groups[0], port, &get, wait, |_, reply| payloads.push(reply.payload))
        .await
        .unwrap();
    assert_eq!(payloads, [b"first"]);
    server.stop();
}
