//! Resource directories (RFC 9176): endpoints of peers register at Tegmen's directory, and an endpoint of Tegmen
//! registers at aiocoap's directory.

use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port, holds};
use crate::libcoap::{self, Build};
use crate::ours::{Psk, Served, ask};
use crate::peers::Built;
use crate::plain::is;
use crate::process::Process;
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) fn cells(aiocoap: &Arc<Built>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |role, scenario: &str, play: fn(&Scene, &Built) -> Check| {
        let program = Arc::clone(aiocoap);
        cells.push(Cell::new("aiocoap", "0.4.17", role, scenario, move |scene| {
            program.ready()?;
            play(&scene.with_new_deadline(), &program)
        }));
    };
    add(Role::Client, "resource directory: registration and removal", registers);
    add(Role::Client, "resource directory: simple registration", registers_simply);
    add(Role::Server, "resource directory: registration", directory_of_peer);
    if let Some(version) = libcoap::version() {
        let client = "resource directory: registration, renewal and removal";
        cells.push(Cell::new(&Build::NoTls.peer(), &version, Role::Client, client, libcoap_registers));
    }
    cells
}

/// Starts a Tegmen server that is a resource directory.
fn serve(scene: &Scene) -> Result<(Served, String), String> {
    let served = Served::start_with(scene, &Psk::usual(), &["--directory"])?;
    let uri = format!("coap://127.0.0.1:{}", served.port + 1);
    Ok((served, uri))
}

/// Starts an endpoint of the peer, which registers at the directory. Returns the process and the address of the
/// endpoint.
fn endpoint(scene: &Scene, peer: &Built, how: &str, uri: &str) -> Result<(Process, SocketAddr), String> {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = peer.command()?;
    command.args([how, &address.ip().to_string(), &address.port().to_string(), uri, "node"]);
    Ok((scene.start_command(command)?, address))
}

fn registers(scene: &Scene, peer: &Built) -> Check {
    let (_served, uri) = serve(scene)?;
    let (mut process, address) = endpoint(scene, peer, "register", &uri)?;
    process.await_output("registered\n", 0)?;
    let found = ask(scene, &["get", &format!("{uri}/rd-lookup/res?ep=node&rt=tag:example.org,2026:value")], None)?;
    holds(&found.payload, &[&format!("<coap://{address}/v>"), "rt=\"tag:example.org,2026:value\""])?;
    let found = ask(scene, &["get", &format!("{uri}/rd-lookup/ep?ep=node")], None)?;
    holds(&found.payload, &["</rd/", "ep=\"node\"", &format!("base=\"coap://{address}\"")])?;
    process.write(b"\n")?;
    process.await_output("removed\n", 0)?;
    is(scene, &["get", &format!("{uri}/rd-lookup/res?ep=node")], "2.05", "")
}

fn registers_simply(scene: &Scene, peer: &Built) -> Check {
    let (served, uri) = serve(scene)?;
    let (process, address) = endpoint(scene, peer, "register-simply", &uri)?;
    process.await_output("2.04 \n", 0)?;
    // The directory asks the endpoint after its response.
    let lookup = format!("{uri}/rd-lookup/res?ep=node");
    let mut found = ask(scene, &["get", &lookup], None)?;
    for _ in 0..20 {
        if !found.payload.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        found = ask(scene, &["get", &lookup], None)?;
    }
    drop(served);
    holds(&found.payload, &[&format!("<coap://{address}/v>")])
}

fn directory_of_peer(scene: &Scene, peer: &Built) -> Check {
    let directory = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = peer.command()?;
    command.args(["directory", &directory.ip().to_string(), &directory.port().to_string()]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    let port = free_port()?;
    let base = format!("coap://127.0.0.1:{}", port + 1);
    let uri = format!("coap://{directory}");
    let options = ["--register", &uri, "--register-name", "tegmen", "--register-base", &base];
    let served = Served::start_beside(scene, &Psk::usual(), port, &options)?;
    served.process.await_output("registered at the resource directory, as /", 0)?;
    // The directory names its paths itself.
    let known = ask(scene, &["get", &format!("{uri}/.well-known/core?rt=core.rd-lookup-res")], None)?.payload;
    let path = known.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path.to_owned());
    let path = path.ok_or_else(|| format!("no lookup in {known}"))?;
    let found = ask(scene, &["get", &format!("{uri}{path}?ep=tegmen")], None)?;
    holds(&found.payload, &[&format!("<{base}/v>"), "obs"])
}

fn libcoap_registers(scene: &Scene) -> Check {
    let (_served, uri) = serve(scene)?;
    let client = Build::NoTls.client();
    let links = "</temp>;rt=\"temperature\";ct=0";
    let run = |words: &[&str]| -> Result<String, String> {
        let mut process = scene.start(&client, words)?;
        process.await_end()?;
        Ok(process.out.text() + &process.err.text())
    };
    let port = free_port()?.to_string();
    run(&["-p", &port, "-m", "post", "-t", "40", "-e", links, &format!("{uri}/rd?ep=libcoap&lt=600")])?;
    let lookup = format!("{uri}/rd-lookup/ep?ep=libcoap");
    let found = ask(scene, &["get", &lookup], None)?;
    holds(&found.payload, &["ep=\"libcoap\"", &format!("base=\"coap://127.0.0.1:{port}\"")])?;
    let path = found.payload.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
    is(
        scene,
        &["get", &format!("{uri}/rd-lookup/res?rt=temperature")],
        "2.05",
        &format!("<coap://127.0.0.1:{port}/temp>;rt=\"temperature\";ct=0"),
    )?;
    let printed = run(&["-p", &port, "-m", "post", &format!("{uri}{path}?lt=60&et=meter")])?;
    if !printed.trim().is_empty() {
        return Err(format!("the renewal printed {printed:?}").into());
    }
    holds(&ask(scene, &["get", &lookup], None)?.payload, &["et=\"meter\""])?;
    run(&["-p", &port, "-m", "delete", &format!("{uri}{path}")])?;
    is(scene, &["get", &lookup], "2.05", "")
}
