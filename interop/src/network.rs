//! The faults of the network between a client and a server. A relay causes these faults.

use crate::hello;
use std::time::Duration;

/// The kind of network between a client and a server: without faults, or with one kind of fault. A fault changes only
/// datagrams of the server, except [`Network::Carries`], which applies to both directions.
#[derive(Clone, Copy)]
pub(crate) enum Network {
    /// Each datagram arrives immediately.
    Good,
    /// Each datagram arrives after this time.
    Slow(Duration),
    /// The first datagram with an unencrypted handshake message of a type arrives late. The values are this type, and
    /// the delay.
    Late(u8, Duration),
    /// Each datagram with an unencrypted handshake message of a type arrives immediately, and again later. The values
    /// are this type, and the time between the two arrivals.
    Twice(u8, Duration),
    /// The first datagram with an unencrypted handshake message of this type is lost.
    Lost(u8),
    /// Datagrams with more bytes than this number are lost, in both directions.
    Carries(usize),
}

const HELLO_VERIFY_REQUEST: u8 = 3;
const SERVER_HELLO_DONE: u8 = 14;
/// A delay that is longer than the first timeout of a client, which is a second (RFC 6347, section 4.2.4.1).
const LATE: Duration = Duration::from_millis(1_300);

/// The scenarios of a handshake with a pre-shared key over a faulty network. On a slow network a client sends its first
/// ClientHello twice, and the server answers both with a cookie.
pub(crate) const BAD: [(&str, Network); 4] = [
    ("answers take 1.3 s", Network::Slow(LATE)),
    ("HelloVerifyRequest twice", Network::Twice(HELLO_VERIFY_REQUEST, Duration::from_millis(2))),
    ("ServerHelloDone late", Network::Late(SERVER_HELLO_DONE, LATE)),
    ("ServerHelloDone lost", Network::Lost(SERVER_HELLO_DONE)),
];

/// The scenarios of a handshake with certificates of the client and of the server. Each element consists of the name of
/// the scenario, and the maximum size of a datagram on the path in bytes.
pub(crate) const SMALL: [(&str, usize); 2] =
    [("mutual ECDSA, path of 512 bytes", 512), ("mutual ECDSA, path of 256 bytes", 256)];

impl Network {
    /// Returns the delays of all copies of a datagram; the list is empty if the datagram is lost. Returns `None` if the
    /// network does not change this datagram. `first` is true if the network has changed no datagram before.
    pub(crate) fn harms(self, to_server: bool, datagram: &[u8], first: bool) -> Option<Vec<Duration>> {
        let holds = |message: u8| !to_server && hello::messages(datagram).contains(&message);
        match self {
            Self::Slow(delay) if !to_server => Some(vec![delay]),
            Self::Late(message, delay) if first && holds(message) => Some(vec![delay]),
            Self::Twice(message, delay) if holds(message) => Some(vec![Duration::ZERO, delay]),
            Self::Lost(message) if first && holds(message) => Some(Vec::new()),
            Self::Carries(bytes) if datagram.len() > bytes => Some(Vec::new()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
