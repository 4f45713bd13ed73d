//! UDP sockets that receive and send datagrams in batches. A system call for each datagram would cost more than the
//! processing of the datagram.

mod watched;

use crate::group::Group;
#[cfg(target_os = "linux")]
use nix::sys::socket::{
    setsockopt,
    sockopt::{Ipv4PacketInfo, Ipv6DontFrag, Ipv6RecvPacketInfo, ReceiveTimestampns},
};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
#[cfg(target_os = "linux")]
use rustix::net::{
    MMsgHdr, SendAncillaryBuffer, SendFlags,
    addr::SocketAddrArg,
    sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery},
};
use socket2::{Domain, Protocol, Socket as Socket2, Type};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};
#[cfg(target_os = "linux")]
use std::{array, io::IoSlice};
use tegmen::address::{Address, Path};
use tokio::net::UdpSocket;
use watched::Watched;

/// Maximum number of bytes of a datagram that is received or sent.
pub const MAX_DATAGRAM: usize = 2048;
/// Size of the buffer of one receive call, in bytes. The kernel can join several datagrams of one sender in this
/// buffer.
const RECEIVE_BUFFER: usize = 64 * 1024;
const SOCKET_BUFFER: usize = 4 << 20;
/// Maximum number of datagrams to different peers that one system call sends.
#[cfg(target_os = "linux")]
const SEND_BATCH: usize = 32;
/// The error number ENODEV of the system.
const NO_SUCH_DEVICE: i32 = 19;
/// The error number EMSGSIZE of the system.
pub(crate) const TOO_LONG: i32 = 90;

/// A bound UDP socket.
pub struct Socket {
    io: Watched,
    state: UdpSocketState,
    local: SocketAddr,
    /// For a socket that receives requests to a group: the local address that the [`Path`] of each received datagram
    /// contains. If the requests are in clear, this is the bound address of the socket that answers. If Axiom protects
    /// the group, this is the address of the group. `None` for any other socket.
    in_group: Option<Address>,
}

/// The reason why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket is already bound to the port at this address.
    #[error("{address} is in use: end the program that has it (`ss -ulpn 'sport = :{}'` names it) or choose another port", address.port())]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not an address of this machine.
    #[error("{address} is not an address of this machine: `ip address` lists those that are")]
    NotOurs {
        /// The address.
        address: SocketAddr,
    },
    /// The process lacks the privilege for a port below 1024.
    #[error("{address} needs a privilege: choose a port above 1023, or `setcap cap_net_bind_service=+ep` the program")]
    Forbidden {
        /// The address.
        address: SocketAddr,
    },
    /// The group cannot be joined, because no network interface is suitable.
    #[error("the group {group} cannot be joined ({source}): name an interface that is up, as in {ip}%eth0", ip = group.ip)]
    NoInterface {
        /// The group.
        group: Group,
        /// The error of the system.
        source: io::Error,
    },
    /// The server is configured to join a group, but has no socket that could send its responses to the requests.
    #[error("nothing answers the group {group}: serve plain CoAP (--plain) at an address of the same family")]
    NobodyAnswers {
        /// The group.
        group: Group,
    },
    /// The system refuses the socket for a reason that no other variant names.
    #[error("cannot listen at {address}: {source}")]
    Other {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

impl BindError {
    pub(crate) fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::AddrInUse => Self::InUse { address },
            ErrorKind::AddrNotAvailable => Self::NotOurs { address },
            ErrorKind::PermissionDenied => Self::Forbidden { address },
            _ => Self::Other { address, source },
        }
    }
}

impl Socket {
    /// Binds a socket to `address`. With `shared`, several sockets of this process can have the same address, and the
    /// kernel distributes the peers among them.
    ///
    /// # Errors
    /// [`BindError`], whose text usually proposes a remedy.
    pub fn bind(address: SocketAddr, shared: bool) -> Result<Self, BindError> {
        let open = || -> io::Result<Self> {
            let socket = Socket2::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            #[cfg(unix)]
            socket.set_reuse_port(shared)?;
            #[cfg(not(unix))]
            let _ = shared;
            prepare(&socket, address)?;
            // As much as the system allows: a burst of a whole fleet must not be lost here.
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
            let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
            socket.bind(&address.into())?;
            Self::new(socket, None)
        };
        open().map_err(|source| BindError::new(address, source))
    }

