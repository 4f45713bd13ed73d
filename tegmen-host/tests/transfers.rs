//! Tests block-wise transfer and observation between a server and its clients, over real sockets on the loopback
//! interface.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Block, Builder, Code, MessageRef, MessageType, OptionNumber, Response};
use tegmen_host::client::{self, ClientConfig, ClientKey, Observation, Progress, Session, Tap, Tapped};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Listen, Request as ServerRequest, Server, ServerConfig, Totals};
use tegmen_host::uri::Scheme;

fn start_with<A: Application>(application: A, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listen = vec![Listen { address: any, scheme: Scheme::Coaps }, Listen { address: any, scheme: Scheme::Coap }];
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.shards = 2;
    config.trust.plain_allowed = true;
    change(&mut config);
    Server::with(config).credentials(Credentials::single("me", b"key")).serve(application).unwrap()
}

fn resources() -> Resources {
    Resources::new([
        ("value".to_owned(), Resource::value(b"first")),
        ("blink".to_owned(), Resource::Blink(Arc::default())),
        ("cat".to_owned(), Resource::Command(vec!["cat".into()])),
        ("json".to_owned(), Resource::value(br#"{"a":1,"b":{"c":2}}"#)),
    ])
}

fn start() -> Server {
    start_with(resources(), |_| {})
}

async fn connect_with(server: &Server, scheme: Scheme, change: impl FnOnce(&mut ClientConfig)) -> Session {
    let key = ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() };
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    config.coap.timeout = Duration::from_secs(10);
    change(&mut config);
    let address = server.addresses().iter().find(|listen| listen.scheme == scheme).unwrap().address;
    Session::connect_to(address, scheme, config).await.unwrap()
}

async fn connect(server: &Server, scheme: Scheme) -> Session {
    connect_with(server, scheme, |_| {}).await
}

async fn ask(client: &Session, method: Code, path: &str, payload: &[u8]) -> client::Response {
    client.request(method, path).payload(payload).await.unwrap()
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[tokio::test]
async fn bodies_of_every_size_go_up_and_come_down_in_blocks_of_every_size() {
    let server = start();
    let mut asked = 0;
    for scheme in [Scheme::Coaps, Scheme::Coap] {
        for block_size in [16, 64, 256, 1024] {
            let client = connect_with(&server, scheme, |config| config.coap.block_size = block_size).await;
            for len in [0, 1, block_size - 1, block_size, block_size + 1, 3 * block_size, 5000] {
                let sent = body(len);
                assert_eq!(ask(&client, Code::PUT, "value", &sent).await.code, Code::CHANGED, "{block_size} {len}");
                let got = ask(&client, Code::GET, "value", b"").await;
                assert_eq!((got.code, got.payload.len()), (Code::CONTENT, len));
                assert!(got.payload == sent, "{block_size} {len}");
                asked += 2;
            }
            client.close();
        }
    }
    settles(&server, |totals| totals.requests >= asked && totals.body_bytes == 0).await;
}

#[tokio::test]
async fn a_response_that_cannot_be_made_again_is_kept_for_its_blocks() {
    let server = start();
    let client = connect(&server, Scheme::Coaps).await;
    for len in [1000, 1025, 10_000] {
        for method in [Code::POST, Code::FETCH, Code::PATCH, Code::IPATCH] {
            let echoed = ask(&client, method, "cat", &body(len)).await;
            assert_eq!((echoed.code, echoed.payload.len()), (Code::CONTENT, len), "{} {len}", method.name());
            assert!(echoed.payload == body(len));
        }
    }
}

/// Neither end sends a record that is longer than the limit of the other end. Such a record would end the session.
#[tokio::test]
async fn blocks_fit_the_records_that_were_agreed_on() {
    for (ours, theirs) in [(64, 0), (100, 64), (600, 300), (4096, 64), (0, 64)] {
        let server = start_with(resources(), |config| config.dtls.record_size_limit = theirs);
        let client = connect_with(&server, Scheme::Coaps, |config| config.dtls.record_size_limit = ours).await;
        for len in [0, 15, 40, 64, 300, 2000] {
            assert_eq!(ask(&client, Code::PUT, "value", &body(len)).await.code, Code::CHANGED, "{ours} {theirs} {len}");
            assert!(ask(&client, Code::GET, "value", b"").await.payload == body(len), "{ours} {theirs} {len}");
            assert!(ask(&client, Code::POST, "cat", &body(len)).await.payload == body(len), "{ours} {theirs} {len}");
        }
    }
}

#[tokio::test]
async fn progress_is_reported_and_ends_with_the_whole() {
    let server = start();
    let client = connect(&server, Scheme::Coaps).await;
    let (up, down) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (u, d) = (up.clone(), down.clone());
    let progress = move |progress: Progress| {
        assert_eq!(progress.total, Some(5000));
        if progress.upload { &u } else { &d }.store(progress.done, Ordering::Relaxed);
    };
    client.put("value", &body(5000)).progress(&progress).await.unwrap();
    client.get("value").progress(&progress).await.unwrap();
    assert_eq!((up.load(Ordering::Relaxed), down.load(Ordering::Relaxed)), (4096, 5000));
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_with_what_is_allowed() {
    let server = start_with(resources(), |config| config.coap.max_body = 3000);
    let client = connect(&server, Scheme::Coaps).await;
    let refused = ask(&client, Code::PUT, "value", &body(3001)).await;
    assert_eq!((refused.code, refused.uint(OptionNumber::SIZE1)), (Code::REQUEST_ENTITY_TOO_LARGE, Some(3000)));
    assert_eq!(ask(&client, Code::PUT, "value", &body(3000)).await.code, Code::CHANGED);
}

#[tokio::test]
async fn what_nobody_may_do_costs_no_memory() {
    let server = start_with(resources(), |config| config.trust.plain_allowed = false);
    let client = connect(&server, Scheme::Coap).await;
    assert_eq!(ask(&client, Code::PUT, "value", &body(5000)).await.code, Code::UNAUTHORIZED);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(server.totals().body_bytes, 0);
}

#[tokio::test]
async fn blocks_out_of_turn_are_refused() {
    let server = start();
    let client = connect(&server, Scheme::Coap).await;
    let path = "value";
    let block = |number: u32, more| {
        let block = Block { number, more, size_exponent: 0 };
        (OptionNumber::BLOCK1, block.value().to_be_bytes()[1..].to_vec())
    };
    let put = async |number, more, len: usize| {
        let options = [block(number, more)];
        client.request(Code::PUT, path).payload(&body(len)).options(&options).await.unwrap().code
    };
    assert_eq!(put(3, true, 16).await, Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(put(0, true, 16).await, Code::CONTINUE);
    assert_eq!(put(2, true, 16).await, Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(put(1, true, 15).await, Code::BAD_REQUEST);
    assert_eq!(put(1, false, 4).await, Code::CHANGED);
    assert_eq!(ask(&client, Code::GET, "value", b"").await.payload.len(), 20);
    let reserved = [(OptionNumber::BLOCK1, vec![0x0f])];
    assert_eq!(client.request(Code::PUT, path).payload(b"x").options(&reserved).await.unwrap().code, Code::BAD_REQUEST);
}

#[tokio::test]
async fn endless_uploads_are_bounded() {
    let server = start_with(resources(), |config| config.coap.max_bodies = 8192);
    let client = connect(&server, Scheme::Coap).await;
    let mut refused = 0;
    for path in ["a", "b", "c", "d", "e", "f", "g"] {
        for number in 0..8 {
            let block = Block { number, more: true, size_exponent: 6 };
            let options = [(OptionNumber::BLOCK1, block.value().to_be_bytes()[1..].to_vec())];
            let code = client.request(Code::PUT, path).payload(&body(1024)).options(&options).await.unwrap().code;
            refused += usize::from(code != Code::CONTINUE);
        }
    }
    assert!(refused > 0, "more bodies than are allowed");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(server.totals().body_bytes <= 8192);
}

#[tokio::test]
async fn a_changed_representation_is_never_mixed() {
    /// An application that gives each of the first four responses a different body, so that the blocks of two responses
    /// never belong together. From the fourth response on, the body stays the same.
    #[derive(Clone)]
    struct Restless(Arc<AtomicUsize>);
    impl Application for Restless {
        fn handle(&mut self, _: &ServerRequest<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
            let turn = self.0.fetch_add(1, Ordering::Relaxed).min(3) as u8;
            response.payload(&[turn; 3000])
        }
    }
    let server = start_with(Restless(Arc::default()), |config| config.shards = 1);
    let client = connect(&server, Scheme::Coap).await;
    let got = ask(&client, Code::GET, "x", b"").await;
    assert_eq!(got.payload, vec![3; 3000]);
}

/// Waits until `such` returns true for the totals of the server, which the server updates once a second.
async fn settles(server: &Server, such: impl Fn(&Totals) -> bool) {
    for _ in 0..100 {
        if such(&server.totals()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", server.totals());
}

async fn next(observation: &mut Observation) -> client::Response {
    tokio::time::timeout(Duration::from_secs(10), observation.next()).await.expect("a notification").unwrap().unwrap()
}

#[tokio::test]
async fn observers_are_told_of_changes_in_order_until_they_cancel() {
    for (scheme, unconfirmed) in [(Scheme::Coaps, 0), (Scheme::Coap, 0), (Scheme::Coaps, 4), (Scheme::Coap, 4)] {
        let server = start_with(resources(), |config| config.coap.unconfirmed_notifications = unconfirmed);
        let writer = connect(&server, scheme).await;
        let client = connect(&server, scheme).await;
        let path = "value";
        let mut observation = client.observe(path).await.unwrap();
        assert!(observation.is_registered());
        assert_eq!(next(&mut observation).await.payload, b"first");
        for turn in 0..20 {
            let long = body(turn * 150);
            ask(&writer, Code::PUT, "value", &long).await;
            // The newest one comes, even if some between were skipped.
            loop {
                let got = next(&mut observation).await;
                if got.payload == long {
                    break;
                }
            }
        }
        settles(&server, |totals| totals.observations == 1).await;
        let last = observation.cancel().await.unwrap();
        assert_eq!((last.code, last.uint(OptionNumber::OBSERVE)), (Code::CONTENT, None));
        settles(&server, |totals| totals.observations == 0).await;
    }
}

/// Tests PROBING_RATE (RFC 7252, section 4.7).
#[tokio::test]
async fn a_server_that_is_silent_is_sent_a_byte_a_second() {
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut config = ClientConfig::default();
    config.coap.confirmable = false;
    config.coap.timeout = Duration::from_millis(50);
    let client = Session::connect_to(silent.local_addr().unwrap(), Scheme::Coap, config).await.unwrap();
    let path = "value";
    let asking = client.get(path);
    assert!(asking.await.is_err());
    let mut datagram = [0; 64];
    let (_, from) = silent.recv_from(&mut datagram).await.unwrap();
    let again = tokio::time::timeout(Duration::from_millis(500), asking).await;
    assert!(again.is_err(), "it waits");
    assert_eq!(silent.try_recv(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // Any answer shows that the server runs, even one without content: a Reset of the message that it received.
    let reset = [0x70, 0, datagram[2], datagram[3]];
    silent.send_to(&reset, from).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(5), asking).await.unwrap().is_err());
    silent.recv_from(&mut datagram).await.unwrap();
}

/// Tests the rule for observers that do not acknowledge (RFC 7641, section 4.5.1).
#[tokio::test]
async fn an_observer_that_is_silent_has_to_acknowledge_what_follows_too_soon() {
    let server = start_with(resources(), |config| config.coap.unconfirmed_notifications = 9);
    let writer = connect(&server, Scheme::Coap).await;
    let observer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    observer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    observer.connect(server.addresses().iter().find(|listen| listen.scheme == Scheme::Coap).unwrap().address).unwrap();
    // GET /value, Observe: 0
    observer.send(b"\x51\x01\x00\x01t\x60\x55value").unwrap();
    let mut message = [0; 64];
    let mut next = || {
        observer.recv(&mut message).unwrap();
        (message[0] >> 4 & 3, [0x60, 0, message[2], message[3]])
    };
    let (non, con) = (1, 0);
    assert_eq!(next().0, non);
    ask(&writer, Code::PUT, "value", b"1").await;
    assert_eq!(next().0, non);
    ask(&writer, Code::PUT, "value", b"2").await;
    let (message_type, acknowledgement) = next();
    assert_eq!(message_type, con);
    observer.send(&acknowledgement).unwrap();
    // An acknowledgement shows that the observer runs. The server may process the change before the acknowledgement.
    settles(&server, |totals| totals.observations == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    ask(&writer, Code::PUT, "value", b"3").await;
    assert_eq!(next().0, non);
}

#[tokio::test]
async fn a_flood_of_requests_does_not_hold_up_notifications() {
    let server = start_with(resources(), |config| config.shards = 1);
    let address = server.addresses().iter().find(|listen| listen.scheme == Scheme::Coap).unwrap().address;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Keeps 128 requests under way, so that the server always has something to receive.
    let flood = |stop: Arc<std::sync::atomic::AtomicBool>| {
        std::thread::spawn(move || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut id = 0u16;
            let mut send = || {
                id = id.wrapping_add(1);
                let [high, low] = id.to_be_bytes();
                // NON GET /blink
                let _ = socket.send_to(&[0x50, 1, high, low, 0xb5, b'b', b'l', b'i', b'n', b'k'], address);
            };
            (0..128).for_each(|_| send());
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.recv(&mut [0; 100]);
                send();
            }
        })
    };
    let floods: Vec<_> = (0..4).map(|_| flood(stop.clone())).collect();
    let (writer, client) = (connect(&server, Scheme::Coap).await, connect(&server, Scheme::Coap).await);
    let path = "value";
    let mut observation = client.observe(path).await.unwrap();
    next(&mut observation).await;
    for turn in 0..3u8 {
        ask(&writer, Code::PUT, "value", &[turn]).await;
        let got = tokio::time::timeout(Duration::from_secs(5), observation.next()).await;
        assert_eq!(got.expect("a notification while others ask").unwrap().unwrap().payload, [turn]);
    }
    stop.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

#[tokio::test]
async fn an_observer_that_forgot_is_forgotten_when_it_rejects() {
    for unconfirmed in [0, 4] {
        let server = start_with(resources(), |config| config.coap.unconfirmed_notifications = unconfirmed);
        let writer = connect(&server, Scheme::Coap).await;
        let client = connect(&server, Scheme::Coap).await;
        let path = "value";
        let request = client.get(path);
        // What is dropped is forgotten only when the client hears of it again: it has to receive, so it asks something.
        drop(request.observe().await.unwrap());
        for turn in 0..3 {
            ask(&writer, Code::PUT, "value", &[turn]).await;
            ask(&client, Code::GET, "blink", b"").await;
        }
        settles(&server, |totals| totals.observations == 0).await;
    }
}

#[tokio::test]
async fn what_is_not_observable_is_answered_once() {
    let server = start();
    let client = connect(&server, Scheme::Coap).await;
    let path = "cat";
    let mut observation = client.observe(path).await.unwrap();
    assert!(!observation.is_registered());
    assert_eq!(next(&mut observation).await.code, Code::CONTENT);
    assert!(observation.next().await.unwrap().is_none());
}

#[tokio::test]
async fn one_client_observes_only_so_much() {
    let server = start();
    let client = connect(&server, Scheme::Coap).await;
    let mut registered = 0;
    for _ in 0..20 {
        let path = "value";
        let observation = client.observe(path).await.unwrap();
        // Dropped: forgotten by the client, not by the server.
        registered += usize::from(observation.is_registered());
    }
    assert_eq!(registered, 16);
}

#[tokio::test]
async fn preconditions_and_entity_tags() {
    let server = start();
    let client = connect(&server, Scheme::Coaps).await;
    let path = "value";
    let got = ask(&client, Code::GET, "value", b"").await;
    let etag = got.option(OptionNumber::ETAG).unwrap().to_vec();
    let with = async |method, payload: &[u8], number, value: &[u8]| {
        let options = [(number, value.to_vec())];
        client.request(method, path).payload(payload).options(&options).await.unwrap()
    };
    let valid = with(Code::GET, b"", OptionNumber::ETAG, &etag).await;
    assert_eq!((valid.code, valid.payload.len()), (Code::VALID, 0));
    assert_eq!(with(Code::GET, b"", OptionNumber::ETAG, b"other").await.payload, b"first");
    assert_eq!(with(Code::PUT, b"2", OptionNumber::IF_MATCH, b"other").await.code, Code::PRECONDITION_FAILED);
    assert_eq!(with(Code::PUT, b"2", OptionNumber::IF_NONE_MATCH, b"").await.code, Code::PRECONDITION_FAILED);
    assert_eq!(with(Code::PUT, b"2", OptionNumber::IF_MATCH, &etag).await.code, Code::CHANGED);
    assert_eq!(with(Code::PUT, b"3", OptionNumber::IF_MATCH, &etag).await.code, Code::PRECONDITION_FAILED);
    assert_eq!(with(Code::PUT, b"3", OptionNumber::IF_MATCH, b"").await.code, Code::CHANGED);
}

#[tokio::test]
async fn json_is_merged_with_json() {
    let server = start();
    let client = connect(&server, Scheme::Coaps).await;
    let path = "json";
    for method in [Code::PATCH, Code::IPATCH] {
        let patch = client.request(method, path).content_format(52).payload(br#"{"b":{"c":null,"d":[1]}}"#);
        assert_eq!(patch.await.unwrap().code, Code::CHANGED);
        assert_eq!(ask(&client, Code::GET, "json", b"").await.payload, br#"{"a":1,"b":{"d":[1]}}"#);
    }
    let plain = client.request(Code::PATCH, path).payload(b"{}");
    assert_eq!(plain.await.unwrap().code, Code::UNSUPPORTED_CONTENT_FORMAT);
    let text = "value";
    let patch = client.request(Code::PATCH, text).content_format(52).payload(b"{}");
    assert_eq!(patch.await.unwrap().code, Code::CONFLICT);
}

#[tokio::test]
async fn a_server_that_verifies_addresses_is_served_its_proof() {
    let server = start_with(resources(), |config| config.coap.verify_addresses = true);
    let client = connect(&server, Scheme::Coap).await;
    assert_eq!(ask(&client, Code::PUT, "value", &body(3000)).await.code, Code::CHANGED);
    let second = connect(&server, Scheme::Coap).await;
    assert_eq!(ask(&second, Code::GET, "value", b"").await.payload, body(3000));
    let third = connect(&server, Scheme::Coap).await;
    let path = "value";
    let mut observation = third.observe(path).await.unwrap();
    assert!(observation.is_registered());
    assert_eq!(next(&mut observation).await.payload, body(3000));
}

#[tokio::test]
async fn too_many_requests_are_told_to_wait() {
    let server = start_with(resources(), |config| config.coap.requests_per_second = 5);
    let client = connect(&server, Scheme::Coaps).await;
    let mut codes = Vec::new();
    for _ in 0..7 {
        codes.push(ask(&client, Code::GET, "blink", b"").await.code);
    }
    assert_eq!(codes.iter().filter(|code| **code == Code::TOO_MANY_REQUESTS).count(), 2, "{codes:?}");
}

#[tokio::test]
async fn a_file_that_changes_is_told_to_its_observers() {
    let file = std::env::temp_dir().join(format!("tegmen-observed-{}", std::process::id()));
    std::fs::write(&file, "one").unwrap();
    let server = start_with(Resources::new([("file".to_owned(), Resource::File(file.clone()))]), |_| {});
    let client = connect(&server, Scheme::Coaps).await;
    let path = "file";
    let mut observation = client.observe(path).await.unwrap();
    assert_eq!(next(&mut observation).await.payload, b"one");
    std::fs::write(&file, "another").unwrap();
    assert_eq!(next(&mut observation).await.payload, b"another");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(next(&mut observation).await.code, Code::NOT_FOUND);
    assert!(observation.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_writable_directory_takes_files_whole_and_nothing_beside_it() {
    let root = std::env::temp_dir().join(format!("tegmen-writable-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let directory = Resource::Directory { root: root.clone(), writable: true };
    let server = start_with(Resources::new([("up".to_owned(), directory)]), |_| {});
    let client = connect(&server, Scheme::Coaps).await;
    let put = async |method, path: &str, payload: &[u8]| client.request(method, path).payload(payload).await.unwrap();
    assert_eq!(put(Code::PUT, "up/firmware.bin", &body(100_000)).await.code, Code::CREATED);
    assert_eq!(std::fs::read(root.join("firmware.bin")).unwrap(), body(100_000));
    assert_eq!(put(Code::GET, "up/firmware.bin", b"").await.payload, body(100_000));
    assert_eq!(put(Code::PUT, "up/firmware.bin", &body(5)).await.code, Code::CHANGED);
    for path in ["up/../outside", "up/.hidden", "up/", "up"] {
        assert!(!put(Code::PUT, path, b"x").await.code.is_success(), "{path}");
    }
    assert_eq!(put(Code::DELETE, "up/firmware.bin", b"").await.code, Code::DELETED);
    assert_eq!(put(Code::DELETE, "up/firmware.bin", b"").await.code, Code::NOT_FOUND);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
}

#[tokio::test]
async fn the_blocks_of_an_upload_have_one_token() {
    let server = start();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let keep = tokens.clone();
    let tap = Tap(Arc::new(move |tapped| {
        if let Tapped::Datagram { sent: true, datagram, .. } = tapped {
            let message = MessageRef::parse(datagram).unwrap();
            if message.code() == Code::PUT {
                keep.lock().unwrap().push(message.token().to_vec());
            }
        }
    }));
    let client = connect_with(&server, Scheme::Coap, |config| config.log.tap = Some(tap)).await;
    for _ in 0..2 {
        assert_eq!(ask(&client, Code::PUT, "value", &body(3000)).await.code, Code::CHANGED);
    }
    let mut tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 6, "three blocks each");
    tokens.dedup();
    assert_eq!(tokens.len(), 2, "one for each upload: {tokens:?}");
}

#[tokio::test]
async fn an_upload_whose_end_is_answered_without_block1_says_so() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        for code in [Code::CONTINUE, Code::CHANGED] {
            let mut datagram = [0; 2000];
            let (len, from) = socket.recv_from(&mut datagram).unwrap();
            let message = MessageRef::parse(&datagram[..len]).unwrap();
            let mut storage = [0; 100];
            let mut frame = Frame::new(&mut storage, 0);
            let (id, token) = (message.message_id(), message.token());
            Builder::new(&mut frame, MessageType::Acknowledgement, code, id, token).unwrap().payload(&[]).unwrap();
            socket.send_to(frame.bytes(), from).unwrap();
        }
    });
    let client = Session::connect_to(address, Scheme::Coap, ClientConfig::default()).await.unwrap();
    let reply = ask(&client, Code::PUT, "value", &body(1500)).await;
    assert!(reply.code == Code::CHANGED && reply.lacks_block1());
    let server = start();
    let client = connect(&server, Scheme::Coap).await;
    assert!(!ask(&client, Code::PUT, "value", &body(1500)).await.lacks_block1());
}
