//! Tests the bridges that serve CoAP resources as named objects, and named objects as CoAP resources.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::process::{Command, Output};
use works::{Scene, Server};

/// A forwarder, and programs that use it.
struct House {
    scene: Scene,
    face: String,
    _forwarder: Server,
}

impl House {
    fn new(name: &str) -> Self {
        let scene = Scene::new(name);
        let socket = std::env::temp_dir().join(format!("tegmen-{name}-{}.sock", std::process::id()));
        let socket = socket.to_str().unwrap();
        let mut forwarder = Server::spawn(&scene.0, &["ndn", "forward", "--unix", socket], 0);
        forwarder.wait_for(socket);
        Self { face: format!("unix://{socket}"), scene, _forwarder: forwarder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        command.args(arguments).current_dir(&self.scene.0).env("NDN_CLIENT_TRANSPORT", &self.face);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn shown(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Starts a program that runs until the test ends. Waits until its output contains this text.
    fn start(&self, arguments: &[&str], text: &str) -> Server {
        let mut server = Server::of(&mut self.command(arguments), 0);
        server.wait_for(text);
        server
    }

    /// Starts a bridge that serves CoAP. Returns the bridge and the URI of its server.
    fn to_coap(&self, arguments: &[&str]) -> (Server, String) {
        let fixed = ["ndn", "to-coap", "--listen", "coap://127.0.0.1:0", "--lifetime", "300"];
        let server = Server::of(&mut self.command(&[&fixed, arguments].concat()), 1);
        let uri = format!("coap://{}", server.addresses[0]);
        (server, uri)
    }
}

#[test]
fn a_coap_resource_is_a_named_object() {
    let house = House::new("bridge-from");
    let long = "A long text. ".repeat(1000);
    std::fs::write(house.scene.0.join("long.txt"), &long).unwrap();
    let options = ["--value", "/sensors/temp=21.5", "--file", "/sensors/long=long.txt", "--plain", "--no-secure"];
    let origin = Server::start(&house.scene.0, &options, 1);
    let uri = format!("coap://127.0.0.1:{}/sensors", origin.addresses[0].port());
    house.shown(&["ndn", "key", "new", "k/house", "/house"]);
    let _bridge = house.start(&["ndn", "from-coap", "/house", &uri, "--key-pair", "k/house"], "/house is registered");
    let anchor = ["--anchor", "k/house.cert"];
    // As an object with a version, and as a packet.
    assert_eq!(house.shown(&[&["ndn", "get", "/house/temp"], &anchor[..]].concat()), b"21.5");
    assert_eq!(house.shown(&[&["ndn", "get", "--packet", "/house/temp"], &anchor[..]].concat()), b"21.5");
    assert_eq!(house.shown(&[&["ndn", "get", "/house/long"], &anchor[..]].concat()), long.as_bytes());
    let missing = house.run(&["ndn", "get", "/house/none", "--lifetime", "200"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no Data packet arrived"), "{missing:?}");
}

#[test]
fn a_named_object_is_a_coap_resource() {
    let house = House::new("bridge-to");
    house.shown(&["ndn", "key", "new", "k/house", "/house"]);
    house.shown(&["ndn", "key", "new", "k/other", "/house"]);
    std::fs::write(house.scene.0.join("value"), "21.5").unwrap();
    let _producer = house.start(&["ndn", "put", "/house/temp", "value", "--key", "k/house"], "is published");
    let (_bridge, uri) = house.to_coap(&["--resource", "/temp=/house/temp", "--anchor", "k/house.cert"]);
    assert_eq!(house.shown(&["get", &format!("{uri}/temp")]).trim_ascii(), b"21.5");
    // The signed packet itself, which the client verifies.
    house.shown(&["get", &format!("{uri}/temp?packet"), "--output", "packet"]);
    let verified = house.shown(&["ndn", "verify", "packet", "--anchor", "k/house.cert"]);
    assert!(String::from_utf8_lossy(&verified).contains("is verified"));
    // A bridge that trusts another key gives no content, and one without a producer answers 5.04 or 4.04.
    let (_bridge, uri) = house.to_coap(&["--resource", "/temp=/house/temp", "--anchor", "k/other.cert"]);
    let refused = house.run(&["get", &format!("{uri}/temp")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("5.02"), "{refused:?}");
    let without_keys =
        house.run(&["ndn", "to-coap", "--resource", "/temp=/house/temp", "--listen", "coaps://127.0.0.1:0"]);
    assert!(String::from_utf8_lossy(&without_keys.stderr).contains("--credentials"), "{without_keys:?}");
    let (_bridge, uri) = house.to_coap(&["--resource", "/none=/garden/none"]);
    let missing = house.run(&["get", &format!("{uri}/none")]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("4.04"), "{missing:?}");
}

/// The resource contains a packet that the sensor signed. Both bridges pass it on unchanged.
#[test]
fn a_signature_survives_both_bridges() {
    let house = House::new("bridge-both");
    house.shown(&["ndn", "key", "new", "k/house", "/house"]);
    std::fs::write(house.scene.0.join("value"), "21.5").unwrap();
    house.shown(&["ndn", "sign", "/house/temp", "value", "--key", "k/house", "--output", "packet"]);
    let options = ["--file", "/temp=packet", "--plain", "--no-secure"];
    let origin = Server::start(&house.scene.0, &options, 1);
    let uri = format!("coap://127.0.0.1:{}", origin.addresses[0].port());
    // Neither bridge has a key.
    let _from = house.start(&["ndn", "from-coap", "/house", &uri], "/house is registered");
    let (_to, uri) = house.to_coap(&["--resource", "/temp=/house/temp"]);
    let packet = house.shown(&["get", &format!("{uri}/temp?packet")]);
    assert_eq!(packet, std::fs::read(house.scene.0.join("packet")).unwrap());
}
