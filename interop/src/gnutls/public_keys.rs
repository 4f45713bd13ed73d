//! GnuTLS with certificates and with raw public keys.

use super::{CLIENT, PEER, SERVER, Session};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port, holds};
use crate::network::{Network, SMALL};
use crate::ours::{Psk, Served, start_ask, start_ask_within};
use crate::process::Process;
use crate::public_keys::{
    AS_DEVICE, AS_SERVER, Cbc, ECDHE_PSK_CCM_8, ECDHE_PSK_CHACHA20, PSK_CBC, RAW, RSA_CBC, RawKeys, certificates,
    lacks_suite,
};
use crate::session::Plaintext as _;
use std::net::SocketAddr;
use std::process::Command;

pub(super) const CCM_8: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-CIPHER-ALL:+AES-128-CCM-8";
const GCM: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-CIPHER-ALL:+AES-128-GCM";
const RAW_PRIORITY: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:+CTYPE-SRV-RAWPK:+CTYPE-CLI-RAWPK";

/// The text that `gnutls-cli` and `gnutls-serv` print for a session with ECDSA and CCM_8.
pub(super) const ECDSA_CCM_8: &str = "(ECDHE-X25519)-(ECDSA-SHA256)-(AES-128-CCM-8)";
const ECDSA_GCM: &str = "(ECDHE-X25519)-(ECDSA-SHA256)-(AES-128-GCM)";
const RSA_GCM: &str = "(ECDHE-X25519)-(RSA-SHA256)-(AES-128-GCM)";

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let server = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Server, scenario, play);
    let client = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Client, scenario, play);
    vec![
        server("mutual ECDSA, CCM_8", |scene| server_mutual(scene, CCM_8, "ECDHE_ECDSA_AES_128_CCM_8", false)),
        server("mutual ECDSA, GCM", |scene| server_mutual(scene, GCM, "ECDHE_ECDSA_AES_128_GCM_SHA256", false)),
        server("mutual RSA, GCM", |scene| server_mutual(scene, GCM, "ECDHE_RSA_AES_128_GCM_SHA256", true)),
        server(RAW, server_raw),
        server(ECDHE_PSK_CCM_8.scenario, |_| lacks_ecdhe_psk_ccm_8()),
        server(ECDHE_PSK_CHACHA20.scenario, server_ecdhe_psk),
        server(Cbc::EncryptThenMac.scenario(), |scene| server_cbc(scene, Cbc::EncryptThenMac)),
        server(Cbc::MacThenEncrypt.scenario(), |scene| server_cbc(scene, Cbc::MacThenEncrypt)),
        server(Cbc::EncryptThenMac.rsa_scenario(), |scene| server_rsa_cbc(scene, Cbc::EncryptThenMac)),
        server(Cbc::MacThenEncrypt.rsa_scenario(), |scene| server_rsa_cbc(scene, Cbc::MacThenEncrypt)),
        client(Cbc::EncryptThenMac.rsa_scenario(), |scene| client_rsa_cbc(scene, Cbc::EncryptThenMac)),
        client(Cbc::MacThenEncrypt.rsa_scenario(), |scene| client_rsa_cbc(scene, Cbc::MacThenEncrypt)),
        client(Cbc::EncryptThenMac.scenario(), |scene| client_cbc(scene, Cbc::EncryptThenMac)),
        client(Cbc::MacThenEncrypt.scenario(), |scene| client_cbc(scene, Cbc::MacThenEncrypt)),
        client("mutual ECDSA, CCM_8", |scene| client_mutual(scene, CCM_8, ECDSA_CCM_8, false)),
        client("mutual ECDSA, GCM", |scene| client_mutual(scene, GCM, ECDSA_GCM, false)),
        client("mutual RSA, GCM", |scene| client_mutual(scene, GCM, RSA_GCM, true)),
        client(RAW, client_raw),
        client(ECDHE_PSK_CCM_8.scenario, |_| lacks_ecdhe_psk_ccm_8()),
        client(ECDHE_PSK_CHACHA20.scenario, client_ecdhe_psk),
    ]
    .into_iter()
    .chain(SMALL.into_iter().flat_map(|(row, bytes)| {
        let server = Cell::new(PEER, version, Role::Server, row, move |scene| server_over(scene, bytes));
        [server, Cell::new(PEER, version, Role::Client, row, move |scene| client_over(scene, bytes))]
    }))
    .collect()
}

fn serve(scene: &Scene, priority: &str, more: &[&str]) -> Result<(Process, u16), String> {
    let port = free_port()?;
    let text = port.to_string();
    let words = ["--udp", "--echo", "-d", "5", "-p", &text, "--priority", priority, "--require-client-cert"];
    let process = scene.start(SERVER, &[&words[..], more].concat())?;
    process.await_error(format!("listening on IPv6 :: port {port}...done"), 0)?;
    Ok((process, port))
}

