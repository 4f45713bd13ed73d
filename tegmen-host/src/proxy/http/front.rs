//! The HTTP listener of a proxy, for HTTP clients.

mod refusal;
mod request;
mod response;
mod target_uri;

use crate::client::{ClientConfig, ClientError, Session};
use crate::connections::Connections;
use crate::uri::Scheme;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use refusal::Refusal;
use request::{Mapped, check_host};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use target_uri::Target;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio_io_timeout::TimeoutStream;

/// Maximum number of concurrent connections. Further connections wait until the process accepts them.
const CONNECTIONS: usize = 64;
/// Maximum number of concurrent connections from one address. Further connections are closed.
const CONNECTIONS_OF_ADDRESS: usize = 16;
/// The time limit of the head of a request. For a further request on the same connection, the time begins after the
/// previous response.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The time limit of the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// The time after which the connection of a client that reads no data is closed.
const STALL: Duration = Duration::from_secs(60);
/// Maximum number of bytes of the head of an HTTP request: its request line and its header fields.
const HEAD: usize = 16 << 10;
/// Maximum number of bytes of the body of a CoAP response that the HTTP listener accepts from the proxy.
const LONGEST_RESPONSE: usize = 1 << 20;
/// The time limit of a response of the proxy. The proxy itself waits at most 100 seconds for an origin.
const RESPONSE_WITHIN: Duration = Duration::from_secs(120);

/// The settings of the HTTP listener of a proxy. If the body of a CoAP response is longer than 1 MiB, the HTTP client
/// gets 502.
#[derive(Clone, Copy, Debug)]
pub struct HttpFront {
    /// The address at which the proxy accepts CoAP requests without DTLS. A CoAP server listens at this address, and
    /// the proxy is a part of this server.
    pub proxy: SocketAddr,
    /// Maximum number of bytes of a request body. A longer request is refused with 413.
    pub max_body: usize,
}

/// Serves HTTP/1.1 clients until this future is dropped. Serves at most 64 connections at the same time, and at most 16
/// from one address. Dropping the future does not close open connections.
pub async fn serve(listener: TcpListener, front: HttpFront) {
    let connections = Connections::new(CONNECTIONS, CONNECTIONS_OF_ADDRESS);
    loop {
        let (stream, _, place) = connections.accept(&listener).await;
        tokio::spawn(async move {
            connection(stream, front).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, front: HttpFront) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let client = Arc::new(Client { front, session: OnceCell::new() });
    let service = service_fn(move |request| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(client.answer(request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD);
    // A client that closes early is no fault of the proxy.
    let _ = server.serve_connection(TokioIo::new(Box::pin(stream)), service).await;
}

/// An HTTP client with its connection. For the proxy it is a CoAP client in clear with a separate socket.
struct Client {
    front: HttpFront,
    session: OnceCell<Session>,
}

impl Client {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = self.forward(request).await.unwrap_or_else(response::refuse);
        // A browser would guess that a payload without a media type is a page, and run its scripts as those of the proxy.
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refusal> {
        let (head, body) = request.into_parts();
        check_host(&head)?;
        let target = Target::read(head.uri.path(), head.uri.query())?;
        let mapped = Mapped::of(&head, &target)?;
        let body = if mapped.has_body() { self.read(body).await? } else { Bytes::new() };
        let session = self.session.get_or_try_init(|| self.connect()).await.map_err(|error| failed(&error))?;
        let request = session.request(mapped.method, "").options(&mapped.options).payload(&body);
        let response = request.await.map_err(|error| failed(&error))?;
        Ok(response::of(response, &target, mapped.has_critical()))
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let most = self.front.max_body;
        let too_long = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has {most} bytes at most"));
        if body.size_hint().lower() > most as u64 {
            return Err(too_long());
        }
        match tokio::time::timeout(BODY_WITHIN, Limited::new(body, most).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
            Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the body is not valid")),
            Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }

    async fn connect(&self) -> Result<Session, ClientError> {
        let config = ClientConfig::default().with(|config| {
            config.coap.timeout = RESPONSE_WITHIN;
            config.coap.max_body = LONGEST_RESPONSE;
        });
        Session::connect_to(self.front.proxy, Scheme::Coap, config).await
    }
}

/// Returns the HTTP error for a request to which the proxy sent no response.
fn failed(error: &ClientError) -> Refusal {
    match error {
        ClientError::NoResponse { .. } | ClientError::Silence { .. } | ClientError::NotSent { .. } => {
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the proxy did not answer in time")
        }
        _ => Refusal::new(StatusCode::BAD_GATEWAY, "the response cannot be used"),
    }
}
