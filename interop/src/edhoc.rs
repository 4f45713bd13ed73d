//! EDHOC (RFC 9528) between Tegmen and two peers. The first peer is aiocoap, which uses the same EDHOC library as
//! Tegmen. The second peer is an independent implementation in Python, which was written from the RFCs and uses no
//! EDHOC library.

use crate::axiom::CRYPTOGRAPHY;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port, holds};
use crate::peers::{Built, Places};
use crate::plain::is;
use crate::process::Process;
use std::net::SocketAddr;
use std::sync::Arc;

/// The first text is the form in which the initiator and the responder send their credentials: by the key's id, or by
/// value. The second text is the kind of message that carries message_3: combined with the first request, or separate.
type Form = (&'static str, &'static str);

const FORMS: [Form; 4] =
    [("by-key-id", "combined"), ("by-key-id", "separate"), ("by-value", "combined"), ("by-value", "separate")];

pub(crate) fn all(places: &Places, aiocoap: &Arc<Built>) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let reader = places.python_peer("edhoc_reader.py", "cryptography==50.0.2");
    let mut cells = Vec::new();
    for form in FORMS {
        let mut add = |(name, version), program: &Arc<Built>, role, play: fn(&Scene, &Built, Form) -> Check| {
            let program = Arc::clone(program);
            let (style, how) = form;
            let scenario = format!("EDHOC: credentials {style}, message_3 {how}");
            cells.push(Cell::new(name, version, role, &scenario, move |scene| {
                program.ready()?;
                let scene = scene.with_new_deadline();
                keys(&scene, style)?;
                play(&scene, &program, form)
            }));
        };
        add(("aiocoap", "0.4.17"), aiocoap, Role::Client, aiocoap_asks);
        add(("aiocoap", "0.4.17"), aiocoap, Role::Server, aiocoap_answers);
        add(("cryptography", CRYPTOGRAPHY), &reader, Role::Client, reader_asks);
        add(("cryptography", CRYPTOGRAPHY), &reader, Role::Server, reader_answers);
    }
    (cells, vec![reader])
}

const METER: &str = "meter.edhoc";
const GATEWAY: &str = "gateway.edhoc";

/// Creates the keys of the initiator and of the responder, and the list of clients for Tegmen's server.
fn keys(scene: &Scene, style: &str) -> Check {
    for (file, name) in [(METER, "meter"), (GATEWAY, "gateway")] {
        let form: &[&str] = if style == "by-value" { &["--by-value"] } else { &[] };
        let mut process = scene.tegmen(&[&["edhoc", "new", file, "--name", name], form].concat())?;
        if !process.await_end()?.success() {
            return Err(process.err.text().trim().into());
        }
    }
    let credential = credential(scene, METER)?;
    let client = format!("[[peer]]\nname = \"meter\"\ncredential = \"{credential}\"\nallow = [\"GET /v\"]\n");
    scene.file("clients.toml", client)?;
    Ok(())
}

/// Returns the credential that `tegmen edhoc show` prints for the key in `file`.
fn credential(scene: &Scene, file: &str) -> Result<String, String> {
    let mut process = scene.tegmen(&["edhoc", "show", file])?;
    process.await_end()?;
    let shown = process.out.text();
    let digits = shown.split('"').nth(1).ok_or_else(|| format!("no credential in {shown}"))?;
    Ok(digits.to_owned())
}

/// Starts Tegmen's server. Returns its process and its port.
fn serve(scene: &Scene) -> Result<(Process, String), String> {
    let port = free_port()?.to_string();
    let process = scene.tegmen(&[
        "serve",
        "--listen",
        "127.0.0.1",
        "--plain-port",
        &port,
        "--no-secure",
        "--value",
        "/v=hello",
        "--value",
        "/other=secret",
        "--edhoc",
        GATEWAY,
        "--edhoc-clients",
        "clients.toml",
    ])?;
    process.await_output("EDHOC makes OSCORE contexts", 0)?;
    Ok((process, port))
}

/// Runs a client of the peer. Returns its output.
fn run(scene: &Scene, program: &Built, words: &[&str]) -> Result<String, String> {
    let mut command = program.command()?;
    command.args(words);
    let mut process = scene.start_command(command)?;
    match process.await_end()?.success() {
        true => Ok(process.out.text()),
        false => Err(format!("the client fails: {}", process.err.text().trim())),
    }
}

fn aiocoap_asks(scene: &Scene, program: &Built, (style, how): Form) -> Check {
    let (_server, port) = serve(scene)?;
    let server = credential(scene, GATEWAY)?;
    let ask = |path: &str| {
        let uri = format!("coap://127.0.0.1:{port}/{path}");
        run(scene, program, &["edhoc-client", METER, &server, style, how, "get", &uri])
    };
    holds(&ask("v")?, &["2.05 hello"])?;
    // Its rights are those of the client whose key it has.
    holds(&ask("other")?, &["4.03"])
}

fn aiocoap_answers(scene: &Scene, program: &Built, (style, how): Form) -> Check {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let client = credential(scene, METER)?;
    let mut command = program.command()?;
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["edhoc-server", GATEWAY, &client, style, &host, &port]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    we_ask(scene, address, how, "hello")
}

/// Sends a GET for `/v` with Tegmen's client.
fn we_ask(scene: &Scene, address: SocketAddr, how: &str, expected: &str) -> Check {
    let (server, uri) = (credential(scene, GATEWAY)?, format!("coap://{address}/v"));
    let words = ["get", &uri, "--edhoc", METER, "--edhoc-server", &server];
    let separate: &[&str] = if how == "separate" { &["--edhoc-separate"] } else { &[] };
    is(scene, &[&words[..], separate].concat(), "2.05", expected)
}

fn reader_asks(scene: &Scene, program: &Built, (_, how): Form) -> Check {
    let (_server, port) = serve(scene)?;
    let server = credential(scene, GATEWAY)?;
    holds(&run(scene, program, &["initiator", METER, &server, "127.0.0.1", &port, "v", how])?, &["hello"])
}

fn reader_answers(scene: &Scene, program: &Built, (_, how): Form) -> Check {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let client = credential(scene, METER)?;
    let mut command = program.command()?;
    command.args(["responder", GATEWAY, &client, "127.0.0.1", &address.port().to_string(), "second reading"]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    we_ask(scene, address, how, "second reading")
}
