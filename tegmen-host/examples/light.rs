//! A light whose handler does not depend on the protection. Only the settings of the server determine the protection.
//!
//! `cargo run -p tegmen-host --example light -- plain dtls oscore=server edhoc=light.edhoc,clients.toml member=hall`
//!
//! * `plain`: anybody, at coap://127.0.0.1:5683
//! * `dtls`: the identity `switch` with the key `0123456789abcdef`, at coaps://127.0.0.1:5684
//! * `oscore=DIR`: the directory of one of the two endpoints of a context, which `tegmen oscore new` made
//! * `edhoc=KEY,CLIENTS`: a key that `tegmen edhoc new` made, and the file of clients, as for `tegmen serve
//!   --edhoc-clients`
//! * `member=DIR`: a membership that `tegmen group join` made; the light answers the requests of this group, which
//!   Axiom protects

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tegmen::coap::Code;
use tegmen_host::contexts::Contexts;
use tegmen_host::credentials::Credentials;
use tegmen_host::edhoc::{EdhocServer, read_key, read_peers};
use tegmen_host::group::Membership;
use tegmen_host::server::{Router, Server, ServerBuilder};

const USAGE: &str = "name the protections: plain, dtls, oscore=DIR, edhoc=KEY,CLIENTS or member=DIR";

/// Returns a router with the resource of the light. GET reads the state of the light, and PUT changes the state.
fn light() -> Router {
    let state = std::sync::Arc::new(Mutex::new(b"off".to_vec()));
    let read = state.clone();
    let router = Router::new()
        .get("/light", move |_, response| response.payload(&read.lock().unwrap_or_else(PoisonError::into_inner)));
    router.put("/light", move |request, response| {
        *state.lock().unwrap_or_else(PoisonError::into_inner) = request.payload().to_vec();
        println!("the light is {}", String::from_utf8_lossy(request.payload()));
        response.set_code(Code::CHANGED);
        Ok(())
    })
}

/// Adds a protection to the settings.
fn protect(
    builder: ServerBuilder,
    credentials: &Credentials,
    protection: &str,
) -> Result<ServerBuilder, Box<dyn Error>> {
    let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
    Ok(match protection.split_once('=') {
        None if protection == "plain" => builder.listen("coap://127.0.0.1:5683").allow_plain(),
        None if protection == "dtls" => {
            credentials.set_single("switch", b"0123456789abcdef");
            builder.listen("coaps://127.0.0.1:5684")
        }
        Some(("oscore", dir)) => {
            builder.listen("coap://127.0.0.1:5693").oscore(Contexts::open(&[PathBuf::from(dir)], learn)?)
        }
        Some(("edhoc", files)) => {
            let (key, clients) = files.split_once(',').ok_or("edhoc=KEY,CLIENTS")?;
            let server = EdhocServer::new(read_key(key.as_ref())?, read_peers(clients.as_ref())?, learn)?;
            builder.listen("coap://127.0.0.1:5703").edhoc(server)
        }
        Some(("member", dir)) => builder.member_of(Membership::open(dir.as_ref())?),
        _ => return Err(format!("{protection}: {USAGE}").into()),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().len() < 2 {
        return Err(USAGE.into());
    }
    let credentials = Credentials::default();
    let begin = Server::builder().credentials(credentials.clone()).on_event(|event| println!("{event}"));
    let builder = std::env::args().skip(1).try_fold(begin, |builder, word| protect(builder, &credentials, &word))?;
    let server = builder.serve(light())?;
    println!("Enter ends it");
    std::io::stdin().read_line(&mut String::new())?;
    server.stop();
    Ok(())
}
