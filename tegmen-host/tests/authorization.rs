//! Tests policies that decide later, at a server and at a client endpoint that serves resources.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{Code, Request};
use tegmen_host::client::{ClientConfig, Endpoint, Session};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Authorization, Later, Listen, Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// A policy whose decisions come from other threads.
#[derive(Clone, Default)]
struct Slow {
    /// The number of requests for which the server called this policy.
    asked: Arc<AtomicU32>,
    /// True if the policy denies every request.
    denies: Arc<Mutex<bool>>,
    undecided: Arc<Mutex<Vec<Authorization>>>,
}

impl Slow {
    fn decide(&self, request: &Request<'_>, later: &Later<'_>) -> Option<bool> {
        self.asked.fetch_add(1, Relaxed);
        if request.message.path_is("now") {
            // The decision counts, and not what becomes of the authorization.
            later.authorization().deny();
            return Some(true);
        }
        let authorization = later.authorization();
        if request.message.path_is("never") {
            self.undecided.lock().unwrap().push(authorization);
            return None;
        }
        let is_dropped = request.message.path_is("dropped");
        let allows = !request.message.path_is("denied") && !*self.denies.lock().unwrap();
        std::thread::spawn(move || match allows {
            _ if is_dropped => drop(authorization),
            true => authorization.allow(),
            false => authorization.deny(),
        });
        None
    }
}

/// Returns resources that count the requests that reach them.
fn router(served: &Arc<AtomicU32>) -> Router {
    let count = served.clone();
    let router = Router::new().get("/*", move |_, response| {
        response.observable();
        response.payload((count.fetch_add(1, Relaxed) + 1).to_string().as_bytes())
    });
    let count = served.clone();
    let router = router.get("/deferred", move |request, response| {
        count.fetch_add(1, Relaxed);
        request.defer(response).send(tegmen_host::server::Reply::content(0, "later"));
        Ok(())
    });
    let count = served.clone();
    router.post("/echo", move |request, response| {
        count.fetch_add(1, Relaxed);
        response.payload(request.payload())
    })
}

/// Makes the client's end and the server's end of a context in `dir`.
fn create_contexts(dir: &Path) {
    let context = ContextFile {
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
    contexts::create(&dir.join("client"), &context).unwrap();
    contexts::create(&dir.join("server"), &context.mirrored()).unwrap();
}

/// Starts a server with this policy.
fn server(policy: &Slow, served: &Arc<AtomicU32>, scheme: Scheme, contexts: Contexts) -> Server {
    let config = ServerConfig::default().with(|config| {
        config.oscore = contexts;
        config.listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme }];
        config.shards = 1;
        config.coap.response_timeout = Duration::from_millis(1200);
    });
    let policy = policy.clone();
    let server = Server::with(config).credentials(Credentials::single("me", KEY));
    server.policy_later(move |request, later| policy.decide(request, later)).serve(router(served)).unwrap()
}

async fn code_of(session: &Session, path: &str) -> Code {
    session.get(path).await.unwrap().code
}

#[tokio::test]
async fn each_request_has_the_response_that_belongs_to_its_decision() {
    for (scheme, oscore) in [(Scheme::Coap, false), (Scheme::Coaps, false), (Scheme::Coap, true), (Scheme::Coaps, true)]
    {
        let dir: PathBuf = std::env::temp_dir().join(format!("tegmen-later-{}-{scheme}-{oscore}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        create_contexts(&dir);
        let names = Credentials::default();
        let contexts = Contexts::open(&[dir.join("server")], |name, _| names.learn(name, None)).unwrap();
        let (policy, served) = (Slow::default(), Arc::default());
        let server = server(&policy, &served, scheme, contexts);
        let mut config = ClientConfig::psk("me", KEY);
        config.oscore = oscore.then(|| dir.join("client"));
        let session = Session::connect_to(server.addresses()[0].address, scheme, config).await.unwrap();
        let denial = if scheme == Scheme::Coap && !oscore { Code::UNAUTHORIZED } else { Code::FORBIDDEN };
        for (path, code) in [
            ("/now", Code::CONTENT),
            ("/allowed", Code::CONTENT),
            ("/denied", denial),
            ("/dropped", Code::SERVICE_UNAVAILABLE),
            ("/deferred", Code::CONTENT),
            ("/never", Code::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(code_of(&session, path).await, code, "{path} over {scheme}, {oscore}");
        }
        assert_eq!((served.load(Relaxed), policy.asked.load(Relaxed)), (3, 6), "over {scheme}, {oscore}");
        // A decision that comes too late does nothing.
        policy.undecided.lock().unwrap().drain(..).for_each(Authorization::allow);
        let body = vec![7; 3000];
        let echoed = session.post("/echo", &body).await.unwrap();
        assert_eq!((echoed.code, echoed.payload == body), (Code::CONTENT, true), "over {scheme}, {oscore}");
        assert_eq!(served.load(Relaxed), 4, "the body is served once, whole");
        let _ = std::fs::remove_dir_all(&dir);
    }
}

#[tokio::test]
async fn each_notification_is_decided_on_and_a_denial_is_the_last() {
    let (policy, served) = (Slow::default(), Arc::default());
    let server = server(&policy, &served, Scheme::Coaps, Contexts::default());
    let address = server.addresses()[0].address;
    let session = Session::connect_to(address, Scheme::Coaps, ClientConfig::psk("me", KEY)).await.unwrap();
    let mut observation = session.get("/value").observe().await.unwrap();
    for expected in ["1", "2", "3"] {
        let response = observation.next().await.unwrap().expect("a representation");
        assert_eq!((response.code, &response.payload[..]), (Code::CONTENT, expected.as_bytes()));
        *policy.denies.lock().unwrap() = expected == "3";
        server.notifier().changed("value");
    }
    let last = observation.next().await.unwrap().map(|response| response.code);
    assert_eq!(last, Some(Code::FORBIDDEN));
    assert_eq!((served.load(Relaxed), policy.asked.load(Relaxed)), (3, 4));
}

#[tokio::test]
async fn an_endpoint_that_serves_waits_for_decisions_too() {
    let (policy, served) = (Slow::default(), Arc::default());
    let decides = policy.clone();
    let endpoint = Endpoint::builder()
        .serve(router(&served))
        .credentials(Credentials::single("me", KEY))
        .policy_later(move |request, later| decides.decide(request, later))
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let address = endpoint.addresses()[0];
    let session = Session::connect_to(address, Scheme::Coaps, ClientConfig::psk("me", KEY)).await.unwrap();
    for (path, code) in [
        ("/now", Code::CONTENT),
        ("/allowed", Code::CONTENT),
        ("/denied", Code::FORBIDDEN),
        ("/dropped", Code::SERVICE_UNAVAILABLE),
        ("/deferred", Code::CONTENT),
    ] {
        assert_eq!(code_of(&session, path).await, code, "{path}");
    }
    assert_eq!((served.load(Relaxed), policy.asked.load(Relaxed)), (3, 5));
    endpoint.close();
}
