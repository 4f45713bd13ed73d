//! The data that a client needs to resume a session.

use tegmen::dtls::{Handle, Resumable, SessionState};
use tegmen::secret::Secret;

/// The data that a client needs to resume a session. A handshake of this client began the session.
#[derive(Debug)]
pub struct ResumableSession {
    /// The session with its master secret.
    pub session: SessionState,
    /// True for a ticket (RFC 5077), false for a session id.
    pub is_ticket: bool,
    /// The bytes of the ticket or session id.
    pub handle: Vec<u8>,
    /// The time in seconds for which the server intends to accept the ticket or session id; 0 if it is unknown.
    pub lifetime: u32,
}

impl ResumableSession {
    /// Returns the data of a new ticket or session id. Returns `None` if the handshake resumed a session and the server
    /// issued no new ticket or session id.
    pub(super) fn of(resumable: Resumable<'_>) -> Option<Self> {
        let Resumable::With { session, handle, lifetime } = resumable else { return None };
        let (is_ticket, bytes) = match handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        Some(Self { session, is_ticket, handle: bytes.to_vec(), lifetime })
    }

    /// Returns the offer to resume the session.
    pub(super) fn offer(&self) -> Offer {
        let master = Secret::new(*self.session.master.expose());
        (SessionState { master, ..self.session }, self.is_ticket, self.handle.clone())
    }
}

/// The offer to resume a session. The values are the session, then true for a ticket or false for a session id, and
/// then the ticket or session id.
pub(super) type Offer = (SessionState, bool, Vec<u8>);
