//! Tests a delegated device. The device and its delegation server are processes of `tegmen serve`, and OpenSSL is the
//! client of both.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/commands.rs"]
mod commands;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/process.rs"]
mod process;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/server_files.rs"]
mod server_files;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use commands::{ALL, OPTIONS, Operator};
use operator::secret;
use process::wait;
use server_files::write_keys;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use works::{Scene, Server};

const POLICY: &str = r#"[[rule]]
subject = ["CN=reader", "CN=hub", "CN=alice"]
publisher = "lamp.example"
allow = "read /temp"

[[rule]]
subject = "CN=writer"
publisher = "lamp.example"
allow = ["read /temp", "write /light"]
"#;

/// The only cipher suite of devices. OpenSSL offers it only at a lower security level.
const CIPHER: &str = "ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0";
/// Maximum duration of an OpenSSL process in seconds.
const PATIENCE: &str = "60";

/// A CoAP request without a token: GET /temp.
const GET_TEMP: &[u8] = b"\x40\x01\x00\x07\xb4temp";
/// A CoAP request without a token: PUT /light with the payload `1`.
const PUT_LIGHT: &[u8] = b"\x40\x03\x00\x09\xb5light\xff1";

/// The files of all parties, and the running delegation server.
struct World {
    scene: Scene,
    server: Server,
    /// The address of the device.
    at: SocketAddr,
}

fn tegmen(scene: &Scene, arguments: &str) {
    let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let made = tegmen.args(arguments.split(' ')).current_dir(&scene.0).output().unwrap();
    assert!(made.status.success(), "{arguments}: {made:?}");
}

