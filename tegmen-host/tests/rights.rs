//! Tests the rights of a peer at a server. The rights depend on the key or the certificate with which the peer proved
//! its identity. They end when the server no longer accepts this key or certificate.

mod test_ca;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::dtls::{CipherSuite, ClientAuthentication, Suites};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Session};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::to_hex;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Listen, Server, ServerConfig};
use tegmen_host::slab::Capacity;
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{SignError, SignatureScheme, Signer};
use tegmen_host::x509::{AllowedKey, RawKeys, Settings, Trust, Verifier};
use test_ca::TestCa;

/// A directory that is removed at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-rights-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes the credentials file, and sets its modification time to `ago` seconds in the past.
    fn write(&self, text: &str, ago: u64) -> PathBuf {
        let file = self.file("credentials.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let handle = std::fs::File::options().write(true).open(&file).unwrap();
        handle.set_modified(std::time::SystemTime::now() - Duration::from_secs(ago)).unwrap();
        file
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    server: Server,
    secure: SocketAddr,
    plain: SocketAddr,
    events: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(credentials: &Credentials, config: ServerConfig) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let keep = events.clone();
        let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
        let listen =
            [Scheme::Coaps, Scheme::Coap].map(|scheme| Listen { address: "127.0.0.1:0".parse().unwrap(), scheme });
        let listen = if config.listen.is_empty() { listen.to_vec() } else { config.listen.clone() };
        let mut config = config;
        config.listen = listen;
        config.shards = 2;
        let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
        let server = Server::with(config).credentials(credentials.clone()).on_event(sink).serve(resources).unwrap();
        let [secure, plain] = [0, 1].map(|number| server.addresses()[number].address);
        Self { server, secure, plain, events }
    }

    fn count(&self, text: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|event| event.contains(text)).count()
    }

    /// Waits until at least `times` events of the server contain `text`.
    async fn hears(&self, text: &str, times: usize) {
        for _ in 0..300 {
            if self.count(text) >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{text} is not among {:?}", self.events.lock().unwrap());
    }
}

/// A cipher suite with public keys, and a cipher suite with pre-shared keys.
const BOTH: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, CipherSuite::PSK_WITH_AES_128_CCM_8]);

fn psk(identity: &str, key: &[u8]) -> ClientConfig {
    let key = ClientKey { identity: identity.to_owned(), key: key.to_vec().into() };
    ClientConfig::default().with(|config| {
        config.trust.key = Some(key);
        config.coap.timeout = Duration::from_secs(10);
    })
}

fn certified(keys: PublicKeys) -> ClientConfig {
    ClientConfig::default().with(|config| {
        config.trust.public_keys = Some(keys);
        config.coap.timeout = Duration::from_secs(10);
    })
}

async fn ask(client: &Session, method: Code, payload: &[u8]) -> Result<Code, ClientError> {
    Ok(client.request(method, "value").payload(payload).await?.code)
}

/// A signer that shows the public key `shows`, and signs with the private key of another signer.
struct Forger {
    shows: Vec<u8>,
    has: Arc<dyn Signer>,
}

impl Signer for Forger {
    fn scheme(&self) -> SignatureScheme {
        self.has.scheme()
    }

    fn public_key(&self) -> &[u8] {
        &self.shows
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        self.has.sign_digest(digest)
    }
}

fn believing(key: &Arc<dyn Signer>, name: &str) -> Arc<RawKeys> {
    Arc::new(RawKeys(vec![AllowedKey::of(key.public_key(), name)]))
}