    /// Binds a socket to `address`, to which no other socket may be bound yet; port 0 takes any free port. Afterwards
    /// [`Self::bind`] with `shared` can bind other sockets of the same operating-system user to the same port.
    ///
    /// [`Self::bind`] with port 0 and `shared` is not enough for the first socket: the system may choose a port that
    /// another shared socket already has.
    ///
    /// # Errors
    /// [`BindError`], whose text usually proposes a remedy.
    pub fn bind_first(address: SocketAddr) -> Result<Self, BindError> {
        let socket = Self::bind(address, false)?;
        #[cfg(unix)]
        socket2::SockRef::from(socket.io.socket())
            .set_reuse_port(true)
            .map_err(|source| BindError::new(address, source))?;
        Ok(socket)
    }

    /// Takes a socket that another program bound. The socket keeps its buffer sizes, because that program may have had
    /// the right to larger buffers. With `beside_groups`, sockets that receive requests to groups may be bound to the
    /// same port.
    ///
    /// # Errors
    /// [`BindError`], whose text usually proposes a remedy.
    pub fn inherit(socket: std::net::UdpSocket, beside_groups: bool) -> Result<Self, BindError> {
        let unspecified = SocketAddr::from(([0; 4], 0));
        let address = socket.local_addr().map_err(|source| BindError::new(unspecified, source))?;
        let socket = Socket2::from(socket);
        let take = move || -> io::Result<Self> {
            #[cfg(unix)]
            socket.set_cloexec(true)?;
            if beside_groups {
                socket.set_reuse_address(true)?;
            }
            prepare(&socket, address)?;
            Self::new(socket, None)
        };
        take().map_err(|source| BindError::new(address, source))
    }

    /// Joins a group, and returns a socket that receives the datagrams to the group at this port. The socket that is
    /// bound to `answers_from` sends the responses.
    ///
    /// # Errors
    /// [`BindError`], whose text usually proposes a remedy.
    pub fn join(group: &Group, port: u16, answers_from: SocketAddr) -> Result<Self, BindError> {
        Self::join_as(group, group.at(port), answers_from.into())
    }

    /// Joins a group that Axiom protects, and returns a socket that receives the datagrams to this address of the
    /// group.
    ///
    /// # Errors
    /// [`BindError`], whose text usually proposes a remedy.
    pub(crate) fn join_protected(group: &Group, address: &Address) -> Result<Self, BindError> {
        Self::join_as(group, group.at(address.port), *address)
    }

