//! Peers that are DTLS libraries. Each library is used by a program of this project, which reads and prints lines.
//!
//! The arguments of the program are `client ADDRESS IDENTITY KEY` or `server ADDRESS IDENTITY KEY`, with the key in
//! hexadecimal. Some programs also take the name of an extension (one for the size of records, or connection_id) and a
//! number of bytes. The program prints the lines `listening`, `established`, `received HEX` and `failed TEXT`. It sends
//! every line of hexadecimal digits on its standard input as one record. At the end of its input it closes the session
//! and ends.

mod delegation;
mod public_keys;
mod resumption;

use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble};
use crate::connection_id;
use crate::dtls;
use crate::network::BAD;
use crate::ours::{Psk, probe_record_size};
use crate::peers::{self, Built, Places};
use crate::process::Process;
use crate::public_keys::{Cbc, ECDHE_PSK_CCM_8, ECDHE_PSK_CHACHA20};
use crate::resumption::By;
use crate::session::{DtlsClient, DtlsServer, Plaintext};
use public_keys::Knows;
use std::net::SocketAddr;
use std::sync::Arc;
use tegmen_host::hex::to_hex;

/// The properties in which the peers that are DTLS libraries differ.
struct Peer {
    name: &'static str,
    version: String,
    program: Arc<Built>,
    /// Maximum length of a key and of an identity in bytes, and the evidence for these limits. `None` if the peer has
    /// no limit that matters.
    room: Option<(usize, usize, &'static str)>,
    /// The evidence that the peer refuses a ClientHello without extensions, if it does.
    refuses_minimal: Option<&'static str>,
    /// The message that `tegmen` prints after the peer's alert for an unknown identity. `None` if the peer sends one of
    /// the alerts that RFC 4279, section 2, allows in this case.
    unknown_identity: Option<&'static str>,
    /// True if the peer sends close_notify when it ends.
    closes: bool,
    /// The extensions with which the peer's client limits the size of records. The peer's server answers the last of
    /// these extensions.
    record_size: &'static [&'static str],
    /// True if the peer supports connection ids (RFC 9146).
    connection_id: bool,
    knows: Knows,
    /// True if there are scenarios with this peer over faulty networks. The program of the peer then takes the maximum
    /// size of its datagrams as an argument after the argument KEY.
    over_networks: bool,
    /// The means by which the peer resumes sessions.
    resumes: &'static [By],
    /// The way in which the peer's client resumes a session at a device. The device is not the server that opened the
    /// session.
    reaches: Reaches,
    /// The means by which a device resumes a session at the peer's server.
    resumed_by: &'static [By],
}

/// The ways in which a client resumes, at a device, a session that the delegation server opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaches {
    /// The client resumes the session at the address of the device.
    Address,
    /// The client resumes a session only at the address where it was opened. So a gateway has one address for the
    /// server and the device.
    Gateway,
    /// The client cannot resume the session: it does not read a ServerHello with the extension server_name.
    Nowhere,
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with tinydtls, wolfSSL, Mbed TLS, pion or
/// Scandium. Also returns the programs that must be built for these scenarios.
pub(crate) fn all(places: &Places, java: &Arc<Built>) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let peers = [tinydtls(places), wolfssl(places), mbedtls(places), pion(places), scandium(java)];
    let built = peers.iter().map(|peer| peer.program.clone()).collect();
    (peers.into_iter().flat_map(|peer| cells(Arc::new(peer))).collect(), built)
}

fn tinydtls(places: &Places) -> Peer {
    Peer {
        name: "tinydtls",
        version: "0.8.6".to_owned(),
        program: places.bench_peer("tinydtls", &[("cc", "gcc"), ("cmake", "cmake"), LIBCLANG]),
        room: Some((16, 32, "DTLS_PSK_MAX_KEY_LEN is 16, DTLS_PSK_MAX_CLIENT_IDENTITY_LEN 32")),
        refuses_minimal: Some("it wants extended master secret: force_extended_master_secret = 1 in its dtls.c"),
        unknown_identity: None,
        closes: false,
        record_size: &[],
        connection_id: false,
        knows: Knows { x509: false, raw: true, ecdhe_psk: &[], cbc: None, rsa_cbc: None },
        over_networks: false,
        resumes: &[],
        reaches: Reaches::Address,
        resumed_by: &[],
    }
}

