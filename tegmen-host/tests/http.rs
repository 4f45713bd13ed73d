//! Tests HTTP clients of a proxy, over sockets.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::proxy::http::{HttpFront, serve};
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::server::{Router, Server};
use tokio::net::TcpListener;

/// Maximum number of bytes of a body in these tests.
const MAX_BODY: usize = 6000;

/// An origin that counts its requests to `/one`.
struct Origin {
    server: Server,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    fn new() -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let router = Router::new()
            .get("/one", move |_, response| {
                let number = counted.fetch_add(1, Relaxed) + 1;
                response.option(OptionNumber::ETAG, b"e1")?;
                response.uint(OptionNumber::CONTENT_FORMAT, 0)?;
                response.uint(OptionNumber::MAX_AGE, 300)?;
                response.payload(format!("one {number}").as_bytes())
            })
            .on(Code::PUT, "/one", |request, response| {
                let condition = request.message().option(OptionNumber::IF_MATCH);
                if condition.is_some_and(|tag| tag != b"e1") {
                    return Err(Code::PRECONDITION_FAILED);
                }
                response.set_code(Code::CHANGED);
                Ok(())
            })
            .on(Code::DELETE, "/one", |_, response| {
                response.set_code(Code::DELETED);
                response.payload(b"gone")
            })
            .on(Code::POST, "/made", |_, response| {
                response.set_code(Code::CREATED);
                response.option(OptionNumber::LOCATION_PATH, b"made")?;
                response.option(OptionNumber::LOCATION_PATH, b"a b/7")?;
                response.option(OptionNumber::LOCATION_QUERY, b"c=1&2")?;
                response.payload(b"a new one")
            })
            .get("/long", |_, response| response.payload(&long()))
            .on(Code::PUT, "/long", |request, response| {
                response.set_code(if request.payload() == long() { Code::CHANGED } else { Code::BAD_REQUEST });
                Ok(())
            })
            .on(Code::PATCH, "/format", |request, response| {
                let format = request.message().uint(OptionNumber::CONTENT_FORMAT).ok_or(Code::BAD_REQUEST)?;
                response.set_code(Code::CHANGED);
                response.uint(OptionNumber::CONTENT_FORMAT, format)?;
                response.payload(request.payload())
            })
            .get("/accept", |request, response| {
                let accept = request.message().uint(OptionNumber::ACCEPT);
                response.payload(format!("{accept:?}").as_bytes())
            })
            .get("/query", |request, response| {
                let values: Vec<_> = request.message().values(OptionNumber::URI_QUERY).collect();
                response.payload(&values.join(&b'|'))
            })
            .get("/broken", |_, response| {
                response.set_code(Code::INTERNAL_SERVER_ERROR);
                response.payload("the lamp is broken, außen".as_bytes())
            })
            .get("/busy", |_, response| {
                response.set_code(Code::SERVICE_UNAVAILABLE);
                response.uint(OptionNumber::MAX_AGE, 7)
            })
            .critical_options(&[
                OptionNumber::IF_MATCH,
                OptionNumber::URI_HOST,
                OptionNumber::URI_PORT,
                OptionNumber::URI_PATH,
                OptionNumber::URI_QUERY,
                OptionNumber::ACCEPT,
            ]);
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
        Self { server: builder.serve(router).unwrap(), requests }
    }

    /// Returns the path of a resource of this origin at the HTTP listener.
    fn at(&self, path: &str) -> String {
        format!("/hc/coap://{}{path}", self.server.addresses()[0].address)
    }
}

fn long() -> Vec<u8> {
    (0..5000u32).map(|index| index as u8).collect()
}

/// A server with a proxy, and the HTTP listener of the proxy.
struct Front {
    _server: Server,
    proxy: Proxy,
    address: SocketAddr,
}

impl Front {
    /// Starts a proxy that accepts targets on this machine.
    fn new() -> Self {
        Self::with(&["coap://127.0.0.1:*"], true)
    }

