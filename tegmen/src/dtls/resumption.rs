//! The store of sessions for resumption. A resumed session needs no key exchange. There are two ways to resume a
//! session. In the first way, the client sends a ticket, which contains the server's state of the session (RFC 5077).
//! In the second way, the client sends an id, and the server has stored its state of the session under this id (RFC
//! 5246, section 7.3).
//!
//! Only sessions with extended master secret are resumed (RFC 7627, section 5.3), and only with their original cipher
//! suite. If a session cannot be resumed, client and server make a full handshake.

use super::suite::{CipherSuite, Suites};
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::identity::Principal;
use crate::secret::Secret;
use crate::time::Instant;

/// Number of bytes of a master secret (RFC 5246, section 8.1).
pub const MASTER_LEN: usize = 48;
/// Maximum number of bytes of a ticket that our server issues.
pub(crate) const MAX_TICKET: usize = 512;
/// Number of bytes of the session ids that our server issues. The session id that our client sends together with a
/// ticket has the same length. The server repeats this id if it accepts the ticket (RFC 5077, section 3.4).
pub(crate) const ID_LEN: usize = 32;

/// The state of a session that client and server store to resume it.
#[derive(Debug)]
pub struct SessionState {
    /// The cipher suite of the session.
    pub cipher_suite: CipherSuite,
    /// The master secret of the session.
    pub master: Secret<MASTER_LEN>,
    /// The principal that the peer proved.
    pub principal: Principal,
    /// The time at which the peer proved that it has its key, in seconds on the clock of the endpoint's owner; `None`
    /// means the present time.
    pub since: Option<u32>,
}

impl SessionState {
    /// Number of bytes that [`Self::write`] writes.
    pub const LEN: usize = 2 + MASTER_LEN + 4;

    /// Writes the cipher suite, the master secret and the principal. A ticket contains at least these three values.
    ///
    /// # Errors
    /// [`Full`] if there is no space.
    #[inline]
    pub fn write(&self, state: &mut Writer<'_>) -> Result<(), Full> {
        state.u16(self.cipher_suite.0)?;
        state.put(self.master.expose())?;
        state.u32(self.principal.0)
    }

    /// Reads the bytes that [`Self::write`] wrote. These bytes do not contain `since`, so the result has `None`.
    ///
    /// # Errors
    /// [`Truncated`] if bytes are missing.
    #[inline]
    pub fn read(state: &mut Reader<'_>) -> Result<Self, Truncated> {
        let cipher_suite = CipherSuite(state.u16()?);
        let master = Secret::new(state.array()?);
        let principal = Principal(state.u32()?);
        Ok(Self { cipher_suite, master, principal, since: None })
    }
}

/// The ticket or the id with which a client resumes a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handle<'h> {
    /// A ticket (RFC 5077).
    Ticket(&'h [u8]),
    /// A session id (RFC 5246, section 7.3).
    Id(&'h [u8]),
}

/// The data with which a client can later resume a session that it opened earlier.
#[derive(Debug)]
pub enum Resumable<'r> {
    /// The ticket or the id with which this session was resumed. The client can use it again.
    Again,
    /// The server gave a new ticket or id.
    With {
        /// The state of the session, which the client stores.
        session: SessionState,
        /// The ticket or id that the client later sends to the server to resume the session.
        handle: Handle<'r>,
        /// The lifetime of the ticket in seconds, as the server sent it; 0 if the server sent no lifetime.
        lifetime: u32,
    },
}

/// The session that a server found for a client that asks for resumption.
#[derive(Debug)]
pub struct Found {
    /// The state of the session that is resumed.
    pub session: SessionState,
    /// True if the server issues a new ticket to the client, because the present ticket expires soon.
    pub renew: bool,
}

/// The store of sessions that a server can resume with its clients. The default implementation stores no sessions.
/// `server` is the number of the [named server](super::roles::Keys::server) that the client requests, or 0 if it
/// requests no named server. The store must keep the sessions of different servers separate (RFC 6066, section 3).
pub trait Resumption {
    /// Cipher suites that the role uses only to resume sessions, and does not offer for new sessions. For example, a
    /// device without public keys can resume sessions that another endpoint opened with public keys. A client that
    /// resumes such a session offers only the cipher suite of this session. If the server declines to resume, the
    /// handshake fails with [`Fatal::NoCredentials`](super::Fatal).
    const SUITES: Suites = Suites(&[]);

    /// Server: returns true if the server issues tickets to clients that accept tickets.
    fn gives_tickets(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Server: returns true if the server stores sessions under ids, for clients that accept no tickets.
    fn gives_ids(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Client: returns true if its ClientHello states that the client accepts tickets.
    fn takes_tickets(&self) -> bool {
        true
    }

    /// Returns the session in a ticket. Returns `None` in three cases: this server did not issue the ticket; the ticket
    /// was changed or is too old; or the client to which the ticket was issued no longer has access.
    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        let _ = (cx, server, ticket);
        None
    }

    /// Writes a ticket for a session, with at most 512 bytes (`MAX_TICKET`). Returns the lifetime of the ticket in
    /// seconds, or `None` if this session gets no ticket.
    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        server: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let _ = (cx, server, session, ticket);
        None
    }

    /// Returns the session that is stored under this id; `None` if there is no such session.
    fn find(&self, now: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        let _ = (now, server, id);
        None
    }

    /// Stores a session under the random id `id`, after the handshake of the session.
    fn remember(&self, now: Instant, server: u32, id: &[u8], session: &SessionState) {
        let _ = (now, server, id, session);
    }
}

/// A store without sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoResumption;

impl Resumption for NoResumption {
    fn takes_tickets(&self) -> bool {
        false
    }
}
