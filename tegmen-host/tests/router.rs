//! Tests the builder of a server: routes, policies and events.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Policy, Request, empty_message};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::server::{Event, Listen, Prepared, Reply, Responder, Router, Server, ServerConfig, StartError};
use tegmen_host::uri::Scheme;

/// A client without protection, which sends one request after the other.
struct Plain(UdpSocket, u16);

impl Plain {
    fn to(server: &Server) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.addresses()[0].address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(socket, 0)
    }

    /// Sends a request. Returns the code and the payload of the response, which must be in the acknowledgement.
    fn ask(&mut self, method: Code, uri: &str) -> (Code, String) {
        self.send(method, uri);
        let mut answer = [0; 1500];
        let len = self.0.recv(&mut answer).unwrap();
        let answer = MessageRef::parse(&answer[..len]).unwrap();
        assert_eq!((answer.message_type(), answer.message_id()), (MessageType::Acknowledgement, self.1));
        (answer.code(), String::from_utf8(answer.payload().to_vec()).unwrap())
    }

    /// Sends a GET. Returns the code, the options and the payload of the response, which is in the acknowledgement or
    /// follows it.
    fn ask_deferred(&mut self, uri: &str) -> (Code, Vec<(OptionNumber, Vec<u8>)>, String) {
        self.send(Code::GET, uri);
        let (mut first, mut second) = ([0; 1500], [0; 1500]);
        let len = self.0.recv(&mut first).unwrap();
        let mut answer = MessageRef::parse(&first[..len]).unwrap();
        assert_eq!((answer.message_type(), answer.message_id()), (MessageType::Acknowledgement, self.1));
        if answer.code() == Code::EMPTY {
            let len = self.0.recv(&mut second).unwrap();
            answer = MessageRef::parse(&second[..len]).unwrap();
            assert_eq!(answer.message_type(), MessageType::Confirmable);
            self.0.send(&empty_message(MessageType::Acknowledgement, answer.message_id())).unwrap();
        }
        assert_eq!(answer.token(), b"t");
        let options = answer.options().map(|(number, value)| (number, value.to_vec())).collect();
        (answer.code(), options, String::from_utf8(answer.payload().to_vec()).unwrap())
    }

    /// Returns the code and the payload of the response to the last request. Ignores an acknowledgement without a
    /// response.
    fn response(&self) -> (Code, String) {
        let mut answer = [0; 1500];
        loop {
            let len = self.0.recv(&mut answer).unwrap();
            let answer = MessageRef::parse(&answer[..len]).unwrap();
            if answer.message_type() == MessageType::Confirmable {
                self.0.send(&empty_message(MessageType::Acknowledgement, answer.message_id())).unwrap();
            }
            if answer.code() != Code::EMPTY {
                return (answer.code(), String::from_utf8(answer.payload().to_vec()).unwrap());
            }
        }
    }

    /// Asserts that no response has come.
    fn has_no_response(&self) {
        let mut answer = [0; 1500];
        self.0.set_nonblocking(true).unwrap();
        while let Ok(len) = self.0.recv(&mut answer) {
            assert_eq!(MessageRef::parse(&answer[..len]).unwrap().code(), Code::EMPTY);
        }
        self.0.set_nonblocking(false).unwrap();
    }

    fn send(&mut self, method: Code, uri: &str) {
        self.1 += 1;
        let mut storage = [0; 256];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, method, self.1, b"t").unwrap();
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        for segment in path.trim_start_matches('/').split('/').filter(|_| path != "/") {
            builder.option(OptionNumber::URI_PATH, segment.as_bytes()).unwrap();
        }
        for argument in query.iter().flat_map(|query| query.split('&')) {
            builder.option(OptionNumber::URI_QUERY, argument.as_bytes()).unwrap();
        }
        self.0.send(frame.bytes()).unwrap();
    }
}

/// A policy that allows every request.
struct Everybody;

impl Policy for Everybody {
    fn decide(&self, _: &Request<'_>) -> Option<bool> {
        Some(true)
    }
}

fn named(router: Router, method: Code, path: &str, name: &'static str) -> Router {
    router.on(method, path, move |_, response| response.payload(name.as_bytes()))
}

