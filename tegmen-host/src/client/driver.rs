//! The task of a session: it receives, and does what is due.

use super::Shared;
use super::connection::Connection;
use crate::clock;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tegmen::time::Instant;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

/// Longest UDP payload.
const RECEIVE_LEN: usize = 65_535;
/// Datagrams that are handled before other tasks of the runtime have their turn.
const AT_ONCE: usize = 64;

/// Receives for a session until it is closed. If the runtime ends before, the session is closed.
pub(super) async fn drive(shared: Arc<Shared>) {
    struct Closes(Arc<Shared>);
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.lock().shut();
        }
    }
    let shared = Closes(shared);
    let mut timer = Timer::new();
    let mut buffer = vec![0; RECEIVE_LEN];
    poll_fn(|cx| {
        let mut connection = shared.0.lock();
        connection.turn(cx, &mut timer, &mut buffer)
    })
    .await;
}

impl Connection {
    /// Receives what is there, does what is due, and sets the timer. Ready if the session was closed.
    fn turn(&mut self, cx: &mut Context<'_>, timer: &mut Timer, buffer: &mut [u8]) -> Poll<()> {
        match &mut self.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        for _ in 0..AT_ONCE {
            let now = clock::now();
            if self.next_wake() <= now {
                self.run_due();
                self.places.wake_due(now);
            }
            if self.is_silent() {
                self.places.wake_all();
            }
            let are_sent = self.send_unsent();
            let Some(socket) = &self.socket else { return Poll::Ready(()) };
            if !are_sent && socket.poll_send_ready(cx).is_ready() {
                continue;
            }
            let mut received = ReadBuf::new(buffer);
            match socket.poll_recv(cx, &mut received) {
                Poll::Ready(Ok(())) => self.on_datagram(received.filled_mut()),
                Poll::Ready(Err(error)) => self.fail(&error),
                Poll::Pending => {
                    // A timer that is early is left as it is: most requests are answered long before they are due.
                    let next = self.next_wake();
                    if next < self.armed || self.armed <= now {
                        self.armed = next;
                    }
                    if timer.wait(cx, self.armed).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A timer that is set only when its time changes.
struct Timer {
    at: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn new() -> Self {
        Self { at: Instant::AT_ONCE, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }

    /// Ready at `at`.
    fn wait(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        if at == Instant::NEVER {
            return Poll::Pending;
        }
        if self.at != at {
            self.at = at;
            self.sleep.as_mut().reset(clock::tokio_instant(at));
        }
        self.sleep.as_mut().poll(cx)
    }
}
