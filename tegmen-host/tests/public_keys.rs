//! Tests a server and its clients with certificates and raw public keys, over real sockets on the loopback interface.

mod test_ca;

use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::dtls::{CipherSuite, ClientAuthentication, Suites};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Endpoint, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{NotOurs, PublicKeys, SUITES};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Listen, Server, ServerConfig};
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{SignError, SignatureScheme, Signer};
use tegmen_host::x509::{AllowedKey, RawKeys};
use test_ca::TestCa;

fn start(keys: PublicKeys) -> (Server, SocketAddr, Arc<Mutex<Vec<String>>>) {
    start_at(keys, "127.0.0.1:0".parse().unwrap(), None)
}

fn start_at(
    keys: PublicKeys,
    address: SocketAddr,
    state: Option<Database>,
) -> (Server, SocketAddr, Arc<Mutex<Vec<String>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let keep = events.clone();
    let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
    let listen = vec![Listen { address, scheme: Scheme::Coaps }];
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.shards = 2;
    config.trust.public_keys = Some(keys);
    config.state = state;
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    let server = Server::with(config).on_event(sink).serve(resources).unwrap();
    let address = server.addresses()[0].address;
    (server, address, events)
}

async fn get(remote: SocketAddr, keys: PublicKeys) -> Result<(String, Option<String>), ClientError> {
    let mut config = ClientConfig::default().with(|config| {
        config.trust.public_keys = Some(keys);
        config.coap.timeout = Duration::from_secs(10);
    });
    config.dtls.handshake_timeout = Duration::from_secs(8);
    let client = Session::connect_to(remote, Scheme::Coaps, config).await?;
    let reply = client.get("value").await?;
    Ok((String::from_utf8(reply.payload).unwrap(), client.server()))
}

#[tokio::test]
async fn certificates_on_both_sides() {
    let test_ca = TestCa::new("Works");
    let (_server, remote, events) = start(test_ca.server());
    for suite in SUITES.0.iter().take(2) {
        let suites = Suites(std::slice::from_ref(suite));
        let (value, server) = get(remote, test_ca.client(suites).expecting("127.0.0.1")).await.unwrap();
        assert_eq!((value.as_str(), server.as_deref()), ("first", Some("CN=127.0.0.1")));
    }
    assert!(events.lock().unwrap().iter().any(|event| event.contains("identity: \"CN=device1\"")));
}

const RSA: Suites = Suites(&[CipherSuite::RSA_WITH_AES_128_CBC_SHA]);

/// Returns the keys of a server with an RSA key. `usage` is the key usage in its certificate.
fn rsa_server(test_ca: &TestCa, usage: KeyUsagePurpose) -> PublicKeys {
    let (certificate, signer) = test_ca.issue_rsa("127.0.0.1", usage);
    PublicKeys::new(RSA).with_chain(&[certificate], signer).unwrap()
}

#[tokio::test]
async fn a_secret_that_is_encrypted_to_the_server() {
    let test_ca = TestCa::new("Works");
    for mutual in [false, true] {
        let keys = rsa_server(&test_ca, KeyUsagePurpose::KeyEncipherment);
        let keys = match mutual {
            true => keys.believing(test_ca.verifier()).asking(ClientAuthentication::Required),
            false => keys,
        };
        let (server, remote, events) = start(keys);
        let (value, name) = get(remote, test_ca.client(RSA).expecting("127.0.0.1")).await.unwrap();
        // Who is nobody in particular gets nothing here.
        let expected = if mutual { "first" } else { "" };
        assert_eq!((value.as_str(), name.as_deref()), (expected, Some("CN=127.0.0.1")));
        let identity = if mutual { "identity: \"CN=device1\"" } else { "identity: \"\"" };
        assert!(events.lock().unwrap().iter().any(|event| event.contains(identity)), "{:?}", events.lock().unwrap());
        drop(server);
    }
}

#[tokio::test]
async fn nothing_is_encrypted_to_a_key_that_is_not_for_it() {
    let test_ca = TestCa::new("Works");
    let (_server, remote, _) = start(rsa_server(&test_ca, KeyUsagePurpose::DigitalSignature));
    let refused = get(remote, test_ca.client(RSA).expecting("127.0.0.1")).await.unwrap_err();
    assert!(refused.to_string().contains("keyEncipherment"), "{refused}");
    // The other way round as well.
    let keys = rsa_server(&test_ca, KeyUsagePurpose::KeyEncipherment);
    assert!(keys.can_serve(CipherSuite::RSA_WITH_AES_128_CBC_SHA));
    assert!(!keys.can_serve(CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8));
    assert!(!test_ca.server().can_serve(CipherSuite::RSA_WITH_AES_128_CBC_SHA));
}

