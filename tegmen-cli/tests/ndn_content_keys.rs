//! Tests encrypted content of `tegmen ndn` whose keys come from an access control server.
#![cfg(target_os = "linux")]

#[path = "works/operator.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{OPTIONS, PROTOKEY, SHARED_KEY, furnish, runtime, secret};
use std::process::{Command, Output};
use std::time::Duration;
use tegmen_control::access::protokey::SessionIdentity;
use tegmen_control::subscriber::content_key;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::hex::to_hex;
use tegmen_host::uri::Scheme;
use tegmen_ndn::publisher::ContentKey;
use tegmen_ndn::{Name, ReceivedData};
use tegmen_ndn_host::client::{Client, name_bytes};
use tegmen_ndn_host::object::{Fetched, fetch};
use works::{Scene, Server};

const POLICY: &str = r#"[[rule]]
subject = ["display", "mallory"]
publisher = "oven"
allow = "GET /house/temp"

[[rule]]
subject = "display"
publisher = "lamp"
allow = "GET /house/lamp"
"#;

/// An access control server, a forwarder, and the files of the devices `oven`, `lamp`, `display` and `mallory`.
struct House {
    scene: Scene,
    face: String,
    _forwarder: Server,
    access: Server,
}

impl House {
    fn new(name: &str) -> Self {
        let scene = Scene::new(name);
        let dir = &scene.0;
        furnish(dir);
        std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
        secret(dir, "oven.protokey", &to_hex(&PROTOKEY));
        for device in ["display", "mallory", "lamp"] {
            let text = format!("[[psk]]\nidentity = \"{device}\"\nkey = \"{}\"\n", to_hex(&SHARED_KEY));
            secret(dir, &format!("{device}.toml"), &text);
        }
        let socket = std::env::temp_dir().join(format!("tegmen-{name}-{}.sock", std::process::id()));
        let socket = socket.to_str().unwrap();
        let mut forwarder = Server::spawn(dir, &["ndn", "forward", "--unix", socket], 0);
        forwarder.wait_for(socket);
        let access = Self::access(&scene);
        Self { face: format!("unix://{socket}"), scene, _forwarder: forwarder, access }
    }

    fn access(scene: &Scene) -> Server {
        Server::start(&scene.0, &OPTIONS.split(' ').collect::<Vec<_>>(), 1)
    }

    /// Ends the access control server, and starts it again with another policy.
    fn with_policy(mut self, policy: &str) -> Self {
        self.access.end();
        std::fs::write(self.scene.0.join("policy.toml"), policy).unwrap();
        self.access = Self::access(&self.scene);
        self
    }

    fn uri(&self) -> String {
        format!("coaps://{}", self.access.addresses[0])
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        command.arg("ndn").args(arguments.split(' ')).current_dir(&self.scene.0);
        command.env("NDN_CLIENT_TRANSPORT", &self.face);
        command
    }

    /// Starts a producer, and waits until its prefix is registered.
    fn producer(&self, arguments: &str) -> Server {
        let mut server = Server::of(&mut self.command(arguments), 0);
        server.wait_for("is registered");
        server
    }

    /// Runs `tegmen ndn get` as a device, with the access control server.
    fn get(&self, name: &str, device: &str) -> Output {
        let arguments = format!("get {name} --access-server {} --credentials {device}.toml", self.uri());
        self.command(&arguments).output().unwrap()
    }

