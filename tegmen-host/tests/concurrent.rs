//! Tests one session that many tasks use at the same time: requests, observations, and the end of the session.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tegmen::coap::{Code, MessageRef, OptionNumber, Response};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Session, Tap, Tapped};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Listen, Request, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

const AT_ONCE: usize = 64;

/// An application that answers each request to `/echo` with the payload of the request, and counts these requests.
/// Other requests go to the resources.
#[derive(Clone)]
struct Echo(Resources, Arc<AtomicUsize>);

impl Application for Echo {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is("echo") {
            return self.0.handle(request, response);
        }
        self.1.fetch_add(1, Ordering::Relaxed);
        response.payload(request.message().payload())
    }
}

fn start(change: impl FnOnce(&mut ServerConfig, &Credentials)) -> (Server, Arc<AtomicUsize>) {
    let resources = Resources::new([
        ("value".to_owned(), Resource::value(b"first")),
        ("never".to_owned(), Resource::Command(vec!["sleep".into(), "20".into()])),
    ]);
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listen = vec![Listen { address: any, scheme: Scheme::Coaps }, Listen { address: any, scheme: Scheme::Coap }];
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.shards = 1;
    config.trust.plain_allowed = true;
    let credentials = Credentials::single("me", b"key");
    change(&mut config, &credentials);
    let executed = Arc::default();
    let echo = Echo(resources, Arc::clone(&executed));
    (Server::with(config).credentials(credentials).serve(echo).unwrap(), executed)
}

fn address(server: &Server, scheme: Scheme) -> SocketAddr {
    server.addresses().iter().find(|listen| listen.scheme == scheme).unwrap().address
}

fn config() -> ClientConfig {
    let key = ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() };
    ClientConfig::default().with(|config| {
        config.trust.key = Some(key);
        config.coap.nstart = AT_ONCE;
    })
}

/// Passes datagrams to the server and back, but drops one of each `lose` datagrams. Both directions count together.
async fn lossy(to: SocketAddr, lose: usize) -> SocketAddr {
    let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let back = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    back.connect(to).await.unwrap();
    let address = front.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut up, mut down, mut client, mut passed) = ([0; 2048], [0; 2048], None, 0);
        loop {
            let lost = passed % lose == lose - 1;
            passed += 1;
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut up) => {
                    client = Some(from);
                    if !lost {
                        back.send(&up[..len]).await.unwrap();
                    }
                }
                Ok(len) = back.recv(&mut down) => if let (Some(client), false) = (client, lost) {
                    front.send_to(&down[..len], client).await.unwrap();
                }
            }
        }
    });
    address
}

/// Opens a session in clear to a server that never answers. Returns the socket of the server, and the session.
async fn silent(change: impl FnOnce(&mut ClientConfig)) -> (UdpSocket, Session) {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut config = ClientConfig::default();
    change(&mut config);
    let session = Session::connect_to(silent.local_addr().unwrap(), Scheme::Coap, config).await.unwrap();
    (silent, session)
}

