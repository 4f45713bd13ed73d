//! Requests of a member of a Group OSCORE group to its Group Manager (draft-ietf-ace-key-groupcomm-oscore).

use super::control::{self, Message, Received, control_uri};
use super::{Controller, ControllerError, fraction};
use crate::cbor::Malformed;
use crate::client::{Response, Session};
use crate::contexts::{
    self, ContextError, FollowedMember, ManagedKeys, Manager, MemberFile, OtherMember, member_keys, now,
};
use crate::credentials::Credentials;
use crate::group::groupcomm::GROUPCOMM_CBOR;
use crate::group::groupcomm::oscore::{
    KEY_CHECK, KdcCred, OscoreChallenge, OscoreCred, OscoreCreds, OscoreFilter, OscoreJoinRequest, OscoreKeys,
    OscorePossession, OscoreRekeying, Roles,
};
use crate::provider::HostCrypto;
use crate::x509::signer::SignError;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen::crypto::Crypto as _;
use tegmen::oscore::Id;
use tegmen::secret::Secret;
use tokio::sync::mpsc;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// Maximum number of attempts to get keys and credentials of the same version.
pub(super) const ATTEMPTS: usize = 4;
/// The time for which a member that observes its group waits for the response to a request. A member whose session with
/// the Group Manager is dead has old keys until it ends this session.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for which a member that was evicted waits until its server has sent its last response.
const LAST_RESPONSE: Duration = Duration::from_secs(1);
/// The label of the version in a response. [`Malformed::Value`] contains this label if the keys and the credentials
/// have different versions.
pub(super) const NUM: i64 = 9;

/// The request of a device that wants to be a member of a Group OSCORE group.
#[derive(Clone, Debug)]
pub struct OscoreJoining {
    /// The name of the device at the controller. The name is in the credential of the device.
    pub name: String,
    /// The roles that the device wants. A monitor has no other role.
    pub roles: Roles,
    /// The rights of each other member that sends requests, as in a credentials file; `None` allows everything.
    pub allow: Option<Vec<String>>,
    /// The UDP port at which the member will take rekeying messages of the Group Manager, at the address of its session
    /// with the Group Manager (`control_uri`, RFC 9594, section 4.3.1). With `None` the member observes its group.
    pub control_port: Option<u16>,
}

/// The times at which a member sends requests to its Group Manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OscorePace {
    /// The time without a message of the Group Manager after which a member checks that it still observes the group. It
    /// is also the shortest time between the beginnings of two observations.
    pub check: Duration,
    /// The member waits for a random time before each request for keys and each observation, at most for this time.
    pub jitter: Duration,
    /// The shortest time between two requests for keys. Anyone can send a message with an unknown group identifier,
    /// which causes a request. If this request brings no new keys, the time until the next request doubles, up to
    /// `check`.
    pub shortest: Duration,
    /// The interval at which a member with a `control_uri` asks for its keys. It does not observe its group, so it learns
    /// in this way of a rekeying message or an eviction that it missed.
    pub poll: Duration,
}

impl OscorePace {
    /// Returns the pause after a request for keys that a message with an unknown group identifier caused. `pause` is the
    /// pause before the request, and `is_new` is true if the request brought new keys.
    fn pause_after(&self, pause: Duration, is_new: bool) -> Duration {
        match is_new {
            true => self.shortest,
            false => pause.saturating_mul(2).min(self.check),
        }
    }

    /// Returns a random time, at most [`Self::jitter`].
    fn random(&self) -> Duration {
        self.jitter.mul_f64(fraction())
    }
}

