//! Tests OSCORE contexts that are restored from an image of the disk. The image was made before the first use of the
//! contexts. It is the template of several machines, or a copy of a machine that is still in use.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{Code, MessageRef, OptionNumber};
use tegmen::oscore::{Aead, OscoreOption};
use tegmen_host::client::{ClientConfig, ClientError, Response, Session, Tap, Tapped};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Server};
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;

/// The two ends of a context in a temporary directory, an image of both ends from the time before their first use, and
/// the datagrams of the client.
struct Scene {
    dir: PathBuf,
    database: bool,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct Running {
    server: Server,
    contexts: Contexts,
    address: SocketAddr,
    delivered: Arc<AtomicUsize>,
}

impl Scene {
    fn new(name: &str, database: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-images-{}-{name}-{database}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let context = ContextFile {
            sender_id: vec![1],
            recipient_id: vec![2],
            master_secret: vec![7; 16].into(),
            master_salt: Vec::new(),
            id_context: None,
            aead: Aead::AesCcm16_64_128,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation: false,
        };
        contexts::create(&dir.join("client"), &context).unwrap();
        contexts::create(&dir.join("server"), &context.mirrored()).unwrap();
        let scene = Self { dir, database, sent: Arc::default() };
        scene.copy("client", "image/client");
        scene.copy("server", "image/server");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Copies a directory to a new directory, in the same way as `cp -a`.
    fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.path(from), self.path(to));
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }

    fn serve(&self) -> Running {
        let database = self.database.then(|| Database::open(&self.path("state.db")).unwrap());
        let credentials = Credentials::default();
        let learn = |name: &str, _: Option<&[String]>| credentials.learn(name, None);
        let contexts = Contexts::open_in(&[self.path("server")], database.as_ref(), learn).unwrap();
        let mut builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).oscore(contexts.clone());
        if let Some(database) = database {
            builder = builder.state(database);
        }
        let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
        let delivered = Arc::new(AtomicUsize::new(0));
        let count = delivered.clone();
        let sink = move |event: Event| {
            if matches!(event, Event::Request(request) if request.code == Code::CHANGED) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        let server = builder.credentials(credentials.clone()).on_event(sink).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        Running { server, contexts, address, delivered }
    }

    fn stop(running: Running) {
        running.contexts.close();
        running.server.stop();
    }

    /// Restores one end from the image, and removes the database, as on a machine after a fresh installation.
    fn put_image_back(&self, end: &str) {
        self.copy(&format!("image/{end}"), end);
        for name in ["state.db", "state.db-wal", "state.db-shm", "state.db.key", "state.db.place"] {
            let _ = std::fs::remove_file(self.path(name));
        }
    }

    /// Sends a PUT with each payload, and closes the session. Returns the responses.
    async fn put(&self, running: &Running, payloads: &[&[u8]]) -> Vec<Result<Response, ClientError>> {
        let sent = self.sent.clone();
        let tap = Tap(Arc::new(move |tapped| {
            if let Tapped::Datagram { sent: true, datagram, .. } = tapped {
                sent.lock().unwrap().push(datagram.to_vec());
            }
        }));
        let oscore = Some(self.path("client"));
        let mut config = ClientConfig::default();
        config.oscore = oscore;
        config.log.tap = Some(tap);
        config.coap.timeout = Duration::from_secs(5);
        let client = Session::connect_to(running.address, Scheme::Coap, config).await.unwrap();
        let mut replies = Vec::new();
        for payload in payloads {
            replies.push(client.put("value", payload).await);
        }
        client.close();
        replies
    }

    /// Returns the Partial IV of each protected request that the client sent.
    fn partial_ivs(&self) -> Vec<Vec<u8>> {
        let sent = self.sent.lock().unwrap();
        let piv = |datagram: &Vec<u8>| {
            let message = MessageRef::parse(datagram).unwrap();
            let option = OscoreOption::parse(message.option(OptionNumber::OSCORE)?).unwrap();
            option.partial_iv.map(|piv| format!("{piv:?}").into_bytes())
        };
        sent.iter().filter_map(piv).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[tokio::test]
async fn a_client_that_was_restored_from_before_its_first_use_repeats_no_nonce() {
    for database in [false, true] {
        let scene = Scene::new("client", database);
        let running = scene.serve();
        scene.put(&running, &[b"AAAAAAAAAA", b"BBBBBBBBBB"]).await;
        scene.put_image_back("client");
        let replies = scene.put(&running, &[b"CCCCCCCCCC"]).await;
        let (used, once) = (scene.partial_ivs(), scene.partial_ivs().into_iter().collect::<HashSet<_>>());
        assert_eq!(used.len(), once.len(), "a Partial IV was used twice: {used:?}");
        assert_eq!(replies[0].as_ref().unwrap().code, Code::CHANGED, "it goes on");
        Scene::stop(running);
    }
}

#[tokio::test]
async fn a_server_that_was_restored_from_before_its_first_use_delivers_nothing_twice() {
    for database in [false, true] {
        let scene = Scene::new("server", database);
        let running = scene.serve();
        scene.put(&running, &[b"open", b"shut"]).await;
        Scene::stop(running);
        scene.put_image_back("server");
        let running = scene.serve();
        let recorded = scene.sent.lock().unwrap().clone();
        assert!(recorded.len() >= 2);
        for datagram in recorded {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send_to(&datagram, running.address).unwrap();
            let mut answer = [0; 1500];
            let len = socket.recv(&mut answer).unwrap();
            assert!(MessageRef::parse(&answer[..len]).is_ok());
        }
        assert_eq!(running.delivered.load(Ordering::SeqCst), 0, "a recorded request was delivered again");
        let replies = scene.put(&running, &[b"last"]).await;
        assert_eq!(replies[0].as_ref().unwrap().code, Code::CHANGED, "what is fresh is delivered");
        assert_eq!(running.delivered.load(Ordering::SeqCst), 1);
        Scene::stop(running);
    }
}
