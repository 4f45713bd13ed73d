//! The sockets of a server. Either the server binds its sockets, or a parent process passes bound sockets.

use super::runtime::Runtime;
use super::{Listen, ServerConfig, StartError};
use crate::group::{Membership, Memberships};
use crate::udp::{BindError, Socket};
use crate::uri::Scheme;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZero;

/// The reason why the sockets from a parent process cannot be used: see
/// [`ServerBuilder::inherit`](super::ServerBuilder::inherit).
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The server listens at an address that none of the inherited sockets has.
    #[error(
        "{listen}: none of the inherited sockets has this address: pass a socket of {} (a line ListenDatagram= in the socket \
         unit), or do not listen there", listen.address
    )]
    Missing {
        /// The address.
        listen: Listen,
    },
    /// An inherited socket has an address at which the server does not listen.
    #[error(
        "{address}: a socket of this address was inherited, and the server does not listen there: listen there, or do not pass it"
    )]
    Unused {
        /// The local address of the socket.
        address: SocketAddr,
    },
    /// The number of inherited sockets with one address is not equal to the number of shards.
    #[error(
        "{listen}: there are {sockets} inherited sockets of this address and {shards} shards: pass one for each shard (bound \
         with SO_REUSEPORT, ReusePort=yes), or set the number of shards to {sockets}"
    )]
    Count {
        /// The address.
        listen: Listen,
        /// The number of sockets with this address.
        sockets: usize,
        /// The number of shards.
        shards: usize,
    },
    /// An inherited socket at the address `[::]` does not receive IPv4 datagrams.
    #[error(
        "{listen}: the inherited socket receives IPv6 alone: clear IPV6_V6ONLY (BindIPv6Only=both), or listen at 0.0.0.0, too"
    )]
    NoIpv4 {
        /// The address.
        listen: Listen,
    },
    /// The system does not report the address of a socket.
    #[error("an inherited socket cannot be used: {0}")]
    System(std::io::Error),
}

/// Returns the number of shards. If the settings contain 0, this is the number of inherited sockets of the first
/// address at which the server listens. Without any inherited sockets, 0 means the number of cores.
pub(super) fn shards(config: &ServerConfig, inherited: &[UdpSocket]) -> usize {
    let first = config.listen.first().map(|listen| listen.address);
    let of_first = inherited.iter().filter(|socket| socket.local_addr().ok() == first).count();
    match (config.shards, inherited.is_empty()) {
        (0, true) => std::thread::available_parallelism().map_or(1, NonZero::get),
        (0, false) => of_first.max(1),
        (shards, _) => shards,
    }
}

/// The sockets of all shards, before each shard takes its own sockets.
pub(super) struct Sockets<'a> {
    config: &'a ServerConfig,
    /// The addresses at which the server listens, with the actual port numbers.
    pub(super) addresses: Vec<Listen>,
    /// The inherited sockets of each address, one for each shard. The list is empty if the server binds its own
    /// sockets.
    inherited: Vec<Vec<UdpSocket>>,
    /// Sockets that reserve a port until the shards have bound it.
    _kept: Vec<Socket>,
    shards: usize,
}

impl<'a> Sockets<'a> {
    /// Binds the addresses of the server, or matches the inherited sockets with them. Each runtime runs one shard,
    /// which is a thread of the server with its own sockets.
    ///
    /// # Errors
    /// [`StartError::Bind`], [`StartError::Inherit`].
    pub(super) fn new(
        config: &'a ServerConfig,
        inherited: Vec<UdpSocket>,
        runtimes: &[Runtime],
    ) -> Result<Self, StartError> {
        let shards = runtimes.len();
        if inherited.is_empty() {
            let (addresses, kept) = free_addresses(config, runtimes)?;
            return Ok(Self { config, addresses, inherited: Vec::new(), _kept: kept, shards });
        }
        let inherited = matched(config, inherited, shards)?;
        Ok(Self { config, addresses: config.listen.clone(), inherited, _kept: Vec::new(), shards })
    }

    /// Returns the sockets of shard `number`, registered at `runtime`.
    ///
    /// # Errors
    /// [`StartError::Bind`], [`StartError::Membership`].
    pub(super) fn of_shard(&mut self, number: usize, runtime: &Runtime) -> Result<Vec<Socket>, StartError> {
        let _guard = runtime.enter();
        let has_groups = !self.config.groups.is_empty() || !self.config.memberships.is_empty();
        let sockets: Vec<Socket> = if self.inherited.is_empty() {
            let bind = |(listen, asked): (&Listen, &Listen)| {
                let shared = self.shards > 1 || asked.address.port() == 0 || has_groups;
                Socket::bind(listen.address, shared)
            };
            self.addresses.iter().zip(&self.config.listen).map(bind).collect::<Result<_, _>>()?
        } else {
            let own = self.inherited.iter_mut().filter_map(Vec::pop);
            own.map(|socket| Socket::inherit(socket, has_groups)).collect::<Result<_, BindError>>()?
        };
        if number == 0 {
            for observation in &self.config.group_observations {
                let same = |socket: &&Socket| {
                    socket.local().is_ipv4() == observation.group.ip.is_ipv4() || socket.local().ip().is_unspecified()
                };
                sockets.iter().filter(same).try_for_each(|socket| socket.send_through(&observation.group))?;
            }
        }
        match number {
            // One shard is enough for what every node of a network answers at leisure.
            0 => {
                let joined = join(self.config, &self.addresses)?;
                Ok(sockets.into_iter().chain(joined).chain(join_protected(self.config, &self.addresses)?).collect())
            }
            _ => Ok(sockets),
        }
    }
}

