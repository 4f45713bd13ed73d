//! The task of an endpoint, which receives datagrams and handles timers.

use super::engine::{Engine, Shared};
use super::port::Port;
use crate::clock;
use crate::udp::Inbound;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tegmen::time::Instant;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

/// Maximum length of a UDP payload, in bytes.
const RECEIVE_LEN: usize = 65_535;
/// Maximum number of datagrams that are handled before other tasks of the runtime run.
const AT_ONCE: usize = 64;

/// Receives the datagrams of an endpoint until the endpoint is closed. If the runtime ends earlier, the endpoint is
/// closed at that time.
pub(super) async fn drive(shared: Arc<Shared>) {
    struct Closes(Arc<Shared>);
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.lock().shut();
        }
    }
    let shared = Closes(shared);
    let mut timer = Timer::new();
    let mut buffers = Buffers { one: vec![0; RECEIVE_LEN], many: None };
    poll_fn(|cx| {
        let mut engine = shared.0.lock();
        engine.turn(cx, &mut timer, &mut buffers)
    })
    .await;
}

/// The buffers for received datagrams.
struct Buffers {
    /// The buffer for sockets that are connected to one peer ([`Port::Connected`]).
    one: Vec<u8>,
    /// The buffer for sockets that receive datagrams from any peer ([`Port::Open`]); `None` until the endpoint reads
    /// from such a socket.
    many: Option<Box<Inbound>>,
}

impl Engine {
    /// Receives waiting datagrams, handles due timers, and sets the timer. Returns `Poll::Ready` when the endpoint is
    /// closed.
    fn turn(&mut self, cx: &mut Context<'_>, timer: &mut Timer, buffers: &mut Buffers) -> Poll<()> {
        match &mut self.io.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        for _ in 0..AT_ONCE {
            if let Some(Poll::Ready(Some(command))) = self.commands.as_mut().map(|commands| commands.poll_recv(cx)) {
                self.on_command(command);
                continue;
            }
            let now = clock::now();
            if self.io.next_wake() <= now {
                self.run_due();
                self.wake_due(now);
            }
            if self.io.is_shut() {
                return Poll::Ready(());
            }
            if let Some(path) = self.send_unsent()
                && self.io.ports.iter().any(|port| port.has(&path) && port.poll_send_ready(cx).is_ready())
            {
                continue;
            }
            if self.receive(cx, buffers) {
                continue;
            }
            if !self.send_outbox() {
                continue;
            }
            // A timer that is early is left as it is: most requests are answered long before they are due.
            let next = self.io.next_wake();
            if next < self.io.armed || self.io.armed <= now {
                self.io.armed = next;
            }
            if timer.wait(cx, self.io.armed).is_pending() {
                return Poll::Pending;
            }
        }
        // A flood of datagrams does not delay those that are sent.
        self.send_outbox();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Handles the datagrams that the sockets have received. Returns false if there were none. The sockets then wake
    /// the driver when a datagram arrives.
    fn receive(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> bool {
        let mut any = false;
        for index in 0..self.io.ports.len() {
            match self.io.ports.get(index) {
                Some(Port::Connected { socket, path, .. }) => {
                    let (path, mut received) = (*path, ReadBuf::new(&mut buffers.one));
                    match socket.poll_recv(cx, &mut received) {
                        Poll::Ready(Ok(())) => self.on_datagram(&path, received.filled_mut()),
                        Poll::Ready(Err(error)) => self.fail(&path, &error),
                        Poll::Pending => continue,
                    }
                    any = true;
                }
                Some(Port::Open(socket)) => {
                    let inbound = buffers.many.get_or_insert_default();
                    let is_received = loop {
                        match socket.poll_readable(cx) {
                            Poll::Pending | Poll::Ready(Err(_)) => break false,
                            Poll::Ready(Ok(())) => {}
                        }
                        match socket.receive(inbound) {
                            Ok(true) => break true,
                            Ok(false) => {}
                            Err(_) => break false,
                        }
                    };
                    if is_received {
                        for (path, datagram) in inbound.datagrams() {
                            self.on_datagram(path, datagram);
                        }
                        any = true;
                    }
                }
                None => {}
            }
        }
        any
    }
}

/// A timer that is set again only when its time changes.
struct Timer {
    at: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn new() -> Self {
        Self { at: Instant::AT_ONCE, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }

    /// Returns `Poll::Ready` from the time `at` on.
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