/// Sends a POST in each of many tasks, each with a different text. Checks that each response has the text of its
/// request.
async fn all_at_once(session: &Session) {
    let mut tasks = JoinSet::new();
    for number in 0..AT_ONCE {
        let session = session.clone();
        tasks.spawn(async move {
            let text = format!("the text of request {number}");
            let reply = session.post("/echo", text.as_bytes()).await.unwrap();
            assert_eq!((reply.code, reply.payload), (Code::CONTENT, text.into_bytes()));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn many_requests_at_once_each_get_their_own_response() {
    let (server, _) = start(|_, _| {});
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        for nstart in [1, 7, AT_ONCE] {
            let mut config = config();
            config.coap.nstart = nstart;
            let session = Session::connect_to(address(&server, scheme), scheme, config).await.unwrap();
            all_at_once(&session).await;
            session.close();
        }
    }
}

#[tokio::test]
async fn many_requests_at_once_cross_a_network_that_loses_datagrams() {
    let (server, executed) = start(|_, _| {});
    let front = lossy(address(&server, Scheme::Coaps), 7).await;
    let session = Session::connect_to(front, Scheme::Coaps, config()).await.unwrap();
    all_at_once(&session).await;
    assert_eq!((session.reconnects(), executed.load(Ordering::Relaxed)), (0, AT_ONCE), "each is executed once");
}

#[tokio::test]
async fn no_more_requests_than_nstart_wait_for_the_server() {
    for nstart in [1, 3] {
        let (server, session) = silent(|config| config.coap.nstart = nstart).await;
        let mut tasks = JoinSet::new();
        for _ in 0..10 {
            let session = session.clone();
            tasks.spawn(async move { session.get("/value").await.map(drop) });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (mut datagram, mut sent) = ([0; 100], HashSet::new());
        while let Ok(len) = server.try_recv(&mut datagram) {
            sent.insert(MessageRef::parse(&datagram[..len]).unwrap().message_id());
        }
        assert_eq!(sent.len(), nstart);
    }
}

#[tokio::test]
async fn an_observation_goes_on_beside_requests() {
    let (server, _) = start(|_, _| {});
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        let session = Session::connect_to(address(&server, scheme), scheme, config()).await.unwrap();
        session.put("/value", b"0").await.unwrap();
        let mut observation = session.observe("/value").await.unwrap();
        let follower = tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let reply = observation.next().await.unwrap().unwrap();
                seen.push(String::from_utf8(reply.payload).unwrap());
                if seen.last().is_some_and(|last| last == "20") {
                    return (seen, observation.is_registered());
                }
            }
        });
        for value in 1..=20 {
            let text = value.to_string();
            assert_eq!(session.put("/value", text.as_bytes()).await.unwrap().code, Code::CHANGED);
            assert_eq!(session.get("/value").await.unwrap().payload, text.as_bytes());
        }
        let (seen, registered) = tokio::time::timeout(Duration::from_secs(10), follower).await.unwrap().unwrap();
        assert!(registered && seen.len() > 1 && seen[0] == "0", "{seen:?}");
        session.close();
    }
}

#[tokio::test]
async fn a_dropped_request_is_given_up_and_leaves_its_place_to_the_next() {
    let (server, session) = silent(|_| {}).await;
    let mut datagram = [0; 100];
    for round in 0..100 {
        let dropped = tokio::time::timeout(Duration::from_millis(5), session.get("/value")).await;
        assert!(dropped.is_err());
        let received = tokio::time::timeout(Duration::from_secs(1), server.recv_from(&mut datagram)).await;
        assert!(received.is_ok(), "request {round} was not sent");
    }
    // None of them is sent again.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert!(server.try_recv(&mut datagram).is_err());
}

#[tokio::test]
async fn a_queue_that_is_full_refuses_at_once_and_has_room_again() {
    let (server, session) = silent(|config| (config.coap.nstart, config.coap.max_queued) = (1, 2)).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let session = session.clone();
        waiting.push(tokio::spawn(async move { session.get("/value").await.map(drop) }));
    }
    tokio::task::yield_now().await;
    let begin = Instant::now();
    let refused = session.get("/value").await;
    assert!(matches!(refused, Err(ClientError::QueueFull { max: 2, .. })), "{refused:?}");
    assert!(begin.elapsed() < Duration::from_secs(1));
    waiting.pop().unwrap().abort();
    tokio::task::yield_now().await;
    let queued = tokio::time::timeout(Duration::from_millis(50), session.get("/value")).await;
    assert!(queued.is_err(), "it waits in the queue: {queued:?}");
    drop(server);
}