/// Writes the two ends of an OSCORE context. The client has the rights `allow` at the server.
fn make_contexts(server: &Path, client: &Path, allow: &str) {
    let file = ContextFile {
        sender_id: vec![1],
        recipient_id: vec![2],
        master_secret: vec![7; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        aead: tegmen::oscore::Aead::AesCcm16_64_128,
        created: 1_767_225_600,
        expires: None,
        allow: Some(vec![allow.to_owned()]),
        rederivation: false,
    };
    contexts::create(server, &file).unwrap();
    contexts::create(client, &file.mirrored()).unwrap();
}

#[tokio::test]
async fn a_public_key_that_was_shown_and_not_proved_gives_nobody_any_right() {
    let (scene, test_ca) = (Scene::new("shown"), TestCa::new("Works"));
    let key = |name| test_ca.issue(name, rcgen::ExtendedKeyUsagePurpose::ServerAuth).1;
    let (device, gateway, stranger) = (key("device1"), key("gateway"), key("stranger"));
    make_contexts(&scene.file("device1"), &scene.file("client"), "GET /*");
    let credentials = Credentials::default();
    let contexts = Contexts::open(&[scene.file("device1")], |name, allow| credentials.learn(name, allow)).unwrap();
    let keys = PublicKeys::new(SUITES).with_raw_key(gateway.clone()).believing(believing(&device, "device1"));
    let public_keys = Some(keys.asking(ClientAuthentication::Required));
    let running = Running::start(
        &credentials,
        ServerConfig::default().with(|config| {
            config.oscore = contexts;
            config.trust.public_keys = public_keys;
        }),
    );

    let mut oscore = ClientConfig::default();
    oscore.oscore = Some(scene.file("client"));
    let restricted = Session::connect_to(running.plain, Scheme::Coap, oscore).await.unwrap();
    assert_eq!(ask(&restricted, Code::GET, b"").await.unwrap(), Code::CONTENT);
    assert_eq!(ask(&restricted, Code::PUT, b"x").await.unwrap(), Code::FORBIDDEN);

    // Neither one who has only the public half changes that, nor the owner of the key.
    let forger: Arc<dyn Signer> = Arc::new(Forger { shows: device.public_key().to_vec(), has: stranger });
    let with =
        |signer| certified(PublicKeys::new(SUITES).with_raw_key(signer).believing(believing(&gateway, "gateway")));
    assert!(Session::connect_to(running.secure, Scheme::Coaps, with(forger)).await.is_err());
    assert_eq!(ask(&restricted, Code::PUT, b"x").await.unwrap(), Code::FORBIDDEN);
    let owner = Session::connect_to(running.secure, Scheme::Coaps, with(device)).await.unwrap();
    assert_eq!(ask(&owner, Code::PUT, b"x").await.unwrap(), Code::CHANGED);
    assert_eq!(ask(&restricted, Code::PUT, b"x").await.unwrap(), Code::FORBIDDEN);
}

#[tokio::test]
async fn a_pre_shared_key_that_was_removed_does_not_come_back_with_a_public_key_of_its_name() {
    let (scene, test_ca) = (Scene::new("removed"), TestCa::new("Works"));
    let key = |name| test_ca.issue(name, rcgen::ExtendedKeyUsagePurpose::ServerAuth).1;
    let (device, gateway) = (key("device1"), key("gateway"));
    let file = scene.write("[[psk]]\nidentity = \"device1\"\nkey_text = \"key\"\nallow = [\"GET /value\"]\n", 100);
    let keys = PublicKeys::new(BOTH).with_raw_key(gateway.clone()).believing(believing(&device, "device1"));
    let public_keys = Some(keys.asking(ClientAuthentication::Required));
    let mut config = ServerConfig::default();
    config.trust.public_keys = public_keys;
    let running = Running::start(&Credentials::from_file(&file).unwrap(), config);
    let removed = Session::connect_to(running.secure, Scheme::Coaps, psk("device1", b"key")).await.unwrap();
    assert_eq!(ask(&removed, Code::GET, b"").await.unwrap(), Code::CONTENT);
    scene.write("[[psk]]\nidentity = \"other\"\nkey_text = \"key\"\n", 10);
    running.hears("Reloaded", 1).await;
    let owner = PublicKeys::new(SUITES).with_raw_key(device).believing(believing(&gateway, "gateway"));
    let owner = Session::connect_to(running.secure, Scheme::Coaps, certified(owner)).await.unwrap();
    assert_eq!(ask(&owner, Code::PUT, b"x").await.unwrap(), Code::CHANGED);
    for method in [Code::GET, Code::PUT] {
        let answer = ask(&removed, method, b"").await;
        assert!(!matches!(answer, Ok(Code::CONTENT | Code::CHANGED)), "{method:?}: {answer:?}");
    }
}

#[tokio::test]
async fn each_proof_of_a_name_has_rights_of_its_own() {
    let (scene, test_ca) = (Scene::new("own"), TestCa::new("Works"));
    let key = |name| test_ca.issue(name, rcgen::ExtendedKeyUsagePurpose::ServerAuth).1;
    let (device, gateway) = (key("device1"), key("gateway"));
    let psk_entry = "[[psk]]\nidentity = \"device1\"\nkey_text = \"key\"\nallow = [\"GET /value\"]\n";
    let (yes_get, no_put) = ((Code::GET, Code::CONTENT), (Code::PUT, Code::FORBIDDEN));
    let (no_get, yes_put) = ((Code::GET, Code::FORBIDDEN), (Code::PUT, Code::CHANGED));
    for (entry, expected) in [
        // As in files that know pre-shared keys alone.
        ("", [yes_get, no_put]),
        ("[[certificate]]\nname = \"device1\"\n", [yes_get, no_put]),
        ("[[raw_key]]\nname = \"device1\"\nallow = [\"PUT /value\"]\n", [no_get, yes_put]),
        ("[[raw_key]]\nname = \"device1\"\n", [yes_get, yes_put]),
    ] {
        let file = scene.write(&format!("{psk_entry}{entry}"), 100);
        let keys = PublicKeys::new(BOTH).with_raw_key(gateway.clone()).believing(believing(&device, "device1"));
        let public_keys = Some(keys.asking(ClientAuthentication::Required));
        let mut config = ServerConfig::default();
        config.trust.public_keys = public_keys;
        let running = Running::start(&Credentials::from_file(&file).unwrap(), config);
        let with = PublicKeys::new(SUITES).with_raw_key(device.clone()).believing(believing(&gateway, "gateway"));
        let owner = Session::connect_to(running.secure, Scheme::Coaps, certified(with)).await.unwrap();
        for (method, code) in expected {
            assert_eq!(ask(&owner, method, b"x").await.unwrap(), code, "{entry}");
        }
        let other = Session::connect_to(running.secure, Scheme::Coaps, psk("device1", b"key")).await.unwrap();
        for (method, code) in [yes_get, no_put] {
            assert_eq!(ask(&other, method, b"x").await.unwrap(), code, "{entry}");
        }
    }
}

#[tokio::test]
async fn a_session_ends_when_its_key_does() {
    let scene = Scene::new("changed");
    let entry = |identity: &str, key: &str| format!("[[psk]]\nidentity = \"{identity}\"\nkey_text = \"{key}\"\n");
    let file =
        scene.write(&format!("{}{}{}", entry("changed", "one"), entry("removed", "two"), entry("kept", "three")), 100);
    let running = Running::start(&Credentials::from_file(&file).unwrap(), ServerConfig::default());
    let mut clients = Vec::new();
    for (identity, key) in [("changed", "one"), ("removed", "two"), ("kept", "three")] {
        let client = Session::connect_to(running.secure, Scheme::Coaps, psk(identity, key.as_bytes())).await.unwrap();
        assert_eq!(ask(&client, Code::GET, b"").await.unwrap(), Code::CONTENT);
        clients.push(client);
    }
    let kept = format!("{}[[certificate]]\nname = \"CN=a\"\n", entry("kept", "three"));
    scene.write(&format!("{}{kept}", entry("changed", "another")), 10);
    running.hears("Reloaded", 1).await;
    for (client, lives) in clients.iter_mut().zip([false, false, true]) {
        // Whichever shard has it has looked by then.
        let mut answer = ask(client, Code::GET, b"").await;
        for _ in 0..60 {
            if answer.is_ok() == lives {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = ask(client, Code::GET, b"").await;
        }
        assert_eq!(answer.is_ok(), lives, "{answer:?}");
    }
    let again = Session::connect_to(running.secure, Scheme::Coaps, psk("changed", b"another")).await.unwrap();
    assert_eq!(ask(&again, Code::GET, b"").await.unwrap(), Code::CONTENT);
}

#[tokio::test]
async fn a_session_does_not_come_back_after_a_restart_with_another_key() {
    for (key, comes_back) in [("key", true), ("another", false)] {
        let scene = Scene::new(&format!("restart-{key}"));
        let start = |key: &str, listen: Vec<Listen>| {
            let state = Some(Database::open(&scene.file("state.db")).unwrap());
            Running::start(
                &Credentials::single("me", key.as_bytes()),
                ServerConfig::default().with(|config| {
                    config.state = state;
                    config.listen = listen;
                }),
            )
        };
        let running = start("key", Vec::new());
        let listen = running.server.addresses().to_vec();
        let mut config = psk("me", b"key");
        config.coap.timeout = Duration::from_secs(2);
        let client = Session::connect_to(running.secure, Scheme::Coaps, config).await.unwrap();
        assert_eq!(ask(&client, Code::GET, b"").await.unwrap(), Code::CONTENT);
        running.server.stop();
        let running = start(key, listen);
        let answer = ask(&client, Code::GET, b"").await;
        assert_eq!((answer.is_ok(), running.count("Restored")), (comes_back, usize::from(comes_back)), "{answer:?}");
        running.server.stop();
    }
}

#[tokio::test]
async fn one_identity_cannot_take_the_places_of_all_others() {
    let scene = Scene::new("crowd");
    let entry = |identity: &str| format!("[[psk]]\nidentity = \"{identity}\"\nkey_text = \"key\"\n");
    let good: Vec<String> = (0..3).map(|number| format!("good-{number}")).collect();
    let all: String = good.iter().map(|identity| entry(identity)).collect();
    let file = scene.write(&format!("{}{all}", entry("many")), 100);
    let capacity = Capacity { peers: 16, handshakes: 16 };
    let running = Running::start(
        &Credentials::from_file(&file).unwrap(),
        ServerConfig::default().with(|config| config.sessions.capacity = capacity),
    );
    let mut many = Vec::new();
    for _ in 0..40 {
        let client = Session::connect_to(running.secure, Scheme::Coaps, psk("many", b"key")).await.unwrap();
        ask(&client, Code::GET, b"").await.unwrap();
        many.push(client);
    }
    // The others come in, and stay in whatever that one does.
    let mut others = Vec::new();
    for identity in &good {
        let client = Session::connect_to(running.secure, Scheme::Coaps, psk(identity, b"key")).await.unwrap();
        assert_eq!(ask(&client, Code::GET, b"").await.unwrap(), Code::CONTENT);
        others.push(client);
    }
    for _ in 0..40 {
        many.push(Session::connect_to(running.secure, Scheme::Coaps, psk("many", b"key")).await.unwrap());
    }
    for client in &mut others {
        assert_eq!(ask(client, Code::GET, b"").await.unwrap(), Code::CONTENT);
    }
    assert!(running.server.stop().peers <= 16);
}

#[tokio::test]
async fn a_certificate_without_a_usable_name_is_restricted_by_its_digest() {
    let (scene, test_ca) = (Scene::new("nameless"), TestCa::new("Works"));
    let mut long = rcgen::DistinguishedName::new();
    long.push(rcgen::DnType::OrganizationName, "x".repeat(130));
    for subject in [rcgen::DistinguishedName::new(), long] {
        let (certificate, signer) = test_ca.issue_as(subject);
        let digest = to_hex(&tegmen_host::x509::sha256(&certificate));
        let file = scene.write(&format!("[[certificate]]\nname = \"sha256:{digest}\"\nallow = [\"GET /*\"]\n"), 100);
        let mut config = ServerConfig::default();
        config.trust.public_keys = Some(test_ca.server());
        let running = Running::start(&Credentials::from_file(&file).unwrap(), config);
        let keys = PublicKeys::new(SUITES).with_chain(&[certificate], signer).unwrap();
        let keys = keys.believing(test_ca.verifier()).expecting("127.0.0.1");
        let client = Session::connect_to(running.secure, Scheme::Coaps, certified(keys)).await.unwrap();
        assert_eq!(ask(&client, Code::GET, b"").await.unwrap(), Code::CONTENT);
        assert_eq!(ask(&client, Code::PUT, b"x").await.unwrap(), Code::FORBIDDEN);
        assert_eq!(running.count(&format!("identity: \"sha256:{digest}\"")), 1);
    }
}

#[tokio::test]
async fn clients_without_a_certificate_may_do_what_they_are_allowed_and_nothing_else() {
    let (scene, test_ca) = (Scene::new("anonymous"), TestCa::new("Works"));
    let client = || PublicKeys::new(SUITES).believing(test_ca.verifier()).expecting("127.0.0.1");
    let keys = || test_ca.server().asking(ClientAuthentication::Never);
    let (get, put) = (Code::GET, Code::PUT);
    for (entry, option, expected) in [
        ("", None, [(get, Code::UNAUTHORIZED), (put, Code::UNAUTHORIZED)]),
        ("[anonymous]\nallow = [\"GET /value\"]\n", None, [(get, Code::CONTENT), (put, Code::UNAUTHORIZED)]),
        ("", Some("PUT /value"), [(get, Code::UNAUTHORIZED), (put, Code::CHANGED)]),
    ] {
        let credentials = Credentials::from_file(&scene.write(entry, 100)).unwrap();
        credentials.allow_anonymous(&option.map(str::to_owned).into_iter().collect::<Vec<_>>()).unwrap();
        let mut config = ServerConfig::default();
        config.trust.public_keys = Some(keys());
        let running = Running::start(&credentials, config);
        for _ in 0..2 {
            let client = Session::connect_to(running.secure, Scheme::Coaps, certified(client())).await.unwrap();
            for (method, code) in expected {
                assert_eq!(ask(&client, method, b"x").await.unwrap(), code, "{entry}");
            }
        }
        // One event warns the operator if clients without a certificate have no rights at all.
        let in_vain = entry.is_empty() && option.is_none();
        assert_eq!(running.count("AnonymousInVain"), usize::from(in_vain));
    }
    assert!(Credentials::default().allow_anonymous(&["READ everything".to_owned()]).is_err());
}

#[tokio::test]
async fn a_path_that_two_readers_might_read_differently_is_refused() {
    let scene = Scene::new("paths");
    let served = scene.file("served");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("a.txt"), b"text").unwrap();
    let resources = Resources::new([("files".to_owned(), Resource::Directory { root: served, writable: false })]);
    let server = Server::builder().listen("coap://127.0.0.1:0").allow_plain().serve(resources).unwrap();
    let client =
        Session::connect_to(server.addresses()[0].address, Scheme::Coap, ClientConfig::default()).await.unwrap();
    for (path, code) in [
        ("/files/a.txt", Code::CONTENT),
        ("//files/a.txt", Code::BAD_REQUEST),
        ("/files//a.txt", Code::BAD_REQUEST),
        ("/files///a.txt", Code::BAD_REQUEST),
        ("/files%2Fa.txt", Code::BAD_REQUEST),
        ("/files/a.txt/", Code::NOT_FOUND),
    ] {
        assert_eq!(client.get(path).await.unwrap().code, code, "{path:?}");
    }
}

#[tokio::test]
async fn a_server_changes_its_certificate_and_no_session_ends() {
    let (test_ca, others) = (TestCa::new("Works"), TestCa::new("Others"));
    let running = Running::start(
        &Credentials::default(),
        ServerConfig::default().with(|config| config.trust.public_keys = Some(test_ca.server())),
    );
    let believing = |who: &TestCa| certified(test_ca.client(SUITES).believing(who.verifier()).expecting("127.0.0.1"));
    let before = Session::connect_to(running.secure, Scheme::Coaps, believing(&test_ca)).await.unwrap();
    assert!(Session::connect_to(running.secure, Scheme::Coaps, believing(&others)).await.is_err());
    let (certificate, signer) = others.issue("127.0.0.1", rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    let own = test_ca.server().without_own().with_chain(&[certificate], signer).unwrap();
    running.server.set_own_keys(&own);
    let after = Session::connect_to(running.secure, Scheme::Coaps, believing(&others)).await.unwrap();
    for client in [&before, &after] {
        assert_eq!(ask(client, Code::GET, b"").await.unwrap(), Code::CONTENT);
    }
    assert!(Session::connect_to(running.secure, Scheme::Coaps, believing(&test_ca)).await.is_err());
}

#[tokio::test]
async fn an_expired_certificate_and_a_list_that_is_due_are_reported_and_counted_down() {
    let test_ca = TestCa::new("Works");
    let long_ago = rcgen::date_time_ymd(2020, 1, 1);
    let (certificate, signer) = test_ca.issue_until("127.0.0.1", rcgen::date_time_ymd(2020, 6, 1));
    let crl = rcgen::CertificateRevocationListParams {
        this_update: long_ago,
        next_update: rcgen::date_time_ymd(2020, 2, 1),
        crl_number: rcgen::SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let crl = crl.signed_by(&test_ca.ca).unwrap();
    let serve = |crls: &[&[u8]], certificate: Vec<u8>, signer| {
        let mut trust = Trust::default();
        trust.add_anchors(test_ca.ca.pem().as_bytes()).unwrap();
        crls.iter().for_each(|crl| assert_eq!(trust.add_crls(crl), Ok(1)));
        let keys = PublicKeys::new(SUITES).with_chain(&[certificate], signer).unwrap();
        let keys =
            keys.believing(Arc::new(Verifier::new(trust, Settings::default()))).asking(ClientAuthentication::Required);
        Running::start(
            &Credentials::default(),
            ServerConfig::default().with(|config| config.trust.public_keys = Some(keys)),
        )
    };
    let running = serve(&[crl.der()], certificate, signer);
    running.hears("CertificateExpired", 1).await;
    running.hears("RevocationDue", 1).await;
    let page = tegmen_host::metrics::render(&running.server.stop(), None);
    for name in ["tegmen_certificate_expiry_seconds -", "tegmen_revocation_list_due_seconds -"] {
        assert!(page.contains(name), "{page}");
    }
    let (certificate, signer) = test_ca.issue("127.0.0.1", rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    let running = serve(&[], certificate, signer);
    let client =
        Session::connect_to(running.secure, Scheme::Coaps, certified(test_ca.client(SUITES).expecting("127.0.0.1")))
            .await
            .unwrap();
    assert_eq!(ask(&client, Code::GET, b"").await.unwrap(), Code::CONTENT);
    assert_eq!(running.count("Expired") + running.count("Due"), 0);
    let page = tegmen_host::metrics::render(&running.server.stop(), None);
    assert!(page.contains("tegmen_certificate_expiry_seconds ") && !page.contains("seconds -"), "{page}");
    assert!(!page.contains("revocation_list"), "{page}");
}

#[tokio::test]
async fn a_client_may_have_the_previous_key_until_the_file_has_it_no_longer() {
    let scene = Scene::new("previous-key");
    let current = "[[psk]]\nidentity = \"me\"\nkey_text = \"new key\"\nallow = [\"GET /value\"]\n";
    let file = scene.write(&format!("{current}previous_key_text = \"old key\"\n"), 100);
    let credentials = Credentials::from_file(&file).unwrap();
    let running = Running::start(&credentials, ServerConfig::default());
    let mut sessions = Vec::new();
    for key in ["new key", "old key"] {
        let config = ClientConfig::psk("me", key);
        let session = Session::connect_to(running.secure, Scheme::Coaps, config).await.unwrap();
        assert_eq!(session.get("value").await.unwrap().code, Code::CONTENT, "{key}");
        assert_eq!(session.put("value", b"x").await.unwrap().code, Code::FORBIDDEN, "{key}");
        sessions.push(session);
    }
    assert_eq!(running.server.counts().totals().counters.failed, 0);
    credentials.set_file(&scene.write(current, 10)).unwrap();
    let [new, old] = &sessions[..] else { unreachable!() };
    assert_eq!(new.get("value").await.unwrap().code, Code::CONTENT);
    assert!(!matches!(old.get("value").await, Ok(reply) if reply.code == Code::CONTENT));
    running.server.stop();
}