impl Default for OscorePace {
    /// Returns the default times: a member checks its observation after 30 seconds, waits at most one second of random
    /// time before each request, and waits at least 2 seconds between two requests for keys. A member with a
    /// `control_uri` asks for its keys every 5 minutes.
    fn default() -> Self {
        Self {
            check: KEY_CHECK,
            jitter: Duration::from_secs(1),
            shortest: Duration::from_secs(2),
            poll: Duration::from_secs(300),
        }
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
    /// [`ControllerError::Context`] with [`ContextError::InUse`] if a process uses an older context in the directory: the
    /// controller has then received no request. The other errors of [`ControllerError`].
    pub async fn join_oscore(&self, dir: &Path, joining: &OscoreJoining) -> Result<MemberFile, ControllerError> {
        // The join takes the Sender ID from a process that uses the older context.
        let older = contexts::has_context(dir).then(|| contexts::lock(dir)).transpose()?;
        let session = self.connect().await?;
        let joined = self.join_in(&session, (dir, older.is_some()), joining).await;
        session.close();
        joined?;
        Ok(MemberFile::read(dir)?)
    }

    /// Joins, and writes the context. `replaces` is true if the directory has an older context, which this process has
    /// locked.
    async fn join_in(
        &self,
        session: &Session,
        (dir, replaces): (&Path, bool),
        joining: &OscoreJoining,
    ) -> Result<(), ControllerError> {
        let path = self.path();
        let ask = async |payload: &[u8]| {
            let asked = session.post(&path, payload).content_format(GROUPCOMM_CBOR).await;
            asked.map_err(|source| self.unreachable(source))
        };
        let OscoreJoining { name, roles, allow, control_port } = joining;
        let mut crypto = HostCrypto::from_os().map_err(|error| self.no_key(&error.to_string()))?;
        let (mut cnonce, creds) = (vec![0; 8], Some(OscoreFilter::default()));
        crypto.random(&mut cnonce);
        let group = self.group.clone();
        let control_uri = control_port.map(|port| control_uri(session.local().ip(), port, &group));
        let mut request = OscoreJoinRequest { group, roles: *roles, creds, cnonce, possession: None, control_uri };
        // A monitor proves nothing.
        let own = match roles.monitor {
            true => None,
            false => {
                // An empty request asks for the demand (section 6.2). A request without a credential would join a current
                // member again with its old credential.
                let reply = ask(&[]).await?;
                if reply.code != Code::BAD_REQUEST || reply.content_format() != Some(GROUPCOMM_CBOR.into()) {
                    return Err(self.refusal(&reply));
                }
                let challenge = OscoreChallenge::parse(&reply.payload).map_err(ControllerError::Response)?;
                let (private_key, proof) = self.prove_new_key(&mut crypto, name, &request, &challenge)?;
                let credential = proof.credential.clone();
                request.possession = Some(proof);
                Some((challenge.curve, private_key, credential))
            }
        };
        let joined = now();
        let reply = ask(&request.encode()).await?;
        let node = reply.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH).last();
        let node = node.and_then(|(_, value)| std::str::from_utf8(value).ok()).unwrap_or_default().to_owned();
        let keys = self.oscore_keys_in(reply)?;
        let is_proved = |kdc: &&KdcCred| {
            own.as_ref().is_none_or(|(curve, ..)| keys.curve == *curve)
                && kdc.proves(&mut crypto, keys.curve, &request.cnonce)
        };
        let kdc = keys.kdc.as_ref().filter(is_proved);
        let kdc = kdc.ok_or_else(|| ControllerError::ManagerNotProved(self.group.clone()))?;
        if keys.sender_id.is_some() != own.is_some() {
            return Err(ControllerError::Response(Malformed::Missing(NUM)));
        }
        let manager = Manager {
            uri: self.uri.to_string(),
            node,
            epoch: keys.number,
            allow: allow.clone(),
            roles: Some(roles.number()),
            control_uri: request.control_uri.clone(),
        };
        let new = ManagedKeys {
            group: &self.group,
            name,
            manager,
            keys: &keys,
            own: own.as_ref().map(|(_, private_key, credential)| (private_key, credential.as_slice())),
            group_manager_credential: &kdc.credential,
            joined,
        };
        Ok(if replaces { new.replace(dir) } else { new.create(dir) }?)
    }

    fn no_key(&self, why: &str) -> ControllerError {
        ControllerError::NoKey { group: self.group.clone(), source: SignError(why.to_owned()) }
    }

