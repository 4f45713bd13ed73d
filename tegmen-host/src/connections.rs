//! Limits of the number of TCP connections of a listener.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of the number of connections: of all connections together, and of the connections from one IP address.
/// All IPv6 addresses with the same first 64 bits count as one address, because one host can usually use all of them.
pub struct Connections {
    all: Arc<Semaphore>,
    of_address: usize,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Counts one open connection against the limits of [`Connections`]. Dropping this value ends the count.
pub struct Place {
    _one: OwnedSemaphorePermit,
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Connections {
    /// Allows at most `all` connections at the same time, and at most `of_address` of them from one IP address.
    pub fn new(all: usize, of_address: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_address, by_address: Arc::default() }
    }

    /// Accepts the next connection. While all connections are in use, waits and accepts nothing. Closes a connection
    /// from an address that already has its maximum number of connections, without a response. Returns the connection,
    /// the address of the peer, and the value that counts the connection.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, Place) {
        loop {
            // The semaphore is never closed, so there is always a permit.
            let Ok(one) = Arc::clone(&self.all).acquire_owned().await else { continue };
            let Ok((stream, remote)) = listener.accept().await else {
                // The process has no more descriptors: others close in the meantime.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if let Some(place) = self.take(one, network(remote.ip())) {
                return (stream, remote, place);
            }
        }
    }

    /// Counts one more connection from `address`. `one` is its permit from the semaphore for all connections. Returns
    /// `None` if the address already has its maximum number of connections.
    fn take(&self, one: OwnedSemaphorePermit, address: IpAddr) -> Option<Place> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = by_address.get(&address).copied().unwrap_or_default();
        if taken >= self.of_address {
            return None;
        }
        by_address.insert(address, taken + 1);
        Some(Place { _one: one, address, by_address: Arc::clone(&self.by_address) })
    }
}

/// Returns the address under which the connections from `ip` are counted: the IPv4 address, or the first 64 bits of the
/// IPv6 address.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = by_address.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_ipv6_network_have_one_limit() {
        let connections = Connections::new(9, 1);
        let take = |address: &str| {
            let one = Arc::clone(&connections.all).try_acquire_owned().unwrap();
            connections.take(one, network(address.parse().unwrap()))
        };
        let held = take("2001:db8::1");
        assert!(held.is_some() && take("2001:db8::ffff:2").is_none());
        assert!(take("2001:db8:0:1::1").is_some() && take("192.0.2.1").is_some());
        let mapped = take("::ffff:192.0.2.1");
        assert!(mapped.is_some() && take("192.0.2.1").is_none() && take("192.0.2.2").is_some());
        drop(held);
        assert!(take("2001:db8::2").is_some());
    }

    #[test]
    fn a_refused_address_takes_no_memory() {
        let connections = Connections::new(1, 0);
        let one = Arc::clone(&connections.all).try_acquire_owned().unwrap();
        assert!(connections.take(one, network("192.0.2.1".parse().unwrap())).is_none());
        assert!(connections.by_address.lock().unwrap().is_empty());
    }
}
