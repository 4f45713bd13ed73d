//! A connection of a device.

use std::fmt;
use std::str::FromStr;

/// A connection: the number of its epoch, and its number in the epoch. Written `EPOCH-NUMBER`.
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

/// The means by which a session comes to its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// A ticket, which the peer shows (RFC 5077).
    Ticket,
    /// The server hands the session over, and the peer resumes it by its id.
    Id,
    /// The server hands the session over, and the device resumes it at the peer.
    Device,
}

impl Carrier {
    const ALL: [Self; 3] = [Self::Ticket, Self::Id, Self::Device];

    /// The word for it.
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

/// A connection of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegatedConnection {
    /// The connection.
    pub id: ConnectionId,
    /// The name that the peer proved.
    pub peer: String,
    /// The index of its scope at the device.
    pub scope: u8,
    /// The time at which peer and server authenticated each other, in seconds since 1970.
    pub since: u32,
    /// The time from which the device refuses it, in seconds since 1970.
    pub expires: u32,
    /// The means by which the session comes to the device.
    pub carrier: Carrier,
    /// The connection of the previous epoch in whose place this one is.
    pub of: Option<ConnectionId>,
    /// True if it was revoked.
    pub revoked: bool,
}

/// A part of the connections of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionPage {
    /// The connections, those of the previous epoch first.
    pub connections: Vec<DelegatedConnection>,
    /// The connection behind which the next page begins; `None` on the last page.
    pub next: Option<ConnectionId>,
}
