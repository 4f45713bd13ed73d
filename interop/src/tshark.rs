//! Scenarios with tshark, which decodes the traffic between a client and a server. tshark gets their keys.

use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble};
use crate::gnutls;
use crate::ours::{Psk, Served, ask};
use crate::public_keys::ECDHE_PSK_CHACHA20;
use crate::session::DtlsClient as _;
use std::path::Path;
use std::process::Command;

pub(crate) const PROGRAM: &str = "tshark";

/// Returns the version that tshark prints.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(2)?.trim_end_matches('.');
    Some(version.to_owned())
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with tshark.
pub(crate) fn cells(version: &str) -> Vec<Cell> {
    let cell = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PROGRAM, version, Role::Reader, scenario, play);
    vec![
        cell("session of tegmen, opened with the client's key log", |scene| {
            opened(scene, |scene| key_log(scene, "client.keys"))
        }),
        cell("session of tegmen, opened with the server's key log", |scene| {
            opened(scene, |scene| key_log(scene, "server.keys"))
        }),
        cell("session of tegmen, opened with the PSK", |scene| {
            opened(scene, |_| format!("dtls.psk:{}", Psk::usual().hex()))
        }),
        cell("session of tegmen, closed to another PSK", closed_to_others),
        cell("capture that tegmen wrote, the secrets in it", own_capture),
        cell("capture that tegmen wrote, ECDHE-PSK, ChaCha20-Poly1305", capture_of_chacha20),
        cell("session of tegmen with connection ids", with_ids),
        cell("session of GnuTLS with tegmen, opened with the server's key log", gnutls_session),
        cell("plain CoAP", plain),
    ]
}

fn key_log(scene: &Scene, name: &str) -> String {
    format!("tls.keylog_file:{}", scene.directory().join(name).display())
}

/// The messages that tshark decoded in a capture.
struct Decoded {
    /// Types of handshake messages, including encrypted ones if tshark could decrypt them.
    handshake: Vec<String>,
    /// CoAP messages, each as `TYPE CODE PAYLOAD`. The payload is in hexadecimal.
    coap: Vec<String>,
}

