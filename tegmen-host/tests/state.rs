//! Tests the state that servers and clients store for a restart, after an orderly end and after a power cut.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::dtls::ConnectionIdConfig;
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Response, Session, Tap, Tapped};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::{Credentials, KeyStore, KeyTicket, StoredKey};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Listen, Server, ServerConfig};
use tegmen_host::state::{self, Database, StateError};
use tegmen_host::uri::Scheme;

/// A directory that is removed at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-state-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with one counter, which POST increments.
struct Running {
    server: Server,
    database: Option<Database>,
    contexts: Contexts,
    address: SocketAddr,
    events: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(database: Option<&Path>, at: Option<SocketAddr>) -> Self {
        Self::start_for("me", database, at)
    }

    fn start_for(identity: &str, database: Option<&Path>, at: Option<SocketAddr>) -> Self {
        Self::start_with(identity, database, at, &[])
    }

    fn start_with(identity: &str, database: Option<&Path>, at: Option<SocketAddr>, contexts: &[PathBuf]) -> Self {
        let database = database.map(|file| Database::open(file).unwrap());
        let address = at.unwrap_or("127.0.0.1:0".parse().unwrap());
        let credentials = Credentials::single(identity, b"key");
        let contexts = match contexts {
            [] => Contexts::default(),
            paths => Contexts::open_in(paths, database.as_ref(), |name, _| credentials.learn(name, None)).unwrap(),
        };
        let mut config = ServerConfig::default();
        config.oscore = contexts.clone();
        config.listen = vec![Listen { address, scheme: Scheme::Coaps }];
        config.shards = 2;
        config.state = database.clone();
        let events = Arc::new(Mutex::new(Vec::new()));
        let keep = events.clone();
        let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
        let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
        let server = Server::with(config).credentials(credentials.clone()).on_event(sink).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        Self { server, database, contexts, address, events }
    }

    fn count(&self, text: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|event| event.contains(text)).count()
    }

    /// Ends as after a power cut: only data on the disk remains, and the clients receive nothing.
    fn kill(self) -> SocketAddr {
        self.database.as_ref().unwrap().abandon();
        drop(self.server);
        self.address
    }

    fn stop(self) -> SocketAddr {
        self.server.stop();
        self.address
    }
}

/// All datagrams of a client, in their order.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<Passed>>>);

/// A datagram. The first value is true if the client sent it.
type Passed = (bool, Vec<u8>);

impl Wire {
    fn tap(&self) -> Tap {
        let wire = self.clone();
        Tap(Arc::new(move |tapped| {
            if let Tapped::Datagram { sent, datagram, .. } = tapped {
                wire.0.lock().unwrap().push((sent, datagram.to_vec()));
            }
        }))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().iter().filter(|(sent, _)| *sent).map(|(_, datagram)| datagram.clone()).collect()
    }

    /// Panics if a record number of the protected epoch was used twice in one direction.
    fn check(&self) {
        let mut seen = HashSet::new();
        for (sent, datagram) in self.0.lock().unwrap().iter() {
            // Retransmissions of the handshake apart, each datagram here is one record.
            if matches!(datagram[0], 23 | 25) {
                assert!(seen.insert((*sent, datagram[3..11].to_vec())), "a number was used twice: {datagram:02x?}");
            }
        }
    }
}

fn config(wire: &Wire) -> ClientConfig {
    let key = ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() };
    let timeout = Duration::from_secs(8);
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    config.coap.timeout = timeout;
    config.log.tap = Some(wire.tap());
    config.dtls.handshake_timeout = Duration::from_secs(8);
    config
}

async fn ask(client: &Session, method: Code, payload: &[u8]) -> Response {
    client.request(method, "value").payload(payload).await.unwrap()
}

