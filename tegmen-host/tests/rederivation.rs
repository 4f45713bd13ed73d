//! Tests servers and clients whose contexts were lost, restored or copied, and that derive new keys (RFC 8613, appendix
//! B.2).

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tegmen::coap::{Code, MessageRef, OptionNumber};
use tegmen::oscore::{Aead, OscoreOption};
use tegmen_host::client::{ClientConfig, ClientError, Response, Session, Tap, Tapped};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::Server;
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;

/// The two ends of a context in a directory that is removed at the end, and the datagrams between them.
struct Scene {
    dir: PathBuf,
    wire: Arc<Mutex<Vec<Passed>>>,
}

/// A datagram. The first value is true if the client sent it.
type Passed = (bool, Vec<u8>);

impl Scene {
    fn new(name: &str, rederivation: bool, id_context: Option<&[u8]>) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-rederivation-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let context = ContextFile {
            sender_id: vec![1],
            recipient_id: vec![2],
            master_secret: vec![7; 16].into(),
            master_salt: Vec::new(),
            id_context: id_context.map(<[u8]>::to_vec),
            aead: Aead::AesCcm16_64_128,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation,
        };
        contexts::create(&dir.join("client"), &context).unwrap();
        contexts::create(&dir.join("server"), &context.mirrored()).unwrap();
        Self { dir, wire: Arc::default() }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn lose(&self, name: &str) {
        std::fs::remove_file(self.dir(name).join("numbers.toml")).unwrap();
    }

    fn serve(&self) -> Running {
        self.serve_with(None)
    }

    fn serve_with(&self, database: Option<&Path>) -> Running {
        let credentials = Credentials::default();
        let database = database.map(|file| Database::open(file).unwrap());
        let dirs = [self.dir("server")];
        let contexts = Contexts::open_in(&dirs, database.as_ref(), |name, _| credentials.learn(name, None)).unwrap();
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(2).oscore(contexts.clone());
        let slow = ["sh", "-c", "sleep 1; printf slowly"].map(str::to_owned).to_vec();
        let resources = Resources::new([
            ("value".to_owned(), Resource::value(b"first")),
            ("slow".to_owned(), Resource::Command(slow)),
        ]);
        let server = builder.credentials(credentials.clone()).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        Running { _server: server, contexts, address }
    }

    fn config(&self, name: &str) -> ClientConfig {
        let wire = self.wire.clone();
        let tap = Tap(Arc::new(move |tapped| {
            if let Tapped::Datagram { sent, datagram, .. } = tapped {
                wire.lock().unwrap().push((sent, datagram.to_vec()));
            }
        }));
        ClientConfig::default().with(|config| {
            config.oscore = Some(self.dir(name));
            config.log.tap = Some(tap);
        })
    }

    async fn client(&self, running: &Running) -> Session {
        self.client_of("client", running).await
    }

    async fn client_of(&self, name: &str, running: &Running) -> Session {
        Session::connect_to(running.address, Scheme::Coap, self.config(name)).await.unwrap()
    }

    /// Returns the messages since the last call. The first value is true for a request. The second value is the length
    /// of the kid context in the message; `None` if the message has no kid context.
    fn passed(&self) -> Vec<(bool, Option<usize>)> {
        let passed = std::mem::take(&mut *self.wire.lock().unwrap());
        let kid_context = |datagram: &[u8]| {
            let message = MessageRef::parse(datagram).unwrap();
            let option = message.option(OptionNumber::OSCORE)?;
            OscoreOption::parse(option).unwrap().kid_context.map(<[u8]>::len)
        };
        passed.into_iter().map(|(sent, datagram)| (sent, kid_context(&datagram))).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Running {
    _server: Server,
    contexts: Contexts,
    address: SocketAddr,
}

impl Running {
    /// Ends the server in an orderly way, so that the replay windows are stored.
    fn stop(self) {
        self.contexts.close();
    }
}

/// Starts a forwarder in front of the server, and returns its address. The forwarder passes only the first datagram to
/// the server, and only the response to this datagram back to the client.
fn only_first(server: SocketAddr) -> SocketAddr {
    let (before, behind) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = before.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 1500];
        let (len, client) = before.recv_from(&mut datagram).unwrap();
        behind.send_to(&datagram[..len], server).unwrap();
        let len = behind.recv(&mut datagram).unwrap();
        before.send_to(&datagram[..len], client).unwrap();
        // Silence is not a port that nobody has.
        std::thread::sleep(std::time::Duration::from_secs(10));
    });
    address
}

async fn ask(client: &Session, method: Code, path: &str, payload: &[u8]) -> Result<Response, ClientError> {
    client.request(method, path).payload(payload).await
}

