//! Sessions between two devices of one server. Neither device performs a handshake with the server for such a session.
//! The server generates the master secret. It seals the secret for one device in a ticket, and sends the ticket and the
//! secret to the other device.

use super::connection::{Carrier, ConnectionId};
use super::decisions::{Given, SUITE, Standing, hand_over};
use super::error::DelegationError;
use super::handovers::Peer;
use super::memory::{Device, InMemory};
use super::server::Delegations;
use std::sync::Arc;
use tegmen::buf::Writer;
use tegmen::dtls::{Handle, SessionState};
use tegmen::identity::Principal;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_delegation::LONGEST_TICKET;
use tegmen_store::Store;

/// A session between two devices of the server. Each of the two devices has a connection for this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduced {
    /// The connection of the device that opens the session. The peer of this connection is the other device.
    pub opener: ConnectionId,
    /// The connection of the device that accepts the session. The peer of this connection is the device that opens the
    /// session.
    pub other: ConnectionId,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Lets the device `opener` open a session with the device `other`. The policy decides which rights each of the two
    /// devices has at the other one. The opener needs at least one right; the other device needs none. The opener
    /// receives the session when the server next contacts it, and opens the session at once.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`]; [`DelegationError::NotGiven`] with the reason, which is also in the audit log; or
    /// [`DelegationError::Store`]. After [`DelegationError::Store`], the numbers of the two connections may be
    /// reserved although the store has no rows for the connections: see [`Self::unaccounted`].
    pub async fn introduce(&self, opener: &str, other: &str) -> Result<Introduced, DelegationError> {
        let (opener, other) = (self.known(opener)?, self.known(other)?);
        let introduced = self.open_between([&opener, &other], self.seconds(), None)?;
        self.write_made().await?;
        self.want(&opener);
        Ok(introduced)
    }

    /// Generates the secret of a session, and gives the session to both devices. The devices get the rights from the
    /// policy; if `before` is given, they get the rights of these earlier connections.
    pub(super) fn open_between(
        &self,
        [opener, other]: [&Arc<Device>; 2],
        since: u32,
        before: Option<[Standing<'_>; 2]>,
    ) -> Result<Introduced, DelegationError> {
        let mut master = Secret::zeroed();
        self.crypto().random(master.expose_mut());
        let session = SessionState { cipher_suite: SUITE, master, principal: Principal::NOBODY, since: Some(since) };
        let mut room = [0; LONGEST_TICKET];
        let mut ticket = Writer::new(&mut room);
        let seal = |state: &mut InMemory, given: &Given| self.seal_into(state, given, &mut ticket);
        let sealed = match before {
            None => self.give(other, Some(opener.name.as_str().into()), &session, Carrier::Ticket, seal),
            Some([_, before]) => self.give_standing(other, &before, &session, Carrier::Ticket, seal),
        };
        let sealed = self.given_to(other, &opener.name, sealed)?;
        // Nobody opened this session by a name.
        let peer = Peer { address: other.state().known.config.address.into(), server_name: Vec::new() };
        let carry =
            |state: &mut InMemory, given: &Given| hand_over(state, given, Handle::Ticket(ticket.written()), Some(peer));
        let kept = match before {
            None => self.give(opener, Some(other.name.as_str().into()), &session, Carrier::Device, carry),
            Some([before, _]) => self.give_standing(opener, &before, &session, Carrier::Device, carry),
        };
        let kept = self.given_to(opener, &other.name, kept)?;
        Ok(Introduced { opener: kept.id, other: sealed.id })
    }
}
