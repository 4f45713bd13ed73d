//! Tests the access control server of `tegmen serve` over real sockets.
#![cfg(target_os = "linux")]

#[path = "works/chain.rs"]
mod chain;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{OPTIONS, POLICY, SHARED_KEY, derived, furnish, runtime, secret, with_state};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_control::access::ace::trl::Answer;
use tegmen_control::access::ace::{
    ACE_CBOR, Confirmation, CoseKey, IntrospectionRequest, IntrospectionResponse, Material,
};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::state::{Credential, NewDevice};
use tegmen_control::subscriber::Introspector;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::digest::sha256;
use tegmen_host::hex::to_hex;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::Router;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_host::x509::{AllowedKey, Files, RawKeys, Settings, Verifier};
use works::{Scene, Server};

const TEMPERATURE: &str = "21.5 degrees";

async fn connect(server: &Server, device: &str) -> Session {
    Session::connect_to(server.addresses[0], Scheme::Coaps, ClientConfig::psk(device, SHARED_KEY)).await.unwrap()
}

/// Asks for the key of a session. Returns the key; `None` if the subscriber does not get it.
async fn introspect(subscriber: &Session, identity: &str) -> Option<Vec<u8>> {
    let request = IntrospectionRequest { token: identity.into(), ..Default::default() }.encode();
    let response = subscriber.post("/introspect", &request).content_format(ACE_CBOR).await.unwrap();
    assert_eq!((response.code, response.content_format()), (Code::CREATED, Some(ACE_CBOR.into())));
    let response = IntrospectionResponse::parse(&response.payload).unwrap();
    match response.claims.cnf.filter(|_| response.active) {
        Some(Confirmation::Key(CoseKey { material: Material::Symmetric(key), .. })) => Some(key.to_vec()),
        _ => None,
    }
}

#[test]
fn a_subscriber_gets_the_key_of_a_session_once_also_after_a_restart() {
    let scene = Scene::new("access");
    furnish(&scene.0);
    let options: Vec<&str> = OPTIONS.split(' ').collect();
    let server = Server::start(&scene.0, &options, 1);
    runtime().block_on(async {
        let display = connect(&server, "display").await;
        let identity = "oven;AAECAwQFBgcI";
        assert_eq!(introspect(&display, identity).await, Some(derived(identity, "display")));
        assert_eq!(introspect(&display, identity).await, None, "a key is given once");
        let lamp = connect(&server, "lamp").await;
        assert_eq!(introspect(&lamp, "oven;AAECAwQFBgcJ").await, None, "no rule names the lamp");
        let list = display.get("/revoke/trl").await.unwrap();
        assert!(matches!(Answer::parse(&list.payload), Ok(Answer::Full { hashes, .. }) if hashes.is_empty()));
        let refused = display.get("/revoke/trl?cursor=1").await.unwrap();
        assert_eq!(refused.code, Code::BAD_REQUEST);
        // The key of a device opens these paths alone.
        assert_eq!(display.get("/.well-known/core").await.unwrap().code, Code::FORBIDDEN);
    });
    server.end();
    let server = Server::start(&scene.0, &options, 1);
    runtime().block_on(async {
        let display = connect(&server, "display").await;
        assert_eq!(introspect(&display, "oven;AAECAwQFBgcI").await, None, "a restart forgets nothing");
        assert!(introspect(&display, "oven;AAECAwQFBgcK").await.is_some());
    });
    server.end();

    let log = std::fs::read_to_string(scene.0.join("audit.log")).unwrap();
    for code in ["\"granted\"", "\"identity-used\"", "\"nothing-allowed\"", "\"bad-query\"", "\"applied\""] {
        assert!(log.contains(code), "{code}: {log}");
    }
    assert_eq!(log.matches("\"applied\"").count(), 1, "the policy was in force at the second start");
    let mut verify = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    verify.args(["audit", "verify", "audit.log", "--head", "audit.log.head"]).current_dir(&scene.0);
    assert!(verify.status().unwrap().success());
}

