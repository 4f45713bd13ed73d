//! Tests clients and servers that agree on OSCORE contexts by EDHOC (RFC 9528), and the combined request (RFC 9668).

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen::crypto::Crypto as _;
use tegmen::identity::Principal;
use tegmen_host::client::{ClientConfig, ClientError, Session, Tap, Tapped};
use tegmen_host::credentials::Credentials;
use tegmen_host::edhoc::{self, Credential, EdhocKeys, EdhocPeer, EdhocServer, EdhocTotals, TokenPeer, Transfer};
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Router, Server};
use tegmen_host::uri::Scheme;

/// A directory with keys, which is removed at the end, and the datagrams between the client and the server.
struct Scene {
    dir: PathBuf,
    wire: Arc<Mutex<Vec<Passed>>>,
    /// The refusals that the server reported.
    refused: Arc<Mutex<Vec<String>>>,
}

/// A datagram. The first value is true if the client sent it.
type Passed = (bool, Vec<u8>);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-edhoc-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir, wire: Arc::default(), refused: Arc::default() }
    }

    fn key(&self, name: &str, transfer: Transfer) -> Credential {
        let mut kid = [0; 3];
        HostCrypto::from_os().unwrap().random(&mut kid);
        self.key_of(name, &kid, transfer)
    }

    fn key_of(&self, name: &str, kid: &[u8], transfer: Transfer) -> Credential {
        let mut crypto = HostCrypto::from_os().unwrap();
        edhoc::create_key(&mut crypto, &self.dir.join(name), name, kid, transfer).unwrap()
    }

    fn identity(&self, name: &str) -> edhoc::Identity {
        edhoc::read_key(&self.dir.join(name)).unwrap()
    }

    /// Starts a server with the key of this name, which accepts these clients with their rights.
    fn serve(
        &self,
        name: &str,
        clients: &[(&str, Credential, &str)],
        address: &str,
    ) -> (Server, EdhocServer, SocketAddr) {
        let credentials = Credentials::default();
        let peers = clients.iter().map(|(name, credential, rule)| EdhocPeer {
            name: (*name).to_owned(),
            credential: *credential,
            allow: Some(vec![(*rule).to_owned()]),
        });
        let edhoc =
            EdhocServer::new(self.identity(name), peers.collect(), |name, allow| credentials.learn(name, allow))
                .unwrap();
        let refused = self.refused.clone();
        let builder = Server::builder().listen(address).shards(2).edhoc(edhoc.clone()).on_event(move |event| {
            if matches!(event, Event::EdhocRefused { .. } | Event::OscoreRefused { .. }) {
                refused.lock().unwrap().push(event.to_string());
            }
        });
        let resources = Resources::new([
            ("value".to_owned(), Resource::value(b"first")),
            ("other".to_owned(), Resource::value(b"2")),
        ]);
        let server = builder.credentials(credentials).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        (server, edhoc, address)
    }

    fn config(&self, name: &str, trusted: &[Credential], combined: bool) -> ClientConfig {
        let wire = self.wire.clone();
        let tap = Tap(Arc::new(move |tapped| {
            if let Tapped::Datagram { sent, datagram, .. } = tapped {
                wire.lock().unwrap().push((sent, datagram.to_vec()));
            }
        }));
        let keys = EdhocKeys { identity: self.identity(name), trusted: trusted.to_vec(), combined };
        ClientConfig::default().with(|config| {
            config.edhoc = Some(Arc::new(keys));
            config.log.tap = Some(tap);
        })
    }

    /// Returns the requests since the last call: true if the request has the OSCORE option, and true if it has the
    /// EDHOC option.
    fn requests(&self) -> Vec<(bool, bool)> {
        let passed = std::mem::take(&mut *self.wire.lock().unwrap());
        let has = |datagram: &[u8], number| MessageRef::parse(datagram).unwrap().option(OptionNumber(number)).is_some();
        passed.iter().filter(|(sent, _)| *sent).map(|(_, datagram)| (has(datagram, 9), has(datagram, 21))).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const ANYWHERE: &str = "coap://127.0.0.1:0";

async fn connect(address: SocketAddr, config: ClientConfig) -> Session {
    Session::connect_to(address, Scheme::Coap, config).await.unwrap()
}

#[tokio::test]
async fn a_client_agrees_before_its_first_request() {
    let scene = Scene::new("agrees");
    for transfer in [Transfer::ByReference, Transfer::ByValue] {
        let (meter, gateway) = (format!("meter-{transfer:?}"), format!("gateway-{transfer:?}"));
        let (client, server) = (scene.key(&meter, transfer), scene.key(&gateway, transfer));
        let (_server, edhoc, address) = scene.serve(&gateway, &[(&meter, client, "GET /value")], ANYWHERE);
        for combined in [false, true] {
            let session = connect(address, scene.config(&meter, &[server], combined)).await;
            let response = session.get("/value").await.unwrap();
            assert_eq!((response.code, &response.payload[..]), (Code::CONTENT, &b"first"[..]));
            // message_1, message_3 by itself or in the first request, and further requests without it.
            let third = if combined { vec![(true, true)] } else { vec![(false, false), (true, false)] };
            assert_eq!(scene.requests(), [vec![(false, false)], third].concat());
            session.get("/value").await.unwrap();
            assert_eq!(scene.requests(), [(true, false)]);
            // Rights are those of the peer whose credential was proved.
            assert_eq!(session.get("/other").await.unwrap().code, Code::FORBIDDEN);
            scene.requests();
        }
        assert_eq!(edhoc.totals().agreed, 2);
    }
}

#[tokio::test]
async fn an_unknown_client_is_told_so() {
    let scene = Scene::new("unknown");
    let (stranger, server) =
        (scene.key("stranger", Transfer::ByReference), scene.key("gateway", Transfer::ByReference));
    let known = scene.key("known", Transfer::ByReference);
    assert_ne!(stranger.as_bytes(), known.as_bytes());
    let (_server, edhoc, address) = scene.serve("gateway", &[("known", known, "GET /*")], ANYWHERE);
    for combined in [false, true] {
        let session = connect(address, scene.config("stranger", &[server], combined)).await;
        let error = session.get("/value").await.unwrap_err();
        assert!(matches!(error, ClientError::Edhoc { .. }), "{error}");
        assert!(error.to_string().contains("does not know our credential"), "{error}");
        let reported = std::mem::take(&mut *scene.refused.lock().unwrap());
        assert!(
            matches!(&reported[..], [one] if one.contains("credential of the client is not known")),
            "{reported:?}"
        );
    }
    assert_eq!(edhoc.totals(), EdhocTotals { agreed: 0, refused: 2 });
}

/// The operator removes a client, gives another one fewer rights, and does not change a third one.
#[tokio::test]
async fn a_client_that_is_removed_from_the_file_of_clients_is_refused_at_once() {
    let scene = Scene::new("removed");
    let server = scene.key("gateway", Transfer::ByReference);
    let names = ["removed", "changed", "same"];
    let keys = names.map(|name| scene.key(name, Transfer::ByReference));
    let peer = |at: usize, rule: &str| EdhocPeer {
        name: names[at].to_owned(),
        credential: keys[at],
        allow: Some(vec![rule.to_owned()]),
    };
    let credentials = Credentials::default();
    let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
    let peers = vec![peer(0, "GET /*"), peer(1, "GET /*"), peer(2, "GET /*")];
    let edhoc = EdhocServer::new(scene.identity("gateway"), peers, learn).unwrap();
    let builder = Server::builder().listen(ANYWHERE).shards(1).edhoc(edhoc.clone()).on_event(|_| ());
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    let running = builder.credentials(credentials.clone()).serve(resources).unwrap();
    let address = running.addresses()[0].address;
    let mut sessions = Vec::new();
    for name in names {
        let session = connect(address, scene.config(name, &[server], true)).await;
        assert_eq!(session.get("/value").await.unwrap().code, Code::CONTENT);
        sessions.push(session);
    }
    edhoc.set_peers(vec![peer(1, "PUT /*"), peer(2, "GET /*")], &credentials);
    // The client runs EDHOC again, because the server no longer knows the context.
    let removed = sessions[0].get("/value").await.unwrap_err();
    assert!(removed.to_string().contains("does not know our credential"), "{removed}");
    assert_eq!(sessions[1].get("/value").await.unwrap().code, Code::FORBIDDEN);
    assert_eq!(edhoc.totals().agreed, 4);
    assert_eq!(sessions[2].get("/value").await.unwrap().code, Code::CONTENT);
    assert_eq!(edhoc.totals().agreed, 4, "its context continues");
}

/// Clients choose their kids. Each client has its session, also if another client has the same kid.
#[tokio::test]
async fn clients_with_one_kid_have_sessions_of_their_own() {
    let scene = Scene::new("one-kid");
    let server = scene.key("gateway", Transfer::ByReference);
    let clients = ["meter", "lamp", "door"].map(|name| (name, scene.key_of(name, b"kid", Transfer::ByReference)));
    let [meter, lamp, door] = clients;
    let (_server, edhoc, address) = scene.serve("gateway", &[(meter.0, meter.1, "GET /value")], ANYWHERE);
    let posted = [(lamp, Principal(71)), (door, Principal(72))];
    edhoc.accept_tokens(Box::new(move |id| {
        let named = posted.iter().filter(|((_, credential), _)| credential.is_meant_by(id));
        let peers = named.map(|((client, credential), principal)| TokenPeer {
            credential: *credential,
            client: (*client).to_owned(),
            principal: *principal,
            lifetime: Duration::from_secs(60),
        });
        peers.collect::<Vec<_>>()
    }));
    for (name, _) in clients {
        for combined in [false, true] {
            let session = connect(address, scene.config(name, &[server], combined)).await;
            assert!(session.get("/value").await.is_ok(), "{name}");
        }
    }
    let principals = edhoc.contexts().principals();
    assert!(posted.iter().all(|(_, principal)| principals.contains(principal)) && principals.len() == 3);
    assert_eq!(edhoc.totals(), EdhocTotals { agreed: 6, refused: 0 });
}

/// A client tries each credential with the kid of a server (RFC 9528, section 3.5.3).
#[tokio::test]
async fn servers_with_one_kid_have_sessions_of_their_own() {
    let scene = Scene::new("one-kid-of-servers");
    let client = scene.key("meter", Transfer::ByReference);
    let names = ["gateway", "spare"];
    let servers = names.map(|name| scene.key_of(name, b"kid", Transfer::ByReference));
    for name in names {
        let (_server, _, address) = scene.serve(name, &[("meter", client, "GET /value")], ANYWHERE);
        let session = connect(address, scene.config("meter", &servers, true)).await;
        assert!(session.get("/value").await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_request() {
    let scene = Scene::new("untrusted");
    let client = scene.key("meter", Transfer::ByReference);
    scene.key("gateway", Transfer::ByReference);
    let other = scene.key("other", Transfer::ByReference);
    let (_server, edhoc, address) = scene.serve("gateway", &[("meter", client, "GET /*")], ANYWHERE);
    let session = connect(address, scene.config("meter", &[other], true)).await;
    let error = session.get("/value").await.unwrap_err();
    assert!(error.to_string().contains("none of those that are trusted"), "{error}");
    assert_eq!(scene.requests(), [(false, false)]);
    assert_eq!(edhoc.totals().agreed, 0);
}

#[tokio::test]
async fn a_client_agrees_again_with_a_server_that_restarted() {
    let scene = Scene::new("restarted");
    let (client, server) = (scene.key("meter", Transfer::ByReference), scene.key("gateway", Transfer::ByReference));
    let clients = [("meter", client, "GET /value")];
    let (first, _, address) = scene.serve("gateway", &clients, ANYWHERE);
    for combined in [false, true] {
        let session = connect(address, scene.config("meter", &[server], combined)).await;
        session.get("/value").await.unwrap();
        assert!(scene.requests().len() >= 2);
        drop(session);
    }
    let session = connect(address, scene.config("meter", &[server], true)).await;
    session.get("/value").await.unwrap();
    first.stop();
    let (_second, edhoc, _) = scene.serve("gateway", &clients, &format!("coap://{address}"));
    assert_eq!(session.get("/value").await.unwrap().code, Code::CONTENT);
    assert_eq!(edhoc.totals().agreed, 1);
}

/// Sends a datagram and returns the response.
fn ask(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    socket.send_to(request, address).unwrap();
    let mut storage = [0; 1500];
    let len = socket.recv(&mut storage).unwrap();
    storage[..len].to_vec()
}

/// An attacker that repeats a combined request from another address gets neither a context nor the response.
#[tokio::test]
async fn a_combined_request_is_executed_once() {
    let scene = Scene::new("repeated");
    let (client, server) = (scene.key("meter", Transfer::ByReference), scene.key("gateway", Transfer::ByReference));
    let (_server, edhoc, address) = scene.serve("gateway", &[("meter", client, "PUT /value")], ANYWHERE);
    let session = connect(address, scene.config("meter", &[server], true)).await;
    assert_eq!(session.put("/value", b"second").await.unwrap().code, Code::CHANGED);
    let sent = scene.wire.lock().unwrap().clone();
    let combined = sent.iter().filter(|(sent, _)| *sent).nth(1).unwrap().1.clone();
    let answer = tokio::task::spawn_blocking(move || ask(address, &combined)).await.unwrap();
    let answer = MessageRef::parse(&answer).unwrap();
    assert_eq!(answer.code(), Code::BAD_REQUEST);
    assert_eq!(answer.uint(OptionNumber::CONTENT_FORMAT), Some(64));
    assert_eq!(edhoc.totals().agreed, 1);
}

#[tokio::test]
async fn requests_that_are_no_messages_get_the_answers_of_the_rfc() {
    let scene = Scene::new("malformed");
    scene.key("gateway", Transfer::ByReference);
    let (_server, _edhoc, address) = scene.serve("gateway", &[], ANYWHERE);
    let request = |code: Code, payload: &[u8]| {
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 7, &[1]).unwrap();
        builder.option(OptionNumber::URI_PATH, b".well-known").unwrap();
        builder.option(OptionNumber::URI_PATH, b"edhoc").unwrap();
        builder.payload(payload).unwrap();
        frame.bytes().to_vec()
    };
    let cases: [(Code, &[u8], Code, &[u8]); 5] = [
        (Code::POST, &[], Code::BAD_REQUEST, &[1]),
        (Code::POST, &[0xf5], Code::BAD_REQUEST, &[1]),
        // Cipher suite 0 alone: SUITES_R is 2.
        (Code::POST, &[&[0xf5, 3, 0, 0x58, 0x20][..], &[1; 32], &[5]].concat(), Code::BAD_REQUEST, &[2, 2]),
        // No session has this identifier.
        (Code::POST, &[0x07, 0x48, 1, 2, 3, 4, 5, 6, 7, 8], Code::BAD_REQUEST, &[1]),
        (Code::GET, &[], Code::UNAUTHORIZED, &[]),
    ];
    for (code, payload, expected, error) in cases {
        let request = request(code, payload);
        let answer = tokio::task::spawn_blocking(move || ask(address, &request)).await.unwrap();
        let answer = MessageRef::parse(&answer).unwrap();
        assert_eq!(answer.code(), expected, "{payload:02x?}");
        assert!(answer.payload().starts_with(error), "{payload:02x?}: {:02x?}", answer.payload());
    }
}

#[tokio::test]
async fn a_peer_keeps_few_contexts_and_takes_none_from_others() {
    let scene = Scene::new("many");
    let (client, server) = (scene.key("meter", Transfer::ByReference), scene.key("gateway", Transfer::ByReference));
    let other = scene.key("other", Transfer::ByReference);
    let clients = [("meter", client, "GET /value"), ("other", other, "GET /value")];
    let (_server, edhoc, address) = scene.serve("gateway", &clients, ANYWHERE);
    let of_other = connect(address, scene.config("other", &[server], true)).await;
    of_other.get("/value").await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..9 {
        let session = connect(address, scene.config("meter", &[server], true)).await;
        session.get("/value").await.unwrap();
        sessions.push(session);
    }
    assert_eq!(edhoc.totals().agreed, 10);
    // The context of another peer, and the newest ones.
    of_other.get("/value").await.unwrap();
    sessions[8].get("/value").await.unwrap();
    sessions[1].get("/value").await.unwrap();
    assert_eq!(edhoc.totals().agreed, 10);
    // The oldest one is gone: its client agrees again.
    sessions[0].get("/value").await.unwrap();
    assert_eq!(edhoc.totals().agreed, 11);
}

/// Passes datagrams between one client and a server. While `attacks` is true, it replaces each response by a forged
/// 4.01 in clear.
fn relay(server: SocketAddr, attacks: Arc<AtomicBool>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut client) = ([0; 1500], None);
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let datagram = buffer[..len].to_vec();
            let Some(to) = (if from == server { client } else { Some(server) }) else { continue };
            if from != server {
                client = Some(from);
            }
            let is_response =
                from == server && MessageRef::parse(&datagram).is_ok_and(|message| message.code().is_response());
            let sent = if is_response && attacks.swap(false, Ordering::Relaxed) {
                let token_len = usize::from(datagram[0] & 15);
                [&[0x60 | datagram[0] & 15, 0x81], &datagram[2..4 + token_len]].concat()
            } else {
                datagram
            };
            socket.send_to(&sent, to).unwrap();
        }
    });
    address
}

