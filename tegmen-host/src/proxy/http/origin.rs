//! Asks HTTP servers (RFC 7252, section 10.1), over HTTP/1.1 without TLS, each request in a connection of its own.

mod request;
mod response;
mod tags;

use crate::proxy::failed::Failed;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tags::Tags;
use tegmen::coap::{Code, OptionNumber};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Requests to HTTP servers at a time. Others wait.
const REQUESTS: usize = 64;
/// Most bytes of the head of a response.
const HEAD: usize = 32 << 10;

/// The HTTP servers.
pub(in crate::proxy) struct Origins {
    places: Semaphore,
    tags: Mutex<Tags>,
    /// Time for a connection, and then for the head of a response.
    timeout: Duration,
    /// Most bytes of the body of a response.
    max_body: usize,
}

/// A request of CoAP.
pub(in crate::proxy) struct Asked<'a> {
    pub(in crate::proxy) method: Code,
    pub(in crate::proxy) options: &'a [(OptionNumber, Vec<u8>)],
    pub(in crate::proxy) payload: &'a [u8],
}

/// A response of CoAP, whose options are in the order of their numbers.
pub(in crate::proxy) struct Answered {
    pub(in crate::proxy) code: Code,
    pub(in crate::proxy) options: Vec<(OptionNumber, Vec<u8>)>,
    pub(in crate::proxy) payload: Vec<u8>,
}

impl Origins {
    pub(in crate::proxy) fn new(timeout: Duration, max_body: usize) -> Self {
        Self { places: Semaphore::new(REQUESTS), tags: Mutex::default(), timeout, max_body }
    }

    /// Asks the server at a host, without brackets, and port.
    ///
    /// # Errors
    /// 5.02 if the name does not resolve or the response cannot be used, 5.04 if the server cannot be reached or is too slow, and the code of
    /// a request that HTTP cannot carry.
    pub(in crate::proxy) async fn ask(&self, host: &str, port: u16, asked: &Asked<'_>) -> Result<Answered, Failed> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let failed = |code, why: String| Failed::new(code, format!("{host}: {why}"));
        let authority = request::authority(host, port);
        let request = request::map(&authority, asked, &self.tags())
            .map_err(|code| failed(code, "HTTP cannot carry the request".to_owned()))?;
        let exchange = async {
            let addresses: Vec<_> = lookup_host((host, port))
                .await
                .map_err(|error| failed(Code::BAD_GATEWAY, error.to_string()))?
                .collect();
            let stream = TcpStream::connect(&addresses[..])
                .await
                .map_err(|error| failed(Code::GATEWAY_TIMEOUT, error.to_string()))?;
            send(stream, request).await.map_err(|error| failed(Code::BAD_GATEWAY, error.to_string()))
        };
        let (response, _connection) = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| failed(Code::GATEWAY_TIMEOUT, format!("no response within {} s", self.timeout.as_secs())))??;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.max_body).collect().await.map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            failed(Code::BAD_GATEWAY, if is_long { "the body is too long".to_owned() } else { error.to_string() })
        })?;
        response::map(asked, &authority, &head, body.to_bytes(), &mut self.tags())
            .map_err(|why| failed(Code::BAD_GATEWAY, why.to_owned()))
    }

    fn tags(&self) -> std::sync::MutexGuard<'_, Tags> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a request. Returns the response with its connection, which ends when it is dropped.
async fn send(
    stream: TcpStream,
    request: hyper::Request<Full<Bytes>>,
) -> hyper::Result<(hyper::Response<Incoming>, JoinSet<()>)> {
    let (mut sender, connection) = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        // The request reports the error.
        let _ = connection.await;
    });
    Ok((sender.send_request(request).await?, task))
}