#[tokio::test]
async fn sessions_survive_an_orderly_restart_without_a_handshake_or_a_challenge() {
    for (name, ids) in [("plain", false), ("ids", true)] {
        let (scene, wire) = (Scene::new(name), Wire::default());
        let file = scene.file("state.db");
        let running = Running::start(Some(&file), None);
        let mut config = config(&wire);
        config.dtls.connection_id = ids.then(|| ConnectionIdConfig { len: 0, ..ConnectionIdConfig::default() });
        let client = Session::connect_to(running.address, Scheme::Coaps, config).await.unwrap();
        for round in 0..3 {
            ask(&client, Code::PUT, format!("{round}").as_bytes()).await;
        }
        let mut address = running.stop();
        for round in 0..3 {
            let running = Running::start(Some(&file), Some(address));
            let before = wire.len();
            assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first", "it is another server");
            assert_eq!(wire.len(), before + 2, "one round trip");
            assert_eq!((running.count("Restored"), running.count("Established")), (1, 0), "{round}");
            // Once it is there it is there.
            ask(&client, Code::GET, b"").await;
            assert_eq!(running.count("Restored"), 1);
            address = running.stop();
        }
        wire.check();
        client.close();
    }
}

#[tokio::test]
async fn after_a_power_cut_the_first_request_is_challenged_once() {
    let (scene, wire) = (Scene::new("kill"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    ask(&client, Code::PUT, b"mine").await;
    running.database.as_ref().unwrap().flush().unwrap();
    let mut address = running.kill();
    for _ in 0..3 {
        let running = Running::start(Some(&file), Some(address));
        let before = wire.len();
        // Replays all datagrams of the client from another address, for which the server has no session.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        wire.sent().iter().for_each(|datagram| assert!(socket.send_to(datagram, address).is_ok()));
        let reply = ask(&client, Code::PUT, b"again").await;
        assert_eq!(reply.code, Code::CHANGED);
        assert_eq!(wire.len(), before + 4, "a challenge, and the request that repeats it");
        assert_eq!((running.count("Restored"), running.count("Established")), (1, 0));
        let again = wire.len();
        ask(&client, Code::GET, b"").await;
        assert_eq!(wire.len(), again + 2, "once is enough");
        address = running.kill();
    }
    wire.check();
}

#[tokio::test]
async fn a_replay_to_a_restarted_server_changes_nothing() {
    let (scene, wire) = (Scene::new("replay"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    let from = client.local();
    ask(&client, Code::PUT, b"mine").await;
    running.database.as_ref().unwrap().flush().unwrap();
    // The client is gone, and somebody else has its port now.
    drop(client);
    let address = running.kill();
    let running = Running::start(Some(&file), Some(address));
    let socket = UdpSocket::bind(SocketAddr::new("0.0.0.0".parse().unwrap(), from.port())).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let put = wire.sent().into_iter().rfind(|datagram| datagram[0] == 23).unwrap();
    socket.send_to(&put, address).unwrap();
    let mut answer = [0; 300];
    let (len, _) = socket.recv_from(&mut answer).unwrap();
    assert!(len > 0 && answer[0] == 23, "it is authentic, so it is challenged");
    assert_eq!((running.count("Restored"), running.count("CHANGED")), (1, 0));
    // Replays that record again, and all other datagrams of the client.
    wire.sent().iter().for_each(|datagram| assert!(socket.send_to(datagram, address).is_ok()));
    let fresh = Wire::default();
    let client = Session::connect_to(address, Scheme::Coaps, config(&fresh)).await.unwrap();
    assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
}

#[tokio::test]
async fn a_client_goes_on_with_the_session_of_the_one_before() {
    let (scene, wire) = (Scene::new("client"), Wire::default());
    let running = Running::start(None, None);
    let file = scene.file("session");
    let mut config = config(&wire);
    config.state.session = Some(file.clone());
    let connect = || Session::connect_to(running.address, Scheme::Coaps, config.clone());
    let client = connect().await.unwrap();
    ask(&client, Code::GET, b"").await;
    assert!(matches!(connect().await, Err(ClientError::State(StateError::InUse { .. }))), "one at a time");
    client.close();
    for ends in 0..4 {
        let before = wire.len();
        let client = connect().await.unwrap();
        ask(&client, Code::GET, b"").await;
        assert_eq!(wire.len(), before + 2, "no handshake");
        // Every other one ends as a power cut does.
        if ends % 2 == 0 { client.close() } else { drop(client) }
    }
    wire.check();
    assert_eq!(running.count("Established"), 1);
    // A copy is refused, and so is an old one that was put back.
    let (copy, old) = (scene.file("copy"), std::fs::read(&file).unwrap());
    std::fs::copy(&file, &copy).unwrap();
    let refused = Session::connect_to(
        running.address,
        Scheme::Coaps,
        config.clone().with(|config| config.state.session = Some(copy)),
    );
    let Err(ClientError::State(error @ StateError::Untrusted { .. })) = refused.await else {
        panic!("a copy was taken")
    };
    assert!(error.to_string().contains("Delete"), "{error}");
    connect().await.unwrap().close();
    std::fs::write(&file, old).unwrap();
    assert!(matches!(connect().await, Err(ClientError::State(StateError::Untrusted { .. }))));
    std::fs::remove_file(&file).unwrap();
    ask(&connect().await.unwrap(), Code::GET, b"").await;
    assert_eq!(running.count("Established"), 2, "and then a handshake is due");
}

#[tokio::test]
async fn both_ends_are_restarted_again_and_again() {
    let (scene, wire) = (Scene::new("both"), Wire::default());
    let (file, session) = (scene.file("state.db"), scene.file("sessions"));
    std::fs::create_dir(&session).unwrap();
    let mut config = config(&wire);
    config.state.session = Some(session);
    let mut running = Running::start(Some(&file), None);
    let address = running.address;
    let mut client = Session::connect_to(address, Scheme::Coaps, config.clone()).await.unwrap();
    for round in 0..12u32 {
        ask(&client, Code::PUT, &round.to_be_bytes()).await;
        if round % 2 == 0 {
            running.database.as_ref().unwrap().flush().unwrap();
            if round % 4 == 0 {
                running.kill()
            } else {
                running.stop()
            };
            running = Running::start(Some(&file), Some(address));
        }
        if round % 3 == 0 {
            if round % 6 == 0 {
                client.close()
            } else {
                drop(client)
            };
            client = Session::connect_to(address, Scheme::Coaps, config.clone()).await.unwrap();
        }
    }
    let hellos = wire.sent().iter().filter(|datagram| datagram[0] == 22 && datagram[13] == 1).count();
    assert_eq!(hellos, 2, "one handshake, and that with a cookie");
    wire.check();
}

#[tokio::test]
async fn a_session_that_is_over_or_whose_owner_was_removed_does_not_come_back() {
    let (scene, wire) = (Scene::new("over"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    ask(&client, Code::GET, b"").await;
    client.close();
    tokio::time::sleep(Duration::from_millis(300)).await;
    running.stop();
    let rows = |file: &Path| {
        let database = rusqlite::Connection::open(file).unwrap();
        database.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(&file), 0);

    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    ask(&client, Code::GET, b"").await;
    let address = running.stop();
    assert_eq!(rows(&file), 1);
    let running = Running::start_for("somebody else", Some(&file), Some(address));
    let silence = tokio::time::timeout(Duration::from_millis(500), client.get("value")).await;
    assert!(silence.is_err() && running.count("Restored") == 0);
    running.stop();
    assert_eq!(rows(&file), 0);
}

/// A key store that answers from another thread: with a key, the previous key and the rights of their owner, or with
/// nothing.
struct Keys(Option<Answer>);

type Answer = (&'static [u8], Option<&'static [u8]>, &'static str);

impl KeyStore for Keys {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let found = self.0.filter(|_| identity == "me").map(|(key, previous, allow)| StoredKey {
            name: None,
            key: key.to_vec().into(),
            previous: previous.map(|key| key.to_vec().into()),
            allow: Some(vec![allow.to_owned()]),
        });
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            ticket.answer(found);
        });
    }
}

/// Starts a server whose keys are in a key store. Returns it with the number of sessions that it restored.
fn serve_from_store(file: &Path, at: SocketAddr, keys: Keys) -> (Server, Arc<Mutex<usize>>) {
    let mut config = ServerConfig::default();
    config.listen = vec![Listen { address: at, scheme: Scheme::Coaps }];
    config.state = Some(Database::open(file).unwrap());
    config.trust.key_store = Some(Arc::new(keys));
    config.trust.key_store_answers_every = Duration::from_millis(1);
    let restored = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&restored);
    let sink = move |event: Event| *counted.lock().unwrap() += usize::from(matches!(event, Event::Restored { .. }));
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    (Server::with(config).on_event(sink).serve(resources).unwrap(), restored)
}

#[tokio::test]
async fn the_key_store_is_asked_again_for_the_key_and_the_rights_of_a_restored_session() {
    let both = "read-write /value";
    let after = [
        ("same", Some((&b"key"[..], None, both)), Some(Code::CHANGED)),
        ("previous-key", Some((b"another", Some(&b"key"[..]), both)), Some(Code::CHANGED)),
        ("fewer-rights", Some((b"key", None, "GET /value")), Some(Code::FORBIDDEN)),
        ("another-key", Some((b"another", None, both)), None),
        ("removed", None, None),
    ];
    for (name, keys, expected) in after {
        let (scene, wire) = (Scene::new(name), Wire::default());
        let file = scene.file("state.db");
        let (server, _) = serve_from_store(&file, "127.0.0.1:0".parse().unwrap(), Keys(Some((b"key", None, both))));
        let address = server.addresses()[0].address;
        let client = Session::connect_to(address, Scheme::Coaps, config(&wire)).await.unwrap();
        assert_eq!(ask(&client, Code::PUT, b"1").await.code, Code::CHANGED);
        server.stop();

        let (server, restored) = serve_from_store(&file, address, Keys(keys));
        let before = wire.len();
        let put = client.request(Code::PUT, "value").payload(b"2");
        // A session that the server does not restore gets no response.
        let patience = Duration::from_millis(if expected.is_some() { 8000 } else { 1500 });
        let answered = tokio::time::timeout(patience, put).await.ok();
        assert_eq!(answered.map(|response| response.unwrap().code), expected, "{name}");
        assert_eq!(*restored.lock().unwrap(), usize::from(expected.is_some()), "{name}");
        if expected.is_some() {
            assert_eq!(wire.len(), before + 2, "{name}: the request waited for the answer of the store");
        }
        server.stop();
    }
}

/// A key store that gives the key `key` with all rights to each identity, or never answers.
struct Silent(Arc<Mutex<bool>>);

impl KeyStore for Silent {
    fn find(&self, _: &str, ticket: KeyTicket) {
        if !*self.0.lock().unwrap() {
            let key = b"key".to_vec().into();
            ticket.answer(Some(StoredKey { name: None, key, previous: None, allow: None }));
        }
    }
}

#[tokio::test]
async fn a_session_that_needs_no_key_store_is_restored_while_many_wait_for_the_key_store() {
    const MOST_ASKED: usize = 256;
    let (scene, wire) = (Scene::new("silent-store"), Wire::default());
    let file = scene.file("state.db");
    let is_silent = Arc::new(Mutex::new(false));
    let serve = |address: &str| {
        let mut config = ServerConfig::default();
        config.listen = vec![Listen { address: address.parse().unwrap(), scheme: Scheme::Coaps }];
        config.shards = 1;
        config.state = Some(Database::open(&file).unwrap());
        config.trust.key_store = Some(Arc::new(Silent(Arc::clone(&is_silent))));
        config.trust.key_store_answers_every = Duration::from_millis(1);
        let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
        Server::with(config).credentials(Credentials::single("listed", b"key")).serve(resources).unwrap()
    };
    let server = serve("127.0.0.1:0");
    let address = server.addresses()[0].address;
    let connect = |identity: String| {
        let mut config = config(&wire);
        config.trust.key = Some(ClientKey { identity, key: b"key".to_vec().into() });
        Session::connect_to(address, Scheme::Coaps, config)
    };
    let listed = connect("listed".to_owned()).await.unwrap();
    let mut stored = Vec::new();
    for number in 0..MOST_ASKED {
        stored.push(connect(format!("{number}")).await.unwrap());
    }
    server.stop();

    *is_silent.lock().unwrap() = true;
    let server = serve(&address.to_string());
    let waiting: Vec<_> =
        stored.into_iter().map(|client| tokio::spawn(async move { client.get("value").await })).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let answered = tokio::time::timeout(Duration::from_secs(4), listed.get("value")).await;
    assert_eq!(answered.expect("a response in time").unwrap().payload, b"first");
    waiting.iter().for_each(|one| one.abort());
    server.stop();
}

#[test]
fn a_database_is_open_once_and_copies_backups_and_damage_are_refused() {
    let scene = Scene::new("database");
    let file = scene.file("state.db");
    let refused = |file: &Path| match Database::open(file) {
        Err(error @ StateError::Untrusted { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    };
    let all = ["state.db", "state.db-wal", "state.db.key", "state.db.place"];
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for name in all {
            let _ = std::fs::remove_file(to.join(name));
            let _ = std::fs::copy(from.join(name), to.join(name));
        }
    };
    let contexts_dir = scene.file("context");
    make_context(&contexts_dir);
    let database = Database::open(&file).unwrap();
    assert!(matches!(Database::open(&file), Err(StateError::InUse { .. })));
    let open = |database: &Database| {
        Contexts::open_in(std::slice::from_ref(&contexts_dir), Some(database), |_, _| tegmen::identity::Principal(0))
    };
    let contexts = open(&database).unwrap();
    // One copy is made while the database is in use, and one after that.
    let (hot, cold) = (scene.file("hot"), scene.file("cold"));
    copy(&scene.0, &hot);
    drop((contexts, database));
    copy(&scene.0, &cold);
    assert!(refused(&hot.join("state.db")).contains("is a copy"));
    assert!(refused(&cold.join("state.db")).contains("is a copy"));
    // The original continues.
    let database = Database::open(&file).unwrap();
    drop(open(&database).unwrap());
    drop(database);
    // Restores over it the database alone, or the database with the files beside it.
    for names in [&all[..1], &all[..2], &all[..]] {
        let (kept, now) = (scene.file("kept"), &scene.0);
        copy(now, &kept);
        for name in names {
            match std::fs::read(cold.join(name)) {
                Ok(bytes) => std::fs::write(now.join(name), bytes).unwrap(),
                Err(_) => drop(std::fs::remove_file(now.join(name))),
            }
        }
        let why = refused(&file);
        assert!(why.contains("restored from a backup") && why.contains("tegmen oscore recover"), "{why}");
        std::fs::write(&file, std::fs::read(kept.join("state.db")).unwrap()).unwrap();
        // What was beside it cannot be put back by its content: only recovery helps then.
        if names.len() < all.len() {
            drop(Database::open(&file).unwrap());
        }
    }
    state::recover(&file).unwrap();
    let database = Database::open(&file).unwrap();
    drop(open(&database).expect("it goes on, past everything that may have been used"));
    drop(database);
    // Cut short, at any place before the end of the last row. Behind it there are only pages without rows.
    let whole = std::fs::read(&file).unwrap();
    let at = whole.windows(7).rposition(|bytes| bytes == b"oscore/").unwrap();
    for len in [0, 1, 50, 99, 100, 1000, 4096, whole.len() / 2, at, at + 9] {
        std::fs::write(&file, &whole[..len]).unwrap();
        assert!(Database::open(&file).is_err(), "{len} of {}", whole.len());
    }
    std::fs::write(&file, &whole).unwrap();
    drop(Database::open(&file).expect("whole again"));
    // A bit anywhere in what counts.
    let mut spoiled = std::fs::read(&file).unwrap();
    spoiled[at + 9] ^= 1;
    std::fs::write(&file, &spoiled).unwrap();
    refused(&file);
}

fn make_context(dir: &Path) {
    let file = ContextFile {
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
    contexts::create(dir, &file).unwrap();
}

#[test]
fn numbers_of_contexts_go_forward_in_a_database_and_nowhere_else() {
    let scene = Scene::new("contexts");
    let (dir, file) = (scene.file("a"), scene.file("state.db"));
    make_context(&dir);
    let next = |database: &Database, cut: bool| {
        let stored = contexts::StoredContext::open_in(&dir, Some(database)).unwrap();
        let (next, lost) = (stored.context.lease().next(), stored.context.window().mark().is_some());
        if cut {
            stored.abandon()
        } else {
            drop(stored)
        }
        (next, lost)
    };
    let database = Database::open(&file).unwrap();
    assert_eq!(next(&database, false), (0, false));
    assert_eq!(next(&database, true), (0, false), "an orderly end loses nothing");
    assert_eq!(next(&database, false), (contexts::LEASE, true), "a power cut what was leased");
    let Err(error) = contexts::StoredContext::open(&dir) else { panic!("opened without its database") };
    assert!(error.to_string().contains("--state"), "{error}");
    drop(database);
    // Another database has no row of it.
    let other = Database::open(&scene.file("other.db")).unwrap();
    let Err(error) = contexts::StoredContext::open_in(&dir, Some(&other)) else { panic!("began anew") };
    assert!(error.to_string().contains("another database") && error.to_string().contains("recover"), "{error}");
    drop(other);
    // The context works again without a database, and then moves back into the database.
    let after = contexts::recover(&dir).unwrap();
    drop(contexts::StoredContext::open(&dir).unwrap());
    let database = Database::open(&file).unwrap();
    assert!(next(&database, false).0 >= after);
    assert_eq!(next(&database, false).0, next(&database, false).0);
    // After a recovery the database gives numbers past all that may have been used.
    drop(database);
    state::recover(&file).unwrap();
    let database = Database::open(&file).unwrap();
    let (again, lost) = next(&database, false);
    assert!(again > after && lost);
}

#[tokio::test]
async fn the_lease_of_a_busy_session_moves_on_before_it_ends() {
    let (scene, wire) = (Scene::new("busy"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    let last = |wire: &Wire| {
        let wire = wire.0.lock().unwrap();
        let (_, datagram) = wire.iter().rfind(|(sent, _)| !sent).unwrap();
        u64::from_be_bytes(datagram[3..11].try_into().unwrap()) & 0xffff_ffff
    };
    // More than half of 65,536.
    for _ in 0..33_000 {
        assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
    }
    assert!(last(&wire) > 32_768 && last(&wire) < 65_536);
    running.database.as_ref().unwrap().flush().unwrap();
    let running = Running::start(Some(&file), Some(running.kill()));
    ask(&client, Code::GET, b"").await;
    assert!(last(&wire) >= 2 * 65_536, "past what was leased ahead: {}", last(&wire));
    drop(running);
    wire.check();
}

#[tokio::test]
async fn a_lease_that_could_not_be_extended_is_asked_for_again() {
    let (scene, wire) = (Scene::new("full"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config(&wire)).await.unwrap();
    let last = |wire: &Wire| {
        let wire = wire.0.lock().unwrap();
        let (_, datagram) = wire.iter().rfind(|(sent, _)| !sent).unwrap();
        u64::from_be_bytes(datagram[3..11].try_into().unwrap()) & 0xffff_ffff
    };
    ask(&client, Code::GET, b"").await;
    running.database.as_ref().unwrap().flush().unwrap();
    // What a lease needs before it moves on cannot be made while its name is taken.
    let taken = scene.file("state.db.place.new");
    std::fs::create_dir(&taken).unwrap();
    while last(&wire) < 32_900 {
        assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
    }
    assert!(running.database.as_ref().unwrap().flush().is_err());
    std::fs::remove_dir(&taken).unwrap();
    for _ in 0..3 {
        ask(&client, Code::GET, b"").await;
        running.database.as_ref().unwrap().flush().unwrap();
    }
    assert_eq!(running.count("NotKept"), 1);
    let running = Running::start(Some(&file), Some(running.kill()));
    ask(&client, Code::GET, b"").await;
    assert!(last(&wire) >= 2 * 65_536, "past what was leased ahead: {}", last(&wire));
    drop(running);
    wire.check();
}

#[tokio::test]
async fn oscore_inside_of_a_session_goes_on_when_the_server_loses_both() {
    let (scene, wire) = (Scene::new("inside"), Wire::default());
    let (file, dirs) = (scene.file("state.db"), [scene.file("server")]);
    let client_dir = scene.file("client");
    make_context(&dirs[0]);
    let mirrored = ContextFile::read(&dirs[0]).unwrap().mirrored();
    contexts::create(&client_dir, &mirrored).unwrap();
    let running = Running::start_with("me", Some(&file), None, &dirs);
    let mut inside = config(&wire);
    inside.oscore = Some(client_dir);
    let client = Session::connect_to(running.address, Scheme::Coaps, inside).await.unwrap();
    ask(&client, Code::PUT, b"mine").await;
    running.database.as_ref().unwrap().flush().unwrap();
    let mut address = running.kill();
    for orderly in [false, true, false] {
        let running = Running::start_with("me", Some(&file), Some(address), &dirs);
        let before = wire.len();
        assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
        // The message proves by itself that it is fresh: one challenge for both.
        let round_trips = (wire.len() - before) / 2;
        assert_eq!((running.count("Restored"), running.count("Established")), (1, 0));
        assert!(round_trips <= 2, "{round_trips}");
        ask(&client, Code::PUT, b"again").await;
        address = if orderly {
            running.contexts.close();
            running.stop()
        } else {
            running.kill()
        };
    }
    wire.check();
}

#[tokio::test]
async fn a_client_whose_address_changed_while_the_server_was_down_is_found_by_its_id() {
    let (scene, wire) = (Scene::new("moved"), Wire::default());
    let file = scene.file("state.db");
    let running = Running::start(Some(&file), None);
    let mut config = config(&wire);
    config.dtls.connection_id = Some(ConnectionIdConfig { len: 0, ..ConnectionIdConfig::default() });
    let client = Session::connect_to(running.address, Scheme::Coaps, config).await.unwrap();
    ask(&client, Code::GET, b"").await;
    running.database.as_ref().unwrap().flush().unwrap();
    let mut address = running.kill();
    for _ in 0..3 {
        client.rebind().await.unwrap();
        let running = Running::start(Some(&file), Some(address));
        for _ in 0..3 {
            assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
        }
        assert_eq!((running.count("Restored"), running.count("Established")), (1, 0));
        assert_eq!(running.server.totals().counters.established, 0);
        running.database.as_ref().unwrap().flush().unwrap();
        address = running.kill();
    }
    wire.check();
}

#[test]
fn a_database_that_was_cut_off_at_any_step_of_a_commit_is_taken() {
    let scene = Scene::new("steps");
    let file = scene.file("state.db");
    let (in_place, draft) = (scene.file("state.db.place"), scene.file("state.db.place.new"));
    drop(Database::open(&file).unwrap());
    // The new file was made, and nothing was committed.
    std::fs::write(&draft, b"").unwrap();
    drop(Database::open(&file).unwrap());
    assert!(!draft.exists());
    // It was committed, and did not take its place.
    std::fs::rename(&in_place, &draft).unwrap();
    std::fs::write(&in_place, b"").unwrap();
    drop(Database::open(&file).unwrap());
    assert!(!draft.exists() && in_place.exists());
    // Neither is the file that it names.
    for path in [&in_place, &draft] {
        let _ = std::fs::remove_file(path);
        std::fs::write(path, b"").unwrap();
    }
    assert!(matches!(Database::open(&file), Err(StateError::Untrusted { .. })));
}