/// Returns an address whose port is free now.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl World {
    /// Starts a delegation server and imprints a device. The device is not started.
    fn new(name: &str) -> Self {
        let scene = Scene::new(name);
        write_keys(&scene.0);
        std::fs::write(scene.0.join("policy.toml"), POLICY).unwrap();
        tegmen(&scene, "ca init ca");
        tegmen(&scene, "ca issue ca --name server --dns server.example --server");
        tegmen(&scene, "ca issue ca --name reader --client");
        tegmen(&scene, "ca issue ca --name writer --client");
        let options = OPTIONS.split(' ').chain(
            "--policy policy.toml --cert ca/server.pem --cert-key ca/server.key --client-ca ca/ca.pem --delegation-ca ca \
             --delegation-trust ca/ca.pem"
                .split_ascii_whitespace(),
        );
        let server = Server::start(&scene.0, &options.collect::<Vec<_>>(), 2);
        let world = Self { scene, server, at: free() };
        let operator = world.operator();
        operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
        let mut imprint = operator.command("device imprint lamp.example --output lamp.key");
        let scopes = ["--scope", "GET /temp,PUT /light", "--scope", "GET /temp"];
        imprint.args(["--address", &world.at.to_string()]).args(scopes).env("TEGMEN_KEY_FILE", "root.key");
        let imprinted = imprint.output().unwrap();
        assert!(imprinted.status.success(), "{imprinted:?}");
        world
    }

    fn operator(&self) -> Operator<'_> {
        Operator { dir: &self.scene.0, server: format!("https://localhost:{}", self.server.addresses[1].port()) }
    }

    fn succeeds(&self, arguments: &str) -> String {
        self.operator().succeeds("root.key", arguments)
    }

    /// Writes the configuration of the device, with the lines `more` at the end.
    fn configure(&self, more: &str) {
        let (ip, port) = (self.at.ip(), self.at.port());
        let config = format!(
            "[addresses]\nlisten = [\"{ip}\"]\nport = {port}\n\n[resources]\nvalue = [\"/temp=21.5\", \"/light=0\"]\n\n\
             [delegated]\ndelegated = \"lamp.example\"\ndevice-key = \"lamp.key\"\ndevice-state = \"lamp.state\"\n\
             device-scope = [\"GET /temp,PUT /light\", \"GET /temp\"]\n{more}"
        );
        std::fs::write(self.scene.0.join("lamp.toml"), config).unwrap();
    }

    /// Starts the device.
    fn device(&self) -> Server {
        self.configure("");
        let mut device = Server::spawn(&self.scene.0, &["serve", "--config", "lamp.toml"], 1);
        assert_eq!(device.addresses, [self.at]);
        assert!(device.process.try_wait().unwrap().is_none());
        device
    }

    /// Waits until the device is in this epoch, and has acknowledged all revocations. If the device was killed, the
    /// server waits 20 seconds for a response before it tries again.
    fn until_settled(&self, epoch: u16) {
        let shown = || {
            let shown = self.succeeds("delegation show lamp.example --json");
            serde_json::from_str::<serde_json::Value>(&shown).unwrap()
        };
        for _ in 0..600 {
            let shown = shown();
            if shown["epoch"] == epoch && shown["pending"].is_null() && shown["untold"] == 0 && shown["heard"].is_u64()
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{}", shown());
    }

    /// Runs OpenSSL as the client `peer`, which sends a request. Ends OpenSSL when it has received the text `expected`,
    /// or when its session has ended. Returns the output of OpenSSL.
    fn openssl(&self, at: SocketAddr, peer: &str, request: &[u8], expected: &str, more: &[&str]) -> String {
        let (cert, key) = (format!("ca/{peer}.pem"), format!("ca/{peer}.key"));
        let mut openssl = Command::new("timeout");
        openssl.current_dir(&self.scene.0).args([PATIENCE, "openssl", "s_client", "-dtls1_2", "-nocommands"]);
        openssl.args(["-cipher", CIPHER, "-connect", &at.to_string(), "-CAfile", "ca/ca.pem", "-verify_return_error"]);
        openssl.args(["-servername", "lamp.example", "-verify_hostname", "lamp.example"]);
        openssl.args(["-cert", &cert, "-key", &key]).args(more);
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = openssl.spawn().unwrap();
        // The client sends it once the handshake is over. It may have ended before.
        let mut stdin = client.stdin.take().unwrap();
        let _ = stdin.write_all(request);
        let mut stdout = client.stdout.take().unwrap();
        let (mut text, mut part) = (String::new(), [0; 4096]);
        while !text.contains(expected) {
            match stdout.read(&mut part).unwrap() {
                0 => break,
                len => text += &String::from_utf8_lossy(&part[..len]),
            }
        }
        end(client);
        text
    }

    /// Opens a session of a peer with the server, in the name of the device. OpenSSL writes the ticket to the file
    /// PEER.session.
    fn authenticate(&self, peer: &str) {
        let file = format!("{peer}.session");
        let is_given = || {
            let text =
                self.openssl(self.server.addresses[0], peer, b"", "Extended master secret", &["-sess_out", &file]);
            (text.contains("New, ") && text.contains("TLS session ticket lifetime hint")).then_some(())
        };
        wait("a ticket", is_given);
    }

    /// Checks that the peer resumes the session at the device, and that its request gets this response.
    fn resumes(&self, peer: &str, request: &[u8], response: &str) {
        let file = format!("{peer}.session");
        let text = self.openssl(self.at, peer, request, response, &["-sess_in", &file]);
        assert!(text.contains("Reused, ") && text.contains(response), "{text}");
    }

    /// Checks that the device neither resumes the session of the peer nor opens a new session.
    fn is_refused(&self, peer: &str) {
        let file = format!("{peer}.session");
        let text = self.openssl(self.at, peer, GET_TEMP, "21.5", &["-sess_in", &file]);
        assert!(!text.contains("Reused, ") && !text.contains("21.5"), "{text}");
    }

    /// Returns the connection of a peer, as EPOCH-NUMBER.
    fn connection_of(&self, peer: &str) -> String {
        let list = self.succeeds("delegation list lamp.example");
        let line = list.lines().find(|line| line.contains(peer)).unwrap_or_else(|| panic!("{list}"));
        line.split([' ', ':']).next().unwrap().to_owned()
    }
}

