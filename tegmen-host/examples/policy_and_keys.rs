//! A server that uses a key store and its own policy instead of a file of credentials. The store finds the key of a
//! device when the device connects, and the policy decides on each request.
//!
//! `cargo run -p tegmen-host --example policy_and_keys`

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tegmen::coap::{Code, OptionNumber, Policy, Request};
use tegmen::identity::Protection;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::{Credentials, KeyStore, KeyTicket, StoredKey};
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;

/// The keys of devices by identity. In a real program this is a database.
struct Devices(Arc<HashMap<&'static str, &'static [u8]>>);

impl KeyStore for Devices {
    /// Finds the key of an identity. The server calls this function in a handshake, so the function must return at
    /// once. The answer may come later, from any thread.
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let (devices, identity) = (Arc::clone(&self.0), identity.to_owned());
        std::thread::spawn(move || {
            let key = devices.get(identity.as_str());
            println!("store: {identity} has {}", if key.is_some() { "a key" } else { "no key" });
            ticket.answer(key.map(|key| StoredKey {
                name: None,
                key: key.to_vec().into(),
                previous: None,
                allow: None,
            }));
        });
    }
}

/// The policy: each device may read everything, and may write below its own name, for example `/lamp/...` for the
/// device `lamp`. The server asks this policy instead of using the rights in credentials.
struct OwnFolder(Credentials);

impl Policy for OwnFolder {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        // The name of a sender without protection is never proved.
        if request.identity.protection == Protection::Plain {
            return Some(false);
        }
        let name = self.0.name_of(request.identity.principal);
        let folder = request.message.option(OptionNumber::URI_PATH);
        let is_own = name.is_some() && name.as_deref().map(str::as_bytes) == folder;
        Some(is_own || request.message.code() == Code::GET)
    }
}

/// Connects as a device, and PUTs a value to a path. Returns the code of the response.
async fn put(at: SocketAddr, identity: &str, key: &[u8], path: &str) -> Result<Code, Box<dyn Error>> {
    let session = Session::connect_to(at, Scheme::Coaps, ClientConfig::psk(identity, key)).await?;
    let code = session.put(path, b"on").await?.code;
    session.close();
    Ok(code)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let devices = HashMap::from([("lamp", &b"the secret of lamp"[..]), ("door", b"the secret of door")]);
    let credentials = Credentials::default();
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(credentials.clone())
        .key_store(Devices(Arc::new(devices)))
        .policy(OwnFolder(credentials))
        .on_event(|event| println!("server: {event}"))
        .serve(Router::new().put("/*", |_, response| {
            response.set_code(Code::CHANGED);
            Ok(())
        }))?;
    let at = server.addresses()[0].address;

    for (path, expected) in [("/lamp/state", Code::CHANGED), ("/door/state", Code::FORBIDDEN)] {
        let code = put(at, "lamp", b"the secret of lamp", path).await?;
        println!("lamp, PUT {path}: {code}");
        if code != expected {
            return Err(format!("expected {expected}").into());
        }
    }
    // A client cannot find out whether the identity or the key is wrong.
    for (identity, key) in [("lamp", &b"a wrong key"[..]), ("window", b"the secret of window")] {
        match put(at, identity, key, "/lamp/state").await {
            Ok(code) => return Err(format!("{identity} with a wrong key received {code}").into()),
            Err(error) => println!("{identity}: {error}"),
        }
    }
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