    /// Joins a group, and returns its socket. `local` becomes the local address in the path of each received datagram.
    fn join_as(group: &Group, address: SocketAddr, local: Address) -> Result<Self, BindError> {
        let open = || -> io::Result<Self> {
            let socket = group.receiver(address)?;
            Self::new(socket, Some(local))
        };
        open().map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::NetworkUnreachable => {
                BindError::NoInterface { group: group.clone(), source }
            }
            _ if source.raw_os_error() == Some(NO_SUCH_DEVICE) => {
                BindError::NoInterface { group: group.clone(), source }
            }
            _ => BindError::new(address, source),
        })
    }

    fn new(socket: Socket2, in_group: Option<Address>) -> io::Result<Self> {
        let io = std::net::UdpSocket::from(socket);
        let state = UdpSocketState::new((&io).into())?;
        let local = io.local_addr()?;
        #[cfg(target_os = "linux")]
        {
            // `UdpSocketState::new` asks for probes of the path, which ignore its MTU, and forbids fragments.
            sockopt::set_ip_mtu_discover(&io, Ipv4PathMtuDiscovery::DO)?;
            if local.is_ipv6() {
                // An IPv6 packet without fragments has no identification, so fragments can be permitted at any time.
                sockopt::set_ipv6_mtu_discover(&io, Ipv6PathMtuDiscovery::WANT)?;
                setsockopt(&io, Ipv6DontFrag, &false)?;
            }
            report_less(&io, in_group.is_none() && local.ip().is_unspecified())?;
        }
        Ok(Self { io: Watched::new(io)?, state, local, in_group })
    }

    /// Calls `send`, which sends datagrams through this socket. If the first of them is longer than its IPv4 path
    /// permits, calls `send` again while the system may send IPv4 datagrams in fragments. The system may always send
    /// IPv6 datagrams in fragments.
    ///
    /// At other times the system must not use fragments over IPv4, because it would then draw an identification for
    /// each datagram (RFC 6864, section 4.1).
    fn sending<T>(&self, send: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let sent = self.io.try_write(&send);
        #[cfg(target_os = "linux")]
        if sent.as_ref().is_err_and(|error| error.raw_os_error() == Some(TOO_LONG)) {
            sockopt::set_ip_mtu_discover(self.io.socket(), Ipv4PathMtuDiscovery::WANT)?;
            let sent = self.io.try_write(&send);
            sockopt::set_ip_mtu_discover(self.io.socket(), Ipv4PathMtuDiscovery::DO)?;
            return sent;
        }
        sent
    }

    /// Sends datagrams to multicast groups through the interface of `group`, if the group names an interface. Without an
    /// interface, the system selects it by the source address.
    ///
    /// # Errors
    /// [`BindError::NoInterface`].
    pub(crate) fn send_through(&self, group: &Group) -> Result<(), BindError> {
        group
            .select_interface(&socket2::SockRef::from(self.io.socket()))
            .map_err(|source| BindError::NoInterface { group: group.clone(), source })
    }

    /// True if this socket receives datagrams to a multicast group.
    pub const fn is_in_group(&self) -> bool {
        self.in_group.is_some()
    }

    /// Returns the bound address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// True if this socket receives datagrams to `local`. Several sockets can have the same port with different
    /// addresses.
    pub(crate) fn has(&self, local: &Address) -> bool {
        let bound = Address::from(self.local);
        self.in_group.is_none()
            && bound.port == local.port
            && (bound.ip == local.ip || self.local.ip().is_unspecified())
    }

    /// Returns [`Poll::Ready`] when the socket may have a datagram to receive.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_readable(cx)
    }

    /// Returns [`Poll::Ready`] when the socket may be able to send a datagram.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_writable(cx)
    }

    /// Ends the wait of a task that called [`Self::poll_writable`], and has sent its datagrams without the answer.
    pub(crate) fn end_wait(&self) {
        self.io.end_wait();
    }

    /// Sends one datagram without waiting, from the local address of `path`.
    ///
    /// # Errors
    /// The error of the system: [`ErrorKind::WouldBlock`] if the system cannot take the datagram now.
    pub(crate) fn try_send(&self, path: &Path, datagram: &[u8]) -> io::Result<()> {
        let from = SocketAddr::from(path.local).ip();
        let chosen = self.local.ip().is_unspecified() && !from.is_unspecified();
        let transmit = Transmit {
            destination: path.remote.into(),
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: chosen.then_some(from),
        };
        self.sending(|| self.state.try_send(self.io.socket().into(), &transmit))
    }

    /// Receives the datagrams that are waiting, and does not wait for more. Returns false if no datagram was waiting.
    ///
    /// # Errors
    /// The error of the system. An error of a single datagram is not returned.
    pub fn receive(&self, inbound: &mut Inbound) -> io::Result<bool> {
        inbound.paths.clear();
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = {
            let mut chunks = inbound.storage.chunks_exact_mut(RECEIVE_BUFFER);
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or(&mut [])))
        };
        // Fewer than the buffers could hold were all of them: the next call would only report `WouldBlock`.
        let mut taken = None;
        let outcome = self.io.try_read(|| {
            let count = *taken.insert(self.state.recv(self.io.socket().into(), &mut slices, &mut inbound.meta)?);
            if count < BATCH_SIZE { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        let count = match (taken, outcome) {
            (Some(count), _) => count,
            (None, Ok(())) => return Ok(false),
            (None, Err(error)) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // An ICMP answer to something we sent: it concerns that peer only.
            (None, Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return Ok(true),
            (None, Err(error)) => return Err(error),
        };
        if let Some(local) = self.in_group {
            inbound.paths.extend(inbound.meta.iter().take(count).map(|meta| Path { local, remote: meta.addr.into() }));
            return Ok(true);
        }
        let local = Address::from(self.local);
        inbound.paths.extend(inbound.meta.iter().take(count).map(|meta| {
            let ip = meta.dst_ip.map_or(local.ip, |ip| Address::from(SocketAddr::new(ip, 0)).ip);
            Path { local: Address { ip, ..local }, remote: meta.addr.into() }
        }));
        Ok(true)
    }
}

/// Stops the reports of the time and the congestion marks of received datagrams: [`UdpSocketState::new`] requests these
/// reports, and nobody reads them. Without `with_destination`, also stops the reports of the destination address.
#[cfg(target_os = "linux")]
fn report_less(io: &std::net::UdpSocket, with_destination: bool) -> io::Result<()> {
    // A system that does not know these two options reports nothing.
    let _ = setsockopt(io, ReceiveTimestampns, &false);
    let _ = sockopt::set_ip_recvtos(io, false);
    let is_ipv4 = io.local_addr()?.is_ipv4();
    if !is_ipv4 {
        sockopt::set_ipv6_recvtclass(io, false)?;
    }
    match (with_destination, is_ipv4) {
        (true, _) => {}
        (false, true) => setsockopt(io, Ipv4PacketInfo, &false)?,
        (false, false) => setsockopt(io, Ipv6RecvPacketInfo, &false)?,
    }
    Ok(())
}

/// Sets the options that a socket of a server needs for this address.
fn prepare(socket: &Socket2, address: SocketAddr) -> io::Result<()> {
    // What groups are sent goes to the sockets that joined them, and to no other.
    #[cfg(target_os = "linux")]
    match address.is_ipv4() {
        true => socket.set_multicast_all_v4(false)?,
        false => socket.set_multicast_all_v6(false)?,
    }
    #[cfg(not(target_os = "linux"))]
    let _ = address;
    socket.set_nonblocking(true)
}

/// The buffer for received datagrams.
pub struct Inbound {
    storage: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    paths: Vec<Path>,
}

impl Inbound {
    /// Returns the paths of the datagrams that were received last. If the kernel joined several datagrams of one
    /// sender, these datagrams have only one path in the result.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Returns the datagrams that were received last, each with its path.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (&Path, &mut [u8])> {
        let buffers = self.storage.chunks_exact_mut(RECEIVE_BUFFER);
        self.paths.iter().zip(&self.meta).zip(buffers).flat_map(|((path, meta), buffer)| {
            let bytes = buffer.get_mut(..meta.len).unwrap_or(&mut []);
            bytes.chunks_mut(meta.stride.max(1)).map(move |datagram| (path, datagram))
        })
    }
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            storage: vec![0; RECEIVE_BUFFER * BATCH_SIZE],
            meta: [RecvMeta::default(); BATCH_SIZE],
            paths: Vec::with_capacity(BATCH_SIZE),
        }
    }
}

