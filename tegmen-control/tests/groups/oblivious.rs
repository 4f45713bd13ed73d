//! A test that serves one handler with every kind of protection. Only the settings of the server differ.
#![cfg(target_os = "linux")]

use super::members::Network;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::crypto::Curve;
use tegmen::identity::{Identity, Protection};
use tegmen::oscore::Aead;
use tegmen_host::client::{ClientConfig, Request, Session, ask_members, ask_oscore_group};
use tegmen_host::contexts::{self, ContextFile, Contexts, create_group};
use tegmen_host::credentials::Credentials;
use tegmen_host::edhoc::{EdhocKeys, EdhocPeer, EdhocServer, Transfer, create_key, read_key};
use tegmen_host::group::Group;
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

/// Makes the handler. Its response depends only on the payload. It also records the identity of each sender in `seen`,
/// for the test.
fn light(seen: &Arc<Mutex<Vec<Identity>>>) -> Router {
    let seen = seen.clone();
    Router::new().put("/light", move |request, response| {
        seen.lock().unwrap().push(*request.identity());
        response.payload(&[b"the light is ", request.payload()].concat())
    })
}

fn context(client: &Path, server: &Path) {
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
    contexts::create(client, &context).unwrap();
    contexts::create(server, &context.mirrored()).unwrap();
}

const KEY: &[u8] = b"0123456789abcdef";

/// Sends a request in a new session, and returns the payload of the response.
async fn ask(address: SocketAddr, scheme: Scheme, config: ClientConfig) -> Vec<u8> {
    let session = Session::connect_to(address, scheme, config).await.unwrap();
    let response = session.put("/light", b"on").await.unwrap();
    assert_eq!(response.code, Code::CONTENT);
    response.payload
}

#[tokio::test]
async fn one_handler_serves_under_every_protection() {
    let network = Network::over_v4("oblivious", "239.255.77.12:20782", None).await;
    let membership = network.join("hall", 1, false).await;
    let dir = |name: &str| network.dir(name);
    context(&dir("client"), &dir("context"));
    create_group(&dir("lights"), &["switch", "hall"].map(str::to_owned), Curve::Ed25519, &BTreeMap::new(), None)
        .unwrap();
    let crypto = &mut HostCrypto::from_os().unwrap();
    let key = |crypto: &mut HostCrypto, name: &str, kid: u8| {
        create_key(crypto, &dir(name), name, &[kid], Transfer::ByReference).unwrap()
    };
    let (switch, lamp) = (key(crypto, "switch.edhoc", 1), key(crypto, "lamp.edhoc", 2));

    let credentials = Credentials::single("switch", KEY);
    let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
    let peer = EdhocPeer { name: "switch by EDHOC".to_owned(), credential: switch, allow: None };
    let edhoc = EdhocServer::new(read_key(&dir("lamp.edhoc")).unwrap(), vec![peer], learn).unwrap();
    let mut config = ServerConfig::default();
    (config.shards, config.coap.leisure) = (1, Duration::from_millis(50));
    let lights: Group = "239.255.77.13%127.0.0.1".parse().unwrap();
    config.groups = vec![lights.clone()];
    let builder = Server::with(config).listen("coap://127.0.0.1:0").listen("coaps://127.0.0.1:0").allow_plain();
    let builder = builder.oscore(Contexts::open(&[dir("context"), dir("lights/hall")], learn).unwrap()).edhoc(edhoc);
    let seen = Arc::<Mutex<Vec<Identity>>>::default();
    let server = builder.member_of(membership.clone()).credentials(credentials.clone()).serve(light(&seen)).unwrap();
    let [plain, secure] = [Scheme::Coap, Scheme::Coaps]
        .map(|scheme| server.addresses().iter().find(|listen| listen.scheme == scheme).unwrap().address);

    let clear = ClientConfig::default();
    let oscore = clear.clone().with(|config| config.oscore = Some(dir("client")));
    let pairwise = clear.clone().with(|config| config.oscore = Some(dir("lights/switch")));
    let agreeing = clear.clone().with(|config| {
        let identity = read_key(&dir("switch.edhoc")).unwrap();
        config.edhoc = Some(Arc::new(EdhocKeys { identity, trusted: vec![lamp], combined: true }));
    });
    let answers = [
        ask(plain, Scheme::Coap, clear).await,
        ask(secure, Scheme::Coaps, ClientConfig::psk("switch", KEY)).await,
        ask(plain, Scheme::Coap, oscore).await,
        ask(plain, Scheme::Coap, agreeing).await,
        ask(plain, Scheme::Coap, pairwise).await,
    ];
    let request = Request::new(Code::PUT, "/light").payload(b"on");
    let mut answers = Vec::from(answers);
    let (wait, port) = (Duration::from_millis(500), plain.port());
    let switch = dir("lights/switch");
    let asked = ask_oscore_group(&switch, (&lights, port), &request, wait, |_, _, response| {
        answers.push(response.payload);
    });
    asked.await.unwrap();
    assert_eq!(answers.len(), 6);
    for answer in answers {
        assert_eq!(answer, b"the light is on");
    }

    let sender = network.join("switch", 9, true).await;
    network.send_to_members();
    let mut answers = Vec::new();
    // The member may have to hear the rekey message first.
    for _ in 0..20 {
        let wait = Duration::from_millis(300);
        ask_members(&sender, &request, wait, |_, response| answers.push(response.payload)).await.unwrap();
        if !answers.is_empty() {
            break;
        }
        network.controller("hall").catch_up(&membership).await.unwrap();
    }
    assert_eq!(answers.first().map(Vec::as_slice), Some(&b"the light is on"[..]));

    let protections: Vec<&str> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|identity| match identity.protection {
            Protection::Plain => "plain",
            Protection::Dtls => "DTLS",
            Protection::Oscore => "OSCORE",
            _ => "group",
        })
        .collect();
    assert!(
        protections.starts_with(&["plain", "DTLS", "OSCORE", "OSCORE", "OSCORE", "OSCORE", "group"]),
        "{protections:?}"
    );
    let name = |number: usize| credentials.name_of(seen.lock().unwrap()[number].principal);
    let names = [name(1), name(2), name(3), name(4), name(5)].map(Option::unwrap);
    assert_eq!(names, ["switch", "context", "switch by EDHOC", "lights/switch", "lights/switch"]);
    server.stop();
}
