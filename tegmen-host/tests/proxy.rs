//! A proxy that caches, between clients and origins.

mod oscore_scene;

use oscore_scene::Scene;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{self, Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientKey, Endpoint, Response, Session};
use tegmen_host::contexts::Contexts;
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Event, Reply, Request, Router, Server, VirtualHosts};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";
/// Two unregistered options: `SAFE` is critical and safe to forward, and `UNSAFE` is elective and unsafe to forward.
const SAFE: OptionNumber = OptionNumber(0x2f9);
const UNSAFE: OptionNumber = OptionNumber(0x2fa);

/// An origin that counts its requests.
struct Origin {
    server: Server,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    /// Serves five paths. `/one` has an ETag. `/short` has an ETag, and is fresh for one second. `/slow` takes 300 ms.
    /// `/none` must not be stored. `/long` has a long payload.
    fn new() -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let count = move || counted.fetch_add(1, Relaxed) + 1;
        let (one, short, slow, none, changed) =
            (count.clone(), count.clone(), count.clone(), count.clone(), count.clone());
        let router = Router::new()
            .get("/one", move |_, response| {
                response.option(OptionNumber::ETAG, b"e1")?;
                response.uint(OptionNumber::CONTENT_FORMAT, 0)?;
                response.payload(format!("one {}", one()).as_bytes())
            })
            .get("/short", move |request, response| {
                short();
                response.option(OptionNumber::ETAG, b"e2")?;
                response.uint(OptionNumber::MAX_AGE, 1)?;
                if request.message().values(OptionNumber::ETAG).any(|known| known == b"e2") {
                    response.set_code(Code::VALID);
                    return Ok(());
                }
                response.payload(b"short")
            })
            .get("/slow", move |request, response| {
                let (responder, count) = (request.defer(response), slow());
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    responder.send(Reply::content(0, format!("slow {count}")));
                });
                Ok(())
            })
            .get("/none", move |_, response| {
                response.uint(OptionNumber::MAX_AGE, 0)?;
                response.payload(format!("none {}", none()).as_bytes())
            })
            .on(Code::PUT, "/one", move |_, response| {
                changed();
                response.set_code(Code::CHANGED);
                Ok(())
            })
            .on(Code::POST, "/made", |_, response| {
                response.set_code(Code::CREATED);
                response.option(OptionNumber::LOCATION_PATH, b"made")?;
                response.option(OptionNumber::LOCATION_PATH, b"7")
            })
            .get("/long", |_, response| response.payload(&long()))
            .on(Code::PUT, "/long", |request, response| {
                response.set_code(if request.payload() == long() { Code::CHANGED } else { Code::BAD_REQUEST });
                Ok(())
            })
            .get("/host", |request, response| {
                let host = request.message().option(OptionNumber::URI_HOST).unwrap_or(b"nobody").to_vec();
                response.payload(&host)
            })
            .get("/safe", |request, response| response.payload(request.message().option(SAFE).unwrap_or(b"")))
            .critical_options(&[
                OptionNumber::URI_HOST,
                OptionNumber::URI_PORT,
                OptionNumber::URI_PATH,
                OptionNumber::URI_QUERY,
                OptionNumber::ACCEPT,
                SAFE,
            ]);
        let credentials = Credentials::single("proxy", KEY);
        let builder = Server::builder().listen("coap://127.0.0.1:0").listen("coaps://127.0.0.1:0").shards(1);
        let server = builder.credentials(credentials).allow_plain().on_event(|_| ()).serve(router).unwrap();
        Self { server, requests }
    }

    fn address(&self, scheme: Scheme) -> SocketAddr {
        self.server.addresses().iter().find(|listen| listen.scheme == scheme).unwrap().address
    }

    fn uri(&self, path: &str) -> String {
        format!("coap://{}{path}", self.address(Scheme::Coap))
    }

    fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }
}

fn long() -> Vec<u8> {
    (0..5000u32).map(|index| index as u8).collect()
}

/// Returns the settings of a proxy that forwards to every port of this machine.
fn settings() -> ProxyConfig {
    ProxyConfig::default().with(|config| {
        config.targets = vec!["coap://127.0.0.1:*".parse().unwrap(), "coaps://127.0.0.1:*".parse().unwrap()];
        config.client.trust.key = Some(ClientKey { identity: "proxy".to_owned(), key: KEY.to_vec().into() });
        config.client.coap.timeout = Duration::from_secs(20);
    })
}

/// Starts a server with a proxy. Each client may send every request.
fn open(config: ProxyConfig) -> (Server, Proxy) {
    let proxy = Proxy::new(config).unwrap();
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(2).allow_plain().on_event(|_| ());
    (builder.serve(proxy.clone()).unwrap(), proxy)
}

