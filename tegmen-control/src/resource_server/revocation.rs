//! The list of revoked tokens (RFC 9770) at a resource server: tokens on it end, and are not taken again.

use super::{Table, Tokens};
use crate::access::ace::trl::TokenHash;
use crate::access::revocation::{hashes, list_key};
use crate::server::REVOKED;
use std::collections::BTreeSet;
use std::time::Duration;
use tegmen_coap::Code;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::provider::HostCrypto;
use tegmen_host::uri::Uri;
use tegmen_store::clock::now;

/// Time between the end of an observation, or a failure, and the next attempt.
const PAUSE: Duration = Duration::from_secs(10);

/// A change of what a resource server knows of revoked tokens, for its log.
#[derive(Debug)]
pub enum RevocationEvent<'e> {
    /// The list is read, and has this number of tokens.
    Read {
        /// Tokens on the list.
        revoked: usize,
        /// Tokens of this resource server that end because of it.
        ended: usize,
    },
    /// The access control server answers with this code in place of the list. The revocations that are known stay in force.
    Refused(Code),
    /// The list cannot be read. The revocations that are known stay in force, and the next attempt is after this time.
    Failed(&'e ClientError, Duration),
}

impl Table {
    /// Ends the tokens that are revoked. Returns their number.
    fn end_revoked(&mut self, now: u64) -> usize {
        let Self { by_id, revoked, .. } = self;
        let ended = by_id.values_mut().filter(|token| token.expires > now && revoked.contains(&token.hash));
        ended.map(|token| token.expires = now).count()
    }
}

impl Tokens {
    /// Replaces the hashes of revoked tokens. A token with one of them ends, as a token that expires does, and is not taken again.
    /// Returns the number of tokens that end. `now` is in seconds since 1970.
    pub fn revoke(&self, revoked: BTreeSet<TokenHash>, now: u64) -> usize {
        let mut taken = self.taken();
        taken.revoked = revoked;
        taken.end_revoked(now)
    }

    /// Observes the list of revoked tokens at the access control server, whose URI has no path, and passes it to [`Self::revoke`].
    /// Never ends: after a failure the next attempt is ten seconds later.
    pub async fn follow_revocations(&self, access_server: &Uri, report: impl Fn(RevocationEvent<'_>)) {
        loop {
            if let Err(error) = self.follow_once(access_server, &report).await {
                report(RevocationEvent::Failed(&error, PAUSE));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when the access control server ends the observation.
    async fn follow_once(&self, uri: &Uri, report: &impl Fn(RevocationEvent<'_>)) -> Result<(), ClientError> {
        let settings = &self.0.settings;
        let key = list_key::<HostCrypto>(&settings.key);
        let session = Session::connect(uri, ClientConfig::psk(&*settings.name, *key.expose())).await?;
        let mut list = session.observe(REVOKED).await?;
        while let Some(response) = list.next().await? {
            let list = hashes(&response.payload).filter(|_| response.code == Code::CONTENT);
            report(match list {
                Some(hashes) => {
                    let revoked = hashes.len();
                    RevocationEvent::Read { revoked, ended: self.revoke(hashes, now()) }
                }
                None => RevocationEvent::Refused(response.code),
            });
        }
        Ok(())
    }
}
