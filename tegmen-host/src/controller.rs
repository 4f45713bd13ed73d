//! Requests of a member to the controller of its group (RFC 9594). With these requests a member joins over DTLS, asks
//! for the keys of an epoch that it missed, and leaves. The group is an Axiom group or a Group OSCORE group.

mod control;
mod oscore;
mod verifier;

pub use control::{CONTROL_IDENTITY, control_key};
pub use oscore::{OscoreJoining, OscorePace};
pub use verifier::{NotVerified, OscoreVerifier, Verified};

use crate::cbor::Malformed;
use crate::client::{ClientConfig, ClientError, Response, Session};
use crate::contexts::ContextError;
use crate::group::groupcomm::{
    Challenge, Creds, CredsFilter, GROUPCOMM_CBOR, GROUPS, GroupKeys, GroupcommError, JoinRequest, Possession,
};
use crate::group::{MemberSettings, Membership, MembershipError, MembershipEvent, PrivateKey, creds_of_interest};
use crate::printable::printable;
use crate::problem::{self, Problem};
use crate::provider::HostCrypto;
use crate::server::StartError;
use crate::uri::{Scheme, Uri, UriError};
use crate::x509::signer::SignError;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen::crypto::Crypto as _;
use zeroize::Zeroizing;

/// The reason why a request to a controller failed. The text of most errors proposes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The URI does not name a controller or a group.
    #[error(
        "{0}: name the controller as coaps://host[:port], or the group there as coaps://host[:port]/ace-group/NAME"
    )]
    Name(String),
    /// The URI is not valid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The client cannot reach the controller, or has no session with it.
    #[error("the controller of the group {group}: {source}")]
    Unreachable {
        /// The name of the group.
        group: String,
        /// The error of the client.
        source: ClientError,
    },
    /// The controller does not know this member.
    #[error("the controller does not know this member of the group {0} any more")]
    NotAMember(String),
    /// Two devices used the SenderID of this member, so the controller gives its keys only to the device that joins again.
    #[error(
        "two devices used the SenderID of this member of the group {0}: join again (`tegmen group join`), and use its credentials and \
         its directory in one place only"
    )]
    Clashed(String),
    /// The controller refused the request.
    #[error(
        "the controller does not allow this for the group {group} ({code}): {}",
        .reason.as_deref().unwrap_or(UNEXPLAINED)
    )]
    Forbidden {
        /// The name of the group.
        group: String,
        /// The code of the response.
        code: Code,
        /// The reason, and a next step, if the response has them.
        reason: Option<String>,
    },
    /// The controller gives this device no data for signature verifiers.
    #[error(
        "there is no group {0}, this device is a member of it, or the policy does not allow POST /ace-group/{0}/verifier: \
         verify with a device that is no member, and add this right to the policy"
    )]
    NotAVerifier(String),
    /// The group is an Axiom group, so it has no signature verifiers.
    #[error("the group {0} is an Axiom group, which has no signature verifiers: name a Group OSCORE group")]
    NoVerifiers(String),
    /// The group is full: it has no leaf of the key tree, or no SenderID, for another member.
    #[error(
        "the group {group} is full, or all its SenderIDs are in use: let the operator of the controller evict a member"
    )]
    Full {
        /// The name of the group.
        group: String,
        /// The time after which to send the request again.
        retry: Duration,
    },
    /// The controller cannot handle the request now.
    #[error("the controller cannot do this for the group {group} now ({code}); its log has the cause{}", again(.retry))]
    Unavailable {
        /// The name of the group.
        group: String,
        /// The code of the response.
        code: Code,
        /// The time after which to send the request again, if the response has one.
        retry: Option<Duration>,
    },
    /// The response contains no valid keys.
    #[error("the response of the controller cannot be read ({0}): is it a controller of groups after Axiom?")]
    Response(Malformed),
    /// The controller did not accept the proof of possession.
    #[error(
        "the controller of the group {0} does not take the public key of this device, whose proof may have come too late: run the command again"
    )]
    NotProved(String),
    /// The device cannot make or use a private key for the signatures of the group.
    #[error("the group {group} has signatures, and {source}: let the system give randomness")]
    NoKey {
        /// The name of the group.
        group: String,
        /// The error of the key.
        source: SignError,
    },
    /// The directory of a member does not contain the roles with which the member joined, because an earlier version of
    /// this program wrote it.
    #[error(
        "the directory does not contain the roles of this member of the group {0}: join again (`tegmen group join`)"
    )]
    RolesUnknown(String),
    /// The Group Manager may have replaced the credential of the member, but the directory has the old key pair.
    #[error(
        "{source}; the controller may already have the new credential: run `tegmen group renew-key` again, or the other \
         members refuse the messages of this member"
    )]
    NotRenewed {
        /// The error after the member sent its new credential.
        source: Box<ControllerError>,
    },
    /// The member cannot listen at its `control_uri`, so it observes its group.
    #[error(
        "the member cannot take rekeying messages at {uri}, and observes its group instead: {source}; free the address, or join \
         again (`tegmen group join`)"
    )]
    Control {
        /// The `control_uri` of the member.
        uri: String,
        /// The error of the server.
        source: StartError,
    },
    /// The Group Manager did not prove that it has the private key of its credential.
    #[error(
        "the Group Manager of the group {0} does not prove that its credential is its own: check the URI of the controller"
    )]
    ManagerNotProved(String),
    /// The security context of the member cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The membership cannot be used.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}

