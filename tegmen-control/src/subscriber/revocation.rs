//! The end of sessions whose keys are revoked.

use crate::access::ace::trl::{Answer, TokenHash};
use crate::access::revocation::token_hash;
use crate::server::REVOKED;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::client::{ClientError, Response, Session};
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{self, Server};

/// Interval at which the sessions are compared with a list that is not empty: a handshake whose key was given before the
/// revocation may end after it, and a session may be resumed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Ends the sessions of a subscriber's server whose identities the access control server revokes, and calls `ended` for each of
/// them. The peer may ask for a session again, with another identity.
///
/// Observes the revocation list (RFC 9770) over a session with the access control server in which the subscriber proved its
/// identity. While the list is not empty, it also compares all sessions with it once a second, in time that grows with their
/// number. It returns when the server ends the observation: the caller starts it again.
///
/// # Errors
/// [`ClientError`] if the list cannot be observed. The sessions stay as they are.
pub async fn end_revoked(
    access: &Session,
    subscriber: &Arc<Server>,
    ended: impl Fn(&server::Session),
) -> Result<(), ClientError> {
    let mut list = access.observe(REVOKED).await?;
    let mut revoked = BTreeSet::new();
    loop {
        // An answer that takes longer than the interval is not lost.
        let mut next = std::pin::pin!(list.next());
        let answer = loop {
            match tokio::time::timeout(INTERVAL, &mut next).await {
                Ok(answer) => break answer?,
                Err(_) => end_of(subscriber, &revoked).await.iter().for_each(&ended),
            }
        };
        let Some(response) = answer else { return Ok(()) };
        // An answer that cannot be read leaves the revocations before in force.
        revoked = hashes(&response).unwrap_or(revoked);
        end_of(subscriber, &revoked).await.iter().for_each(&ended);
    }
}

fn hashes(response: &Response) -> Option<BTreeSet<TokenHash>> {
    match Answer::parse(&response.payload) {
        Ok(Answer::Full { hashes, .. }) => Some(hashes.into_iter().collect()),
        _ => None,
    }
}

/// Ends the sessions whose identities are revoked, and returns them.
async fn end_of(subscriber: &Arc<Server>, revoked: &BTreeSet<TokenHash>) -> Vec<server::Session> {
    if revoked.is_empty() {
        return Vec::new();
    }
    let (subscriber, revoked) = (Arc::clone(subscriber), revoked.clone());
    let end = move || {
        let is_revoked =
            |session: &server::Session| revoked.contains(&token_hash::<HostCrypto>(session.identity.as_bytes()));
        let sessions = subscriber.sessions().into_iter();
        sessions.filter(|session| is_revoked(session) && subscriber.close(session.id)).collect()
    };
    tokio::task::spawn_blocking(end).await.unwrap_or_default()
}