    fn with(targets: &[&str], allows_plain: bool) -> Self {
        let config = ProxyConfig::default().with(|config| {
            config.targets = targets.iter().map(|target| target.parse().unwrap()).collect();
            config.client.coap.timeout = Duration::from_secs(2);
        });
        let proxy = Proxy::new(config).unwrap();
        let mut builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).on_event(|_| ());
        if allows_plain {
            builder = builder.allow_plain();
        }
        let server = builder.serve(proxy.clone()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let front = HttpFront { proxy: server.addresses()[0].address, max_body: MAX_BODY };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { serve(TcpListener::from_std(listener).unwrap(), front).await });
        });
        Self { _server: server, proxy, address }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        self.send(&[head.as_bytes(), b"\r\n", body].concat())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], &[])
    }

    /// Sends bytes, and returns the response, after which the proxy closes the connection.
    fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The proxy may answer before it has read all.
        let _ = stream.write_all(bytes);
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        Answer::read(&received)
    }
}

struct Answer {
    status: u16,
    reason: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a response");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let mut words = line.splitn(3, ' ').skip(1);
        let headers = headers.split("\r\n").filter_map(|header| header.split_once(": "));
        Self {
            status: words.next().unwrap().parse().unwrap(),
            reason: words.next().unwrap_or("").to_owned(),
            headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn text(&self) -> (u16, &str) {
        (self.status, std::str::from_utf8(&self.body).unwrap())
    }
}

#[test]
fn a_get_is_answered_by_the_origin_and_then_by_the_cache() {
    let (origin, front) = (Origin::new(), Front::new());
    for _ in 0..2 {
        let answer = front.get(&origin.at("/one"));
        assert_eq!(answer.text(), (200, "one 1"));
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("etag"), "\"6531\"");
        let age: u32 = answer.header("cache-control").strip_prefix("max-age=").unwrap().parse().unwrap();
        assert!((200..=300).contains(&age));
    }
    assert_eq!((origin.requests.load(Relaxed), front.proxy.counts().hits), (1, 1));
}

#[test]
fn a_client_that_has_the_representation_gets_304_and_no_body() {
    let (origin, front) = (Origin::new(), Front::new());
    let answer = front.ask("GET", &origin.at("/one"), &[("if-none-match", "\"00\", \"6531\"")], &[]);
    assert_eq!(answer.text(), (304, ""));
    assert_eq!(answer.header("etag"), "\"6531\"");
    assert_eq!(front.ask("GET", &origin.at("/one"), &[("if-none-match", "\"00\"")], &[]).text(), (200, "one 1"));
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let (origin, front) = (Origin::new(), Front::new());
    let answer = front.ask("HEAD", &origin.at("/one"), &[], &[]);
    assert_eq!(answer.text(), (200, ""));
    assert_eq!((answer.header("content-length"), answer.header("etag")), ("5", "\"6531\""));
}

#[test]
fn a_change_removes_the_stored_response_and_has_204_without_a_payload() {
    let (origin, front) = (Origin::new(), Front::new());
    front.get(&origin.at("/one"));
    assert_eq!(front.ask("PUT", &origin.at("/one"), &[("if-match", "\"6531\"")], b"new").text(), (204, ""));
    assert_eq!(front.get(&origin.at("/one")).text(), (200, "one 2"));
    assert_eq!(front.ask("PUT", &origin.at("/one"), &[("if-match", "\"00\"")], b"new").status, 412);
    assert_eq!(front.ask("DELETE", &origin.at("/one"), &[], &[]).text(), (200, "gone"));
}

#[test]
fn the_location_of_what_was_created_is_a_path_of_the_proxy() {
    let (origin, front) = (Origin::new(), Front::new());
    let answer = front.ask("POST", &origin.at("/made"), &[], b"x");
    assert_eq!(answer.text(), (201, "a new one"));
    assert_eq!(answer.header("location"), origin.at("/made/a%20b%2F7?c=1%262"));
}

