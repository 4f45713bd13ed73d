//! Tests a server and its clients over real sockets on the loopback interface.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{self, Code};
use tegmen::dtls::{CipherSuite, ConnectionIdConfig, Fatal, Suites};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Request, Response, Session, ask_group};
use tegmen_host::credentials::{Credentials, KeyStore, KeyTicket, StoredKey};
use tegmen_host::exporter::Exported;
use tegmen_host::group::Group;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Event, Exporter, Listen, Request as ServerRequest, Server, ServerConfig};
use tegmen_host::uri::Scheme;

struct Running {
    server: Server,
    events: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(credentials: &Credentials, config: ServerConfig) -> Self {
        let resources = Resources::new([
            ("value".to_owned(), Resource::value(b"first")),
            ("a b/\u{e9}>".to_owned(), Resource::value(b"a path that a URI encodes")),
            ("blink".to_owned(), Resource::Blink(Arc::default())),
            ("slow".to_owned(), Resource::Command(vec!["sh".into(), "-c".into(), "sleep 0.3; echo late".into()])),
            ("broken".to_owned(), Resource::Command(vec!["/no/such/program".into()])),
            (
                "files".to_owned(),
                Resource::Directory {
                    root: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")),
                    writable: false,
                },
            ),
        ]);
        let events = Arc::new(Mutex::new(Vec::new()));
        let keep = events.clone();
        let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
        Self {
            server: Server::with(config).credentials(credentials.clone()).on_event(sink).serve(resources).unwrap(),
            events,
        }
    }

    fn both() -> ServerConfig {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listen =
            vec![Listen { address: any, scheme: Scheme::Coaps }, Listen { address: any, scheme: Scheme::Coap }];
        ServerConfig::default().with(|config| {
            config.listen = listen;
            config.shards = 2;
            config.trust.plain_allowed = true;
        })
    }

    fn address(&self, scheme: Scheme) -> SocketAddr {
        self.server.addresses().iter().find(|listen| listen.scheme == scheme).unwrap().address
    }

    fn heard(&self, text: &str) -> bool {
        self.events.lock().unwrap().iter().any(|event| event.contains(text))
    }
}

fn config(identity: &str, key: &[u8]) -> ClientConfig {
    let key = ClientKey { identity: identity.to_owned(), key: key.to_vec().into() };
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    config.coap.timeout = Duration::from_secs(10);
    config.dtls.handshake_timeout = Duration::from_secs(8);
    config
}

async fn ask(client: &Session, method: Code, path: &str, payload: &[u8]) -> Response {
    client.request(method, path).payload(payload).await.unwrap()
}

#[tokio::test]
async fn both_ends_export_the_same_keying_material() {
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let label = b"EXPORTER-tegmen-test";
    let (sender, exported) = std::sync::mpsc::channel();
    let take = move |session: &tegmen_host::server::Session, exported: Exported| {
        sender.send((session.clone(), exported)).unwrap();
    };
    let exporter = Some(Exporter { label, take: Arc::new(take) });
    let running = Running::start(&credentials, Running::both().with(|config| config.exporter = exporter));
    let mut before = None;
    for label in [&label[..], b"EXPORTER-tegmen-other"] {
        let config = config("me", b"0123456789abcdef").with(|config| config.export = Some(label));
        let client = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config).await.unwrap();
        assert_eq!(ask(&client, Code::GET, "value", b"").await.code, Code::CONTENT);
        let (session, at_server) = exported.try_recv().unwrap();
        let at_client = client.exported().unwrap();
        assert_eq!((session.remote, &*session.identity), (client.local(), "me"));
        assert_eq!(at_server.expose() == at_client.expose(), label == b"EXPORTER-tegmen-test");
        assert!(before.replace(*at_server.expose()).is_none_or(|before| before != *at_server.expose()));
    }
    // A client without a label gets nothing.
    let config = config("me", b"0123456789abcdef");
    let client = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config).await.unwrap();
    assert!(client.exported().is_none());
}