#[test]
fn a_device_with_a_raw_key_is_accepted_while_it_is_enabled() {
    let scene = Scene::new("access-raw");
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = || Arc::new(SoftwareKey::from_pem(pem.as_bytes()).unwrap());
    furnish(&scene.0);
    let digest = sha256(signer().public_key());
    with_state(&scene.0, async |state| {
        let party = OwnedParty::from_words(["panel", "tag:display"]).unwrap();
        state.add(&NewDevice::public(party, Credential::PublicKey(digest)).unwrap()).await.unwrap();
    });
    secret(&scene.0, "server.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let server_key = SoftwareKey::from_file(&scene.0.join("server.pem")).unwrap();
    let options = format!("{OPTIONS} --cert-key server.pem --value /door=open");
    let session = async |server: &Server, signer| {
        let believed = RawKeys(vec![AllowedKey::of(server_key.public_key(), "access")]);
        let keys = PublicKeys::new(SUITES).with_raw_key(signer).believing(Arc::new(believed));
        let mut config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
        config.dtls.handshake_timeout = Duration::from_secs(5);
        Session::connect_to(server.addresses[0], Scheme::Coaps, config).await
    };
    let server = Server::start(&scene.0, &options.split(' ').collect::<Vec<_>>(), 1);
    runtime().block_on(async {
        let panel = session(&server, signer()).await.unwrap();
        assert_eq!(introspect(&panel, "oven;AAECAwQFBgcI").await, Some(derived("oven;AAECAwQFBgcI", "panel")));
        assert_eq!(panel.get("/door").await.unwrap().code, Code::FORBIDDEN, "a device has the paths of the role alone");
        let other = SoftwareKey::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap();
        assert!(session(&server, Arc::new(other)).await.is_err());
    });
    server.end();
    with_state(&scene.0, async |state| {
        state.set_disabled("panel", true).await.unwrap();
    });
    let server = Server::start(&scene.0, &options.split(' ').collect::<Vec<_>>(), 1);
    runtime().block_on(async { assert!(session(&server, signer()).await.is_err()) });
}

#[test]
fn a_device_with_a_certificate_is_known_by_its_digest() {
    let scene = Scene::new("access-certificate");
    furnish(&scene.0);
    for arguments in [
        "ca init ca",
        "ca issue ca --name access --ip 127.0.0.1",
        "ca issue ca --name panel --client",
        "ca issue ca --name other --client",
    ] {
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let made = tegmen.args(arguments.split(' ')).current_dir(&scene.0).output().unwrap();
        assert!(made.status.success(), "{arguments}");
    }
    let ca = scene.0.join("ca");
    let chain = |name: &str| {
        let pem = std::fs::read(ca.join(format!("{name}.pem"))).unwrap();
        CertificateDer::pem_slice_iter(&pem).map(|der| der.unwrap().to_vec()).collect::<Vec<_>>()
    };
    let digest = sha256(&chain("panel")[0]);
    with_state(&scene.0, async |state| {
        let party = OwnedParty::from_words(["panel-3", "tag:display"]).unwrap();
        state.add(&NewDevice::public(party, Credential::Certificate(digest)).unwrap()).await.unwrap();
    });
    let more = "--cert ca/access.pem --cert-key ca/access.key --client-ca ca/ca.pem --client-crl ca/crl.pem";
    let server = Server::start(&scene.0, &format!("{OPTIONS} {more}").split(' ').collect::<Vec<_>>(), 1);
    let session = async |name: &str| {
        let signer = SoftwareKey::from_file(&ca.join(format!("{name}.key"))).unwrap();
        let files = Files { anchors: vec![ca.join("ca.pem")], crls: vec![ca.join("crl.pem")], revoked: Vec::new() };
        let verifier = Verifier::from_files(files, Settings::default()).unwrap();
        let keys = PublicKeys::new(SUITES).with_chain(&chain(name), Arc::new(signer)).unwrap();
        let keys = keys.believing(Arc::new(verifier)).expecting("127.0.0.1");
        let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
        Session::connect_to(server.addresses[0], Scheme::Coaps, config).await.unwrap()
    };
    runtime().block_on(async {
        // The name of the device is that of the registration, and the subject of the certificate has no meaning.
        let key = introspect(&session("panel").await, "oven;AAECAwQFBgcI").await;
        assert_eq!(key, Some(derived("oven;AAECAwQFBgcI", "panel-3")));
        let other = session("other").await;
        let request = IntrospectionRequest { token: b"oven;AAECAwQFBgcJ".to_vec(), ..Default::default() }.encode();
        let response = other.post("/introspect", &request).content_format(ACE_CBOR).await.unwrap();
        assert_eq!(response.code, Code::UNAUTHORIZED, "a certificate of the authority is no registration");
    });
}

#[test]
fn a_publisher_with_a_certificate_delivers_what_the_access_control_server_allows() {
    let scene = Scene::new("access-chain");
    for arguments in ["ca init ca", "ca issue ca --name oven --client"] {
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let made = tegmen.args(arguments.split(' ')).current_dir(&scene.0).output().unwrap();
        assert!(made.status.success(), "{arguments}");
    }
    let signer = || -> Arc<dyn Signer> { Arc::new(SoftwareKey::from_file(&scene.0.join("ca/oven.key")).unwrap()) };
    chain::walk(&chain::Publisher { dir: scene.0.clone(), key: "ca/oven.key", signer: &signer, tpm: None });
}

/// Starts a subscriber that accepts the temperature of the oven, and asks the access control server for the key of each
/// session.
async fn subscriber(name: &str, access: &Server) -> tegmen_host::server::Server {
    let allow = vec!["* /temp".to_owned()];
    let keys = Introspector::new(connect(access, name).await, tokio::runtime::Handle::current(), allow);
    let server = tegmen_host::server::Server::builder().listen("coaps://127.0.0.1:0").shards(1).key_store(keys);
    let router = Router::new()
        .put("/temp", |_, response| {
            response.set_code(Code::CHANGED);
            Ok(())
        })
        .get("/temp", |_, response| response.payload(TEMPERATURE.as_bytes()));
    server.serve(router).unwrap()
}

/// Sends a PUT as a publisher. Returns the code of the response; `None` if the handshake fails.
async fn publish(to: SocketAddr, identity: &str, key: Vec<u8>, path: &str) -> Option<Code> {
    let mut config = ClientConfig::psk(identity, key);
    config.dtls.handshake_timeout = Duration::from_secs(5);
    let session = Session::connect_to(to, Scheme::Coaps, config).await.ok()?;
    Some(session.put(path, b"21.5").await.unwrap().code)
}

#[test]
fn a_publisher_meets_a_subscriber_that_asks_the_access_control_server() {
    let scene = Scene::new("access-meets");
    furnish(&scene.0);
    let access = Server::start(&scene.0, &OPTIONS.split(' ').collect::<Vec<_>>(), 1);
    runtime().block_on(async {
        let display = subscriber("display", &access).await;
        let at = display.addresses()[0].address;
        let one = "oven;AAECAwQFBgcI";
        assert_eq!(publish(at, one, derived(one, "display"), "/temp").await, Some(Code::CHANGED));
        assert_eq!(publish(at, one, derived(one, "display"), "/temp").await, None, "an identity opens one session");
        let two = "oven;AAECAwQFBgcJ";
        assert_eq!(publish(at, two, derived(two, "display"), "/door").await, Some(Code::FORBIDDEN));

        // A subscriber that has a key rightfully does not pose as the oven towards another one.
        let three = "oven;AAECAwQFBgcK";
        let stolen = introspect(&connect(&access, "mallory").await, three).await.unwrap();
        assert_eq!(stolen, derived(three, "mallory"));
        assert_eq!(publish(at, three, stolen, "/temp").await, None);
        // A subscriber that no rule names gets no key, so the handshake with it fails.
        let lamp = subscriber("lamp", &access).await;
        let four = "oven;AAECAwQFBgcL";
        assert_eq!(publish(lamp.addresses()[0].address, four, derived(four, "lamp"), "/temp").await, None);
        // That lamp has asked for it does not take the identity from the display.
        assert_eq!(publish(at, four, derived(four, "display"), "/temp").await, Some(Code::CHANGED));
    });
}

/// OpenSSL is a constrained publisher. It has only the key of the session, which the access control server can derive.
#[test]
fn openssl_is_a_publisher_with_a_derived_key() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not installed: apt-get install openssl");
        return;
    }
    let scene = Scene::new("access-openssl");
    furnish(&scene.0);
    let access = Server::start(&scene.0, &OPTIONS.split(' ').collect::<Vec<_>>(), 1);
    runtime().block_on(async {
        let display = subscriber("display", &access).await;
        let at = display.addresses()[0].address;
        // A failed handshake uses up its identity.
        for (identity, of, is_right) in
            [("oven;AAECAwQFBgcI", "mallory", false), ("oven;AAECAwQFBgcJ", "display", true)]
        {
            let key = derived(identity, of);
            let text = tokio::task::spawn_blocking(move || openssl_gets(at, identity, &key)).await.unwrap();
            assert_eq!(text.contains(TEMPERATURE), is_right, "the key for {of}: {text}");
        }
    });
}

