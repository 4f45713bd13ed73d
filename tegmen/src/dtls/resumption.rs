//! The store of sessions for resumption. Resumption needs no key exchange. The client shows a ticket, which holds the
//! server's state of the session (RFC 5077), or an id under which the server stores that state (RFC 5246, section 7.3).
//!
//! Only sessions with extended master secret are resumed (RFC 7627, section 5.3), and only under their own cipher
//! suite. If a session cannot be resumed, the two ends make a full handshake.

use super::suite::{CipherSuite, Suites};
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::identity::Principal;
use crate::secret::Secret;
use crate::time::Instant;

/// Bytes of a master secret (RFC 5246, section 8.1).
pub const MASTER_LEN: usize = 48;
/// Bytes of the longest ticket that our server issues.
pub(crate) const MAX_TICKET: usize = 512;
/// Bytes of the session ids that our server issues, and of those with which our client recognizes that its ticket was
/// accepted (RFC 5077, section 3.4).
pub(crate) const ID_LEN: usize = 32;

/// The state that both ends keep of a session to resume it.
#[derive(Debug)]
pub struct SessionState {
    /// The cipher suite of the session.
    pub cipher_suite: CipherSuite,
    /// The master secret of the session.
    pub master: Secret<MASTER_LEN>,
    /// The principal that the peer proved.
    pub principal: Principal,
    /// The time of the proof with a key, in seconds of the owner's clock; `None` means now.
    pub since: Option<u32>,
}

impl SessionState {
    /// Bytes of [`Self::write`].
    pub const LEN: usize = 2 + MASTER_LEN + 4;

    /// Writes the minimum content of a ticket: cipher suite, master secret and principal.
    ///
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn write(&self, state: &mut Writer<'_>) -> Result<(), Full> {
        state.u16(self.cipher_suite.0)?;
        state.put(self.master.expose())?;
        state.u32(self.principal.0)
    }

    /// Reads the output of [`Self::write`]; `since` is not part of it.
    ///
    /// # Errors
    /// [`Truncated`].
    #[inline]
    pub fn read(state: &mut Reader<'_>) -> Result<Self, Truncated> {
        let cipher_suite = CipherSuite(state.u16()?);
        let master = Secret::new(state.array()?);
        let principal = Principal(state.u32()?);
        Ok(Self { cipher_suite, master, principal, since: None })
    }
}

/// The means by which a client resumes a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handle<'h> {
    /// A ticket.
    Ticket(&'h [u8]),
    /// An id.
    Id(&'h [u8]),
}

/// The means by which a client can later resume the session that it opened.
#[derive(Debug)]
pub enum Resumable<'r> {
    /// With the ticket or the id with which this session was itself resumed.
    Again,
    /// With a new ticket or id.
    With {
        /// The state to remember.
        session: SessionState,
        /// The ticket or id to show to the server.
        handle: Handle<'r>,
        /// The lifetime of the ticket in seconds, as the server announced it; 0 if it announced none.
        lifetime: u32,
    },
}

/// The session that a server found for a client that wants to resume.
#[derive(Debug)]
pub struct Found {
    /// The session.
    pub session: SessionState,
    /// True if the client gets a new ticket, because this one is accepted only for a short time more.
    pub renew: bool,
}

/// The store of sessions that the clients of a server may resume. The default store is empty. `server` is the number of the
/// [named server](super::roles::Keys::server) that the client asks for, 0 if there is none. The store keeps the sessions of
/// different servers apart (RFC 6066, section 3).
pub trait Resumption {
    /// Cipher suites of sessions that are resumed although the role does not offer them: of a device whose sessions another
    /// endpoint opened with public keys. A client that resumes such a session offers its suite alone, and the handshake fails
    /// with [`Fatal::NoCredentials`](super::Fatal) if the server declines.
    const SUITES: Suites = Suites(&[]);

    /// Server: true if clients that accept tickets get them.
    fn gives_tickets(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Server: true if sessions are kept under ids for clients that accept no tickets.
    fn gives_ids(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Client: true if its ClientHello announces that it accepts tickets.
    fn takes_tickets(&self) -> bool {
        true
    }

    /// Returns the content of a ticket; `None` if this server did not issue it, it was changed or is too old, or its
    /// owner is no longer allowed.
    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        let _ = (cx, server, ticket);
        None
    }

    /// Writes a ticket of up to 512 bytes (`MAX_TICKET`), and returns its lifetime in seconds; `None` if there is none
    /// for this session.
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

    /// Keeps a session whose handshake is over under this id, which is drawn at random.
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