#[tokio::test]
async fn requests_over_dtls_and_in_clear() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        let client = Session::connect_to(running.address(scheme), scheme, config("me", b"key")).await.unwrap();
        assert_eq!(ask(&client, Code::PUT, "value", b"second").await.code, Code::CHANGED);
        assert_eq!(ask(&client, Code::GET, "value", b"").await.payload, b"second");
        assert_eq!(ask(&client, Code::GET, "nothing", b"").await.code, Code::NOT_FOUND);
        assert_eq!(ask(&client, Code::DELETE, "value", b"").await.code, Code::METHOD_NOT_ALLOWED);
        let links = ask(&client, Code::GET, ".well-known/core", b"").await;
        assert_eq!(links.content_format(), Some(40));
        let links = String::from_utf8_lossy(&links.payload);
        assert!(links.contains("</blink>;rt=\"blink\"") && links.contains("</a%20b/%C3%A9%3E>"), "{links}");
        client.close();
    }
    assert!(running.heard("Established"));
}

#[tokio::test]
async fn a_command_answers_in_a_separate_response() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let client =
        Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("me", b"key")).await.unwrap();
    let reply = ask(&client, Code::GET, "slow", b"").await;
    assert_eq!((reply.code, &reply.payload[..]), (Code::CONTENT, &b"late\n"[..]));
    assert!(reply.round_trip >= Duration::from_millis(300));
    assert_eq!(ask(&client, Code::GET, "broken", b"").await.code, Code::INTERNAL_SERVER_ERROR);
    assert!(running.heard("/slow") && running.heard("/broken"), "the operator is told, too");
    let totals = running.server.stop();
    assert_eq!((totals.requests, totals.counters.established), (2, 1), "to the last");
}

#[tokio::test]
async fn files_are_served_and_nothing_above_them() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let client =
        Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("me", b"key")).await.unwrap();
    // Larger than one message: it comes in blocks.
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blink_server.rs")).unwrap();
    assert_eq!(ask(&client, Code::GET, "files/blink_server.rs", b"").await.payload, file);
    assert_eq!(ask(&client, Code::PUT, "files/blink_server.rs", b"x").await.code, Code::METHOD_NOT_ALLOWED);
    for path in ["files/../Cargo.toml", "files/.hidden", "files/", "files//etc/passwd", "files"] {
        let code = ask(&client, Code::GET, path, b"").await.code;
        // An empty segment before another one, and `..`, are not valid in a path.
        let valid = !path.contains("//") && !path.contains("/../");
        let expected = if valid { Code::NOT_FOUND } else { Code::BAD_REQUEST };
        assert_eq!(code, expected, "{path}");
    }
}

#[tokio::test]
async fn wrong_identity_and_wrong_key_are_told_apart_by_the_operator_alone() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let mut texts = Vec::new();
    for (identity, key) in [("me", &b"another"[..]), ("you", &b"key"[..])] {
        let error = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config(identity, key))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, ClientError::IdentityOrKey { .. }), "{error}");
        texts.push(error.to_string().replace(identity, "NAME"));
    }
    assert_eq!(texts[0], texts[1]);
    let reason = |identity_known| format!("{:?}", Fatal::WrongKeyOrIdentity { identity_known });
    assert!(running.heard(&reason(true)) && running.heard(&reason(false)));
}

