//! OSCORE between Tegmen's client and Tegmen's server: scenarios in which the server refuses requests, and in which
//! tshark decrypts the messages with the master secret of the context.

use super::{make, sent_again, serve, uri, wire};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::ours::{ask, start_ask};
use crate::process::Process;
use crate::tshark;
use std::process::Command;
use tegmen::coap::{MessageRef, OptionNumber};

pub(super) fn cells() -> Vec<Cell> {
    let cell = |scenario: &str, play: fn(&Scene) -> Check| {
        let scenario = format!("OSCORE: {scenario}");
        Cell::new("tegmen", env!("CARGO_PKG_VERSION"), Role::Client, &scenario, play)
    };
    vec![
        cell("another secret brings 4.00, with an explanation", |scene| {
            make(scene, &["new", "unused", "wrong", "--sender-id", "01", "--recipient-id", "02"])?;
            refused(scene, "4.00: it cannot decrypt the request (compare master_secret, master_salt and algorithm)")
        }),
        cell("an unknown context brings 4.01, with an explanation", |scene| {
            make(scene, &["new", "unused", "wrong", "--sender-id", "01", "--recipient-id", "05"])?;
            refused(scene, "4.01: it does not know the context (compare sender_id, recipient_id and id_context")
        }),
        cell("a request sent again from another port brings 4.01", replayed),
        cell("a request in clear brings 4.01 without --plain", in_clear),
    ]
}

/// Starts Tegmen's server and a relay to it. Creates an OSCORE context: writes the server's part to `contexts/ours`,
/// and the client's part to `client`.
fn both(scene: &Scene) -> Result<(Process, u16, Capture), String> {
    let made = make(scene, &["new", "contexts/ours", "client", "--sender-id", "01", "--recipient-id", "02"]);
    made.map_err(|trouble| format!("{trouble:?}"))?;
    let port = free_port()?;
    let process = serve(scene, port)?;
    Ok((process, port, Capture::start((LOOPBACK, port).into())?))
}

fn refused(scene: &Scene, explanation: &str) -> Check {
    let (_served, port, capture) = both(scene)?;
    let failure = start_ask(scene, &["get", &uri(capture.port, "v"), "--oscore", "wrong"], None)?.failure()?;
    if !failure.contains(explanation) {
        return Err(format!("the client reports: {}", failure.trim()).into());
    }
    // The same server still serves the client with the right context.
    let capture = Capture::start((LOOPBACK, port).into())?;
    is_hello(scene, &capture)?;
    wire::protected(&capture)
}

fn is_hello(scene: &Scene, capture: &Capture) -> Check {
    crate::plain::is(scene, &["get", &uri(capture.port, "v"), "--oscore", "client"], "2.05", "hello")
}

/// Checks a replay from another port. The Message ID is new to the server, but the sequence number is already in the
/// replay window of the server.
fn replayed(scene: &Scene) -> Check {
    let (_served, port, capture) = both(scene)?;
    crate::plain::is(scene, &["put", &uri(capture.port, "v"), "once", "--oscore", "client"], "2.04", "")?;
    let request = capture.datagrams().into_iter().next().ok_or("nothing passed")?;
    crate::plain::is(scene, &["put", &uri(capture.port, "v"), "hello", "--oscore", "client"], "2.04", "")?;
    let answer = sent_again((LOOPBACK, port).into(), &request.bytes)?;
    let answer = MessageRef::parse(&answer).map_err(|error| format!("{error:?}"))?;
    let protected = answer.option(OptionNumber::OSCORE).is_some();
    if answer.code() != tegmen::coap::Code::UNAUTHORIZED || protected {
        return Err(format!("it brought {}, protected: {protected}", answer.code()).into());
    }
    // The second copy of the request did not change the value.
    is_hello(scene, &capture)?;
    wire::protected(&capture)
}

fn in_clear(scene: &Scene) -> Check {
    let (_served, _, capture) = both(scene)?;
    let answer = ask(scene, &["get", &uri(capture.port, "v")], None)?;
    if answer.code != "4.01" || answer.payload.contains("hello") {
        return Err(format!("it brought {} {:?}", answer.code, answer.payload).into());
    }
    Ok(())
}

// --- tshark ---

