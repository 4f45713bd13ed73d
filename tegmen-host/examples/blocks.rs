//! Block-wise transfer (RFC 7959): a client sends a body of 100,000 bytes to a server and fetches it again, in blocks
//! of 1024 bytes, and shows the progress.
//!
//! `cargo run -p tegmen-host --example blocks`
//!
//! The handlers receive the whole body at once, and the client makes only one request for it.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, Progress, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

const LEN: usize = 100_000;

/// Prints every 25th block.
fn show(Progress { upload, done, total }: Progress, blocks: &AtomicUsize) {
    let number = blocks.fetch_add(1, Ordering::Relaxed) + 1;
    if number.is_multiple_of(25) {
        let total = total.map_or("an unknown number of".to_owned(), |total| total.to_string());
        println!("{}: {done} of {total} bytes", if upload { "PUT" } else { "GET" });
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let stored = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&stored);
    let router = Router::new()
        .put("/file", move |request, response| {
            *stored.lock().unwrap_or_else(PoisonError::into_inner) = request.payload().to_vec();
            response.set_code(Code::CHANGED);
            Ok(())
        })
        .get("/file", move |_, response| response.payload(&read.lock().unwrap_or_else(PoisonError::into_inner)));
    // The server refuses longer bodies with 4.13.
    let config = ServerConfig::default().with(|config| config.coap.max_body = LEN);
    let server = Server::with(config)
        .listen("coaps://127.0.0.1:0")
        .credentials(Credentials::single("writer", b"0123456789abcdef"))
        .serve(router)?;

    let config = ClientConfig::psk("writer", b"0123456789abcdef").with(|config| config.coap.block_size = 1024);
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await?;
    let body: Vec<u8> = (0..LEN).map(|at| (at / 251) as u8).collect();
    let (up, down) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let response = session.put("/file", &body).progress(&|progress| show(progress, &up)).await?;
    println!("PUT: {}", response.code);
    if response.code != Code::CHANGED {
        return Err(format!("PUT: expected {}", Code::CHANGED).into());
    }
    let response = session.get("/file").progress(&|progress| show(progress, &down)).await?;
    println!("GET: {}, {} bytes", response.code, response.payload.len());
    if response.payload != body {
        return Err("the client received another body than it sent".into());
    }
    let blocks = (up.load(Ordering::Relaxed), down.load(Ordering::Relaxed));
    println!("{} blocks up, {} blocks down", blocks.0, blocks.1);
    if blocks.0.min(blocks.1) < LEN / 1024 {
        return Err("the bodies did not go in blocks".into());
    }

    let response = session.put("/file", &[0; LEN + 1]).await?;
    println!("PUT of {} bytes: {}", LEN + 1, response.code);
    if response.code != Code::REQUEST_ENTITY_TOO_LARGE {
        return Err(format!("expected {}", Code::REQUEST_ENTITY_TOO_LARGE).into());
    }
    session.close();
    server.stop();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
