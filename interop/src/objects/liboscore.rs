//! libOSCORE, which constrained systems use: it protects messages, and `peers/liboscore` carries them.

use super::{THEIRS, ends, served, wire};
use crate::cell::{Cell, Check, Role, Scene};
use crate::peers::{self, Built, LIBCLANG, Places};
use std::sync::Arc;

const PEER: &str = "libOSCORE";
const VERSION: &str = "0.2.7";

pub(super) fn all(places: &Places) -> (Vec<Cell>, Arc<Built>) {
    let needs: &[_] = &[("cc", "gcc libc6-dev"), (LIBCLANG, "libclang-dev")];
    let program = places.cargo_peer("liboscore", "tegmen-interop-liboscore", needs);
    let cell = |scenario: &str, play: fn(&Scene, &Built) -> Check| {
        let program = program.clone();
        Cell::new(PEER, VERSION, Role::Client, &format!("OSCORE: {scenario}"), move |scene| {
            program.ready()?;
            play(&scene.anew(), &program)
        })
    };
    let cells = vec![
        cell("GET, PUT", methods),
        cell("is the version of the table", |_, program| peers::is_version(program, VERSION)),
    ];
    (cells, program)
}

fn methods(scene: &Scene, program: &Built) -> Check {
    ends(scene, "libcoap")?;
    let (_served, _, capture) = served(scene)?;
    let mut command = program.command()?;
    let address = format!("127.0.0.1:{}", capture.port);
    command.args(["oscore-client", THEIRS, &address, "v", "get", "put=a new value", "get"]);
    let mut client = scene.start_command(command)?;
    if !client.await_end()?.success() {
        return Err(format!("the client says: {}", client.err.text().trim()).into());
    }
    let printed = client.out.text();
    match printed.as_str() {
        "2.05 hello\n2.04 \n2.05 a new value\n" => wire::protected(&capture),
        _ => Err(format!("the client printed {printed:?}").into()),
    }
}