#[test]
fn bodies_of_several_blocks_go_both_ways() {
    let (origin, front) = (Origin::new(), Front::new());
    assert_eq!(front.get(&origin.at("/long")).body, long());
    assert_eq!(front.ask("PUT", &origin.at("/long"), &[], &long()).status, 204);
}

#[test]
fn a_media_type_is_a_content_format_and_back() {
    let (origin, front) = (Origin::new(), Front::new());
    for (sent, received) in [
        ("application/json; charset=utf-8", "application/json"),
        ("application/coap-payload;cf=65001", "application/coap-payload;cf=65001"),
        ("text/html", "text/plain; charset=utf-8"),
    ] {
        let answer = front.ask("PATCH", &origin.at("/format"), &[("content-type", sent)], b"{}");
        assert_eq!((answer.text(), answer.header("content-type")), ((200, "{}"), received));
    }
    let accept = |value| front.ask("GET", &origin.at("/accept"), &[("accept", value)], &[]);
    assert_eq!(accept("application/json").text(), (200, "Some(50)"));
    assert_eq!(accept("*/*").text(), (200, "None"));
    assert_eq!(accept("text/html, image/png;q=0.5").text(), (200, "None"));
}

#[test]
fn the_query_of_the_target_is_that_of_the_request() {
    let (origin, front) = (Origin::new(), Front::new());
    assert_eq!(front.get(&origin.at("/query?a=%20&b")).text(), (200, "a= |b"));
}

#[test]
fn errors_of_the_origin_have_their_status_and_their_text() {
    let (origin, front) = (Origin::new(), Front::new());
    let broken = front.get(&origin.at("/broken"));
    assert_eq!(broken.text(), (500, "the lamp is broken, außen"));
    assert_eq!(broken.reason, "Internal Server Error");
    assert_eq!(broken.header("content-type"), "text/plain;charset=utf-8");
    assert_eq!(front.get(&origin.at("/nothing")).status, 404);
    let method = front.ask("POST", &origin.at("/one"), &[], b"x");
    assert_eq!((method.status, &*method.reason), (400, "CoAP server returned 4.05"));
    let busy = front.get(&origin.at("/busy"));
    assert_eq!(busy.status, 503);
    assert!((1..=7).contains(&busy.header("retry-after").parse().unwrap()));
}

#[test]
fn a_browser_does_not_guess_the_type_of_a_payload() {
    let (origin, front) = (Origin::new(), Front::new());
    for path in [origin.at("/long"), origin.at("/broken"), "/".to_owned()] {
        assert_eq!(front.get(&path).header("x-content-type-options"), "nosniff", "{path}");
    }
}

#[test]
fn a_target_that_is_not_allowed_is_not_asked() {
    let (origin, front) = (Origin::new(), Front::with(&["coap://sensor.example"], true));
    assert_eq!(front.get(&origin.at("/one")).status, 403);
    let none = Front::with(&[], true);
    assert_eq!(none.get(&origin.at("/one")).status, 403);
    assert_eq!(origin.requests.load(Relaxed), 0);
}

#[test]
fn a_client_has_the_rights_of_clients_in_clear() {
    let (origin, front) = (Origin::new(), Front::with(&["coap://127.0.0.1:*"], false));
    assert_eq!(front.get(&origin.at("/one")).status, 403);
    assert_eq!(origin.requests.load(Relaxed), 0);
}

#[test]
fn a_target_that_is_not_valid_is_refused() {
    let front = Front::new();
    for path in
        ["/hc/127.0.0.1/one", "/hc/http://127.0.0.1/", "/hc/coap://127.0.0.1:0/", "/hc/coap://127.0.0.1/a/%2e%2e/b"]
    {
        assert_eq!(front.get(path).status, 400, "{path}");
    }
    assert_eq!(front.get("/one").status, 404);
    // The proxy asks no groups.
    assert_eq!(front.get("/hc/coap://224.0.1.187/").status, 502);
}