/// The possible reasons of a refusal without a reason. A device without a right must not learn more.
const UNEXPLAINED: &str = "there is no such group, the policy does not allow it, these are not the credentials of the \
     member, another member has the address, or the address is not of the family of the group, IPv4 or IPv6; the log of \
     the controller has the cause";

/// Returns the next step after a refusal: to repeat the request after this time.
fn again(retry: &Option<Duration>) -> String {
    retry.map(|retry| format!("; run the command again in {} s", retry.as_secs())).unwrap_or_default()
}

/// The request of a device that wants to be a member.
#[derive(Clone, Copy, Default, Debug)]
pub struct Joining {
    /// The source address of the member's responses. If it is `None`, the member uses the local address of its session
    /// with the controller.
    pub address: Option<IpAddr>,
    /// True if the member answers requests.
    pub listens: bool,
    /// True if the member sends requests.
    pub sends: bool,
}

/// The controller of one group, for one client.
#[derive(Clone, Debug)]
pub struct Controller {
    uri: Uri,
    group: String,
    config: ClientConfig,
}

impl Controller {
    /// Returns the controller of a group, for a client with these settings. `uri` is the URI of the group,
    /// `coaps://host[:port]/ace-group/NAME`.
    ///
    /// # Errors
    /// [`ControllerError::Uri`], [`ControllerError::Name`].
    pub fn of_group(uri: &str, config: ClientConfig) -> Result<Self, ControllerError> {
        let uri = Uri::parse(uri)?;
        let group = match uri.path.as_slice() {
            [groups, group] if groups == GROUPS && uri.query.is_empty() && uri.scheme == Scheme::Coaps => group.clone(),
            _ => return Err(ControllerError::Name(uri.to_string())),
        };
        Ok(Self { uri, group, config })
    }

    /// Returns the controller that gave a member its keys; `None` if the settings of the member name no controller.
    ///
    /// # Errors
    /// [`ControllerError::Uri`], [`ControllerError::Name`].
    pub fn of_member(membership: &Membership, config: ClientConfig) -> Result<Option<Self>, ControllerError> {
        let uri = membership.settings().controller;
        uri.map(|uri| Self::of_group(&uri, config)).transpose()
    }

