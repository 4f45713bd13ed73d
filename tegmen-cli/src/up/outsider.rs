//! An outsider, which receives and sends datagrams at the multicast address of a group.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tegmen::dtls::ContentType;
use tegmen_host::group::Group;
use tegmen_host::udp::{Inbound, Socket};

/// Time after which a datagram to the group counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// The length of the header of a record in bytes (RFC 6347, section 4.1).
const HEADER: usize = 13;
/// The length of a record number in bytes. The header of a record contains the record number after type and version.
/// The record contains the same number again after the header.
const NUMBER: usize = 8;

/// An outsider without keys: it receives all datagrams that are sent to the group, and sends datagrams to the group.
pub(super) struct Outsider {
    hears: Socket,
    inbound: Inbound,
    sends: UdpSocket,
    group: SocketAddr,
}

impl Outsider {
    /// Joins the multicast address at the interface, and sends a datagram from the address `own`. The machine has
    /// multicast if the outsider receives its own datagram.
    ///
    /// # Errors
    /// The reason why there is no multicast.
    pub(super) async fn join(group: SocketAddr, interface: Ipv4Addr, own: IpAddr) -> Result<Self, String> {
        let at: Group = format!("{}%{interface}", group.ip()).parse().map_err(|error| format!("{error}"))?;
        let hears = Socket::join(&at, group.port(), group).map_err(|error| error.to_string())?;
        let sends = at.socket(Some((own, 0).into())).map_err(|error| format!("{own}: {error}"))?;
        let mut outsider = Self { hears, inbound: Inbound::default(), sends, group };
        // No record and no message of a controller begins so, and no member takes it.
        let probe = [0];
        outsider.send(&probe).map_err(|error| format!("nothing can be sent to {group}: {error}"))?;
        match outsider.hear(1, |datagram| datagram == probe).await {
            Ok(heard) if heard.is_empty() => Err(format!("a datagram to {group} does not come")),
            Ok(_) => Ok(outsider),
            Err(error) => Err(format!("nothing is received at {group}: {error}")),
        }
    }

    /// Sends a datagram to the group.
    pub(super) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.sends.send_to(datagram, self.group).map(drop)
    }

    /// Returns the requests that were sent to the group since the last call. Waits until at least `least` requests have
    /// arrived, but not longer than [`PATIENCE`].
    pub(super) async fn requests(&mut self, least: usize) -> io::Result<Vec<Vec<u8>>> {
        self.hear(least, |datagram| datagram.first() == Some(&ContentType::APPLICATION_DATA.0)).await
    }

    async fn hear(&mut self, least: usize, is_it: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Vec<u8>>> {
        let Self { hears, inbound, .. } = self;
        let mut heard = Vec::new();
        let listening = async {
            while heard.len() < least {
                poll_fn(|cx| hears.poll_readable(cx)).await?;
                while hears.receive(inbound)? {
                    heard.extend(inbound.datagrams().map(|(_, datagram)| datagram.to_vec()).filter(|it| is_it(it)));
                }
            }
            Ok(())
        };
        match tokio::time::timeout(PATIENCE, listening).await {
            Ok(Err(error)) => Err(error),
            _ => Ok(heard),
        }
    }
}

/// Forges the next request of the sender of `request`: copies `request`, increases its record number, and changes its
/// content. Returns `None` if `request` is too short.
pub(super) fn forge(request: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = request.split_first_chunk::<HEADER>()?;
    let (kind, rest) = header.split_first_chunk::<3>()?;
    let (number, len) = rest.split_first_chunk::<NUMBER>()?;
    let next = (u64::from_be_bytes(*number).checked_add(1)?).to_be_bytes();
    let content = body.get(NUMBER..)?.iter().map(|byte| !byte);
    Some([&kind[..], &next, len, &next].concat().into_iter().chain(content).collect())
}

/// Returns the record number in the header of a record.
pub(super) fn number(record: &[u8]) -> Option<&[u8]> {
    record.get(3..3 + NUMBER)
}
