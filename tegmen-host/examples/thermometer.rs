//! A thermometer that can be observed, and a client that follows it: `cargo run --example thermometer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tegmen::coap::handler::{Authorized, Response};
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{self, Client, ClientConfig, ClientKey};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Application, Exchange, Listen, Server, ServerConfig};

/// Tenths of a degree.
#[derive(Clone)]
struct Thermometer(Arc<AtomicU32>);

impl Application for Thermometer {
    fn handle(
        &mut self,
        request: &Authorized<'_>,
        response: &mut Response<'_, '_>,
        _: &Exchange<'_>,
    ) -> Result<(), Code> {
        match (request.message().path_is("temp"), request.message().code()) {
            (true, Code::GET) => {
                // Who asks for it becomes an observer; each notification is the answer to its request, made anew.
                response.observable();
                response.uint(OptionNumber::CONTENT_FORMAT, 0)?;
                let tenths = self.0.load(Ordering::Relaxed);
                response.payload(format!("{}.{}", tenths / 10, tenths % 10).as_bytes())
            }
            (true, _) => Err(Code::METHOD_NOT_ALLOWED),
            (false, _) => Err(Code::NOT_FOUND),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tenths = Arc::new(AtomicU32::new(215));
    let credentials = Credentials::single("reader", b"0123456789abcdef");
    let listen = vec![Listen { address: "127.0.0.1:0".parse()?, secure: true }];
    let config = ServerConfig { listen, ..ServerConfig::default() };
    let server = Server::start(&config, &credentials, Thermometer(tenths.clone()), Arc::new(|_| {}))?;

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
        let key = ClientKey { identity: "reader".into(), key: b"0123456789abcdef".to_vec().into() };
        let mut client =
            Client::connect_to(address, true, ClientConfig { key: Some(key), ..Default::default() }).await?;
        let path = ["temp".to_owned()];
        let request = client::Request {
            method: Code::GET,
            path: &path,
            query: &[],
            content_format: None,
            accept: None,
            payload: &[],
            options: &[],
        };
        let mut observation = client.observe(&request).await?;
        for _ in 0..5 {
            let Some(reply) = observation.next().await? else { break };
            println!("{} degrees", String::from_utf8_lossy(&reply.payload));
        }
        observation.cancel().await?;
        client.close().await;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    server.stop();
    Ok(())
}