/// Forwards datagrams between a client and `server`. In the first `forgotten` handshakes it forwards only the client's
/// ClientHello messages, as if the server lost these handshakes before they ended. Returns the address of the
/// forwarder, and the randoms of the ClientHello messages in the order of their arrival.
async fn forgetful(server: SocketAddr, forgotten: usize) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    const RANDOM: std::ops::Range<usize> = 27..59;
    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    back.connect(server).await.unwrap();
    let address = front.local_addr().unwrap();
    let hellos = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    let seen = hellos.clone();
    tokio::spawn(async move {
        let (mut client, mut from_client, mut from_server) = (None, [0; 2048], [0; 2048]);
        loop {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut from_client) => {
                    client = Some(from);
                    let datagram = &from_client[..len];
                    let is_hello = datagram[0] == 22 && datagram[13] == 1;
                    if is_hello && !seen.lock().unwrap().iter().any(|random| random == &datagram[RANDOM]) {
                        seen.lock().unwrap().push(datagram[RANDOM].to_vec());
                    }
                    if is_hello || seen.lock().unwrap().len() > forgotten {
                        back.send(datagram).await.unwrap();
                    }
                }
                Ok(len) = back.recv(&mut from_server) => {
                    if let Some(client) = client {
                        front.send_to(&from_server[..len], client).await.unwrap();
                    }
                }
            }
        }
    });
    (address, hellos)
}

#[tokio::test]
async fn a_client_whose_handshake_the_server_forgot_begins_a_new_one() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let (address, hellos) = forgetful(running.address(Scheme::Coaps), 1).await;
    let mut config = config("me", b"key");
    config.dtls.retransmit_first = Duration::from_millis(100);
    let client = match Session::connect_to(address, Scheme::Coaps, config).await {
        Ok(client) => client,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(ask(&client, Code::GET, "value", b"").await.code, Code::CONTENT);
    assert_eq!(hellos.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_that_says_nothing_of_the_key_is_not_said_to_refuse_it() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let (address, _) = forgetful(running.address(Scheme::Coaps), usize::MAX).await;
    let mut config = config("me", b"key");
    config.dtls.retransmit_first = Duration::from_millis(100);
    config.dtls.handshake_timeout = Duration::from_secs(2);
    let error = Session::connect_to(address, Scheme::Coaps, config).await.err().unwrap();
    assert!(!matches!(error, ClientError::IdentityOrKey { .. }), "{error}");
    assert!(!error.to_string().contains("did not accept our Finished"), "{error}");
}

#[tokio::test]
async fn a_hello_without_a_common_suite_is_refused_and_the_operator_is_told() {
    let mut with_gcm = Running::both();
    with_gcm.dtls.suites = Suites(&[CipherSuite::PSK_WITH_AES_128_GCM_SHA256]);
    let running = Running::start(&Credentials::single("me", b"key"), with_gcm);
    let mut config = config("me", b"key");
    config.dtls.suites = Suites(&[CipherSuite::PSK_WITH_AES_128_CCM_8]);
    assert!(Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config).await.is_err());
    assert!(running.heard("HelloRefused") && running.heard("AlertDescription(40)"));
}

#[tokio::test]
async fn rights_and_reloading_come_from_the_file() {
    let file = std::env::temp_dir().join(format!("tegmen-loopback-{}.toml", std::process::id()));
    let write = |text: &str, ago: u64| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let handle = std::fs::File::options().write(true).open(&file).unwrap();
        handle.set_modified(std::time::SystemTime::now() - Duration::from_secs(ago)).unwrap();
    };
    write("[[psk]]\nidentity = \"me\"\nkey_text = \"key\"\nallow = [\"GET /value\"]\n", 100);
    let running = Running::start(&Credentials::from_file(&file).unwrap(), Running::both());
    let client =
        Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("me", b"key")).await.unwrap();
    assert_eq!(ask(&client, Code::GET, "value", b"").await.code, Code::CONTENT);
    assert_eq!(ask(&client, Code::PUT, "value", b"x").await.code, Code::FORBIDDEN);
    write("[[psk]]\nidentity = \"other\"\nkey_text = \"key\"\n", 10);
    for _ in 0..50 {
        if running.heard("Reloaded") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The session of who was removed is over.
    assert!(!matches!(client.get("value").await, Ok(reply) if reply.code == Code::CONTENT));
    let other =
        Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("other", b"key")).await.unwrap();
    assert_eq!(ask(&other, Code::PUT, "value", b"x").await.code, Code::CHANGED);
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn ipv6_and_a_port_that_is_taken() {
    let listen = vec![Listen { address: "[::1]:0".parse().unwrap(), scheme: Scheme::Coaps }];
    let mut server = ServerConfig::default();
    server.listen = listen;
    server.shards = 1;
    let running = Running::start(&Credentials::single("me", b"key"), server);
    let address = running.address(Scheme::Coaps);
    let client = Session::connect_to(address, Scheme::Coaps, config("me", b"key")).await.unwrap();
    assert_eq!(ask(&client, Code::PUT, "blink", b"1").await.payload, [1]);
    let mut again = ServerConfig::default();
    again.listen = vec![Listen { address, scheme: Scheme::Coaps }];
    let nobody = Credentials::single("me", b"key");
    let refused = Server::with(again).credentials(nobody.clone()).serve(Resources::new([]));
    assert!(refused.err().unwrap().to_string().contains("is in use"));
}