async fn client_of(server: &Server) -> Session {
    let config = ClientConfig::default().with(|config| {
        config.coap.nstart = 32;
        config.coap.timeout = Duration::from_secs(60);
    });
    Session::connect_to(server.addresses()[0].address, Scheme::Coap, config).await.unwrap()
}

/// Sends a request to a forward proxy with Proxy-Uri. Returns the response.
async fn ask(client: &Session, method: Code, uri: &str, options: &[(OptionNumber, &[u8])]) -> Response {
    let mut all = vec![(OptionNumber::PROXY_URI, uri.as_bytes().to_vec())];
    all.extend(options.iter().map(|(number, value)| (*number, value.to_vec())));
    client.request(method, "").options(&all).await.unwrap()
}

async fn get(client: &Session, uri: &str) -> Response {
    ask(client, Code::GET, uri, &[]).await
}

/// Sends a GET to a forward proxy with Proxy-Scheme, Uri-Host and Uri-Port. Returns the response.
async fn get_by_parts(client: &Session, origin: SocketAddr, path: &str) -> Response {
    let options = [
        (OptionNumber::PROXY_SCHEME, b"coap".to_vec()),
        (OptionNumber::URI_HOST, origin.ip().to_string().into_bytes()),
        (OptionNumber::URI_PORT, origin.port().to_be_bytes().to_vec()),
    ];
    client.request(Code::GET, path).options(&options).await.unwrap()
}

fn text(response: &Response) -> (Code, &str) {
    (response.code, std::str::from_utf8(&response.payload).unwrap())
}

#[tokio::test]
async fn a_stored_response_answers_without_its_origin() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    let first = get(&client, &origin.uri("/one")).await;
    let second = get(&client, &origin.uri("/one")).await;
    let third = get_by_parts(&client, origin.address(Scheme::Coap), "/one").await;
    for response in [&first, &second, &third] {
        assert_eq!(text(response), (Code::CONTENT, "one 1"));
        assert_eq!(response.option(OptionNumber::ETAG), Some(&b"e1"[..]));
        assert_eq!(response.content_format(), Some(0));
    }
    assert!(first.option(OptionNumber::MAX_AGE).is_none());
    assert!((50..60).contains(&second.uint(OptionNumber::MAX_AGE).unwrap()));
    let counts = proxy.counts();
    assert_eq!((origin.requests(), counts.hits, counts.misses, counts.entries), (1, 2, 1, 1));
    proxy.purge();
    assert_eq!(text(&get(&client, &origin.uri("/one")).await), (Code::CONTENT, "one 2"));
}

/// Tests section 4.5 of RFC 7252.
#[tokio::test]
async fn a_repeated_request_for_a_stored_response_gets_the_response_again() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    get(&client, &origin.uri("/one")).await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.addresses()[0].address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 7, b"token").unwrap();
    builder.option(OptionNumber::PROXY_URI, origin.uri("/one").as_bytes()).unwrap();
    for hits in 1..=3 {
        socket.send(frame.bytes()).unwrap();
        let mut datagram = [0; 1500];
        let len = socket.recv(&mut datagram).unwrap();
        let response = MessageRef::parse(&datagram[..len]).unwrap();
        assert_eq!((response.message_type(), response.message_id()), (MessageType::Acknowledgement, 7));
        assert_eq!((response.token(), response.payload()), (&b"token"[..], &b"one 1"[..]));
        assert_eq!((origin.requests(), proxy.counts().hits), (1, hits));
    }
}

/// Starts a server with one shard for this proxy.
fn server_of(proxy: &Proxy) -> Server {
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
    builder.serve(proxy.clone()).unwrap()
}

#[tokio::test]
async fn a_proxy_of_two_servers_forwards_after_the_end_of_one_of_them() {
    let (origin, proxy) = (Origin::new(), Proxy::new(settings()).unwrap());
    let [first, second] = [&proxy, &proxy].map(server_of);
    let (client, other) = (client_of(&first).await, client_of(&second).await);
    assert_eq!(text(&get(&client, &origin.uri("/none")).await), (Code::CONTENT, "none 1"));
    assert_eq!(text(&get(&other, &origin.uri("/none")).await), (Code::CONTENT, "none 2"));
    first.stop();
    for expected in ["none 3", "none 4"] {
        assert_eq!(text(&get(&other, &origin.uri("/none")).await), (Code::CONTENT, expected));
    }
}