/// A client that knows only the address of its server trusts no certificate that the authority issued for another name.
#[tokio::test]
async fn a_client_without_a_name_expects_the_address_of_its_server() {
    let test_ca = TestCa::new("Works");
    let (certificate, signer) = test_ca.issue("lamp.example", ExtendedKeyUsagePurpose::ServerAuth);
    let lamp = PublicKeys::new(SUITES).with_chain(&[certificate], signer).unwrap();
    let (_lamp, of_lamp, _) = start(lamp.believing(test_ca.verifier()).asking(ClientAuthentication::Required));
    let (_server, of_address, _) = start(test_ca.server());

    let refused = get(of_lamp, test_ca.client(SUITES)).await.unwrap_err().to_string();
    assert!(refused.contains("not for 127.0.0.1, it is for lamp.example"), "{refused}");
    assert!(get(of_lamp, test_ca.client(SUITES).expecting("lamp.example")).await.is_ok());
    assert!(get(of_address, test_ca.client(SUITES)).await.is_ok());

    let endpoint = Endpoint::builder().trust(test_ca.client(SUITES)).bind("127.0.0.1:0").await.unwrap();
    let refused = endpoint.connect_to(of_lamp, Scheme::Coaps).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("not for 127.0.0.1, it is for lamp.example"), "{refused}");
    assert!(endpoint.connect_to(of_address, Scheme::Coaps).await.is_ok());
}

#[tokio::test]
async fn who_is_not_believed_is_refused_and_the_operator_reads_why() {
    let (test_ca, others) = (TestCa::new("Works"), TestCa::new("Others"));
    let (_server, remote, events) = start(test_ca.server());
    for name in ["other.example", ""] {
        let wrong_name = get(remote, test_ca.client(SUITES).expecting(name)).await.unwrap_err();
        assert!(wrong_name.to_string().contains(&format!("not for {name}")), "{wrong_name}");
    }
    let stranger = others.client(SUITES).believing(test_ca.verifier()).expecting("127.0.0.1");
    let refused = get(remote, stranger).await.unwrap_err();
    assert!(refused.to_string().contains("certificate_unknown"), "{refused}");
    assert!(events.lock().unwrap().iter().any(|event| event.contains("UnknownIssuer")));
    let nobody = PublicKeys::new(SUITES).believing(test_ca.verifier()).expecting("127.0.0.1");
    let refused = get(remote, nobody).await.unwrap_err();
    assert!(refused.to_string().contains("wants a certificate"), "{refused}");
}

#[tokio::test]
async fn raw_public_keys_on_both_sides() {
    let test_ca = TestCa::new("Works");
    let key = |name| test_ca.issue(name, ExtendedKeyUsagePurpose::ServerAuth).1;
    let (ours, theirs) = (key("device"), key("server"));
    let believing = |other: &Arc<dyn Signer>, name| Arc::new(RawKeys(vec![AllowedKey::of(other.public_key(), name)]));
    let server = PublicKeys::new(SUITES).with_raw_key(theirs.clone()).believing(believing(&ours, "the device"));
    let (_server, remote, events) = start(server.asking(ClientAuthentication::Required));
    let client = PublicKeys::new(Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])).with_raw_key(ours.clone());
    let (value, name) = get(remote, client.clone().believing(believing(&theirs, "the server"))).await.unwrap();
    assert_eq!((value.as_str(), name.as_deref()), ("first", Some("the server")));
    assert!(events.lock().unwrap().iter().any(|event| event.contains("the device")));
    let refused = get(remote, client.believing(believing(&ours, "another"))).await.unwrap_err();
    assert!(refused.to_string().contains("not on the allow list"), "{refused}");
}