#[tokio::test]
async fn nobody_listening_and_a_server_that_ends_are_named() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Session::connect_to(free, Scheme::Coaps, config("me", b"key")).await.err().unwrap();
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let mut fixed = config("me", b"key");
    fixed.recovery.reconnect = false;
    let client = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, fixed).await.unwrap();
    running.server.stop();
    let error = client.get("value").await.err().unwrap();
    assert!(matches!(error, ClientError::Ended { .. }), "{error}");
}

/// A key store that answers late from another thread, or never.
struct Slow;

impl KeyStore for Slow {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let (known, never) = (identity == "stored", identity == "never");
        std::thread::spawn(move || {
            if never {
                return;
            }
            // It takes longer to find somebody than nobody.
            std::thread::sleep(Duration::from_millis(if known { 60 } else { 1 }));
            let allow = Some(vec!["GET /value".to_owned()]);
            ticket.answer(known.then(|| StoredKey { name: None, key: b"key".to_vec().into(), previous: None, allow }));
        });
    }
}

#[tokio::test]
async fn a_store_may_answer_late_and_how_late_tells_nothing() {
    let every = Duration::from_millis(200);
    let mut settings = Running::both();
    settings.trust.key_store = Some(Arc::new(Slow));
    settings.trust.key_store_answers_every = every;
    let running = Running::start(&Credentials::single("me", b"key"), settings);
    let address = running.address(Scheme::Coaps);
    let client = Session::connect_to(address, Scheme::Coaps, config("stored", b"key")).await.unwrap();
    assert!(client.handshake_time() >= every);
    assert_eq!(ask(&client, Code::GET, "value", b"").await.code, Code::CONTENT);
    assert_eq!(ask(&client, Code::PUT, "value", b"x").await.code, Code::FORBIDDEN);
    assert!(running.heard("stored"));
    // Unknown identity, and known identity with another key, in the store or in the file: as late as the one that is known.
    for (identity, key) in [("nobody", &b"key"[..]), ("stored", b"another"), ("me", b"another")] {
        let start = std::time::Instant::now();
        let error = Session::connect_to(address, Scheme::Coaps, config(identity, key)).await.err().unwrap();
        assert!(matches!(error, ClientError::IdentityOrKey { .. }), "{error}");
        assert!(start.elapsed() >= every, "{identity}");
    }
    // Who waits for ever holds up nobody.
    let waiting = tokio::spawn(Session::connect_to(address, Scheme::Coaps, config("never", b"key")));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let quick = Session::connect_to(address, Scheme::Coaps, config("me", b"key")).await.unwrap();
    assert!(quick.handshake_time() >= every, "whom the file has is not told apart");
    assert!(waiting.await.unwrap().is_err());
}

