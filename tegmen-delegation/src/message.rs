//! The requests of a delegation server to a device, and their responses: arrays of CBOR (RFC 8949).

use crate::epoch::CHECK_LEN;
use crate::refusal::Refusals;
use crate::ticket::{Connection, Delegation};
use tegmen::address::Address;
use tegmen::buf::{Full, Reader, Writer};
use tegmen::dtls::{CipherSuite, Handle, MASTER_LEN, SessionState};
use tegmen::secret::Secret;
use tegmen_base::cbor::{ARRAY, BYTES, UNSIGNED, read, read_bytes, write_head};

/// A request of the server.
#[derive(Debug)]
pub enum Request<'r> {
    /// POST `/dlg/ep` `[number, time, check]`: begin an epoch.
    Epoch {
        /// The number of the epoch.
        number: u16,
        /// The time, in seconds since 1970.
        time: u32,
        /// The [check](crate::Epoch::check) of the epoch.
        check: [u8; CHECK_LEN],
    },
    /// POST `/dlg/rl` `[number]`: refuse this connection.
    Refuse(u32),
    /// POST `/dlg/ctx`: keep a session.
    Keep(HandedOver<'r>),
    /// POST `/dlg/go`: resume a session that was handed over.
    Go(Go),
    /// GET `/dlg/st`: the state of the device.
    Status,
}

/// A session that is handed over: `[number, scope, suite, master secret, since, expires, opens, is ticket, ticket or id]`.
#[derive(Debug)]
pub struct HandedOver<'r> {
    /// The session and its end.
    pub delegation: Delegation,
    /// The ticket or id with which the session is resumed.
    pub handle: Handle<'r>,
    /// True if the device opens the session, false if its peer does.
    pub opens: bool,
}

/// The connection that the device opens, and the address of its peer: `[number, address, port]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Go {
    /// The number of the connection.
    pub number: u32,
    /// The address of the peer.
    pub peer: Address,
}

/// The state of a device: `[epoch, refused, most refused, sessions, most sessions, refusals]`, with six numbers of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The number of the epoch.
    pub epoch: u16,
    /// The connections that are refused in this epoch.
    pub refused: u32,
    /// The connections that can be refused in an epoch.
    pub most_refused: u32,
    /// The sessions that were handed over and have not ended.
    pub sessions: u32,
    /// The sessions that can be kept.
    pub most_sessions: u32,
    /// The sessions that were refused.
    pub refusals: Refusals,
}

/// The bytes are not a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl<'r> Request<'r> {
    /// Reads the payload of a request to the resource `/dlg/NAME`.
    ///
    /// # Errors
    /// [`Malformed`], also for an unknown resource.
    pub fn read(name: &[u8], payload: &'r [u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(payload);
        let request = match name {
            b"ep" => read_epoch(reader),
            b"rl" => read_array(1, reader).and_then(|()| read_number(reader)).map(Self::Refuse),
            b"ctx" => HandedOver::read(reader).map(Self::Keep),
            b"go" => Go::read(reader).map(Self::Go),
            b"st" => Some(Self::Status),
            _ => None,
        };
        request.filter(|_| reader.is_empty()).ok_or(Malformed)
    }

    /// The last segment of the path.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Epoch { .. } => "ep",
            Self::Refuse(_) => "rl",
            Self::Keep(_) => "ctx",
            Self::Go(_) => "go",
            Self::Status => "st",
        }
    }

    /// Writes the payload.
    ///
    /// # Errors
    /// [`Full`].
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Epoch { number, time, check } => {
                write_array(3, out)?;
                write_number((*number).into(), out)?;
                write_number(*time, out)?;
                write_bytes(check, out)
            }
            Self::Refuse(number) => {
                write_array(1, out)?;
                write_number(*number, out)
            }
            Self::Keep(session) => session.write(out),
            Self::Go(go) => {
                write_array(3, out)?;
                write_number(go.number, out)?;
                write_bytes(&go.peer.ip, out)?;
                write_number(go.peer.port.into(), out)
            }
            Self::Status => Ok(()),
        }
    }
}

