//! Ends sessions whose keys are revoked.

use super::Introspector;
use crate::access::ace::trl::TokenHash;
use crate::access::revocation::hashes;
use crate::server::REVOKED;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::client::ClientError;
use tegmen_host::server::{self, Server};

/// The interval at which all sessions are compared with the list of revoked tokens, if this list is not empty. A single
/// comparison is not enough: a handshake may end after its key was revoked, and a session may be resumed.
const INTERVAL: Duration = Duration::from_secs(1);

impl Introspector {
    /// Ends a session at the subscriber's server when the access control server revokes the key of this session. Calls
    /// `ended` for each ended session. The peer may open a new session with another identity.
    ///
    /// Observes the revocation list (RFC 9770) over the session with the access control server. While the list is not
    /// empty, this function also compares all sessions with the list once a second. The time of a comparison grows with
    /// the number of sessions. The function returns when the access control server ends the observation. The caller
    /// must then call the function again.
    ///
    /// # Errors
    /// [`ClientError`] if the list cannot be observed. All sessions then stay open.
    pub async fn end_revoked(
        &self,
        subscriber: &Arc<Server>,
        ended: impl Fn(&server::Session),
    ) -> Result<(), ClientError> {
        let mut list = self.server.observe(REVOKED).await?;
        let mut revoked = BTreeSet::new();
        loop {
            // An answer that takes longer than the interval is not lost.
            let mut next = std::pin::pin!(list.next());
            let answer = loop {
                match tokio::time::timeout(INTERVAL, &mut next).await {
                    Ok(answer) => break answer?,
                    Err(_) => self.end_of(subscriber, &revoked).await.iter().for_each(&ended),
                }
            };
            let Some(response) = answer else { return Ok(()) };
            // An answer that cannot be read leaves the revocations before in force.
            revoked = hashes(&response.payload).unwrap_or(revoked);
            self.end_of(subscriber, &revoked).await.iter().for_each(&ended);
        }
    }

    /// Ends the sessions that `revoked` revokes, and returns these sessions. `revoked` contains the hash of the token
    /// with which the peer got the session; for a session without a token, it contains the hash of the session
    /// identity.
    async fn end_of(&self, subscriber: &Arc<Server>, revoked: &BTreeSet<TokenHash>) -> Vec<server::Session> {
        if revoked.is_empty() {
            return Vec::new();
        }
        self.revoke(revoked);
        let (own, subscriber, revoked) = (self.clone(), Arc::clone(subscriber), revoked.clone());
        let end = move || {
            let sessions = subscriber.sessions().into_iter();
            let revoked = sessions.filter(|session| own.is_revoked(&session.identity, &revoked));
            revoked.filter(|session| subscriber.close(session.id)).collect()
        };
        tokio::task::spawn_blocking(end).await.unwrap_or_default()
    }
}