    /// Makes a new key pair for the member `name`. Returns the private key, and the credential with the proof that the
    /// member has the private key. The proof covers the scope and the nonce of `request`.
    fn prove_new_key(
        &self,
        crypto: &mut HostCrypto,
        name: &str,
        request: &OscoreJoinRequest,
        challenge: &OscoreChallenge,
    ) -> Result<(Secret<32>, OscorePossession), ControllerError> {
        let OscoreChallenge { curve, nonce } = challenge;
        let private_key = member_keys::draw(crypto, *curve).map_err(|_| self.no_key("the curve is not known"))?;
        let public = member_keys::public_of(*curve, &private_key);
        let public = public.ok_or_else(|| self.no_key("the key is not valid"))?;
        let ours = (member_keys::credential(name, &public), *curve, &private_key);
        let proof = OscorePossession::prove(crypto, request, nonce, ours);
        let proof = proof.map_err(|_| self.no_key("the key does not sign"))?;
        Ok((private_key, proof))
    }

    /// Gives a member another key pair (RFC 9594, section 4.9.1). The Group Manager then begins an epoch, and the
    /// directory of the member gets the new key pair and the keys of this epoch. If the call fails after the Group Manager
    /// has accepted the new credential, the other members refuse the messages of this member until another call succeeds,
    /// or until the member joins again.
    ///
    /// # Errors
    /// [`ControllerError::Context`] if the member is a monitor, or if a process uses the directory: the Group Manager has
    /// then received no request. [`ControllerError::RolesUnknown`] if the directory does not contain the roles of the
    /// member. [`ControllerError::NotRenewed`] if the Group Manager may already have the new credential. The other errors
    /// of [`ControllerError`].
    pub async fn renew_credential_oscore(&self, dir: &Path) -> Result<(), ControllerError> {
        let _lock = contexts::lock(dir)?;
        let (file, manager) = self.managed(dir)?;
        if file.own.is_none() {
            return Err(ContextError::Monitor { dir: dir.display().to_string() }.into());
        }
        let session = self.connect().await?;
        let renewed = self.renew_credential_over(&session, (dir, &file, manager)).await;
        session.close();
        renewed
    }

