//! Blink, the server: counts PUTs to /blink and answers with the counter, behind DTLS with a pre-shared key.
//!
//! `cargo run -p tegmen-host --example blink_server`, then the example `blink_client` in another terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tegmen::coap::handler::{Authorized, Response};
use tegmen::coap::link::{self, Link};
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Application, Exchange, Listen, Server, ServerConfig};

/// The application: one clone runs in each shard, so what they share is behind an `Arc`.
#[derive(Clone, Default)]
struct Blink {
    counter: Arc<AtomicU8>,
}

impl Application for Blink {
    fn handle(
        &mut self,
        request: &Authorized<'_>,
        response: &mut Response<'_, '_>,
        _: &Exchange<'_>,
    ) -> Result<(), Code> {
        let message = request.message();
        if message.path_is(link::WELL_KNOWN_CORE) {
            let blink = Link { path: "blink", resource_type: "blink", content_format: None, observable: false };
            return link::respond(request, response, [blink].into_iter());
        }
        if !message.path_is("blink") {
            return Err(Code::NOT_FOUND);
        }
        if message.code() != Code::PUT || message.option(OptionNumber::CONTENT_FORMAT).is_some() {
            return Err(Code::METHOD_NOT_ALLOWED);
        }
        let count = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        println!("{count:3}  {:03b}", count & 7);
        response.set_code(Code::CHANGED);
        response.payload(&[count])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real server reads a file: Credentials::from_file("credentials.toml"), made by `tegmen keys new`.
    let credentials = Credentials::single("Client_identity", b"0123456789abcdef");
    let listen = vec![Listen { address: "127.0.0.1:5684".parse()?, secure: true }];
    let config = ServerConfig { listen, ..ServerConfig::default() };
    let server = Server::start(&config, &credentials, Blink::default(), Arc::new(|event| println!("{event:?}")))?;
    println!("listening at {}; Enter ends it", server.addresses()[0].address);
    std::io::stdin().read_line(&mut String::new())?;
    server.stop();
    Ok(())
}