/// The first server executes the requests of both servers when it ends.
#[tokio::test]
async fn requests_that_wait_at_the_end_of_one_of_two_servers_do_not_block_the_requests_that_follow() {
    let (origin, proxy) = (Origin::new(), Proxy::new(settings()).unwrap());
    let [first, second] = [&proxy, &proxy].map(server_of);
    let (client, other) = (client_of(&first).await, client_of(&second).await);
    assert_eq!(text(&get(&client, &origin.uri("/none")).await), (Code::CONTENT, "none 1"));
    // A request that others can join, a request for one client, and an observation. The origin does not answer.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("coap://{}/path", silent.local_addr().unwrap());
    let options = [(OptionNumber::PROXY_URI, uri.clone().into_bytes())];
    let watched = [(OptionNumber::PROXY_URI, format!("{uri}?watched").into_bytes())];
    let stopped = async {
        while (proxy.counts().open, proxy.counts().observations) != (2, 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::task::spawn_blocking(|| first.stop()).await.unwrap();
    };
    let (joined, passed, watched, ()) = tokio::join!(
        async { other.get("").options(&options).await },
        async { other.request(Code::POST, "").options(&options).await },
        async { other.get("").options(&watched).observe().await },
        stopped
    );
    assert_eq!(joined.unwrap().code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(passed.unwrap().code, Code::INTERNAL_SERVER_ERROR);
    assert!(!watched.unwrap().is_registered());
    let counts = proxy.counts();
    assert_eq!((counts.open, counts.observations, counts.joined), (0, 0, 0));
    assert_eq!(text(&get(&other, &origin.uri("/none")).await), (Code::CONTENT, "none 2"));
    // The same request goes to the origin again.
    let again = tokio::spawn({
        let (other, uri) = (other.clone(), uri.clone());
        async move { get(&other, &uri).await }
    });
    while proxy.counts().open != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(proxy.counts().joined, 0);
    again.abort();
}

/// Another shard than that of the client may execute its request, and has no request of its own to wait for.
#[tokio::test]
async fn a_server_that_drains_answers_what_its_proxy_still_asks_for_in_each_shard() {
    // The system chooses the shard of each client, so the clients of a round can have the same shard.
    let rounds: Vec<_> = (0..10)
        .map(|_| {
            tokio::spawn(async {
                let (origin, (server, proxy)) = (Origin::new(), open(settings()));
                get(&client_of(&server).await, &origin.uri("/none")).await;
                let client = client_of(&server).await;
                let drained = async {
                    while proxy.counts().open != 1 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    tokio::task::spawn_blocking(|| server.drain(Duration::from_secs(20))).await.unwrap();
                };
                let uri = origin.uri("/slow");
                let (response, ()) = tokio::join!(get(&client, &uri), drained);
                assert_eq!(text(&response), (Code::CONTENT, "slow 2"));
            })
        })
        .collect();
    for round in rounds {
        round.await.unwrap();
    }
}

#[tokio::test]
async fn a_query_and_accept_choose_another_response() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    get(&client, &origin.uri("/one")).await;
    assert_eq!(text(&get(&client, &origin.uri("/one?unit=C")).await).1, "one 2");
    let accept: (OptionNumber, &[u8]) = (OptionNumber::ACCEPT, &[]);
    assert_eq!(text(&ask(&client, Code::GET, &origin.uri("/one"), &[accept]).await).1, "one 3");
    assert_eq!(text(&get(&client, &origin.uri("/one")).await).1, "one 1");
}

/// Tests sections 3 and 4 of RFC 8768.
#[test]
fn a_hop_limit_of_0_and_a_name_with_a_space_are_refused() {
    let refused = |config| Proxy::new(config).err().expect("an error").to_string();
    assert_eq!(
        refused(settings().with(|config| config.hop_limit = 0)),
        "the Hop-Limit of the proxy is 0: choose a number from 1 to 255, such as 16"
    );
    for name in ["my proxy", "proxy ", "my\tproxy"] {
        assert_eq!(
            refused(settings().with(|config| config.name = name.to_owned())),
            format!("the name of the proxy, {name:?}, has a space: choose a name without spaces, such as \"tegmen\"")
        );
    }
}

#[tokio::test]
async fn a_request_does_not_wait_for_one_with_a_smaller_hop_limit() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let uri = origin.uri("/slow");
    let mut tasks = tokio::task::JoinSet::new();
    for hops in [2_u8, 7, 7, 7] {
        let (client, uri) = (client_of(&server).await, uri.clone());
        tasks.spawn(async move { ask(&client, Code::GET, &uri, &[(OptionNumber::HOP_LIMIT, &[hops])]).await });
    }
    while let Some(response) = tasks.join_next().await {
        assert_eq!(response.unwrap().code, Code::CONTENT);
    }
    // The response to the request with the limit 2 could be a 5.08 that a request with the limit 7 does not get.
    assert_eq!(origin.requests(), 2);
    let counts = proxy.counts();
    assert_eq!((counts.joined + counts.hits, counts.open), (2, 0));
}

#[tokio::test]
async fn requests_for_one_response_that_wait_are_one_request_to_the_origin() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let uri = origin.uri("/slow");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (client, uri) = (client_of(&server).await, uri.clone());
        tasks.spawn(async move { get(&client, &uri).await });
    }
    while let Some(response) = tasks.join_next().await {
        assert_eq!(text(&response.unwrap()), (Code::CONTENT, "slow 1"));
    }
    assert_eq!(origin.requests(), 1);
    let counts = proxy.counts();
    assert_eq!((counts.joined + counts.hits, counts.open), (9, 0));
}