#[test]
fn a_body_that_is_too_long_is_refused_with_and_without_its_length() {
    let (origin, front) = (Origin::new(), Front::new());
    let body = vec![b'x'; MAX_BODY + 1];
    assert_eq!(front.ask("PUT", &origin.at("/one"), &[], &body).status, 413);
    let path = origin.at("/one");
    let mut chunked = format!(
        "PUT {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    )
    .into_bytes();
    chunked.extend(&body);
    chunked.extend(b"\r\n0\r\n\r\n");
    assert_eq!(front.send(&chunked).status, 413);
    assert_eq!(front.ask("PUT", &origin.at("/one"), &[], &body[..MAX_BODY]).status, 204);
}

#[test]
fn a_slow_origin_is_504_and_so_is_a_dead_one() {
    let front = Front::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent_at = silent.local_addr().unwrap();
    assert_eq!(front.get(&format!("/hc/coap://{silent_at}/")).status, 504);
    let dead_at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(front.get(&format!("/hc/coap://{dead_at}/")).status, 504);
}

#[test]
fn an_origin_whose_answer_is_none_is_502() {
    let front = Front::new();
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = origin.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let mut request = [0; 1500];
        let (_, client) = origin.recv_from(&mut request).unwrap();
        // A response with an elective option that is unsafe to forward and that nobody knows.
        let token = &request[4..4 + usize::from(request[0] & 15)];
        let head = [0x60 | token.len() as u8, 0x45, request[2], request[3]];
        origin.send_to(&[&head[..], token, &[0xe0, 0x01, 0xed]].concat(), client).unwrap();
    });
    assert_eq!(front.get(&format!("/hc/coap://{at}/")).status, 502);
    answering.join().unwrap();
}

#[test]
fn bytes_that_are_not_http_end_their_connection_alone() {
    let (origin, front) = (Origin::new(), Front::new());
    assert_eq!(front.send(b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n").status, 400);
    let endless = format!("GET {} HTTP/1.1\r\na: {}\r\n\r\n", origin.at("/one"), "b".repeat(40_000));
    assert_eq!(front.send(endless.as_bytes()).status, 431);
    assert_eq!(front.get(&origin.at("/one")).text(), (200, "one 1"));
}

#[test]
fn requests_follow_one_another_on_a_connection() {
    let (origin, front) = (Origin::new(), Front::new());
    let request = |end: &str| format!("GET {} HTTP/1.1\r\nhost: p\r\n{end}\r\n", origin.at("/query?a"));
    let answer = front.send((request("") + &request("connection: close\r\n")).as_bytes());
    let rest = String::from_utf8(answer.body).unwrap();
    assert_eq!(answer.status, 200);
    assert!(rest.starts_with("aHTTP/1.1 200 OK") && rest.ends_with("\r\n\r\na"), "{rest}");
}

#[test]
fn one_address_has_a_bounded_number_of_connections() {
    let (origin, front) = (Origin::new(), Front::new());
    let connect = || TcpStream::connect(front.address).unwrap();
    let mut open: Vec<_> = (0..16).map(|_| connect()).collect();
    let mut further = connect();
    // The proxy would wait longer for a request.
    further.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    match further.read(&mut [0; 1]) {
        Ok(len) => assert_eq!(len, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    // Those that are open work, and the place of one that ends is free again.
    let request = format!("GET {} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n", origin.at("/one"));
    let mut first = open.remove(0);
    first.write_all(request.as_bytes()).unwrap();
    let mut received = Vec::new();
    first.read_to_end(&mut received).unwrap();
    assert_eq!(Answer::read(&received).text(), (200, "one 1"));
    drop(open);
    let answered = (0..200).any(|_| {
        let mut stream = connect();
        let mut received = Vec::new();
        let sent = stream.write_all(request.as_bytes());
        sent.is_ok() && stream.read_to_end(&mut received).is_ok() && !received.is_empty()
    });
    assert!(answered);
}
