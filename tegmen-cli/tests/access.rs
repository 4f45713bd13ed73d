//! The access control server that `tegmen serve` runs, over real sockets.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tegmen::coap::Code;
use tegmen_control::access::ace::trl::Answer;
use tegmen_control::access::ace::{
    ACE_CBOR, Confirmation, CoseKey, IntrospectionRequest, IntrospectionResponse, Material,
};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::{Mode, Protokey, SessionIdentity};
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::provider::HostCrypto;
use tegmen_host::uri::Scheme;
use tegmen_store::{Database, Options, SealingKey};
use works::{Scene, Server};

const SHARED_KEY: [u8; 16] = [7; 16];
const PROTOKEY: [u8; 32] = [9; 32];
const POLICY: &str = r#"[[rule]]
name = "displays read"
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"
"#;
const OPTIONS: &str =
    "--store access.db --sealing-key sealing.key --policy policy.toml --audit audit.log --audit-key audit.pem";

/// Writes the files of an operator, and the devices.
fn furnish(dir: &Path) {
    let secret = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o600)).unwrap();
    };
    secret("sealing.key", &"4".repeat(64));
    secret("audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();

    let key = SealingKey::from_file(&dir.join("sealing.key")).unwrap();
    let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
    let database = Database::open_with(&dir.join("access.db"), options).unwrap();
    let party = |words: &str| OwnedParty::from_words(words.split(' ')).unwrap();
    let devices = [
        NewDevice::secret(party("oven tag:kitchen"), Credential::Protokey(Mode::Bound), &PROTOKEY).unwrap(),
        NewDevice::secret(party("display tag:display"), Credential::SharedKey, &SHARED_KEY).unwrap(),
        NewDevice::secret(party("lamp"), Credential::SharedKey, &SHARED_KEY).unwrap(),
    ];
    runtime().block_on(async {
        let state = State::open(database, Bounds::default(), Box::new(|_| {})).await.unwrap();
        for device in &devices {
            state.add(device).await.unwrap();
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connect(server: &Server, device: &str) -> Session {
    Session::connect_to(server.addresses[0], Scheme::Coaps, ClientConfig::psk(device, SHARED_KEY)).await.unwrap()
}

/// The key of a session, if the subscriber gets it.
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
        let identity = SessionIdentity::parse(b"oven;AAECAwQFBgcI").unwrap();
        let psk = Protokey::new(&PROTOKEY).unwrap().session_key::<HostCrypto>(Mode::Bound, identity, "display");
        assert_eq!(introspect(&display, identity.as_str()).await.as_deref(), Some(&psk.expose()[..]));
        assert_eq!(introspect(&display, identity.as_str()).await, None, "a key is given once");
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
