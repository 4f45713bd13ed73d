//! The tickets that a delegation server issues for one device.

use crate::epoch::Epoch;
use crate::ticket::{Connection, Delegation, LONGEST_TICKET, STATE_LEN, Ticket, seal};
use tegmen::buf::{Full, Writer};
use tegmen::crypto::Crypto;
use tegmen::secret::Secret;
use tegmen_tickets::TicketKeys;

/// Maximum number of tickets that all replicas of a server together may seal for a device in one epoch.
pub const MAX_TICKETS: u32 = 1 << 16;

/// Seals tickets for a device in its present epoch. Opens a ticket of the present or the previous epoch if a peer
/// returns to the server with this ticket, and wants another ticket.
#[derive(Debug)]
pub struct Issuer {
    keys: TicketKeys,
    sealed: u32,
}

/// The reason why the server does not replace a ticket by a new ticket. The peer must then authenticate again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotReissued {
    /// The ticket belongs to another device or to another epoch.
    Unknown,
    /// The server revoked the connection.
    Revoked,
    /// The delegation has ended.
    Expired,
}

impl Issuer {
    /// Creates the issuer for the present epoch, and for the previous one if there is one. `sealed` is the number of
    /// tickets that were already sealed in the present epoch.
    pub fn new(present: Epoch, before: Option<Epoch>, sealed: u32) -> Self {
        let key = |epoch: Epoch| epoch.has_tickets().then_some(epoch.tickets);
        Self { keys: TicketKeys::of([key(present), None, before.and_then(key), None], 0), sealed }
    }

    /// Seals a ticket for the device, and returns its bytes. The caller must store the number of sealed tickets
    /// before it sends the ticket.
    ///
    /// # Errors
    /// [`Full`] if the epoch has no ticket key, or if 65,536 tickets were sealed. The server must then begin a new
    /// epoch.
    pub fn seal<'t, C: Crypto>(
        &mut self,
        crypto: &mut C,
        delegation: &Delegation,
        room: &'t mut [u8; LONGEST_TICKET],
    ) -> Result<Ticket<'t>, Full> {
        if self.sealed >= MAX_TICKETS {
            return Err(Full);
        }
        self.sealed = self.sealed.saturating_add(1);
        let mut ticket = Writer::new(room);
        seal(&mut self.keys, crypto, delegation, &mut ticket)?;
        let len = ticket.written().len();
        Ok(Ticket(room.get(..len).ok_or(Full)?))
    }

    /// Opens a ticket of the present or the previous epoch, and returns its session with the new connection number
    /// `number`. `now` is the time at which the peer resumed the session at the server, in seconds since 1970. The
    /// scope, the time of authentication and the expiry time do not change.
    ///
    /// # Errors
    /// [`NotReissued`] has the reason.
    pub fn reissue<C: Crypto>(
        &self,
        crypto: &mut C,
        ticket: Ticket<'_>,
        now: u32,
        number: u32,
        is_revoked: impl FnOnce(u32) -> bool,
    ) -> Result<Delegation, NotReissued> {
        let mut state = Secret::zeroed();
        let opened = self.keys.open(crypto, ticket.0, state.expose_mut());
        opened.filter(|opened| opened.state.len() == STATE_LEN).ok_or(NotReissued::Unknown)?;
        let mut delegation = Delegation::read(state.expose());
        let old = delegation.connection().ok_or(NotReissued::Unknown)?;
        if is_revoked(old.number) {
            return Err(NotReissued::Revoked);
        }
        if delegation.expires <= now {
            return Err(NotReissued::Expired);
        }
        let new = Connection::new(number, old.scope).ok_or(NotReissued::Unknown)?;
        delegation.session.principal = new.principal();
        Ok(delegation)
    }
}
