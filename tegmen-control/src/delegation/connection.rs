//! Connections of peers to a device.

use std::fmt;
use std::str::FromStr;

/// The identifier of a connection: the number of its epoch, and its number in the epoch. As text it has the form
/// `EPOCH-NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId {
    /// The number of the epoch.
    pub epoch: u16,
    /// The number of the connection in the epoch.
    pub number: u32,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.number)
    }
}

impl FromStr for ConnectionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(epoch, number)| Some((epoch.parse().ok()?, number.parse().ok()?)));
        let (epoch, number) =
            parts.ok_or_else(|| format!("a connection is EPOCH-NUMBER, as 3-17; this is {}", text.escape_debug()))?;
        Ok(Self { epoch, number })
    }
}

/// The way in which a device gets the state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// The peer presents a ticket (RFC 5077) to the device.
    Ticket,
    /// The server sends the session to the device, and the peer resumes the session by its session id.
    Id,
    /// The server sends the session to the device, and the device, as the client, resumes the session with the peer.
    Device,
}

impl Carrier {
    const ALL: [Self; 3] = [Self::Ticket, Self::Id, Self::Device];

    /// Returns the name of the way in which the session reaches its device, as files and commands write this name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Id => "id",
            Self::Device => "device",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|carrier| carrier.word() == word)
    }
}

/// A connection of a peer to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegatedConnection {
    /// The identifier of the connection.
    pub id: ConnectionId,
    /// The name that the peer has proved.
    pub peer: String,
    /// The position of the connection's scope in the list of scopes of the device, from 0.
    pub scope: u8,
    /// The time at which the peer and the server authenticated each other, in seconds since 1970.
    pub since: u32,
    /// The time from which the device refuses the connection, in seconds since 1970.
    pub expires: u32,
    /// The way in which the session reaches the device.
    pub carrier: Carrier,
    /// The connection of the previous epoch that this connection replaces; `None` for a new connection.
    pub of: Option<ConnectionId>,
    /// True if the connection was revoked.
    pub revoked: bool,
}

/// A page of the connections of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionPage {
    /// The connections. The connections of the previous epoch come first.
    pub connections: Vec<DelegatedConnection>,
    /// The connection after which the next page begins; `None` on the last page.
    pub next: Option<ConnectionId>,
}