fn end(mut child: Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

/// The Message ID of [`PUT_LIGHT`]. The response contains the same Message ID.
const CHANGED: &str = "\u{0}\t";

#[test]
fn openssl_resumes_at_the_device_until_it_is_revoked_also_after_a_restart() {
    let world = World::new("device-openssl");
    let mut device = world.device();
    world.until_settled(1);
    world.authenticate("reader");
    world.authenticate("writer");
    world.resumes("reader", GET_TEMP, "21.5");
    world.resumes("writer", PUT_LIGHT, CHANGED);
    // A scope without PUT.
    world.resumes("reader", PUT_LIGHT, CHANGED);
    let said = wait_for(&mut device, "/light");
    assert!(said.contains("2.04"), "{said}");
    let said = wait_for(&mut device, "/light");
    assert!(said.contains("4.03"), "{said}");
    let number = world.connection_of("reader");
    world.succeeds(&format!("delegation revoke lamp.example {number}"));
    world.until_settled(1);
    world.is_refused("reader");
    world.resumes("writer", GET_TEMP, "21.5");
    // SIGKILL, and the same state.
    drop(device);
    let device = world.device();
    world.is_refused("reader");
    world.resumes("writer", GET_TEMP, "21.5");
    world.succeeds("delegation reset lamp.example");
    world.until_settled(2);
    world.is_refused("writer");
    drop(device);
    let _device = world.device();
    world.is_refused("writer");
    // The server resumes the session of the epoch before, and authenticates another one.
    let at = world.server.addresses[0];
    let text = world.openssl(at, "writer", b"", "Extended master secret", &["-sess_in", "writer.session"]);
    assert!(text.contains("Reused, "), "{text}");
    world.authenticate("writer");
    world.resumes("writer", GET_TEMP, "21.5");
}

#[test]
fn a_device_that_cannot_start_names_the_cause_and_the_next_step() {
    let scene = Scene::new("device-mistakes");
    secret(&scene.0, "lamp.key", &"1".repeat(64));
    secret(&scene.0, "other.key", &"2".repeat(64));
    secret(&scene.0, "short.key", "12");
    std::fs::write(scene.0.join("open.key"), "1".repeat(64)).unwrap();
    let options = |name: &str, key: &str, more: &str| {
        let ports = "serve --listen 127.0.0.1 --port 0 --value /temp=21.5";
        let state = "--device-state lamp.state --device-scope";
        let mut options: Vec<String> =
            format!("{ports} --delegated {name} --device-key {key} {state}").split(' ').map(str::to_owned).collect();
        options.push("GET /temp".to_owned());
        options.extend(more.split_ascii_whitespace().map(str::to_owned));
        options
    };
    let fails = |options: &[String], words: &str| {
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let output = tegmen.args(options).current_dir(&scene.0).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(words), "{options:?}: {text}");
    };
    let bare = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    fails(&bare("serve --value /temp=1 --delegated lamp.example"), "--delegated: it needs --device-state");
    fails(&bare("serve --value /temp=1 --device-key lamp.key"), "--device-key: it needs --delegated");
    let no_key = bare("serve --value /temp=1 --delegated lamp.example --device-state lamp.state --device-scope /temp");
    fails(&no_key, "the file that `tegmen device imprint` wrote");
    fails(&no_key, "--device-scope: /temp is no rule");
    fails(&options("lamp.example", "open.key", ""), "chmod 600 open.key");
    fails(&options("lamp.example", "short.key", ""), "a device key has 64 hexadecimal digits");
    fails(
        &options("lamp.example", "lamp.key", "--store access.db"),
        "a delegated device has no certificate and no role",
    );
    assert!(!scene.0.join("lamp.state").exists());
    let start = options("lamp.example", "lamp.key", "");
    let device = Server::spawn(&scene.0, &start.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    fails(&start, "lamp.state is in use by another process");
    drop(device);
    fails(
        &options("door.example", "lamp.key", ""),
        "the state of the device lamp.example, and this one is door.example",
    );
    fails(&options("lamp.example", "other.key", ""), "came from another device key");
}

#[test]
fn a_user_logs_in_with_a_password_and_reads_a_device_until_disabled() {
    let mut world = World::new("device-login");
    let dir = &world.scene.0;
    let _device = world.device();
    world.until_settled(1);
    secret(dir, "right", "correct horse battery");
    secret(dir, "wrong", "incorrect horse battery");
    for name in ["alice", "mallory"] {
        world.succeeds(&format!("user add {name} --password-file right --hours 1"));
    }
    assert_eq!(world.succeeds("user list"), "alice: logins of 1 hours\nmallory: logins of 1 hours\n");
    let operator = world.operator();
    operator.fails("root.key", "user add reader --password-file right", 1, "(name-taken)");
    let log_in = |name: &str, password: &str| {
        let mut command = operator.command(&format!("login {name} --password-file {password} --output ca --json"));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code().unwrap(), text)
    };
    let (code, said) = log_in("alice", "wrong");
    assert!(code == 1 && said.contains("(login-refused)") && !dir.join("ca/alice.key").exists(), "{said}");
    let (code, said) = log_in("alice", "right");
    let logged_in: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &logged_in["key"]), (0, &"ca/alice.key".into()), "{said}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&dir.join("ca/alice.key").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let (code, said) = log_in("mallory", "right");
    assert_eq!(code, 0, "{said}");
    let mut x509 = Command::new("openssl");
    let shown = x509.args(["x509", "-noout", "-text", "-in", "ca/alice.pem"]).current_dir(dir).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for text in ["Subject: CN = alice\n", "CA:FALSE", " TLS Web Client Authentication\n"] {
        assert!(shown.contains(text), "{shown}");
    }
    assert!(!shown.contains("Subject Alternative Name"), "{shown}");
    world.authenticate("alice");
    world.resumes("alice", GET_TEMP, "21.5");
    // The device takes her sessions until her certificate ends.
    let list = world.succeeds("delegation list lamp.example --json");
    let of_alice = |line: &&str| line.contains("CN=alice");
    let connection: serde_json::Value = serde_json::from_str(list.lines().find(of_alice).unwrap()).unwrap();
    assert_eq!(connection["expires"], logged_in["expires"]);
    // No rule of the policy has her name: she gets no ticket.
    let at = world.server.addresses[0];
    let text = world.openssl(at, "mallory", b"", "Extended master secret", &["-sess_out", "mallory.session"]);
    assert!(text.contains("Cipher is ECDHE") && !text.contains("TLS session ticket lifetime hint"), "{text}");
    let audited =
        || std::fs::read_to_string(dir.join("audit.log")).unwrap().contains("\"CN=mallory\",\"code\":\"no-scope\"");
    wait("a line in the log", || audited().then_some(()));
    let said = world.succeeds("user change alice --disable");
    let id = connection["id"].as_str().unwrap();
    assert!(said.contains("Revoked certificates: 1.") && said.contains(&format!("lamp.example {id}")), "{said}");
    world.until_settled(1);
    world.is_refused("alice");
    let (code, said) = log_in("alice", "right");
    assert!(code == 1 && said.contains("(login-refused)"), "{said}");
    // The server refuses the certificate once it has read the list.
    world.server.wait_for("reloaded");
    world.openssl(at, "alice", b"", "Extended master secret", &[]);
    world.server.wait_for("is revoked");
    let audit = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    assert!(!audit.contains("horse"), "{audit}");
}