fn read_epoch<'r>(reader: &mut Reader<'r>) -> Option<Request<'r>> {
    read_array(3, reader)?;
    let (number, time) = (read_number(reader)?, read_number(reader)?);
    Some(Request::Epoch { number, time, check: read_bytes(reader)?.try_into().ok()? })
}

impl Go {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        read_array(3, reader)?;
        let (number, ip) = (read_number(reader)?, read_bytes(reader)?.try_into().ok()?);
        Some(Self { number, peer: Address { ip, port: read_number(reader)?, scope: 0 } })
    }
}

impl<'r> HandedOver<'r> {
    fn read(reader: &mut Reader<'r>) -> Option<Self> {
        read_array(9, reader)?;
        let connection = Connection::new(read_number(reader)?, read_number(reader)?)?;
        let cipher_suite = CipherSuite(read_number(reader)?);
        let master: &[u8; MASTER_LEN] = read_bytes(reader)?.try_into().ok()?;
        let master = Secret::new(*master);
        let (since, expires) = (Some(read_number(reader)?), read_number(reader)?);
        let session = SessionState { cipher_suite, master, principal: connection.principal(), since };
        let (opens, is_ticket) = (read_flag(reader)?, read_flag(reader)?);
        let handle = read_bytes(reader)?;
        let handle = if is_ticket { Handle::Ticket(handle) } else { Handle::Id(handle) };
        Some(Self { delegation: Delegation { session, expires }, handle, opens })
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let Delegation { session, expires } = &self.delegation;
        let (is_ticket, handle) = match self.handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        let connection = Connection::of(session.principal).ok_or(Full)?;
        write_array(9, out)?;
        write_number(connection.number, out)?;
        write_number(connection.scope.into(), out)?;
        write_number(session.cipher_suite.0.into(), out)?;
        write_bytes(session.master.expose(), out)?;
        write_number(session.since.ok_or(Full)?, out)?;
        write_number(*expires, out)?;
        write_number(self.opens.into(), out)?;
        write_number(is_ticket.into(), out)?;
        write_bytes(handle, out)
    }
}

impl Status {
    /// Reads a response.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(payload);
        Self::parse(reader).filter(|_| reader.is_empty()).ok_or(Malformed)
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        read_array(11, reader)?;
        let epoch = read_number(reader)?;
        let (refused, most_refused) = (read_number(reader)?, read_number(reader)?);
        let (sessions, most_sessions) = (read_number(reader)?, read_number(reader)?);
        let mut refusals = Refusals::default();
        for count in &mut refusals.0 {
            *count = read_number(reader)?;
        }
        Some(Self { epoch, refused, most_refused, sessions, most_sessions, refusals })
    }

    /// Writes the response.
    ///
    /// # Errors
    /// [`Full`].
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        write_array(11, out)?;
        let counts = [self.refused, self.most_refused, self.sessions, self.most_sessions];
        let numbers = [self.epoch.into()].into_iter().chain(counts).chain(self.refusals.0.map(u32::from));
        for number in numbers {
            write_number(number, out)?;
        }
        Ok(())
    }
}

fn read_array(len: usize, reader: &mut Reader<'_>) -> Option<()> {
    (read(ARRAY, reader)? == len).then_some(())
}

fn read_number<N: TryFrom<usize>>(reader: &mut Reader<'_>) -> Option<N> {
    read(UNSIGNED, reader)?.try_into().ok()
}

/// Reads 0 or 1.
fn read_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match read(UNSIGNED, reader)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn write_array(len: usize, out: &mut Writer<'_>) -> Result<(), Full> {
    write_head(ARRAY, len, out)
}

fn write_number(number: u32, out: &mut Writer<'_>) -> Result<(), Full> {
    write_head(UNSIGNED, number as usize, out)
}

fn write_bytes(bytes: &[u8], out: &mut Writer<'_>) -> Result<(), Full> {
    write_head(BYTES, bytes.len(), out)?;
    out.put(bytes)
}
