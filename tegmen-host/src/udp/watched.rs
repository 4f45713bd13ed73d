//! A UDP socket of a Tokio runtime.
//!
//! On Unix the system reports to the runtime only that the socket became readable. A socket of Tokio itself also makes
//! the system report after each sent datagram that the socket is writable.

use std::io;
use std::net::UdpSocket;
use std::task::{Context, Poll};
#[cfg(unix)]
use std::{
    future::Future as _,
    os::fd::{AsFd as _, AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::io::Interest;
#[cfg(unix)]
use tokio::{io::unix::AsyncFd, time::Sleep};

/// The time until the next attempt to send, if the system cannot report when the socket is writable.
#[cfg(unix)]
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A UDP socket of the runtime in which it was made.
#[cfg(unix)]
pub(super) struct Watched {
    io: AsyncFd<UdpSocket>,
    /// The wait of a task until the socket is writable; `None` if no task waits.
    wait: Mutex<Option<Wait>>,
}

/// The wait until a socket is writable.
#[cfg(unix)]
enum Wait {
    /// The system reports through this second descriptor of the socket that the socket is writable.
    Reported(AsyncFd<OwnedFd>),
    /// The process has no descriptor left, so the task tries again when this timer ends.
    Timed(Pin<Box<Sleep>>),
}

#[cfg(unix)]
impl Watched {
    /// Takes a socket that does not block.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        Ok(Self { io: watch(socket, Interest::READABLE)?, wait: Mutex::default() })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        self.io.get_ref()
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_read_ready(cx).map_ok(drop)
    }

    /// Calls `read` if the socket may be readable. If `read` returns [`io::ErrorKind::WouldBlock`], the socket is not
    /// readable until the next datagram arrives.
    pub(super) fn try_read<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.io.try_io(Interest::READABLE, |_| read())
    }

    /// Calls `write`. If `write` returns [`io::ErrorKind::WouldBlock`], call [`Self::poll_writable`] before the next attempt.
    #[expect(clippy::unused_self, reason = "other systems need the socket")]
    pub(super) fn try_write<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        write()
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wait = self.wait();
        let mut waits = wait.take().unwrap_or_else(|| self.begin_wait());
        let ready = match &mut waits {
            Wait::Reported(watched) => watched.poll_write_ready(cx).map_ok(drop),
            Wait::Timed(timer) => timer.as_mut().poll(cx).map(Ok),
        };
        if ready.is_pending() {
            *wait = Some(waits);
        }
        ready
    }

    /// Ends the wait of [`Self::poll_writable`]. During the wait the system reports each sent datagram.
    pub(super) fn end_wait(&self) {
        self.wait().take();
    }

    fn wait(&self) -> MutexGuard<'_, Option<Wait>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_wait(&self) -> Wait {
        let second = self.socket().as_fd().try_clone_to_owned();
        match second.and_then(|second| watch(second, Interest::WRITABLE)) {
            Ok(watched) => Wait::Reported(watched),
            Err(_) => Wait::Timed(Box::pin(tokio::time::sleep(TRIES_AGAIN_AFTER))),
        }
    }
}

#[cfg(unix)]
#[expect(
    deprecated,
    reason = "it is unsound for types that close their descriptor early; these do not, and its replacement is unsafe"
)]
fn watch<T: AsRawFd>(socket: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(socket, interest)
}

/// A UDP socket of the runtime in which it was made.
#[cfg(not(unix))]
pub(super) struct Watched(tokio::net::UdpSocket);

#[cfg(not(unix))]
impl Watched {
    /// Takes a socket that does not block.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        tokio::net::UdpSocket::from_std(socket).map(Self)
    }

    pub(super) const fn socket(&self) -> &tokio::net::UdpSocket {
        &self.0
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_recv_ready(cx)
    }

    /// Calls `read` if the socket may be readable. If `read` returns [`io::ErrorKind::WouldBlock`], the socket is not
    /// readable until the next datagram arrives.
    pub(super) fn try_read<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.0.try_io(Interest::READABLE, read)
    }

    /// Calls `write`. If `write` returns [`io::ErrorKind::WouldBlock`], call [`Self::poll_writable`] before the next attempt.
    pub(super) fn try_write<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.0.try_io(Interest::WRITABLE, write)
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_send_ready(cx)
    }

    /// Ends the wait of [`Self::poll_writable`].
    #[expect(clippy::unused_self, reason = "other systems need the socket")]
    pub(super) const fn end_wait(&self) {}
}
