//! Tests HTTP servers as origins of a proxy, over sockets.

use rcgen::{CertificateParams, KeyPair};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::server::{Event, Server};
use tegmen_host::uri::Scheme;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// An HTTP server that stores its requests as text: `METHOD PATH`, the headers that contain conditions or formats, and
/// the body.
struct Site {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new() -> Self {
        Self::with(serve)
    }

    /// Starts a server with TLS and the name `localhost`. Returns the server and its certificate.
    fn secure() -> (Self, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = key.serialize_der().try_into().unwrap();
        let config = Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap());
        let site = Self::with(move |stream: TcpStream, kept: &Mutex<Vec<String>>| {
            let session = ServerConnection::new(config.clone()).unwrap();
            serve(StreamOwned::new(session, stream), kept);
        });
        (site, certificate.der().to_vec())
    }

    fn with(serve: impl Fn(TcpStream, &Mutex<Vec<String>>) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, serve) = (kept.clone(), serve.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Self { address, requests }
    }

    fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: impl Read + Write, kept: &Mutex<Vec<String>>) {
    let mut received = Vec::new();
    let end = loop {
        let mut bytes = [0; 4096];
        // A client that does not trust the server ends the connection.
        let Ok(len @ 1..) = stream.read(&mut bytes) else { return };
        received.extend(&bytes[..len]);
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(received[..end].to_vec()).unwrap();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let length = header("content-length: ").map_or(0, |length| length.parse().unwrap());
    let mut body = received[end..].to_vec();
    let begun = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[begun..]).unwrap();
    let line = head.lines().next().unwrap().strip_suffix(" HTTP/1.1").unwrap().to_owned();
    let names = ["if-none-match: ", "if-match: ", "content-type: ", "accept: "];
    let headers: String = names.iter().filter_map(|name| Some(format!(" {name}{}", header(name)?))).collect();
    let number = {
        let mut kept = kept.lock().unwrap();
        kept.push(format!("{line}{headers} {}", String::from_utf8_lossy(&body)).trim_end().to_owned());
        kept.len()
    };
    let _ = stream.write_all(&response(&line, header("if-none-match: ").is_some(), number));
    if line == "GET /silent" {
        let _ = stream.read(&mut [0; 1]);
    }
}

fn response(line: &str, is_conditional: bool, number: usize) -> Vec<u8> {
    let with = |head: &str, body: &[u8]| {
        let length = body.len();
        [format!("HTTP/1.1 {head}content-length: {length}\r\n\r\n").as_bytes(), body].concat()
    };
    const ETAG: &str = "etag: \"a tag of more than eight bytes\"\r\n";
    match line {
        "GET /one" => with("200 OK\r\ncontent-type: application/json\r\n", format!("{{\"n\":{number}}}").as_bytes()),
        "GET /short" if is_conditional => with(&format!("304 Not Modified\r\n{ETAG}cache-control: max-age=1\r\n"), b""),
        "GET /short" => with(&format!("200 OK\r\n{ETAG}cache-control: max-age=1\r\n"), b"short"),
        "GET /private" => with("200 OK\r\ncache-control: private\r\n", number.to_string().as_bytes()),
        "GET /long" => with("200 OK\r\n", &long()),
        "GET /too-long" => with("200 OK\r\n", &[b'x'; 70_000]),
        "GET /cut" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec(),
        "GET /noise" => b"\x16\x03\x01\r\n\r\n".to_vec(),
        "GET /moved" => with("302 Found\r\nlocation: /one\r\n", b""),
        "GET /loop" => with("508 Loop Detected\r\ncontent-type: text/plain\r\n", b"other-proxy"),
        "GET /silent" => Vec::new(),
        "POST /made" => with("201 Created\r\nlocation: /made/7?a=1\r\n", b""),
        _ if line.starts_with("PUT ") || line.starts_with("DELETE ") => with("204 No Content\r\n", b""),
        _ => with("404 Not Found\r\ncontent-type: text/plain\r\n", b"it is not here"),
    }
}

fn long() -> Vec<u8> {
    (0..5000u32).map(|index| index as u8).collect()
}

/// A server with a proxy, and a client that sends requests to it.
struct Asking {
    _server: Server,
    client: Session,
    /// The paths of the requests, as the log of the server has them.
    paths: Arc<Mutex<Vec<String>>>,
}

impl Asking {
    async fn new(targets: &[&str]) -> Self {
        Self::trusting(targets, Vec::new()).await
    }