#[tokio::test]
async fn a_group_is_asked_once_and_each_of_it_answers_at_leisure() {
    let group: Group = "224.0.1.187%127.0.0.1".parse().unwrap();
    let server = |address: SocketAddr, value: &'static [u8]| {
        let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
        let mut config = ServerConfig::default();
        config.listen = vec![Listen { address, scheme: Scheme::Coap }];
        config.groups = vec!["224.0.1.187%127.0.0.1".parse().unwrap()];
        config.coap.leisure = Duration::from_millis(200);
        config.shards = 2;
        config.trust.plain_allowed = true;
        Server::with(config).serve(resources).unwrap()
    };
    let first = server("127.0.0.1:0".parse().unwrap(), b"first");
    let port = first.addresses()[0].address.port();
    let second = server((std::net::Ipv4Addr::new(127, 0, 0, 2), port).into(), b"second");
    let mut replies = Vec::new();
    let get = Request::new(Code::GET, "value");
    let wait = Duration::from_secs(2);
    let count = ask_group(&group, port, &get, wait, |from, reply| replies.push((from, reply))).await.unwrap();
    replies.sort_by_key(|(from, _)| *from);
    let seen: Vec<_> = replies.iter().map(|(from, reply)| (from.ip().to_string(), reply.payload.as_slice())).collect();
    assert_eq!(seen, [("127.0.0.1".to_owned(), &b"first"[..]), ("127.0.0.2".to_owned(), b"second")]);
    assert_eq!(count, 2);
    // No server answers a request for a missing resource, or one that a group is not allowed to make.
    let lost = Request::new(Code::GET, "nothing");
    assert_eq!(ask_group(&group, port, &lost, Duration::from_millis(500), |_, _| {}).await.unwrap(), 0);
    second.stop();
    first.stop();
}

#[tokio::test]
async fn a_client_that_changes_its_port_keeps_its_session_whatever_shard_the_port_leads_to() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    let mut config = config("me", b"key");
    config.dtls.connection_id = Some(ConnectionIdConfig { len: 0, ..ConnectionIdConfig::default() });
    let client = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config).await.unwrap();
    let ids = client.connection_ids().unwrap();
    assert!(ids.theirs().len() == 8 && ids.ours().is_empty() && ids.return_routability());
    for _ in 0..20 {
        client.rebind().await.unwrap();
        // Answered at the old port, then checked, then answered again here.
        assert_eq!(ask(&client, Code::GET, "value", b"").await.payload, b"first");
    }
    assert_eq!(client.counters().established, 1);
    client.close();
    let totals = running.server.stop();
    assert_eq!((totals.counters.established, totals.address_changes.followed), (1, 20));
    assert!(totals.passed_on > 0, "twenty ports lead to one of two shards");
    assert_eq!((totals.not_passed_on, totals.address_changes.refused), (0, 0));
}

#[tokio::test]
async fn a_server_without_connection_ids_loses_a_client_that_moves() {
    let mut server = Running::both();
    server.dtls.connection_id = None;
    let running = Running::start(&Credentials::single("me", b"key"), server);
    let mut config = config("me", b"key");
    config.coap.timeout = Duration::from_secs(1);
    config.dtls.connection_id = Some(ConnectionIdConfig::default());
    let client = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config).await.unwrap();
    assert!(client.connection_ids().is_none());
    assert_eq!(ask(&client, Code::GET, "value", b"").await.payload, b"first");
    client.rebind().await.unwrap();
    assert!(matches!(client.get("value").await, Err(ClientError::NoResponse { seconds: 1, .. })));
}

/// An application that counts the requests, and answers each with 400 bytes.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Application for Counting {
    fn handle(&mut self, _: &ServerRequest<'_>, response: &mut coap::Response<'_, '_>) -> Result<(), Code> {
        self.0.fetch_add(1, Ordering::Relaxed);
        response.payload(&[b'x'; 400])
    }
}