#[tokio::test]
async fn a_response_that_may_not_be_stored_is_asked_for_each_time() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    assert_eq!(text(&get(&client, &origin.uri("/none")).await).1, "none 1");
    let second = get(&client, &origin.uri("/none")).await;
    assert_eq!((text(&second).1, second.uint(OptionNumber::MAX_AGE)), ("none 2", Some(0)));
}

#[tokio::test]
async fn a_change_through_the_proxy_makes_the_stored_response_invalid() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    get(&client, &origin.uri("/one?a")).await;
    assert_eq!(ask(&client, Code::PUT, &origin.uri("/one"), &[]).await.code, Code::CHANGED);
    assert_eq!(text(&get(&client, &origin.uri("/one?a")).await), (Code::CONTENT, "one 3"));
    // A refused one changes nothing.
    assert_eq!(ask(&client, Code::DELETE, &origin.uri("/one"), &[]).await.code, Code::METHOD_NOT_ALLOWED);
    assert_eq!(text(&get(&client, &origin.uri("/one?a")).await), (Code::CONTENT, "one 3"));
}

#[tokio::test]
async fn a_response_that_is_not_fresh_is_validated() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    assert_eq!(text(&get(&client, &origin.uri("/short")).await), (Code::CONTENT, "short"));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(text(&get(&client, &origin.uri("/short")).await), (Code::CONTENT, "short"));
    assert_eq!((origin.requests(), proxy.counts().revalidated, proxy.counts().entries), (2, 1, 1));
}

#[tokio::test]
async fn a_client_that_has_the_representation_is_told_so() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    for _ in 0..2 {
        let response = ask(&client, Code::GET, &origin.uri("/one"), &[(OptionNumber::ETAG, b"e1")]).await;
        assert_eq!(text(&response), (Code::VALID, ""));
        assert_eq!(response.option(OptionNumber::ETAG), Some(&b"e1"[..]));
    }
    assert_eq!(origin.requests(), 1);
}

#[tokio::test]
async fn long_bodies_go_in_blocks_on_both_sides() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    for _ in 0..2 {
        assert_eq!(get(&client, &origin.uri("/long")).await.payload, long());
    }
    let options = [(OptionNumber::PROXY_URI, origin.uri("/long").into_bytes())];
    let put = client.request(Code::PUT, "").options(&options).payload(&long()).await.unwrap();
    assert_eq!(put.code, Code::CHANGED);
}

#[tokio::test]
async fn an_origin_may_be_asked_over_dtls() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    let uri = format!("coaps://{}/one", origin.address(Scheme::Coaps));
    assert_eq!(text(&get(&client, &uri).await), (Code::CONTENT, "one 1"));
    // What is stored for coaps does not answer for coap.
    assert_eq!(text(&get(&client, &origin.uri("/one")).await), (Code::CONTENT, "one 2"));
    assert_eq!(text(&get(&client, &uri).await), (Code::CONTENT, "one 1"));
}

#[tokio::test]
async fn a_reverse_proxy_has_the_resources_of_its_origins_below_paths() {
    let origin = Origin::new();
    let reverse = format!("/house/a={}", origin.uri(""));
    let config = ProxyConfig::default().with(|config| config.reverse = vec![reverse.parse().unwrap()]);
    let (server, _) = open(config);
    let client = client_of(&server).await;
    for _ in 0..2 {
        assert_eq!(text(&client.get("/house/a/one").await.unwrap()), (Code::CONTENT, "one 1"));
    }
    assert_eq!(client.get("/house/ab/one").await.unwrap().code, Code::NOT_FOUND);
    let made = client.post("/house/a/made", b"").await.unwrap();
    let location: Vec<_> =
        made.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH).map(|(_, value)| value).collect();
    assert_eq!(location, [&b"house"[..], b"a", b"made", b"7"]);
    // It is no forward proxy.
    assert_eq!(get(&client, &origin.uri("/one")).await.code, Code::FORBIDDEN);
}

#[tokio::test]
async fn the_host_of_an_origin_is_that_of_the_target() {
    let origin = Origin::new();
    let config = settings().with(|config| config.targets.push("coap://localhost:*".parse().unwrap()));
    let (server, _) = open(config);
    let client = client_of(&server).await;
    let port = origin.address(Scheme::Coap).port();
    assert_eq!(text(&get(&client, &format!("coap://LOCALHOST:{port}/host")).await).1, "localhost");
    assert_eq!(text(&get(&client, &origin.uri("/host")).await).1, "nobody");
}

