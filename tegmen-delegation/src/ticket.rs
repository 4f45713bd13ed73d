//! The ticket of a delegated session (RFC 5077, section 4).

use tegmen::buf::{Full, Writer};
use tegmen::crypto::Crypto;
use tegmen::dtls::{CipherSuite, SessionState};
use tegmen::identity::Principal;
use tegmen::secret::Secret;
use tegmen_tickets::{OVERHEAD, TicketKey, TicketKeys};

/// Number of bytes that [`Delegation::state`] returns.
pub const STATE_LEN: usize = SessionState::LEN + 4 + 4;
/// Number of bytes of a ticket.
pub const LONGEST_TICKET: usize = OVERHEAD + STATE_LEN;

/// A delegated connection: its number, and the index of its scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    /// The number of the connection, below 2^24 - 1. In one epoch, the server gives each number to only one connection.
    pub number: u32,
    /// The index of the scope that the server authorized. The device defines the meaning of each scope.
    pub scope: u8,
}

/// The highest number of a connection. With a higher number, [`Connection::principal`] could return
/// [`Principal::NOBODY`].
const MAX_NUMBER: u32 = (1 << 24) - 2;

impl Connection {
    /// Creates a connection. Returns `None` if the number is 2^24 - 1 or higher.
    pub fn new(number: u32, scope: u8) -> Option<Self> {
        (number <= MAX_NUMBER).then_some(Self { number, scope })
    }

    /// Returns the principal by which the device knows the peer of this connection.
    pub const fn principal(self) -> Principal {
        Principal(self.number << 8 | self.scope as u32)
    }

    /// Returns the connection of a principal; `None` if the principal does not belong to a delegated session.
    pub fn of(principal: Principal) -> Option<Self> {
        Self::new(principal.0 >> 8, principal.0 as u8)
    }
}

/// The principal that a device gives to sessions with its delegation server. [`Connection::principal`] never returns
/// this value.
pub const SERVER: Principal = Principal(0xffff_ff00);

/// A session that a server opened in the name of a device. Times are in seconds since 1970.
#[derive(Debug)]
pub struct Delegation {
    /// The session. Its principal is [`Connection::principal`], and `since` is the time at which the peer and the
    /// server authenticated each other.
    pub session: SessionState,
    /// The time from which on the device refuses the session.
    pub expires: u32,
}

impl Delegation {
    /// Returns the connection of the session.
    pub fn connection(&self) -> Option<Connection> {
        Connection::of(self.session.principal)
    }

    /// Returns the state of the delegation in the form in which a ticket and a handed-over session contain it. The
    /// numbers in brackets are lengths in bytes:
    ///
    /// ```text
    /// cipher suite (2), master secret (48), connection (3), scope (1), since (4), expires (4)
    /// ```
    ///
    /// # Errors
    /// [`Full`] if the session has no time `since`.
    pub fn state(&self) -> Result<Secret<STATE_LEN>, Full> {
        let mut state = Secret::zeroed();
        let mut writer = Writer::new(state.expose_mut());
        self.session.write(&mut writer)?;
        writer.u32(self.session.since.ok_or(Full)?)?;
        writer.u32(self.expires)?;
        Ok(state)
    }

    /// Reads a delegation from the bytes that [`Self::state`] returned.
    pub(crate) fn read(state: &[u8; STATE_LEN]) -> Self {
        let &[high, low, ref master @ .., _, _, _, _, _, _, _, _, _, _, _, _] = state;
        let (principal, since, expires) = terms(state);
        let (cipher_suite, master) = (CipherSuite(u16::from_be_bytes([high, low])), Secret::new(*master));
        Self { session: SessionState { cipher_suite, master, principal, since: Some(since) }, expires }
    }
}

/// Returns three parts of a [state](Delegation::state): the principal, the time of authentication `since`, and the
/// expiry time. Both times are in seconds since 1970.
pub(crate) const fn terms(state: &[u8; STATE_LEN]) -> (Principal, u32, u32) {
    let &[.., a, b, c, d, e, f, g, h, i, j, k, l] = state;
    let principal = Principal(u32::from_be_bytes([a, b, c, d]));
    (principal, u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([i, j, k, l]))
}

/// A ticket for a device. The numbers in brackets are lengths in bytes:
///
/// ```text
/// epoch (2) | nonce (9) | sealed: cipher suite (2), master secret (48), connection (3), scope (1), since (4), expires (4) | tag (16)
/// ```
///
/// The crate `tegmen_tickets` seals and opens the ticket. For that crate, the two bytes of the epoch are the name of
/// the ticket key.
#[derive(Clone, Copy, Debug)]
pub struct Ticket<'t>(pub &'t [u8]);

impl Ticket<'_> {
    /// Returns the epoch in which the ticket was sealed. The epoch is not authentic before the ticket opens.
    pub fn epoch(self) -> Option<u16> {
        self.0.first_chunk().copied().map(u16::from_be_bytes)
    }

    /// Opens the ticket. Returns `None` if the ticket was not sealed under `key`.
    pub fn open<C: Crypto>(self, key: &TicketKey, crypto: &mut C) -> Option<Delegation> {
        let mut state = Secret::zeroed();
        self.open_into(key, crypto, &mut state).then(|| Delegation::read(state.expose()))
    }

    /// Opens the ticket, and writes the state in the ticket to `state`. Returns false if the ticket was not sealed
    /// under `key`.
    pub(crate) fn open_into<C: Crypto>(self, key: &TicketKey, crypto: &mut C, state: &mut Secret<STATE_LEN>) -> bool {
        key.open(crypto, self.0, state.expose_mut()) == Some(STATE_LEN)
    }
}

/// Seals a ticket.
///
/// # Errors
/// [`Full`] for the reasons of [`TicketKeys::seal`], or if the session has no time `since`.
pub(crate) fn seal<C: Crypto>(
    keys: &mut TicketKeys,
    crypto: &mut C,
    delegation: &Delegation,
    ticket: &mut Writer<'_>,
) -> Result<(), Full> {
    keys.seal(crypto, delegation.state()?.expose(), ticket)
}
