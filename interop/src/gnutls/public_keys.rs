//! GnuTLS with certificates and with raw public keys.

use super::{CLIENT, PEER, SERVER, Session};
use crate::cell::{Cell, Check, Role, Scene, free_port};
use crate::dtls::{LOOPBACK, Plaintext as _};
use crate::openssl::holds;
use crate::openssl::public_keys::{DEVICE, certificates};
use crate::ours::{Psk, Served, start_ask};
use crate::process::Process;
use std::net::SocketAddr;

const CCM_8: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-CIPHER-ALL:+AES-128-CCM-8";
const GCM: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-CIPHER-ALL:+AES-128-GCM";
const RAW: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:+CTYPE-SRV-RAWPK:+CTYPE-CLI-RAWPK";

/// What `gnutls-cli` and `gnutls-serv` say of a session with both.
const ECDSA_CCM_8: &str = "(ECDHE-X25519)-(ECDSA-SHA256)-(AES-128-CCM-8)";
const ECDSA_GCM: &str = "(ECDHE-X25519)-(ECDSA-SHA256)-(AES-128-GCM)";
const RSA_GCM: &str = "(ECDHE-X25519)-(RSA-SHA256)-(AES-128-GCM)";

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let server = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Server, scenario, play);
    let client = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Client, scenario, play);
    vec![
        server("mutual ECDSA, CCM_8", |scene| server_mutual(scene, CCM_8, "ECDHE_ECDSA_AES_128_CCM_8", false)),
        server("mutual ECDSA, GCM", |scene| server_mutual(scene, GCM, "ECDHE_ECDSA_AES_128_GCM_SHA256", false)),
        server("mutual RSA, GCM", |scene| server_mutual(scene, GCM, "ECDHE_RSA_AES_128_GCM_SHA256", true)),
        server("raw public keys", server_raw),
        client("mutual ECDSA, CCM_8", |scene| client_mutual(scene, CCM_8, ECDSA_CCM_8, false)),
        client("mutual ECDSA, GCM", |scene| client_mutual(scene, GCM, ECDSA_GCM, false)),
        client("mutual RSA, GCM", |scene| client_mutual(scene, GCM, RSA_GCM, true)),
        client("raw public keys", client_raw),
    ]
}

fn serve(scene: &Scene, priority: &str, more: &[&str]) -> Result<(Process, u16), String> {
    let port = free_port()?;
    let text = port.to_string();
    let words = ["--udp", "--echo", "-d", "5", "-p", &text, "--priority", priority, "--require-client-cert"];
    let process = scene.start(SERVER, &[&words[..], more].concat())?;
    process.await_error(format!("listening on IPv6 :: port {port}...done"), 0)?;
    Ok((process, port))
}

/// An echo answers what was asked with the question, which a client refuses with a Reset: that comes back as well.
fn echoes(scene: &Scene, port: u16, words: &[&str]) -> Check {
    let uri = format!("coaps://{}/question", SocketAddr::new(LOOPBACK, port));
    let failure = start_ask(scene, &[&["put", &uri, "a blink"], words].concat(), None)?.failure()?;
    Ok(holds(&failure, &["answered with Reset"]).map_err(|_| format!("tegmen says: {}", failure.trim()))?)
}

fn server_mutual(scene: &Scene, priority: &str, suite: &str, rsa: bool) -> Check {
    certificates(scene, rsa)?;
    let keys = ["--x509cafile", "ca/ca.pem", "--x509certfile", "ca/server.pem", "--x509keyfile", "ca/server.key"];
    let (server, port) = serve(scene, priority, &[&keys[..], &["--verify-client-cert"]].concat())?;
    echoes(scene, port, &DEVICE)?;
    holds(&server.err.text(), &[&format!("GNUTLS_{suite}")])
}

/// Public keys in PEM beside the private ones, and the digests by which ours knows them: the server's, the device's.
fn raw_keys(scene: &Scene) -> Result<[String; 2], crate::cell::Trouble> {
    certificates(scene, false)?;
    let mut digests = [String::new(), String::new()];
    for (name, digest) in ["server", "device1"].into_iter().zip(&mut digests) {
        let (key, public) = (format!("ca/{name}.key"), format!("{name}.pub"));
        let mut export = scene.start("openssl", &["pkey", "-in", &key, "-pubout", "-out", &public])?;
        if !export.await_end()?.success() {
            return Err(export.err.text().into());
        }
        let mut shown = scene.tegmen(&["keys", "show", &key, "--json"])?;
        shown.await_end()?;
        let text: serde_json::Value = serde_json::from_str(&shown.out.text()).map_err(|error| error.to_string())?;
        text["public_key_digest"].as_str().unwrap_or_default().clone_into(digest);
    }
    Ok(digests)
}

fn server_raw(scene: &Scene) -> Check {
    let [server_key, _] = raw_keys(scene)?;
    let (server, port) = serve(scene, RAW, &["--rawpkfile", "server.pub", "--rawpkkeyfile", "ca/server.key"])?;
    echoes(scene, port, &["--cert-key", "ca/device1.key", "--server-key", &server_key])?;
    holds(&server.err.text(), &["Raw Public Key"])
}

fn client_session(scene: &Scene, port: u16, words: &[&str]) -> Result<Session, String> {
    let port = port.to_string();
    let all = [&["--udp", "-d", "5", "-p", &port], words, &["127.0.0.1"]].concat();
    Session::open(scene.start(CLIENT, &all)?)
}

fn client_mutual(scene: &Scene, priority: &str, description: &str, rsa: bool) -> Check {
    certificates(scene, rsa)?;
    let keys = ["--cert", "ca/server.pem", "--cert-key", "ca/server.key", "--client-ca", "ca/ca.pem"];
    let served = Served::start_with(scene, &Psk::usual(), &keys)?;
    let theirs = ["--x509cafile", "ca/ca.pem", "--x509certfile", "ca/device1.pem", "--x509keyfile", "ca/device1.key"];
    let mut session = client_session(scene, served.port, &[&["--priority", priority], &theirs[..]].concat())?;
    session.get_v()?;
    holds(&session.process.out.text(), &["The certificate is trusted", description, "extended master secret"])?;
    served.process.await_output("(CN=device1) GET /v: 2.05", 0)?;
    Ok(())
}

fn client_raw(scene: &Scene) -> Check {
    let [_, device_key] = raw_keys(scene)?;
    let named = format!("{device_key}=device1");
    let keys = ["--cert-key", "ca/server.key", "--client-key", &named];
    let served = Served::start_with(scene, &Psk::usual(), &keys)?;
    // It has no list of keys that it believes.
    let theirs = ["--insecure", "--rawpkfile", "device1.pub", "--rawpkkeyfile", "ca/device1.key", "--priority", RAW];
    let mut session = client_session(scene, served.port, &theirs)?;
    session.get_v()?;
    holds(&session.process.out.text(), &["(DTLS1.2-Raw Public Key)", "(ECDSA-SHA256)"])?;
    served.process.await_output("(device1) GET /v: 2.05", 0)?;
    Ok(())
}
