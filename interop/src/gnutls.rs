//! The programs of GnuTLS: the client `gnutls-cli`, and the server `gnutls-serv`, which returns each message unchanged
//! (an echo over UDP).

mod delegation;
mod public_keys;
mod resumption;

use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port, holds};
use crate::connection_id;
use crate::dtls::{self, long_identity, long_key};
use crate::network::{BAD, Network};
use crate::ours::{Psk, names_identity_and_key, probe_record_size, start_ask, start_ask_within};
use crate::process::Process;
use crate::session::{DtlsClient, Plaintext};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::Command;

pub(crate) const CLIENT: &str = "gnutls-cli";
pub(crate) const SERVER: &str = "gnutls-serv";
pub(crate) const PEER: &str = "GnuTLS";
const SUITE: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:+PSK:-CIPHER-ALL:+AES-128-CCM-8:-MAC-ALL:+AEAD";

/// Returns the version of GnuTLS, which `gnutls-cli --version` prints.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(CLIENT).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next()?.split_whitespace().last().map(str::to_owned)
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with GnuTLS.
pub(crate) fn cells(version: &str) -> Vec<Cell> {
    let client = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Client, scenario, play);
    let server = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Server, scenario, play);
    let mut cells = vec![
        server("handshake, data both ways", |scene| server_echo(scene, LOOPBACK, &Psk::usual(), &[])),
        server("minimal profile", |scene| server_echo(scene, LOOPBACK, &Psk::usual(), &["--minimal"])),
        server("IPv6", |scene| server_echo(scene, Ipv6Addr::LOCALHOST.into(), &Psk::usual(), &[])),
        server("wrong key", |scene| server_refuses(scene, &Psk::with_key("wrongPSK"))),
        server("unknown identity", |scene| server_refuses(scene, &Psk::with_identity("nobody"))),
        server("key of 64 bytes", |scene| server_echo(scene, LOOPBACK, &long_key(), &[])),
        server("record_size_limit", server_record_size_limit),
        server(connection_id::ROW, |scene| {
            let (_server, port) = serve(scene, &Psk::usual(), &[])?;
            connection_id::lacks((LOOPBACK, port).into())
        }),
        server("identity of 128 bytes", |scene| server_echo(scene, LOOPBACK, &long_identity(), &[])),
    ];
    cells.extend(dtls::client_cells(PEER, version, Client));
    cells.push(client("without extended master secret", client_without_extended_master_secret));
    cells.push(client("record_size_limit", client_record_size_limit));
    cells.push(client("close in order", |scene| dtls::client_closes(scene, &Client)));
    for (row, network) in BAD {
        cells.push(Cell::new(PEER, version, Role::Server, row, move |scene| server_over(scene, network)));
        cells
            .push(Cell::new(PEER, version, Role::Client, row, move |scene| dtls::client_over(scene, &Client, network)));
    }
    cells.extend(public_keys::cells(version));
    cells.extend(resumption::cells(version));
    cells.push(delegation::cell(version));
    cells
}

// --- gnutls-serv ---

/// Starts `gnutls-serv`, which handles one session at a time. It has no option for an address, so it listens at the
/// port on all addresses.
fn serve(scene: &Scene, psk: &Psk, more: &[&str]) -> Result<(Process, u16), String> {
    serve_with(scene, psk, SUITE, more)
}

fn serve_with(scene: &Scene, psk: &Psk, suite: &str, more: &[&str]) -> Result<(Process, u16), String> {
    let port = free_port()?;
    let keys = scene.file("psk.txt", format!("{}:{}\n", psk.identity, psk.hex()))?;
    let (port_text, keys) = (port.to_string(), keys.to_string_lossy().into_owned());
    let arguments = ["--udp", "--echo", "-d", "5", "-p", &port_text, "--priority", suite, "--pskpasswd", &keys];
    let process = scene.start(SERVER, &[&arguments[..], more].concat())?;
    process.await_error(format!("listening on IPv6 :: port {port}...done"), 0)?;
    Ok((process, port))
}

/// Checks a session with GnuTLS's server, which returns each message unchanged (an echo). Tegmen's client sends a
/// request, and gets its own request back. The client does not accept a request, so it sends a Reset. The server
/// returns the Reset too, and the client takes it as the response to its request. If the client reports this Reset, it
/// has decrypted a record of the server.
fn server_echo(scene: &Scene, host: IpAddr, psk: &Psk, more: &[&str]) -> Check {
    let (server, port) = serve(scene, psk, &[])?;
    let uri = format!("coaps://{}/question", SocketAddr::new(host, port));
    let failure = start_ask(scene, &[&["put", &uri, "a blink"], more].concat(), Some(psk))?.failure()?;
    holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen reports: {}", failure.trim()))?;
    let request = server.await_error("] Application Data(23) with length: 25\n", 0)?;
    server.await_error("] Application Data(23) with length: 4\n", request)?;
    holds(&server.err.text(), &["(GNUTLS_PSK_AES_128_CCM_8)"])
}