fn wolfssl(places: &Places) -> Peer {
    let needs = &[("cc", "gcc"), ("make", "make"), ("autoreconf", "autoconf automake"), ("libtoolize", "libtool")];
    Peer {
        name: "wolfSSL",
        version: "5.9.4".to_owned(),
        program: places.bench_peer("wolfssl", needs),
        room: None,
        refuses_minimal: None,
        unknown_identity: None,
        closes: false,
        record_size: &[],
        connection_id: true,
        knows: Knows {
            x509: true,
            raw: true,
            ecdhe_psk: &[ECDHE_PSK_CHACHA20],
            cbc: Some(Cbc::EncryptThenMac),
            rsa_cbc: Some(Cbc::EncryptThenMac),
        },
        over_networks: false,
        resumes: &By::ALL,
        reaches: Reaches::Address,
        resumed_by: &By::ALL,
    }
}

/// Describes Mbed TLS in the version that Debian packages.
fn mbedtls(places: &Places) -> Peer {
    const HEADER: &str = "/usr/include/mbedtls/version.h";
    let text = std::fs::read_to_string(HEADER).unwrap_or_default();
    let version = text.lines().find_map(|line| line.split_once(" MBEDTLS_VERSION_STRING "));
    let libraries = &["-lmbedtls", "-lmbedx509", "-lmbedcrypto"];
    Peer {
        name: "Mbed TLS",
        version: version.map_or("?", |(_, version)| version.trim().trim_matches('"')).to_owned(),
        program: places.c_peer("mbedtls", (HEADER, "libmbedtls-dev"), libraries),
        room: Some((32, usize::MAX, "MBEDTLS_PSK_MAX_LEN is 32")),
        refuses_minimal: None,
        unknown_identity: None,
        closes: true,
        record_size: &["max_fragment_length"],
        connection_id: false,
        knows: Knows {
            x509: true,
            raw: false,
            ecdhe_psk: &[ECDHE_PSK_CHACHA20],
            cbc: Some(Cbc::EncryptThenMac),
            rsa_cbc: Some(Cbc::EncryptThenMac),
        },
        over_networks: true,
        resumes: &By::ALL,
        reaches: Reaches::Address,
        resumed_by: &By::ALL,
    }
}

fn pion(places: &Places) -> Peer {
    Peer {
        name: "pion/dtls",
        version: "3.1.15".to_owned(),
        program: places.go_peer("pion"),
        room: None,
        refuses_minimal: None,
        unknown_identity: Some("the server sent internal_error"),
        closes: true,
        record_size: &[],
        connection_id: true,
        knows: Knows {
            x509: true,
            raw: false,
            ecdhe_psk: &[ECDHE_PSK_CHACHA20],
            cbc: Some(Cbc::MacThenEncrypt),
            rsa_cbc: None,
        },
        over_networks: false,
        resumes: &[By::Id],
        reaches: Reaches::Nowhere,
        resumed_by: &[By::Id],
    }
}

fn scandium(java: &Arc<Built>) -> Peer {
    Peer {
        name: "Scandium",
        version: "3.14.0".to_owned(),
        program: java.clone(),
        room: None,
        refuses_minimal: None,
        unknown_identity: None,
        closes: true,
        record_size: &["max_fragment_length", "record_size_limit"],
        connection_id: true,
        knows: Knows {
            x509: true,
            raw: true,
            ecdhe_psk: &[ECDHE_PSK_CCM_8],
            cbc: Some(Cbc::MacThenEncrypt),
            rsa_cbc: None,
        },
        over_networks: false,
        resumes: &[By::Id],
        reaches: Reaches::Gateway,
        resumed_by: &[By::Id],
    }
}

