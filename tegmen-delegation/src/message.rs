//! The requests of a delegation server to a device, and the response with its state. Numbers are in network byte order.

use crate::epoch::CHECK_LEN;
use crate::refusal::Refusals;
use crate::ticket::STATE_LEN;
use core::fmt;
use tegmen::address::Address;
use tegmen::buf::{Full, Reader, Truncated, Writer};
use tegmen::dtls::Handle;

/// A resource of a device for its delegation server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// POST: begin an epoch.
    Epoch,
    /// POST: refuse a connection.
    Refuse,
    /// POST: keep a session.
    Keep,
    /// POST: resume a session that was handed over.
    Go,
    /// GET: the state of the device.
    Status,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 5] = [Self::Epoch, Self::Refuse, Self::Keep, Self::Go, Self::Status];

    /// The path, with no slash in front.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Epoch => "dlg/ep",
            Self::Refuse => "dlg/rl",
            Self::Keep => "dlg/ctx",
            Self::Go => "dlg/go",
            Self::Status => "dlg/st",
        }
    }
}

/// A request of the server.
#[derive(Clone, Copy, Debug)]
pub enum Request<'r> {
    /// [`Resource::Epoch`]: number (2), time (4), check (8).
    Epoch {
        /// The number of the epoch.
        number: u16,
        /// The time, in seconds since 1970.
        time: u32,
        /// The [check](crate::Epoch::check) of the epoch.
        check: [u8; CHECK_LEN],
    },
    /// [`Resource::Refuse`]: the number (4) of a connection.
    Refuse(u32),
    /// [`Resource::Keep`].
    Keep(HandedOver<'r>),
    /// [`Resource::Go`].
    Go {
        /// The connection and its peer.
        go: Go,
        /// The name that the peer was asked for by server_name (RFC 6066, section 3) as the session was opened; empty if there is none.
        /// A device that does not send one in its ClientHello is taken for another client by some servers, which then do not resume.
        server_name: &'r [u8],
    },
    /// [`Resource::Status`]: no payload.
    Status,
}

/// A session that is handed over: flags (1), state (62), ticket or id. The flags are 1 if the device opens the session,
/// and 2 for a ticket.
#[derive(Clone, Copy)]
pub struct HandedOver<'r> {
    /// The [state](crate::Delegation::state) of the delegation.
    pub state: &'r [u8; STATE_LEN],
    /// The ticket or id with which the session is resumed.
    pub handle: Handle<'r>,
    /// True if the device opens the session, false if its peer does.
    pub opens: bool,
}

/// The device opens the session.
pub(crate) const OPENS: u8 = 1;
/// The session is resumed with a ticket.
const IS_TICKET: u8 = 2;

/// The connection that the device opens, and the address of its peer: number (4), address (16), port (2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Go {
    /// The number of the connection.
    pub number: u32,
    /// The address of the peer.
    pub peer: Address,
}

/// The state of a device: epoch, refused, most refused, sessions, most sessions, and six numbers of refusals (2 each).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The number of the epoch.
    pub epoch: u16,
    /// The connections that are refused in this epoch.
    pub refused: u16,
    /// The connections that can be refused in an epoch.
    pub most_refused: u16,
    /// The sessions that were handed over and have not ended.
    pub sessions: u16,
    /// The sessions that can be kept.
    pub most_sessions: u16,
    /// The sessions that were refused.
    pub refusals: Refusals,
}

/// The bytes are not a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

