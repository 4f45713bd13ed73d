//! Counts the heap allocations that a request causes after similar requests: at a server, over DTLS and over OSCORE,
//! and at a client session.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tegmen::coap::{Code, MessageRef, OptionNumber, Response};
use tegmen_host::client::{ClientConfig, ClientKey, Session};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::server::{Application, Listen, Request, Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// An allocator that counts the allocations of the threads that have set `COUNTS`.
struct Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the ones that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` comes from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a router that answers every request. A POST marks the thread of the server. From then on the allocations of
/// this thread are counted.
fn router() -> Router {
    Router::new()
        .get("/value", |request, response| {
            assert_eq!(request.path(), "value");
            response.payload(b"21.5")
        })
        .post("/value", |_, response| {
            COUNTS.set(true);
            response.payload(b"21.5")
        })
}

/// A server with a pre-shared key and an OSCORE context, and the address of its port. The server has one shard, so one
/// thread processes all requests.
struct Scene {
    _server: Server,
    config: ClientConfig,
    address: std::net::SocketAddr,
    dir: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Scene {
    fn new(name: &str, scheme: Scheme) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-path-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
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
        let credentials = Credentials::single("me", b"key");
        let contexts = Contexts::open(&[dir.join("server")], |name, _| credentials.learn(name, None)).unwrap();
        let listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme }];
        let mut config = ServerConfig::default();
        config.oscore = contexts;
        config.listen = listen;
        config.shards = 1;
        config.log.report_requests = false;
        let server = Server::with(config).credentials(credentials).serve(router()).unwrap();
        let address = server.addresses()[0].address;
        let key = ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() };
        let oscore = (scheme == Scheme::Coap).then(|| dir.join("client"));
        Self {
            _server: server,
            config: ClientConfig::default().with(|config| {
                config.trust.key = Some(key);
                config.oscore = oscore;
            }),
            address,
            dir,
        }
    }

    /// Returns the number of allocations of the server for `gets` GETs, after 100 earlier GETs.
    async fn warm_gets(&self, scheme: Scheme, gets: u64) -> u64 {
        let session = Session::connect_to(self.address, scheme, self.config.clone()).await.unwrap();
        let mut before = 0;
        for number in 0..=100 + gets {
            let method = if number == 0 { Code::POST } else { Code::GET };
            assert_eq!(session.request(method, "/value").await.unwrap().payload, b"21.5");
            if number == 100 {
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    }
}

/// A lock for the tests, which share one counter of allocations.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The two allocations are the future of the request, and the payload of its response.
#[tokio::test]
async fn a_session_makes_two_allocations_for_a_warm_get() {
    let _one = ONE.lock().await;
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        let scene = Scene::new(if scheme == Scheme::Coaps { "session" } else { "oscore-session" }, scheme);
        let session = Session::connect_to(scene.address, scheme, scene.config.clone()).await.unwrap();
        // Fewer than the numbers that are leased at once: more are written to a file.
        let (gets, mut before) = (900, 0);
        for number in 0..100 + gets {
            if number == 100 {
                COUNTS.set(true);
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
            assert_eq!(session.get("/value").await.unwrap().payload, b"21.5");
        }
        COUNTS.set(false);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!((1..=2 * gets + 10).contains(&allocations), "{allocations} allocations of {gets} requests");
    }
}

#[tokio::test]
async fn a_warm_get_is_served_without_an_allocation() {
    let _one = ONE.lock().await;
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        let scene = Scene::new(if scheme == Scheme::Coaps { "dtls" } else { "oscore" }, scheme);
        let allocations = scene.warm_gets(scheme, 1000).await;
        // The memory of exchanges grows in blocks while it fills.
        assert!(allocations <= 10, "{allocations} allocations of 1,000 requests");
    }
}

/// A proxy. A POST of `/mark` marks the thread of the server. From then on the allocations of this thread are counted.
#[derive(Clone)]
struct Marked(Proxy);

impl Application for Marked {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if request.method() == Code::POST {
            COUNTS.set(true);
            return response.payload(b"21.5");
        }
        self.0.handle(request, response)
    }

    fn acts_on(&self, path: &str, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        self.0.acts_on(path, request, number)
    }
}

/// Tests the reverse proxy, and the forward proxy with Proxy-Scheme.
#[tokio::test]
async fn a_proxy_answers_from_its_cache_without_an_allocation() {
    let _one = ONE.lock().await;
    let origin = Server::builder().listen("coap://127.0.0.1:0").allow_plain().serve(router()).unwrap();
    let address = origin.addresses()[0].address;
    let config = ProxyConfig::default().with(|config| {
        config.targets = vec!["coap://127.0.0.1:*".parse().unwrap()];
        config.reverse = vec![format!("/house=coap://{address}").parse().unwrap()];
    });
    let mut settings = ServerConfig::default();
    settings.listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme: Scheme::Coap }];
    settings.shards = 1;
    settings.trust.plain_allowed = true;
    settings.log.report_requests = false;
    let server = Server::with(settings).serve(Marked(Proxy::new(config).unwrap())).unwrap();
    let at = server.addresses()[0].address;
    let session = Session::connect_to(at, Scheme::Coap, ClientConfig::default()).await.unwrap();
    let forward = [
        (OptionNumber::PROXY_SCHEME, b"coap".to_vec()),
        (OptionNumber::URI_HOST, b"127.0.0.1".to_vec()),
        (OptionNumber::URI_PORT, address.port().to_be_bytes().to_vec()),
    ];
    for (path, options) in [("/house/value", &[][..]), ("/value", &forward)] {
        let (gets, mut before) = (1000, 0);
        for number in 0..=100 + gets {
            if number == 50 {
                session.post("/mark", b"").await.unwrap();
            }
            let response = session.get(path).options(options).await.unwrap();
            assert_eq!(response.payload, b"21.5");
            if number == 100 {
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        // Those of what remembers replies, which grows.
        assert!(allocations < 20, "{path}: {allocations} allocations of {gets} requests");
    }
}
