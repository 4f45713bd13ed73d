//! DTLS libraries with certificates, with raw public keys, and with a key agreement in addition to a pre-shared key.
//!
//! In place of an identity and a key, the programs that use the libraries take `x509 SUITE CA CERTIFICATE KEY`, `raw
//! SUITE KEY PUBLIC_KEY PEER` or `psk SUITE IDENTITY KEY`. They print `suite NAME` and `peer NAME`. With the argument
//! `suites` they print the names of all suites.

use super::{Peer, Session};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port, holds};
use crate::network::{Network, SMALL};
use crate::ours::{Psk, Served, start_ask_within};
use crate::public_keys::{
    AS_DEVICE, AS_SERVER, Cbc, ECDHE_PSK_CCM_8, ECDHE_PSK_CHACHA20, ECDSA_CCM_8, ECDSA_GCM, EcdhePsk, MUTUAL, PSK_CBC,
    RAW, RSA_CBC, RawKeys, Suite, certificates, client_lacks_raw, lacks_rsa_cbc, lacks_suite, server_lacks_raw,
};
use crate::session::{self, Plaintext as _};
use std::net::SocketAddr;
use std::sync::Arc;

/// The credentials and cipher suites that a peer supports.
#[derive(Clone, Copy)]
pub(super) struct Knows {
    pub(super) x509: bool,
    pub(super) raw: bool,
    /// The suites of the peer that combine a pre-shared key with a key agreement.
    pub(super) ecdhe_psk: &'static [EcdhePsk],
    /// Order of encryption and MAC in the peer's CBC records with a pre-shared key; `None` if the peer has no such
    /// suite.
    pub(super) cbc: Option<Cbc>,
    /// Order of encryption and MAC in the peer's CBC records with RSA as the key exchange; `None` if the peer has no
    /// such suite.
    pub(super) rsa_cbc: Option<Cbc>,
}

pub(super) fn cells(peer: &Arc<Peer>) -> Vec<Cell> {
    type Play = Box<dyn Fn(&Scene, &Peer) -> Check + Send + Sync>;
    let mut cells = Vec::new();
    let mut add = |role, scenario: &str, play: Play| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, &peer.version, role, scenario, move |scene| {
            played.program.ready()?;
            play(&scene.with_new_deadline(), &played)
        }));
    };
    let knows = peer.knows;
    if knows.x509 {
        for (scenario, suite) in MUTUAL {
            add(Role::Server, scenario, Box::new(move |scene, peer| server_mutual(scene, peer, suite)));
            add(Role::Client, scenario, Box::new(move |scene, peer| client_mutual(scene, peer, suite)));
        }
    }
    if peer.over_networks {
        for (row, bytes) in SMALL {
            add(Role::Server, row, Box::new(move |scene, peer| server_over(scene, peer, bytes)));
            add(Role::Client, row, Box::new(move |scene, peer| client_over(scene, peer, bytes)));
        }
    }
    if knows.raw {
        add(Role::Server, RAW, Box::new(server_raw));
        add(Role::Client, RAW, Box::new(client_raw));
    } else {
        add(Role::Server, RAW, Box::new(no_raw_server));
        add(Role::Client, RAW, Box::new(no_raw_client));
    }
    for of in [ECDHE_PSK_CCM_8, ECDHE_PSK_CHACHA20] {
        if knows.ecdhe_psk.iter().any(|known| known.scenario == of.scenario) {
            add(Role::Server, of.scenario, Box::new(move |scene, peer| server_ecdhe_psk(scene, peer, of.suite)));
            add(Role::Client, of.scenario, Box::new(move |scene, peer| client_ecdhe_psk(scene, peer, of.suite)));
        } else if knows.x509 {
            add(Role::Server, of.scenario, Box::new(move |_, peer| lacks_ecdhe_psk(peer, of)));
            add(Role::Client, of.scenario, Box::new(move |_, peer| lacks_ecdhe_psk(peer, of)));
        }
    }
    if let Some(mode) = knows.cbc {
        add(Role::Server, mode.scenario(), Box::new(move |scene, peer| server_cbc(scene, peer, mode)));
        add(Role::Client, mode.scenario(), Box::new(move |scene, peer| client_cbc(scene, peer, mode)));
    }
    if let Some(mode) = knows.rsa_cbc {
        add(Role::Server, mode.rsa_scenario(), Box::new(move |scene, peer| server_rsa_cbc(scene, peer, mode)));
        add(Role::Client, mode.rsa_scenario(), Box::new(move |scene, peer| client_rsa_cbc(scene, peer, mode)));
    } else if let Some(mode) = knows.cbc {
        add(Role::Server, mode.rsa_scenario(), Box::new(|_, peer| no_rsa_cbc(peer)));
        add(Role::Client, mode.rsa_scenario(), Box::new(|_, peer| no_rsa_cbc(peer)));
    }
    cells
}

