//! A proxy between a client and a sensor. The proxy requests the value from the sensor over DTLS with its own key, and
//! stores the response. So the client gets the value three times, but the sensor receives only one request.
//!
//! `cargo run -p tegmen-host --example proxy`
//!
//! The first two requests name the sensor in the option Proxy-Uri (a forward proxy). The third request is for a path of
//! the proxy, and does not name the sensor (a reverse proxy).

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientKey, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// Prints a response, and fails if it is not the expected one.
fn check(request: &str, response: &Response, code: Code, payload: &str) -> Result<(), Box<dyn Error>> {
    let received = String::from_utf8_lossy(&response.payload);
    println!("{request}: {}", format!("{} {received}", response.code).trim_end());
    if response.code != code || received != payload {
        return Err(format!("{request}: expected {code} {payload}").into());
    }
    Ok(())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let sensor = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(Credentials::single("proxy", KEY))
        .on_event(|event| println!("sensor: {event}"))
        .serve(Router::new().get("/temp", move |_, response| {
            let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
            // The proxy answers with this response for a minute.
            response.uint(OptionNumber::MAX_AGE, 60)?;
            response.payload(format!("21.5, measurement {number}").as_bytes())
        }))?;
    let sensor_uri = format!("coaps://{}", sensor.addresses()[0].address);

    let reverse = format!("/kitchen={sensor_uri}").parse()?;
    let target = sensor_uri.parse()?;
    let proxy = Proxy::new(ProxyConfig::default().with(|config| {
        config.targets = vec![target];
        config.reverse = vec![reverse];
        config.client.trust.key = Some(ClientKey { identity: "proxy".to_owned(), key: KEY.to_vec().into() });
    }))?;
    // A proxy is an application of a server, like a router.
    let builder = Server::builder().listen("coap://127.0.0.1:0").allow_plain();
    let server = builder.on_event(|event| println!("proxy: {event}")).serve(proxy.clone())?;

    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coap, ClientConfig::default()).await?;
    let by_uri = [(OptionNumber::PROXY_URI, format!("{sensor_uri}/temp").into_bytes())];
    for _ in 0..2 {
        let response = session.request(Code::GET, "").options(&by_uri).await?;
        check("GET with Proxy-Uri", &response, Code::CONTENT, "21.5, measurement 1")?;
    }
    let response = session.get("/kitchen/temp").await?;
    check("GET /kitchen/temp", &response, Code::CONTENT, "21.5, measurement 1")?;
    let elsewhere = [(OptionNumber::PROXY_URI, b"coap://192.0.2.1/temp".to_vec())];
    let response = session.request(Code::GET, "").options(&elsewhere).await?;
    check("GET of another server", &response, Code::FORBIDDEN, "")?;

    let counts = proxy.counts();
    println!("{} responses stored, {} requests answered from them", counts.entries, counts.hits);
    if requests.load(Ordering::Relaxed) != 1 || counts.hits != 2 {
        return Err("the proxy did not answer from the stored response".into());
    }
    session.close();
    server.stop();
    sensor.stop();
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
