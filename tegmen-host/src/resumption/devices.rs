//! Sessions that a server opens and resumes in the name of devices: see [`Delegate`].

use super::{Counts, FOUND, LOST, OPENED, REFUSED, SEALED};
use crate::credentials::Credentials;
use crate::delegate::{Delegate, Delegated, Proved};
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::buf::Writer;
use tegmen::dtls::{Found, SessionState};
use tegmen::identity::Principal;
use tegmen::secret::Secret;

/// The devices of a server.
pub(super) struct Devices {
    pub(super) delegate: Arc<dyn Delegate>,
    /// The credentials of the server. They give a principal (a number) to each peer of a session that the server opens
    /// in the name of a device.
    pub(super) credentials: Credentials,
    pub(super) counts: Counts,
}

impl Devices {
    pub(super) fn open(&self, device: u32, ticket: &[u8]) -> Option<Found> {
        let found = self.delegate.open(device, ticket).map(|delegated| self.found(device, delegated));
        self.counts.count(if found.is_some() { OPENED } else { REFUSED });
        found
    }

    pub(super) fn find(&self, device: u32, id: &[u8]) -> Option<SessionState> {
        let found = self.delegate.find(device, id).map(|delegated| self.found(device, delegated));
        self.counts.count(if found.is_some() { FOUND } else { LOST });
        found.map(|found| found.session)
    }

    /// Registers the peer of a session in the credentials of the server. Returns the session. Its principal is now the
    /// number that the credentials gave to the peer, and no longer the number that the [`Delegate`] chose for the
    /// session.
    fn found(&self, device: u32, Delegated { session, peer, renew }: Delegated) -> Found {
        let principal = self.credentials.delegated_as(&peer, device, session.principal.0);
        Found { session: SessionState { principal, ..session }, renew }
    }

    pub(super) fn seal(&self, device: u32, session: &SessionState, ticket: &mut Writer<'_>) -> Option<u32> {
        let (peer, session) = self.peer_of(session);
        let lifetime = self.delegate.seal(device, proved(&peer), &session, ticket)?;
        self.counts.count(SEALED);
        Some(lifetime)
    }

    pub(super) fn remember(&self, device: u32, id: &[u8], session: &SessionState) {
        let (peer, session) = self.peer_of(session);
        self.delegate.remember(device, proved(&peer), id, &session);
    }

    /// Returns two values. The first is the name of the session's peer, with the expiry time of the peer's certificate.
    /// The second is a copy of `session` for the [`Delegate`]. If [`Self::found`] has replaced the principal of the
    /// session, the copy has the original principal, which the [`Delegate`] chose. Otherwise the copy has the principal
    /// of `session`.
    fn peer_of(&self, session: &SessionState) -> (Option<Named>, SessionState) {
        let delegated = self.credentials.delegated(session.principal);
        let principal = delegated.map_or(session.principal, |(_, number)| Principal(number));
        let SessionState { cipher_suite, since, .. } = *session;
        let master = Secret::new(*session.master.expose());
        let end = self.credentials.certificate_end(session.principal);
        let named = self.credentials.name_of(session.principal).map(|name| (name, end));
        (named, SessionState { cipher_suite, master, principal, since })
    }
}

/// The name of a peer, and the time at which its certificate expires; `None` without a certificate.
type Named = (String, Option<SystemTime>);

fn proved(peer: &Option<Named>) -> Option<Proved<'_>> {
    peer.as_ref().map(|(name, until)| Proved { name, until: *until })
}
