//! OSCORE (RFC 8613) with a context that both ends have. Each message is protected by itself, without a session. The
//! example counts the datagrams that contain the value unencrypted. There are none.
//!
//! `cargo run -p tegmen-host --example oscore`
//!
//! Each end stores its context in a directory, with the sequence numbers that it has used. `tegmen oscore new` makes
//! such directories.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tegmen::coap::Code;
use tegmen::crypto::Crypto as _;
use tegmen::oscore::Aead;
use tegmen_host::client::{ClientConfig, Session, Tap, Tapped};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

const VALUE: &[u8] = b"21.5 degrees";

/// Writes the context of the client and the context of the server. The Sender ID of each context is the Recipient ID of
/// the other.
fn create_contexts(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut secret = [0; 16];
    HostCrypto::from_os()?.random(&mut secret);
    let client = ContextFile {
        sender_id: vec![1],
        recipient_id: vec![2],
        master_secret: secret.to_vec().into(),
        master_salt: Vec::new(),
        id_context: None,
        aead: Aead::AesCcm16_64_128,
        created: contexts::now(),
        expires: None,
        allow: None,
        rederivation: false,
    };
    let mut server = client.mirrored();
    // The rights of the client at the server.
    server.allow = Some(vec!["GET /temp".to_owned()]);
    contexts::create(&dir.join("client"), &client)?;
    // The server knows the client by the name of this directory.
    contexts::create(&dir.join("sensor-17"), &server)?;
    Ok(())
}

async fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    create_contexts(dir)?;
    let credentials = Credentials::default();
    let known = Contexts::open(&[dir.join("sensor-17")], |name, allow| credentials.learn(name, allow))?;
    let server = Server::builder()
        .listen("coap://127.0.0.1:0")
        .credentials(credentials)
        .oscore(known)
        .on_event(|event| println!("server: {event}"))
        .serve(
            Router::new()
                .get("/temp", |_, response| response.payload(VALUE))
                .put("/temp", |_, response| response.payload(b"this handler is never called")),
        )?;

    let (datagrams, in_clear) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, found) = (Arc::clone(&datagrams), Arc::clone(&in_clear));
    let tap = Tap(Arc::new(move |tapped| {
        if let Tapped::Datagram { datagram, .. } = tapped {
            counted.fetch_add(1, Ordering::Relaxed);
            found.fetch_add(datagram.windows(VALUE.len()).filter(|part| *part == VALUE).count(), Ordering::Relaxed);
        }
    }));
    let config = ClientConfig::default().with(|config| {
        config.oscore = Some(dir.join("client"));
        config.log.tap = Some(tap);
    });
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coap, config).await?;
    let response = session.get("/temp").await?;
    println!("GET /temp: {} {}", response.code, String::from_utf8_lossy(&response.payload));
    if response.payload != VALUE {
        return Err("the client did not receive the value".into());
    }
    let refused = session.put("/temp", b"30").await?;
    println!("PUT /temp: {}, because the context allows GET alone", refused.code);
    if refused.code != Code::FORBIDDEN {
        return Err(format!("PUT /temp: expected {}", Code::FORBIDDEN).into());
    }
    let (datagrams, in_clear) = (datagrams.load(Ordering::Relaxed), in_clear.load(Ordering::Relaxed));
    println!("{datagrams} datagrams, {in_clear} of them with the value in clear");
    if datagrams < 4 || in_clear > 0 {
        return Err("OSCORE did not protect the value".into());
    }
    session.close();
    server.stop();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = std::env::temp_dir().join(format!("tegmen-example-oscore-{}", std::process::id()));
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
