//! UDP sockets that receive and send datagrams in batches. A system call for each datagram would cost more than the
//! processing of the datagram.

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Size of the buffer of one received message, in bytes. The kernel can join several datagrams of one neighbour in this
/// buffer.
const RECEIVE_BUFFER: usize = 64 * 1024;
/// Maximum number of bytes that one system call sends as datagrams of equal size to one neighbour.
const MOST_BYTES: usize = 60_000;
/// Number of waiting bytes at which the waiting datagrams are sent at once.
const ENOUGH: usize = 4 * MOST_BYTES;

/// A UDP socket of a node, with the datagrams that wait until [`Port::flush`] sends them.
pub(crate) struct Port {
    io: UdpSocket,
    state: UdpSocketState,
    waiting: RefCell<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    runs: Vec<Run>,
}

/// Datagrams to one neighbour, which one system call can send: all have the same size, but the last one may be shorter.
struct Run {
    to: SocketAddr,
    start: usize,
    end: usize,
    size: usize,
    count: usize,
}

impl Port {
    /// Opens a socket at this address.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(address).await?;
        let state = UdpSocketState::new((&io).into())?;
        #[cfg(target_os = "linux")]
        permit_fragments(&io, address)?;
        Ok(Self { io, state, waiting: RefCell::default() })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Waits until a datagram has arrived.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// Receives the datagrams that have arrived, with one system call.
    pub(crate) fn receive(&self, inbound: &mut Inbound) {
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = {
            let mut chunks = inbound.storage.chunks_exact_mut(RECEIVE_BUFFER);
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or(&mut [])))
        };
        // Fewer than the buffers could hold were all of them: the next call would only report `WouldBlock`.
        inbound.count = 0;
        let _ = self.io.try_io(Interest::READABLE, || {
            inbound.count = self.state.recv((&self.io).into(), &mut slices, &mut inbound.meta)?;
            if inbound.count < BATCH_SIZE { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
    }

    /// Adds a datagram to those that wait.
    pub(crate) fn push(&self, to: SocketAddr, datagram: &[u8]) {
        let mut waiting = self.waiting.borrow_mut();
        let Waiting { bytes, runs } = &mut *waiting;
        bytes.extend_from_slice(datagram);
        let (len, end) = (datagram.len(), bytes.len());
        match runs.last_mut() {
            Some(run) if run.takes(to, len, self.state.max_gso_segments()) => {
                run.end = end;
                run.count += 1;
            }
            _ => runs.push(Run { to, start: end - len, end, size: len, count: 1 }),
        }
        if end >= ENOUGH {
            self.send(&mut waiting);
        }
    }

    /// Sends the waiting datagrams. A datagram that the system does not take is lost, like a datagram that the
    /// network drops.
    pub(crate) fn flush(&self) {
        self.send(&mut self.waiting.borrow_mut());
    }

    fn send(&self, waiting: &mut Waiting) {
        for run in &waiting.runs {
            let contents = waiting.bytes.get(run.start..run.end).unwrap_or(&[]);
            let sent = self.try_send(run.to, contents, (run.count > 1).then_some(run.size));
            // The system refuses a run whose datagrams are longer than the MTU. It sends each of them in fragments.
            if run.count > 1 && sent.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                for datagram in contents.chunks(run.size.max(1)) {
                    let _ = self.try_send(run.to, datagram, None);
                }
            }
        }
        waiting.bytes.clear();
        waiting.runs.clear();
    }

    /// Sends `contents` as one datagram, or as datagrams of `segment_size` bytes.
    fn try_send(&self, destination: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        self.state.try_send((&self.io).into(), &transmit)
    }
}

/// Permits the system to send a datagram that is longer than the MTU of the path in fragments of IP, which
/// [`UdpSocketState::new`] forbids.
#[cfg(target_os = "linux")]
fn permit_fragments(io: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::Ipv6DontFrag};
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    };
    // A socket of IPv6 can also have IPv4 neighbours, so it has the options of both.
    set_ip_mtu_discover(io, Ipv4PathMtuDiscovery::WANT)?;
    if address.is_ipv6() {
        set_ipv6_mtu_discover(io, Ipv6PathMtuDiscovery::WANT)?;
        setsockopt(io, Ipv6DontFrag, &false)?;
    }
    Ok(())
}

impl Run {
    /// Returns true if a datagram of `len` bytes can be the next one. `most` is the maximum number of datagrams.
    fn takes(&self, to: SocketAddr, len: usize, most: usize) -> bool {
        let bytes = self.end - self.start;
        // If the last datagram is shorter than the others, it must stay the last one.
        let is_open = bytes == self.count * self.size && self.count < most && bytes + len <= MOST_BYTES;
        is_open && self.to == to && (1..=self.size).contains(&len)
    }
}

/// The buffer for received datagrams.
pub(crate) struct Inbound {
    storage: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    count: usize,
}

impl Default for Inbound {
    fn default() -> Self {
        Self { storage: vec![0; RECEIVE_BUFFER * BATCH_SIZE], meta: [RecvMeta::default(); BATCH_SIZE], count: 0 }
    }
}

impl Inbound {
    /// Returns the datagrams that were received last, each with the address of its sender.
    pub(crate) fn datagrams(&mut self) -> impl Iterator<Item = (SocketAddr, &mut [u8])> {
        let buffers = self.storage.chunks_exact_mut(RECEIVE_BUFFER);
        self.meta.iter().take(self.count).zip(buffers).flat_map(|(meta, buffer)| {
            let bytes = buffer.get_mut(..meta.len).unwrap_or(&mut []);
            bytes.chunks_mut(meta.stride.max(1)).map(move |datagram| (meta.addr, datagram))
        })
    }
}

#[cfg(test)]
mod tests;
