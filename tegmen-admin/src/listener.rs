//! The HTTPS listener.

use crate::api::Api;
use crate::tls::{Peer, Tls};
use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::connections::Connections;
use tegmen_store::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Maximum number of connections at the same time. Further connections wait until the process accepts them.
const CONNECTIONS: usize = 256;
/// Maximum number of connections from one address at the same time. Further connections are closed.
const CONNECTIONS_OF_ADDRESS: usize = 64;
/// If the client reads none of the sent data for this time, the server closes the connection.
const STALL: Duration = Duration::from_secs(60);
/// Maximum time for a TLS handshake, and for the header of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Accepts connections until the future is dropped: at most 256 at the same time, and at most 64 from one address. When
/// `tls` gets a new value, later connections use it. The accepted client certificates in the new value apply to all later
/// requests, also on existing connections.
pub async fn serve<S: Store>(listener: TcpListener, tls: watch::Receiver<Arc<Tls>>, api: Arc<Api<S>>) {
    let router = api.router();
    let connections = Connections::new(CONNECTIONS, CONNECTIONS_OF_ADDRESS);
    loop {
        let (stream, address, place) = connections.accept(&listener).await;
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            connection(stream, address.ip(), tls, router).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, address: IpAddr, tls: watch::Receiver<Arc<Tls>>, router: axum::Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let acceptor = TlsAcceptor::from(Arc::clone(tls.borrow().config()));
    let accepted = tokio::time::timeout(PATIENCE, acceptor.accept(Box::pin(stream))).await;
    let Ok(Ok(stream)) = accepted else { return };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().into();
    let service = TowerToHyperService::new(router.layer(Extension(Peer { address, chain, tls })));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A client that closes early is no fault of the server.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
