//! The store of sessions for resumption, which takes no key exchange: with a ticket, which holds the server's state of
//! the session (RFC 5077), or with an id under which the server stores that state (RFC 5246, section 7.3).
//!
//! Only sessions with extended master secret are resumed (RFC 7627, section 5.3), and only under their own cipher suite.
//! What cannot be resumed leads to a full handshake.

use super::suite::{CipherSuite, Suites};
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::identity::Principal;
use crate::secret::Secret;
use crate::time::Instant;

/// Bytes of a master secret (RFC 5246, section 8.1).
pub const MASTER_LEN: usize = 48;
/// Bytes of the longest ticket that a server here gives.
pub(crate) const MAX_TICKET: usize = 512;
/// Bytes of the ids that a server here gives, and by which a client tells that its ticket was taken (RFC 5077,
/// section 3.4).
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

    /// Writes what a ticket has to hold at least: cipher suite, master secret and principal.
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
    /// With what it was itself resumed with.
    Again,
    /// With this.
    With {
        /// The state to remember.
        session: SessionState,
        /// The ticket or id to show to the server.
        handle: Handle<'r>,
        /// For how many seconds the server means to take it, 0 if it does not say.
        lifetime: u32,
    },
}

/// The session that a server found for a client that wants to resume.
#[derive(Debug)]
pub struct Found {
    /// The session.
    pub session: SessionState,
    /// The client gets a new ticket, because this one will not be taken much longer.
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

    /// True if clients that take tickets get them.
    fn gives_tickets(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// True if sessions are kept under ids for clients that take no tickets.
    fn gives_ids(&self, server: u32) -> bool {
        let _ = server;
        false
    }

    /// Client: true if the client tells a server that it accepts tickets.
    fn takes_tickets(&self) -> bool {
        true
    }

    /// Returns the content of a ticket; `None` if this server did not issue it, it was changed or is too old, or its
    /// owner is no longer allowed.
    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        let _ = (cx, server, ticket);
        None
    }

    /// Writes a ticket of up to `MAX_TICKET` bytes, and returns for how many seconds it will be taken; `None` if there is
    /// none for this session.
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

    /// The session with this id.
    fn find(&self, now: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        let _ = (now, server, id);
        None
    }

    /// Keeps a session whose handshake is over under this id, which is drawn at random.
    fn remember(&self, now: Instant, server: u32, id: &[u8], session: &SessionState) {
        let _ = (now, server, id, session);
    }
}

/// Nothing can be resumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoResumption;

impl Resumption for NoResumption {
    fn takes_tickets(&self) -> bool {
        false
    }
}
