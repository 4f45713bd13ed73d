//! Delegation: a Tegmen server opens sessions with peers in the name of a device, and the peers resume these sessions
//! at the device.
//!
//! The device is a separate process, which has neither a certificate nor a private key. To prove this, each test
//! searches the memory and the files of the device for certificates and private keys, and must find none. The same
//! search must find both at the server, which shows that the search works.

mod keys;

use crate::capture::{Capture, Datagram};
use crate::cell::{Check, LOOPBACK, Scene, Trouble, address, free_port};
use crate::hello::{self, Hello};
use crate::ours::restrict;
use crate::process::Process;
use crate::public_keys::{AS_SERVER, certificates};
use crate::resumption::{self, By};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The DNS name of the delegated device (a lamp). Peers request this name.
pub(crate) const LAMP: &str = "lamp.example";
/// The DNS name of a second device of the delegation server.
pub(crate) const DOOR: &str = "door.example";

/// The policy of the delegation server. The peer with the certificate `device1` is a client of the device, and the peer
/// with the certificate `server` is a server to which the device connects.
const POLICY: &str = r#"[[rule]]
subject = ["CN=device1", "CN=server"]
publisher = ["lamp.example", "door.example"]
allow = "read /v"
"#;
const SCOPE: &str = "GET /v";

/// The command-line options of the delegation server, which also has access control.
const ROLES: [&str; 22] = [
    "--store",
    "access.db",
    "--sealing-key",
    "sealing.key",
    "--policy",
    "policy.toml",
    "--audit",
    "audit.log",
    "--audit-key",
    "audit.pem",
    "--admin",
    "127.0.0.1:0",
    "--admin-cert",
    "ca/server.pem",
    "--admin-cert-key",
    "ca/server.key",
    "--bootstrap",
    "bootstrap",
    "--delegation-ca",
    "ca",
    "--delegation-trust",
    "ca/ca.pem",
];

/// The number of the extension server_name (RFC 6066, section 3).
const SERVER_NAME: u16 = 0;
const NOT_READ: &str =
    "it does not read a ServerHello with an empty server_name (RFC 6066, section 3): it repeats its ClientHello";

/// Returns the name of the scenario in which a session is resumed with a ticket or by its session id; `by` selects one
/// of the two. The name does not depend on which side resumes the session, the peer or the device.
pub(crate) fn row(by: By) -> &'static str {
    match by {
        By::Ticket => "delegation, resumed with a ticket",
        By::Id => "delegation, resumed by session id",
    }
}

/// A delegation server, and its device `lamp`, which is in its first epoch.
pub(crate) struct World<'s> {
    operator: Operator<'s>,
    server: Process,
    /// The address of the server, at which peers authenticate themselves.
    pub(crate) server_address: SocketAddr,
    pub(crate) lamp: Device,
}

impl<'s> World<'s> {
    pub(crate) fn start(scene: &'s Scene) -> Result<Self, Trouble> {
        certificates(scene, false)?;
        scene.file("policy.toml", POLICY)?;
        restrict(&scene.file("sealing.key", "4".repeat(64))?)?;
        let audit = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "audit.pem"];
        if !scene.start("openssl", &audit)?.await_end()?.success() {
            return Err("openssl makes no key".into());
        }
        restrict(&scene.directory().join("audit.pem"))?;
        let port = free_port()?;
        let text = port.to_string();
        let listen = ["serve", "--listen", "127.0.0.1", "--port", &text, "--shards", "1"];
        let server = scene.tegmen(&[&listen, &AS_SERVER[..], &ROLES].concat())?;
        let operator = Operator { scene, url: admin_url(&server)? };
        let scopes = ["keys:write", "delegation:read", "delegation:write"].map(|scope| ["--scope", scope]).concat();
        operator.with_key("bootstrap", &[&["key", "create", "root", "--output", "root.key"], &scopes[..]].concat())?;
        let lamp = operator.imprint(LAMP)?;
        Ok(Self { operator, server, server_address: (LOOPBACK, port).into(), lamp })
    }

    /// Starts the device `door`, and waits until it is in its first epoch.
    pub(crate) fn door(&self) -> Result<Device, Trouble> {
        self.operator.imprint(DOOR)
    }

    /// Stops the delegated device [`LAMP`] and starts it again. The device keeps its epoch. If `later` is given, the
    /// clock of the device is two days ahead: the process of the device then loads a shared library, whose path is the
    /// program name in `later`.
    pub(crate) fn restart(&mut self, later: Option<&Command>) -> Result<(), String> {
        self.lamp.process.kill();
        self.lamp.process = self.operator.run_device(LAMP, self.lamp.address, later)?;
        Ok(())
    }

    /// Revokes the only connection of the delegated device [`LAMP`], and waits until the device knows of the
    /// revocation. The device then refuses each session of this connection.
    pub(crate) fn revoke(&self) -> Result<(), String> {
        let connection = self.operator.run(&["delegation", "list", LAMP])?;
        let id = connection["id"].as_str().ok_or_else(|| format!("no connection is listed: {connection}"))?;
        self.operator.run(&["delegation", "revoke", LAMP, id])?;
        self.operator.await_device(LAMP, 1)
    }

    /// Begins the second epoch of the delegated device [`LAMP`], and waits until the device is in this epoch.
    pub(crate) fn reset(&self) -> Result<(), String> {
        self.operator.run(&["delegation", "reset", LAMP])?;
        self.operator.await_device(LAMP, 2)
    }

    /// Lets the delegated device [`LAMP`] resume a session at a server that has the certificate of `localhost`.
    pub(crate) fn connect(&self, server: SocketAddr) -> Result<(), String> {
        self.operator.run(&["delegation", "connect", LAMP, &server.to_string(), "--server-name", "localhost"]).map(drop)
    }

    /// Waits until the delegation server has sent the last peer's session to the delegated device [`LAMP`]. A peer that
    /// resumes by session id has no ticket, so the device must know the session before the peer connects to it.
    pub(crate) fn await_hand_over(&self) -> Result<(), String> {
        self.lamp.process.await_output("POST /dlg/ctx: 2.04", 0).map(drop)
    }

    /// Checks that the delegated device [`LAMP`] resumed a session at a server, and that the device has no certificate
    /// and no private key.
    pub(crate) fn has_resumed(&self) -> Check {
        self.lamp.process.await_output("delegation: resumed a session at", 0)?;
        self.holds_no_keys(&self.lamp)
    }

    /// Checks that the delegated device [`LAMP`] answered a request of a peer in a delegated session, and that the
    /// device has no certificate and no private key.
    pub(crate) fn was_asked(&self) -> Check {
        let peer = self.lamp.process.await_output("(connection ", 0)?;
        self.lamp.process.await_output(") GET /v: 2.05", peer)?;
        self.holds_no_keys(&self.lamp)
    }

    /// Checks that the memory and the files of a device have neither a certificate nor a private key, and that those of
    /// the server have both.
    pub(crate) fn holds_no_keys(&self, device: &Device) -> Check {
        let files = self.operator.scene.directory();
        keys::held_by_server_alone((&self.server, &files.join("ca")), device, &files.join(device.name))
    }
}