#[tokio::test]
async fn a_post_that_nothing_can_be_remembered_of_is_answered_with_5_03_and_a_get_is_served() {
    let (counting, events) = (Counting::default(), Arc::new(Mutex::new(Vec::new())));
    let keep = events.clone();
    let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
    let mut config_of_server = Running::both();
    config_of_server.coap.max_exchange_bytes = 0;
    config_of_server.shards = 1;
    let credentials = Credentials::single("me", b"key");
    let server =
        Server::with(config_of_server).credentials(credentials.clone()).on_event(sink).serve(counting.clone()).unwrap();
    let address = server.addresses().iter().find(|listen| listen.scheme == Scheme::Coaps).unwrap().address;
    let client = Session::connect_to(address, Scheme::Coaps, config("me", b"key")).await.unwrap();
    let mut executed = 0;
    let refused = loop {
        match ask(&client, Code::POST, "count", b"").await.code {
            Code::CONTENT => executed += 1,
            code => break code,
        }
        assert!(executed < 10_000, "nothing is forgotten, so there must be an end");
    };
    assert_eq!((refused, counting.0.load(Ordering::Relaxed)), (Code::SERVICE_UNAVAILABLE, executed));
    assert!(executed > 50, "{executed}");
    assert_eq!(ask(&client, Code::GET, "count", b"").await.code, Code::CONTENT);
    assert_eq!(ask(&client, Code::PUT, "count", b"").await.code, Code::CONTENT);
    // Another peer has a share of its own.
    let other = Session::connect_to(address, Scheme::Coaps, config("me", b"key")).await.unwrap();
    assert_eq!(ask(&other, Code::POST, "count", b"").await.code, Code::CONTENT);
    let is_told = |event: &String| event.contains("no memory is left") && event.contains("--max-exchange-bytes");
    assert!(events.lock().unwrap().iter().any(is_told), "the operator is told");
    let totals = server.stop();
    assert_eq!((totals.exchanges_refused, totals.requests as usize), (1, executed + 4));
    assert!(totals.exchange_bytes > 0);
}

#[tokio::test]
async fn sessions_are_listed_and_one_is_closed_while_the_others_remain() {
    let running = Running::start(&Credentials::single("me", b"key"), Running::both());
    assert!(running.server.sessions().is_empty());
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client =
            Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("me", b"key")).await.unwrap();
        assert_eq!(ask(&client, Code::GET, "value", b"").await.code, Code::CONTENT);
        clients.push(client);
    }
    // A peer without DTLS has no session.
    let plain =
        Session::connect_to(running.address(Scheme::Coap), Scheme::Coap, ClientConfig::default()).await.unwrap();
    ask(&plain, Code::GET, "value", b"").await;
    let sessions = running.server.sessions();
    assert_eq!(sessions.iter().map(|session| &*session.identity).collect::<Vec<_>>(), ["me"; 3]);
    let closed = sessions[1].clone();
    assert!(running.server.close(closed.id));
    assert!(running.heard(&format!("Closed {{ remote: {}, reason: Closed", closed.remote)));
    assert!(!running.server.close(closed.id), "it has ended");
    let remain = running.server.sessions();
    assert!(remain.len() == 2 && !remain.contains(&closed), "{remain:?}");
    for client in &clients {
        // The client whose session was closed learns that, or has connected again by itself.
        match client.get("/value").await {
            Ok(reply) => assert_eq!(reply.code, Code::CONTENT),
            Err(error) => assert!(matches!(error, ClientError::Ended { .. }), "{error}"),
        }
    }
    // Its client may connect again, and the old id does not name the new session.
    let again = Session::connect_to(running.address(Scheme::Coaps), Scheme::Coaps, config("me", b"key")).await.unwrap();
    assert_eq!(ask(&again, Code::GET, "value", b"").await.code, Code::CONTENT);
    let now = running.server.sessions();
    assert!(now.len() > 2 && remain.iter().all(|session| now.contains(session)), "{now:?}");
    assert!(now.iter().all(|session| session.id != closed.id) && !running.server.close(closed.id), "{now:?}");
}
