//! Faults that a relay adds to a good network.

use crate::hello;
use std::time::Duration;

/// A network between two ends. Faults change the datagrams of the server; [`Network::Carries`] applies to both
/// directions.
#[derive(Clone, Copy)]
pub(crate) enum Network {
    /// Everything arrives at once.
    Good,
    /// Each datagram arrives after this time.
    Slow(Duration),
    /// The first datagram with this handshake message in the clear arrives after this time.
    Late(u8, Duration),
    /// Each datagram with this message arrives at once, and again after this time.
    Twice(u8, Duration),
    /// The first datagram with this message is lost.
    Lost(u8),
    /// Datagrams of more bytes than this are lost, in both directions.
    Carries(usize),
}

const HELLO_VERIFY_REQUEST: u8 = 3;
const SERVER_HELLO_DONE: u8 = 14;
/// Longer than the first timeout of a client, which is a second (RFC 6347, section 4.2.4.1).
const LATE: Duration = Duration::from_millis(1_300);

/// Rows of a handshake with a pre-shared key. On a slow network a client sends its first hello twice, and the server
/// answers both with a cookie.
pub(crate) const BAD: [(&str, Network); 4] = [
    ("answers take 1.3 s", Network::Slow(LATE)),
    ("HelloVerifyRequest twice", Network::Twice(HELLO_VERIFY_REQUEST, Duration::from_millis(2))),
    ("ServerHelloDone late", Network::Late(SERVER_HELLO_DONE, LATE)),
    ("ServerHelloDone lost", Network::Lost(SERVER_HELLO_DONE)),
];

/// Rows of a handshake with certificates at both ends, and the maximum number of bytes of a datagram on the path.
pub(crate) const SMALL: [(&str, usize); 2] =
    [("mutual ECDSA, path of 512 bytes", 512), ("mutual ECDSA, path of 256 bytes", 256)];

impl Network {
    /// The delays after which copies of a datagram arrive; none if it is lost. `first` is true if the network changed
    /// no datagram before. `None` if the network does not change this datagram.
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