/// Sends a request to the echo server, which returns the request unchanged. Tegmen's client rejects a request with a
/// Reset. The server returns this Reset too.
fn echoes(scene: &Scene, port: u16, words: &[&str]) -> Check {
    let uri = format!("coaps://{}/question", SocketAddr::new(LOOPBACK, port));
    let failure = start_ask_within(scene, &[&["put", &uri, "a blink"], words].concat(), None, "20")?.failure()?;
    Ok(holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen reports: {}", failure.trim()))?)
}

const THEIR_SERVER: [&str; 7] = [
    "--x509cafile",
    "ca/ca.pem",
    "--x509certfile",
    "ca/server.pem",
    "--x509keyfile",
    "ca/server.key",
    "--verify-client-cert",
];
pub(super) const THEIR_DEVICE: [&str; 6] =
    ["--x509cafile", "ca/ca.pem", "--x509certfile", "ca/device1.pem", "--x509keyfile", "ca/device1.key"];

fn server_mutual(scene: &Scene, priority: &str, suite: &str, rsa: bool) -> Check {
    certificates(scene, rsa)?;
    let (server, port) = serve(scene, priority, &THEIR_SERVER)?;
    echoes(scene, port, &AS_DEVICE)?;
    holds(&server.err.text(), &[&format!("GNUTLS_{suite}")])
}

/// Checks a handshake over a path with small datagrams. GnuTLS gets the size of datagrams with `--mtu`, and `tegmen`
/// has to discover it.
fn server_over(scene: &Scene, bytes: usize) -> Check {
    certificates(scene, false)?;
    let bytes_word = bytes.to_string();
    let (_server, port) = serve(scene, GCM, &[&THEIR_SERVER[..], &["--mtu", &bytes_word]].concat())?;
    let relay = Capture::over((LOOPBACK, port).into(), Network::Carries(bytes))?;
    echoes(scene, relay.port, &AS_DEVICE)?;
    relay.did_harm()
}

fn client_over(scene: &Scene, bytes: usize) -> Check {
    certificates(scene, false)?;
    let served = Served::start_with(scene, &Psk::usual(), &AS_SERVER)?;
    let relay = Capture::over((LOOPBACK, served.port).into(), Network::Carries(bytes))?;
    let words = ["--priority", GCM, "--mtu", &bytes.to_string()];
    client_session(scene, relay.port, &[&words[..], &THEIR_DEVICE].concat())?.get_v()?;
    relay.did_harm()
}

fn rsa_cbc(mode: Cbc) -> String {
    let without = if matches!(mode, Cbc::MacThenEncrypt) { ":%NO_ETM" } else { "" };
    format!("NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:+RSA:-CIPHER-ALL:+AES-128-CBC:-MAC-ALL:+SHA1{without}")
}

fn server_rsa_cbc(scene: &Scene, mode: Cbc) -> Check {
    certificates(scene, true)?;
    let (server, port) = serve(scene, &rsa_cbc(mode), &THEIR_SERVER)?;
    let relay = Capture::start((LOOPBACK, port).into())?;
    echoes(scene, relay.port, &[&AS_DEVICE[..], &["--suites", RSA_CBC.ours]].concat())?;
    mode.was_agreed(&relay)?;
    holds(&server.err.text(), &["(GNUTLS_RSA_AES_128_CBC_SHA1)"])
}

fn client_rsa_cbc(scene: &Scene, mode: Cbc) -> Check {
    certificates(scene, true)?;
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &["--suites", RSA_CBC.ours]].concat())?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let priority = rsa_cbc(mode);
    let mut session = client_session(scene, relay.port, &[&["--priority", &priority], &THEIR_DEVICE[..]].concat())?;
    session.get_v()?;
    mode.was_agreed(&relay)?;
    let text = session.process.out.text();
    holds(&text, &["The certificate is trusted", "(RSA)-(AES-128-CBC)-(SHA1)", "extended master secret"])?;
    served.process.await_output("(CN=device1) GET /v: 2.05", 0)?;
    Ok(())
}

fn server_raw(scene: &Scene) -> Check {
    let keys = RawKeys::new(scene)?;
    let (server, port) = serve(scene, RAW_PRIORITY, &["--rawpkfile", "server.pub", "--rawpkkeyfile", "ca/server.key"])?;
    echoes(scene, port, &keys.device())?;
    holds(&server.err.text(), &["Raw Public Key"])
}

fn client_session(scene: &Scene, port: u16, words: &[&str]) -> Result<Session, String> {
    let port = port.to_string();
    let all = [&["--udp", "-d", "5", "-p", &port], words, &["127.0.0.1"]].concat();
    Session::open(scene.start(CLIENT, &all)?)
}

