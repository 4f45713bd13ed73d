//! Groups of servers: multicast addresses (RFC 7252, section 8), and memberships in groups that Axiom protects.
//!
//! [`groupcomm`] has the messages between a member and the controller of its group. A [`Membership`] is a member of a
//! group, with its state on disk.

mod answered;
mod error;
mod event;
mod file;
pub mod groupcomm;
pub mod member_file;
mod membership;
mod memberships;
mod signing;

pub use error::MembershipError;
pub use event::{Behind, MembershipEvent};
pub use file::MemberSettings;
pub(crate) use file::PrivateKey;
pub(crate) use membership::creds_of_interest;
pub use membership::{Membership, MembershipSink};
pub(crate) use memberships::Memberships;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs as _, UdpSocket};
use std::str::FromStr;
use std::{fmt, io};

/// A multicast address, and the network interface on which it is used.
///
/// The groups of all CoAP nodes are `224.0.1.187`, `ff02::fd` on a link and `ff05::fd` in a site (RFC 7252, section
/// 12.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The multicast address.
    pub ip: IpAddr,
    /// The name of the interface, or for IPv4 an address of the interface. With `None` the system selects the
    /// interface.
    pub interface: Option<String>,
    /// The number of the interface; 0 if no interface is given, or if an IPv4 address names the interface.
    index: u32,
}

/// The error that a text is not a multicast group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text}: {problem}; right ones are 224.0.1.187, 224.0.1.187%eth0, 224.0.1.187%10.0.0.7 (by an address of the interface) and ff02::fd%eth0"
)]
pub struct GroupError {
    text: String,
    problem: &'static str,
}

impl Group {
    /// Returns the socket address of the group at this port.
    pub fn at(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.index).into(),
        }
    }

    /// Returns the group with this address on the interface that has the address `own`. An IPv6 address names its
    /// interface only by its scope; without a scope, the system selects the interface.
    pub(crate) fn beside(ip: IpAddr, own: SocketAddr) -> Self {
        let interface = (ip.is_ipv4() && !own.ip().is_unspecified()).then(|| own.ip().to_canonical().to_string());
        let index = match own {
            SocketAddr::V6(own) if ip.is_ipv6() => own.scope_id(),
            _ => 0,
        };
        Self { ip, interface, index }
    }

    /// True if `host` is a multicast address. In `host`, `%` and the name of a network interface may follow the
    /// address.
    pub fn is_named_by(host: &str) -> bool {
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        address.parse().is_ok_and(|ip: IpAddr| ip.is_multicast())
    }

    /// Opens a non-blocking socket that sends to the group through its interface. `own` is the local address and port;
    /// with `None` the system chooses both.
    ///
    /// # Errors
    /// The error of the system, also if the interface no longer exists.
    pub fn socket(&self, own: Option<SocketAddr>) -> io::Result<UdpSocket> {
        let any = match self.ip {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let own = own.unwrap_or(any);
        let socket = Socket::new(Domain::for_address(own), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        match (self.ip, self.interface_address()) {
            #[cfg(target_os = "linux")]
            (IpAddr::V4(_), None) => socket.bind_device(self.interface.as_ref().map(String::as_bytes))?,
            _ => self.select_interface(&socket)?,
        }
        socket.bind(&own.into())?;
        Ok(socket.into())
    }

    /// Lets a socket send datagrams to multicast groups through the interface of this group, if the group names an
    /// interface.
    ///
    /// # Errors
    /// The error of the system, also if the interface no longer exists.
    pub(crate) fn select_interface(&self, socket: &Socket) -> io::Result<()> {
        match (self.ip, self.interface_address()) {
            (IpAddr::V6(_), _) if self.index > 0 => socket.set_multicast_if_v6(self.index),
            (IpAddr::V4(_), Some(address)) => socket.set_multicast_if_v4(&address),
            #[cfg(target_os = "linux")]
            (IpAddr::V4(ip), None) if self.index > 0 => {
                let any = &Ipv4Addr::UNSPECIFIED;
                Ok(rustix::net::sockopt::set_ip_multicast_if_with_ifindex(socket, &ip, any, self.index)?)
            }
            _ => Ok(()),
        }
    }

    /// Opens a non-blocking socket that receives the datagrams to `address`, which is the address of the group and a
    /// port. Other sockets of this machine can receive the same datagrams.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn receiver(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // Other programs of this machine can use the same group and port.
        socket.set_reuse_address(true)?;
        #[cfg(unix)]
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        match self.ip {
            IpAddr::V4(ip) => {
                let index = InterfaceIndexOrAddress::Index(self.index);
                let interface = self.interface_address().map_or(index, InterfaceIndexOrAddress::Address);
                socket.join_multicast_v4_n(&ip, &interface)?;
            }
            IpAddr::V6(ip) => socket.join_multicast_v6(&ip, self.index)?,
        }
        Ok(socket)
    }

    /// Returns the IPv4 address that names the interface, if an address names it.
    pub(crate) fn interface_address(&self) -> Option<Ipv4Addr> {
        self.interface.as_ref().filter(|_| self.ip.is_ipv4())?.parse().ok()
    }
}

impl FromStr for Group {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let wrong = |problem| GroupError { text: text.to_owned(), problem };
        let (address, interface) = text.split_once('%').map_or((text, None), |(ip, name)| (ip, Some(name)));
        let ip: IpAddr = address.parse().map_err(|_| wrong("not an address"))?;
        if !ip.is_multicast() {
            return Err(wrong("not a multicast address"));
        }
        let index = match interface {
            Some(name) if ip.is_ipv4() && name.parse::<Ipv4Addr>().is_ok() => 0,
            Some(name) => index_of(name).ok_or_else(|| wrong("there is no such interface"))?,
            None if matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xf == 2) => {
                return Err(wrong("an address on a link needs its interface"));
            }
            None => 0,
        };
        Ok(Self { ip, interface: interface.map(str::to_owned), index })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            None => write!(f, "{}", self.ip),
            Some(interface) => write!(f, "{}%{interface}", self.ip),
        }
    }
}

/// Returns the number of an interface. The function lets the system parse the name as the scope of a link-local
/// address.
fn index_of(name: &str) -> Option<u32> {
    let found = (format!("fe80::1%{name}"), 0).to_socket_addrs().ok()?.next()?;
    match found {
        SocketAddr::V6(address) if address.scope_id() > 0 => Some(address.scope_id()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
