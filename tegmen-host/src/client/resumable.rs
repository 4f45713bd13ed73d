//! The means to resume a session.

use tegmen::dtls::{Handle, Resumable, SessionState};
use tegmen::secret::Secret;

/// The means to resume a session that a handshake of this client began.
#[derive(Debug)]
pub struct ResumableSession {
    /// The session with its master secret.
    pub session: SessionState,
    /// True for a ticket (RFC 5077), false for a session id.
    pub is_ticket: bool,
    /// The ticket or the id.
    pub handle: Vec<u8>,
    /// The time for which the server means to take it, in seconds; 0 if it is unknown.
    pub lifetime: u32,
}

impl ResumableSession {
    /// `None` for a session that is resumed as before.
    pub(super) fn of(resumable: Resumable<'_>) -> Option<Self> {
        let Resumable::With { session, handle, lifetime } = resumable else { return None };
        let (is_ticket, bytes) = match handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        Some(Self { session, is_ticket, handle: bytes.to_vec(), lifetime })
    }

    /// Returns the offer to resume it.
    pub(super) fn offer(&self) -> Offer {
        let master = Secret::new(*self.session.master.expose());
        (SessionState { master, ..self.session }, self.is_ticket, self.handle.clone())
    }
}

/// A session that is offered to be resumed, whether by a ticket, and the ticket or id.
pub(super) type Offer = (SessionState, bool, Vec<u8>);
