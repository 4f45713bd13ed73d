//! The addresses of datagrams.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An IPv6 address (or an IPv4 address mapped into one), a UDP port, and the scope of a link-local address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The 16 bytes of the address. An IPv4 address is written as `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
    pub ip: [u8; 16],
    /// UDP port.
    pub port: u16,
    /// Zone of a link-local address (RFC 4007), 0 for any other address.
    pub scope: u32,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self { ip: v4.ip().to_ipv6_mapped().octets(), port: v4.port(), scope: 0 },
            SocketAddr::V6(v6) => Self { ip: v6.ip().octets(), port: v6.port(), scope: v6.scope_id() },
        }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        let ip = Ipv6Addr::from(address.ip);
        match ip.to_ipv4_mapped() {
            Some(v4) => Self::new(IpAddr::V4(Ipv4Addr::from(v4.octets())), address.port),
            None => Self::V6(SocketAddrV6::new(ip, address.port, 0, address.scope)),
        }
    }
}

/// The local and the remote address of a datagram. The local address is included because several addresses may share a
/// socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// The address of this endpoint: the destination address of received datagrams.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
}