/// A queue of datagrams that are sent together. Each datagram is built in the memory of the queue, without a copy.
#[derive(Default)]
pub struct Outbox {
    storage: Vec<u8>,
    /// For each datagram in the queue: its path, the index of its first byte in `storage`, and the index after its last
    /// byte.
    queue: Vec<(Path, usize, usize)>,
    end: usize,
}

impl Outbox {
    /// Returns memory for one more datagram. Only [`Self::queue`] puts the datagram into the queue.
    pub fn draft(&mut self) -> &mut [u8] {
        let needed = self.end + MAX_DATAGRAM;
        if self.storage.len() < needed {
            self.storage.resize(needed, 0);
        }
        self.storage.get_mut(self.end..needed).unwrap_or(&mut [])
    }

    /// Puts the datagram that was drafted last into the queue: the first `len` bytes of the draft.
    pub fn queue(&mut self, path: Path, len: usize) {
        let start = self.end;
        self.queue.push((path, start, start + len));
        self.end = start + len;
    }

    /// Queues a copy of `datagram`.
    pub fn push(&mut self, path: Path, datagram: &[u8]) {
        let draft = self.draft();
        let len = datagram.len().min(draft.len());
        draft[..len].copy_from_slice(&datagram[..len]);
        self.queue(path, len);
    }