/// Runs `s_client` of OpenSSL, which requests /temp. Returns its output up to the answer, or up to its end.
fn openssl_gets(at: SocketAddr, identity: &str, key: &[u8]) -> String {
    // OpenSSL counts the suite among the weak ones, because its tag has eight bytes.
    let mut client = Command::new("openssl")
        .args(["s_client", "-dtls1_2", "-nocommands", "-cipher", "PSK-AES128-CCM8:@SECLEVEL=0"])
        .args(["-connect", &at.to_string(), "-psk_identity", identity, "-psk", &to_hex(key)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The client sends it once the handshake is over.
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"\x40\x01\x00\x07\xb4temp").unwrap();
    let mut stdout = client.stdout.take().unwrap();
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains(TEMPERATURE) {
        match stdout.read(&mut part).unwrap() {
            0 => break,
            len => text += &String::from_utf8_lossy(&part[..len]),
        }
    }
    let _ = client.kill();
    client.wait().unwrap();
    text
}

/// Sends SIGHUP to the server. Returns the log line that reports its result.
fn reload(server: &mut Server) -> String {
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    server.lines.by_ref().map(Result::unwrap).find(|line| line.contains("hangup")).unwrap()
}

#[test]
fn a_reload_applies_a_policy_and_one_with_a_mistake_changes_nothing() {
    let scene = Scene::new("access-reload");
    furnish(&scene.0);
    let mut server = Server::start(&scene.0, &OPTIONS.split(' ').collect::<Vec<_>>(), 1);
    let runtime = runtime();
    let display = runtime.block_on(connect(&server, "display"));
    let granted = |identity| runtime.block_on(introspect(&display, identity)).is_some();
    assert!(granted("oven;AAECAwQFBgcI"));
    let policy = scene.0.join("policy.toml");
    std::fs::write(&policy, format!("{POLICY}\n[[rule]]\nsubject = \"display\"\npublisher = \"*\"\ndeny = \"* /*\"\n"))
        .unwrap();
    reload(&mut server);
    assert!(!granted("oven;AAECAwQFBgcJ"), "the new policy holds for the session that exists");
    std::fs::write(&policy, POLICY.replace("allow", "alow")).unwrap();
    let why = reload(&mut server);
    assert!(why.contains("policy.toml:5"), "{why}");
    assert!(!granted("oven;AAECAwQFBgcK"));
    std::fs::write(&policy, POLICY).unwrap();
    reload(&mut server);
    assert!(granted("oven;AAECAwQFBgcL"));
}

#[test]
fn a_policy_that_is_wrong_is_named_before_the_server_starts() {
    let scene = Scene::new("access-wrong");
    furnish(&scene.0);
    std::fs::write(scene.0.join("policy.toml"), POLICY.replace("allow", "alow")).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let check = check.args(["serve", "--check-config", "--listen", "127.0.0.1"]).args(OPTIONS.split(' '));
    let checked = check.current_dir(&scene.0).output().unwrap();
    let text = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{text}");
    assert!(text.contains("--policy: policy.toml:5"), "{text}");
}

#[test]
fn a_server_whose_files_cannot_be_written_grants_nothing_and_reports_both() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let scene = Scene::new("access-full");
    furnish(&scene.0);
    // A longer file is then an error of the system and not a signal.
    let run = format!("trap '' XFSZ; exec \"$0\" serve --listen 127.0.0.1 --port 0 --plain-port 0 {OPTIONS}");
    let mut command = Command::new("sh");
    command.args(["-c", &run, env!("CARGO_BIN_EXE_tegmen")]).current_dir(&scene.0);
    let mut server = Server::of(&mut command, 1);
    let pid = Pid::from_child(&server.process);
    let unlimited = Rlimit { current: None, maximum: None };
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: Some(1), ..unlimited }).unwrap();
    runtime().block_on(async {
        let display = connect(&server, "display").await;
        let mut number = 0;
        let mut ask = async || {
            number += 1;
            let token = format!("oven;AAECAwQFBg{number:02}").into();
            let request = IntrospectionRequest { token, ..Default::default() }.encode();
            display.post("/introspect", &request).content_format(ACE_CBOR).await.unwrap().code
        };
        assert_eq!(ask().await, Code::SERVICE_UNAVAILABLE);
        server.wait_for("access.db cannot be written, so no change is acknowledged: ");
        server.wait_for("error the audit log cannot be written (");
        prlimit(Some(pid), Resource::Fsize, unlimited).unwrap();
        while ask().await != Code::CREATED {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let lines = server.end().join("\n");
    for expected in ["access.db is written again", "the audit log is written again; 0 records"] {
        assert!(lines.contains(expected), "{expected}: {lines}");
    }
}