#[tokio::test]
async fn requests_that_are_open_when_their_session_is_closed_end_with_an_error() {
    let (_server, session) = silent(|config| config.coap.nstart = 2).await;
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let session = session.clone();
        tasks.spawn(async move { session.get("/value").await });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    session.close();
    while let Some(done) = tokio::time::timeout(Duration::from_secs(1), tasks.join_next()).await.unwrap() {
        let ended = done.unwrap();
        assert!(matches!(ended, Err(ClientError::Closed { .. })), "{ended:?}");
    }
    assert!(matches!(session.get("/value").await, Err(ClientError::Closed { .. })));
    assert!(session.observe("/value").await.is_err());
}

#[tokio::test]
async fn requests_that_are_open_when_the_server_ends_the_session_end_with_an_error() {
    let (server, _) = start(|_, _| {});
    let mut config = config();
    config.recovery.reconnect = false;
    let session = Session::connect_to(address(&server, Scheme::Coaps), Scheme::Coaps, config).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let session = session.clone();
        tasks.spawn(async move { session.post("/never", b"").await });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.stop();
    while let Some(done) = tokio::time::timeout(Duration::from_secs(5), tasks.join_next()).await.unwrap() {
        let ended = done.unwrap();
        assert!(matches!(ended, Err(ClientError::Ended { .. })), "{ended:?}");
    }
}

/// Many requests notice that their session is over. Together they begin only one other session.
#[tokio::test]
async fn many_requests_begin_one_session_in_the_place_of_one_that_is_over() {
    let (server, _) = start(|_, _| {});
    let listen = server.addresses().to_vec();
    let session = Session::connect_to(address(&server, Scheme::Coaps), Scheme::Coaps, config()).await.unwrap();
    session.get("/value").await.unwrap();
    server.stop();
    let (_server, _) = start(|config, _| config.listen = listen);
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let session = session.clone();
        tasks.spawn(async move { session.get("/value").await });
    }
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.unwrap().unwrap().payload, b"first");
    }
    assert_eq!(session.reconnects(), 1);
}

#[tokio::test]
async fn no_two_requests_at_once_use_the_same_nonce_of_a_context() {
    let dir = std::env::temp_dir().join(format!("tegmen-concurrent-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let (ours, theirs) = (dir.join("client"), dir.join("server"));
    new_pair(&ours, &theirs);
    let (server, _) = start(|config, credentials| {
        config.oscore = Contexts::open(&[theirs], |name, allow| credentials.learn(name, allow)).unwrap();
    });
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let keep = numbers.clone();
    let tap = Tap(Arc::new(move |tapped| {
        if let Tapped::Datagram { sent: true, datagram, .. } = tapped
            && let Ok(message) = MessageRef::parse(datagram)
            && let Some(option) = message.option(OptionNumber::OSCORE)
        {
            keep.lock().unwrap().push((message.message_id(), option.to_vec()));
        }
    }));
    let mut config = config();
    config.oscore = Some(ours);
    config.log.tap = Some(tap);
    config.trust.key = None;
    let session = Session::connect_to(address(&server, Scheme::Coap), Scheme::Coap, config).await.unwrap();
    session.get("/value").await.unwrap();
    for _ in 0..10 {
        all_at_once(&session).await;
    }
    session.close();
    let sent: HashSet<(u16, Vec<u8>)> = numbers.lock().unwrap().iter().cloned().collect();
    let options: HashSet<&[u8]> = sent.iter().map(|(_, option)| option.as_slice()).collect();
    assert!(sent.len() > 10 * AT_ONCE);
    assert_eq!(options.len(), sent.len(), "a message has a number of its own");
    let _ = std::fs::remove_dir_all(&dir);
}

/// Writes the two ends of a context.
fn new_pair(ours: &Path, theirs: &Path) {
    let server = ContextFile {
        sender_id: vec![1],
        recipient_id: vec![2],
        master_secret: vec![7; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        aead: tegmen::oscore::Aead::AesCcm16_64_128,
        created: contexts::now(),
        expires: None,
        allow: None,
        rederivation: false,
    };
    contexts::create(theirs, &server).unwrap();
    contexts::create(ours, &server.mirrored()).unwrap();
}