impl Peer {
    pub(super) fn open(
        &self,
        scene: &Scene,
        role: &str,
        address: SocketAddr,
        words: &[&str],
    ) -> Result<Session, String> {
        let mut command = self.program.command()?;
        command.args([role, &address.to_string()]).args(words);
        Ok(Session { process: scene.start_command(command)?, read: 0 })
    }

    pub(super) fn serve(&self, scene: &Scene, words: &[&str]) -> Result<(Session, SocketAddr), String> {
        let address = (LOOPBACK, free_port()?).into();
        let session = self.open(scene, "server", address, words)?;
        session.process.await_output("listening\n", 0)?;
        Ok((session, address))
    }

    fn connect(&self, scene: &Scene, port: u16, words: &[&str]) -> Result<Session, String> {
        let session = self.open(scene, "client", (LOOPBACK, port).into(), words)?;
        session.process.await_output("established\n", 0)?;
        Ok(session)
    }
}

impl Session {
    /// Checks that the peer's program prints `suite` as the cipher suite of the session, and `peer` as the name of the
    /// other endpoint.
    pub(super) fn says(&self, suite: Suite, peer: &str) -> Check {
        holds(&self.process.out.text(), &[&format!("suite {}\n", suite.name), &format!("peer {peer}\n")])
    }
}

/// The files with the CA, the certificate and the key for a peer that is the server. [`THEIR_DEVICE`] has the files for
/// a peer that is the client.
pub(super) const THEIR_SERVER: [&str; 3] = ["ca/ca.pem", "ca/server.pem", "ca/server.key"];
pub(super) const THEIR_DEVICE: [&str; 3] = ["ca/ca.pem", "ca/device1.pem", "ca/device1.key"];
const RAW_SERVER: [&str; 5] = ["raw", ECDSA_CCM_8.name, "server.key.der", "server.pub.der", "device1.pub.der"];
const RAW_DEVICE: [&str; 5] = ["raw", ECDSA_CCM_8.name, "device1.key.der", "device1.pub.der", "server.pub.der"];
/// The name that the programs print for a peer with the expected raw public key.
const RAW_PEER: &str = "raw public key";

/// Checks that `tegmen put` sends a request to the server, and prints its answer.
fn asks(scene: &Scene, session: &mut Session, server: SocketAddr, words: &[&str], psk: Option<&Psk>) -> Check {
    let uri = format!("coaps://{server}/question");
    let asked = start_ask_within(scene, &[&["put", &uri, "a blink"], words].concat(), psk, "20")?;
    if let Err(why) = session::answer(session, 3, b"a blink", 0x44, b"an answer") {
        return Err(format!("{why}; tegmen reports: {}", asked.failure()?.trim()).into());
    }
    let answer = asked.answer()?;
    if answer.payload == "an answer" { Ok(()) } else { Err(format!("tegmen understood {:?}", answer.payload).into()) }
}

/// Checks that the peer's client, whose session is established, gets `/v`. The client and `tegmen serve` must each
/// report the identity of the other.
fn gets(served: &Served, session: &mut Session, suite: Suite, theirs: &str, ours: &str) -> Check {
    session.get_v()?;
    session.says(suite, theirs)?;
    served.process.await_output(format!("({ours}) GET /v: 2.05"), 0)?;
    Ok(())
}

fn server_mutual(scene: &Scene, peer: &Peer, suite: Suite) -> Check {
    certificates(scene, suite.rsa)?;
    let (mut session, address) = peer.serve(scene, &[&["x509", suite.name], &THEIR_SERVER[..]].concat())?;
    asks(scene, &mut session, address, &[&["--suites", suite.ours], &AS_DEVICE[..]].concat(), None)?;
    session.says(suite, "device1")
}

fn client_mutual(scene: &Scene, peer: &Peer, suite: Suite) -> Check {
    certificates(scene, suite.rsa)?;
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &["--suites", suite.ours]].concat())?;
    let words = [&["x509", suite.name], &THEIR_DEVICE[..]].concat();
    let mut session = peer.connect(scene, served.port, &words)?;
    gets(&served, &mut session, suite, "server", "CN=device1")
}

/// Checks a handshake over a path with small datagrams. The peer gets the size of datagrams as an argument, and
/// `tegmen` has to discover it.
fn server_over(scene: &Scene, peer: &Peer, bytes: usize) -> Check {
    certificates(scene, false)?;
    let mtu = bytes.to_string();
    let words = [&["x509", ECDSA_GCM.name], &THEIR_SERVER[..], &[&mtu]].concat();
    let (mut session, address) = peer.serve(scene, &words)?;
    let relay = Capture::over(address, Network::Carries(bytes))?;
    let words = [&["--suites", ECDSA_GCM.ours], &AS_DEVICE[..]].concat();
    asks(scene, &mut session, (LOOPBACK, relay.port).into(), &words, None)?;
    relay.did_harm()
}

fn client_over(scene: &Scene, peer: &Peer, bytes: usize) -> Check {
    certificates(scene, false)?;
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &["--suites", ECDSA_GCM.ours]].concat())?;
    let relay = Capture::over((LOOPBACK, served.port).into(), Network::Carries(bytes))?;
    let mtu = bytes.to_string();
    let words = [&["x509", ECDSA_GCM.name], &THEIR_DEVICE[..], &[&mtu]].concat();
    let mut session = peer.connect(scene, relay.port, &words)?;
    gets(&served, &mut session, ECDSA_GCM, "server", "CN=device1")?;
    relay.did_harm()
}

