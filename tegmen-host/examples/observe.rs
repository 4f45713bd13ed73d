//! Observe (RFC 7641): a thermometer whose clients receive each new value, and a client that follows it.
//!
//! `cargo run -p tegmen-host --example observe`

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tegmen::coap::OptionNumber;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

/// The readings of the sensor, in tenths of a degree.
const READINGS: [u32; 5] = [215, 218, 221, 224, 227];

async fn run() -> Result<(), Box<dyn Error>> {
    let tenths = Arc::new(AtomicU32::new(READINGS[0]));
    let read = Arc::clone(&tenths);
    let router = Router::new().get("/temp", move |_, response| {
        // A client that asks for it becomes an observer. The server calls this handler again for each notification.
        response.observable();
        response.uint(OptionNumber::CONTENT_FORMAT, 0)?;
        let tenths = read.load(Ordering::Relaxed);
        response.payload(format!("{}.{}", tenths / 10, tenths % 10).as_bytes())
    });
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(Credentials::single("reader", b"0123456789abcdef"))
        .on_event(|event| println!("server: {event}"))
        .serve(router)?;

    let config = ClientConfig::psk("reader", b"0123456789abcdef");
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await?;
    let mut observation = session.observe("/temp").await?;
    let notifier = server.notifier();
    for (number, expected) in READINGS.into_iter().enumerate() {
        if number > 0 {
            // The sensor measures, and the server notifies all observers of the path.
            tenths.store(expected, Ordering::Relaxed);
            notifier.changed("temp");
        }
        let wait = tokio::time::timeout(Duration::from_secs(10), observation.next());
        let response = wait.await??.ok_or("the server ended the observation")?;
        let received = String::from_utf8_lossy(&response.payload);
        println!("{received} degrees");
        if received != format!("{}.{}", expected / 10, expected % 10) {
            return Err(format!("expected {expected} tenths of a degree").into());
        }
    }
    observation.cancel().await?;
    if notifier.is_observed("temp") {
        return Err("the server still has an observer".into());
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
