//! OpenSSL with certificates, and with an agreement beside a pre-shared key.

use super::{Client, PEER, PROGRAM, Server, holds};
use crate::cell::{Cell, Check, Role, Scene, free_port};
use crate::dtls::Plaintext as _;
use crate::ours::{Psk, Served, start_ask};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

/// A cipher suite, as we and as OpenSSL call it, and the word of `tegmen ca issue` for the kind of key.
#[derive(Clone, Copy)]
struct Suite {
    ours: &'static str,
    theirs: &'static str,
    rsa: bool,
}

const ECDSA_CCM_8: Suite = Suite { ours: "ecdhe-ecdsa-ccm8", theirs: "ECDHE-ECDSA-AES128-CCM8", rsa: false };
const ECDSA_GCM: Suite = Suite { ours: "ecdhe-ecdsa-gcm", theirs: "ECDHE-ECDSA-AES128-GCM-SHA256", rsa: false };
const RSA_GCM: Suite = Suite { ours: "ecdhe-rsa-gcm", theirs: "ECDHE-RSA-AES128-GCM-SHA256", rsa: true };

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let server = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Server, scenario, play);
    let client = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Client, scenario, play);
    vec![
        server("mutual ECDSA, CCM_8", |scene| server_mutual(scene, ECDSA_CCM_8, &[])),
        server("mutual ECDSA, GCM", |scene| server_mutual(scene, ECDSA_GCM, &[])),
        server("mutual ECDSA, secp256r1", |scene| server_mutual(scene, ECDSA_GCM, &["-groups", "P-256"])),
        server("mutual ECDSA, certificates in fragments, -mtu 400", |scene| {
            server_mutual(scene, ECDSA_GCM, &["-mtu", "400"])
        }),
        server("mutual RSA, GCM", |scene| server_mutual(scene, RSA_GCM, &[])),
        server("certificate for another name", server_of_another_name),
        client("mutual ECDSA, CCM_8", |scene| client_mutual(scene, ECDSA_CCM_8, &[])),
        client("mutual ECDSA, GCM", |scene| client_mutual(scene, ECDSA_GCM, &[])),
        client("mutual ECDSA, secp256r1", |scene| client_mutual(scene, ECDSA_GCM, &["-groups", "P-256"])),
        client("mutual RSA, GCM", |scene| client_mutual(scene, RSA_GCM, &[])),
        client("no certificate where one is asked for", client_without),
        client("a revoked certificate", client_revoked),
    ]
}

/// A CA in `ca`, with a server and a client.
pub(crate) fn certificates(scene: &Scene, rsa: bool) -> Check {
    tegmen(scene, &["ca", "init", "ca", "--name", "Works CA"])?;
    let key: &[&str] = if rsa { &["--rsa"] } else { &[] };
    let issue = ["ca", "issue", "ca", "--name"];
    tegmen(scene, &[&issue[..], &["server", "--server", "--dns", "localhost", "--ip", "127.0.0.1"], key].concat())?;
    tegmen(scene, &[&issue[..], &["device1", "--client"], key].concat())
}

fn tegmen(scene: &Scene, words: &[&str]) -> Check {
    let mut process = scene.tegmen(words)?;
    match process.await_end()?.success() {
        true => Ok(()),
        false => Err(process.err.text().into()),
    }
}

/// What `tegmen get` proves itself with, and whom it believes.
pub(crate) const DEVICE: [&str; 6] = ["--ca", "ca/ca.pem", "--cert", "ca/device1.pem", "--cert-key", "ca/device1.key"];

fn server(scene: &Scene, suite: Suite, more: &[&str]) -> Result<Server, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let cipher = format!("{}:@SECLEVEL=0", suite.theirs);
    let accept = address.to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["s_server", "-dtls1_2", "-accept", &accept, "-cipher", &cipher]);
    command.args(["-cert", "ca/server.pem", "-key", "ca/server.key", "-CAfile", "ca/ca.pem"]);
    command.args(["-Verify", "2", "-verify_return_error"]).args(more);
    let process = scene.start_command(command)?;
    process.await_output("ACCEPT", 0)?;
    Ok(Server { process, address, read: 0 })
}