/// Reads the output up to this text. Panics if the output ends before the text.
fn read_to(output: &mut impl std::io::Read, expected: &str) -> String {
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains(expected) {
        let len = output.read(&mut part).unwrap();
        assert!(len > 0, "{text}");
        text += &String::from_utf8_lossy(&part[..len]);
    }
    text
}

/// The recorded datagrams of clients, each with the port of its client.
type Noted = Arc<Mutex<Vec<(u16, Vec<u8>)>>>;

/// Passes the datagrams of all clients on to a server, and the responses back. Records the datagrams of the clients.
struct Relay {
    at: SocketAddr,
    noted: Noted,
}

impl Relay {
    /// Starts the relay, which runs until the process ends.
    fn start(server: SocketAddr) -> Self {
        let listening = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (at, noted) = (listening.local_addr().unwrap(), Arc::default());
        let noting = Arc::clone(&noted);
        std::thread::spawn(move || {
            let (mut ways, mut datagram) = (HashMap::<SocketAddr, Arc<UdpSocket>>::new(), [0; 2048]);
            while let Ok((len, from)) = listening.recv_from(&mut datagram) {
                let noted: &Mutex<Vec<(u16, Vec<u8>)>> = &noting;
                noted.lock().unwrap().push((from.port(), datagram[..len].to_vec()));
                let way = ways.entry(from).or_insert_with(|| {
                    let way = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                    way.connect(server).unwrap();
                    let (back, to) = (Arc::clone(&way), Arc::clone(&listening));
                    std::thread::spawn(move || {
                        let mut datagram = [0; 2048];
                        while let Ok(len) = back.recv(&mut datagram) {
                            let _ = to.send_to(&datagram[..len], from);
                        }
                    });
                    way
                });
                let _ = way.send(&datagram[..len]);
            }
        });
        Self { at, noted }
    }

