//! Sends a request over HTTPS, on a new connection.

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, ConfigBuilder, RootCertStore};

/// The port of a URL that names no port.
pub(crate) const PORT: u16 = 443;

/// The reason why a request has no response.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The host is neither a name nor an address.
    Name,
    /// The connection could not be opened, for this reason.
    Unreached(io::Error),
    /// The TLS handshake failed.
    Tls(io::Error),
    /// The server sent no response, or bytes that are no HTTP response.
    Http(hyper::Error),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("its host is neither a name nor an address"),
            Self::Unreached(error) => write!(f, "it cannot be reached: {error}"),
            Self::Tls(error) => write!(f, "the TLS handshake with it failed: {error}"),
            Self::Http(error) => write!(f, "it did not answer: {error}"),
        }
    }
}

impl Error for Unanswered {}

/// Begins the configuration of a client that trusts these roots.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots))
}

/// Sends a request to a host and a port on a new connection. Returns the connection, which ends when it is dropped, and
/// the response up to its body.
pub(crate) async fn send<B>(
    config: impl Into<Arc<ClientConfig>>,
    (host, port): (&str, u16),
    request: Request<B>,
) -> Result<(JoinSet<()>, Response<Incoming>), Unanswered>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Unanswered::Name)?;
    let stream = TcpStream::connect((host, port)).await.map_err(Unanswered::Unreached)?;
    let stream = TlsConnector::from(config.into()).connect(name, stream).await.map_err(Unanswered::Tls)?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(Unanswered::Http)?;
    let mut running = JoinSet::new();
    running.spawn(async { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(Unanswered::Http)?;
    Ok((running, response))
}