fn server_mutual(scene: &Scene, suite: Suite, more: &[&str]) -> Check {
    certificates(scene, suite.rsa)?;
    let mut server = server(scene, suite, more)?;
    let uri = format!("coaps://{}/question", server.address);
    let asked = start_ask(scene, &[&["put", &uri, "a blink", "--suites", suite.ours], &DEVICE[..]].concat(), None)?;
    let request = server.request(3, "question", b"a blink", 4)?;
    server.answer(&request, 0x44, b"an answer")?;
    let answer = asked.answer()?;
    if answer.payload != "an answer" {
        return Err(format!("tegmen understood {:?}", answer.payload).into());
    }
    let session = server.session(scene)?;
    holds(&session, &[&format!("Cipher    : {}", suite.theirs), "Extended master secret: yes"])?;
    holds(&server.process.out.text(), &["CN = device1"])
}

fn server_of_another_name(scene: &Scene) -> Check {
    certificates(scene, false)?;
    let server = server(scene, ECDSA_GCM, &[])?;
    let uri = format!("coaps://{}/v", server.address);
    let words = [&["get", &uri, "--server-name", "other.example"], &DEVICE[..]].concat();
    holds(&start_ask(scene, &words, None)?.failure()?, &["not believed", "not for other.example"])
}

fn served(scene: &Scene, suite: Suite, more: &[&str]) -> Result<Served, crate::cell::Trouble> {
    certificates(scene, suite.rsa)?;
    let keys = ["--cert", "ca/server.pem", "--cert-key", "ca/server.key", "--client-ca", "ca/ca.pem"];
    Ok(Served::start_with(scene, &Psk::usual(), &[&keys[..], &["--suites", suite.ours], more].concat())?)
}

fn client(scene: &Scene, served: &Served, suite: Suite, more: &[&str]) -> Result<Client, String> {
    let mut command = Command::new(PROGRAM);
    let (cipher, to) = (format!("{}:@SECLEVEL=0", suite.theirs), format!("127.0.0.1:{}", served.port));
    command.args(["s_client", "-dtls1_2", "-connect", &to, "-cipher", &cipher, "-nocommands"]);
    command.args(["-CAfile", "ca/ca.pem", "-verify_return_error"]).args(more);
    Ok(Client { process: scene.start_command(command)?, read: 0 })
}

const THEIRS: [&str; 4] = ["-cert", "ca/device1.pem", "-key", "ca/device1.key"];

fn client_mutual(scene: &Scene, suite: Suite, more: &[&str]) -> Check {
    let served = served(scene, suite, &[])?;
    let mut client = client(scene, &served, suite, &[&THEIRS[..], more].concat())?;
    let session = client.established()?;
    client.get_v()?;
    let cipher = format!("Cipher is {}", suite.theirs);
    holds(&session, &["Verify return code: 0 (ok)", &cipher, "Extended master secret: yes"])?;
    served.process.await_output("(CN=device1) GET /v: 2.05", 0)?;
    Ok(())
}

fn client_without(scene: &Scene) -> Check {
    let served = served(scene, ECDSA_GCM, &[])?;
    let client = client(scene, &served, ECDSA_GCM, &[])?;
    served.process.await_output("showed no certificate", 0)?;
    client.process.await_error("alert handshake failure", 0)?;
    Ok(())
}

fn client_revoked(scene: &Scene) -> Check {
    certificates(scene, false)?;
    tegmen(scene, &["ca", "revoke", "ca", "ca/device1.pem"])?;
    let keys = ["--cert", "ca/server.pem", "--cert-key", "ca/server.key", "--client-ca", "ca/ca.pem"];
    let revoked = ["--client-crl", "ca/crl.pem"];
    let served = Served::start_with(scene, &Psk::usual(), &[&keys[..], &revoked].concat())?;
    let client = client(scene, &served, ECDSA_GCM, &THEIRS)?;
    served.process.await_output("is revoked", 0)?;
    client.process.await_error("alert certificate unknown", 0)?;
    Ok(())
}
