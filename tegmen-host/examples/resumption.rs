//! Resumption: a client resumes its session with a ticket (RFC 5077), without a key exchange. The server restarts after
//! the first session. The server stores no session. It stores only the keys that protect its tickets.
//!
//! `cargo run -p tegmen-host --example resumption`

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::resumption::ResumptionConfig;
use tegmen_host::server::{Kind, Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

fn serve(dir: &Path, address: &str) -> Result<Server, Box<dyn Error>> {
    // Without a file the keys are in memory, and a restart ends the tickets.
    let resumption = ResumptionConfig { keys: Some(dir.join("ticket-keys")), ..ResumptionConfig::default() };
    let config = ServerConfig::default().with(|config| config.resumption = Some(resumption));
    let builder = Server::with(config).listen(address).credentials(Credentials::single("sensor-17", KEY));
    let router = Router::new().get("/temp", |_, response| response.payload(b"21.5"));
    Ok(builder.on_event(|event| println!("server: {event}")).serve(router)?)
}

/// Opens a session, reads the value, and ends the session. Returns true if the session was resumed.
async fn visit(server: &Server, dir: &Path) -> Result<bool, Box<dyn Error>> {
    // The client keeps what it needs to resume in this directory. It is secret.
    let config = ClientConfig::psk("sensor-17", KEY).with(|config| config.state.resume = Some(dir.join("client")));
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await?;
    let response = session.get("/temp").await?;
    let begin = if session.is_resumed() { "resumed with a ticket" } else { "full handshake" };
    println!("{begin}: {} {}", response.code, String::from_utf8_lossy(&response.payload));
    if response.payload != b"21.5" {
        return Err("the client did not receive the value".into());
    }
    session.close();
    Ok(session.is_resumed())
}

async fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let server = serve(dir, "coaps://127.0.0.1:0")?;
    let address = server.addresses()[0].to_string();
    let first = visit(&server, dir).await?;
    let second = visit(&server, dir).await?;
    server.stop();

    println!("The server restarts.");
    let server = serve(dir, &address)?;
    let third = visit(&server, dir).await?;
    if (first, second, third) != (false, true, true) {
        return Err(format!("resumed: {first}, {second}, {third}; expected false, true, true").into());
    }
    let totals = server.stop();
    if totals.established[Kind::Resumed as usize] != 1 {
        return Err("the server did not count the resumed session".into());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = std::env::temp_dir().join(format!("tegmen-example-resumption-{}", std::process::id()));
    let result = run(&dir).await;
    let _ = std::fs::remove_dir_all(&dir);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
