//! Blink, the client: sends a PUT once a second, and shows the low three bits of the counter in the response.
//!
//! `cargo run -p tegmen-host --example blink_client`, with the example `blink_server` in another terminal.

use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, Request, Session};
use tegmen_host::uri::Uri;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = Uri::parse("coaps://127.0.0.1/blink")?;
    let client = Session::connect(&uri, ClientConfig::psk("Client_identity", b"0123456789abcdef")).await;
    let client = client.map_err(|error| format!("{error} Start the example blink_server in another terminal"))?;
    let blink = Request::to(Code::PUT, &uri).payload(b"1");
    loop {
        let reply = blink.over(&client).await?;
        let counter = reply.payload.first().copied().unwrap_or(0);
        println!("{} {counter:3}  {:03b}", reply.code, counter & 7);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