/// An attacker on the path holds the response back, and answers 4.01 in clear. The server nevertheless does not execute
/// the request twice.
#[tokio::test]
async fn a_forged_refusal_repeats_no_request_that_is_not_idempotent() {
    let scene = Scene::new("forged");
    let (client, server) = (scene.key("meter", Transfer::ByReference), scene.key("gateway", Transfer::ByReference));
    let executed = Arc::new(AtomicU32::new(0));
    let credentials = Credentials::default();
    let peer = EdhocPeer { name: "meter".to_owned(), credential: client, allow: None };
    let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
    let edhoc = EdhocServer::new(scene.identity("gateway"), vec![peer], learn).unwrap();
    let counter = executed.clone();
    let router = Router::new().on(Code::POST, "/count", move |_, response| {
        response.payload(&[counter.fetch_add(1, Ordering::Relaxed) as u8])
    });
    let router = router.get("/count", |_, response| response.payload(b"read"));
    let running =
        Server::builder().listen(ANYWHERE).shards(1).edhoc(edhoc).credentials(credentials).serve(router).unwrap();
    let attacks = Arc::new(AtomicBool::new(false));
    let address = relay(running.addresses()[0].address, attacks.clone());

    let session = connect(address, scene.config("meter", &[server], true)).await;
    session.get("/count").await.unwrap();
    attacks.store(true, Ordering::Relaxed);
    let error = session.post("/count", b"").await.unwrap_err();
    assert!(error.to_string().contains("4.01"), "{error}");
    assert_eq!(executed.load(Ordering::Relaxed), 1);
    // The next request agrees again, and one that may be repeated is.
    session.post("/count", b"").await.unwrap();
    attacks.store(true, Ordering::Relaxed);
    assert_eq!(session.get("/count").await.unwrap().payload, b"read");
    assert_eq!(executed.load(Ordering::Relaxed), 2);
}