fn client_mutual(scene: &Scene, priority: &str, description: &str, rsa: bool) -> Check {
    certificates(scene, rsa)?;
    let served = Served::start_with(scene, &Psk::usual(), &AS_SERVER)?;
    let mut session = client_session(scene, served.port, &[&["--priority", priority], &THEIR_DEVICE[..]].concat())?;
    session.get_v()?;
    holds(&session.process.out.text(), &["The certificate is trusted", description, "extended master secret"])?;
    served.process.await_output("(CN=device1) GET /v: 2.05", 0)?;
    Ok(())
}

fn client_raw(scene: &Scene) -> Check {
    let served = RawKeys::new(scene)?.serve(scene)?;
    // GnuTLS has no list of trusted keys.
    let theirs =
        ["--insecure", "--rawpkfile", "device1.pub", "--rawpkkeyfile", "ca/device1.key", "--priority", RAW_PRIORITY];
    let mut session = client_session(scene, served.port, &theirs)?;
    session.get_v()?;
    holds(&session.process.out.text(), &["(DTLS1.2-Raw Public Key)", "(ECDSA-SHA256)"])?;
    served.process.await_output("(device1) GET /v: 2.05", 0)?;
    Ok(())
}

const ECDHE_PSK: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:+ECDHE-PSK:-CIPHER-ALL:+CHACHA20-POLY1305";

fn server_ecdhe_psk(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let (server, port) = super::serve_with(scene, &psk, ECDHE_PSK, &[])?;
    let uri = format!("coaps://{}/question", SocketAddr::new(LOOPBACK, port));
    let words = ["put", &uri, "a blink", "--suites", ECDHE_PSK_CHACHA20.suite.ours];
    let failure = start_ask(scene, &words, Some(&psk))?.failure()?;
    holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen reports: {}", failure.trim()))?;
    holds(&server.err.text(), &["(GNUTLS_ECDHE_PSK_CHACHA20_POLY1305)"])
}

/// Waits only for both Finished messages. After these messages, this version of `gnutls-cli` crashes when it describes
/// a session with ECDHE-PSK. The crash also happens with the server of GnuTLS.
fn client_ecdhe_psk(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let served = Served::start_with(scene, &psk, &["--suites", ECDHE_PSK_CHACHA20.suite.ours])?;
    let port = served.port.to_string();
    let words = ["--udp", "-d", "5", "-p", &port, "--priority", ECDHE_PSK, "--pskusername", &psk.identity];
    let client = scene.start(CLIENT, &[&words[..], &["--pskkey", &psk.hex(), "127.0.0.1"]].concat())?;
    client.await_error("FINISHED (20) was received", 0)?;
    served.process.await_output(format!(" authenticated as {}", psk.identity), 0)?;
    holds(&client.err.text(), &["Selected cipher suite: GNUTLS_ECDHE_PSK_CHACHA20_POLY1305"])
}

fn cbc(mode: Cbc) -> String {
    let without = if matches!(mode, Cbc::MacThenEncrypt) { ":%NO_ETM" } else { "" };
    format!("NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:+PSK:-CIPHER-ALL:+AES-128-CBC:-MAC-ALL:+SHA256{without}")
}

fn server_cbc(scene: &Scene, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let (server, port) = super::serve_with(scene, &psk, &cbc(mode), &[])?;
    let relay = Capture::start((LOOPBACK, port).into())?;
    let uri = format!("coaps://{}/question", SocketAddr::new(LOOPBACK, relay.port));
    let words = ["put", &uri, "a blink", "--suites", PSK_CBC.ours];
    let failure = start_ask(scene, &words, Some(&psk))?.failure()?;
    holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen reports: {}", failure.trim()))?;
    mode.was_agreed(&relay)?;
    holds(&server.err.text(), &["(GNUTLS_PSK_AES_128_CBC_SHA256)"])
}

fn client_cbc(scene: &Scene, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let served = Served::start_with(scene, &psk, &["--suites", PSK_CBC.ours])?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let words = ["--priority", &cbc(mode), "--pskusername", &psk.identity, "--pskkey", &psk.hex()];
    let mut session = client_session(scene, relay.port, &words)?;
    session.get_v()?;
    mode.was_agreed(&relay)?;
    holds(&session.process.out.text(), &["(PSK)-(AES-128-CBC)-(SHA256)", "extended master secret"])?;
    served.process.await_output(format!("({}) GET /v: 2.05", psk.identity), 0)?;
    Ok(())
}

fn lacks_ecdhe_psk_ccm_8() -> Check {
    let output = Command::new(CLIENT).arg("--list").output().map_err(|error| error.to_string())?;
    lacks_suite(&String::from_utf8_lossy(&output.stdout), ECDHE_PSK_CCM_8, "gnutls-cli --list")
}
