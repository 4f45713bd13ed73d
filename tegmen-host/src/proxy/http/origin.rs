//! Sends requests to HTTP servers (RFC 7252, section 10.1), over HTTP/1.1 with and without TLS. Each request has a
//! separate connection.

mod request;
mod response;
mod tags;

use crate::client::ClientError;
use crate::proxy::ProxyConfig;
use crate::proxy::failed::Failed;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tags::Tags;
use tegmen::coap::{Code, OptionNumber};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Maximum number of concurrent requests to HTTP servers. Further requests wait.
const REQUESTS: usize = 64;
/// Maximum number of bytes of the head of an HTTP response: its status line and its header fields.
const HEAD: usize = 32 << 10;

/// The client for HTTP servers.
pub(in crate::proxy) struct Origins {
    places: Semaphore,
    tags: Mutex<Tags>,
    /// The time limit until the status line and the header fields of the HTTP response have arrived. It includes the
    /// lookup of the name, the connection, the TLS handshake, and the request.
    timeout: Duration,
    /// Maximum number of bytes of the body of a response.
    max_body: usize,
    /// The TLS client; `None` if the settings contain no certificate authority for HTTPS servers.
    tls: Option<TlsConnector>,
}

/// An HTTP server.
pub(in crate::proxy) struct Site<'a> {
    /// The host, without brackets.
    pub(in crate::proxy) host: &'a str,
    pub(in crate::proxy) port: u16,
    /// True for HTTPS.
    pub(in crate::proxy) is_secure: bool,
}

impl Site<'_> {
    /// Returns the host and the port in the form of a URI.
    fn authority(&self) -> String {
        let Self { host, port, is_secure } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        match (is_secure, port) {
            (false, 80) | (true, 443) => format!("{open}{host}{close}"),
            _ => format!("{open}{host}{close}:{port}"),
        }
    }

    /// Returns the beginning of the URI of every resource of this server.
    fn base(&self) -> String {
        format!("{}://{}", if self.is_secure { "https" } else { "http" }, self.authority())
    }

    fn failed(&self, code: Code, why: impl ToString) -> Failed {
        Failed::new(code, format!("{}: {}", self.host, why.to_string()))
    }
}

/// A CoAP request for an HTTP server.
pub(in crate::proxy) struct Asked<'a> {
    pub(in crate::proxy) method: Code,
    pub(in crate::proxy) options: &'a [(OptionNumber, Vec<u8>)],
    pub(in crate::proxy) payload: &'a [u8],
}

/// The response of an HTTP server as a CoAP response. The options are in the order of their numbers.
pub(in crate::proxy) struct Answered {
    pub(in crate::proxy) code: Code,
    pub(in crate::proxy) options: Vec<(OptionNumber, Vec<u8>)>,
    pub(in crate::proxy) payload: Vec<u8>,
}

impl Origins {
    /// Returns a client that uses the time limit and the maximum length of a body in `config`, and trusts the CA
    /// certificates in `config`. The client has no connection yet.
    ///
    /// # Errors
    /// [`ClientError::System`] if a CA certificate cannot be parsed.
    pub(in crate::proxy) fn new(config: &ProxyConfig) -> Result<Self, ClientError> {
        let coap = &config.client.coap;
        Ok(Self {
            places: Semaphore::new(REQUESTS),
            tags: Mutex::default(),
            timeout: coap.timeout,
            max_body: coap.max_body,
            tls: connector(&config.https_authorities).map_err(ClientError::System)?,
        })
    }

    /// Sends a request to a server.
    ///
    /// # Errors
    /// 5.02 if the name cannot be resolved, the TLS handshake fails, or the response cannot be used. 5.04 if the server
    /// cannot be reached or is too slow. Another code if HTTP cannot carry the request.
    pub(in crate::proxy) async fn ask(&self, site: &Site<'_>, asked: &Asked<'_>) -> Result<Answered, Failed> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let request = request::map(&site.authority(), asked, &self.tags())
            .map_err(|code| site.failed(code, "HTTP cannot carry the request"))?;
        let exchanged = tokio::time::timeout(self.timeout, self.exchange(site, request)).await;
        let (response, _connection) = exchanged.map_err(|_| {
            site.failed(Code::GATEWAY_TIMEOUT, format!("no response within {} s", self.timeout.as_secs()))
        })??;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.max_body).collect().await.map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            site.failed(Code::BAD_GATEWAY, if is_long { "the body is too long".to_owned() } else { error.to_string() })
        })?;
        response::map(asked, &site.base(), &head, body.to_bytes(), &mut self.tags())
            .map_err(|why| site.failed(Code::BAD_GATEWAY, why))
    }

    /// Opens a connection and sends a request.
    async fn exchange(&self, site: &Site<'_>, request: hyper::Request<Full<Bytes>>) -> Result<Responding, Failed> {
        let bad = |why: &dyn ToString| site.failed(Code::BAD_GATEWAY, why.to_string());
        let addresses: Vec<_> = lookup_host((site.host, site.port)).await.map_err(|error| bad(&error))?.collect();
        let stream =
            TcpStream::connect(&addresses[..]).await.map_err(|error| site.failed(Code::GATEWAY_TIMEOUT, error))?;
        let responding = if site.is_secure {
            let tls = self.tls.as_ref().ok_or_else(|| bad(&"there is no authority for https"))?;
            let name = ServerName::try_from(site.host.to_owned()).map_err(|error| bad(&error))?;
            send(tls.connect(name, stream).await.map_err(|error| bad(&error))?, request).await
        } else {
            send(stream, request).await
        };
        responding.map_err(|error| bad(&error))
    }

    fn tags(&self) -> MutexGuard<'_, Tags> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a TLS client that trusts these authorities; `None` if there are none.
fn connector(authorities: &[Vec<u8>]) -> io::Result<Option<TlsConnector>> {
    if authorities.is_empty() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone().into()).map_err(io::Error::other)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

/// A response with its connection. Dropping the connection closes it.
type Responding = (hyper::Response<Incoming>, JoinSet<()>);

/// Sends a request over a stream.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: hyper::Request<Full<Bytes>>,
) -> hyper::Result<Responding> {
    let (mut sender, connection) = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        // The request reports the error.
        let _ = connection.await;
    });
    Ok((sender.send_request(request).await?, task))
}

#[cfg(test)]
mod tests;