#[tokio::test]
async fn a_target_that_is_not_allowed_is_refused_and_so_is_one_that_is_not_valid() {
    let (origin, (server, _)) = (Origin::new(), open(ProxyConfig::default()));
    let client = client_of(&server).await;
    assert_eq!(get(&client, &origin.uri("/one")).await.code, Code::FORBIDDEN);
    assert_eq!(get(&client, "coap://127.0.0.1:0/").await.code, Code::BAD_REQUEST);
    assert_eq!(get(&client, "ftp://127.0.0.1/").await.code, Code::PROXYING_NOT_SUPPORTED);
    assert_eq!(origin.requests(), 0);
}

#[tokio::test]
async fn a_server_without_a_proxy_says_so() {
    let origin = Origin::new();
    let client = client_of(&origin.server).await;
    assert_eq!(get(&client, "coap://127.0.0.1/one").await.code, Code::PROXYING_NOT_SUPPORTED);
    let by_parts = get_by_parts(&client, origin.address(Scheme::Coap), "/one").await;
    assert_eq!(by_parts.code, Code::PROXYING_NOT_SUPPORTED);
}

/// The causes of the responses of a server, for its operator.
type Causes = Arc<Mutex<Vec<Option<String>>>>;

/// Starts a server for clients in clear, and collects the cause of each response.
fn serve_with_causes(application: impl Application + Sync + 'static) -> (Server, Causes) {
    let causes = Causes::default();
    let told = causes.clone();
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(move |event| {
        if let Event::Request(answered) = event {
            told.lock().unwrap().push(answered.cause);
        }
    });
    (builder.serve(application).unwrap(), causes)
}

#[tokio::test]
async fn the_log_has_the_cause_of_each_refusal_of_a_proxy() {
    let origin = Router::new().get("/broken", |_, response| {
        response.set_code(Code::NOT_IMPLEMENTED);
        Ok(())
    });
    let (origin, _) = serve_with_causes(origin);
    let broken = format!("coap://{}/broken", origin.addresses()[0].address);
    let (server, causes) = serve_with_causes(Proxy::new(settings()).unwrap());
    let client = client_of(&server).await;
    let hops: &[(OptionNumber, &[u8])] = &[(OptionNumber::HOP_LIMIT, &[1])];
    for (uri, options, code, cause) in [
        (
            "ws://127.0.0.1/?token=secret",
            &[][..],
            Code::PROXYING_NOT_SUPPORTED,
            "ws://127.0.0.1/: a proxy forwards only",
        ),
        ("coap://224.0.1.187/", &[], Code::PROXYING_NOT_SUPPORTED, "224.0.1.187/: a proxy forwards only"),
        ("coap://user:secret@a/b", &[], Code::BAD_REQUEST, "a/b is not a valid target"),
        (&broken, hops, Code::HOP_LIMIT_REACHED, "Hop-Limit is used up"),
        (&broken, &[], Code::NOT_IMPLEMENTED, "the origin sent this code"),
        // The stored response.
        (&broken, &[], Code::NOT_IMPLEMENTED, "the origin sent this code"),
    ] {
        assert_eq!(ask(&client, Code::GET, uri, options).await.code, code, "{uri}");
        let told = causes.lock().unwrap().pop().unwrap().unwrap_or_default();
        assert!(told.contains(cause) && !told.contains("secret"), "{uri}: {told}");
    }
    let (server, causes) = serve_with_causes(Resources::new([]));
    let refused = get(&client_of(&server).await, "coap://127.0.0.1/one").await;
    assert_eq!(refused.code, Code::PROXYING_NOT_SUPPORTED);
    assert!(causes.lock().unwrap()[0].as_ref().unwrap().contains("not a proxy"), "{causes:?}");
}

