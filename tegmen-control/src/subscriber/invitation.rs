//! Sessions that a publisher opens because the subscriber asked the access control server for them.

use super::{Introspector, NotGranted, granted};
use crate::access::ace::trl::TokenHash;
use crate::access::ace::{ACE_CBOR, Confirmation, ConnectionRequest, CoseKey, Material, Returned, Scope, TokenRequest};
use crate::access::protokey::SessionIdentity;
use crate::access::revocation::token_hash;
use crate::server::TOKEN;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tegmen_host::credentials::{KeyStore as _, KeyTicket};
use tegmen_host::provider::HostCrypto;
use zeroize::Zeroizing;

/// Maximum number of sessions whose keys are kept at the same time.
const MOST: usize = 1 << 16;
/// Maximum number of handshakes of one publisher that wait for the answer of the access control server.
const WAITING: usize = 64;

/// The sessions that publishers were asked to open.
#[derive(Default)]
pub(super) struct Invited {
    keys: BTreeMap<String, Invitation>,
    /// Handshakes of publishers that wait until the access control server answers the subscriber. The key of the map is
    /// the name of the publisher. A publisher may begin its handshake before this answer arrives.
    waiting: BTreeMap<String, Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The number of requests to the access control server that concern this publisher and are not answered yet.
    questions: usize,
    /// The waiting handshakes, each with its session identity.
    handshakes: Vec<(String, KeyTicket)>,
}

struct Invitation {
    /// The key of the session; `None` if it is revoked.
    key: Option<Zeroizing<Vec<u8>>>,
    /// The hash of the session's token. The access control server names a revoked token by its hash.
    hash: TokenHash,
    until: Instant,
}

/// A request to the access control server that is not answered yet. When this value is dropped, the handshakes that
/// wait for the answer continue.
struct Question<'a> {
    of: &'a Introspector,
    publisher: &'a str,
}

impl<'a> Question<'a> {
    fn new(of: &'a Introspector, publisher: &'a str) -> Self {
        let mut invited = of.invited();
        let waiting = invited.waiting.entry(publisher.to_owned()).or_default();
        waiting.questions = waiting.questions.saturating_add(1);
        Self { of, publisher }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let handshakes = {
            let mut invited = self.of.invited();
            let Some(waiting) = invited.waiting.get_mut(self.publisher) else { return };
            waiting.questions = waiting.questions.saturating_sub(1);
            let handshakes = std::mem::take(&mut waiting.handshakes);
            if waiting.questions == 0 {
                invited.waiting.remove(self.publisher);
            }
            handshakes
        };
        for (identity, ticket) in handshakes {
            self.of.find(&identity, ticket);
        }
    }
}

/// A session that a publisher opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedSession {
    /// The identity that names the session at the subscriber's server.
    pub identity: String,
    /// Seconds for which the subscriber may use the session; `None` if the server gives no limit.
    pub expires_in: Option<u64>,
}

impl Introspector {
    fn invited(&self) -> MutexGuard<'_, Invited> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the access control server to let a publisher open a session with this subscriber at `address`. `scope` are
    /// the rights that the subscriber needs. Returns after the publisher has agreed. The subscriber's server, whose key
    /// store is this value, then accepts the handshake of the publisher.
    ///
    /// # Errors
    /// [`NotGranted`]. The error is [`NotGranted::Later`] if the publisher does not have the resources for another
    /// session.
    pub async fn invite(
        &self,
        publisher: &str,
        scope: &Scope,
        address: SocketAddr,
    ) -> Result<ExpectedSession, NotGranted> {
        let _question = Question::new(self, publisher);
        let (session, invitation) = self.ask(publisher, scope, address).await?;
        let (mut invited, now) = (self.invited(), Instant::now());
        invited.keys.retain(|_, invitation| invitation.until > now);
        if invited.keys.len() >= MOST {
            return Err(NotGranted::Full);
        }
        invited.keys.insert(session.identity.clone(), invitation);
        Ok(session)
    }

    async fn ask(
        &self,
        publisher: &str,
        scope: &Scope,
        address: SocketAddr,
    ) -> Result<(ExpectedSession, Invitation), NotGranted> {
        let request = TokenRequest {
            audience: Some(publisher.to_owned()),
            scope: Some(scope.clone()),
            upload: Some(Returned::Hash),
            to_rs: Some(ConnectionRequest { address }.encode()),
            ..TokenRequest::default()
        };
        let response = self.server.post(TOKEN, &request.encode()).content_format(ACE_CBOR).await?;
        let code = response.code;
        let (_payload, response) = granted(response)?;
        if response.uploaded != Some(true) {
            return Err(NotGranted::Unreachable);
        }
        let (Some(hash), Some(Confirmation::Key(CoseKey { kid: Some(kid), material: Material::Symmetric(key), .. }))) =
            (response.token_hash, response.cnf)
        else {
            return Err(NotGranted::Unexpected { code });
        };
        let identity = SessionIdentity::parse(&kid).filter(|identity| identity.publisher() == publisher);
        let identity = identity.ok_or(NotGranted::Unexpected { code })?.as_str().to_owned();
        let expires_in = response.expires_in;
        let now = Instant::now();
        let lifetime = Duration::from_secs(expires_in.unwrap_or(u64::from(u32::MAX)).min(u32::MAX.into()));
        let until = now.checked_add(lifetime).unwrap_or(now);
        Ok((ExpectedSession { identity, expires_in }, Invitation { key: Some(key), hash, until }))
    }

    /// Handles the handshake of a publisher for the session `identity`. If the publisher was asked to open this
    /// session, answers `ticket` with the key of the session, or without a key if the key was revoked or has expired.
    /// If a request about this publisher waits for the answer of the access control server, stores `ticket` until the
    /// answer arrives. At most [`WAITING`] handshakes of a publisher are stored. In all other cases returns `ticket`,
    /// so that the caller handles the handshake.
    pub(super) fn of_invited(&self, identity: &str, ticket: KeyTicket) -> Option<KeyTicket> {
        let publisher = SessionIdentity::parse(identity.as_bytes()).map(|identity| identity.publisher().to_owned())?;
        let mut invited = self.invited();
        if let Some(invitation) = invited.keys.get(identity) {
            let key = invitation.key.clone().filter(|_| invitation.until > Instant::now());
            drop(invited);
            ticket.answer(key.map(|key| self.stored(key)));
            return None;
        }
        match invited.waiting.get_mut(&publisher) {
            Some(waiting) if waiting.handshakes.len() < WAITING => {
                waiting.handshakes.push((identity.to_owned(), ticket));
                None
            }
            _ => Some(ticket),
        }
    }

    /// Deletes the keys of the sessions whose tokens are in `revoked`.
    pub(super) fn revoke(&self, revoked: &BTreeSet<TokenHash>) {
        for invitation in self.invited().keys.values_mut().filter(|invitation| revoked.contains(&invitation.hash)) {
            invitation.key = None;
        }
    }

    /// Returns true if `revoked` contains the token of the session `identity`. For a session without a token, returns
    /// true if `revoked` contains the hash of the session identity.
    pub(super) fn is_revoked(&self, identity: &str, revoked: &BTreeSet<TokenHash>) -> bool {
        match self.invited().keys.get(identity) {
            Some(invitation) => revoked.contains(&invitation.hash),
            None => revoked.contains(&token_hash::<HostCrypto>(identity.as_bytes())),
        }
    }
}
