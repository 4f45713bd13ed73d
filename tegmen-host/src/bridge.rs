//! A bridge between the serial line of a mote and UDP.
//!
//! The mote speaks IPv6 in SLIP frames ([`tegmen_lowpan::slip`]). The bridge gives the mote a random seed and an
//! address, because the mote has neither, and forwards the mote's datagrams. For a mote that is a client, the bridge
//! opens a UDP socket for each port of the mote, and connects this socket to the server in [`BridgeConfig::peer`]. For
//! a mote that is a server, each address in [`BridgeConfig::listen`] represents one port of the mote. UDP endpoints
//! (remotes) send datagrams to these addresses. The packets to the mote contain the address of the remote as their
//! source, so that the mote can distinguish the remotes. The bridge never reads the payload.

mod line;

pub use line::{Line, LineError};

use crate::udp::{self, BindError};
use line::Ends;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tegmen::address::{Address, Path};
use tegmen::buf::Writer;
use tegmen::secret::Secret;
use tegmen_lowpan::ip::{self, Datagram};
use tegmen_lowpan::slip::{self, Control, Decoder, Start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use zeroize::Zeroize as _;

/// The settings of a bridge.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The serial line of the mote.
    pub line: Line,
    /// The address of the server that a client mote contacts. `None` if the mote contacts no server.
    pub peer: Option<SocketAddr>,
    /// For a mote that is a server: the addresses of the bridge to which UDP endpoints send datagrams for the mote.
    pub listen: Vec<Forward>,
    /// The address that the bridge gives to the mote.
    pub mote: Ipv6Addr,
    /// Maximum length in bytes of a UDP payload for the mote. Longer payloads are dropped and counted.
    pub max_datagram: usize,
    /// Maximum number of remotes (UDP endpoints that exchange datagrams with the mote). A further remote replaces the
    /// remote that was silent for the longest time.
    pub max_remotes: usize,
    /// The time of silence after which the bridge forgets a remote (a UDP endpoint), or closes the socket of a port of
    /// a client mote.
    pub idle: Duration,
}

/// An address of the bridge that represents a port of the mote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The address to which UDP endpoints send datagrams for the port of the mote; port 0 selects any free port.
    pub address: SocketAddr,
    /// The mote's port.
    pub mote_port: u16,
}

impl BridgeConfig {
    /// Returns the default settings of a bridge for a mote on this serial line. The settings contain no server for the
    /// mote to contact, and no UDP address at which the bridge receives datagrams for the mote.
    pub fn new(line: Line) -> Self {
        Self {
            line,
            peer: None,
            listen: Vec::new(),
            mote: MOTE,
            max_datagram: MAX_DATAGRAM,
            max_remotes: 256,
            idle: Duration::from_secs(3600),
        }
    }
}

/// The default address of a mote (RFC 4193).
pub const MOTE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// The size of the receive buffer of Tegmen's motes in bytes, without headers.
pub const MAX_DATAGRAM: usize = 320;

/// The reason why the bridge could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The serial line cannot be opened.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The bridge cannot listen at an address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The serial line was closed while the bridge was running. The text is the reason.
    #[error("the line to the mote ended: {0}")]
    Ended(String),
    /// The system gives no socket or no randomness.
    #[error("the system refuses what a bridge needs: {0}")]
    System(#[source] io::Error),
}

/// The reason why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The payload is longer than the buffers of the mote.
    Oversized {
        /// The length of the payload in bytes.
        len: usize,
    },
    /// The mote sent an invalid datagram, a datagram with a source address that is not the mote's, or a frame that was
    /// damaged on the serial line.
    Refused,
    /// The mote sent to an address that is not [`BridgeConfig::peer`], and from which the mote never received a
    /// datagram.
    Unroutable,
    /// The system did not send the datagram.
    Unsent,
}

/// An event that a bridge reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The mote started, and got its seed and address.
    Started {
        /// The number of starts. More than one start means that the mote restarted and lost its sessions.
        times: u64,
    },
    /// A remote (a UDP endpoint) with this address sent a datagram to the mote for the first time.
    Remote(SocketAddr),
    /// The bridge forgot a remote (a UDP endpoint), because the remote was silent or another remote replaced it.
    Forgotten(SocketAddr),
    /// An ICMP message reported that no program listens at the port of the mote's peer.
    PeerRefused(SocketAddr),
    /// The bridge dropped a datagram. The bridge reports the first, the second, the fourth, the eighth dropped datagram
    /// of each kind, and so on.
    Dropped {
        /// The reason.
        why: Dropped,
        /// The number of dropped datagrams of this kind.
        count: u64,
    },
}

