//! Tests many sessions over the sockets of one endpoint.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Endpoint, Session, Tap, Tapped};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::{Listen, Responder, Router, Server, ServerConfig};
use tegmen_host::uri::{Scheme, Uri};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

const KEY: &[u8] = b"0123456789abcdef";

/// Starts a server at `ports` addresses, half of them with DTLS. The server answers each GET with `number`.
fn server(number: usize, ports: usize) -> Server {
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listen = [Scheme::Coaps, Scheme::Coap]
        .into_iter()
        .cycle()
        .take(ports)
        .map(|scheme| Listen { address: any, scheme })
        .collect();
    let mut config = ServerConfig::default();
    (config.listen, config.shards, config.trust.plain_allowed) = (listen, 1, true);
    let unanswered: Arc<Mutex<Vec<Responder>>> = Arc::default();
    let router = Router::new()
        .get("/number", move |_, response| response.payload(number.to_string().as_bytes()))
        .post("/echo", |request, response| response.payload(request.payload()))
        .get("/never", move |request, response| {
            unanswered.lock().unwrap().push(request.defer(response));
            Ok(())
        });
    Server::with(config).credentials(Credentials::single("me", KEY)).serve(router).unwrap()
}

fn secure(server: &Server) -> SocketAddr {
    server.addresses().iter().find(|listen| listen.scheme == Scheme::Coaps).unwrap().address
}

fn config() -> ClientConfig {
    let key = ClientKey { identity: "me".to_owned(), key: KEY.to_vec().into() };
    ClientConfig::default().with(|config| config.trust.key = Some(key))
}

async fn endpoint(config: ClientConfig) -> Endpoint {
    Endpoint::with(config).bind("127.0.0.1:0").await.unwrap()
}

