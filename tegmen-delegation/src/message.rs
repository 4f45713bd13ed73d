//! The requests of a delegation server to a device, and the response with the state of the device. Numbers are in
//! network byte order.

use crate::epoch::CHECK_LEN;
use crate::refusal::Refusals;
use crate::ticket::STATE_LEN;
use core::fmt;
use tegmen::address::Address;
use tegmen::buf::{Full, Reader, Truncated, Writer};
use tegmen::dtls::Handle;

/// A resource of a device. Only the delegation server of the device may use this resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// POST begins an epoch.
    Epoch,
    /// POST refuses a connection.
    Refuse,
    /// POST stores a session that the server hands over.
    Keep,
    /// POST makes the device resume a session that the server handed over before.
    Go,
    /// GET returns the state of the device.
    Status,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 5] = [Self::Epoch, Self::Refuse, Self::Keep, Self::Go, Self::Status];

    /// Returns the path, without a leading slash.
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

/// A request of the delegation server.
#[derive(Clone, Copy, Debug)]
pub enum Request<'r> {
    /// The request to [`Resource::Epoch`], which begins an epoch. Its payload: `number` (2 bytes), `time` (4 bytes) and
    /// `check` (8 bytes).
    Epoch {
        /// The number of the epoch.
        number: u16,
        /// The time at the server, in seconds since 1970.
        time: u32,
        /// The [check](crate::Epoch::check) of the epoch.
        check: [u8; CHECK_LEN],
    },
    /// The request to [`Resource::Refuse`]. Its payload: the number of a connection (4 bytes).
    Refuse(u32),
    /// The request to [`Resource::Keep`]. Its payload: the session to store.
    Keep(HandedOver<'r>),
    /// The request to [`Resource::Go`]. Its payload: the session to resume, and then `server_name`.
    Go {
        /// The connection of the session, and the address of its peer.
        go: Go,
        /// The name in the server_name extension of the ClientHello that opened the session (RFC 6066, section 3);
        /// empty without the extension. If the device does not send the same name in its ClientHello, some servers
        /// treat it as another client and do not resume the session.
        server_name: &'r [u8],
    },
    /// The request to [`Resource::Status`], which has no payload.
    Status,
}

/// A session that the server hands over to the device. The payload: flags (1 byte), state (62), ticket or id. The flag
/// 1 is set if the device resumes the session as client. The flag 2 is set if a ticket follows the state, and not an
/// id.
#[derive(Clone, Copy)]
pub struct HandedOver<'r> {
    /// The [state](crate::Delegation::state) of the delegation.
    pub state: &'r [u8; STATE_LEN],
    /// The ticket or id with which the client resumes the session.
    pub handle: Handle<'r>,
    /// True if the device resumes the session as client, false if its peer does.
    pub opens: bool,
}

/// Flag: the device resumes the session as client.
pub(crate) const OPENS: u8 = 1;
/// Flag: the session is resumed with a ticket. Without this flag, it is resumed with an id.
const IS_TICKET: u8 = 2;

/// The session to resume. The payload: the number of the connection (4 bytes), the address (16) and the port (2) of the
/// peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Go {
    /// The number of the connection.
    pub number: u32,
    /// The address and the port of the peer.
    pub peer: Address,
}

/// The state of a device, as 11 numbers of 2 bytes: epoch, refused, most_refused, sessions, most_sessions, and for each
/// of the six reasons of [`Refusals`] the number of refused sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The number of the present epoch.
    pub epoch: u16,
    /// Number of connections that are refused in this epoch.
    pub refused: u16,
    /// Maximum number of connections that can be refused in an epoch.
    pub most_refused: u16,
    /// Number of sessions that the server handed over, and that the device still stores.
    pub sessions: u16,
    /// Maximum number of handed-over sessions that the device can store.
    pub most_sessions: u16,
    /// Numbers of refused sessions, one for each reason.
    pub refusals: Refusals,
}

/// The bytes are not a valid request or response.
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
    /// [`Malformed`] if the payload does not parse.
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

    /// Returns the resource to which the request is sent.
    pub const fn resource(&self) -> Resource {
        match self {
            Self::Epoch { .. } => Resource::Epoch,
            Self::Refuse(_) => Resource::Refuse,
            Self::Keep(_) => Resource::Keep,
            Self::Go { .. } => Resource::Go,
            Self::Status => Resource::Status,
        }
    }

    /// Writes the payload of the request.
    ///
    /// # Errors
    /// [`Full`] if there is no space.
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

/// The state contains the master secret, so it is not printed.
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

    /// Returns two fields of the payload: the byte with the flags, and the bytes of the ticket or session id.
    pub(crate) const fn flags(&self) -> (u8, &'r [u8]) {
        let opens = if self.opens { OPENS } else { 0 };
        match self.handle {
            Handle::Ticket(bytes) => (opens | IS_TICKET, bytes),
            Handle::Id(bytes) => (opens, bytes),
        }
    }
}

/// Writes each number of `numbers` to the element of `places` with the same index, in network byte order.
#[inline(never)]
fn put(places: &mut [[u8; 2]], numbers: &[u16]) {
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number.to_be_bytes();
    }
}

/// Returns `bytes` as a ticket if the flag `IS_TICKET` is set, and as a session id otherwise.
pub(crate) const fn handle(flags: u8, bytes: &[u8]) -> Handle<'_> {
    if flags & IS_TICKET != 0 { Handle::Ticket(bytes) } else { Handle::Id(bytes) }
}

impl Status {
    /// Number of bytes of the response to [`Request::Status`].
    pub const LEN: usize = 22;

    /// Reads the payload of a response to [`Request::Status`].
    ///
    /// # Errors
    /// [`Malformed`] if the payload does not parse.
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

    /// Writes the payload of the response.
    ///
    /// # Errors
    /// [`Full`] if there is no space.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put(&self.bytes())
    }

    /// Returns the payload of the response.
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