    /// Joins the group, and stores the membership in a directory. If the directory has an older membership in this
    /// group, the new membership replaces it. End the program that uses the older membership before this call.
    ///
    /// # Errors
    /// [`ControllerError::Membership`] if the interface does not exist, or if a program uses the directory. In both
    /// cases the controller has received no request. Any other [`ControllerError`] if the request fails, or if the
    /// membership cannot be stored. If the controller has admitted the device, the keys of an older membership are no
    /// longer valid, even after an error.
    pub async fn join(
        &self,
        dir: &Path,
        joining: Joining,
        settings: &MemberSettings,
    ) -> Result<Membership, ControllerError> {
        Membership::check_place(dir, settings)?;
        let session = self.connect().await?;
        let address = joining.address.unwrap_or_else(|| session.local().ip().to_canonical());
        let mut request = self.request_to_join(joining.sends, Some(address).filter(|_| joining.listens));
        let asked = self.ask_to_join(&session, &mut request).await;
        session.close();
        let (reply, key) = asked?;
        let keys = self.keys_in(reply)?;
        let settings =
            MemberSettings { group: self.group.clone(), controller: Some(self.uri.to_string()), ..settings.clone() };
        Ok(Membership::create_with(dir, &settings, keys, key)?)
    }

    /// Returns a request to join. `address` is the source address of the member's responses; `None` for a member that does
    /// not listen.
    fn request_to_join(&self, sends: bool, address: Option<IpAddr>) -> JoinRequest {
        let host = |address: IpAddr| if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        JoinRequest {
            group: self.group.clone(),
            sends,
            control_uri: address.map(|address| format!("coap://{}/", host(address))),
            checks_signatures: true,
            ..JoinRequest::default()
        }
    }

    /// Sends a request to join. If the group has signatures, sends the request again with the proof that this device
    /// has a private key.
    async fn ask_to_join(
        &self,
        session: &Session,
        request: &mut JoinRequest,
    ) -> Result<(Response, Option<PrivateKey>), ControllerError> {
        let path = self.path();
        let ask = async |payload: Vec<u8>| {
            let asked = session.post(&path, &payload).content_format(GROUPCOMM_CBOR).await;
            asked.map_err(|source| self.unreachable(source))
        };
        let reply = ask(request.encode()).await?;
        let is_groupcomm = reply.content_format() == Some(GROUPCOMM_CBOR.into());
        if reply.code != Code::BAD_REQUEST || !is_groupcomm {
            return Ok((reply, None));
        }
        let challenge = Challenge::parse(&reply.payload).map_err(ControllerError::Response)?;
        let no_key = |source| ControllerError::NoKey { group: self.group.clone(), source };
        let key = PrivateKey::draw(challenge.scheme).map_err(no_key)?;
        let mut nonce = [0; 8];
        let crypto = HostCrypto::from_os().map_err(|error| no_key(SignError(error.to_string())));
        crypto?.random(&mut nonce);
        request.creds = Some(creds_of_interest(request.sends));
        request.possession = Some(Possession::prove(request, &challenge, nonce, &*key.key).map_err(no_key)?);
        Ok((ask(request.encode()).await?, Some(key)))
    }

    /// Asks for public keys of the members.
    async fn creds(&self, filter: &CredsFilter) -> Result<Creds, ControllerError> {
        let session = self.connect().await?;
        let path = format!("{}/creds", self.path());
        let payload = filter.encode();
        let asked = session.request(Code::FETCH, &path).payload(&payload).content_format(GROUPCOMM_CBOR).await;
        session.close();
        match asked.map_err(|source| self.unreachable(source))? {
            reply if reply.code == Code::CONTENT => Creds::parse(&reply.payload).map_err(ControllerError::Response),
            reply => Err(self.refusal(&reply)),
        }
    }

