//! Blink, the server: counts the PUT requests to /blink and answers with the counter. DTLS with a pre-shared key
//! protects the requests.
//!
//! `cargo run -p tegmen-host --example blink_server`, then the example `blink_client` in another terminal.

use std::sync::atomic::{AtomicU8, Ordering};
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real server reads a file: Credentials::from_file("credentials.toml"), made by `tegmen keys new`.
    let credentials = Credentials::single("Client_identity", b"0123456789abcdef");
    // All shards call the same handlers.
    let counter = AtomicU8::new(0);
    let router = Router::new().put("/blink", move |request, response| {
        if request.message().option(OptionNumber::CONTENT_FORMAT).is_some() {
            return Err(Code::METHOD_NOT_ALLOWED);
        }
        let count = counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        println!("{count:3}  {:03b}", count & 7);
        response.set_code(Code::CHANGED);
        response.payload(&[count])
    });
    let server = Server::builder()
        .listen("coaps://127.0.0.1:5684")
        .credentials(credentials)
        .on_event(|event| println!("{event}"))
        .serve(router)?;
    println!("listening at {}; Enter ends it", server.addresses()[0]);
    std::io::stdin().read_line(&mut String::new())?;
    server.stop();
    Ok(())
}
