//! OpenSSL with certificates, and with a key agreement in addition to a pre-shared key.

use super::{Client, PEER, PROGRAM, Server, client_get};
use crate::capture::Capture;
use crate::cell::{Cell, Check, Role, Scene, free_port, holds};
use crate::network::{Network, SMALL};
use crate::ours::{Psk, Served, start_ask, start_ask_within};
use crate::process::Process;
use crate::public_keys::{
    AS_DEVICE, AS_SERVER, Cbc, ECDHE_PSK_CCM_8, ECDHE_PSK_CHACHA20, ECDSA_CCM_8, ECDSA_GCM, PSK_CBC, RAW, RSA_CBC,
    RSA_GCM, RawKeys, Suite, certificates, client_lacks_raw, lacks_suite, server_lacks_raw, tegmen,
};
use crate::session::Plaintext as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

impl Suite {
    /// Returns the name of the suite in OpenSSL.
    fn openssl(self) -> &'static str {
        match self.ours {
            "ecdhe-ecdsa-ccm8" => "ECDHE-ECDSA-AES128-CCM8",
            "ecdhe-ecdsa-gcm" => "ECDHE-ECDSA-AES128-GCM-SHA256",
            "rsa-cbc" => "AES128-SHA",
            _ => "ECDHE-RSA-AES128-GCM-SHA256",
        }
    }
}

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
        server(RAW, no_raw_server),
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
        server("certificate for another name", server_of_another_name),
        server("renegotiation is refused", server_renegotiates),
        client("mutual ECDSA, CCM_8", |scene| client_mutual(scene, ECDSA_CCM_8, &[])),
        client("mutual ECDSA, GCM", |scene| client_mutual(scene, ECDSA_GCM, &[])),
        client("mutual ECDSA, secp256r1", |scene| client_mutual(scene, ECDSA_GCM, &["-groups", "P-256"])),
        client("mutual RSA, GCM", |scene| client_mutual(scene, RSA_GCM, &[])),
        client(RAW, no_raw_client),
        client(ECDHE_PSK_CCM_8.scenario, |_| lacks_ecdhe_psk_ccm_8()),
        client(ECDHE_PSK_CHACHA20.scenario, client_ecdhe_psk),
        client("no certificate where one is asked for", client_without),
        client("a revoked certificate", client_revoked),
        client("no certificate, rights of --anonymous", client_anonymous),
        client("x25519 alone, a certificate on secp256r1", client_without_the_curve),
        client("renegotiation is refused", client_renegotiates),
    ]
    .into_iter()
    .chain(SMALL.into_iter().flat_map(|(row, bytes)| {
        let server = Cell::new(PEER, version, Role::Server, row, move |scene| server_over(scene, bytes));
        [server, Cell::new(PEER, version, Role::Client, row, move |scene| client_over(scene, bytes))]
    }))
    .collect()
}

pub(super) fn server(scene: &Scene, suite: Suite, more: &[&str]) -> Result<Server, String> {
    let (address, mut command) = server_command(suite)?;
    command.args(more);
    start_server(scene.start_command(command)?, address)
}

fn server_command(suite: Suite) -> Result<(SocketAddr, Command), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let cipher = format!("{}:@SECLEVEL=0", suite.openssl());
    let accept = address.to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["s_server", "-dtls1_2", "-accept", &accept, "-cipher", &cipher]);
    command.args(["-cert", "ca/server.pem", "-key", "ca/server.key", "-CAfile", "ca/ca.pem"]);
    command.args(["-Verify", "2", "-verify_return_error"]);
    Ok((address, command))
}

fn start_server(process: Process, address: SocketAddr) -> Result<Server, String> {
    process.await_output("ACCEPT", 0)?;
    Ok(Server { process, address, read: 0 })
}

fn server_mutual(scene: &Scene, suite: Suite, more: &[&str]) -> Check {
    certificates(scene, suite.rsa)?;
    asked(scene, server(scene, suite, more)?, suite)
}