#[test]
fn the_exact_path_comes_first_and_then_the_longest_beginning() {
    let mut router = Router::new();
    for (path, name) in
        [("/*", "all"), ("/a/*", "below a"), ("/a/b", "a b"), ("/a/b/*", "below a b"), ("/a", "a"), ("/", "root")]
    {
        router = named(router, Code::GET, path, name);
    }
    router = named(router, Code::PUT, "/*", "put");
    router = named(router, Code::GET, "/a", "a again");
    let server = Server::builder().listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    let mut client = Plain::to(&server);
    for (path, name) in [
        ("/", "root"),
        ("/a", "a again"),
        ("/ab", "all"),
        ("/a/", "below a"),
        ("/a/x", "below a"),
        ("/a/b", "a b"),
        ("/a/b/c/d", "below a b"),
        ("/a/bc", "below a"),
    ] {
        assert_eq!(client.ask(Code::GET, path), (Code::CONTENT, name.to_owned()), "{path}");
    }
    // The route of the path decides, and not one with fewer segments that has the method.
    assert_eq!(client.ask(Code::PUT, "/a/b").0, Code::METHOD_NOT_ALLOWED);
    assert_eq!(client.ask(Code::PUT, "/x"), (Code::CONTENT, "put".to_owned()));
}

#[test]
fn an_unknown_path_is_4_04_and_an_unknown_method_4_05() {
    let router = named(named(Router::new(), Code::GET, "/temp", "21.5"), Code::POST, "/log/*", "written");
    let router = named(router, Code::GET, "/a b/\u{e9}>", "a path that a URI encodes");
    let router = router.get("/sum", |request, response| {
        let query = request.query()?;
        let number = |name| query.get(name).and_then(|text| text.parse::<u32>().ok()).ok_or(Code::BAD_REQUEST);
        response.payload((number("a")? + number("b")?).to_string().as_bytes())
    });
    let server = Server::builder().listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    let mut client = Plain::to(&server);
    for (method, path, code) in [
        (Code::GET, "/temp", Code::CONTENT),
        (Code::GET, "/temp/", Code::NOT_FOUND),
        (Code::GET, "/", Code::NOT_FOUND),
        (Code::DELETE, "/temp", Code::METHOD_NOT_ALLOWED),
        (Code::POST, "/log", Code::NOT_FOUND),
        (Code::GET, "/log/1", Code::METHOD_NOT_ALLOWED),
        (Code::GET, "/temp//x", Code::BAD_REQUEST),
        (Code::GET, "/sum?a=1", Code::BAD_REQUEST),
    ] {
        assert_eq!(client.ask(method, path).0, code, "{} {path}", method.name());
    }
    assert_eq!(client.ask(Code::GET, "/sum?b=3&a=4").1, "7");
    assert_eq!(client.ask(Code::GET, "/.well-known/core").1, "</a%20b/%C3%A9%3E>,</sum>,</temp>");
}

#[test]
fn without_a_policy_the_rights_of_the_credentials_decide_and_a_policy_replaces_them() {
    /// A policy that allows only this method and this path.
    struct Only(Code, &'static str);

    impl Policy for Only {
        fn decide(&self, request: &Request<'_>) -> Option<bool> {
            Some(request.message.code() == self.0 && request.message.path_is(self.1))
        }
    }

    let router = || named(named(Router::new(), Code::GET, "/a", "a"), Code::GET, "/b", "b");
    let start = |policy: Option<Only>| {
        let builder = Server::builder().listen("coap://127.0.0.1:0");
        policy.into_iter().fold(builder, tegmen_host::server::ServerBuilder::policy).serve(router()).unwrap()
    };
    let rights = start(None);
    assert_eq!(Plain::to(&rights).ask(Code::GET, "/a").0, Code::UNAUTHORIZED);
    let only = start(Some(Only(Code::GET, "a")));
    let mut client = Plain::to(&only);
    assert_eq!(client.ask(Code::GET, "/a").0, Code::CONTENT);
    assert_eq!(client.ask(Code::GET, "/b").0, Code::UNAUTHORIZED);
}

#[test]
fn events_come_to_the_function_and_a_wrong_address_starts_no_server() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let keep = lines.clone();
    let server = Server::builder()
        .listen("coap://127.0.0.1:0")
        .policy(Everybody)
        .on_event(move |event: Event| keep.lock().unwrap().push(event.to_string()))
        .serve(named(Router::new(), Code::GET, "/a", "a"))
        .unwrap();
    Plain::to(&server).ask(Code::GET, "/a");
    server.stop();
    let lines = lines.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].ends_with("GET /a: 2.05, 1 bytes"), "{lines:?}");

    let wrong = Server::builder().listen("127.0.0.1:5683").listen("coap://127.0.0.1:0").serve(Router::new());
    assert!(matches!(wrong.err(), Some(StartError::Listen(wrong)) if wrong.to_string().starts_with("127.0.0.1:5683")));
    assert!("coap://127.0.0.1:0".parse::<Listen>().is_ok_and(|listen| listen.scheme == Scheme::Coap));
}