/// Returns the inherited sockets of each address at which the server listens, one socket for each shard.
fn matched(
    config: &ServerConfig,
    mut inherited: Vec<UdpSocket>,
    shards: usize,
) -> Result<Vec<Vec<UdpSocket>>, InheritError> {
    let mut by_address = Vec::new();
    for listen in &config.listen {
        let is_here = |socket: &mut UdpSocket| socket.local_addr().is_ok_and(|address| address == listen.address);
        let own: Vec<UdpSocket> = inherited.extract_if(.., is_here).collect();
        match own.len() {
            0 => return Err(InheritError::Missing { listen: *listen }),
            sockets if sockets != shards => return Err(InheritError::Count { listen: *listen, sockets, shards }),
            _ => {}
        }
        if listen.address.ip() == Ipv6Addr::UNSPECIFIED {
            let only_v6 = own.iter().map(|socket| socket2::SockRef::from(socket).only_v6());
            if only_v6.collect::<Result<Vec<_>, _>>().map_err(InheritError::System)?.contains(&true) {
                return Err(InheritError::NoIpv4 { listen: *listen });
            }
        }
        by_address.push(own);
    }
    match inherited.first().map(UdpSocket::local_addr) {
        None => Ok(by_address),
        Some(Ok(address)) => Err(InheritError::Unused { address }),
        Some(Err(error)) => Err(InheritError::System(error)),
    }
}

/// Joins every multicast group of the settings, at the ports for CoAP without DTLS.
fn join(config: &ServerConfig, listens: &[Listen]) -> Result<Vec<Socket>, BindError> {
    let mut sockets: Vec<Socket> = Vec::new();
    for group in &config.groups {
        let plain = || listens.iter().filter(|listen| listen.scheme == Scheme::Coap).map(|listen| listen.address);
        // A socket for IPv6 answers IPv4, too, if there is no other.
        let same = plain().filter(|address| address.is_ipv4() == group.ip.is_ipv4());
        let both = plain().filter(|address| group.ip.is_ipv4() && address.ip() == Ipv6Addr::UNSPECIFIED);
        let before = sockets.len();
        for answers_from in same.chain(both) {
            let at = group.at(answers_from.port());
            if sockets.iter().all(|socket| socket.local() != at) {
                sockets.push(Socket::join(group, answers_from.port(), answers_from)?);
            }
        }
        if sockets.len() == before {
            return Err(BindError::NobodyAnswers { group: group.clone() });
        }
    }
    Ok(sockets)
}

/// Joins the multicast groups of [`ServerConfig::memberships`], and binds a socket for each address of
/// [`own_addresses`].
fn join_protected(config: &ServerConfig, listens: &[Listen]) -> Result<Vec<Socket>, StartError> {
    Memberships::check(&config.memberships).map_err(StartError::Membership)?;
    // Messages of a controller to one member alone come before the one of the epoch, which goes to the group, so the sockets that
    // take them are read first.
    let own = own_addresses(&config.memberships, listens);
    let mut sockets = own.into_iter().map(|own| Socket::bind(own, false)).collect::<Result<Vec<_>, _>>()?;
    for membership in &config.memberships {
        let group = membership.multicast().map_err(StartError::Membership)?;
        sockets.push(Socket::join_protected(&group, membership.address_of_group())?);
    }
    Ok(sockets)
}

/// Returns the addresses from which the server sends responses as a member of a group, and at which it does not listen.
/// At these addresses the server accepts only messages of the controller of the group.
pub(super) fn own_addresses(memberships: &[Membership], listens: &[Listen]) -> Vec<SocketAddr> {
    let own = |membership: &Membership| Some(SocketAddr::new(membership.address()?, membership.group().port()));
    let mut own: Vec<SocketAddr> = memberships.iter().filter_map(own).collect();
    let listens_at = |own: &SocketAddr, listen: &Listen| {
        listen.address.port() == own.port() && (listen.address.ip() == own.ip() || listen.address.ip().is_unspecified())
    };
    own.retain(|own| !listens.iter().any(|listen| listens_at(own, listen)));
    own.sort_unstable();
    own.dedup();
    own
}

/// Binds each address once, without the option that lets several sockets share a port. So the call returns an error if
/// another program uses the port, even if that program lets others share the port. For port 0, finds a port number that
/// all shards can bind. The socket with this port remains open until the shards have bound the port, so that no other
/// program can take it.
fn free_addresses(config: &ServerConfig, runtimes: &[Runtime]) -> Result<(Vec<Listen>, Vec<Socket>), BindError> {
    let _guard = runtimes.first().and_then(Runtime::enter);
    let bind = |listen: &Listen| match listen.address.port() {
        0 => Socket::bind_first(listen.address),
        _ => Socket::bind(listen.address, false),
    };
    let sockets = config.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let listens = config.listen.iter().zip(&sockets);
    let addresses = listens.map(|(listen, socket)| Listen { address: socket.local(), scheme: listen.scheme }).collect();
    let asked = config.listen.iter().map(|listen| listen.address.port());
    let kept = asked.zip(sockets).filter(|(port, _)| *port == 0).map(|(_, socket)| socket).collect();
    Ok((addresses, kept))
}