    async fn trusting(targets: &[&str], authorities: Vec<Vec<u8>>) -> Self {
        let config = ProxyConfig::default().with(|config| {
            config.targets = targets.iter().map(|target| target.parse().unwrap()).collect();
            config.client.coap.timeout = Duration::from_secs(2);
            config.client.coap.max_body = 65_536;
            config.https_authorities = authorities;
        });
        let paths = Arc::new(Mutex::new(Vec::new()));
        let kept = paths.clone();
        let events = move |event| {
            if let Event::Request(answered) = event {
                kept.lock().unwrap().push(answered.path);
            }
        };
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(events);
        let server = builder.serve(Proxy::new(config).unwrap()).unwrap();
        let address = server.addresses()[0].address;
        let client = Session::connect_to(address, Scheme::Coap, ClientConfig::default()).await.unwrap();
        Self { _server: server, client, paths }
    }

    async fn ask(&self, method: Code, uri: &str, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Response {
        let mut all = vec![(OptionNumber::PROXY_URI, uri.as_bytes().to_vec())];
        all.extend(options.iter().map(|(number, value)| (*number, value.to_vec())));
        self.client.request(method, "").options(&all).payload(payload).await.unwrap()
    }

    async fn get(&self, uri: &str) -> Response {
        self.ask(Code::GET, uri, &[], &[]).await
    }

    async fn code(&self, uri: &str) -> Code {
        self.get(uri).await.code
    }
}

/// A list with one pattern for origins, which matches all ports of this machine.
const HERE: &[&str] = &["http://127.0.0.1:*"];

#[tokio::test]
async fn a_response_of_an_http_server_is_stored() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    for _ in 0..2 {
        let response = asking.get(&site.uri("/one")).await;
        assert_eq!((response.code, &*response.payload), (Code::CONTENT, &b"{\"n\":1}"[..]));
        assert_eq!(response.content_format(), Some(50));
    }
    assert_eq!(site.requests(), ["GET /one"]);
    let path = format!("/proxy/http/{}/one", site.address);
    assert_eq!(*asking.paths.lock().unwrap(), [path.clone(), path]);
}

#[tokio::test]
async fn proxy_scheme_names_an_http_server_too() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    let options = [
        (OptionNumber::PROXY_SCHEME, b"http".to_vec()),
        (OptionNumber::URI_HOST, b"127.0.0.1".to_vec()),
        (OptionNumber::URI_PORT, site.address.port().to_be_bytes().to_vec()),
    ];
    let response = asking.client.request(Code::GET, "/one?x=1").options(&options).await.unwrap();
    assert_eq!(response.code, Code::NOT_FOUND);
    assert_eq!(site.requests(), ["GET /one?x=1"]);
}

#[tokio::test]
async fn a_response_that_is_not_fresh_is_asked_about_with_the_tag_of_http() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    let first = asking.get(&site.uri("/short")).await;
    let tag = first.option(OptionNumber::ETAG).unwrap().to_vec();
    assert_eq!((tag.len(), &*first.payload), (8, &b"short"[..]));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = asking.get(&site.uri("/short")).await;
    assert_eq!((second.code, &*second.payload), (Code::CONTENT, &b"short"[..]));
    let conditional = "GET /short if-none-match: \"a tag of more than eight bytes\"";
    assert_eq!(site.requests(), ["GET /short", conditional]);
    let known = asking.ask(Code::GET, &site.uri("/short"), &[(OptionNumber::ETAG, &tag)], &[]).await;
    assert_eq!((known.code, &*known.payload), (Code::VALID, &b""[..]));
    let matched = asking.ask(Code::PUT, &site.uri("/short"), &[(OptionNumber::IF_MATCH, &tag)], b"new").await;
    assert_eq!(matched.code, Code::CHANGED);
    assert_eq!(site.requests().last().unwrap(), "PUT /short if-match: \"a tag of more than eight bytes\" new");
}

#[tokio::test]
async fn a_private_response_is_not_stored() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    assert_eq!(asking.get(&site.uri("/private")).await.payload, b"1");
    assert_eq!(asking.get(&site.uri("/private")).await.payload, b"2");
}

#[tokio::test]
async fn changes_reach_the_server_and_remove_what_is_stored() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    asking.get(&site.uri("/one")).await;
    let format = (OptionNumber::CONTENT_FORMAT, &[50][..]);
    assert_eq!(asking.ask(Code::PUT, &site.uri("/one"), &[format], b"{}").await.code, Code::CHANGED);
    assert_eq!(asking.get(&site.uri("/one")).await.payload, b"{\"n\":3}");
    assert_eq!(asking.ask(Code::DELETE, &site.uri("/one"), &[], &[]).await.code, Code::DELETED);
    let made = asking.ask(Code::POST, &site.uri("/made"), &[], b"x").await;
    assert_eq!(made.code, Code::CREATED);
    let location: Vec<_> = made.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH).collect();
    assert_eq!(location, [(OptionNumber::LOCATION_PATH, &b"made"[..]), (OptionNumber::LOCATION_PATH, &b"7"[..])]);
    let put = "PUT /one content-type: application/json {}";
    assert_eq!(site.requests(), ["GET /one", put, "GET /one", "DELETE /one", "POST /made x"]);
}