fn decode(file: &Path, port: u16, secure: bool, preference: &str) -> Result<Decoded, String> {
    let mut command = Command::new(PROGRAM);
    command.arg("-r").arg(file).args(["-o", preference]);
    if secure {
        command.args(["-d", &format!("udp.port=={port},dtls"), "-d", &format!("dtls.port=={port},coap")]);
    } else {
        command.args(["-d", &format!("udp.port=={port},coap")]);
    }
    command.args(["-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().map_err(|error| format!("{PROGRAM}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{PROGRAM} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut decoded = Decoded { handshake: Vec::new(), coap: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        let mut fields = line.split('\t');
        let [handshake, kind, code, path, payload_len, payload, malformed, expert] =
            FIELDS.map(|_| fields.next().unwrap_or_default());
        if !malformed.is_empty() || !expert.is_empty() {
            return Err(format!("it objects to packet {}: {malformed} {expert}", number.saturating_add(1)));
        }
        decoded.handshake.extend(handshake.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned));
        if let Ok(code) = code.parse::<u8>() {
            let kind = ["CON", "NON", "ACK", "RST"].get(kind.parse::<usize>().unwrap_or(9)).copied().unwrap_or("?");
            // It shows the path of the request at its response, too.
            let path = if (1..32).contains(&code) { path } else { "" };
            let payload = if payload.is_empty() { payload_len } else { payload };
            let words = [kind.to_owned(), format!("{}.{:02}", code >> 5, code & 31), path.into(), payload.into()];
            decoded.coap.push(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
        }
    }
    Ok(decoded)
}

const FIELDS: [&str; 8] = [
    "dtls.handshake.type",
    "coap.type",
    "coap.code",
    "coap.opt.uri_path_recon",
    "coap.payload_length",
    "data.data",
    "_ws.malformed",
    "_ws.expert.message",
];

/// Captures three sessions, one for each command: GET, GET with a separate response, PUT. Returns the capture and the
/// port.
fn session(scene: &Scene) -> Result<(std::path::PathBuf, u16), String> {
    let served = Served::start_with(scene, &Psk::usual(), &["--key-log", "server.keys"])?;
    let capture = Capture::start((LOOPBACK, served.port).into())?;
    let port = capture.port;
    for words in [&["get", "v"][..], &["get", "slow"], &["put", "v", "a new value"]] {
        let [method, path, value @ ..] = words else { continue };
        let uri = format!("coaps://127.0.0.1:{port}/{path}");
        ask(scene, &[&[*method, &uri, "--key-log", "client.keys"], value].concat(), Some(&Psk::usual()))?;
    }
    Ok((capture.finish(scene)?, port))
}

fn is(decoded: &Decoded, expected: &[&str]) -> Check {
    if decoded.coap == expected {
        return Ok(());
    }
    Err(format!("it decodes {:?}, not {expected:?}", decoded.coap).into())
}

const EXCHANGES: [&str; 8] = [
    "CON 0.01 /v",
    "ACK 2.05 68656c6c6f",
    "CON 0.01 /slow",
    "ACK 0.00",
    "CON 2.05 6",
    "ACK 0.00",
    "CON 0.03 /v 61206e65772076616c7565",
    "ACK 2.04",
];

fn opened(scene: &Scene, key: impl FnOnce(&Scene) -> String) -> Check {
    let (file, port) = session(scene)?;
    let decoded = decode(&file, port, true, &key(scene))?;
    is(&decoded, &EXCHANGES)?;
    // ClientHello, HelloVerifyRequest, ClientHello, ServerHello, ServerHelloDone, ClientKeyExchange, two Finished.
    let once = ["1", "3", "1", "2", "14", "16", "20", "20"];
    let thrice = [once, once, once].concat();
    if decoded.handshake == thrice {
        return Ok(());
    }
    Err(format!("it decodes the handshake messages {:?}", decoded.handshake).into())
}

/// Checks that tshark decodes no message with a wrong key. This shows that the other scenarios decode messages only
/// because they have the key.
fn closed_to_others(scene: &Scene) -> Check {
    let (file, port) = session(scene)?;
    is(&decode(&file, port, true, &format!("dtls.psk:{}", Psk::with_key("wrongPSK").hex()))?, &[])
}

/// Checks a capture of `tegmen --pcap`, which contains the secrets, so tshark needs no other key.
fn own_capture(scene: &Scene) -> Check {
    let (file, port) = captured(scene, &[])?;
    is(&decode(&file, port, true, "dtls.psk:")?, &GET)
}

/// Checks a capture with ChaCha20. A tshark version that leaves the epoch out of the nonce (RFC 7905, section 2) finds
/// the secrets but decrypts nothing.
fn capture_of_chacha20(scene: &Scene) -> Check {
    let (file, port) = captured(scene, &["--suites", ECDHE_PSK_CHACHA20.suite.ours])?;
    let log = scene.directory().join("tshark.log");
    let decoded = decode(&file, port, true, &format!("dtls.debug_file:{}", log.display()))?;
    let log = std::fs::read_to_string(log).unwrap_or_default();
    if decoded.coap.is_empty() && log.contains("tls_decrypt_aead_record auth tag mismatch") {
        return Err(Trouble::Lacks("it leaves the epoch out of the nonce, and so finds no tag right".to_owned()));
    }
    is(&decoded, &GET)
}

/// Runs one GET with `--pcap`. Returns the capture and the port of the server.
fn captured(scene: &Scene, words: &[&str]) -> Result<(std::path::PathBuf, u16), String> {
    let served = Served::start_with(scene, &Psk::usual(), words)?;
    let file = scene.directory().join("own.pcapng");
    let uri = format!("coaps://127.0.0.1:{}/v", served.port);
    ask(scene, &[&["get", &uri, "--pcap", &file.to_string_lossy()], words].concat(), Some(&Psk::usual()))?;
    Ok((file, served.port))
}

const GET: [&str; 2] = ["CON 0.01 /v", "ACK 2.05 68656c6c6f"];

/// Checks that tshark supports the type tls12_cid, finds the connection ids, and decrypts the content after them.
fn with_ids(scene: &Scene) -> Check {
    let served = Served::start_with(scene, &Psk::usual(), &["--padding", "16"])?;
    let file = scene.directory().join("own.pcapng");
    let uri = format!("coaps://127.0.0.1:{}/v", served.port);
    let words = ["get", &uri, "--pcap", &file.to_string_lossy(), "--connection-id=5"];
    ask(scene, &words, Some(&Psk::usual()))?;
    is(&decode(&file, served.port, true, "dtls.psk:")?, &["CON 0.01 /v", "ACK 2.05 68656c6c6f"])?;
    let mut command = Command::new(PROGRAM);
    command.arg("-r").arg(&file).args(["-d", &format!("udp.port=={},dtls", served.port), "-T", "fields"]);
    let output = command.args(["-e", "dtls.record.connection_id"]).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lens: Vec<usize> = text.split_whitespace().map(|id| id.len() / 2).collect();
    lens.dedup();
    // Both Finished, request and response, and perhaps the alerts at the end.
    match lens.starts_with(&[8, 5, 8, 5]) {
        true => Ok(()),
        false => Err(format!("it finds ids of {lens:?} bytes: {text}").into()),
    }
}

fn gnutls_session(scene: &Scene) -> Check {
    let served = Served::start_with(scene, &Psk::usual(), &["--key-log", "server.keys"])?;
    let capture = Capture::start((LOOPBACK, served.port).into())?;
    let port = capture.port;
    let mut session = gnutls::Client.connect(scene, (LOOPBACK, port).into(), &Psk::usual())?;
    session.get_v()?;
    session.close();
    served.process.await_output("disconnected (close_notify)", 0)?;
    let file = capture.finish(scene)?;
    is(&decode(&file, port, true, &key_log(scene, "server.keys"))?, &["CON 0.01 /v", "ACK 2.05 68656c6c6f"])
}

fn plain(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let capture = Capture::start((LOOPBACK, served.port + 1).into())?;
    let port = capture.port;
    let uri = format!("coap://127.0.0.1:{port}");
    ask(scene, &["get", &format!("{uri}/v")], None)?;
    ask(scene, &["get", &format!("{uri}/slow")], None)?;
    ask(scene, &["put", &format!("{uri}/v"), "a new value"], None)?;
    ask(scene, &["get", "--non", &format!("{uri}/nothing")], None)?;
    ask(scene, &["get", &format!("{uri}/.well-known/core")], None)?;
    let decoded = decode(&capture.finish(scene)?, port, false, "coap.udp.port:5683")?;
    let Some((links, others)) = decoded.coap.split_last() else { return Err("it decodes nothing".into()) };
    if !links.starts_with("ACK 2.05 ") {
        return Err(format!("it decodes the answer with the links as {links:?}").into());
    }
    let more = ["NON 0.01 /nothing", "NON 4.04", "CON 0.01 /.well-known/core"];
    is(&Decoded { coap: others.to_vec(), handshake: Vec::new() }, &[&EXCHANGES[..], &more].concat())
}
