//! The store of sessions for resumption. A resumed session needs no key exchange. The client shows a ticket, which
//! contains the server's state of the session (RFC 5077), or an id under which the server stores that state (RFC
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

/// Bytes of a master secret (RFC 5246, section 8.1).
pub const MASTER_LEN: usize = 48;
/// Maximum number of bytes of a ticket that our server issues.
pub(crate) const MAX_TICKET: usize = 512;
/// Bytes of the session ids that our server issues. Also bytes of the ids that our client sends with a ticket, to
/// recognize that the server accepted the ticket (RFC 5077, section 3.4).
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
    /// The time at which the peer proved a key, in seconds of the owner's clock; `None` means now.
    pub since: Option<u32>,
}

impl SessionState {
    /// Number of bytes that [`Self::write`] writes.
    pub const LEN: usize = 2 + MASTER_LEN + 4;

    /// Writes the minimum content of a ticket: cipher suite, master secret and principal.
    ///
    /// # Errors
    /// [`Full`] if there is no space.
    #[inline]
    pub fn write(&self, state: &mut Writer<'_>) -> Result<(), Full> {
        state.u16(self.cipher_suite.0)?;
        state.put(self.master.expose())?;
        state.u32(self.principal.0)
    }

    /// Reads the bytes that [`Self::write`] wrote. They do not contain `since`.
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

/// The data with which a client can later resume the session that it opened.
#[derive(Debug)]
pub enum Resumable<'r> {
    /// The ticket or the id with which this session was resumed can be used again.
    Again,
    /// The server gave a new ticket or id.
    With {
        /// The state of the session, which the client stores.
        session: SessionState,
        /// The ticket or id that the client shows to the server later.
        handle: Handle<'r>,
        /// The lifetime of the ticket in seconds, as the server sent it; 0 if the server sent no lifetime.
        lifetime: u32,
    },
}

/// The session that a server found for a client that wants to resume.
#[derive(Debug)]
pub struct Found {
    /// The state of the session.
    pub session: SessionState,
    /// True if the client gets a new ticket, because the present ticket expires soon.
    pub renew: bool,
}

/// The store of sessions that the clients of a server may resume. The default store is empty. `server` is the number
/// of the [named server](super::roles::Keys::server) that the client asks for, or 0 without a named server. The store
/// must keep the sessions of different servers separate (RFC 6066, section 3).
pub trait Resumption {
    /// Cipher suites of sessions that are resumed although the role does not offer these suites. An example is a
    /// device whose sessions another endpoint opened with public keys. A client that resumes such a session offers
    /// only its suite. The handshake fails with [`Fatal::NoCredentials`](super::Fatal) if the server declines to
    /// resume.
    const SUITES: Suites = Suites(&[]);

    /// Server: true if clients that accept tickets get tickets.
    fn gives_tickets(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Server: true if the server stores the sessions of clients that accept no tickets, under ids.
    fn gives_ids(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Client: true if its ClientHello states that the client accepts tickets.
    fn takes_tickets(&self) -> bool {
        true
    }

    /// Returns the session in a ticket. Returns `None` if this server did not issue the ticket, if the ticket was
    /// changed or is too old, or if its owner no longer has access.
    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        let _ = (cx, server, ticket);
        None
    }

    /// Writes a ticket of up to 512 bytes (`MAX_TICKET`), and returns its lifetime in seconds. Returns `None` if this
    /// session gets no ticket.
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

    /// Returns the session with this id.
    fn find(&self, now: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        let _ = (now, server, id);
        None
    }

    /// Stores a session after its handshake, under the random id `id`.
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