/// Checks a request of `tegmen put` to `s_server`. The client and the server have certificates.
fn asked(scene: &Scene, mut server: Server, suite: Suite) -> Check {
    let uri = format!("coaps://{}/question", server.address);
    let words = [&["put", &uri, "a blink", "--suites", suite.ours], &AS_DEVICE[..]].concat();
    let asked = start_ask_within(scene, &words, None, "20")?;
    let request = server.request(3, "question", b"a blink", 4)?;
    server.answer(&request, 0x44, b"an answer")?;
    let answer = asked.answer()?;
    if answer.payload != "an answer" {
        return Err(format!("tegmen understood {:?}", answer.payload).into());
    }
    let session = server.session(scene)?;
    holds(&session, &[&format!("Cipher    : {}", suite.openssl()), "Extended master secret: yes"])?;
    holds(&server.process.out.text(), &["CN = device1"])
}

/// Checks a handshake over a path with small datagrams. OpenSSL gets the size of datagrams with `-mtu`, and `tegmen`
/// has to discover it.
fn server_over(scene: &Scene, bytes: usize) -> Check {
    certificates(scene, false)?;
    let mut server = server(scene, ECDSA_GCM, &["-mtu", &bytes.to_string()])?;
    let relay = Capture::over(server.address, Network::Carries(bytes))?;
    server.address = (Ipv4Addr::LOCALHOST, relay.port).into();
    asked(scene, server, ECDSA_GCM)?;
    relay.did_harm()
}

fn client_over(scene: &Scene, bytes: usize) -> Check {
    let served = served(scene, ECDSA_GCM, &[])?;
    let relay = Capture::over((Ipv4Addr::LOCALHOST, served.port).into(), Network::Carries(bytes))?;
    let bytes = bytes.to_string();
    gets(&served, client(scene, relay.port, ECDSA_GCM, &[&THEIRS[..], &["-mtu", &bytes]].concat())?, ECDSA_GCM)?;
    relay.did_harm()
}

fn server_of_another_name(scene: &Scene) -> Check {
    certificates(scene, false)?;
    let server = server(scene, ECDSA_GCM, &[])?;
    let uri = format!("coaps://{}/v", server.address);
    let words = [&["get", &uri, "--server-name", "other.example"], &AS_DEVICE[..]].concat();
    holds(&start_ask(scene, &words, None)?.failure()?, &["not trusted", "not for other.example"])
}

/// Checks that `tegmen` answers a HelloRequest in a session with the warning no_renegotiation.
fn server_renegotiates(scene: &Scene) -> Check {
    certificates(scene, false)?;
    let mut server = server(scene, ECDSA_GCM, &["-state"])?;
    let uri = format!("coaps://{}/question", server.address);
    let words = [&["put", &uri, "a blink", "--suites", ECDSA_GCM.ours], &AS_DEVICE[..]].concat();
    let _asked = start_ask_within(scene, &words, None, "20")?;
    server.request(3, "question", b"a blink", 4)?;
    server.process.write(b"r\n")?;
    server.process.await_error("alert read:warning:no renegotiation", 0)?;
    Ok(())
}

fn served(scene: &Scene, suite: Suite, more: &[&str]) -> Result<Served, crate::cell::Trouble> {
    certificates(scene, suite.rsa)?;
    Ok(Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &["--suites", suite.ours], more].concat())?)
}

pub(super) fn client(scene: &Scene, port: u16, suite: Suite, more: &[&str]) -> Result<Client, String> {
    let mut command = client_command(port, suite);
    command.args(more);
    Ok(Client { process: scene.start_command(command)?, read: 0 })
}

fn client_command(port: u16, suite: Suite) -> Command {
    let mut command = Command::new(PROGRAM);
    let (cipher, to) = (format!("{}:@SECLEVEL=0", suite.openssl()), format!("127.0.0.1:{port}"));
    command.args(["s_client", "-dtls1_2", "-connect", &to, "-cipher", &cipher, "-nocommands"]);
    command.args(["-CAfile", "ca/ca.pem", "-verify_return_error"]);
    command
}

fn server_rsa_cbc(scene: &Scene, mode: Cbc) -> Check {
    certificates(scene, true)?;
    let (address, command) = server_command(RSA_CBC)?;
    let process = with_cbc(scene, command, mode)?;
    let relay = Capture::start(address)?;
    let mut server = start_server(process, address)?;
    server.address = (Ipv4Addr::LOCALHOST, relay.port).into();
    asked(scene, server, RSA_CBC)?;
    mode.was_agreed(&relay)
}