    /// True if the queue has no datagram.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends all datagrams of the queue. Each datagram goes through the socket that is bound to the local address of
    /// its path. A datagram that cannot be sent is lost. On Linux one system call sends datagrams to many peers. A
    /// socket that is bound to all addresses needs a separate call for each peer, because each of its datagrams has to
    /// carry a source address.
    pub async fn flush(&mut self, sockets: &[Socket]) {
        let mut next = 0;
        while let Some((path, ..)) = self.queue.get(next) {
            let Some(socket) = sockets.iter().find(|socket| socket.has(&path.local)) else {
                next += 1;
                continue;
            };
            match self.send_some(socket, next) {
                Ok(sent) => next += sent,
                Err((error, _)) if error.kind() == ErrorKind::WouldBlock => {
                    if poll_fn(|cx| socket.io.poll_writable(cx)).await.is_err() {
                        next += 1;
                    }
                }
                Err((_, lost)) => next += lost,
            }
        }
        self.clear();
    }

    /// Tries to send each datagram of the queue, through the socket that `socket_of` returns for its path. If the
    /// system does not take a datagram, calls `unsent` with the datagram and the error of the system:
    /// [`ErrorKind::WouldBlock`] if the system cannot take the datagram now. The queue is empty afterwards.
    pub(crate) fn send_now<'s>(
        &mut self,
        socket_of: impl Fn(&Path) -> Option<&'s Socket>,
        mut unsent: impl FnMut(&Path, &[u8], &io::Error),
    ) {
        let mut next = 0;
        while let Some((path, ..)) = self.queue.get(next) {
            let Some(socket) = socket_of(path) else {
                next += 1;
                continue;
            };
            match self.send_some(socket, next) {
                Ok(sent) => next += sent,
                Err((error, lost)) => {
                    for &(path, start, end) in self.queue.iter().skip(next).take(lost) {
                        unsent(&path, self.storage.get(start..end).unwrap_or(&[]), &error);
                    }
                    next += lost;
                }
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.end = 0;
    }

    /// Sends datagrams with one system call, beginning at the index `first`, without waiting. Returns the number of
    /// datagrams that the system took. An error contains the number of datagrams that the system refused.
    fn send_some(&self, socket: &Socket, first: usize) -> Result<usize, (io::Error, usize)> {
        let Some(&(path, start, end)) = self.queue.get(first) else { return Ok(0) };
        // The source is the address that was asked. If a group was asked, the system chooses the source.
        let from = SocketAddr::from(path.local).ip();
        let chosen = socket.local.ip().is_unspecified() && !from.is_unspecified();
        #[cfg(target_os = "linux")]
        if let alone = self.alone(first)
            && alone > 1
            && !chosen
        {
            let batch = self.queue.get(first..first + alone).unwrap_or(&[]);
            let Some(one) = batch.first() else { return Ok(alone) };
            let sent = socket.sending(|| self.send_batch(socket.io.socket(), one, batch));
            // The system refuses the first datagram. It may accept those after it.
            return sent.map_err(|error| (error, 1));
        }
        // Datagrams of one size to one peer go with one call; only the last may be shorter.
        let size = end - start;
        let mut all_end = end;
        let mut after = first + 1;
        if let Some(fit) = 60_000_usize.checked_div(size) {
            let most = socket.state.max_gso_segments().min(fit).max(1);
            self.gather(first, most, &mut all_end, &mut after);
        }
        let send = |end, segment_size| {
            let contents = self.storage.get(start..end).unwrap_or(&[]);
            let src_ip = chosen.then_some(from);
            let transmit = Transmit { destination: path.remote.into(), ecn: None, contents, segment_size, src_ip };
            socket.sending(|| socket.state.try_send(socket.io.socket().into(), &transmit))
        };
        let sent = send(all_end, (after > first + 1).then_some(size));
        #[cfg(target_os = "linux")]
        if after > first + 1 && sent.as_ref().is_err_and(|error| error.raw_os_error() == Some(TOO_LONG)) {
            // The system sends no segments in fragments, so the datagrams go one by one.
            return send(end, None).map(|()| 1).map_err(|error| (error, 1));
        }
        sent.map(|()| after - first).map_err(|error| (error, after - first))
    }

    /// Returns the number of datagrams, beginning at `first`, that one call of [`Self::send_batch`] can send. These
    /// datagrams have the same local address, and each of them has a different path from the next datagram in the
    /// queue.
    #[cfg(target_os = "linux")]
    fn alone(&self, first: usize) -> usize {
        let rest = self.queue.get(first..).unwrap_or(&[]);
        let local = rest.first().map(|(path, ..)| path.local);
        let is_alone = |(index, (path, ..)): (usize, &(Path, usize, usize))| {
            Some(path.local) == local && rest.get(index + 1).is_none_or(|(next, ..)| next != path)
        };
        rest.iter().enumerate().take(SEND_BATCH).take_while(|each| is_alone(*each)).count()
    }

    /// Sends datagrams of `batch` with one system call, and returns the number of datagrams that the system took. `one`
    /// is the first datagram of `batch`.
    #[cfg(target_os = "linux")]
    fn send_batch(
        &self,
        io: &std::net::UdpSocket,
        one: &(Path, usize, usize),
        batch: &[(Path, usize, usize)],
    ) -> io::Result<usize> {
        let at = |index: usize| batch.get(index).unwrap_or(one);
        let addresses: [_; SEND_BATCH] = array::from_fn(|index| SocketAddr::from(at(index).0.remote).as_any());
        let contents: [_; SEND_BATCH] = array::from_fn(|index| {
            let &(_, start, end) = at(index);
            [IoSlice::new(self.storage.get(start..end).unwrap_or(&[]))]
        });
        let mut controls: [_; SEND_BATCH] = array::from_fn(|_| SendAncillaryBuffer::default());
        let mut each = addresses.iter().zip(&contents);
        let mut messages = controls.each_mut().map(|control| match each.next() {
            Some((address, content)) => MMsgHdr::new_with_addr(address, content, control),
            None => MMsgHdr::new(&[], control),
        });
        let messages = messages.get_mut(..batch.len()).unwrap_or(&mut []);
        Ok(rustix::net::sendmmsg(io, messages, SendFlags::empty())?)
    }

    /// Extends a run of datagrams, which one system call can send as segments of equal size. The run begins with the
    /// datagram `first`, and may have at most `most` datagrams. `end` is the index after the last byte of the run, and
    /// `after` is the index after its last datagram. All datagrams of the run have the same path, and only the last
    /// datagram may be shorter than the others.
    fn gather(&self, first: usize, most: usize, end: &mut usize, after: &mut usize) {
        let Some(&(path, first_start, first_end)) = self.queue.get(first) else { return };
        let size = first_end - first_start;
        while let Some(&(next_path, next_start, next_end)) = self.queue.get(*after) {
            let len = next_end - next_start;
            if next_path != path || next_start != *end || len > size || len == 0 || *after - first >= most {
                return;
            }
            *end = next_end;
            *after += 1;
            if len < size {
                return;
            }
        }
    }
}

/// Opens a socket at any free port, and connects it to an address.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(any_of_family(to.ip()), 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

/// Returns the unspecified address of the address family of `of`.
pub(crate) const fn any_of_family(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns the first address that the resolver finds for a host name. A link-local IPv6 address includes its scope (the
/// network interface).
///
/// # Errors
/// The error of the resolver.
pub async fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found = tokio::net::lookup_host((host, port)).await?.next();
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))
}

/// Returns the path between two socket addresses.
pub fn path(local: SocketAddr, remote: SocketAddr) -> Path {
    Path { local: Address::from(local), remote: Address::from(remote) }
}

#[cfg(test)]
mod tests;