#[test]
fn a_deferred_response_carries_any_option() {
    let router = Router::new().get("/job", |request, response| {
        let responder = request.defer(response);
        std::thread::spawn(move || {
            let reply = Reply::content(0, "done").max_age(Duration::from_secs(5)).location("/jobs/7").etag(b"v1");
            responder.send(reply.uint(OptionNumber::OBSERVE, 9));
        });
        Ok(())
    });
    let server = Server::builder().listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    let (code, options, payload) = Plain::to(&server).ask_deferred("/job");
    assert_eq!((code, &*payload), (Code::CONTENT, "done"));
    let expected: [(OptionNumber, &[u8]); 5] = [
        (OptionNumber::ETAG, b"v1"),
        (OptionNumber::LOCATION_PATH, b"jobs"),
        (OptionNumber::LOCATION_PATH, b"7"),
        (OptionNumber::CONTENT_FORMAT, b""),
        (OptionNumber::MAX_AGE, &[5]),
    ];
    assert_eq!(options, expected.map(|(number, value)| (number, value.to_vec())));
}

#[test]
fn a_client_proves_its_address_before_it_gets_a_long_deferred_response() {
    let long = "x".repeat(900);
    let (at_once, later) = (long.clone(), long.clone());
    let router = Router::new().get("/now", move |_, response| response.payload(at_once.as_bytes()));
    let router = router.get("/later", move |request, response| {
        request.defer(response).send(Reply::content(0, later.as_str()));
        Ok(())
    });
    let router = router.get("/short", |request, response| {
        request.defer(response).send(Reply::content(0, "21.5"));
        Ok(())
    });
    let mut config = ServerConfig::default();
    config.coap.verify_addresses = true;
    let server = Server::with(config).listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    let mut client = Plain::to(&server);
    assert_eq!(client.ask_deferred("/short").2, "21.5");
    for path in ["/now", "/later"] {
        let (code, options, payload) = client.ask_deferred(path);
        assert_eq!((code, options[0].0, payload.as_str()), (Code::UNAUTHORIZED, OptionNumber::ECHO, ""), "{path}");
    }
    // The client of this crate repeats the request with the value of the Echo option.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = server.addresses()[0].address;
        let session = Session::connect_to(address, Scheme::Coap, ClientConfig::default()).await.unwrap();
        assert_eq!(session.get("later").await.unwrap().payload, long.as_bytes());
    });
}

#[test]
fn a_dropped_responder_answers_at_once_and_one_that_never_answers_when_its_time_is_over() {
    let kept = Arc::new(Mutex::new(Vec::<Responder>::new()));
    let keep = kept.clone();
    let router = Router::new().get("/dropped", |request, response| {
        drop(request.defer(response));
        Ok(())
    });
    let router = router.get("/twice", |request, response| {
        drop(request.defer(response));
        request.defer(response).send(Reply::new(Code::VALID));
        Ok(())
    });
    let router = router.get("/refused", |request, response| {
        drop(request.defer(response));
        Err(Code::CONFLICT)
    });
    let router = router.get("/never", move |request, response| {
        keep.lock().unwrap().push(request.defer(response));
        Ok(())
    });
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let mut config = ServerConfig::default();
    config.coap.response_timeout = Duration::from_millis(1500);
    config.shards = 1;
    let server = Server::with(config).listen("coap://127.0.0.1:0").policy(Everybody);
    let server = server.on_event(move |event| log.lock().unwrap().push(event.to_string())).serve(router).unwrap();
    let mut client = Plain::to(&server);
    let asked = Instant::now();
    assert_eq!(client.ask_deferred("/dropped").0, Code::INTERNAL_SERVER_ERROR);
    assert_eq!(client.ask_deferred("/twice").0, Code::VALID);
    assert_eq!(client.ask(Code::GET, "/refused").0, Code::CONFLICT);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let asked = Instant::now();
    assert_eq!(client.ask_deferred("/never").0, Code::SERVICE_UNAVAILABLE);
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(1400) && waited < Duration::from_secs(5), "{waited:?}");
    // What comes too late is not sent, and nothing was sent for the responders that were replaced.
    kept.lock().unwrap().drain(..).for_each(|responder| responder.send(Reply::new(Code::CONTENT)));
    assert_eq!(client.ask(Code::GET, "/refused").0, Code::CONFLICT);
    server.stop();
    let causes = ["the application dropped its responder", "did not respond within 1.5 s"];
    let lines = lines.lock().unwrap();
    for cause in causes {
        assert_eq!(lines.iter().filter(|line| line.contains(cause)).count(), 1, "{lines:?}");
    }
}