    fn read(&self, name: &str, device: &str) -> String {
        let output = self.get(name, device);
        assert!(output.status.success(), "{device}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command. Checks that it prints no content, and that it ends with this exit code and this cause.
    fn refused(&self, output: &Output, code: i32, cause: &str) {
        let text = String::from_utf8_lossy(&output.stderr);
        let found = (output.status.code(), output.stdout.as_slice());
        assert!(found == (Some(code), b"") && text.contains(cause), "{found:?}: {text}");
    }

    /// Fetches an object without a key: its name and its ciphertext.
    async fn fetch(&self, name: &str) -> Fetched {
        let mut client = Client::connect(&self.face.parse().unwrap()).await.unwrap();
        let name = name_bytes(name).unwrap();
        let mut any = |_: &ReceivedData<'_>| true;
        fetch(&mut client, &Name::of_checked(&name), Duration::from_secs(4), &mut any).await.unwrap()
    }

    /// Requests the key of an encrypted object, and returns it. A device can store this key.
    async fn key(&self, object: &Fetched, device: &str) -> Option<ContentKey> {
        let config = ClientConfig::psk(device, SHARED_KEY);
        let session = Session::connect_to(self.access.addresses[0], Scheme::Coaps, config).await.unwrap();
        let (name, identity) = object.key().unwrap();
        let identity = SessionIdentity::parse(identity).unwrap();
        let granted = content_key(&session, identity, &name.to_string()).await;
        granted.ok().map(|granted| ContentKey::new(granted.key))
    }
}

const OVEN: &str = "serve --value /house/temp=21.5 --value /house/door=shut --producer oven --protokey oven.protokey";

#[test]
fn a_consumer_reads_what_the_policy_allows_and_nothing_else() {
    let house = House::new("ndn-keys");
    let _oven = house.producer(OVEN);
    assert_eq!(house.read("/house/temp", "display"), "21.5");
    assert_eq!(house.read("/house/temp", "mallory"), "21.5");
    // A device without a right gets no key. A right to read one content gives no right to read another content.
    house.refused(&house.get("/house/temp", "lamp"), 1, "no key for /house/temp of oven");
    house.refused(&house.get("/house/door", "display"), 1, "no key for /house/door of oven");
    house.refused(&house.command("get /house/temp").output().unwrap(), 2, "by --access-server");
    // A consumer that expects encrypted content refuses content in clear.
    let _clear = house.producer("serve --value /yard/temp=9 --ping /yard");
    std::fs::write(house.scene.0.join("plain"), "9").unwrap();
    let mut put = Server::of(&mut house.command("put /yard/plain plain"), 0);
    put.wait_for("is published");
    house.refused(&house.get("/yard/plain", "display"), 1, "is not encrypted");
    // The packets have no readable content.
    let object = runtime().block_on(house.fetch("/house/temp"));
    assert!(!object.content.windows(4).any(|part| part == b"21.5"), "{object:?}");
    let House { scene, access, .. } = house;
    access.end();
    let log = std::fs::read_to_string(scene.0.join("audit.log")).unwrap();
    for line in ["of /house/temp: granted", "of /house/temp: refused (no-rule)", "of /house/door: refused (no-rule)"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// The policy lets `display` read `/house/temp` of two producers. Without `--producer`, `display` reads the content of
/// the producer whose packet comes first.
#[test]
fn a_consumer_that_names_a_producer_reads_no_content_of_another_one() {
    let house = House::new("ndn-expected").with_policy(&POLICY.replace("/house/lamp", "/house/temp"));
    let of_lamp = format!("--producer lamp --access-server {} --credentials lamp.toml", house.uri());
    let _lamp = house.producer(&format!("serve --value /house/temp=99 {of_lamp}"));
    assert_eq!(house.read("/house/temp", "display"), "99");
    assert_eq!(house.read("/house/temp --producer lamp", "display"), "99");
    let output = house.get("/house/temp --producer oven", "display");
    house.refused(&output, 1, "lamp encrypted this content, and not oven");
    let output = house.command("get /house/temp --producer oven").output().unwrap();
    house.refused(&output, 2, "--access-server");
    let House { scene, access, .. } = house;
    access.end();
    let log = std::fs::read_to_string(scene.0.join("audit.log")).unwrap();
    // One key is for the producer itself.
    assert_eq!(log.matches("of /house/temp: granted").count(), 3, "{log}");
}

/// `mallory` stores the key of a content, and then loses its right. The stored key opens the old content until the
/// producer starts again. It does not open the content after the start, and the server gives `mallory` no other key.
///
/// This test fails if the producer uses a key again after a start.
#[test]
fn a_stored_key_does_not_open_the_content_after_a_revocation_and_a_new_start() {
    let house = House::new("ndn-rotation");
    // Both starts use the same version. This happens at a producer whose clock was set back.
    let put = |content: &str| {
        std::fs::write(house.scene.0.join("content"), content).unwrap();
        let arguments = "put /house/temp content --version-number 7 --producer oven --protokey oven.protokey";
        let mut server = Server::of(&mut house.command(arguments), 0);
        server.wait_for("is published");
        server
    };
    let oven = put("21.5");
    let (mut old, stored) = runtime().block_on(async {
        let old = house.fetch("/house/temp").await;
        let stored = house.key(&old, "mallory").await.expect("a key");
        (old, stored)
    });
    oven.end();
    let oven = put("23.0");
    let new = runtime().block_on(house.fetch("/house/temp"));
    let house = house.with_policy(&POLICY.replace(", \"mallory\"", ""));
    old.decrypt(&stored).expect("the old content");
    assert_eq!(old.content, b"21.5");
    assert_ne!(old.name, new.name, "one name has one content");
    new.clone().decrypt(&stored).expect_err("the key of the old content");
    assert!(runtime().block_on(house.key(&new, "mallory")).is_none());
    assert!(runtime().block_on(house.key(&old, "mallory")).is_none());
    house.refused(&house.get("/house/temp", "mallory"), 1, "no key for /house/temp of oven");
    assert_eq!(house.read("/house/temp", "display"), "23.0");
    drop(oven);
}

/// Two values of one name have the same key. If they also had the same version, they would have the same nonce, and
/// their ciphertexts would show the difference of their contents.
///
/// This test fails if `serve` gives both values the same version.
#[test]
fn two_values_of_one_name_have_two_nonces() {
    let house = House::new("ndn-twice");
    let values = "--value /house/temp=21.5 --value /house/temp=23.0";
    let _oven = house.producer(&format!("serve {values} --producer oven --protokey oven.protokey"));
    let first = runtime().block_on(house.fetch("/house/temp"));
    let name = Name::of_checked(&first.name);
    let version = name.last().and_then(|last| last.number()).expect("a version");
    let key = name.prefix(name.len() - 1).to_string();
    assert_eq!(house.read(&format!("{key}/v={version}"), "display"), "21.5");
    assert_eq!(house.read(&format!("{key}/v={}", version + 1), "display"), "23.0");
}

#[test]
fn a_producer_gets_its_keys_from_the_server_by_its_shared_key() {
    let house = House::new("ndn-producer");
    let from_server = |producer: &str| {
        let uri = house.uri();
        format!("serve --value /house/lamp=on --producer {producer} --access-server {uri} --credentials lamp.toml")
    };
    let _lamp = house.producer(&from_server("lamp"));
    assert_eq!(house.read("/house/lamp", "display"), "on");
    house.refused(&house.get("/house/lamp", "mallory"), 1, "no key for /house/lamp of lamp");
    // A producer gets no key of another producer.
    let refused = house.command(&from_server("oven")).output().unwrap();
    house.refused(&refused, 1, "no key for /house/lamp of oven");
    // The options name one source of keys.
    for (options, cause) in [
        ("--producer lamp", "give --protokey FILE or --access-server URI"),
        ("--protokey oven.protokey", "--producer"),
        ("--access-server coaps://127.0.0.1", "give --producer NAME"),
        ("--producer lamp --access-server coaps://127.0.0.1", "give --credentials FILE"),
        ("--producer a;b --protokey oven.protokey", "a;b cannot be the name"),
        ("--producer oven --protokey policy.toml", "chmod 600"),
        ("--producer oven --protokey lamp.toml", "does not contain 16 to 64 bytes"),
    ] {
        let output = house.command(&format!("serve --value /house/lamp=on {options}")).output().unwrap();
        house.refused(&output, 2, cause);
    }
}