async fn get(client: &Session) -> Vec<u8> {
    let reply = ask(client, Code::GET, "value", b"").await.unwrap();
    assert_eq!(reply.code, Code::CONTENT);
    reply.payload
}

/// The messages in which new keys are derived. The first value is true for a request. The second value is the length of
/// the kid context, which is a CBOR byte string of 8, 16 or 24 bytes; `None` if the message has no kid context.
const PROCEDURE: [(bool, Option<usize>); 4] = [(true, Some(9)), (false, Some(17)), (true, Some(26)), (false, None)];
const USUAL: [(bool, Option<usize>); 2] = [(true, None), (false, None)];

#[tokio::test]
async fn a_client_whose_numbers_are_lost_needs_one_more_round_trip() {
    let scene = Scene::new("client", true, None);
    let running = scene.serve();
    for _ in 0..3 {
        scene.lose("client");
        let client = scene.client(&running).await;
        assert_eq!(get(&client).await, b"first");
        assert_eq!(scene.passed(), PROCEDURE);
        assert_eq!(get(&client).await, b"first");
        assert_eq!(scene.passed(), USUAL);
        client.close();
        // After an orderly close the client continues with its keys.
        let client = scene.client(&running).await;
        assert_eq!(get(&client).await, b"first");
        assert_eq!(scene.passed(), USUAL);
        client.close();
    }
}

#[tokio::test]
async fn a_server_whose_numbers_are_lost_needs_one_more_round_trip() {
    for (name, id_context) in [("server", None), ("server-id", Some(&b"context"[..]))] {
        let scene = Scene::new(name, true, id_context);
        scene.serve().stop();
        scene.lose("server");
        let running = scene.serve();
        let client = scene.client(&running).await;
        let reply = ask(&client, Code::PUT, "value", b"mine").await.unwrap();
        assert_eq!(reply.code, Code::CHANGED);
        // What was asked is itself request #1, and asked again as request #2.
        let passed = scene.passed();
        assert_eq!(&passed[1..], &PROCEDURE[1..]);
        assert_eq!(passed[0], (true, id_context.map(<[u8]>::len)));
        assert_eq!(get(&client).await, b"mine");
        assert_eq!(scene.passed(), USUAL);
        running.stop();
        client.close();
        // After an orderly end on both sides nothing has to be derived.
        let running = scene.serve();
        let client = scene.client(&running).await;
        assert_eq!(get(&client).await, b"first");
        assert_eq!(scene.passed(), USUAL);
    }
}

/// The server does not know the ID Context of the client, so it cannot decrypt the request, and the client begins to
/// derive new keys.
#[tokio::test]
async fn both_lose_their_numbers_and_a_server_those_of_derived_keys() {
    let scene = Scene::new("both", true, None);
    let running = scene.serve();
    scene.lose("client");
    let client = scene.client(&running).await;
    assert_eq!(get(&client).await, b"first");
    running.stop();
    scene.lose("server");
    let running = scene.serve();
    client.close();
    let client = scene.client(&running).await;
    scene.passed();
    assert_eq!(get(&client).await, b"first");
    let passed = scene.passed();
    assert_eq!(&passed[2..], &PROCEDURE, "after an error that is not protected: {passed:?}");
    client.close();
    running.stop();
    scene.lose("server");
    scene.lose("client");
    let running = scene.serve();
    let client = scene.client(&running).await;
    assert_eq!(get(&client).await, b"first");
    assert_eq!(scene.passed(), PROCEDURE);
}

/// The client ends before it sends request #2. After its restart it continues with the new keys that it had derived,
/// and sends request #2.
#[tokio::test]
async fn keys_that_nobody_answered_yet_are_named_after_a_restart() {
    let scene = Scene::new("between", true, None);
    let running = scene.serve();
    scene.lose("client");
    let client = scene.client(&running).await;
    get(&client).await;
    client.close();
    let file = scene.dir("client/numbers.toml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("with = \""));
    scene.lose("client");
    {
        // The server gets request #1, and nothing after that.
        let client =
            Session::connect_to(only_first(running.address), Scheme::Coap, scene.config("client")).await.unwrap();
        scene.passed();
        let (get, wire) = (ask(&client, Code::GET, "value", b""), scene.wire.clone());
        let second = async {
            while wire.lock().unwrap().iter().filter(|(sent, _)| *sent).count() < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            reply = get => panic!("answered: {}", reply.is_ok()),
            () = second => {}
        }
    }
    let client = scene.client(&running).await;
    scene.passed();
    assert_eq!(get(&client).await, b"first");
    let passed = scene.passed();
    assert!(passed.ends_with(&[(true, Some(26)), (false, None)]), "{passed:?}");
}