const LIBCLANG: (&str, &str) = (peers::LIBCLANG, "libclang-dev");

fn cells(peer: Arc<Peer>) -> Vec<Cell> {
    type Play = Box<dyn Fn(&Scene, &Arc<Peer>) -> Check + Send + Sync>;
    let mut cells = dtls::server_cells(peer.name, &peer.version, Talker(peer.clone()));
    cells.extend(dtls::client_cells(peer.name, &peer.version, Talker(peer.clone())));
    let mut add = |role, scenario: &str, play: Play| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, &peer.version, role, scenario, move |scene| {
            played.program.ready()?;
            play(&scene.with_new_deadline(), &played)
        }));
    };
    if peer.closes {
        let closes = |scene: &Scene, peer: &Arc<Peer>| dtls::client_closes(scene, &Talker(peer.clone()));
        add(Role::Client, "close in order", Box::new(closes));
    }
    for &extension in peer.record_size {
        add(Role::Client, extension, Box::new(|scene, peer| client_record_size(scene, peer, extension)));
    }
    if let Some(&extension) = peer.record_size.last() {
        add(Role::Server, extension, Box::new(|scene, peer| server_record_size(scene, peer, extension)));
    }
    if peer.connection_id {
        // The program takes a word and a number of bytes, as for the size of records.
        const IDS: [&str; 2] = ["connection_id", "6"];
        for (row, rebinds) in [(connection_id::ROW, false), (connection_id::ROW_REBOUND, true)] {
            let server = move |scene: &Scene, peer: &Arc<Peer>| {
                let listen = |address| {
                    let session = peer.start_with(scene, "server", address, &Psk::usual(), &IDS)?;
                    session.process.await_output("listening\n", 0)?;
                    Ok(session)
                };
                connection_id::server(listen, 6, rebinds)
            };
            add(Role::Server, row, Box::new(server));
            let client = move |scene: &Scene, peer: &Arc<Peer>| {
                let connect = |address| {
                    let session = peer.start_with(scene, "client", address, &Psk::usual(), &IDS)?;
                    session.process.await_output("established\n", 0)?;
                    Ok(session)
                };
                connection_id::client(scene, connect, rebinds)
            };
            add(Role::Client, row, Box::new(client));
        }
    }
    if peer.over_networks {
        for (row, network) in BAD {
            let server =
                move |scene: &Scene, peer: &Arc<Peer>| dtls::server_over(scene, &Talker(peer.clone()), network);
            add(Role::Server, row, Box::new(server));
            let client =
                move |scene: &Scene, peer: &Arc<Peer>| dtls::client_over(scene, &Talker(peer.clone()), network);
            add(Role::Client, row, Box::new(client));
        }
    }
    let is_version = |_: &Scene, peer: &Arc<Peer>| peers::is_version(&peer.program, &peer.version);
    add(Role::Client, "is the version of the table", Box::new(is_version));
    cells.extend(public_keys::cells(&peer));
    cells.extend(resumption::cells(&peer));
    cells.extend(delegation::cells(&peer));
    cells
}

/// Checks that the peer's client, which limits the size of records with `extension`, receives a block that fits into
/// such a record.
fn client_record_size(scene: &Scene, peer: &Peer, extension: &str) -> Check {
    let served = dtls::serve_long(scene)?;
    let (limit, block) = if extension == "record_size_limit" { ("100", 32) } else { ("512", 256) };
    let server = (LOOPBACK, served.port).into();
    let mut session = peer.start_with(scene, "client", server, &Psk::usual(), &[extension, limit])?;
    session.process.await_output("established\n", 0)?;
    dtls::get_block(&mut session, block)
}

