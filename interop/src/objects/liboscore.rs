//! libOSCORE, a library for constrained systems. libOSCORE protects the messages, and the program `peers/liboscore`
//! sends and receives them.

use super::{CONTEXTS, THEIRS, ends, served, wire};
use crate::capture::Capture;
use crate::cell::{Cell, Check, Role, Scene, Trouble};
use crate::peers::{self, Built, LIBCLANG, Places};
use std::sync::Arc;
use tegmen::coap::MessageRef;

const PEER: &str = "libOSCORE";
const VERSION: &str = "0.2.7";

pub(super) fn all(places: &Places) -> (Vec<Cell>, Arc<Built>) {
    let needs: &[_] = &[("cc", "gcc libc6-dev"), (LIBCLANG, "libclang-dev")];
    let program = places.cargo_peer("liboscore", "tegmen-interop-liboscore", needs);
    let mut cells = vec![cell(&program, "GET, PUT", |scene, program| methods(scene, program, &[]))];
    cells.extend(CONTEXTS.map(|(name, context)| {
        cell(&program, &format!("GET, PUT with {name}"), |scene, program| methods(scene, program, context))
    }));
    let is_version = |_: &Scene, program: &Built| peers::is_version(program, VERSION);
    cells.push(cell(&program, "is the version of the table", is_version));
    (cells, program)
}

fn cell(program: &Arc<Built>, scenario: &str, play: impl Fn(&Scene, &Built) -> Check + Send + Sync + 'static) -> Cell {
    let program = program.clone();
    Cell::new(PEER, VERSION, Role::Client, &format!("OSCORE: {scenario}"), move |scene| {
        program.ready()?;
        play(&scene.with_new_deadline(), &program)
    })
}

fn methods(scene: &Scene, program: &Built, context: &[&str]) -> Check {
    ends(scene, "libcoap", context)?;
    let (_served, _, capture) = served(scene)?;
    let mut command = program.command()?;
    let address = format!("127.0.0.1:{}", capture.port);
    command.args(["oscore-client", THEIRS, &address, "v", "get", "put=a new value", "get"]);
    let mut client = scene.start_command(command)?;
    if !client.await_end()?.success() {
        return Err(lacking(client.err.text().trim(), context, &capture));
    }
    let printed = client.out.text();
    match printed.as_str() {
        "2.05 hello\n2.04 \n2.05 a new value\n" => wire::protected(&capture),
        _ => Err(format!("the client printed {printed:?}").into()),
    }
}

/// Returns the reason why libOSCORE's client failed. `told` is the error that the client printed. Reports a missing
/// feature in two cases: libOSCORE does not have the AEAD algorithm of `context`, or it uses a different algorithm
/// under the number of this algorithm. In all other cases the reason is `told`.
fn lacking(told: &str, context: &[&str], capture: &Capture) -> Trouble {
    if told.contains("does not have this AEAD") {
        return Trouble::Lacks(format!("it reports: {}", told));
    }
    let datagrams = capture.datagrams();
    let request = datagrams.first().and_then(|request| MessageRef::parse(&request.bytes).ok());
    // The plaintext of GET /v is the code and an option of two bytes. The rest of the payload is the tag.
    let tag_len = request.and_then(|request| request.payload().len().checked_sub(3));
    match tag_len {
        Some(len @ 8) if context.contains(&"AES-CCM-16-128-128") => {
            Trouble::Lacks(format!("its tags have {len} bytes with this algorithm, not 16"))
        }
        _ => format!("the client reports: {}", told).into(),
    }
}
