//! The sockets of an endpoint.

use crate::udp::{self, Socket};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tegmen::address::{Address, Path};
use tokio::net::UdpSocket;

/// A socket of an endpoint.
pub(super) enum Port {
    /// A socket that is connected to one peer, so that the system reports the network errors on the path to this peer.
    Connected {
        socket: UdpSocket,
        path: Path,
        /// The index of the only session that uses this socket; `None` if several sessions may use it.
        owner: Option<usize>,
    },
    /// A socket for any number of peers.
    Open(Socket),
}

impl Port {
    /// Opens a socket that is connected to `remote`. The socket has the local port `port`, if this port is free.
    pub(super) async fn connected(remote: SocketAddr, port: Option<u16>, owner: Option<usize>) -> io::Result<Self> {
        let any = |port| SocketAddr::new(udp::any_of_family(remote.ip()), port);
        let socket = match UdpSocket::bind(any(port.unwrap_or(0))).await {
            Err(_) if port.is_some() => UdpSocket::bind(any(0)).await?,
            bound => bound?,
        };
        socket.connect(remote).await?;
        socket.writable().await?;
        let path = crate::udp::path(socket.local_addr()?, remote);
        Ok(Self::Connected { socket, path, owner })
    }

    /// Returns the index of the only session that uses this socket; `None` if several sessions may use it.
    pub(super) const fn owner(&self) -> Option<usize> {
        match self {
            Self::Connected { owner, .. } => *owner,
            Self::Open(_) => None,
        }
    }

    /// True if datagrams over `path` are sent from this socket.
    pub(super) fn has(&self, path: &Path) -> bool {
        match self {
            Self::Connected { path: own, .. } => own == path,
            Self::Open(socket) => socket.has(&path.local),
        }
    }

    /// Returns the path to `remote`. Returns `None` if this socket is connected to one peer, or cannot send to the
    /// address family of `remote`.
    ///
    /// # Errors
    /// The error of the system if there is no route.
    pub(super) fn path_to(&self, remote: SocketAddr) -> Option<io::Result<Path>> {
        let Self::Open(socket) = self else { return None };
        let local = socket.local();
        let is_any = local.ip().is_unspecified();
        if local.is_ipv4() != remote.is_ipv4() && !(is_any && local.is_ipv6()) {
            return None;
        }
        if !is_any {
            return Some(Ok(crate::udp::path(local, remote)));
        }
        // Asks the system for the address of ours that it would send from.
        let probe = || -> io::Result<Path> {
            let probe = std::net::UdpSocket::bind(SocketAddr::new(udp::any_of_family(remote.ip()), 0))?;
            probe.connect(remote)?;
            let from = Address { port: local.port(), scope: 0, ..Address::from(probe.local_addr()?) };
            Ok(Path { local: from, remote: remote.into() })
        };
        Some(probe())
    }

    pub(super) fn try_send(&self, path: &Path, datagram: &[u8]) -> io::Result<()> {
        match self {
            Self::Connected { socket, .. } => socket.try_send(datagram).map(drop),
            Self::Open(socket) => socket.try_send(path, datagram),
        }
    }

    pub(super) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Connected { socket, .. } => socket.poll_send_ready(cx).map(drop),
            Self::Open(socket) => socket.poll_writable(cx).map(drop),
        }
    }

    /// Ends the wait of [`Self::poll_send_ready`].
    pub(super) fn end_wait(&self) {
        if let Self::Open(socket) = self {
            socket.end_wait();
        }
    }

    /// Returns the maximum packet length of the path in bytes, if the system knows it.
    pub(super) fn known_mtu(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        if let Self::Connected { socket, path, .. } = self {
            return match SocketAddr::from(path.remote).is_ipv4() {
                true => rustix::net::sockopt::ip_mtu(socket).ok(),
                false => rustix::net::sockopt::ipv6_mtu(socket).ok(),
            };
        }
        None
    }

    /// Returns the bound address of the socket.
    pub(super) fn local(&self) -> SocketAddr {
        match self {
            Self::Connected { path, .. } => path.local.into(),
            Self::Open(socket) => socket.local(),
        }
    }
}