    /// Asks the controller for the keys of the current epoch. This client must be a member of the group.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub async fn keys(&self) -> Result<GroupKeys, ControllerError> {
        let session = self.connect().await?;
        let asked = session.get(&self.path()).await;
        session.close();
        self.keys_in(asked.map_err(|source| self.unreachable(source))?)
    }

    /// Leaves the group. The directory of the membership remains: see [`Membership::remove`].
    ///
    /// # Errors
    /// [`ControllerError`].
    pub async fn leave(&self, membership: &Membership) -> Result<(), ControllerError> {
        let session = self.connect().await?;
        let path = format!("{}/nodes/{}", self.path(), membership.leaf());
        let asked = session.delete(&path).await;
        session.close();
        match asked.map_err(|source| self.unreachable(source))? {
            reply if reply.code == Code::DELETED => Ok(()),
            reply => Err(self.refusal(&reply)),
        }
    }

    /// Asks once for the keys of the current epoch, and gives them to the member. In a group with signatures, also asks
    /// for the public keys of the members, unless the member already has the public keys of this epoch. Returns true if
    /// the keys are of a later epoch than the member's previous keys.
    ///
    /// If two devices used the SenderID of the member, the member joins again, and gets another SenderID. The keys that
    /// the other device has are then outdated.
    ///
    /// # Errors
    /// [`ControllerError`]. After [`ControllerError::NotAMember`] the membership is marked as evicted.
    pub async fn catch_up(&self, membership: &Membership) -> Result<bool, ControllerError> {
        match self.keys().await {
            Ok(keys) => {
                let is_newer = membership.catch_up(keys)?;
                let Some(filter) = membership.missing_creds() else { return Ok(is_newer) };
                membership.take_creds(self.creds(&filter).await?)?;
                Ok(true)
            }
            Err(ControllerError::Clashed(_)) => self.join_again(membership).await.map(|()| true),
            Err(ControllerError::NotAMember(group)) => {
                membership.evict()?;
                Err(ControllerError::NotAMember(group))
            }
            Err(error) => Err(error),
        }
    }

    /// Joins again as the same member, without a new directory.
    async fn join_again(&self, membership: &Membership) -> Result<(), ControllerError> {
        let mut request = self.request_to_join(membership.sender_id().is_some(), membership.address());
        let session = self.connect().await?;
        let asked = self.ask_to_join(&session, &mut request).await;
        session.close();
        let (reply, key) = asked?;
        Ok(membership.admitted_again(self.keys_in(reply)?, key)?)
    }

    /// Reports to the controller that two members use one SenderID (Axiom paper, section 7.5). The arguments are the epoch
    /// and the SenderID.
    async fn report_clash(&self, clash: (u16, u8)) -> Result<(), ControllerError> {
        let session = self.connect().await?;
        let payload = minicbor::to_vec(clash).unwrap_or_default();
        let asked = session.post(&format!("{}/clash", self.path()), &payload).content_format(GROUPCOMM_CBOR).await;
        session.close();
        match asked.map_err(|source| self.unreachable(source))? {
            reply if reply.code == Code::CHANGED => Ok(()),
            reply => Err(self.refusal(&reply)),
        }
    }

    /// Reports a clash if there is one, and asks once for the keys of the current epoch: see [`Self::catch_up`]. If the
    /// controller cannot process the report now, the member keeps the report for the next call.
    async fn report_and_catch_up(&self, membership: &Membership) -> Result<bool, ControllerError> {
        let Some(clash) = membership.clash() else { return self.catch_up(membership).await };
        match self.report_clash(clash).await {
            Err(error @ ControllerError::Unreachable { .. }) => Err(error),
            // A refused report must not keep the member from the keys of an epoch that it missed.
            Err(error @ (ControllerError::Unavailable { .. } | ControllerError::Full { .. })) => {
                let asked = self.catch_up(membership).await;
                if asked.is_ok() && membership.clash().is_some() { Err(error) } else { asked }
            }
            // The controller gives the same answer to a repeated report.
            _ => {
                membership.forget_clash(clash);
                self.catch_up(membership).await
            }
        }
    }

    /// Keeps the keys of a member current: asks the controller for them when the member may have missed an epoch. Also
    /// reports to the controller that two members use one SenderID.
    /// Before each request the member waits for a random time, because all members may have missed the same message. An
    /// attacker can cause such a request. So the interval before the next request doubles after each request without a
    /// response, and after each response without new keys. The call ends when the member is evicted.
    pub async fn follow(&self, membership: &Membership, pace: Pace) {
        let mut wait = pace.shortest;
        while !membership.is_evicted() {
            membership.falls_behind().await;
            tokio::time::sleep(pace.jitter.mul_f64(fraction())).await;
            let asked = self.report_and_catch_up(membership).await;
            wait = match &asked {
                Ok(true) => pace.shortest,
                _ => pace.longest.min(wait * 2),
            };
            match asked {
                Ok(_) => {}
                Err(ControllerError::NotAMember(_)) => return,
                Err(error) => {
                    let again = error.retry().map_or(wait, |retry| retry.max(wait));
                    wait = again;
                    membership.report(MembershipEvent::NotAsked { problem: error.to_string(), again: Some(again) });
                }
            }
            tokio::time::sleep(wait.mul_f64(1.0 + fraction() / 4.0)).await;
        }
    }

    fn path(&self) -> String {
        format!("/{GROUPS}/{}", self.group)
    }

    async fn connect(&self) -> Result<Session, ControllerError> {
        Session::connect(&self.uri, self.config.clone()).await.map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: ClientError) -> ControllerError {
        ControllerError::Unreachable { group: self.group.clone(), source }
    }

    fn keys_in(&self, reply: Response) -> Result<GroupKeys, ControllerError> {
        let has_keys = matches!(reply.code, Code::CREATED | Code::CHANGED | Code::CONTENT);
        if !has_keys {
            return Err(self.refusal(&reply));
        }
        GroupKeys::parse(&Zeroizing::new(reply.payload)).map_err(ControllerError::Response)
    }

    fn refusal(&self, reply: &Response) -> ControllerError {
        let is_problem = reply.content_format() == Some(problem::CONTENT_FORMAT.into());
        let reason = GroupcommError::parse(&reply.payload).filter(|_| is_problem);
        let retry = reply.uint(OptionNumber::MAX_AGE).map(|seconds| Duration::from_secs(seconds.into()));
        let group = self.group.clone();
        match (reason, reply.code) {
            (Some(GroupcommError::NotAMember | GroupcommError::GroupDeleted), _) => ControllerError::NotAMember(group),
            (Some(GroupcommError::NoNodeIdentifier), _) => {
                ControllerError::Full { group, retry: retry.unwrap_or(Duration::from_secs(60)) }
            }
            (Some(GroupcommError::OtherCredential | GroupcommError::NoPossession), _) => {
                ControllerError::NotProved(group)
            }
            (Some(GroupcommError::NotAVerifier), _) => ControllerError::NotAVerifier(group),
            (Some(GroupcommError::OtherRoles), code) => ControllerError::Forbidden { group, code, reason: None },
            (None, Code::CONFLICT) => ControllerError::Clashed(group),
            (None, code @ Code::TOO_MANY_REQUESTS) => ControllerError::Unavailable { group, code, retry },
            (None, code) if code.class() == 4 => {
                let reason = Problem::from_cbor(&reply.payload).ok().filter(|_| is_problem);
                ControllerError::Forbidden { group, code, reason: reason.map(|reason| printable(&reason.to_string())) }
            }
            (None, code) => ControllerError::Unavailable { group, code, retry },
        }
    }
}

impl ControllerError {
    /// Returns the time after which to send the request again, if the controller gave one.
    const fn retry(&self) -> Option<Duration> {
        match self {
            Self::Full { retry, .. } => Some(*retry),
            Self::Unavailable { retry, .. } => *retry,
            _ => None,
        }
    }
}

/// The intervals between the requests of a member to its controller.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Maximum random time before a request.
    pub jitter: Duration,
    /// The interval before the next request, if the last request brought new keys.
    pub shortest: Duration,
    /// The maximum interval before the next request, if requests brought no new keys or failed.
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { jitter: Duration::from_secs(2), shortest: Duration::from_secs(5), longest: Duration::from_secs(600) }
    }
}

/// Returns a random number from 0 to 1.
fn fraction() -> f64 {
    let mut random = [0; 4];
    if let Ok(mut crypto) = HostCrypto::from_os() {
        crypto.random(&mut random);
    }
    f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX)
}