async fn number(session: &Session) -> usize {
    let reply = session.get("/number").await.unwrap();
    String::from_utf8(reply.payload).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_hundred_sessions_with_four_servers_use_one_socket_at_the_same_time() {
    let servers: Vec<Server> = (0..4).map(|number| server(number, 26)).collect();
    let endpoint = Endpoint::builder().psk("me", KEY).nstart(4).bind("127.0.0.1:0").await.unwrap();
    let mut connecting = JoinSet::new();
    for (expected, server) in servers.iter().enumerate() {
        for listen in server.addresses().iter().copied() {
            let endpoint = endpoint.clone();
            connecting
                .spawn(async move { (expected, endpoint.connect_to(listen.address, listen.scheme).await.unwrap()) });
        }
    }
    let (mut asking, mut sessions) = (JoinSet::new(), Vec::new());
    while let Some(connected) = connecting.join_next().await {
        let (expected, session) = connected.unwrap();
        assert_eq!(session.local(), endpoint.addresses()[0]);
        sessions.push(session.clone());
        for text in 0..5 {
            let session = session.clone();
            asking.spawn(async move {
                assert_eq!(number(&session).await, expected);
                let text = format!("{expected} {text} {}", session.remote());
                assert_eq!(session.post("/echo", text.as_bytes()).await.unwrap().payload, text.as_bytes());
            });
        }
    }
    let mut asked = 0;
    while let Some(done) = asking.join_next().await {
        done.unwrap();
        asked += 1;
    }
    assert_eq!((asked, sessions.len()), (4 * 26 * 5, 4 * 26));
    let remotes: Vec<SocketAddr> = servers.iter().flat_map(Server::sessions).map(|session| session.remote).collect();
    assert_eq!(remotes, vec![endpoint.addresses()[0]; 4 * 13], "all come from one port");
    endpoint.close();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(servers.iter().all(|server| server.sessions().is_empty()), "each server was told that its session is over");
}

#[tokio::test]
async fn sessions_go_on_while_one_server_is_gone() {
    let (first, second) = (server(1, 2), server(2, 2));
    let endpoint = endpoint(config().with(|config| config.recovery.reconnect = false)).await;
    let gone = endpoint.connect_to(secure(&first), Scheme::Coaps).await.unwrap();
    let other = endpoint.connect_to(secure(&second), Scheme::Coaps).await.unwrap();
    assert_eq!((number(&gone).await, number(&other).await), (1, 2));
    first.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let ended = gone.get("/number").await;
    assert!(matches!(ended, Err(ClientError::Ended { remote, .. }) if remote == gone.remote()), "{ended:?}");
    assert_eq!(number(&other).await, 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_found_by_its_silence_and_holds_nobody_up() {
    let (there, gone) = (server(1, 2), server(2, 2));
    let nobody = secure(&gone);
    gone.stop();
    let mut config = config();
    config.dtls.handshake_timeout = Duration::from_secs(2);
    let endpoint = endpoint(config).await;
    let connecting = tokio::spawn({
        let endpoint = endpoint.clone();
        async move { endpoint.connect_to(nobody, Scheme::Coaps).await.map(drop) }
    });
    let session = endpoint.connect_to(secure(&there), Scheme::Coaps).await.unwrap();
    let begin = Instant::now();
    for _ in 0..20 {
        assert_eq!(number(&session).await, 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(1));
    let silent = connecting.await.unwrap();
    assert!(matches!(silent, Err(ClientError::Silence { remote, .. }) if remote == nobody), "{silent:?}");
}

#[tokio::test]
async fn a_second_connect_returns_the_session_that_is_open() {
    let server = server(1, 2);
    let endpoint = endpoint(config()).await;
    let remote = secure(&server);
    let mut connecting = JoinSet::new();
    for _ in 0..10 {
        let endpoint = endpoint.clone();
        connecting.spawn(async move { endpoint.connect_to(remote, Scheme::Coaps).await.unwrap() });
    }
    let sessions = connecting.join_all().await;
    assert_eq!(server.sessions().len(), 1);
    let key = ClientKey { identity: "other".to_owned(), key: KEY.to_vec().into() };
    let other = config().with(|config| config.trust.key = Some(key));
    let uri = Uri::parse(&format!("coaps://{remote}")).unwrap();
    let in_use = endpoint.connect_with(&uri, other).await;
    assert!(matches!(in_use, Err(ClientError::InUse { .. })), "{:?}", in_use.err());
    assert!(matches!(endpoint.connect_to(remote, Scheme::Coap).await, Err(ClientError::InUse { .. })));
    sessions[0].close();
    let closed = sessions[1].get("/number").await;
    assert!(matches!(closed, Err(ClientError::Closed { .. })), "{closed:?}");
    assert_eq!(
        number(&endpoint.connect_to(remote, Scheme::Coaps).await.unwrap()).await,
        1,
        "a new one, in place of the closed"
    );
}

#[tokio::test]
async fn sessions_are_closed_dropped_and_opened_again() {
    let server = server(1, 2);
    let endpoint = endpoint(config()).await;
    for round in 0..50 {
        for listen in server.addresses() {
            let session = endpoint.connect_to(listen.address, listen.scheme).await.unwrap();
            assert_eq!(number(&session).await, 1);
            match round % 3 {
                0 => session.close(),
                1 => drop(session),
                // With a request that waits.
                _ => assert!(tokio::time::timeout(Duration::from_millis(5), session.get("/never")).await.is_err()),
            }
        }
    }
}

#[tokio::test]
async fn dropping_an_endpoint_ends_all_requests_with_an_error() {
    let server = server(1, 2);
    let endpoint = endpoint(config().with(|config| config.coap.nstart = 2)).await;
    let mut asking = JoinSet::new();
    for listen in server.addresses() {
        let session = endpoint.connect_to(listen.address, listen.scheme).await.unwrap();
        for _ in 0..5 {
            let session = session.clone();
            asking.spawn(async move { session.get("/never").await.map(drop) });
        }
    }
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let plain = endpoint.connect_to(silent.local_addr().unwrap(), Scheme::Coap).await.unwrap();
    asking.spawn(async move { plain.observe("/number").await.map(drop) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let local = endpoint.addresses()[0];
    drop(endpoint);
    while let Some(ended) = tokio::time::timeout(Duration::from_secs(1), asking.join_next()).await.unwrap() {
        let ended = ended.unwrap();
        assert!(matches!(ended, Err(ClientError::Closed { .. })), "{ended:?}");
    }
    // The socket is closed, too.
    UdpSocket::bind(local).await.unwrap();
}

#[tokio::test]
async fn a_closed_endpoint_opens_no_session() {
    let server = server(1, 2);
    let endpoint = endpoint(config()).await;
    endpoint.close();
    let closed = endpoint.connect_to(secure(&server), Scheme::Coaps).await.map(drop);
    assert!(matches!(closed, Err(ClientError::Closed { .. })), "{closed:?}");
}

#[tokio::test]
async fn a_full_queue_and_a_handler_that_never_answers_concern_one_session() {
    let (busy, free) = (server(1, 2), server(2, 2));
    let timeout = Duration::from_secs(2);
    let endpoint = endpoint(config().with(|config| {
        config.coap.nstart = 1;
        config.coap.max_queued = 0;
        config.coap.timeout = timeout;
        config.recovery.reconnect = false;
    }))
    .await;
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let full = endpoint.connect_to(silent.local_addr().unwrap(), Scheme::Coap).await.unwrap();
    let waiting = tokio::spawn({
        let full = full.clone();
        async move { full.get("/number").await.map(drop) }
    });
    let busy = endpoint.connect_to(secure(&busy), Scheme::Coaps).await.unwrap();
    let never = tokio::spawn({
        let busy = busy.clone();
        async move { busy.get("/never").await.map(drop) }
    });
    // The server acknowledges the request that it does not answer, so that NSTART allows the next one.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let refused = full.get("/number").await;
    assert!(matches!(refused, Err(ClientError::QueueFull { max: 0, .. })), "{refused:?}");
    let free = endpoint.connect_to(secure(&free), Scheme::Coaps).await.unwrap();
    assert_eq!((number(&free).await, number(&busy).await), (2, 1));
    let never = never.await.unwrap();
    assert!(matches!(never, Err(ClientError::NoResponse { .. })), "{never:?}");
    let waiting = waiting.await.unwrap();
    assert!(matches!(waiting, Err(ClientError::Silence { .. })), "{waiting:?}");
}

#[tokio::test]
async fn a_socket_at_all_addresses_reaches_both_families() {
    let server = server(1, 2);
    let endpoint = Endpoint::builder().psk("me", KEY).bind("[::]:0").await.unwrap();
    for listen in server.addresses() {
        let scheme = listen.scheme;
        let session = endpoint.connect(&format!("{scheme}://{}", listen.address)).await.unwrap();
        assert_eq!(session.get("/number").await.unwrap().code, Code::CONTENT);
        assert_eq!(session.local().ip(), Ipv4Addr::LOCALHOST);
    }
}

#[tokio::test]
async fn a_session_continues_from_another_port_and_the_others_stay() {
    let (first, second) = (server(1, 2), server(2, 2));
    let mut config = config();
    config.dtls.connection_id = Some(Default::default());
    let endpoint = endpoint(config).await;
    let moved = endpoint.connect_to(secure(&first), Scheme::Coaps).await.unwrap();
    let other = endpoint.connect_to(secure(&second), Scheme::Coaps).await.unwrap();
    for _ in 0..3 {
        moved.rebind().await.unwrap();
        assert_ne!(moved.local(), other.local());
        assert_eq!((number(&moved).await, number(&other).await), (1, 2));
    }
    assert_eq!(
        (moved.reconnects(), endpoint.addresses().len()),
        (0, 2),
        "one socket for all, and one for the moved session"
    );
    drop(moved);
    assert_eq!(endpoint.addresses(), [other.local()]);
}

/// Each ClientHello, also a repeated one, contains the name of the server to which it is sent.
#[tokio::test]
async fn each_session_asks_for_the_name_of_its_server() {
    let sent = Arc::new(Mutex::new(Vec::<(SocketAddr, Vec<u8>)>::new()));
    let keep = sent.clone();
    let tap = Tap(Arc::new(move |tapped| {
        if let Tapped::Datagram { sent: true, path, datagram } = tapped {
            keep.lock().unwrap().push((path.remote.into(), datagram.to_vec()));
        }
    }));
    let keys =
        |name: &str| config().with(|config| config.trust.public_keys = Some(PublicKeys::new(SUITES).expecting(name)));
    let base = config().with(|config| {
        config.trust.public_keys = Some(PublicKeys::new(SUITES));
        config.log.tap = Some(tap);
    });
    let endpoint = endpoint(base).await;
    let mut connecting = JoinSet::new();
    let mut names = Vec::new();
    for name in ["one.example", "two.example"] {
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = Uri::parse(&format!("coaps://{}", sink.local_addr().unwrap())).unwrap();
        names.push((sink.local_addr().unwrap(), name));
        let (endpoint, config) = (endpoint.clone(), keys(name));
        connecting.spawn(async move { endpoint.connect_with(&uri, config).await.map(|_| drop(sink)) });
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let sent = sent.lock().unwrap();
    for (remote, name) in names {
        let hellos: Vec<&Vec<u8>> = sent.iter().filter(|(to, _)| *to == remote).map(|(_, hello)| hello).collect();
        assert!(hellos.len() > 1, "it is sent again");
        for hello in hellos {
            let asked = |name: &str| hello.windows(name.len()).any(|part| part == name.as_bytes());
            assert_eq!((asked("one.example"), asked("two.example")), (name == "one.example", name == "two.example"));
        }
    }
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let _taken = UdpSocket::bind(taken).await.unwrap();
    let refused = Endpoint::builder().bind(&taken.to_string()).await.map(drop);
    assert!(matches!(refused, Err(ClientError::Bind(_))), "{refused:?}");
    let refused = Endpoint::builder().bind("localhost").await.map(drop);
    assert!(matches!(&refused, Err(ClientError::Address { address }) if address == "localhost"), "{refused:?}");
    let endpoint = Endpoint::builder().bind("127.0.0.1:0").await.unwrap();
    assert!(matches!(endpoint.connect("coaps://127.0.0.1").await, Err(ClientError::NoKey)));
    assert!(matches!(endpoint.connect("http://127.0.0.1").await, Err(ClientError::Uri(_))));
    let family = endpoint.connect("coap://[::1]").await.map(drop);
    assert!(matches!(family, Err(ClientError::Unreachable { .. })), "{family:?}");
}