/// A running device of the delegation server.
pub(crate) struct Device {
    name: &'static str,
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Device {
    /// Waits until the device refuses a session for this reason.
    pub(crate) fn refuses(&self, reason: &str) -> Result<(), String> {
        self.process.await_output(format!("the ticket of a peer is refused: {reason}"), 0).map(drop)
    }
}

/// Returns the URL at which the server receives the commands of an operator.
fn admin_url(server: &Process) -> Result<String, String> {
    let before = "https://127.0.0.1:";
    let at = server.await_output(before, 0)? + before.len();
    let end = server.await_output("\n", at)?;
    let printed = String::from_utf8_lossy(server.out.bytes().get(at..end).unwrap_or_default()).into_owned();
    let port: String = printed.chars().take_while(char::is_ascii_digit).collect();
    Ok(format!("https://localhost:{port}"))
}

/// An operator of the server. It runs commands of `tegmen`.
struct Operator<'s> {
    scene: &'s Scene,
    url: String,
}

impl Operator<'_> {
    fn run(&self, words: &[&str]) -> Result<Value, String> {
        self.with_key("root.key", words)
    }

    fn with_key(&self, key: &str, words: &[&str]) -> Result<Value, String> {
        let admin = ["--server", &self.url, "--key-file", key, "--ca", "ca/ca.pem", "--json"];
        let mut process = self.scene.tegmen(&[words, &admin].concat())?;
        if !process.await_end()?.success() {
            return Err(format!("tegmen {}: {}", words.join(" "), process.err.text().trim()));
        }
        let text = process.out.text();
        serde_json::from_str(&text).map_err(|_| format!("tegmen {} printed {text:?}", words.join(" ")))
    }

    /// Creates a device with this name at the server (`tegmen device imprint`). Starts the device, and waits until it
    /// is in its first epoch.
    fn imprint(&self, name: &'static str) -> Result<Device, Trouble> {
        let address = address(LOOPBACK)?;
        let directory = self.scene.directory().join(name);
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let (at, output) = (address.to_string(), format!("{name}/device.key"));
        let imprint = ["device", "imprint", name, "--address", &at, "--scope", SCOPE, "--output", &output];
        self.run(&imprint)?;
        let process = self.run_device(name, address, None)?;
        self.await_device(name, 1)?;
        Ok(Device { name, process, address })
    }

    /// Starts the device `name` in its own directory. If `later` is given, the clock of the device is two days ahead:
    /// the process of the device then loads a shared library (`LD_PRELOAD`), whose path is the program name in `later`.
    fn run_device(&self, name: &str, address: SocketAddr, later: Option<&Command>) -> Result<Process, String> {
        let port = address.port().to_string();
        let listen = ["serve", "--listen", "127.0.0.1", "--port", &port, "--shards", "1", "--log-level", "debug"];
        let device = ["--delegated", name, "--device-key", "device.key", "--device-state", "device.state"];
        let resources = ["--device-scope", SCOPE, "--value", "/v=hello"];
        let mut command = self.scene.tegmen_command(&[&listen[..], &device, &resources].concat());
        command.current_dir(self.scene.directory().join(name));
        if let Some(library) = later {
            command.env("LD_PRELOAD", library.get_program());
        }
        let process = self.scene.start_command(command)?;
        process.await_output(format!("coaps://{address}"), 0)?;
        Ok(process)
    }

    /// Waits until a device is in this epoch, and knows all revocations.
    fn await_device(&self, name: &str, epoch: u64) -> Result<(), String> {
        loop {
            let shown = self.run(&["delegation", "show", name])?;
            if shown["epoch"] == epoch && shown["untold"] == 0 && shown["heard"].is_u64() {
                return Ok(());
            }
            if Instant::now() > self.scene.deadline {
                return Err(format!("the device is not in epoch {epoch}: {shown}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The relays between a peer, the server and the device. There are two relays if the server and the device have
/// different addresses. There is one relay if a gateway has one address for both of them.
pub(crate) struct Way {
    to_server: Capture,
    to_device: Option<Capture>,
    _gateway: Option<Process>,
}

impl Way {
    pub(crate) fn direct(world: &World<'_>) -> Result<Self, String> {
        let to_device = Some(Capture::start(world.lamp.address)?);
        Ok(Self { to_server: Capture::start(world.server_address)?, to_device, _gateway: None })
    }

    /// Makes the relay to a gateway (`tegmen steer`), which has one address for the server and the device.
    pub(crate) fn steered(world: &World<'_>) -> Result<Self, String> {
        let listen = address(LOOPBACK)?.to_string();
        let [server, device] = [world.server_address, world.lamp.address].map(|address| format!("coaps://{address}"));
        let gateway = ["steer", "--listen", &listen, "--server", &server, "--device", &device];
        let gateway = world.operator.scene.tegmen(&gateway)?;
        gateway.await_output(&listen, 0)?;
        let to_server = Capture::start(listen.parse().map_err(|_| "no address")?)?;
        Ok(Self { to_server, to_device: None, _gateway: Some(gateway) })
    }

    pub(crate) fn server(&self) -> SocketAddr {
        (LOOPBACK, self.to_server.port).into()
    }

    pub(crate) fn device(&self) -> SocketAddr {
        (LOOPBACK, self.to_device.as_ref().unwrap_or(&self.to_server).port).into()
    }

    /// Waits until a message of the type `wanted` (ClientHello or ServerHello) has passed between the peer and the
    /// server. Returns the index of the datagram with this message among all datagrams of the relay.
    pub(crate) fn await_hello(&self, scene: &Scene, wanted: Hello) -> Result<usize, String> {
        let is_it = |datagram: &Datagram| hello::read(&datagram.bytes, wanted).is_some();
        self.to_server.await_count(scene.deadline, 1, is_it)
    }

    /// Waits for a ServerHello with an empty server_name, and for the next datagram of the client. If this datagram is
    /// the ClientHello again, reports that the client does not read such a ServerHello.
    pub(crate) fn is_not_read(&self, scene: &Scene) -> Check {
        let answer = self.await_hello(scene, Hello::Server)?;
        let sent = |datagrams: &[Datagram]| datagrams.iter().take(answer).filter(|datagram| datagram.to_server).count();
        let before = sent(&self.to_server.datagrams());
        let next = self.to_server.await_count(scene.deadline, before + 1, |datagram| datagram.to_server)?;
        let datagrams = self.to_server.datagrams();
        let read = |at: usize, wanted| datagrams.get(at).and_then(|datagram| hello::read(&datagram.bytes, wanted));
        let has_name =
            read(answer, Hello::Server).is_some_and(|hello| hello.extension(SERVER_NAME).is_some_and(<[u8]>::is_empty));
        match (has_name, read(next, Hello::Client)) {
            (true, Some(_)) => Err(Trouble::Lacks(NOT_READ.to_owned())),
            (true, None) => Err("it reads a ServerHello with server_name, and no row tries that".into()),
            (false, _) => Err("the server did not answer server_name".into()),
        }
    }

    /// Reports that the peer does not support an extension. The evidence is the last ClientHello or the last
    /// ServerHello between the peer and the server; `hello` selects one of the two. See [`Capture::lacks`].
    pub(crate) fn lacks(&self, hello: Hello, extension: (&str, u16)) -> Check {
        self.to_server.lacks(hello, extension)
    }

    /// Checks that the first session, which the peer had with the server, had a key exchange. Checks that the second
    /// session, which the peer had with the device, was resumed by `by` and had no key exchange.
    pub(crate) fn resumed(&self, by: By) -> Check {
        let mut datagrams = self.to_server.datagrams();
        datagrams.extend(self.to_device.iter().flat_map(Capture::datagrams));
        resumption::resumed_in(&datagrams, by)
    }
}
