//! A server whose router has handlers for GET and PUT, and a client that makes requests to it. Both run in this
//! process, and have the same pre-shared key. DTLS protects each request.
//!
//! `cargo run -p tegmen-host --example client_and_server`

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

const IDENTITY: &str = "sensor-17";
const KEY: &[u8] = b"0123456789abcdef";

/// Returns a router with the resource `/target`: GET reads the temperature that a heater has to reach, and PUT changes
/// this temperature.
fn heater() -> Router {
    let target = Arc::new(Mutex::new(b"21.5".to_vec()));
    let read = Arc::clone(&target);
    let router = Router::new()
        .get("/target", move |_, response| response.payload(&read.lock().unwrap_or_else(PoisonError::into_inner)));
    router.put("/target", move |request, response| {
        if std::str::from_utf8(request.payload()).map_or(true, |text| text.parse::<f32>().is_err()) {
            // The client receives this code, and the payload is unchanged.
            return Err(Code::BAD_REQUEST);
        }
        *target.lock().unwrap_or_else(PoisonError::into_inner) = request.payload().to_vec();
        response.set_code(Code::CHANGED);
        Ok(())
    })
}

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
    // Port 0 takes any free port.
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(Credentials::single(IDENTITY, KEY))
        .on_event(|event| println!("server: {event}"))
        .serve(heater())?;

    let session =
        Session::connect_to(server.addresses()[0].address, Scheme::Coaps, ClientConfig::psk(IDENTITY, KEY)).await?;
    check("GET /target", &session.get("/target").await?, Code::CONTENT, "21.5")?;
    check("PUT /target 19", &session.put("/target", b"19").await?, Code::CHANGED, "")?;
    check("GET /target", &session.get("/target").await?, Code::CONTENT, "19")?;
    check("PUT /target warm", &session.put("/target", b"warm").await?, Code::BAD_REQUEST, "")?;
    check("DELETE /target", &session.delete("/target").await?, Code::METHOD_NOT_ALLOWED, "")?;
    check("GET /other", &session.get("/other").await?, Code::NOT_FOUND, "")?;
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