#[tokio::test]
async fn after_a_restart_a_session_comes_back_if_its_key_is_believed_still_and_a_certificate_is_shown_again() {
    let test_ca = TestCa::new("Works");
    let key = |name| test_ca.issue(name, ExtendedKeyUsagePurpose::ServerAuth).1;
    let (ours, theirs) = (key("device"), key("server"));
    let believing = |other: &Arc<dyn Signer>, name| Arc::new(RawKeys(vec![AllowedKey::of(other.public_key(), name)]));
    let raw = PublicKeys::new(SUITES).with_raw_key(theirs.clone()).asking(ClientAuthentication::Required);
    let device = PublicKeys::new(SUITES).with_raw_key(ours.clone()).believing(believing(&theirs, "the server"));
    let known = raw.clone().believing(believing(&ours, "the device"));
    let removed = raw.believing(believing(&theirs, "another"));
    let certified = test_ca.client(SUITES).expecting("127.0.0.1");
    for (name, keys, then, client, comes_back) in [
        ("listed", known.clone(), known.clone(), device.clone(), true),
        ("removed", known, removed, device, false),
        ("certified", test_ca.server(), test_ca.server(), certified, false),
    ] {
        let dir = std::env::temp_dir().join(format!("tegmen-public-state-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let serve = |keys, at| {
            let state = Database::open(&dir.join("state.db")).unwrap();
            start_at(keys, at, Some(state))
        };
        let (server, remote, _) = serve(keys, "127.0.0.1:0".parse().unwrap());
        let session = Some(dir.join("session"));
        let mut config = ClientConfig::default();
        config.trust.public_keys = Some(client);
        config.state.session = session;
        config.coap.timeout = Duration::from_secs(3);
        let client = Session::connect_to(remote, Scheme::Coaps, config).await.unwrap();
        assert_eq!(client.get("value").await.unwrap().payload, b"first");
        server.stop();
        let (server, _, events) = serve(then, remote);
        let answered = client.get("value").await;
        assert_eq!(answered.is_ok(), comes_back, "{name}: {answered:?}");
        assert_eq!(events.lock().unwrap().iter().any(|event| event.contains("Restored")), comes_back);
        server.stop();
        let _ = std::fs::remove_dir_all(&dir);
    }
}

#[test]
fn a_key_of_another_certificate_is_found_out_at_once() {
    let test_ca = TestCa::new("Works");
    let (certificate, _) = test_ca.issue("one", ExtendedKeyUsagePurpose::ServerAuth);
    let (_, signer) = test_ca.issue("two", ExtendedKeyUsagePurpose::ServerAuth);
    let keys = PublicKeys::new(SUITES);
    assert_eq!(keys.clone().with_chain(&[certificate], signer.clone()).err(), Some(NotOurs::OtherKey));
    assert_eq!(keys.with_chain(&[], signer).err(), Some(NotOurs::Malformed));
}

/// A key that reports each request for a signature, and waits for permission before it signs.
struct Slow {
    key: Arc<dyn Signer>,
    asked: tokio::sync::mpsc::UnboundedSender<()>,
    may: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Signer for Slow {
    fn scheme(&self) -> SignatureScheme {
        self.key.scheme()
    }

    fn public_key(&self) -> &[u8] {
        self.key.public_key()
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        self.asked.send(()).unwrap();
        let told = self.may.lock().unwrap().recv();
        told.map_err(|_| SignError("it was not told to".to_owned()))?;
        self.key.sign_digest(digest)
    }
}

#[tokio::test]
async fn a_signature_that_takes_long_keeps_nobody_else_waiting() {
    const BOTH: Suites =
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, CipherSuite::PSK_WITH_AES_128_CCM_8]);
    const CERTIFIED: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
    let test_ca = TestCa::new("Works");
    let (certificate, key) = test_ca.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
    let (asked, mut is_asked) = tokio::sync::mpsc::unbounded_channel();
    let (tell, may) = std::sync::mpsc::channel();
    let slow = Arc::new(Slow { key, asked, may: Mutex::new(may) });
    let keys = PublicKeys::new(BOTH).with_chain(&[certificate], slow).unwrap().believing(test_ca.verifier());
    let listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme: Scheme::Coaps }];
    let public_keys = Some(keys.asking(ClientAuthentication::Required));
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.shards = 1;
    config.trust.public_keys = public_keys;
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    let credentials = Credentials::single("me", b"key");
    let server = Server::with(config).credentials(credentials.clone()).serve(resources).unwrap();
    let remote = server.addresses()[0].address;
    // Dropped before the server if an assertion fails, so that it ends.
    let tell = tell;

    let mut config = ClientConfig::default();
    config.trust.public_keys = Some(test_ca.client(CERTIFIED).expecting("127.0.0.1"));
    config.coap.timeout = Duration::from_secs(10);
    config.dtls.retransmit_first = Duration::from_millis(50);
    let certified = tokio::spawn(Session::connect_to(remote, Scheme::Coaps, config));
    is_asked.recv().await.unwrap();

    let key = Some(ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() });
    let mut config = ClientConfig::default();
    config.trust.key = key;
    config.dtls.handshake_timeout = Duration::from_secs(3);
    let known = Session::connect_to(remote, Scheme::Coaps, config).await;
    assert!(known.is_ok(), "{:?}", known.err().map(|error| error.to_string()));
    // Meanwhile the other client repeats its ClientHello, and there is nothing to answer it with yet.
    tokio::time::sleep(Duration::from_millis(200)).await;
    tell.send(()).unwrap();
    let certified = certified.await.unwrap();
    assert!(certified.is_ok(), "{:?}", certified.err().map(|error| error.to_string()));
    drop((known, certified));
    assert_eq!(server.stop().counters.established, 2);
}

#[tokio::test]
async fn an_rsa_key_that_replaces_another_signs_from_then_on() {
    const SUITE: Suites = Suites(&[CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
    let test_ca = TestCa::new("Works");
    let keys = || {
        let (certificate, signer) = test_ca.issue_rsa("127.0.0.1", KeyUsagePurpose::DigitalSignature);
        PublicKeys::new(SUITE).with_chain(&[certificate], signer).unwrap()
    };
    let (server, remote, _) = start(keys());
    let client = || test_ca.client(SUITE).expecting("127.0.0.1");
    assert_eq!(get(remote, client()).await.unwrap().1.as_deref(), Some("CN=127.0.0.1"));
    server.set_own_keys(&keys());
    // A handshake that is under way just then may have to begin again.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(get(remote, client()).await.unwrap().1.as_deref(), Some("CN=127.0.0.1"));
}