/// The derived keys remain after a power cut. The server has lost its replay window, so it answers the first request
/// with a challenge (appendix B.1).
#[tokio::test]
async fn derived_keys_survive_a_power_cut() {
    let scene = Scene::new("cut", true, None);
    let running = scene.serve();
    scene.lose("client");
    let client = scene.client(&running).await;
    get(&client).await;
    // Saves the server's file before its orderly end.
    std::fs::copy(scene.dir("server/numbers.toml"), scene.dir("kept")).unwrap();
    running.stop();
    let text = std::fs::read(scene.dir("kept")).unwrap();
    // Restores the file, as after a power cut.
    std::fs::write(scene.dir("server/numbers.toml"), text).unwrap();
    let running = scene.serve();
    client.close();
    let client = scene.client(&running).await;
    scene.passed();
    assert_eq!(get(&client).await, b"first");
    let passed = scene.passed();
    assert_eq!(passed.len(), 4, "a challenge, or new keys: {passed:?}");
}

/// The server cannot know whether a client is the copy or the original. The server serves both clients, each under keys
/// that the other client does not have.
#[tokio::test]
async fn a_copy_and_its_original_repeat_nothing() {
    let scene = Scene::new("copy", true, None);
    let running = scene.serve();
    let client = scene.client(&running).await;
    get(&client).await;
    client.close();
    let copy = scene.dir("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in ["context.toml", "numbers.toml"] {
        std::fs::copy(scene.dir("client").join(file), copy.join(file)).unwrap();
    }
    let clients = [scene.client(&running).await, scene.client_of("copy", &running).await];
    for turn in 0..8 {
        assert_eq!(get(&clients[turn % 2]).await, b"first", "{turn}");
    }
}

/// A response under new keys would be bound to a request under other keys, so the server sends no response.
#[tokio::test]
async fn what_was_asked_under_other_keys_is_not_answered() {
    let scene = Scene::new("slow", true, None);
    let running = scene.serve();
    let first = scene.client(&running).await;
    get(&first).await;
    first.close();
    let copy = scene.dir("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in ["context.toml", "numbers.toml"] {
        std::fs::copy(scene.dir("client").join(file), copy.join(file)).unwrap();
    }
    let first = scene.client(&running).await;
    let second = scene.client_of("copy", &running).await;
    let (slow, _) = tokio::join!(ask(&first, Code::GET, "slow", b""), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        get(&second).await
    });
    let Err(ClientError::NotProtected { .. }) = slow else { panic!("{slow:?}") };
    // The client can repeat its request.
    assert_eq!(ask(&first, Code::GET, "slow", b"").await.unwrap().payload, b"slowly");
}

#[tokio::test]
async fn an_observation_begins_with_new_keys() {
    let scene = Scene::new("observe", true, None);
    let running = scene.serve();
    scene.lose("client");
    let client = scene.client(&running).await;
    let mut observation = client.observe("value").await.unwrap();
    assert!(observation.is_registered());
    assert_eq!(observation.next().await.unwrap().unwrap().payload, b"first");
}

#[tokio::test]
async fn numbers_in_a_database_have_their_keys_beside_them() {
    let scene = Scene::new("database", true, None);
    let (file, other) = (scene.dir("state.db"), scene.dir("other.db"));
    let running = scene.serve_with(Some(&file));
    scene.lose("client");
    let client = scene.client(&running).await;
    get(&client).await;
    running.stop();
    client.close();
    scene.passed();
    let running = scene.serve_with(Some(&file));
    let client = scene.client(&running).await;
    get(&client).await;
    assert_eq!(scene.passed(), USUAL);
    running.stop();
    client.close();
    // Another database knows nothing of them.
    let running = scene.serve_with(Some(&other));
    let client = scene.client(&running).await;
    assert_eq!(get(&client).await, b"first");
    assert!(scene.passed().contains(&(true, Some(26))));
    running.stop();
}

/// Without the setting `rederivation`, a context whose numbers are lost is refused, and the error names the cause.
#[tokio::test]
async fn without_it_lost_numbers_are_refused_on_both_sides() {
    let scene = Scene::new("without", false, None);
    let running = scene.serve();
    scene.lose("client");
    let Err(error) = Session::connect_to(running.address, Scheme::Coap, scene.config("client")).await else {
        panic!("connected")
    };
    assert!(error.to_string().contains("numbers.toml is missing"), "{error}");
    // A client with `rederivation` and a server without it.
    let file = scene.dir("client/context.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}rederivation = true\n")).unwrap();
    let client = scene.client(&running).await;
    let error = ask(&client, Code::GET, "value", b"").await.unwrap_err();
    assert!(error.to_string().contains("4.01"), "{error}");
}