fn client_rsa_cbc(scene: &Scene, mode: Cbc) -> Check {
    let served = served(scene, RSA_CBC, &[])?;
    let relay = Capture::start((Ipv4Addr::LOCALHOST, served.port).into())?;
    let mut command = client_command(relay.port, RSA_CBC);
    command.args(THEIRS);
    let client = Client { process: with_cbc(scene, command, mode)?, read: 0 };
    gets(&served, client, RSA_CBC)?;
    mode.was_agreed(&relay)
}

pub(super) const THEIRS: [&str; 4] = ["-cert", "ca/device1.pem", "-key", "ca/device1.key"];

fn client_mutual(scene: &Scene, suite: Suite, more: &[&str]) -> Check {
    let served = served(scene, suite, &[])?;
    gets(&served, client(scene, served.port, suite, &[&THEIRS[..], more].concat())?, suite)
}

fn gets(served: &Served, mut client: Client, suite: Suite) -> Check {
    let session = client.established()?;
    client.get_v()?;
    let cipher = format!("Cipher is {}", suite.openssl());
    holds(&session, &["Verify return code: 0 (ok)", &cipher, "Extended master secret: yes"])?;
    served.process.await_output("(CN=device1) GET /v: 2.05", 0)?;
    Ok(())
}

fn client_without(scene: &Scene) -> Check {
    let served = served(scene, ECDSA_GCM, &[])?;
    let client = client(scene, served.port, ECDSA_GCM, &[])?;
    served.process.await_output("showed no certificate", 0)?;
    client.process.await_error("alert handshake failure", 0)?;
    Ok(())
}

/// Checks a server that requests no certificate of its client. The client may send the requests that `--anonymous`
/// allows.
fn client_anonymous(scene: &Scene) -> Check {
    certificates(scene, false)?;
    let words = [&AS_SERVER[..4], &["--suites", ECDSA_GCM.ours, "--anonymous", "GET /v"]].concat();
    let served = Served::start_with(scene, &Psk::usual(), &words)?;
    let mut client = client(scene, served.port, ECDSA_GCM, &[])?;
    client.established()?;
    client.get_v()?;
    served.process.await_output("GET /v: 2.05", 0)?;
    Ok(())
}

/// Checks that the handshake fails if the client does not offer the curve of its certificate (RFC 8422, section 5.1).
fn client_without_the_curve(scene: &Scene) -> Check {
    let served = served(scene, ECDSA_GCM, &[])?;
    let client = client(scene, served.port, ECDSA_GCM, &[&THEIRS[..], &["-groups", "X25519"]].concat())?;
    client.process.await_error("alert handshake failure", 0)?;
    Ok(())
}

/// Checks a renegotiation. If a ClientHello arrives in a session, Tegmen's server answers with the warning
/// no_renegotiation. OpenSSL's client then ends.
fn client_renegotiates(scene: &Scene) -> Check {
    let served = served(scene, ECDSA_GCM, &[])?;
    let cipher = format!("{}:@SECLEVEL=0", ECDSA_GCM.openssl());
    let to = format!("127.0.0.1:{}", served.port);
    let mut command = Command::new(PROGRAM);
    command.args(["s_client", "-dtls1_2", "-connect", &to, "-cipher", &cipher, "-CAfile", "ca/ca.pem"]).args(THEIRS);
    let mut client = Client { process: scene.start_command(command)?, read: 0 };
    client.established()?;
    client.process.write(b"R\n")?;
    client.process.await_error("no renegotiation", 0)?;
    Ok(())
}

fn client_revoked(scene: &Scene) -> Check {
    certificates(scene, false)?;
    tegmen(scene, &["ca", "revoke", "ca", "ca/device1.pem"])?;
    let revoked = ["--client-crl", "ca/crl.pem"];
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &revoked].concat())?;
    let client = client(scene, served.port, ECDSA_GCM, &THEIRS)?;
    served.process.await_output("is revoked", 0)?;
    client.process.await_error("alert certificate unknown", 0)?;
    Ok(())
}

