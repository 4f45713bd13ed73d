//! The HTTP pages of a server for monitoring: `/metrics`, `/live` and `/ready`. The number of connections is limited.
//! Each connection serves one request and has a time limit.

use super::store::Rows;
use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tegmen_control::delegation::{DelegationCounts, Delegations};
use tegmen_control::group::{GroupCounts, Outbox};
use tegmen_host::metrics::{self, DelegationTotals, GroupTotals, Operation};
use tegmen_host::proxy::Proxy;
use tegmen_host::server::{Counts, Pulse};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Sleep;

/// Maximum number of connections at once. Further connections wait in the queue of the system, where they use no
/// descriptor of the process.
const CONNECTIONS: usize = 16;
/// Maximum time from the beginning of a connection to the first byte of the response. From that byte on, the client has
/// the same time to read the response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time for a check of the shards, which are the threads of the server. A shard that works answers within this
/// time.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The parts of a server that its HTTP pages show.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) counts: Counts,
    pub(super) pulse: Pulse,
    pub(super) operation: watch::Receiver<Operation>,
    /// The outbox of the controller of groups, which is the queue of messages that wait to be sent. `None` if the
    /// server controls no groups.
    pub(super) outbox: Option<Outbox>,
    /// The server of delegated sessions; `None` if the server delegates no sessions.
    pub(super) delegations: Option<Arc<Delegations<Rows>>>,
    /// The proxy; `None` if the server is no proxy.
    pub(super) proxy: Option<Proxy>,
}

impl Shown {
    /// Returns the present counts and states of the service for the page `/metrics`.
    fn operation(&self) -> Operation {
        let totals = |GroupCounts { epochs, messages, failures }| GroupTotals { epochs, messages, failures };
        let groups = self.outbox.as_ref().map(|outbox| totals(outbox.counts()));
        let delegation = self.delegations.as_ref().map(|server| delegation_totals(server));
        let proxy = self.proxy.as_ref().map(Proxy::counts);
        Operation { groups, delegation, proxy, ..*self.operation.borrow() }
    }

    /// Returns true if each shard (a thread of the server) answers within the time limit.
    pub(super) async fn is_live(&self) -> bool {
        tokio::time::timeout(ANSWER_WITHIN, self.pulse.beats()).await == Ok(true)
    }
}

/// Returns the counts of a server of delegated sessions since its start, and the present numbers of its devices and of
/// the devices that have problems.
fn delegation_totals(server: &Delegations<Rows>) -> DelegationTotals {
    let counts: DelegationCounts = server.counts();
    let devices = server.list(None, usize::MAX);
    let unreachable = devices.iter().filter(|device| device.contact.unreachable.is_some()).count();
    let untold = devices.iter().map(|device| device.untold).sum();
    let certificates = || devices.iter().filter_map(|device| device.certificate.as_ref());
    DelegationTotals {
        devices: devices.len(),
        unreachable,
        untold,
        uncertified: certificates().filter(|certificate| certificate.expires.is_none()).count(),
        certificate_problems: certificates().filter(|certificate| certificate.problem.is_some()).count(),
        sealed: counts.sealed,
        reissued: counts.reissued,
        handed_over: counts.handed_over,
        without_rights: counts.without_rights,
        not_given: counts.not_given,
        refused: counts.refused,
        conversations: counts.conversations,
        failed_conversations: counts.failed_conversations,
        epochs: counts.epochs,
        forgotten: counts.forgotten,
    }
}

/// Returns an HTTP response. If `yes` is true, the status is 200 and the body is the first of `words`. If `yes` is
/// false, the status is 503 and the body is the second of `words`.
fn answer(yes: bool, words: [&'static str; 2]) -> impl axum::response::IntoResponse {
    let (status, word) = if yes { (StatusCode::OK, words[0]) } else { (StatusCode::SERVICE_UNAVAILABLE, words[1]) };
    (status, [(header::CONNECTION, "close")], format!("{word}\n"))
}

/// Serves the pages until the future is dropped.
pub(super) async fn serve(listener: TcpListener, shown: Shown) -> io::Result<()> {
    let (live, ready) = (shown.clone(), shown.clone());
    let metrics = move || async move {
        let headers = [(header::CONTENT_TYPE, metrics::MEDIA_TYPE), (header::CONNECTION, "close")];
        (headers, metrics::render(&shown.counts.totals(), Some(&shown.operation())))
    };
    let live = move || async move { answer(live.is_live().await, ["live", "a shard does not answer"]) };
    let ready = move || async move {
        let is_ready = ready.operation.borrow().ready && ready.is_live().await;
        answer(is_ready, ["ready", "not ready"])
    };
    let router = axum::Router::new();
    let router = router.route("/metrics", get(metrics)).route("/live", get(live)).route("/ready", get(ready));
    axum::serve(Few::new(listener), router).await
}

/// A listener that accepts a connection only while fewer than [`CONNECTIONS`] connections exist.
pub(super) struct Few {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Few {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl Listener for Few {
    type Io = Brief;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Brief, SocketAddr) {
        // The semaphore is never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, from) = Listener::accept(&mut self.listener).await;
        let end = Box::pin(tokio::time::sleep(PATIENCE));
        (Brief { stream, end, answers: false, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that returns an error after its time limit.
pub(super) struct Brief {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    answers: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl Brief {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Brief {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Brief {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !std::mem::replace(&mut self.answers, true) {
            self.end.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
        }
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