/// Checks the answer of the peer's server to a record size limit, and that the server receives and sends records of the
/// agreed size.
fn server_record_size(scene: &Scene, peer: &Arc<Peer>, extension: &str) -> Check {
    let address = (LOOPBACK, crate::cell::free_port()?).into();
    let (limit, answered) = if extension == "record_size_limit" { ("300", 700) } else { ("600", 512) };
    let more = [extension, &answered.to_string()];
    let server = peer.start_with(scene, "server", address, &Psk::usual(), &more)?;
    server.process.await_output("listening\n", 0)?;
    probe_record_size(scene, address, limit, extension, answered)
}

impl Peer {
    fn takes(&self, psk: &Psk) -> Check {
        match self.room {
            Some((key, identity, evidence)) if psk.key.len() > key || psk.identity.len() > identity => {
                Err(Trouble::Lacks(evidence.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn start(&self, scene: &Scene, role: &str, address: SocketAddr, psk: &Psk) -> Result<Session, String> {
        self.start_with(scene, role, address, psk, &[])
    }

    fn start_with(
        &self,
        scene: &Scene,
        role: &str,
        address: SocketAddr,
        psk: &Psk,
        more: &[&str],
    ) -> Result<Session, String> {
        let mut command = self.program.command()?;
        command.args([role, &address.to_string(), &psk.identity, &psk.hex()]).args(more);
        Ok(Session { process: scene.start_command(command)?, read: 0 })
    }
}

struct Talker(Arc<Peer>);

impl DtlsClient for Talker {
    fn prepare(&self) -> Check {
        self.0.program.ready()
    }

    fn takes(&self, psk: &Psk) -> Check {
        self.0.takes(psk)
    }

    fn knows_connection_id(&self) -> bool {
        self.0.connection_id
    }

    fn connect(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String> {
        let session = self.0.start(scene, "client", server, psk)?;
        session.process.await_output("established\n", 0)?;
        Ok(Box::new(session))
    }

    fn fail(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Check {
        let mut session = self.0.start(scene, "client", server, psk)?;
        session.process.await_output("failed ", 0)?;
        if session.process.await_end()?.success() { Err("it ended as if all was well".into()) } else { Ok(()) }
    }
}

impl DtlsServer for Talker {
    fn prepare(&self) -> Check {
        self.0.program.ready()
    }

    fn takes(&self, psk: &Psk) -> Check {
        self.0.takes(psk)
    }

    fn refuses_minimal(&self) -> Option<&'static str> {
        self.0.refuses_minimal
    }

    fn knows_connection_id(&self) -> bool {
        self.0.connection_id
    }

    fn unknown_identity(&self) -> Option<&'static str> {
        self.0.unknown_identity
    }

    fn listen(&self, scene: &Scene, address: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String> {
        let session = self.0.start(scene, "server", address, psk)?;
        session.process.await_output("listening\n", 0)?;
        Ok(Box::new(session))
    }
}

struct Session {
    process: Process,
    /// Number of bytes of the program's standard output that the scenario has already read.
    read: usize,
}

impl Plaintext for Session {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.process.write(format!("{}\n", to_hex(message)).as_bytes())
    }

    /// Reads the next message, which must have exactly the expected length.
    fn head(&mut self, len: usize, tail: &[u8]) -> Result<Vec<u8>, String> {
        let word = "received ";
        let from = self.process.await_output(word, self.read)? + word.len();
        let end = self.process.await_output("\n", from)?;
        self.read = end;
        let printed = self.process.out.bytes();
        let digits = printed.get(from..end).unwrap_or_default().to_vec();
        let hex = String::from_utf8_lossy(&digits).into_owned();
        let head = hex.strip_suffix(&to_hex(tail)).filter(|head| head.len() == 2 * len);
        let head = head.ok_or_else(|| format!("the peer received {hex}, not {len} bytes and {}", to_hex(tail)))?;
        let bytes = head.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
        let bytes = bytes.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>();
        bytes.ok_or_else(|| format!("the peer printed {hex:?}"))
    }

    fn close(&mut self) {
        self.process.close_input();
    }
}
