//! The list of revoked tokens (RFC 9770) at a resource server. A token on this list ends, and is not taken again.

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

/// The pause after an observation of the list of revoked tokens has ended or has failed, before the next attempt to
/// observe this list.
const PAUSE: Duration = Duration::from_secs(10);

/// An event in the observation of the list of revoked tokens, for the log of the resource server.
#[derive(Debug)]
pub enum RevocationEvent<'e> {
    /// The resource server has received the list.
    Read {
        /// The number of tokens on the list.
        revoked: usize,
        /// The number of tokens of this resource server that end because they are on the list.
        ended: usize,
    },
    /// The access control server answers with this code, and not with the list. The revocations that are known stay in
    /// force.
    Refused(Code),
    /// The list cannot be read. The revocations that are known stay in force. The next attempt begins after this time.
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
    /// Replaces the list of revoked tokens. `revoked` are the hashes of the tokens. A token on the list ends in the
    /// same way as an expired token, and is not taken again. Returns the number of tokens that end now. `now` is in
    /// seconds since 1970.
    pub fn revoke(&self, revoked: BTreeSet<TokenHash>, now: u64) -> usize {
        let mut taken = self.taken();
        taken.revoked = revoked;
        taken.end_revoked(now)
    }

    /// Observes the list of revoked tokens at the access control server, and passes each list to [`Self::revoke`]. The
    /// URI `access_server` has no path. Never returns: ten seconds after a failure or the end of an observation, a new
    /// attempt begins.
    pub async fn follow_revocations(&self, access_server: &Uri, report: impl Fn(RevocationEvent<'_>)) {
        loop {
            if let Err(error) = self.follow_once(access_server, &report).await {
                report(RevocationEvent::Failed(&error, PAUSE));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Observes the list in one session. Returns when the access control server ends the observation.
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
