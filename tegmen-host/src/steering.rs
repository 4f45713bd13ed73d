//! A steering gateway in front of a device. A delegation server makes the certificate handshakes of this device.
//!
//! Some peers, such as Californium, find their sessions by the address of the other endpoint. The delegation server and
//! the device have two addresses, so such a peer cannot continue at the device with a session that it opened with the
//! server. The gateway has one address for the server and the device. It sends a ClientHello without a ticket or
//! session id to the server, and a ClientHello with a ticket or session id to the device. All other datagrams of a
//! remote go to the server or the device, whichever last answered a ClientHello of the remote. The gateway has no key:
//! it reads handshake messages in clear, and changes nothing.

mod route;

use crate::udp::{self, BindError};
use route::{End, Route};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct SteeringConfig {
    /// The address of the gateway, to which peers send datagrams; port 0 selects any free port.
    pub listen: SocketAddr,
    /// The address of the delegation server.
    pub server: SocketAddr,
    /// The address of the device.
    pub device: SocketAddr,
    /// Maximum number of remotes (peers that send datagrams to the gateway). Each remote has one socket to the server
    /// and one to the device, if it uses both. A further remote replaces the remote that has been silent for the
    /// longest time. Remotes that have received no ServerHello are replaced first.
    pub max_remotes: usize,
    /// The time without datagrams after which the gateway forgets a remote (a peer that sends datagrams to the
    /// gateway).
    pub idle: Duration,
}

/// The reason why a gateway could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The gateway cannot listen at the address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The server or the device has the address of the gateway, so the gateway would send to itself.
    #[error("{end} is the address of the gateway itself: name the address of the server and of the device")]
    Loop {
        /// The address of the server or device.
        end: SocketAddr,
    },
    /// The socket of the gateway failed.
    #[error("the system refuses what a gateway needs: {0}")]
    System(#[from] io::Error),
}

/// A function that takes the address of a server or device that refuses datagrams. The gateway calls this function at
/// the first refusal. It calls the function at a later refusal only if a datagram from that address came in the
/// meantime.
pub type RefusedSink = Arc<dyn Fn(SocketAddr) + Send + Sync>;

/// The counts of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SteeringTotals {
    /// The number of new remotes (peers that send datagrams to the gateway).
    pub remotes: u64,
    /// The number of datagrams sent to the server.
    pub to_server: u64,
    /// The number of datagrams sent to the device.
    pub to_device: u64,
    /// The number of datagrams sent to remotes (peers).
    pub to_remotes: u64,
    /// The number of datagrams that the system did not send.
    pub unsent: u64,
}

/// Maximum length of a UDP datagram, in bytes. The flight of a server with certificates may be one datagram.
const LONGEST_DATAGRAM: usize = 65_535;
/// The time until a task receives again after an error of the system.
const PAUSE: Duration = Duration::from_millis(100);

/// An open gateway.
pub struct Steering {
    config: SteeringConfig,
    shared: Arc<Shared>,
    remotes: HashMap<SocketAddr, Remote>,
}

/// The state that the tasks of all remotes share.
struct Shared {
    socket: UdpSocket,
    on_refused: RefusedSink,
    /// Index 0 is true if the server refused the last datagram that the gateway sent to it. Index 1 is true if the
    /// device refused the last datagram that the gateway sent to it.
    refused: [AtomicBool; 2],
    remotes: AtomicU64,
    to_server: AtomicU64,
    to_device: AtomicU64,
    to_remotes: AtomicU64,
    unsent: AtomicU64,
}

impl Shared {
    const fn new(socket: UdpSocket, on_refused: RefusedSink) -> Self {
        let [remotes, to_server, to_device, to_remotes, unsent] = [const { AtomicU64::new(0) }; 5];
        let refused = [const { AtomicBool::new(false) }; 2];
        Self { socket, on_refused, refused, remotes, to_server, to_device, to_remotes, unsent }
    }

    /// Notes that the server or the device (`end`) accepts or refuses datagrams. Calls the [`RefusedSink`] with
    /// `address` if `end` refuses a datagram now, and did not refuse the previous datagram.
    fn note(&self, end: End, address: SocketAddr, is_refused: bool) {
        let [server, device] = &self.refused;
        let refused = if end == End::Server { server } else { device };
        if refused.load(Ordering::Relaxed) != is_refused && !refused.swap(is_refused, Ordering::Relaxed) {
            (self.on_refused)(address);
        }
    }

    /// Counts a datagram that was sent, or that the system did not send.
    fn count(&self, is_sent: bool, sent: &AtomicU64) {
        let count = if is_sent { sent } else { &self.unsent };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn totals(&self) -> SteeringTotals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SteeringTotals {
            remotes: of(&self.remotes),
            to_server: of(&self.to_server),
            to_device: of(&self.to_device),
            to_remotes: of(&self.to_remotes),
            unsent: of(&self.unsent),
        }
    }
}

/// A remote (a peer that sends datagrams to the gateway), and the gateway's two sockets for this remote: one to the
/// delegation server and one to the device.
struct Remote {
    known: Arc<Mutex<Known>>,
    server: Option<Upstream>,
    device: Option<Upstream>,
}