#[tokio::test]
async fn unknown_options_are_forwarded_if_that_is_safe() {
    let (origin, (server, _)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    let safe = ask(&client, Code::GET, &origin.uri("/safe"), &[(SAFE, b"x")]).await;
    assert_eq!(text(&safe), (Code::CONTENT, "x"));
    assert_eq!(text(&ask(&client, Code::GET, &origin.uri("/safe"), &[(SAFE, b"y")]).await).1, "y");
    let refused = ask(&client, Code::GET, &origin.uri("/safe"), &[(UNSAFE, b"x")]).await;
    assert_eq!(refused.code, Code::BAD_OPTION);
    // Where no proxy is meant, a critical option that nobody knows is refused.
    let local = client.get("/x").options(&[(SAFE, vec![1])]).await.unwrap();
    assert_eq!(local.code, Code::BAD_OPTION);
}

/// A proxy that counts its requests.
#[derive(Clone)]
struct Counted(Proxy, Arc<AtomicUsize>);

impl Application for Counted {
    fn handle(&mut self, request: &Request<'_>, response: &mut coap::Response<'_, '_>) -> Result<(), Code> {
        self.1.fetch_add(1, Relaxed);
        self.0.handle(request, response)
    }

    fn virtual_hosts(&self) -> VirtualHosts {
        self.0.virtual_hosts()
    }
}

#[tokio::test]
async fn a_request_that_goes_round_in_circles_ends() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = ProxyConfig::default().with(|config| {
        config.reverse = vec![format!("/=coap://{address}").parse().unwrap()];
        config.name = "here".to_owned();
        config.client.coap.nstart = 32;
    });
    let requests = Arc::new(AtomicUsize::new(0));
    let builder = Server::builder().listen(&format!("coap://{address}")).inherit([socket]).allow_plain();
    let server = builder.on_event(|_| ()).serve(Counted(Proxy::new(config).unwrap(), Arc::clone(&requests))).unwrap();
    let client = client_of(&server).await;
    for method in [Code::GET, Code::POST] {
        let response = client.request(method, "/a").await.unwrap();
        assert_eq!(text(&response), (Code::HOP_LIMIT_REACHED, "here"), "{method}");
        // The first proxy sets the limit of 16 further ones.
        assert_eq!(requests.swap(0, Relaxed), 17, "{method}");
    }
    let last = client.get("/a").options(&[(OptionNumber::HOP_LIMIT, vec![1])]).await.unwrap();
    assert_eq!(text(&last), (Code::HOP_LIMIT_REACHED, "here"));
    for value in [vec![], vec![0], vec![0, 4]] {
        let wrong = client.get("/a").options(&[(OptionNumber::HOP_LIMIT, value)]).await.unwrap();
        assert_eq!(wrong.code, Code::BAD_REQUEST);
    }
}

/// Starts an origin that answers each request with the messages that `answer` returns. These messages can have the
/// token of the request or another token, and come from the socket of the origin or from another socket.
fn scripted(answer: impl Fn(&MessageRef<'_>) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let request = MessageRef::parse(&datagram[..len]).unwrap();
            for message in answer(&request) {
                socket.send_to(&message, from).unwrap();
            }
        }
    });
    address
}

fn response_to(request: &MessageRef<'_>, code: Code, token: &[u8], options: &[(OptionNumber, &[u8])]) -> Vec<u8> {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    let head = (MessageType::Acknowledgement, request.message_id());
    let mut builder = Builder::new(&mut frame, head.0, code, head.1, token).unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(b"false").unwrap();
    frame.bytes().to_vec()
}

#[tokio::test]
async fn a_slow_origin_is_a_timeout() {
    let silent = scripted(|_| Vec::new());
    let (server, proxy) = open(settings().with(|config| config.client.coap.timeout = Duration::from_secs(1)));
    let client = client_of(&server).await;
    assert_eq!(get(&client, &format!("coap://{silent}/")).await.code, Code::GATEWAY_TIMEOUT);
    assert_eq!((proxy.counts().failed, proxy.counts().open, proxy.counts().entries), (1, 0, 0));
}