#[test]
fn prepared_responses_are_sent_together_or_another_response_instead_of_each() {
    let (prepared, count) = (Arc::new(Mutex::new(Prepared::default())), Arc::new(AtomicU32::new(0)));
    let (here, counted) = (prepared.clone(), count.clone());
    let router = Router::new().get("/later", move |request, response| {
        request.prepare(response, Reply::content(0, "ready"), &mut here.lock().unwrap());
        counted.fetch_add(1, Relaxed);
        Ok(())
    });
    let here = prepared.clone();
    let router = router.get("/refused", move |request, response| {
        request.prepare(response, Reply::content(0, "ready"), &mut here.lock().unwrap());
        Err(Code::CONFLICT)
    });
    let router = router.get("/replaced", move |request, response| {
        request.prepare(response, Reply::content(0, "ready"), &mut Prepared::default());
        request.defer(response).send(Reply::new(Code::VALID));
        Ok(())
    });
    let mut config = ServerConfig::default();
    config.shards = 2;
    let server = Server::with(config).listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    // More than a shard sends between two batches of datagrams.
    let mut clients: Vec<Plain> = (0..200).map(|_| Plain::to(&server)).collect();
    let cases: [(fn(&mut Prepared), _, _); 4] = [
        (Prepared::send, Code::CONTENT, "ready"),
        (|prepared| prepared.send_instead(&Reply::new(Code::CONFLICT)), Code::CONFLICT, ""),
        (|prepared| *prepared = Prepared::default(), Code::INTERNAL_SERVER_ERROR, ""),
        (
            |prepared| {
                let mut all = Prepared::default();
                all.append(prepared);
                prepared.send();
                all.send();
            },
            Code::CONTENT,
            "ready",
        ),
    ];
    for (end, code, payload) in cases {
        for client in &mut clients {
            assert_eq!(client.ask(Code::GET, "/refused").0, Code::CONFLICT);
            client.send(Code::GET, "/later");
        }
        while count.load(Relaxed) < clients.len() as u32 {
            std::thread::yield_now();
        }
        count.store(0, Relaxed);
        clients.iter().for_each(Plain::has_no_response);
        end(&mut prepared.lock().unwrap());
        for client in &clients {
            assert_eq!(client.response(), (code, payload.to_owned()));
        }
    }
    clients[0].send(Code::GET, "/replaced");
    assert_eq!(clients[0].response().0, Code::VALID);
    assert_eq!(clients[0].ask(Code::GET, "/refused").0, Code::CONFLICT, "nothing else was sent");
}

/// The response to the registration, and each notification, comes from another thread.
#[tokio::test]
async fn a_resource_whose_responses_are_deferred_is_observed() {
    let count = Arc::new(AtomicU32::new(0));
    let router = Router::new().get("/slow", move |request, response| {
        response.observable();
        let (responder, count) = (request.defer(response), count.fetch_add(1, Relaxed) + 1);
        std::thread::spawn(move || {
            responder.send(match count {
                ..4 => Reply::content(0, format!("{count}{}", " ".repeat(3000))),
                _ => Reply::new(Code::NOT_FOUND),
            });
        });
        Ok(())
    });
    let server = Server::builder().listen("coap://127.0.0.1:0").policy(Everybody).serve(router).unwrap();
    let address = server.addresses()[0].address;
    let session = Session::connect_to(address, Scheme::Coap, ClientConfig::default()).await.unwrap();
    let mut observation = session.get("/slow").observe().await.unwrap();
    for expected in ["1", "2", "3"] {
        let response = observation.next().await.unwrap().expect("a representation");
        assert_eq!((response.code, response.payload.len()), (Code::CONTENT, 3001));
        assert_eq!(String::from_utf8(response.payload).unwrap().trim_end(), expected);
        server.notifier().changed("slow");
    }
    let last = observation.next().await.unwrap().map(|response| response.code);
    assert_eq!(last, Some(Code::NOT_FOUND), "an error is the last notification");
}