/// A function that takes the events of a bridge, for its operator.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// The counts of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Number of times that the mote started.
    pub started: u64,
    /// The number of datagrams from UDP endpoints that the bridge sent to the mote.
    pub to_mote: u64,
    /// The number of datagrams of the mote that the bridge sent to UDP endpoints.
    pub from_mote: u64,
    /// The number of datagrams that were dropped for the reason [`Dropped::Oversized`].
    pub oversized: u64,
    /// The number of datagrams and damaged frames that were dropped for the reason [`Dropped::Refused`].
    pub refused: u64,
    /// The number of datagrams that were dropped for the reason [`Dropped::Unroutable`].
    pub unroutable: u64,
    /// The number of datagrams that were dropped for the reason [`Dropped::Unsent`].
    pub unsent: u64,
}

/// An open bridge.
pub struct Bridge {
    config: BridgeConfig,
    events: EventSink,
    line: Ends,
    /// The sockets. The sockets for [`BridgeConfig::listen`] come first, and then the sockets of a client mote.
    ports: Vec<Port>,
    remotes: HashMap<Remote, Known>,
    totals: Totals,
    /// The index of the socket that the bridge polls first when it next receives a datagram.
    turn: usize,
}

/// A socket that represents a port of the mote.
struct Port {
    socket: UdpSocket,
    mote_port: u16,
    /// The time of the last datagram. A socket of a client mote is closed if it is not used for [`BridgeConfig::idle`].
    last: Instant,
}

/// The key of a remote (a UDP endpoint) in the tables of the bridge: the port of the mote to which the remote sends,
/// and the address of the remote in the packets to the mote.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Remote {
    mote_port: u16,
    address: Address,
}

struct Known {
    address: SocketAddr,
    /// The index of the socket to which the remote sends.
    port: usize,
    last: Instant,
}

/// Maximum number of ports of a client mote.
const MAX_CLIENT_PORTS: usize = 8;
const RECEIVE_BUFFER: usize = 2048;
/// The default hop limit of a host (RFC 4861).
const HOP_LIMIT: u8 = 64;

impl Bridge {
    /// Opens the serial line and the sockets. Call this within a Tokio runtime.
    ///
    /// # Errors
    /// [`BridgeError`], whose text names the cause.
    pub async fn open(config: BridgeConfig, events: EventSink) -> Result<Self, BridgeError> {
        let mut ports = Vec::new();
        for forward in &config.listen {
            let socket = UdpSocket::bind(forward.address).await;
            let socket = socket.map_err(|source| BindError::new(forward.address, source))?;
            ports.push(Port { socket, mote_port: forward.mote_port, last: Instant::now() });
        }
        let line = config.line.open().await?;
        let (remotes, totals) = (HashMap::new(), Totals::default());
        Ok(Self { config, events, line, ports, remotes, totals, turn: 0 })
    }

