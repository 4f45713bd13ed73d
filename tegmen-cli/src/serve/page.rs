//! The metrics page over HTTP: few connections, each for one request and a short time.

use axum::http::header;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tegmen_host::metrics;
use tegmen_host::server::Counts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; others wait outside the process, where they take none of its descriptors.
const CONNECTIONS: usize = 16;
/// Time limit for a request to arrive, and then for its answer to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves the counts at `/metrics` until it is dropped.
pub(super) async fn serve(listener: TcpListener, counts: Counts) -> io::Result<()> {
    let page = move || async move {
        let headers = [(header::CONTENT_TYPE, metrics::MEDIA_TYPE), (header::CONNECTION, "close")];
        (headers, metrics::render(&counts.totals()))
    };
    let router = axum::Router::new().route("/metrics", axum::routing::get(page));
    axum::serve(Few { listener, places: Arc::new(Semaphore::new(CONNECTIONS)) }, router).await
}

/// Accepts a connection when there is a place for it.
struct Few {
    listener: TcpListener,
    places: Arc<Semaphore>,
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

/// A connection that fails when its time is over.
struct Brief {
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