#[tokio::test]
async fn while_too_many_requests_wait_others_are_refused_and_hits_are_not() {
    let origin = Origin::new();
    let silent = scripted(|_| Vec::new());
    let (server, proxy) = open(settings().with(|config| {
        config.client.coap.timeout = Duration::from_secs(3);
        config.max_open = 1;
    }));
    let client = client_of(&server).await;
    get(&client, &origin.uri("/one")).await;
    let (waiting, uri) = (client.clone(), format!("coap://{silent}/"));
    let waiting = tokio::spawn(async move { get(&waiting, &uri).await });
    while proxy.counts().open == 0 {
        tokio::task::yield_now().await;
    }
    let refused = get(&client, &origin.uri("/one?other")).await;
    assert_eq!(refused.code, Code::SERVICE_UNAVAILABLE);
    assert!(refused.uint(OptionNumber::MAX_AGE).is_some());
    assert_eq!(ask(&client, Code::PUT, &origin.uri("/one"), &[]).await.code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(text(&get(&client, &origin.uri("/one")).await), (Code::CONTENT, "one 1"));
    assert_eq!(waiting.await.unwrap().code, Code::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn an_answer_to_another_request_is_never_stored() {
    // A right answer comes to the second attempt alone: the first gets answers with another token.
    let attempts = AtomicUsize::new(0);
    let origin = scripted(move |request| {
        let id = request.message_id();
        if request.code() == Code::EMPTY {
            return Vec::new();
        }
        let other = response_to(request, Code::CONTENT, b"other", &[]);
        let mut foreign = response_to(request, Code::CONTENT, request.token(), &[]);
        // The acknowledgement of another message.
        foreign[2..4].copy_from_slice(&id.wrapping_add(1).to_be_bytes());
        match attempts.fetch_add(1, Relaxed) {
            0 => vec![other, foreign],
            _ => vec![response_to(request, Code::NOT_FOUND, request.token(), &[])],
        }
    });
    let (server, proxy) = open(settings());
    let client = client_of(&server).await;
    let uri = format!("coap://{origin}/x");
    for _ in 0..2 {
        assert_eq!(get(&client, &uri).await.code, Code::NOT_FOUND);
    }
    assert_eq!((proxy.counts().entries, proxy.counts().hits), (1, 1));
}

#[tokio::test]
async fn a_response_that_makes_no_sense_is_a_bad_gateway_and_is_never_stored() {
    let origin = scripted(|request| {
        let last = request.values(OptionNumber::URI_PATH).last().unwrap_or(b"");
        let token = request.token();
        vec![match last {
            b"unasked" => response_to(request, Code::VALID, token, &[(OptionNumber::ETAG, b"x")]),
            b"unsafe" => response_to(request, Code::CONTENT, token, &[(UNSAFE, b"x")]),
            _ => response_to(request, Code::CONTENT, token, &[(OptionNumber::PROXY_URI, b"coap://a")]),
        }]
    });
    let (server, proxy) = open(settings());
    let client = client_of(&server).await;
    for path in ["unasked", "unsafe", "critical"] {
        assert_eq!(get(&client, &format!("coap://{origin}/{path}")).await.code, Code::BAD_GATEWAY, "{path}");
    }
    assert_eq!((proxy.counts().entries, proxy.counts().failed), (0, 3));
}

#[tokio::test]
async fn one_observation_at_the_origin_serves_all_who_observe() {
    let value = Resource::value(b"first");
    let resources = Resources::new([("value".to_owned(), value)]);
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
    let origin = builder.serve(resources).unwrap();
    let uri = format!("coap://{}/value", origin.addresses()[0].address);
    let (server, proxy) = open(settings());
    let options = [(OptionNumber::PROXY_URI, uri.clone().into_bytes())];
    let (one, other) = (client_of(&server).await, client_of(&server).await);
    let mut observations = Vec::new();
    for client in [&one, &other] {
        let observation = client.get("").options(&options).observe().await.unwrap();
        assert!(observation.is_registered());
        observations.push(observation);
    }
    for expected in ["first", "second", "third"] {
        if expected != "first" {
            // Straight to the origin: the proxy learns of it by the notification alone.
            let writer = client_of(&origin).await;
            assert_eq!(writer.put("/value", expected.as_bytes()).await.unwrap().code, Code::CHANGED);
        }
        for observation in &mut observations {
            assert_eq!(text(&observation.next().await.unwrap().unwrap()), (Code::CONTENT, expected));
        }
        // The notification is in the cache.
        assert_eq!(text(&get(&one, &uri).await), (Code::CONTENT, expected));
    }
    assert_eq!((proxy.counts().observations, proxy.counts().misses), (1, 0));
    origin.pulse().beats().await;
    assert_eq!(origin.totals().observations, 1);
}

/// The observations at origins are for all clients. One client can name any number of them, because each query is another
/// observation.
#[tokio::test]
async fn one_client_does_not_use_up_the_observations() {
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
    let origin = builder.serve(resources).unwrap();
    let (server, proxy) = open(settings().with(|config| config.max_open = 16));
    let at = server.addresses()[0].address;
    let (origin_at, greedy) = (origin.addresses()[0].address, client_of(&server).await);
    let options = |number: u8| [(OptionNumber::PROXY_URI, format!("coap://{origin_at}/value?{number}").into_bytes())];
    let mut observations = Vec::new();
    for number in 0..4 {
        let mut observation = greedy.get("").options(&options(number)).observe().await.unwrap();
        assert_eq!(text(&observation.next().await.unwrap().unwrap()), (Code::CONTENT, "first"));
        observations.push(observation);
    }
    let registered: Vec<_> = observations.iter().map(|observation| observation.is_registered()).collect();
    assert_eq!((registered, proxy.counts().observations), (vec![true, true, false, false], 2));
    let endpoint = Endpoint::builder().bind("127.0.0.2:0").await.unwrap();
    let other = endpoint.connect_to(at, Scheme::Coap).await.unwrap();
    let observation = other.get("").options(&options(9)).observe().await.unwrap();
    assert!(observation.is_registered());
    // Each client may join the observation of another one.
    let joined = other.get("").options(&options(0)).observe().await.unwrap();
    assert!(joined.is_registered());
}

#[tokio::test]
async fn an_error_ends_an_observation_through_the_proxy() {
    let (origin, (server, proxy)) = (Origin::new(), open(settings()));
    let client = client_of(&server).await;
    let options = [(OptionNumber::PROXY_URI, origin.uri("/nothing").into_bytes())];
    let mut observation = client.get("").options(&options).observe().await.unwrap();
    assert_eq!(observation.next().await.unwrap().unwrap().code, Code::NOT_FOUND);
    assert!(!observation.is_registered());
    while proxy.counts().observations > 0 {
        tokio::task::yield_now().await;
    }
}

/// Returns the credentials of Alice, who has rights to all resources of the origin, and of Mallory, who has none of
/// these rights.
fn rights(origin: SocketAddr) -> Credentials {
    let dir = std::env::temp_dir().join(format!("tegmen-proxy-{}-{}", std::process::id(), origin.port()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("credentials.toml");
    let key = tegmen_host::hex::to_hex(KEY);
    let text = format!(
        "[[psk]]\nidentity = \"alice\"\nkey = \"{key}\"\nallow = [\"GET /\", \"GET /one\", \"GET /proxy/coap/{origin}/*\", \"GET /house/*\"]\n\
         [[psk]]\nidentity = \"mallory\"\nkey = \"{key}\"\nallow = [\"GET /\", \"GET /one\", \"GET /proxy/coap/{origin}/none\", \"GET /house/none\"]\n"
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let credentials = Credentials::from_file(&file).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    credentials
}

#[tokio::test]
async fn a_proxy_never_answers_one_client_with_what_another_may_not_see() {
    let origin = Origin::new();
    let address = origin.address(Scheme::Coap);
    let config = settings().with(|config| config.reverse = vec![format!("/house=coap://{address}").parse().unwrap()]);
    let builder = Server::builder().listen("coaps://127.0.0.1:0").on_event(|_| ());
    let server = builder.credentials(rights(address)).serve(Proxy::new(config).unwrap()).unwrap();
    let open = |name: &'static str| {
        Session::connect_to(server.addresses()[0].address, Scheme::Coaps, ClientConfig::psk(name, KEY))
    };
    let (alice, mallory) = (open("alice").await.unwrap(), open("mallory").await.unwrap());
    // Alice is the cause of a stored response, which answers her.
    for _ in 0..2 {
        assert_eq!(text(&get(&alice, &origin.uri("/one")).await), (Code::CONTENT, "one 1"));
        assert_eq!(text(&alice.get("/house/one").await.unwrap()), (Code::CONTENT, "one 1"));
    }
    // Mallory may read / and /one of this server, and nothing of that name elsewhere.
    assert_eq!(get(&mallory, &origin.uri("/one")).await.code, Code::FORBIDDEN);
    assert_eq!(get_by_parts(&mallory, address, "/one").await.code, Code::FORBIDDEN);
    assert_eq!(mallory.get("/house/one").await.unwrap().code, Code::FORBIDDEN);
    // Nor does another way to write it help.
    for uri in ["/%6fne", "/one?x", "/none/../one", "/none%2f..%2fone"] {
        assert_ne!(get(&mallory, &origin.uri(uri)).await.code, Code::CONTENT, "{uri}");
    }
    let both =
        [(OptionNumber::URI_PATH, &b"none"[..]), (OptionNumber::PROXY_SCHEME, b"coap"), (OptionNumber::URI_HOST, b"a")];
    assert_eq!(ask(&mallory, Code::GET, &origin.uri("/one"), &both).await.code, Code::FORBIDDEN);
    // What both may read is shared.
    assert_eq!(text(&get(&alice, &origin.uri("/none")).await).0, Code::CONTENT);
    assert_eq!(text(&get(&mallory, &origin.uri("/none")).await).0, Code::CONTENT);
}

#[tokio::test]
async fn a_request_with_oscore_for_another_target_passes_untouched_also_in_blocks() {
    let scene = Scene::new("proxied");
    let (_origin, address) = scene.serve();
    // The proxy has the context of the client, too, and must not open what is not for it.
    let proxy = Proxy::new(settings()).unwrap();
    let credentials = Credentials::default();
    let contexts = Contexts::open(&[scene.third()], |name, _| credentials.learn(name, None)).unwrap();
    let builder = Server::builder().listen("coap://127.0.0.1:0").oscore(contexts).allow_plain().on_event(|event| {
        if let Event::Request(answered) = event {
            assert!(answered.path.starts_with("/proxy/coap/127.0.0.1:"), "{answered:?}");
        }
    });
    let server = builder.credentials(credentials.clone()).serve(proxy.clone()).unwrap();
    let client = Session::connect_to(server.addresses()[0].address, Scheme::Coap, scene.client()).await.unwrap();
    let options = [
        (OptionNumber::PROXY_SCHEME, b"coap".to_vec()),
        (OptionNumber::URI_HOST, address.ip().to_string().into_bytes()),
        (OptionNumber::URI_PORT, address.port().to_be_bytes().to_vec()),
    ];
    for _ in 0..2 {
        let response = client.get("/value").options(&options).await.unwrap();
        assert_eq!(text(&response), (Code::CONTENT, "first"));
    }
    let put = client.put("/value", &long()).options(&options).await.unwrap();
    assert_eq!(put.code, Code::CHANGED);
    assert_eq!(client.get("/value").options(&options).await.unwrap().payload, long());
    let counts = proxy.counts();
    assert_eq!((counts.entries, counts.hits, counts.misses), (0, 0, 0));
    assert!(counts.passed > 3);
}