    /// Returns the ClientHellos of each client. The clients are in the order of their first ClientHello.
    fn hellos(&self) -> Vec<Vec<Vec<u8>>> {
        let noted = self.noted.lock().unwrap();
        let (mut ports, mut hellos) = (Vec::new(), Vec::<Vec<Vec<u8>>>::new());
        // A handshake record of epoch 0 with a ClientHello (RFC 6347, sections 4.1 and 4.2.2).
        let is_hello = |datagram: &[u8]| datagram[0] == 22 && datagram[3..5] == [0, 0] && datagram[13] == 1;
        for (port, datagram) in noted.iter().filter(|(_, datagram)| datagram.len() > 13 && is_hello(datagram)) {
            let at = ports.iter().position(|known| known == port).unwrap_or_else(|| {
                ports.push(*port);
                hellos.push(Vec::new());
                ports.len() - 1
            });
            hellos[at].push(datagram.clone());
        }
        hellos
    }
}

#[test]
fn the_device_resumes_at_an_openssl_server_and_answers_its_requests() {
    let world = World::new("device-hub");
    let mut device = world.device();
    world.until_settled(1);
    tegmen(&world.scene, "ca issue ca --name hub --dns hub.example --server");
    let at = free();
    let mut hub = Command::new("timeout");
    hub.current_dir(&world.scene.0).args([PATIENCE, "openssl", "s_server", "-dtls1_2", "-cipher", CIPHER]);
    hub.args(["-accept", &at.to_string(), "-cert", "ca/hub.pem", "-key", "ca/hub.key", "-CAfile", "ca/ca.pem"]);
    hub.args(["-Verify", "2", "-verify_return_error"]);
    let mut hub = hub.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut to_hub, mut from_hub) = (hub.stdin.take().unwrap(), hub.stdout.take().unwrap());
    read_to(&mut from_hub, "ACCEPT");
    // Until the server has reserved the first numbers of the epoch, it gives none.
    let relay = Relay::start(at);
    let connect = format!("delegation connect lamp.example {} --server-name hub.example", relay.at);
    wait("session", || (world.operator().run("root.key", &connect).0 == 0).then_some(()));
    let said = read_to(&mut from_hub, "Reused session-id");
    assert!(said.contains("CN = lamp.example"), "{said}");
    to_hub.write_all(GET_TEMP).unwrap();
    to_hub.flush().unwrap();
    read_to(&mut from_hub, "21.5");
    // The name is in the ClientHellos of the server, and in those of the device, which come from another port.
    let name = b"\0\0\0\x10\0\x0e\0\0\x0bhub.example";
    let hellos = relay.hellos();
    let (devices, servers) = hellos.split_last().unwrap();
    assert!(!servers.is_empty() && devices.iter().chain(servers.iter().flatten()).count() >= 4, "{hellos:?}");
    for hello in devices.iter().chain(servers.iter().flatten()) {
        assert!(hello.windows(name.len()).any(|part| part == name), "{hello:?}");
    }
    let number = world.connection_of("CN=hub");
    world.succeeds(&format!("delegation revoke lamp.example {number}"));
    wait_for(&mut device, "has ended");
    end(hub);
}

fn wait_for(device: &mut Server, text: &str) -> String {
    device.lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains(text)).unwrap()
}
