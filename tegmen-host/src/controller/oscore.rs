//! Requests of a member of a Group OSCORE group to its Group Manager (draft-ietf-ace-key-groupcomm-oscore).

use super::{Controller, ControllerError, fraction};
use crate::cbor::Malformed;
use crate::client::{Response, Session};
use crate::contexts::{ContextError, FollowedMember, ManagedKeys, Manager, MemberFile, member_keys, now};
use crate::credentials::Credentials;
use crate::group::groupcomm::GROUPCOMM_CBOR;
use crate::group::groupcomm::oscore::{
    KdcCred, OscoreChallenge, OscoreCreds, OscoreFilter, OscoreJoinRequest, OscoreKeys, OscorePossession, Roles,
};
use crate::provider::HostCrypto;
use crate::x509::signer::SignError;
use std::path::Path;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen::crypto::Crypto as _;
use zeroize::Zeroizing;

/// Maximum number of attempts to get keys and credentials of the same version.
const ATTEMPTS: usize = 4;
/// The label of the version in a response. [`Malformed::Value`] contains this label if the keys and the credentials
/// have different versions.
const NUM: i64 = 9;

/// The request of a device that wants to be a member of a Group OSCORE group.
#[derive(Clone, Debug)]
pub struct OscoreJoining {
    /// The name of the device at the controller. The name is in the credential of the device.
    pub name: String,
    /// The roles that the device wants. This program has no contexts for a monitor.
    pub roles: Roles,
    /// The rights of each other member that sends requests, as in a credentials file; `None` allows everything.
    pub allow: Option<Vec<String>>,
}

/// The times at which a member asks its Group Manager for keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OscorePace {
    /// The time after which a member asks for the keys, although no message shows that there are new keys.
    pub check: Duration,
    /// The member waits for a random time before each request, at most for this time.
    pub jitter: Duration,
    /// The shortest time between two requests for keys. Anyone can send a message with an unknown group identifier,
    /// which causes a request. If this request brings no new keys, the time until the next request doubles, up to
    /// `check`.
    pub shortest: Duration,
}

impl OscorePace {
    /// Returns the pause after a request for keys. `pause` is the pause before the request. `by_message` is true if a
    /// message with an unknown group identifier caused the request, and `is_new` is true if the request brought new
    /// keys.
    fn pause_after(&self, pause: Duration, by_message: bool, is_new: bool) -> Duration {
        match by_message && !is_new {
            true => pause.saturating_mul(2).min(self.check),
            false => self.shortest,
        }
    }
}

impl Default for OscorePace {
    /// Returns the default times: a member asks for the keys each 30 seconds, waits at most one second of random time
    /// before each request, and waits at least 2 seconds between two requests.
    fn default() -> Self {
        Self { check: Duration::from_secs(30), jitter: Duration::from_secs(1), shortest: Duration::from_secs(2) }
    }
}

impl Controller {
    /// Returns the controller (Group Manager) that gave a member of a Group OSCORE group its keys; `None` if the file
    /// of the member names no Group Manager.
    ///
    /// # Errors
    /// [`ControllerError::Context`], [`ControllerError::Uri`], [`ControllerError::Name`].
    pub fn of_oscore_member(dir: &Path, config: crate::client::ClientConfig) -> Result<Option<Self>, ControllerError> {
        let file = MemberFile::read(dir)?;
        file.manager.map(|manager| Self::of_group(&manager.uri, config)).transpose()
    }