struct Known {
    route: Route,
    last: Instant,
}

/// The socket of the gateway to the server or the device for one remote (peer), and the task that forwards datagrams
/// from the server or the device to this remote.
struct Upstream {
    socket: Arc<UdpSocket>,
    carrying: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

impl Steering {
    /// Opens the socket. Call this within a Tokio runtime.
    ///
    /// # Errors
    /// [`SteeringError::Bind`], and [`SteeringError::Loop`] if the server or the device has the address of the gateway.
    pub async fn open(config: SteeringConfig, on_refused: RefusedSink) -> Result<Self, SteeringError> {
        let socket = UdpSocket::bind(config.listen).await;
        let socket = socket.map_err(|source| BindError::new(config.listen, source))?;
        let own = socket.local_addr()?;
        let is_own = |end: &SocketAddr| {
            let is_here = own.ip() == end.ip() || own.ip().is_unspecified() && end.ip().to_canonical().is_loopback();
            is_here && own.port() == end.port()
        };
        if let Some(end) = [config.server, config.device].into_iter().find(is_own) {
            return Err(SteeringError::Loop { end });
        }
        Ok(Self { config, shared: Arc::new(Shared::new(socket, on_refused)), remotes: HashMap::new() })
    }

    /// Returns the address of the gateway, to which peers send datagrams.
    ///
    /// # Errors
    /// The error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// Forwards datagrams until `stop` is ready.
    ///
    /// # Errors
    /// [`SteeringError::System`].
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<SteeringTotals, SteeringError> {
        let mut stop = std::pin::pin!(stop);
        let mut datagram = vec![0; LONGEST_DATAGRAM];
        let every = self.config.idle.clamp(Duration::from_millis(100), Duration::from_secs(10));
        let mut look = tokio::time::interval(every);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(self.shared.totals()),
                received = self.shared.socket.recv_from(&mut datagram) => match received {
                    Ok((len, from)) => self.forward(from, &mut datagram[..len]).await,
                    Err(error) if is_of_one_remote(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                _ = look.tick() => self.forget_silent(),
            }
        }
    }

    /// Forwards a datagram of a remote (a peer) to the server or the device.
    async fn forward(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let now = Instant::now();
        if !self.remotes.contains_key(&from) {
            self.make_room();
            self.shared.remotes.fetch_add(1, Ordering::Relaxed);
        }
        let (shared, config) = (&self.shared, &self.config);
        let remote = self.remotes.entry(from).or_insert_with(|| Remote {
            known: Arc::new(Mutex::new(Known { route: Route::default(), last: now })),
            server: None,
            device: None,
        });
        let end = {
            let mut known = lock(&remote.known);
            known.last = now;
            known.route.of(datagram)
        };
        let (upstream, address, sent) = match end {
            End::Server => (&mut remote.server, config.server, &shared.to_server),
            End::Device => (&mut remote.device, config.device, &shared.to_device),
        };
        if upstream.is_none()
            && let Ok(socket) = udp::connect(address).await.map(Arc::new)
        {
            let carry = carry(shared.clone(), remote.known.clone(), (end, address, socket.clone()), from);
            *upstream = Some(Upstream { socket, carrying: tokio::spawn(carry) });
        }
        let is_sent = match upstream {
            Some(upstream) => match upstream.socket.send(datagram).await {
                Ok(_) => true,
                Err(error) => {
                    // The error is of a datagram before this one.
                    if is_of_one_remote(&error) {
                        shared.note(end, address, true);
                    }
                    false
                }
            },
            None => false,
        };
        shared.count(is_sent, sent);
    }

    /// Removes one remote if the number of remotes has reached its maximum.
    fn make_room(&mut self) {
        if self.remotes.len() < self.config.max_remotes.max(1) {
            return;
        }
        let least = self.remotes.iter().min_by_key(|(_, remote)| {
            let known = lock(&remote.known);
            (known.route.is_accepted(), known.last)
        });
        if let Some(address) = least.map(|(address, _)| *address) {
            self.remotes.remove(&address);
        }
    }

    fn forget_silent(&mut self) {
        let (idle, now) = (self.config.idle, Instant::now());
        self.remotes.retain(|_, remote| now.duration_since(lock(&remote.known).last) < idle);
    }
}

/// Forwards the datagrams of the server or the device to a remote (a peer).
async fn carry(
    shared: Arc<Shared>,
    known: Arc<Mutex<Known>>,
    (end, address, socket): (End, SocketAddr, Arc<UdpSocket>),
    remote: SocketAddr,
) {
    let mut datagram = vec![0; LONGEST_DATAGRAM];
    loop {
        match socket.recv(&mut datagram).await {
            Ok(len) => {
                let datagram = &mut datagram[..len];
                shared.note(end, address, false);
                {
                    let mut known = lock(&known);
                    known.last = Instant::now();
                    known.route.answered(end, datagram);
                }
                let is_sent = shared.socket.send_to(datagram, remote).await.is_ok();
                shared.count(is_sent, &shared.to_remotes);
            }
            Err(error) if is_of_one_remote(&error) => shared.note(end, address, true),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// True for an error that reports that an earlier datagram did not arrive. The socket itself can still be used.
fn is_of_one_remote(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