fn server_raw(scene: &Scene, peer: &Peer) -> Check {
    let keys = RawKeys::new(scene)?;
    let (mut session, address) = peer.serve(scene, &RAW_SERVER)?;
    asks(scene, &mut session, address, &keys.device(), None)?;
    session.says(ECDSA_CCM_8, RAW_PEER)
}

fn client_raw(scene: &Scene, peer: &Peer) -> Check {
    let keys = RawKeys::new(scene)?;
    let served = keys.serve(scene)?;
    let mut session = peer.connect(scene, served.port, &RAW_DEVICE)?;
    gets(&served, &mut session, ECDSA_CCM_8, RAW_PEER, "device1")
}

fn no_raw_server(scene: &Scene, peer: &Peer) -> Check {
    let keys = RawKeys::new(scene)?;
    let (_session, address) = peer.serve(scene, &[&["x509", ECDSA_CCM_8.name], &THEIR_SERVER[..]].concat())?;
    server_lacks_raw(scene, &keys, address)
}

fn no_raw_client(scene: &Scene, peer: &Peer) -> Check {
    let keys = RawKeys::new(scene)?;
    let words = [&["x509", ECDSA_CCM_8.name], &THEIR_DEVICE[..]].concat();
    client_lacks_raw(scene, &keys, |server| Ok(peer.open(scene, "client", server, &words)?.process))
}

fn server_ecdhe_psk(scene: &Scene, peer: &Peer, suite: Suite) -> Check {
    let psk = Psk::usual();
    let words = ["psk", suite.name, &psk.identity, &psk.hex()];
    let (mut session, address) = peer.serve(scene, &words)?;
    asks(scene, &mut session, address, &["--suites", suite.ours], Some(&psk))?;
    session.says(suite, &psk.identity)
}

fn client_ecdhe_psk(scene: &Scene, peer: &Peer, suite: Suite) -> Check {
    let psk = Psk::usual();
    let served = Served::start_with(scene, &psk, &["--suites", suite.ours])?;
    let words = ["psk", suite.name, &psk.identity, &psk.hex()];
    let mut session = peer.connect(scene, served.port, &words)?;
    gets(&served, &mut session, suite, &psk.identity, &psk.identity)
}

fn server_cbc(scene: &Scene, peer: &Peer, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let (mut session, address) = peer.serve(scene, &["psk", PSK_CBC.name, &psk.identity, &psk.hex()])?;
    let relay = Capture::start(address)?;
    let server = (LOOPBACK, relay.port).into();
    asks(scene, &mut session, server, &["--suites", PSK_CBC.ours], Some(&psk))?;
    mode.was_agreed(&relay)?;
    session.says(PSK_CBC, &psk.identity)
}

fn client_cbc(scene: &Scene, peer: &Peer, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let served = Served::start_with(scene, &psk, &["--suites", PSK_CBC.ours])?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let mut session = peer.connect(scene, relay.port, &["psk", PSK_CBC.name, &psk.identity, &psk.hex()])?;
    gets(&served, &mut session, PSK_CBC, &psk.identity, &psk.identity)?;
    mode.was_agreed(&relay)
}

fn server_rsa_cbc(scene: &Scene, peer: &Peer, mode: Cbc) -> Check {
    certificates(scene, true)?;
    let (mut session, address) = peer.serve(scene, &[&["x509", RSA_CBC.name], &THEIR_SERVER[..]].concat())?;
    let relay = Capture::start(address)?;
    let server = (LOOPBACK, relay.port).into();
    asks(scene, &mut session, server, &[&["--suites", RSA_CBC.ours], &AS_DEVICE[..]].concat(), None)?;
    mode.was_agreed(&relay)?;
    session.says(RSA_CBC, "device1")
}

fn client_rsa_cbc(scene: &Scene, peer: &Peer, mode: Cbc) -> Check {
    certificates(scene, true)?;
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &["--suites", RSA_CBC.ours]].concat())?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let mut session = peer.connect(scene, relay.port, &[&["x509", RSA_CBC.name], &THEIR_DEVICE[..]].concat())?;
    gets(&served, &mut session, RSA_CBC, "server", "CN=device1")?;
    mode.was_agreed(&relay)
}

fn no_rsa_cbc(peer: &Peer) -> Check {
    let output = peer.program.command()?.arg("suites").output().map_err(|error| error.to_string())?;
    lacks_rsa_cbc(&String::from_utf8_lossy(&output.stdout), "its list of suites")
}

fn lacks_ecdhe_psk(peer: &Peer, of: EcdhePsk) -> Check {
    let output = peer.program.command()?.arg("suites").output().map_err(|error| error.to_string())?;
    lacks_suite(&String::from_utf8_lossy(&output.stdout), of, "its list of suites")
}
