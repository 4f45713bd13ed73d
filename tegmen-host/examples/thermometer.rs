//! A thermometer that can be observed, and a client that follows it: `cargo run --example thermometer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tegmen::coap::OptionNumber;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Tenths of a degree.
    let tenths = Arc::new(AtomicU32::new(215));
    let read = tenths.clone();
    let router = Router::new().get("/temp", move |_, response| {
        // A client that asks for it becomes an observer; each notification is a new response to its request.
        response.observable();
        response.uint(OptionNumber::CONTENT_FORMAT, 0)?;
        let tenths = read.load(Ordering::Relaxed);
        response.payload(format!("{}.{}", tenths / 10, tenths % 10).as_bytes())
    });
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(Credentials::single("reader", b"0123456789abcdef"))
        .serve(router)?;

    // The sensor: it measures, and says that there is something new.
    let notifier = server.notifier();
    std::thread::spawn(move || {
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300));
            tenths.fetch_add(3, Ordering::Relaxed);
            notifier.changed("temp");
        }
    });

    let address = server.addresses()[0].address;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = ClientConfig::psk("reader", b"0123456789abcdef");
        let session = Session::connect_to(address, Scheme::Coaps, config).await?;
        let mut observation = session.observe("/temp").await?;
        for _ in 0..5 {
            let Some(reply) = observation.next().await? else { break };
            println!("{} degrees", String::from_utf8_lossy(&reply.payload));
        }
        observation.cancel().await?;
        session.close();
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    server.stop();
    Ok(())
}