    /// Returns the addresses at which the bridge listens, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Forward> {
        let listens = self.ports.iter().take(self.config.listen.len());
        let forward =
            |port: &Port| Some(Forward { address: port.socket.local_addr().ok()?, mote_port: port.mote_port });
        listens.filter_map(forward).collect()
    }

    /// Forwards datagrams until `stop` is ready.
    ///
    /// # Errors
    /// [`BridgeError::Ended`] if the connection to the mote ends before `stop` is ready.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Totals, BridgeError> {
        // The line may block for as long as the mote sleeps; the end is heard even so.
        let carried = tokio::select! {
            () = stop => Ok(()),
            ended = self.carry() => ended,
        };
        self.line.end().await;
        carried.map(|()| self.totals)
    }

    async fn carry(&mut self) -> Result<(), BridgeError> {
        let mut storage = vec![0; ip::HEADROOM + RECEIVE_BUFFER];
        let mut frames = Decoder::new(&mut storage);
        let (mut serial, mut udp) = ([0; 1024], vec![0; RECEIVE_BUFFER]);
        let mut look =
            tokio::time::interval(self.config.idle.clamp(Duration::from_millis(100), Duration::from_secs(10)));
        loop {
            tokio::select! {
                read = self.line.reader.read(&mut serial) => {
                    let len = match read {
                        Ok(0) => return Err(BridgeError::Ended(self.line.epitaph().await)),
                        Ok(len) => len,
                        Err(error) => return Err(BridgeError::Ended(error.to_string())),
                    };
                    for byte in &serial[..len] {
                        let damaged = frames.dropped();
                        if let Some(frame) = frames.push(*byte) {
                            self.on_frame(frame).await?;
                        } else if frames.dropped() != damaged {
                            self.discard(Dropped::Refused);
                        }
                    }
                }
                (port, remote, len) = receive(&self.ports, &mut self.turn, &mut udp) => {
                    match remote {
                        Ok(remote) => self.on_datagram(port, remote, &udp[..len]).await?,
                        Err(error) => self.on_socket_error(&error),
                    }
                }
                _ = look.tick() => self.forget_silent(),
            }
        }
    }

    /// Handles a frame from the mote.
    async fn on_frame(&mut self, frame: &mut [u8]) -> Result<(), BridgeError> {
        if let Ok(Control::SeedPlease) = Control::parse(frame) {
            return self.start_mote().await;
        }
        match Datagram::parse(frame) {
            Ok(datagram) if datagram.path.remote.ip == self.config.mote.octets() => {
                self.send(datagram.path, datagram.payload).await
            }
            _ => {
                self.discard(Dropped::Refused);
                Ok(())
            }
        }
    }

    /// Answers the start message of the mote with a seed and an address. Each seed is drawn from the system, sent once
    /// and wiped, so no seed is used twice.
    async fn start_mote(&mut self) -> Result<(), BridgeError> {
        let mut seed = Secret::zeroed();
        getrandom::fill(seed.expose_mut()).map_err(|error| BridgeError::System(io::Error::other(error.to_string())))?;
        let peer = self.config.peer.map(plain_address);
        let start = Control::Start(Start { seed, ip: self.config.mote.octets(), peer });
        let mut storage = [0; Control::MAX_LEN];
        let mut writer = Writer::new(&mut storage);
        if start.write(&mut writer).is_ok() {
            let mut encoded: Vec<u8> = Vec::with_capacity(slip::max_encoded_len(Control::MAX_LEN));
            encoded.extend(slip::encode(writer.written()));
            let written = self.write(&encoded).await;
            encoded.zeroize();
            storage.zeroize();
            written?;
        }
        self.totals.started += 1;
        (self.events)(Event::Started { times: self.totals.started });
        Ok(())
    }

    /// Sends a datagram of the mote to a remote (a UDP endpoint) that sent to this port of the mote before, or to
    /// [`BridgeConfig::peer`].
    async fn send(&mut self, path: Path, payload: &[u8]) -> Result<(), BridgeError> {
        let Path { local: destination, remote: source } = path;
        let sent = match self.remotes.get(&Remote { mote_port: source.port, address: destination }) {
            Some(known) => match self.ports.get(known.port) {
                Some(port) => port.socket.send_to(payload, known.address).await,
                None => Ok(0),
            },
            None => match self.config.peer {
                Some(peer) if plain_address(peer) == destination => {
                    let port = self.client_port(source.port, peer).await?;
                    port.last = Instant::now();
                    port.socket.send(payload).await
                }
                _ => {
                    self.discard(Dropped::Unroutable);
                    return Ok(());
                }
            },
        };
        match sent {
            Ok(_) => self.totals.from_mote += 1,
            Err(error) => {
                self.on_socket_error(&error);
                self.discard(Dropped::Unsent);
            }
        }
        Ok(())
    }

    /// Returns the socket for a port of a client mote. Opens the socket if there is none.
    async fn client_port(&mut self, mote_port: u16, peer: SocketAddr) -> Result<&mut Port, BridgeError> {
        let listening = self.config.listen.len();
        let known = self.ports.iter().skip(listening).position(|port| port.mote_port == mote_port);
        let at = match known {
            Some(at) => listening + at,
            None => {
                let socket = udp::connect(peer).await.map_err(BridgeError::System)?;
                if self.ports.len() - listening >= MAX_CLIENT_PORTS {
                    let oldest = (listening..self.ports.len()).min_by_key(|&at| self.ports[at].last);
                    self.ports.swap_remove(oldest.unwrap_or(listening));
                }
                self.ports.push(Port { socket, mote_port, last: Instant::now() });
                self.ports.len() - 1
            }
        };
        Ok(&mut self.ports[at])
    }

    /// Sends a datagram over the serial line to the mote, as if `remote` had sent it to the mote's own address.
    async fn on_datagram(&mut self, port: usize, remote: SocketAddr, payload: &[u8]) -> Result<(), BridgeError> {
        if payload.len() > self.config.max_datagram {
            self.discard(Dropped::Oversized { len: payload.len() });
            return Ok(());
        }
        let Some(Port { mote_port, last, .. }) = self.ports.get_mut(port) else { return Ok(()) };
        *last = Instant::now();
        let mote_port = *mote_port;
        let address = plain_address(remote);
        if port < self.config.listen.len() {
            self.remember(Remote { mote_port, address }, Known { address: remote, port, last: Instant::now() });
        }
        let mote = Address { ip: self.config.mote.octets(), port: mote_port, scope: 0 };
        let Ok(headers) = ip::headers(&Path { local: address, remote: mote }, HOP_LIMIT, payload) else {
            return Ok(());
        };
        let frame: Vec<u8> = slip::encode(headers.iter().chain(payload)).collect();
        self.write(&frame).await?;
        self.totals.to_mote += 1;
        Ok(())
    }

    fn remember(&mut self, remote: Remote, known: Known) {
        let address = known.address;
        if let Some(old) = self.remotes.get_mut(&remote) {
            *old = known;
            return;
        }
        if self.remotes.len() >= self.config.max_remotes.max(1) {
            let oldest = self.remotes.iter().min_by_key(|(_, known)| known.last).map(|(remote, _)| *remote);
            if let Some(displaced) = oldest.and_then(|oldest| self.remotes.remove(&oldest)) {
                (self.events)(Event::Forgotten(displaced.address));
            }
        }
        self.remotes.insert(remote, known);
        (self.events)(Event::Remote(address));
    }

    fn forget_silent(&mut self) {
        let (idle, now, events) = (self.config.idle, Instant::now(), &self.events);
        self.remotes.retain(|_, known| {
            let keep = now.duration_since(known.last) < idle;
            if !keep {
                events(Event::Forgotten(known.address));
            }
            keep
        });
        let mut listening = self.config.listen.len();
        self.ports.retain(|port| {
            let listens = listening > 0;
            listening = listening.saturating_sub(1);
            listens || now.duration_since(port.last) < idle
        });
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), BridgeError> {
        let writer = &mut self.line.writer;
        let written = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        written.await.map_err(|error| BridgeError::Ended(error.to_string()))
    }

    /// Handles an error of the system for one datagram. The error does not affect other datagrams.
    fn on_socket_error(&self, error: &io::Error) {
        if let (ErrorKind::ConnectionRefused, Some(peer)) = (error.kind(), self.config.peer) {
            (self.events)(Event::PeerRefused(peer));
        }
    }

    fn discard(&mut self, why: Dropped) {
        let count = match why {
            Dropped::Oversized { .. } => &mut self.totals.oversized,
            Dropped::Refused => &mut self.totals.refused,
            Dropped::Unroutable => &mut self.totals.unroutable,
            Dropped::Unsent => &mut self.totals.unsent,
        };
        *count += 1;
        if count.is_power_of_two() {
            (self.events)(Event::Dropped { why, count: *count });
        }
    }
}

/// Converts a socket address to the form in which packets contain addresses: the 16 bytes of the IPv6 address, and the
/// port. The zone of a link-local address is left out.
fn plain_address(address: SocketAddr) -> Address {
    Address { scope: 0, ..Address::from(address) }
}

/// Waits for a datagram at any of the sockets. Returns the index of the socket, the sender, and the length in bytes.
/// `turn` advances by one socket each time, so that a busy socket does not delay the others.
async fn receive(ports: &[Port], turn: &mut usize, buffer: &mut [u8]) -> (usize, io::Result<SocketAddr>, usize) {
    let poll = |cx: &mut Context<'_>| {
        for step in 0..ports.len() {
            let at = (*turn + step) % ports.len();
            let Some(port) = ports.get(at) else { continue };
            let mut space = ReadBuf::new(buffer);
            if let Poll::Ready(received) = port.socket.poll_recv_from(cx, &mut space) {
                *turn = at + 1;
                return Poll::Ready((at, received, space.filled().len()));
            }
        }
        Poll::Pending
    };
    std::future::poll_fn(poll).await
}

#[cfg(test)]
mod tests;
