//! Limits of the number of TCP connections of a listener.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of the number of connections: of all connections together, and of the connections from one IP address.
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
            if let Some(place) = self.take(one, remote.ip().to_canonical()) {
                return (stream, remote, place);
            }
        }
    }

    /// Counts one more connection from `address`. `one` is its permit from the semaphore for all connections. Returns
    /// `None` if the address already has its maximum number of connections.
    fn take(&self, one: OwnedSemaphorePermit, address: IpAddr) -> Option<Place> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = by_address.entry(address).or_default();
        if *taken >= self.of_address {
            return None;
        }
        *taken += 1;
        Some(Place { _one: one, address, by_address: Arc::clone(&self.by_address) })
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
