//! Tests the controller of groups of `tegmen serve` over real sockets.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{SHARED_KEY, furnish, runtime, secret, with_state};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tegmen::axiom::KeyPath;
use tegmen::coap::Code;
use tegmen_control::group::{Controller, GroupConfig, NewMember};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupKeys, JoinRequest};
use tegmen_host::provider::HostCrypto;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};
use tegmen_store::{Database, Options, SealingKey};
use works::{Scene, Server};

const CONFIG: &str = r#"[addresses]
listen = "127.0.0.1"
port = 0

[access]
store = "access.db"
sealing-key = "sealing.key"
policy = "policy.toml"
audit = "audit.log"
audit-key = "audit.pem"

[groups]
group-controller = "controller"
group-key = "group.pem"
"#;

const POLICY: &str = r#"[[rule]]
subject = ["tag:display", "lamp"]
publisher = "controller"
allow = "POST /ace-group/lamps"

[[rule]]
subject = "tag:display"
publisher = "controller"
allow = "POST /ace-group/lamps/requester"
"#;

/// Writes the files of an operator, with a signing key for the controller. Returns the key.
fn furnish_groups(dir: &Path) -> SoftwareKey {
    furnish(dir);
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
    secret(dir, "group.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    std::fs::write(dir.join("tegmen.toml"), CONFIG).unwrap();
    SoftwareKey::from_file(&dir.join("group.pem")).unwrap()
}

/// Passes a controller to `change`. The controller uses the store of a server that does not run.
fn with_controller(dir: &Path, change: impl AsyncFnOnce(&Controller<Database>)) {
    let key = SealingKey::from_file(&dir.join("sealing.key")).unwrap();
    let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
    let database = Database::open_with(&dir.join("access.db"), options).unwrap();
    runtime().block_on(async { change(&Controller::new(database, None).unwrap()).await });
}

async fn connect(server: &Server, device: &str) -> Session {
    Session::connect_to(server.addresses[0], Scheme::Coaps, ClientConfig::psk(device, SHARED_KEY)).await.unwrap()
}

async fn join(session: &Session, group: &str, sends: bool) -> Response {
    let control_uri = Some("coap://[fd00::1]/ace-group/lamps/node".to_owned());
    let request =
        JoinRequest { group: group.to_owned(), sends, control_uri, checks_signatures: true, ..JoinRequest::default() };
    let path = format!("/ace-group/{group}");
    session.post(&path, &request.encode()).content_format(GROUPCOMM_CBOR).await.unwrap()
}

#[test]
fn a_device_joins_a_group_and_gets_its_keys_also_after_a_restart() {
    let scene = Scene::new("groups-join");
    let key = furnish_groups(&scene.0);
    with_controller(&scene.0, async |controller| {
        controller.create("lamps", GroupConfig::at("[ff15::1]:5684".parse().unwrap()), &[]).await.unwrap();
    });
    let start = || Server::spawn(&scene.0, &["serve", "--config", "tegmen.toml"], 1);
    let mut server = start();
    let keys = runtime().block_on(async {
        let display = connect(&server, "display").await;
        let response = join(&display, "lamps", true).await;
        assert_eq!(response.code, Code::CREATED);
        let keys = GroupKeys::parse(&response.payload).unwrap();
        assert_eq!((keys.epoch, keys.sender_id), (2, Some(0)));
        assert_eq!(keys.controller.as_deref(), Some(key.public_key()));
        // The policy gives the lamp no right to send, and mallory has no right to a group that is not there.
        assert_eq!(join(&connect(&server, "lamp").await, "lamps", true).await.code, Code::FORBIDDEN);
        assert_eq!(join(&display, "doors", false).await.code, Code::FORBIDDEN);
        keys
    });
    server.wait_for("display joined the group lamps");
    server.end();
    let server = start();
    runtime().block_on(async {
        let again = connect(&server, "display").await.get("/ace-group/lamps").await.unwrap();
        assert_eq!(again.code, Code::CONTENT);
        assert_eq!(GroupKeys::parse(&again.payload).unwrap().secret.expose(), keys.secret.expose());
    });
}

#[test]
fn the_eviction_of_a_disabled_device_is_sent_and_counted() {
    let scene = Scene::new("groups-evict");
    let signer = furnish_groups(&scene.0);
    let group = Ipv4Addr::new(239, 255, 77, 2);
    let listener = UdpSocket::bind((group, 0)).unwrap();
    listener.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let member = |name: &str| NewMember {
        name: name.to_owned(),
        address: None,
        sends: false,
        checks_signatures: true,
        public_key: None,
        oscore: None,
    };
    let mut lamp = None;
    with_controller(&scene.0, async |controller| {
        let config = GroupConfig::at((group, listener.local_addr().unwrap().port()).into());
        controller.create("lamps", config, &[member("lamp"), member("display"), member("mallory")]).await.unwrap();
        let keys = controller.parameters("lamps", "lamp").await.unwrap();
        lamp = Some(KeyPath::<16>::new(&keys.admission()).unwrap());
    });
    with_state(&scene.0, async |state| {
        state.set_disabled("mallory", true).await.unwrap();
    });
    let sending = "group-interface = \"127.0.0.1\"\nrekey-repetitions = 0\n";
    let metrics = "[service]\nmetrics = \"127.0.0.1:0\"\n";
    std::fs::write(scene.0.join("tegmen.toml"), format!("{CONFIG}{sending}{metrics}")).unwrap();
    let mut server = Server::spawn(&scene.0, &["serve", "--config", "tegmen.toml"], 2);
    server.wait_for("mallory is evicted from lamps: the device is disabled or removed");
    let (mut lamp, crypto) = (lamp.unwrap(), &mut HostCrypto::from_os().unwrap());
    let mut buffer = [0; 256];
    while lamp.epoch() == 1 {
        let len = listener.recv(&mut buffer).expect("a rekey message");
        lamp.open(crypto, Some(signer.public_key()), &buffer[..len]).unwrap();
    }
    let mut page = String::new();
    let mut stream = TcpStream::connect(server.addresses[1]).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    for line in ["tegmen_group_epochs_total 1", "tegmen_group_failures_total 0"] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    assert!(page.contains("tegmen_group_messages_total "));
}

#[test]
fn a_configuration_of_groups_that_is_wrong_is_named_by_file_line_and_key() {
    let scene = Scene::new("groups-config");
    furnish_groups(&scene.0);
    let check = |text: &str| {
        std::fs::write(scene.0.join("tegmen.toml"), text).unwrap();
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let options = ["serve", "--config", "tegmen.toml", "--check-config"];
        let done = tegmen.args(options).current_dir(&scene.0).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(check(CONFIG), (Some(0), "ok\n".to_owned()));
    let rsa = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    secret(&scene.0, "rsa.pem", &rsa.serialize_pem());
    let groups = "[resources]\nvalue = \"/a=1\"\n[keys]\nanonymous = [\"GET /a\"]\n[groups]\n";
    for (text, expected) in [
        (CONFIG.replace("\"group.pem\"", "\"none.pem\""), "tegmen.toml:14: group-key: none.pem: No such file"),
        (CONFIG.replace("\"group.pem\"", "\"rsa.pem\""), "tegmen.toml:14: group-key: rsa.pem: it is an RSA key"),
        (
            CONFIG.replace("\"controller\"", "\"tag:c\""),
            "tegmen.toml:13: group-controller: a name does not begin with tag:",
        ),
        (
            CONFIG.replace("group-key", "group-kye"),
            "tegmen.toml:14: groups.group-kye: no such key; group-key in [groups]",
        ),
        (format!("{groups}group-controller = \"c\"\n"), "tegmen.toml:6: group-controller: it needs --store"),
        (format!("{groups}group-interface = \"lo\"\n"), "tegmen.toml:6: group-interface: it needs --group-controller"),
        (format!("{groups}group-key = \"group.pem\"\n"), "tegmen.toml:6: group-key: it needs --group-controller"),
    ] {
        let (code, said) = check(&text);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