    /// Joins a Group OSCORE group, and writes the security context of the member into a directory. The device makes a new
    /// key pair for each join. If the directory has an older context, the new one replaces it.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub async fn join_oscore(&self, dir: &Path, joining: &OscoreJoining) -> Result<MemberFile, ControllerError> {
        let session = self.connect().await?;
        let joined = self.join_in(&session, dir, joining).await;
        session.close();
        joined?;
        Ok(MemberFile::read(dir)?)
    }

    async fn join_in(&self, session: &Session, dir: &Path, joining: &OscoreJoining) -> Result<(), ControllerError> {
        let path = self.path();
        let ask = async |request: &OscoreJoinRequest| {
            let payload = request.encode();
            let asked = session.post(&path, &payload).content_format(GROUPCOMM_CBOR).await;
            asked.map_err(|source| self.unreachable(source))
        };
        let OscoreJoining { name, roles, allow } = joining;
        let no_key =
            |why: &str| ControllerError::NoKey { group: self.group.clone(), source: SignError(why.to_owned()) };
        let mut crypto = HostCrypto::from_os().map_err(|error| no_key(&error.to_string()))?;
        let (mut cnonce, creds) = (vec![0; 8], Some(OscoreFilter::default()));
        crypto.random(&mut cnonce);
        let group = self.group.clone();
        let mut request = OscoreJoinRequest { group, roles: *roles, creds, cnonce, possession: None };
        let reply = ask(&request).await?;
        if reply.code != Code::BAD_REQUEST || reply.content_format() != Some(GROUPCOMM_CBOR.into()) {
            return Err(self.refusal(&reply));
        }
        let OscoreChallenge { curve, nonce } =
            OscoreChallenge::parse(&reply.payload).map_err(ControllerError::Response)?;
        let private_key = member_keys::draw(&mut crypto, curve).map_err(|_| no_key("the curve is not known"))?;
        let public = member_keys::public_of(curve, &private_key).ok_or_else(|| no_key("the key is not valid"))?;
        let credential = member_keys::credential(name, &public);
        let ours = (credential.clone(), curve, &private_key);
        let proof = OscorePossession::prove(&mut crypto, &request, &nonce, ours);
        request.possession = Some(proof.map_err(|_| no_key("the key does not sign"))?);
        let joined = now();
        let reply = ask(&request).await?;
        let node = reply.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH).last();
        let node = node.and_then(|(_, value)| std::str::from_utf8(value).ok()).unwrap_or_default().to_owned();
        let keys = self.oscore_keys_in(reply)?;
        let is_proved = |kdc: &&KdcCred| keys.curve == curve && kdc.proves(&mut crypto, curve, &request.cnonce);
        let kdc = keys.kdc.as_ref().filter(is_proved);
        let kdc = kdc.ok_or_else(|| ControllerError::ManagerNotProved(self.group.clone()))?;
        if keys.sender_id.is_none() {
            return Err(ControllerError::Response(Malformed::Missing(NUM)));
        }
        let manager = Manager { uri: self.uri.to_string(), node, epoch: keys.number, allow: allow.clone() };
        let new = ManagedKeys {
            group: &self.group,
            name,
            manager,
            keys: &keys,
            private_key: &private_key,
            credential: &credential,
            group_manager_credential: &kdc.credential,
            joined,
        };
        Ok(new.create(dir)?)
    }

    /// Asks for the keys of the current epoch and for the credentials of the other members, until both have the same
    /// version.
    async fn oscore_keys(&self, node: &str) -> Result<OscoreKeys, ControllerError> {
        let session = self.connect().await?;
        let asked = self.oscore_keys_over(&session, node).await;
        session.close();
        asked
    }

    async fn oscore_keys_over(&self, session: &Session, node: &str) -> Result<OscoreKeys, ControllerError> {
        for _ in 0..ATTEMPTS {
            let keys = session.get(&format!("{}/nodes/{node}", self.path())).await;
            let mut keys = self.oscore_keys_in(keys.map_err(|source| self.unreachable(source))?)?;
            let creds = session.get(&format!("{}/creds", self.path())).await;
            let creds = creds.map_err(|source| self.unreachable(source))?;
            if creds.code != Code::CONTENT {
                return Err(self.refusal(&creds));
            }
            let creds = OscoreCreds::parse(&creds.payload).map_err(ControllerError::Response)?;
            if creds.number == keys.number {
                keys.creds = Some(creds.creds);
                return Ok(keys);
            }
        }
        Err(ControllerError::Response(Malformed::Value(NUM)))
    }

    fn oscore_keys_in(&self, reply: Response) -> Result<OscoreKeys, ControllerError> {
        if !matches!(reply.code, Code::CREATED | Code::CHANGED | Code::CONTENT) {
            return Err(self.refusal(&reply));
        }
        OscoreKeys::parse(&Zeroizing::new(reply.payload)).map_err(ControllerError::Response)
    }

    /// Asks once for the keys of the current epoch. If their epoch is later than the epoch of the keys in the directory
    /// of the member, calls `replace` with the new keys, and returns true.
    async fn newer_oscore_keys(
        &self,
        dir: &Path,
        replace: impl FnOnce(&ManagedKeys<'_>) -> Result<(), ContextError>,
    ) -> Result<bool, ControllerError> {
        let file = MemberFile::read(dir)?;
        let manager = file.manager.clone().ok_or_else(|| ControllerError::NotAMember(self.group.clone()))?;
        let keys = self.oscore_keys(&manager.node).await?;
        if keys.number <= manager.epoch {
            return Ok(false);
        }
        if keys.curve != file.curve || keys.sender_id.is_none() {
            return Err(ControllerError::Response(Malformed::Value(NUM)));
        }
        let new = ManagedKeys {
            group: &file.group,
            name: &file.name,
            manager: Manager { epoch: keys.number, ..manager },
            keys: &keys,
            private_key: &file.private_key,
            credential: &file.credential,
            group_manager_credential: &file.group_manager_credential,
            joined: file.created,
        };
        replace(&new)?;
        Ok(true)
    }

    /// Asks once for the keys of the current epoch, for a member whose directory no process uses. Returns true if the
    /// keys are new.
    ///
    /// # Errors
    /// [`ControllerError`]; [`ControllerError::NotAMember`] if the member was evicted.
    pub async fn update_oscore(&self, dir: &Path) -> Result<bool, ControllerError> {
        self.newer_oscore_keys(dir, |new| new.update(dir)).await
    }

    /// Keeps the keys of a member current while a server uses them: asks for the keys when a message names a group that
    /// no context of the server has, and at the times of `pace`. `report` receives each failure, and `Ok` with each new
    /// epoch. The call ends when the member is evicted. The member has then forgotten its keys.
    pub async fn follow_oscore(
        &self,
        member: &FollowedMember,
        credentials: &Credentials,
        pace: OscorePace,
        report: impl Fn(Result<(), &ControllerError>),
    ) {
        let mut pause = pace.shortest;
        loop {
            let by_message = tokio::select! {
                () = member.unknown() => true,
                () = tokio::time::sleep(pace.check) => false,
            };
            tokio::time::sleep(pace.jitter.mul_f64(fraction())).await;
            let asked = self.newer_oscore_keys(member.dir(), |new| member.replace(new, credentials)).await;
            pause = pace.pause_after(pause, by_message, matches!(asked, Ok(true)));
            match asked {
                Ok(true) => report(Ok(())),
                Ok(false) => {}
                Err(error) => {
                    report(Err(&error));
                    if matches!(error, ControllerError::NotAMember(_)) {
                        member.evict();
                        return;
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Leaves a Group OSCORE group. The directory of the member remains.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub async fn leave_oscore(&self, node: &str) -> Result<(), ControllerError> {
        let session = self.connect().await?;
        let asked = session.delete(&format!("{}/nodes/{node}", self.path())).await;
        session.close();
        match asked.map_err(|source| self.unreachable(source))? {
            reply if reply.code == Code::DELETED => Ok(()),
            reply => Err(self.refusal(&reply)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_unknown_groups_cause_fewer_and_fewer_requests() {
        let pace = OscorePace::default();
        let mut pause = pace.shortest;
        let pauses: Vec<u64> = (0..6)
            .map(|_| {
                pause = pace.pause_after(pause, true, false);
                pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [4, 8, 16, 30, 30, 30]);
        assert_eq!(pace.pause_after(pause, true, true), pace.shortest);
        assert_eq!(pace.pause_after(pause, false, false), pace.shortest);
    }
}