impl<'r> Request<'r> {
    /// Reads the payload of a request to a resource.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn read(resource: Resource, payload: &'r [u8]) -> Result<Self, Malformed> {
        Self::parse(resource, payload).ok_or(Malformed)
    }

    #[inline]
    fn parse(resource: Resource, payload: &'r [u8]) -> Option<Self> {
        Some(match resource {
            Resource::Epoch => {
                let &[a, b, c, d, e, f, ref check @ ..]: &[u8; 6 + CHECK_LEN] = payload.try_into().ok()?;
                let (number, time) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
                Self::Epoch { number, time, check: *check }
            }
            Resource::Refuse => Self::Refuse(u32::from_be_bytes(payload.try_into().ok()?)),
            Resource::Keep => Self::Keep(HandedOver::parse(payload)?),
            Resource::Go => {
                let (&[a, b, c, d, ref ip @ .., e, f], server_name) = payload.split_first_chunk::<22>()?;
                let peer = Address { ip: *ip, port: u16::from_be_bytes([e, f]), scope: 0 };
                Self::Go { go: Go { number: u32::from_be_bytes([a, b, c, d]), peer }, server_name }
            }
            // The payload of a GET has no meaning (RFC 7252, section 5.8.1).
            Resource::Status => Self::Status,
        })
    }

    /// The resource of the request.
    pub const fn resource(&self) -> Resource {
        match self {
            Self::Epoch { .. } => Resource::Epoch,
            Self::Refuse(_) => Resource::Refuse,
            Self::Keep(_) => Resource::Keep,
            Self::Go { .. } => Resource::Go,
            Self::Status => Resource::Status,
        }
    }

    /// Writes the payload.
    ///
    /// # Errors
    /// [`Full`].
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Epoch { number, time, check } => {
                out.u16(*number)?;
                out.u32(*time)?;
                out.put(check)
            }
            Self::Refuse(number) => out.u32(*number),
            Self::Keep(session) => session.write(out),
            Self::Go { go, server_name } => {
                out.u32(go.number)?;
                out.put(&go.peer.ip)?;
                out.u16(go.peer.port)?;
                out.put(server_name)
            }
            Self::Status => Ok(()),
        }
    }
}

/// The state has the master secret: it is not printed.
impl fmt::Debug for HandedOver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state: _, handle, opens } = self;
        f.debug_struct("HandedOver").field("handle", handle).field("opens", opens).finish_non_exhaustive()
    }
}

impl<'r> HandedOver<'r> {
    fn parse(payload: &'r [u8]) -> Option<Self> {
        let ([flags], payload) = payload.split_first_chunk()?;
        let (state, bytes) = payload.split_first_chunk()?;
        let (handle, opens) = (handle(*flags, bytes), flags & OPENS != 0);
        (flags & !(OPENS | IS_TICKET) == 0).then_some(Self { state, handle, opens })
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let (flags, bytes) = self.flags();
        out.u8(flags)?;
        out.put(self.state)?;
        out.put(bytes)
    }

    /// The flags, and the bytes of the ticket or id.
    pub(crate) const fn flags(&self) -> (u8, &'r [u8]) {
        let opens = if self.opens { OPENS } else { 0 };
        match self.handle {
            Handle::Ticket(bytes) => (opens | IS_TICKET, bytes),
            Handle::Id(bytes) => (opens, bytes),
        }
    }
}

/// Writes each number to its place.
#[inline(never)]
fn put(places: &mut [[u8; 2]], numbers: &[u16]) {
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number.to_be_bytes();
    }
}

/// The ticket or id of these flags.
pub(crate) const fn handle(flags: u8, bytes: &[u8]) -> Handle<'_> {
    if flags & IS_TICKET != 0 { Handle::Ticket(bytes) } else { Handle::Id(bytes) }
}

impl Status {
    /// Bytes of the response.
    pub const LEN: usize = 22;

    /// Reads a response.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(payload);
        let (epoch, refused, most_refused) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let (sessions, most_sessions) = (reader.u16()?, reader.u16()?);
        let mut refusals = Refusals::default();
        for count in &mut refusals.0 {
            *count = reader.u16()?;
        }
        let status = Self { epoch, refused, most_refused, sessions, most_sessions, refusals };
        reader.is_empty().then_some(status).ok_or(Malformed)
    }

    /// Writes the response.
    ///
    /// # Errors
    /// [`Full`].
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put(&self.bytes())
    }

    /// The bytes of the response.
    #[inline(never)]
    pub(crate) fn bytes(&self) -> [u8; Self::LEN] {
        let numbers = [self.epoch, self.refused, self.most_refused, self.sessions, self.most_sessions];
        let mut bytes = [0; Self::LEN];
        let (front, back) = bytes.as_chunks_mut().0.split_at_mut(numbers.len());
        put(front, &numbers);
        put(back, &self.refusals.0);
        bytes
    }
}