#[tokio::test]
async fn bodies_of_several_blocks_go_both_ways() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    assert_eq!(asking.get(&site.uri("/long")).await.payload, long());
    let text = "0123456789".repeat(500);
    assert_eq!(asking.ask(Code::PUT, &site.uri("/v"), &[], text.as_bytes()).await.code, Code::CHANGED);
    assert_eq!(site.requests().last().unwrap(), &format!("PUT /v {text}"));
}

#[tokio::test]
async fn an_error_has_its_text() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    let response = asking.get(&site.uri("/nothing")).await;
    assert_eq!((response.code, &*response.payload), (Code::NOT_FOUND, &b"it is not here"[..]));
    assert_eq!(response.content_format(), None);
}

/// Tests section 5 of RFC 8768.
#[tokio::test]
async fn a_loop_of_http_servers_is_5_08_with_the_name_of_the_proxy() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    let response = asking.get(&site.uri("/loop")).await;
    assert_eq!((response.code, &*response.payload), (Code::HOP_LIMIT_REACHED, &b"tegmen other-proxy"[..]));
}

#[tokio::test]
async fn a_response_that_cannot_be_used_is_5_02() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    for path in ["/too-long", "/cut", "/noise", "/moved"] {
        assert_eq!(asking.code(&site.uri(path)).await, Code::BAD_GATEWAY, "{path}");
    }
}

#[tokio::test]
async fn a_slow_server_is_5_04_and_so_is_a_dead_one() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    assert_eq!(asking.code(&site.uri("/silent")).await, Code::GATEWAY_TIMEOUT);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(asking.code(&format!("http://{dead}/")).await, Code::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_server_that_is_not_allowed_is_not_asked() {
    let site = Site::new();
    for targets in [&["coap://*:*"][..], &["http://127.0.0.1"], &[]] {
        let asking = Asking::new(targets).await;
        assert_eq!(asking.code(&site.uri("/one")).await, Code::FORBIDDEN, "{targets:?}");
    }
    let asking = Asking::new(HERE).await;
    assert_eq!(asking.code("https://127.0.0.1/").await, Code::FORBIDDEN);
    assert_eq!(asking.code("http://127.0.0.1:0/").await, Code::BAD_REQUEST);
    assert_eq!(asking.code(&site.uri("/a/%2e%2e/b")).await, Code::BAD_REQUEST);
    assert_eq!(site.requests(), [""; 0]);
}

#[tokio::test]
async fn what_http_cannot_say_is_refused_before_the_server_is_asked() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    assert_eq!(asking.ask(Code::FETCH, &site.uri("/one"), &[], b"x").await.code, Code::NOT_IMPLEMENTED);
    let tag = [(OptionNumber::IF_MATCH, &b"unknown"[..])];
    assert_eq!(asking.ask(Code::PUT, &site.uri("/one"), &tag, b"x").await.code, Code::PRECONDITION_FAILED);
    assert_eq!(site.requests(), [""; 0]);
}

#[tokio::test]
async fn a_client_that_would_observe_receives_one_response() {
    let (site, asking) = (Site::new(), Asking::new(HERE).await);
    let response = asking.ask(Code::GET, &site.uri("/one"), &[(OptionNumber::OBSERVE, &[])], &[]).await;
    assert_eq!(response.code, Code::CONTENT);
    assert!(response.option(OptionNumber::OBSERVE).is_none());
}

#[tokio::test]
async fn a_server_with_tls_is_asked_if_its_authority_is_trusted() {
    let (site, authority) = Site::secure();
    let (_, other) = Site::secure();
    let uri = |host: &str| format!("https://{host}:{}/one", site.address.port());
    let here = &["https://*:*"];
    let asking = Asking::trusting(here, vec![other.clone()]).await;
    assert_eq!(asking.code(&uri("localhost")).await, Code::BAD_GATEWAY);
    let asking = Asking::trusting(here, vec![other, authority]).await;
    // Its certificate is for another name.
    assert_eq!(asking.code(&uri("127.0.0.1")).await, Code::BAD_GATEWAY);
    assert_eq!(site.requests(), [""; 0]);
    let response = asking.get(&uri("localhost")).await;
    assert_eq!((response.code, &*response.payload), (Code::CONTENT, &b"{\"n\":1}"[..]));
    // The patterns of HTTP without TLS are others.
    let asking = Asking::new(&["http://*:*"]).await;
    assert_eq!(asking.code(&uri("localhost")).await, Code::FORBIDDEN);
}