fn server_over(scene: &Scene, network: Network) -> Check {
    let (server, port) = serve(scene, &Psk::usual(), &[])?;
    let relay = Capture::over((LOOPBACK, port).into(), network)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    let asked = start_ask_within(scene, &["put", &uri, "a blink"], Some(&Psk::usual()), "20")?;
    let failure = asked.failure()?;
    holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen reports: {}", failure.trim()))?;
    server.await_error("] Application Data(23) with length: 25\n", 0)?;
    relay.did_harm()
}

/// Checks that Tegmen's client and GnuTLS's server each send a record_size_limit, and that GnuTLS logs the limit that
/// it received.
fn server_record_size_limit(scene: &Scene) -> Check {
    let (server, port) = serve(scene, &Psk::usual(), &["--recordsize", "700"])?;
    probe_record_size(scene, (LOOPBACK, port).into(), "600", "record_size_limit", 700)?;
    holds(&server.err.text(), &["record_size_limit 600 negotiated"])
}

fn server_refuses(scene: &Scene, psk: &Psk) -> Check {
    let (_server, port) = serve(scene, &Psk::usual(), &[])?;
    let asked = start_ask(scene, &["get", &format!("coaps://127.0.0.1:{port}/question")], Some(psk))?;
    names_identity_and_key(&asked.failure()?)
}

// --- gnutls-cli ---

/// The client `gnutls-cli`.
pub(crate) struct Client;

struct Session {
    process: Process,
    /// Number of bytes of the client's standard output that the scenario has already read. The application data after
    /// these bytes is still to be read.
    read: usize,
    /// Number of bytes of the client's standard error, which logs its records, that the scenario has already read.
    logged: usize,
}

fn start(scene: &Scene, server: SocketAddr, psk: &Psk, settings: &str, more: &[&str]) -> Result<Process, String> {
    let (host, port, suite) = (server.ip().to_string(), server.port().to_string(), format!("{SUITE}{settings}"));
    let arguments = ["--udp", "-d", "5", "-p", &port, "--priority", &suite];
    let key = ["--pskusername", &psk.identity, "--pskkey", &psk.hex(), &host];
    scene.start(CLIENT, &[&arguments[..], more, &key].concat())
}

impl Session {
    fn open(process: Process) -> Result<Self, String> {
        let ready = "- Simple Client Mode:\n\n";
        let read = process.await_output(ready, 0)? + ready.len();
        let logged = process.err.len();
        Ok(Self { process, read, logged })
    }
}

impl DtlsClient for Client {
    fn connect(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String> {
        let session = Session::open(start(scene, server, psk, "", &[])?)?;
        let printed = session.process.out.text();
        let wanted = ["(DTLS1.2-X.509)-(PSK)-(AES-128-CCM-8)", "extended master secret, safe renegotiation"];
        match wanted.iter().find(|wanted| !printed.contains(**wanted)) {
            None => Ok(Box::new(session)),
            Some(wanted) => Err(format!("{CLIENT} does not print {wanted:?}")),
        }
    }

    fn fail(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Check {
        let mut process = start(scene, server, psk, "", &[])?;
        process.await_output("*** Received alert [51]: Decrypt error", 0)?;
        if process.await_end()?.success() { Err("it ended as if all was well".into()) } else { Ok(()) }
    }
}

impl Plaintext for Session {
    /// Sends a message, and waits until its record is sent. Without the wait, the peer could put this message and the
    /// next message into one record.
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.process.write(message)?;
        let sent = "Application Data(23) in epoch 1 and length: ";
        self.logged = self.process.await_error(sent, self.logged)? + sent.len();
        Ok(())
    }

    fn head(&mut self, len: usize, tail: &[u8]) -> Result<Vec<u8>, String> {
        let at = self.process.await_output(tail, self.read)?;
        let from = at.checked_sub(len).filter(|from| *from >= self.read).ok_or("the message is too short")?;
        self.read = at + tail.len();
        Ok(self.process.out.bytes().get(from..at).unwrap_or_default().to_vec())
    }

    fn close(&mut self) {
        self.process.close_input();
    }
}

fn client_record_size_limit(scene: &Scene) -> Check {
    let served = dtls::serve_long(scene)?;
    let server = (LOOPBACK, served.port).into();
    let mut session = Session::open(start(scene, server, &Psk::usual(), "", &["--recordsize", "512"])?)?;
    holds(&session.process.err.text(), &["record_size_limit 16384 negotiated"])?;
    dtls::get_block(&mut session, 256)
}

fn client_without_extended_master_secret(scene: &Scene) -> Check {
    let served = crate::ours::Served::start(scene, &Psk::usual())?;
    let server = (LOOPBACK, served.port).into();
    let mut session = Session::open(start(scene, server, &Psk::usual(), ":%NO_SESSION_HASH", &[])?)?;
    holds(&session.process.out.text(), &["- Options: safe renegotiation"])?;
    Ok(session.get_v()?)
}
