//! `tegmen ndn to-coap`: serves named objects as the resources of a CoAP server.

use super::consume::Verification;
use super::sign::Trusted;
use super::{At, name_of};
use crate::output::{Failure, Output, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::credentials::{Credentials, FilePolicy};
use tegmen_host::server::{Reply, Router, Server};
use tegmen_ndn::{Interest, Name};
use tegmen_ndn_host::client::ClientError;
use tegmen_ndn_host::object::{FetchError, fetch};
use tokio::sync::Semaphore;

/// Maximum number of requests that wait for NDN at a time. Further requests are refused with 5.03.
const REQUESTS: usize = 64;

#[derive(Args)]
#[command(after_help = "Example:\n  \
    tegmen ndn to-coap --resource /temp=/house/temp --anchor keys/house.cert &\n  \
    tegmen get coap://localhost/temp\n\n\
    With ?packet the response is the signed Data packet itself, which the client verifies: tegmen ndn verify. Without it the client\n\
    trusts this bridge.")]
pub(super) struct ToCoap {
    /// The path of a resource, and the name of its object: PATH=NAME. May be given several times.
    #[arg(long, value_name = "PATH=NAME", required = true)]
    resource: Vec<String>,
    /// The address of the CoAP server. Anyone who reaches a coap:// address may read the resources.
    #[arg(long, value_name = "URI", default_value = "coap://127.0.0.1:5683")]
    listen: String,
    /// The credentials file with the keys and rights of the clients of a coaps:// address.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Content-Format of the contents.
    #[arg(long, value_name = "NUMBER", default_value_t = OCTET_STREAM)]
    content_format: u16,
    /// Seconds for which clients may store a response.
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    max_age: u64,
    /// Milliseconds after which the Interest for a packet is sent again.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    lifetime: u64,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    trusted: Trusted,
}

/// The Content-Format of application/octet-stream.
const OCTET_STREAM: u16 = 42;

impl ToCoap {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let resources: Vec<(String, Vec<u8>)> =
            self.resource.iter().map(|text| resource(text)).collect::<Result<_, _>>()?;
        // Reports files that cannot be read before the server starts.
        let _ = self.trusted.trust()?;
        let (runtime, bridge) = (runtime()?, Arc::new(self));
        let free = Arc::new(Semaphore::new(REQUESTS));
        let mut router = Router::new();
        for (path, name) in resources {
            let (handle, bridge, free) = (runtime.handle().clone(), bridge.clone(), free.clone());
            router = router.get(&path, move |request, response| {
                let is_whole = request.query()?.get("packet").is_some();
                let Ok(permit) = free.clone().try_acquire_owned() else { return Err(Code::SERVICE_UNAVAILABLE) };
                let responder = request.defer(response);
                let (bridge, name) = (bridge.clone(), name.clone());
                handle.spawn(async move {
                    responder.send(bridge.reply(&Name::of_checked(&name), is_whole).await);
                    drop(permit);
                });
                Ok(())
            });
        }
        let credentials = match &bridge.credentials {
            Some(file) => Credentials::from_file(file).map_err(Failure::usage)?,
            None if bridge.listen.starts_with("coaps:") => {
                return Err(Failure::usage(
                    "--listen coaps:// needs the keys of its clients: name their file by --credentials",
                ));
            }
            None => Credentials::default(),
        };
        let policy = FilePolicy { credentials: credentials.clone(), plain_allowed: true };
        let builder = Server::builder().credentials(credentials).policy(policy).listen(&bridge.listen);
        let server = builder.serve(router).map_err(Failure::usage)?;
        for bound in server.addresses() {
            let address = bound.address;
            out.line(
                || format!("listening on {}://{address}", bound.scheme),
                || json!({ "event": "listening", "address": address.to_string() }),
            );
        }
        runtime.block_on(async { ended().await });
        server.stop();
        Ok(ExitCode::SUCCESS)
    }

    async fn reply(&self, name: &Name<'_>, is_whole: bool) -> Reply {
        match self.fetch(name, is_whole).await {
            Ok((content, version)) => {
                let format = if is_whole { OCTET_STREAM } else { self.content_format };
                Reply::content(format, content).etag(&version).max_age(Duration::from_secs(self.max_age))
            }
            Err((code, cause)) => Reply::new(code).because(cause),
        }
    }

    /// Fetches an object, and returns its content. If `is_whole` is true, fetches one packet instead, and returns the
    /// whole packet. Also returns an ETag, which is a digest of the name of the object, or of the packet.
    async fn fetch(&self, name: &Name<'_>, is_whole: bool) -> Result<(Vec<u8>, [u8; 8]), (Code, String)> {
        let gateway = |error: String| (Code::BAD_GATEWAY, error);
        let mut client = self.at.connect().await.map_err(|failure: Failure| gateway(failure.message))?;
        let within = Duration::from_millis(self.lifetime);
        let failed = |error: FetchError| match error {
            FetchError::Client(error) => refused(&error),
            error => gateway(error.to_string()),
        };
        if is_whole {
            let interest = Interest { name: *name, can_be_prefix: true, must_be_fresh: true, ..Interest::default() };
            let packet = client.ask(&interest, within).await.map_err(|error| refused(&error))?;
            let tag = tag(&packet);
            return Ok((packet, tag));
        }
        let mut verification = Verification::of(&self.trusted).map_err(|failure: Failure| gateway(failure.message))?;
        let fetched = fetch(&mut client, name, within, &mut verification).await.map_err(failed)?;
        let tag = tag(&fetched.name);
        Ok((fetched.content, tag))
    }
}

/// Returns the code and the text of the response to a CoAP request, if the Interest for this request got no Data
/// packet.
fn refused(error: &ClientError) -> (Code, String) {
    let code = match error {
        ClientError::TimedOut => Code::GATEWAY_TIMEOUT,
        ClientError::Nack(_) => Code::NOT_FOUND,
        _ => Code::BAD_GATEWAY,
    };
    (code, error.to_string())
}

/// Returns the first 8 bytes of the SHA-256 digest of `bytes`.
fn tag(bytes: &[u8]) -> [u8; 8] {
    let digest = tegmen_base::crypto::digest::<tegmen_base::crypto::RustCrypto, 32>(&[bytes]);
    std::array::from_fn(|place| digest.get(place).copied().unwrap_or(0))
}

/// Reads PATH=NAME.
fn resource(text: &str) -> Result<(String, Vec<u8>), Failure> {
    let refused = || Failure::usage(format!("--resource {text}: write PATH=NAME, as /temp=/house/temp"));
    let (path, name) = text.split_once('=').filter(|(path, _)| path.starts_with('/')).ok_or_else(refused)?;
    Ok((path.to_owned(), name_of(name)?))
}
