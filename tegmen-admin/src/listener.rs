//! The HTTPS listener.

use crate::api::Api;
use crate::keys::{Principal, Right};
use crate::routes::Peer;
use crate::scope::Scopes;
use crate::sha256;
use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tegmen_store::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Connections at a time.
const CONNECTIONS: usize = 256;
/// Time after which a client is cut off that reads nothing of what it is sent.
const STALL: Duration = Duration::from_secs(60);
/// Time for a TLS handshake, and for the header of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Client certificates that stand for an API key.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The authorities.
    pub roots: RootCertStore,
    /// The scopes of single certificates, by the SHA-256 of their DER in lower-case hexadecimal digits.
    pub scopes: HashMap<String, Scopes>,
    /// The scopes of all other certificates of the authorities.
    pub others: Scopes,
}

/// The TLS configuration of the listener: its certificates, its key, and the authorities of clients.
///
/// # Errors
/// The reason why the certificates, the key or the authorities cannot be used.
pub fn tls(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<&ClientCertificates>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let roots = Arc::new(clients.roots.clone());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).allow_unauthenticated().build();
            let refused = |error: VerifierBuilderError| rustls::Error::General(error.to_string());
            builder.with_client_cert_verifier(verifier.map_err(refused)?)
        }
    };
    builder.with_single_cert(certificates, key)
}

/// Accepts connections until the future is dropped. `config` is that of [`tls`], with the same `clients`.
pub async fn serve<S: Store>(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    clients: Option<ClientCertificates>,
    api: Arc<Api<S>>,
) {
    let router = api.router();
    let acceptor = TlsAcceptor::from(config);
    let clients = Arc::new(clients);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, address)) = listener.accept().await else {
            // The process has no more descriptors: others close in the meantime.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (router, acceptor, clients) = (router.clone(), acceptor.clone(), Arc::clone(&clients));
        tokio::spawn(async move {
            connection(stream, address.ip(), &acceptor, clients.as_ref().as_ref(), router).await;
            drop(place);
        });
    }
}

async fn connection(
    stream: TcpStream,
    address: IpAddr,
    acceptor: &TlsAcceptor,
    clients: Option<&ClientCertificates>,
    router: axum::Router,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let accepted = tokio::time::timeout(PATIENCE, acceptor.accept(Box::pin(stream))).await;
    let Ok(Ok(stream)) = accepted else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certified = clients.zip(certificate).map(|(clients, certificate)| {
        let digest = sha256(&[certificate.as_ref()]);
        let scopes = clients.scopes.get(&digest).unwrap_or(&clients.others).clone();
        Arc::new(Principal { name: format!("certificate-{digest}"), right: Right::Scopes(scopes, u64::MAX) })
    });
    let service = TowerToHyperService::new(router.layer(Extension(Peer { address, certified })));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A client that closes early is no fault of the server.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
