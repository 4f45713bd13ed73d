//! Implements the trait of [`tegmen_host::delegate`], with which a server opens sessions in the name of devices.

use super::connection::Carrier;
use super::decisions::{Given, hand_over};
use super::memory::InMemory;
use super::server::Delegations;
use std::sync::Arc;
use tegmen::buf::Writer;
use tegmen::dtls::{Found, Handle, SessionState};
use tegmen_base::crypto::Crypto;
use tegmen_delegation::Ticket;
use tegmen_host::delegate::{Delegate, Delegated, Proved};
use tegmen_host::public_keys::PublicKeys;
use tegmen_store::Store;

impl<S: Store, C: Crypto + Send> Delegate for Delegations<S, C> {
    fn device(&self, server_name: &[u8]) -> Option<u32> {
        self.device(server_name)
    }

    fn credentials(&self, device: u32) -> Option<Arc<PublicKeys>> {
        let device = self.registry(|registry| registry.numbered(device))?;
        self.certificates.as_ref()?.of(&device.name)
    }

    fn seal(
        &self,
        device: u32,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        self.seal_ticket(device, peer, session, ticket)
    }

    fn open(&self, device: u32, ticket: &[u8]) -> Option<Delegated> {
        let device = self.registry(|registry| registry.numbered(device))?;
        let (Found { session, renew }, id) = self.open_of_peer(&device, Ticket(ticket))?;
        // No certificate has a name with a space and a device in front: the policy gives nothing to it.
        let peer = format!("{} {id}", device.name);
        Some(Delegated { session, peer, renew })
    }

    fn find(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        // The device resumes a session that was handed over. At the server its peer authenticates itself.
        None
    }

    fn remember(&self, device: u32, peer: Option<Proved<'_>>, id: &[u8], session: &SessionState) {
        let Some(device) = self.registry(|registry| registry.numbered(device)) else { return };
        let carry = |state: &mut InMemory, given: &Given| hand_over(state, given, Handle::Id(id), None);
        let given = self.give(&device, peer, session, Carrier::Id, carry);
        if self.report(&device, peer.map(|peer| peer.name), given).is_some() {
            self.want(&device);
        }
    }
}