    async fn renew_credential_over(
        &self,
        session: &Session,
        (dir, file, manager): (&Path, &MemberFile, Manager),
    ) -> Result<(), ControllerError> {
        let roles = manager.roles.and_then(Roles::of_number);
        let roles = roles.ok_or_else(|| ControllerError::RolesUnknown(self.group.clone()))?;
        let path = format!("{}/nodes/{}/cred", self.path(), manager.node);
        let ask = async |payload: &[u8]| {
            let asked = session.post(&path, payload).content_format(GROUPCOMM_CBOR).await;
            asked.map_err(|source| self.unreachable(source))
        };
        let mut crypto = HostCrypto::from_os().map_err(|error| self.no_key(&error.to_string()))?;
        // An empty request asks for the demand of a proof.
        let reply = ask(&[]).await?;
        if reply.code != Code::BAD_REQUEST || reply.content_format() != Some(GROUPCOMM_CBOR.into()) {
            return Err(self.refusal(&reply));
        }
        let challenge = OscoreChallenge::parse(&reply.payload).map_err(ControllerError::Response)?;
        let mut cnonce = vec![0; 8];
        crypto.random(&mut cnonce);
        let group = self.group.clone();
        let request = OscoreJoinRequest { group, roles, creds: None, cnonce, possession: None, control_uri: None };
        let (private_key, proof) = self.prove_new_key(&mut crypto, &file.name, &request, &challenge)?;
        // From here, the Group Manager may have the new credential, unless it refuses it.
        let not_renewed = |source: ControllerError| ControllerError::NotRenewed { source: Box::new(source) };
        let reply = ask(&proof.encode_update(&request.cnonce)).await.map_err(not_renewed)?;
        if reply.code != Code::CHANGED {
            return Err(self.refusal(&reply));
        }
        let keys = self.oscore_keys_over(session, &manager.node).await.map_err(not_renewed)?;
        let own = Some((&private_key, proof.credential.as_slice()));
        install((file, own), manager, &keys, |new| new.replace(dir)).map_err(not_renewed)
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
    async fn newer_oscore_keys(&self, dir: &Path, replace: impl Replace) -> Result<bool, ControllerError> {
        let (file, manager) = self.managed(dir)?;
        let keys = self.oscore_keys(&manager.node).await?;
        match keys.number > manager.epoch {
            true => install((&file, own_of(&file)), manager, &keys, replace).map(|()| true),
            false => Ok(false),
        }
    }

    /// Handles a message of the Group Manager. If the message has the keys of a later epoch, calls `replace` with these
    /// keys, and returns true. A member that missed an epoch asks for the keys, because the message does not name all
    /// members that have left since then. A member that may be evicted asks, too.
    async fn take_message(
        &self,
        dir: &Path,
        message: &Message,
        replace: impl Replace,
    ) -> Result<bool, ControllerError> {
        let Message::Rekeying(payload) = message else { return self.newer_oscore_keys(dir, replace).await };
        let message = OscoreRekeying::parse(payload).map_err(ControllerError::Response)?;
        let (file, manager) = self.managed(dir)?;
        if message.number <= manager.epoch {
            return Ok(false);
        }
        match keys_after(&file, manager.epoch, message) {
            Some(keys) => install((&file, own_of(&file)), manager, &keys, replace).map(|()| true),
            None => self.newer_oscore_keys(dir, replace).await,
        }
    }

    /// Reads the file of a member, and its Group Manager.
    fn managed(&self, dir: &Path) -> Result<(MemberFile, Manager), ControllerError> {
        let file = MemberFile::read(dir)?;
        let manager = file.manager.clone().ok_or_else(|| ControllerError::NotAMember(self.group.clone()))?;
        Ok((file, manager))
    }

    /// Asks once for the keys of the current epoch, for a member whose directory no process uses. Returns true if the
    /// keys are new.
    ///
    /// # Errors
    /// [`ControllerError`]; [`ControllerError::NotAMember`] if the member was evicted.
    pub async fn update_oscore(&self, dir: &Path) -> Result<bool, ControllerError> {
        self.newer_oscore_keys(dir, |new| new.update(dir)).await
    }

    /// Keeps the keys of a member current while a server uses them. The member observes the group, or takes requests at
    /// its `control_uri`, so the Group Manager sends it a rekeying message with each epoch
    /// (draft-ietf-ace-key-groupcomm-oscore, section 11). A member that cannot listen at its `control_uri` observes the
    /// group. The member also asks for the keys when a message names a group that no context of the server has. `report`
    /// receives each failure, and `Ok` with each new epoch. The call ends when the member is evicted. The member has then
    /// forgotten its keys.
    pub async fn follow_oscore(
        &self,
        member: &FollowedMember,
        credentials: &Credentials,
        pace: OscorePace,
        report: impl Fn(Result<(), &ControllerError>),
    ) {
        let (sender, mut messages) = mpsc::channel(1);
        let listening = self.listen(member.dir(), &sender).unwrap_or_else(|error| {
            report(Err(&error));
            None
        });
        let is_reachable = listening.is_some();
        let mut receiving = std::pin::pin!(async {
            match is_reachable {
                true => self.poll_oscore(pace, sender).await,
                false => self.observe_oscore(pace, sender).await,
            }
        });
        let replace = |new: &ManagedKeys<'_>| member.replace(new, credentials);
        let (mut pause, mut quiet) = (pace.shortest, Instant::now());
        loop {
            let is_needed = async {
                tokio::time::sleep_until(quiet).await;
                member.unknown().await;
                tokio::time::sleep(pace.random()).await;
            };
            let asked = tokio::select! {
                never = &mut receiving => match never {},
                Some(Received { message, responder }) = messages.recv() => {
                    let asked = match &message {
                        Ok(message) => self.take_message(member.dir(), message, replace).await,
                        Err(_) => Ok(false),
                    };
                    if let Some(responder) = responder {
                        responder.send(control::response(&asked, matches!(message, Ok(Message::Eviction))));
                    }
                    message.and(asked)
                }
                () = is_needed => {
                    let asked = self.newer_oscore_keys(member.dir(), replace).await;
                    pause = pace.pause_after(pause, matches!(asked, Ok(true)));
                    quiet = Instant::now().checked_add(pause).unwrap_or(quiet);
                    asked
                }
            };
            match asked {
                Ok(true) => report(Ok(())),
                Ok(false) => {}
                Err(error) => {
                    report(Err(&error));
                    if matches!(error, ControllerError::NotAMember(_)) {
                        member.evict();
                        break;
                    }
                }
            }
        }
        if let Some(server) = listening {
            // The response about the eviction leaves first.
            let _ = tokio::task::spawn_blocking(move || server.drain(LAST_RESPONSE)).await;
        }
    }

    /// Asks for the keys of the member at the beginning, and then at each interval `poll` of the pace.
    async fn poll_oscore(&self, pace: OscorePace, messages: mpsc::Sender<Received>) -> Infallible {
        loop {
            tokio::time::sleep(pace.random()).await;
            // The receiver exists as long as this future.
            let _ = messages.send(Received::of(Ok(Message::Poll))).await;
            tokio::time::sleep(pace.poll).await;
        }
    }

    /// Observes the group, and passes each response of the Group Manager to `messages`. If an observation ends, begins
    /// another one. An observation begins after the time `check` of the pace, counted from the beginning of the previous
    /// observation, or from its failure if it could not begin.
    async fn observe_oscore(&self, pace: OscorePace, messages: mpsc::Sender<Received>) -> Infallible {
        // A failure is reported, and the loop below begins the next session.
        let config = self.config.clone().with(|config| {
            config.recovery.reconnect = false;
            config.recovery.alive = Some(pace.check);
            config.coap.timeout = config.coap.timeout.min(OBSERVER_TIMEOUT);
        });
        loop {
            let mut begun = None;
            tokio::time::sleep(pace.random()).await;
            let observed = async {
                let session = Session::connect(&self.uri, config.clone()).await?;
                let mut observation = session.request(Code::GET, &self.path()).observe().await?;
                while let Some(reply) = observation.next().await? {
                    begun.get_or_insert_with(Instant::now);
                    let message = match reply.code {
                        Code::CONTENT => Ok(Message::Rekeying(Zeroizing::new(reply.payload))),
                        _ => Err(self.refusal(&reply)),
                    };
                    // The receiver exists as long as this future.
                    let _ = messages.send(Received::of(message)).await;
                }
                session.close();
                Ok(())
            };
            if let Err(source) = observed.await {
                let _ = messages.send(Received::of(Err(self.unreachable(source)))).await;
            }
            let pause = pace.check.saturating_sub(begun.map_or(Duration::ZERO, |begun| begun.elapsed()));
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

/// A function that replaces the keys of a member.
trait Replace: FnOnce(&ManagedKeys<'_>) -> Result<(), ContextError> {}

impl<F: FnOnce(&ManagedKeys<'_>) -> Result<(), ContextError>> Replace for F {}

/// The private key and the credential of a member; `None` for a monitor.
type Own<'k> = Option<(&'k Secret<32>, &'k [u8])>;

fn own_of(file: &MemberFile) -> Own<'_> {
    file.own.as_ref().map(|own| (&own.private_key, own.credential.as_slice()))
}

/// Replaces the keys of a member by the keys of a later epoch. `own` is the key pair of the member in this epoch.
fn install(
    (file, own): (&MemberFile, Own<'_>),
    manager: Manager,
    keys: &OscoreKeys,
    replace: impl Replace,
) -> Result<(), ControllerError> {
    if keys.curve != file.curve || keys.sender_id.is_some() != file.own.is_some() {
        return Err(ControllerError::Response(Malformed::Value(NUM)));
    }
    let new = ManagedKeys {
        group: &file.group,
        name: &file.name,
        manager: Manager { epoch: keys.number, ..manager },
        keys,
        own,
        group_manager_credential: &file.group_manager_credential,
        joined: file.created,
    };
    Ok(replace(&new)?)
}

/// Returns the keys of a member after a rekeying message (draft-ietf-ace-key-groupcomm-oscore, section 11.2). `epoch` is
/// the version of its present keys. The members whose Sender IDs are stale are left out, and the members that joined are
/// added. Returns `None` if the member has missed an epoch, or if its own Sender ID is stale: it then has to ask for its
/// keys.
fn keys_after(file: &MemberFile, epoch: u16, message: OscoreRekeying) -> Option<OscoreKeys> {
    let OscoreRekeying { gid, master_secret, master_salt, number, expires, stale, joined } = message;
    let stale = stale?;
    let is_stale = |id: &Id| stale.iter().any(|stale| stale == id.as_bytes());
    let own = file.own.as_ref().map(|own| &own.sender_id);
    if Some(number) != epoch.checked_add(1) || own.is_some_and(is_stale) {
        return None;
    }
    let is_replaced = |id: &Id| joined.iter().any(|cred| cred.id == id.as_bytes());
    let kept = file.others.iter().filter(|other| !is_stale(&other.id) && !is_replaced(&other.id));
    let cred = |other: &OtherMember| OscoreCred {
        id: other.id.as_bytes().to_vec(),
        // The file gives no rights to a member that sends no requests.
        roles: Roles {
            requester: other.allow.as_ref().is_none_or(|rules| !rules.is_empty()),
            responder: true,
            monitor: false,
        },
        credential: other.credential.clone(),
    };
    let creds = kept.map(cred).chain(joined.iter().cloned()).collect();
    Some(OscoreKeys {
        gid,
        master_secret,
        master_salt,
        aead: file.aead,
        curve: file.curve,
        sender_id: own.map(|id| id.as_bytes().to_vec()),
        number,
        expires,
        creds: Some(creds),
        kdc: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::create_group;
    use std::collections::BTreeMap;
    use tegmen::crypto::Curve;

    #[test]
    fn messages_of_unknown_groups_cause_fewer_and_fewer_requests() {
        let pace = OscorePace::default();
        let mut pause = pace.shortest;
        let pauses: Vec<u64> = (0..6)
            .map(|_| {
                pause = pace.pause_after(pause, false);
                pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [4, 8, 16, 30, 30, 30]);
        assert_eq!(pace.pause_after(pause, true), pace.shortest);
    }

    #[test]
    fn a_rekeying_message_removes_stale_members_and_adds_new_ones() {
        let dir = std::env::temp_dir().join(format!("tegmen-rekeying-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let names = ["switch", "hall", "porch"].map(str::to_owned);
        let allow = BTreeMap::from([("hall".to_owned(), Vec::new()), ("switch".to_owned(), vec!["GET /*".to_owned()])]);
        create_group(&dir, &names, Curve::Ed25519, &allow, None).unwrap();
        let file = MemberFile::read(&dir.join("porch")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let own = file.own.as_ref().unwrap().sender_id.as_bytes().to_vec();
        let [switch, hall] = file.others.as_slice() else { panic!("two others") };
        let attic = OscoreCred { id: vec![9], roles: Roles::of_number(4).unwrap(), credential: vec![1] };
        let message = |number, stale: Option<Vec<Vec<u8>>>, joined: &[OscoreCred]| OscoreRekeying {
            gid: vec![5],
            master_secret: vec![6; 16].into(),
            master_salt: vec![7],
            number,
            expires: 8,
            stale,
            joined: joined.to_vec(),
        };
        let ids = |message| {
            let creds = keys_after(&file, 3, message).map(|keys| keys.creds.unwrap());
            let of = |cred: OscoreCred| (cred.id, cred.roles.requester);
            creds.map(|creds| creds.into_iter().map(of).collect::<Vec<_>>())
        };
        let id = |other: &OtherMember| other.id.as_bytes().to_vec();
        let (first, second) = ((id(switch), true), (id(hall), false));
        assert_eq!(ids(message(4, Some(vec![]), &[])), Some(vec![first.clone(), second.clone()]), "it keeps all");
        let (stale, new) = (vec![id(switch), vec![77]], (vec![9], false));
        assert_eq!(ids(message(4, Some(stale), std::slice::from_ref(&attic))), Some(vec![second, new]));
        let replaced = OscoreCred { id: id(hall), ..attic };
        assert_eq!(ids(message(4, Some(vec![]), &[replaced])), Some(vec![first, (id(hall), false)]));

        let keys = keys_after(&file, 3, message(4, Some(vec![]), &[])).unwrap();
        assert_eq!((keys.gid, keys.master_secret.as_slice(), keys.master_salt), (vec![5], &[6; 16][..], vec![7]));
        assert_eq!((keys.number, keys.sender_id.as_deref()), (4, Some(own.as_slice())));
        assert_eq!((keys.aead, keys.curve, keys.kdc), (file.aead, file.curve, None));

        assert_eq!(ids(message(5, Some(vec![]), &[])), None, "it missed an epoch");
        assert_eq!(ids(message(4, None, &[])), None, "a response to a registration names no stale members");
        assert_eq!(ids(message(4, Some(vec![own]), &[])), None, "its own Sender ID");
    }
}
