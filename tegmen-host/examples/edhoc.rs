//! EDHOC (RFC 9528): a client and a server that know each other's public key agree on an OSCORE context, before the first request.
//! A client that the server does not know is refused.
//!
//! `cargo run -p tegmen-host --example edhoc`
//!
//! `tegmen edhoc new` writes key files of the same format.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::edhoc::{Credential, EdhocKeys, EdhocPeer, EdhocServer, Transfer, create_key, read_key};
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

/// Writes a private key to a file. Returns the path of the file, and the credential that belongs to the key. The other
/// end needs this credential. Messages name the credential by a short number, its kid.
fn create(dir: &Path, name: &str, kid: u8) -> Result<(PathBuf, Credential), Box<dyn Error>> {
    let file = dir.join(name);
    let credential = create_key(&mut HostCrypto::from_os()?, &file, name, &[kid], Transfer::ByReference)?;
    Ok((file, credential))
}

/// Connects with the private key in a file, and trusts only this server.
async fn connect(at: SocketAddr, key: &Path, server: Credential) -> Result<Session, Box<dyn Error>> {
    // `combined`: the last message of EDHOC is in the same datagram as the first request (RFC 9668).
    let keys = EdhocKeys { identity: read_key(key)?, trusted: vec![server], combined: true };
    let config = ClientConfig::default().with(|config| config.edhoc = Some(Arc::new(keys)));
    Ok(Session::connect_to(at, Scheme::Coap, config).await?)
}

async fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let (gateway_key, gateway) = create(dir, "gateway", 1)?;
    let (meter_key, meter) = create(dir, "meter", 2)?;
    let (unknown_key, _) = create(dir, "visitor", 3)?;

    // The server knows the meter, which may read one resource.
    let credentials = Credentials::default();
    let known = EdhocPeer { name: "meter".to_owned(), credential: meter, allow: Some(vec!["GET /tariff".to_owned()]) };
    let edhoc = EdhocServer::new(read_key(&gateway_key)?, vec![known], |name, allow| credentials.learn(name, allow))?;
    let server = Server::builder()
        .listen("coap://127.0.0.1:0")
        .credentials(credentials)
        .edhoc(edhoc.clone())
        .on_event(|event| println!("server: {event}"))
        .serve(
            Router::new()
                .get("/tariff", |_, response| response.payload(b"night"))
                .get("/accounts", |_, response| response.payload(b"this handler is never called")),
        )?;
    let at = server.addresses()[0].address;

    let session = connect(at, &meter_key, gateway).await?;
    let response = session.get("/tariff").await?;
    println!("meter, GET /tariff: {} {}", response.code, String::from_utf8_lossy(&response.payload));
    if response.payload != b"night" {
        return Err("the meter did not receive the tariff".into());
    }
    let response = session.get("/accounts").await?;
    println!("meter, GET /accounts: {}", response.code);
    if response.code != Code::FORBIDDEN {
        return Err(format!("GET /accounts: expected {}", Code::FORBIDDEN).into());
    }

    match connect(at, &unknown_key, gateway).await?.get("/tariff").await {
        Err(error @ ClientError::Edhoc { .. }) => println!("visitor: {error}"),
        other => return Err(format!("the server answered a client that it does not know: {other:?}").into()),
    }
    if edhoc.totals().agreed != 1 {
        return Err(format!("{} contexts agreed; expected 1", edhoc.totals().agreed).into());
    }
    server.stop();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = std::env::temp_dir().join(format!("tegmen-example-edhoc-{}", std::process::id()));
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