fn no_raw_server(scene: &Scene) -> Check {
    let keys = RawKeys::new(scene)?;
    let server = server(scene, ECDSA_GCM, &[])?;
    server_lacks_raw(scene, &keys, server.address)
}

fn no_raw_client(scene: &Scene) -> Check {
    let keys = RawKeys::new(scene)?;
    client_lacks_raw(scene, &keys, |server| Ok(client(scene, server.port(), ECDSA_GCM, &THEIRS)?.process))
}

const ECDHE_PSK: [&str; 2] = ["-cipher", "ECDHE-PSK-CHACHA20-POLY1305"];

fn server_ecdhe_psk(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &ECDHE_PSK)?;
    server.exchange(scene, &psk, &["--suites", ECDHE_PSK_CHACHA20.suite.ours])?;
    holds(&server.session(scene)?, &["Cipher    : ECDHE-PSK-CHACHA20-POLY1305", "Extended master secret: yes"])
}

fn client_ecdhe_psk(scene: &Scene) -> Check {
    let served = Served::start_with(scene, &Psk::usual(), &["--suites", ECDHE_PSK_CHACHA20.suite.ours])?;
    let (_, session) = client_get(scene, &served, &ECDHE_PSK)?;
    holds(&session, &["Cipher is ECDHE-PSK-CHACHA20-POLY1305", "Extended master secret: yes"])
}

const CBC: [&str; 2] = ["-cipher", "PSK-AES128-CBC-SHA256:@SECLEVEL=0"];
/// A configuration file that disables encrypt-then-MAC. OpenSSL has no command-line option for this.
const WITHOUT_ENCRYPT_THEN_MAC: &str = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n\
                                        [tls]\nOptions = -EncryptThenMac\n";

fn with_cbc(scene: &Scene, mut command: Command, mode: Cbc) -> Result<Process, String> {
    if matches!(mode, Cbc::MacThenEncrypt) {
        command.env("OPENSSL_CONF", scene.file("openssl.cnf", WITHOUT_ENCRYPT_THEN_MAC)?);
    }
    scene.start_command(command)
}

fn server_cbc(scene: &Scene, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let (accept, key) = (address.to_string(), psk.hex());
    let mut command = Command::new(PROGRAM);
    command.args(["s_server", "-dtls1_2", "-accept", &accept, "-nocert", "-psk", &key]).args(CBC);
    command.args(["-psk_identity", &psk.identity]);
    let process = with_cbc(scene, command, mode)?;
    process.await_output("ACCEPT", 0)?;
    let relay = Capture::start(address)?;
    let mut server = Server { process, address: (Ipv4Addr::LOCALHOST, relay.port).into(), read: 0 };
    server.exchange(scene, &psk, &["--suites", PSK_CBC.ours])?;
    mode.was_agreed(&relay)?;
    holds(&server.session(scene)?, &["Cipher    : PSK-AES128-CBC-SHA256", "Extended master secret: yes"])
}

fn client_cbc(scene: &Scene, mode: Cbc) -> Check {
    let psk = Psk::usual();
    let served = Served::start_with(scene, &psk, &["--suites", PSK_CBC.ours])?;
    let relay = Capture::start((Ipv4Addr::LOCALHOST, served.port).into())?;
    let mut command = Command::new(PROGRAM);
    Client::arguments(&mut command, "127.0.0.1", relay.port, &psk, &CBC);
    let mut client = Client { process: with_cbc(scene, command, mode)?, read: 0 };
    let session = client.established()?;
    client.get_v()?;
    mode.was_agreed(&relay)?;
    holds(&session, &["Cipher is PSK-AES128-CBC-SHA256", "Extended master secret: yes"])
}

fn lacks_ecdhe_psk_ccm_8() -> Check {
    let output =
        Command::new(PROGRAM).args(["ciphers", "ALL:@SECLEVEL=0"]).output().map_err(|error| error.to_string())?;
    lacks_suite(&String::from_utf8_lossy(&output.stdout), ECDHE_PSK_CCM_8, "openssl ciphers")
}
