//! coapcore, the implementation of ACE in Ariel OS. It is the resource server. The tokens come from Tegmen's access
//! control server, and the client is Tegmen's.

use super::{Access, SHARED_KEY, TOKEN_KEY};
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::peers::{self, Built, LIBCLANG, Places};
use crate::process::Process;
use std::net::SocketAddr;
use std::sync::Arc;
use tegmen_host::hex::to_hex;

const PEER: &str = "coapcore";
const VERSION: &str = "0.1.1";

/// Returns one [`Cell`] (a row of the result table) for each scenario with coapcore, and the program that must be built
/// for these scenarios.
pub(super) fn all(places: &Places) -> (Vec<Cell>, Arc<Built>) {
    let needs: &[_] = &[("cc", "gcc libc6-dev"), (LIBCLANG, "libclang-dev")];
    let program = places.cargo_peer("coapcore", "tegmen-interop-coapcore", needs);
    let cell = |scenario: &str, play: fn(&Scene, &Built) -> Check| {
        let program = program.clone();
        Cell::new(PEER, VERSION, Role::Server, &format!("access control: {scenario}"), move |scene| {
            program.ready()?;
            play(&scene.with_new_deadline(), &program)
        })
    };
    let cells = vec![
        cell("a token of the OSCORE profile", has_the_rights_of_a_token),
        cell("a token that is posted again", takes_a_token_again),
        cell("a token for another resource server", refuses_a_token_for_another),
        cell("is the version of the table", |_, program| peers::is_version(program, VERSION)),
    ];
    (cells, program)
}

/// Tegmen's access control server, and the resource server (coapcore) at the address `address`.
struct Servers {
    access: Access,
    address: SocketAddr,
    _process: Process,
}

impl Servers {
    /// Starts Tegmen's access control server, and coapcore as the resource server. `key` is the key with which the
    /// resource server decrypts tokens.
    fn start(scene: &Scene, program: &Built, key: &[u8; 32]) -> Result<Self, String> {
        let access = Access::start(scene)?;
        let address = SocketAddr::new(LOOPBACK, free_port()?);
        let mut command = program.command()?;
        command.args(["resource-server", &address.to_string(), &to_hex(key)]);
        let process = scene.start_command(command)?;
        process.await_output(format!("listening {address}"), 0)?;
        Ok(Self { access, address, _process: process })
    }

    /// Requests a token with this right, and writes it to `hob.token`.
    fn request(&self, scene: &Scene, right: &str) -> Check {
        let (uri, key) = (format!("coaps://{}", self.access.address), to_hex(&SHARED_KEY));
        let words = ["token", "request", &uri, "-u", "display", "-k", &key, "--audience", "hob", "--allow", right];
        succeeds(scene, &[&words[..], &["--output", "hob.token"]].concat(), "")
    }

    /// Posts the token to the resource server. The new OSCORE context is stored in the directory `context`.
    fn post(&self, scene: &Scene, context: &str) -> Check {
        succeeds(scene, &["token", "post", "hob.token", &format!("coap://{}", self.address), "--context", context], "")
    }

    fn temp(&self) -> String {
        format!("coap://{}/temp", self.address)
    }
}

/// Runs a `tegmen` command, which must print this text.
fn succeeds(scene: &Scene, words: &[&str], printed: &str) -> Check {
    let mut process = scene.tegmen(words)?;
    let status = process.await_end()?;
    let out = process.out.text();
    if status.success() && out.contains(printed) { Ok(()) } else { Err(format!("{out}{}", process.err.text()).into()) }
}

/// Runs a `tegmen` command, which must fail with this message.
fn fails(scene: &Scene, words: &[&str], with: &str) -> Check {
    let mut process = scene.tegmen(words)?;
    let status = process.await_end()?;
    let all = process.out.text() + &process.err.text();
    if !status.success() && all.contains(with) { Ok(()) } else { Err(format!("{words:?}: {all}").into()) }
}

fn has_the_rights_of_a_token(scene: &Scene, program: &Built) -> Check {
    let servers = Servers::start(scene, program, &TOKEN_KEY)?;
    let temp = servers.temp();
    servers.request(scene, "read-write /temp")?;
    servers.post(scene, "both")?;
    succeeds(scene, &["get", "--oscore", "both", &temp], "21.5\n")?;
    succeeds(scene, &["put", "--oscore", "both", &temp, "22"], "")?;
    servers.request(scene, "GET /temp")?;
    servers.post(scene, "one")?;
    succeeds(scene, &["get", "--oscore", "one", &temp], "22\n")?;
    // The peer answers a method that the token does not allow with 4.01, where RFC 9200 has 4.05. It answers
    // unprotected requests with 4.01 too.
    fails(scene, &["put", "--oscore", "one", &temp, "23"], "4.01")?;
    fails(scene, &["get", &temp], "4.01")
}

fn takes_a_token_again(scene: &Scene, program: &Built) -> Check {
    let servers = Servers::start(scene, program, &TOKEN_KEY)?;
    servers.request(scene, "GET /temp")?;
    for context in ["one", "two"] {
        servers.post(scene, context)?;
        succeeds(scene, &["get", "--oscore", context, &servers.temp()], "21.5\n")?;
    }
    Ok(())
}

fn refuses_a_token_for_another(scene: &Scene, program: &Built) -> Check {
    let servers = Servers::start(scene, program, &[1; 32])?;
    servers.request(scene, "GET /temp")?;
    let uri = format!("coap://{}", servers.address);
    fails(scene, &["token", "post", "hob.token", &uri, "--context", "one"], "refuses the token (4.00)")
}