pub(crate) fn reader_cells(version: &str) -> Vec<Cell> {
    let cell = |scenario: &str, play: fn(&Scene) -> Check| {
        Cell::new(tshark::PROGRAM, version, Role::Reader, &format!("OSCORE: {scenario}"), play)
    };
    vec![
        cell("requests of tegmen, opened with the secret", |scene| {
            let (file, port) = session(scene)?;
            let secret = value(scene, "master_secret")?;
            let (opened, objections) = decode(scene, &file, port, &secret)?;
            if !objections.is_empty() {
                return Err(format!("it objects: {objections:?}").into());
            }
            match opened == EXCHANGES {
                true => Ok(()),
                false => Err(format!("it decodes {opened:?}, not {EXCHANGES:?}").into()),
            }
        }),
        cell("requests of tegmen, closed to another secret", |scene| {
            let (file, port) = session(scene)?;
            let (opened, objections) = decode(scene, &file, port, "000102030405060708090a0b0c0d0e0f")?;
            // One for each of the six messages that are not an empty acknowledgement.
            let failed = objections.iter().filter(|text| text.contains("Authentication tag check failed")).count();
            match (opened.is_empty(), failed) {
                (true, 6) => Ok(()),
                _ => Err(format!("it decodes {opened:?}, and objects: {objections:?}").into()),
            }
        }),
    ]
}

const EXCHANGES: [&str; 6] = [
    "CON 0.01 /v",
    "ACK 2.05 68656c6c6f",
    "CON 0.01 /slow",
    "CON 2.05 736c6f776c79",
    "CON 0.03 /v 61206e65772076616c7565",
    "ACK 2.04",
];

/// Captures three exchanges: GET, GET with a separate response, PUT. Returns the capture and the port of the server.
fn session(scene: &Scene) -> Result<(std::path::PathBuf, u16), String> {
    let (_served, _, capture) = both(scene)?;
    let port = capture.port;
    for words in [&["get", "v"][..], &["get", "slow"], &["put", "v", "a new value"]] {
        let [method, path, value @ ..] = words else { continue };
        ask(scene, &[&[*method, &uri(port, path), "--oscore", "client"], value].concat(), None)?;
    }
    Ok((capture.finish(scene)?, port))
}

/// Returns the value with this name from the file of the context.
fn value(scene: &Scene, name: &str) -> Result<String, String> {
    let file = scene.directory().join("client/context.toml");
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
    line.map(|value| value.trim().trim_matches('"').to_owned()).ok_or_else(|| format!("the context has no {name}"))
}

/// Decodes a capture with tshark. Returns the decrypted messages, each as `TYPE CODE PATH PAYLOAD`, and the errors that
/// tshark reports.
fn decode(
    scene: &Scene,
    file: &std::path::Path,
    port: u16,
    secret: &str,
) -> Result<(Vec<String>, Vec<String>), String> {
    let [sender, recipient, salt] = ["sender_id", "recipient_id", "master_salt"].map(|name| value(scene, name));
    let (sender, recipient, salt) = (sender?, recipient?, salt?);
    let context = format!("\"{sender}\",\"{recipient}\",\"{secret}\",\"{salt}\",\"\",\"AES-CCM-16-64-128 (CCM*)\"");
    let mut command = Command::new(tshark::PROGRAM);
    command.arg("-r").arg(file).args(["-o", &format!("uat:oscore_contexts:{context}")]);
    command.args(["-d", &format!("udp.port=={port},coap"), "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", tshark::PROGRAM))?;
    if !output.status.success() {
        return Err(format!("it failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let (mut opened, mut objections) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut fields = line.split('\t');
        let [kind, code, path, text, data, malformed, expert] = FIELDS.map(|_| fields.next().unwrap_or_default());
        objections.extend([malformed, expert].into_iter().filter(|text| !text.is_empty()).map(str::to_owned));
        let Ok(code) = code.parse::<u8>() else { continue };
        let kind = ["CON", "NON", "ACK", "RST"].get(kind.parse::<usize>().unwrap_or(9)).copied().unwrap_or("?");
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        // The first value is the encrypted payload of the outer message, the second the payload inside. If the payload
        // has a text format, tshark shows it as the second value of the field `text`.
        let inside = data.split(',').nth(1).map(str::to_owned);
        let payload =
            inside.unwrap_or_else(|| tegmen_host::hex::to_hex(text.split(',').nth(1).unwrap_or_default().as_bytes()));
        let words = [kind.to_owned(), format!("{}.{:02}", code >> 5, code & 31), path, payload];
        opened.push(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
    }
    Ok((opened, objections))
}

const FIELDS: [&str; 7] =
    ["coap.type", "oscore.code", "oscore.opt.uri_path", "text", "data.data", "_ws.malformed", "_ws.expert.message"];
