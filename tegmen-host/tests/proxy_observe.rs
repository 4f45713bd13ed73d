//! Tests observations that OSCORE protects from end to end, through a proxy that has no keys.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, empty_message};
use tegmen::oscore::Aead;
use tegmen_host::client::{ClientConfig, Observation, Session};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::Server;
use tegmen_host::uri::Scheme;

type Options = Vec<(OptionNumber, Vec<u8>)>;

/// The number of clients. A server permits fewer observations to one peer without protection, such as the proxy.
const CLIENTS: u8 = 18;

/// An origin with a context for each client, and a proxy between them.
struct World {
    dir: PathBuf,
    origin: Server,
    server: Server,
    proxy: Proxy,
}

impl World {
    fn new(name: &str) -> Self {
        Self::with(name, |_| ())
    }

    fn with(name: &str, change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-observe-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let credentials = Credentials::default();
        let mut servers = Vec::new();
        for client in 0..CLIENTS {
            let context = ContextFile {
                sender_id: vec![client],
                recipient_id: vec![0x80 | client],
                master_secret: vec![7; 16].into(),
                master_salt: vec![client],
                id_context: None,
                aead: Aead::AesCcm16_64_128,
                created: contexts::now(),
                expires: None,
                allow: None,
                rederivation: false,
            };
            contexts::create(&dir.join(format!("client{client}")), &context).unwrap();
            servers.push(dir.join(format!("server{client}")));
            contexts::create(&servers[usize::from(client)], &context.mirrored()).unwrap();
        }
        let contexts = Contexts::open(&servers, |name, _| credentials.learn(name, None)).unwrap();
        let resources = ["value", "other"].map(|name| (name.to_owned(), Resource::value(b"0")));
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).oscore(contexts).on_event(|_| ());
        let origin = builder.credentials(credentials.clone()).serve(Resources::new(resources)).unwrap();
        let config = ProxyConfig::default().with(|config| {
            config.targets = vec!["coap://127.0.0.1:*".parse().unwrap()];
            change(config);
        });
        let proxy = Proxy::new(config).unwrap();
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(2).allow_plain().on_event(|_| ());
        let server = builder.serve(proxy.clone()).unwrap();
        Self { dir, origin, server, proxy }
    }

    fn address(&self) -> SocketAddr {
        self.origin.addresses()[0].address
    }

    /// Opens the session of a client with the proxy, or with a program in front of the proxy.
    async fn client(&self, number: u8, at: SocketAddr) -> Session {
        let dir = self.dir.join(format!("client{number}"));
        let config = ClientConfig::default().with(|config| {
            config.oscore = Some(dir);
            config.coap.nstart = 8;
            config.coap.timeout = Duration::from_secs(120);
            config.recovery.reconnect = false;
        });
        Session::connect_to(at, Scheme::Coap, config).await.unwrap()
    }

    async fn direct(&self, number: u8) -> Session {
        self.client(number, self.server.addresses()[0].address).await
    }

    /// Waits until the origin has this number of observers. `change` makes the origin send notifications, so that the
    /// origin notices which observers are gone.
    async fn observers(&self, expected: usize, change: impl AsyncFn()) {
        loop {
            change().await;
            self.origin.pulse().beats().await;
            if self.origin.totals().observations == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the proxy has this number of observations at origins.
    async fn follows(&self, expected: usize) {
        while self.proxy.counts().observations != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Returns the options of a request for the server at `target`.
fn to(target: SocketAddr) -> Options {
    vec![
        (OptionNumber::PROXY_SCHEME, b"coap".to_vec()),
        (OptionNumber::URI_HOST, target.ip().to_string().into_bytes()),
        (OptionNumber::URI_PORT, target.port().to_be_bytes().to_vec()),
    ]
}

async fn put(client: &Session, options: &Options, value: &str) {
    assert_eq!(client.put("/value", value.as_bytes()).options(options).await.unwrap().code, Code::CHANGED);
}

/// Returns the payload of the next notification, which OSCORE has verified.
async fn next(observation: &mut Observation) -> String {
    let response = observation.next().await.unwrap().unwrap();
    assert_eq!(response.code, Code::CONTENT);
    String::from_utf8(response.payload).unwrap()
}

#[tokio::test]
async fn notifications_arrive_in_order_at_each_client() {
    let world = World::new("order");
    let (one, other, options) = (world.direct(0).await, world.direct(1).await, to(world.address()));
    let mut first = one.get("/value").options(&options).observe().await.unwrap();
    let mut second = other.get("/value").options(&options).observe().await.unwrap();
    for observation in [&mut first, &mut second] {
        assert!(observation.is_registered());
        assert_eq!(next(observation).await, "0");
    }
    for value in 1..20 {
        put(&one, &options, &value.to_string()).await;
        for observation in [&mut first, &mut second] {
            assert_eq!(next(observation).await, value.to_string());
        }
    }
    let counts = world.proxy.counts();
    // Nothing is stored, and each client has an observation of its own.
    assert_eq!((counts.observations, counts.entries, counts.hits), (2, 0, 0));
    assert_eq!(first.cancel().await.unwrap().payload, b"19");
    world.follows(1).await;
    world.observers(1, async || ()).await;
    put(&one, &options, "20").await;
    assert_eq!(next(&mut second).await, "20");
}

#[tokio::test]
async fn many_clients_behind_one_proxy_observe_at_once() {
    let world = World::with("many", |config| config.protected_observations = CLIENTS.into());
    let (options, mut observations) = (to(world.address()), Vec::new());
    for number in 0..CLIENTS {
        let client = world.direct(number).await;
        let mut observation = client.get("/value").options(&options).observe().await.unwrap();
        assert!(observation.is_registered(), "{number}");
        assert_eq!(next(&mut observation).await, "0");
        observations.push((client, observation));
    }
    put(&observations[0].0, &options, "1").await;
    for (_, observation) in &mut observations {
        assert_eq!(next(observation).await, "1");
    }
}

#[tokio::test]
async fn a_registration_of_a_long_resource_arrives_in_blocks() {
    let world = World::new("long");
    let (client, options) = (world.direct(0).await, to(world.address()));
    let mut observation = client.get("/value").options(&options).observe().await.unwrap();
    assert_eq!(next(&mut observation).await, "0");
    let long = "x".repeat(5000);
    put(&client, &options, &long).await;
    assert_eq!(next(&mut observation).await, long);
}

#[tokio::test]
async fn a_client_that_rejects_a_notification_observes_no_more() {
    let world = World::new("reset");
    let (client, options) = (world.direct(0).await, to(world.address()));
    let mut observation = client.get("/value").options(&options).observe().await.unwrap();
    assert_eq!(next(&mut observation).await, "0");
    drop(observation);
    world.observers(0, async || put(&client, &options, "1").await).await;
    world.follows(0).await;
}

#[tokio::test]
async fn what_the_origin_refuses_to_let_observe_is_one_response() {
    let world = World::new("refused");
    let (client, options) = (world.direct(0).await, to(world.address()));
    let mut observation = client.get("/nothing").options(&options).observe().await.unwrap();
    assert_eq!(observation.next().await.unwrap().unwrap().code, Code::NOT_FOUND);
    assert!(!observation.is_registered());
    world.follows(0).await;
}

/// Passes datagrams between clients and a server. `drops` decides whether a datagram is lost. Its first argument is
/// true for a datagram to the server.
fn lossy(
    server: SocketAddr,
    drops: impl Fn(bool, &[u8], &UdpSocket, SocketAddr) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let (front, back) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (address, drops, client) = (front.local_addr().unwrap(), Arc::new(drops), Arc::new(Mutex::new(None)));
    back.connect(server).unwrap();
    let (front_too, back_too) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let (drops_too, client_too) = (drops.clone(), client.clone());
    std::thread::spawn(move || {
        let mut datagram = [0; 2000];
        while let Ok((len, from)) = front_too.recv_from(&mut datagram) {
            *client_too.lock().unwrap() = Some(from);
            if !drops_too(true, &datagram[..len], &front_too, from) {
                let _ = back_too.send(&datagram[..len]);
            }
        }
    });
    std::thread::spawn(move || {
        let mut datagram = [0; 2000];
        loop {
            // A server that has ended refuses datagrams.
            let Ok(len) = back.recv(&mut datagram) else { continue };
            let Some(to) = *client.lock().unwrap() else { continue };
            if !drops(false, &datagram[..len], &front, to) {
                let _ = front.send_to(&datagram[..len], to);
            }
        }
    });
    address
}

#[tokio::test]
async fn a_notification_that_is_lost_is_sent_again() {
    let world = World::new("lost");
    let lost = Arc::new(AtomicUsize::new(0));
    // Each notification is lost once.
    let loses = |lost: &Arc<AtomicUsize>| {
        let (lost, seen) = (lost.clone(), Mutex::new(Vec::new()));
        move |is_request: bool, datagram: &[u8], _: &UdpSocket, _| {
            let message = MessageRef::parse(datagram).unwrap();
            let is_notification = !is_request && message.uint(OptionNumber::OBSERVE).is_some();
            let is_first = !seen.lock().unwrap().contains(&message.message_id());
            if is_notification && is_first {
                seen.lock().unwrap().push(message.message_id());
                lost.fetch_add(1, Relaxed);
            }
            is_notification && is_first
        }
    };
    let origin = lossy(world.address(), loses(&lost));
    let front = lossy(world.server.addresses()[0].address, loses(&lost));
    let (client, writer) = (world.client(0, front).await, world.direct(1).await);
    let mut observation = client.get("/value").options(&to(origin)).observe().await.unwrap();
    assert_eq!(next(&mut observation).await, "0");
    for value in ["1", "2"] {
        put(&writer, &to(world.address()), value).await;
        assert_eq!(next(&mut observation).await, value);
    }
    assert!(lost.load(Relaxed) >= 6, "{lost:?}");
}

/// The registrations that the server in front of the origin received. Each entry has the ciphertext, and true if the
/// registration had an Echo option that OSCORE does not protect.
type Registrations = Arc<Mutex<Vec<(Vec<u8>, bool)>>>;

/// Starts a server in front of the origin. The server answers the first `challenges` registrations with an Echo
/// challenge, and passes all later registrations to the origin. `seen` receives all registrations.
fn challenging(origin: SocketAddr, challenges: usize, seen: &Registrations) -> SocketAddr {
    let seen = seen.clone();
    lossy(origin, move |is_request, datagram, front, from| {
        let message = MessageRef::parse(datagram).unwrap();
        if !is_request || message.option(OptionNumber::OSCORE).is_none() {
            return false;
        }
        let mut seen = seen.lock().unwrap();
        seen.push((message.payload().to_vec(), message.option(OptionNumber::ECHO).is_some()));
        let is_challenged = seen.len() <= challenges;
        if is_challenged {
            let options: &[(OptionNumber, &[u8])] = &[(OptionNumber::ECHO, b"challenge")];
            let head = (MessageType::Acknowledgement, Code::UNAUTHORIZED);
            front.send_to(&written(head, message.message_id(), message.token(), options, b""), from).unwrap();
        }
        is_challenged
    })
}

fn written(
    (message_type, code): (MessageType, Code),
    id: u16,
    token: &[u8],
    options: &[(OptionNumber, &[u8])],
    payload: &[u8],
) -> Vec<u8> {
    let mut storage = [0; 300];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, message_type, code, id, token).unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

#[tokio::test]
async fn a_challenge_outside_is_answered_with_the_same_bytes_before_the_origin_opens_them() {
    let (world, seen) = (World::new("echo"), Registrations::default());
    let options = to(challenging(world.address(), 1, &seen));
    let client = world.direct(0).await;
    let mut observation = client.get("/value").options(&options).observe().await.unwrap();
    assert!(observation.is_registered());
    assert_eq!(next(&mut observation).await, "0");
    put(&world.direct(1).await, &to(world.address()), "1").await;
    assert_eq!(next(&mut observation).await, "1");
    let seen = seen.lock().unwrap();
    let [(first, without), (second, with)] = seen.as_slice() else { panic!("{} registrations", seen.len()) };
    assert_eq!((first, without, with), (second, &false, &true));
}

#[tokio::test]
async fn an_origin_that_challenges_without_end_is_left_alone() {
    let (world, seen) = (World::new("endless"), Registrations::default());
    let options = to(challenging(world.address(), usize::MAX, &seen));
    let client = world.direct(0).await;
    assert!(client.get("/value").options(&options).observe().await.is_err());
    world.follows(0).await;
    assert!(seen.lock().unwrap().len() < 10);
    assert_eq!(world.origin.totals().observations, 0);
}

/// A client that builds its messages itself.
struct Raw {
    socket: UdpSocket,
    id: u16,
}

impl Raw {
    fn new(server: &Server) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.addresses()[0].address).unwrap();
        Self { socket, id: 0 }
    }

    /// Sends a request with this value of Observe, which registers or ends an observation. The bytes in `ciphertext`
    /// are the payload. Returns the response.
    fn observe(&mut self, origin: SocketAddr, token: &[u8], observe: &[u8], ciphertext: &[u8]) -> Received {
        self.id += 1;
        let (host, port) = (origin.ip().to_string(), origin.port().to_be_bytes());
        let options: [(OptionNumber, &[u8]); 5] = [
            (OptionNumber::URI_HOST, host.as_bytes()),
            (OptionNumber::OBSERVE, observe),
            (OptionNumber::URI_PORT, &port),
            (OptionNumber::OSCORE, &[9, 1, 7]),
            (OptionNumber::PROXY_SCHEME, b"coap"),
        ];
        let head = (MessageType::Confirmable, Code::FETCH);
        self.socket.send(&written(head, self.id, token, &options, ciphertext)).unwrap();
        self.receive()
    }

    /// Returns the next response, and acknowledges it.
    fn receive(&mut self) -> Received {
        let mut datagram = [0; 1500];
        loop {
            let len = self.socket.recv(&mut datagram).unwrap();
            let message = MessageRef::parse(&datagram[..len]).unwrap();
            if !message.code().is_response() {
                continue;
            }
            if message.message_type() == MessageType::Confirmable {
                let reply = empty_message(MessageType::Acknowledgement, message.message_id());
                self.socket.send(&reply).unwrap();
            }
            let observes = message.option(OptionNumber::OBSERVE).is_some();
            return Received { code: message.code(), observes, payload: message.payload().to_vec() };
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Received {
    code: Code,
    observes: bool,
    payload: Vec<u8>,
}

/// A request as an origin receives it: the value of Observe, the token, and the ciphertext.
type Asked = (Option<u32>, Vec<u8>, Vec<u8>);

/// Starts an origin without keys, which accepts every observation.
fn keyless(asked: &Arc<Mutex<Vec<Asked>>>) -> SocketAddr {
    keyless_that(asked, |_| true)
}

/// Starts an origin without keys, which answers each request with the number of the request. `observes` decides by this
/// number whether the origin accepts an observation.
fn keyless_that(asked: &Arc<Mutex<Vec<Asked>>>, observes: impl Fn(u8) -> bool + Send + 'static) -> SocketAddr {
    let (socket, asked) = (UdpSocket::bind("127.0.0.1:0").unwrap(), asked.clone());
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let request = MessageRef::parse(&datagram[..len]).unwrap();
            if !request.code().is_request() {
                continue;
            }
            let observe = request.uint(OptionNumber::OBSERVE);
            let mut asked = asked.lock().unwrap();
            asked.push((observe, request.token().to_vec(), request.payload().to_vec()));
            let number = [asked.len() as u8];
            let options: &[(OptionNumber, &[u8])] = match observe {
                Some(0) if observes(number[0]) => &[(OptionNumber::OBSERVE, &[5]), (OptionNumber::OSCORE, &[])],
                _ => &[(OptionNumber::OSCORE, &[])],
            };
            // An origin that has no 2.04 outside.
            let head = (MessageType::Acknowledgement, Code::CONTENT);
            socket.send_to(&written(head, request.message_id(), request.token(), options, &number), from).unwrap();
        }
    });
    address
}

#[test]
fn a_repeated_registration_joins_and_a_replay_of_another_client_does_not() {
    let (world, asked) = (World::new("joins"), Arc::default());
    let origin = keyless(&asked);
    let mut client = Raw::new(&world.server);
    let first = client.observe(origin, b"t", &[], b"ciphertext");
    assert_eq!(first, Received { code: Code::CONTENT, observes: true, payload: vec![1] });
    assert_eq!(client.observe(origin, b"t", &[], b"ciphertext"), first);
    assert_eq!(asked.lock().unwrap().len(), 1);
    // The origin refuses a replay, so it receives it.
    let mut other = Raw::new(&world.server);
    let replayed = other.observe(origin, b"t", &[], b"ciphertext");
    assert_eq!(replayed, Received { code: Code::CONTENT, observes: false, payload: vec![2] });
    assert_eq!(asked.lock().unwrap()[1].0, None);
    assert_eq!(world.proxy.counts().observations, 1);
    // Another ciphertext is another observation.
    let further = other.observe(origin, b"u", &[], b"another one");
    assert_eq!(further, Received { code: Code::CONTENT, observes: true, payload: vec![3] });
    assert_eq!(world.proxy.counts().observations, 2);
}

#[tokio::test]
async fn the_request_that_ends_an_observation_reaches_the_origin_with_the_token_of_the_registration() {
    let (world, asked) = (World::new("ends"), Arc::default());
    let origin = keyless(&asked);
    let mut client = Raw::new(&world.server);
    client.observe(origin, b"t", &[], b"registers");
    let ended = client.observe(origin, b"t", &[1], b"ends");
    assert_eq!((ended.observes, ended.payload), (false, vec![2]));
    {
        let asked = asked.lock().unwrap();
        let [(begin, token, _), (end, same, ciphertext)] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!((begin, end, token, ciphertext.as_slice()), (&Some(0), &Some(1), same, &b"ends"[..]));
    }
    world.follows(0).await;
    // Where nothing is observed, it is a request as any other.
    client.observe(origin, b"t", &[1], b"ends again");
    assert_eq!(asked.lock().unwrap()[2].0, None);
}

#[tokio::test]
async fn a_request_that_ends_an_observation_at_another_origin_goes_to_that_origin() {
    let (world, [first, second]) = (World::new("another"), [Arc::default(), Arc::default()]);
    let (origin, another) = (keyless(&first), keyless(&second));
    let mut client = Raw::new(&world.server);
    client.observe(origin, b"t", &[], b"registers");
    let ended = client.observe(another, b"t", &[1], b"ends");
    assert_eq!((ended.observes, ended.payload), (false, vec![1]));
    assert_eq!([first.lock().unwrap().len(), second.lock().unwrap().len()], [1, 1]);
    assert_eq!(second.lock().unwrap()[0].0, None);
    // The client has no observation with this token any more (RFC 7641, section 4.1), so the proxy ends its own.
    world.follows(0).await;
}

#[tokio::test]
async fn a_registration_again_replaces_the_one_before() {
    let (world, asked) = (World::new("again"), Arc::default());
    let origin = keyless(&asked);
    let mut client = Raw::new(&world.server);
    for (number, ciphertext) in (1..).zip([b"one", b"two", b"six"]) {
        let registered = client.observe(origin, b"t", &[], ciphertext);
        assert_eq!(registered, Received { code: Code::CONTENT, observes: true, payload: vec![number] });
        world.follows(1).await;
    }
}

#[tokio::test]
async fn a_response_without_observe_has_the_code_of_one_outside() {
    let (world, asked) = (World::new("code"), Arc::default());
    let origin = keyless_that(&asked, |_| false);
    let response = Raw::new(&world.server).observe(origin, b"t", &[], b"registers");
    assert_eq!(response, Received { code: Code::CHANGED, observes: false, payload: vec![1] });
    world.follows(0).await;
}

/// A server that has lost its replay window answers the first registration of a client with Echo (RFC 8613, appendix
/// B.1.2). The client then registers again with the same token, as in this test.
#[tokio::test]
async fn a_client_registers_with_the_same_token_after_a_response_without_observe() {
    let (world, asked) = (World::new("proof"), Arc::default());
    let origin = keyless_that(&asked, |number| number > 1);
    let mut client = Raw::new(&world.server);
    let challenge = client.observe(origin, b"t", &[], b"registers");
    assert_eq!(challenge, Received { code: Code::CHANGED, observes: false, payload: vec![1] });
    let registered = client.observe(origin, b"t", &[], b"with the Echo");
    assert_eq!(registered, Received { code: Code::CONTENT, observes: true, payload: vec![2] });
    world.follows(1).await;
}

#[tokio::test]
async fn behind_its_bounds_the_proxy_refuses_a_registration() {
    // Without Observe outside it would be a registration at the origin all the same (RFC 8613, section 4.1.3.5.1).
    for (name, of_client, most) in [("client", 1, 8), ("all", 8, 1)] {
        let change = |config: &mut ProxyConfig| {
            config.protected_observations = of_client;
            config.max_open = most;
        };
        let (world, asked) = (World::with(name, change), Arc::default());
        let origin = keyless(&asked);
        let (mut client, mut other) = (Raw::new(&world.server), Raw::new(&world.server));
        assert!(client.observe(origin, b"t", &[], b"first").observes);
        let refused = other.observe(origin, b"u", &[], b"second");
        assert_eq!(
            refused,
            Received { code: Code::SERVICE_UNAVAILABLE, observes: false, payload: Vec::new() },
            "{name}"
        );
        assert_eq!(asked.lock().unwrap().len(), 1);
        // There is space for another one once the first has ended.
        client.observe(origin, b"t", &[1], b"ends");
        world.follows(0).await;
        assert!(other.observe(origin, b"u", &[], b"third").observes, "{name}");
    }
}

#[test]
fn a_registration_that_the_table_of_observers_has_no_space_for_is_refused() {
    let (world, asked) = (World::with("table", |config| config.protected_observations = 64), Arc::default());
    let origin = keyless(&asked);
    let mut client = Raw::new(&world.server);
    let mut codes = (0..20_u8).map(|token| client.observe(origin, &[token], &[], &[token, 7, 7, 7, 7, 7, 7, 7]).code);
    assert!(codes.by_ref().take(16).all(|code| code == Code::CONTENT));
    assert!(codes.all(|code| code == Code::SERVICE_UNAVAILABLE));
    assert_eq!(asked.lock().unwrap().len(), 16);
}
