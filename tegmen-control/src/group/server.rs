//! The controller over CoAP (RFC 9594): an [`Application`] for a server of [`tegmen_host`].
//!
//! ```text
//! POST   /ace-group/GROUP              joins, or joins again: application/ace-groupcomm+cbor (261)
//! GET    /ace-group/GROUP              the keys of the current epoch, for a member that missed one. A member can
//!                                      observe this resource (RFC 7641): it gets a notification with each epoch
//! GET    /ace-group/GROUP/num          the number of the current epoch
//! GET    /ace-group/GROUP/creds        the public keys of the other members, in a group with signatures
//! FETCH  /ace-group/GROUP/creds        the public keys of some members, in a group with signatures
//! GET    /ace-group/GROUP/nodes/NODE   the keys of the current epoch, as GET /ace-group/GROUP
//! DELETE /ace-group/GROUP/nodes/NODE   leaves
//! POST   /ace-group/GROUP/clash        two members use one SenderID: an array of the epoch and the SenderID (Axiom groups)
//! FETCH  /ace-group                    the names of Group OSCORE groups with these Group Identifiers
//! ```
//!
//! A Group OSCORE group has the same resources with the messages of draft-ietf-ace-key-groupcomm-oscore, and six
//! more:
//!
//! ```text
//! GET    /ace-group/GROUP/kdc-cred     the credential of the Group Manager
//! GET    /ace-group/GROUP/policies     the policies of the group
//! GET    /ace-group/GROUP/active       true, because each group is active
//! FETCH  /ace-group/GROUP/stale-sids   the Sender IDs that no member has any more
//! POST   /ace-group/GROUP/nodes/NODE   another Sender ID for this member
//! POST   /ace-group/GROUP/nodes/NODE/cred   another credential of this member
//! ```
//!
//! A signature verifier is no member. It has three resources of a Group OSCORE group:
//!
//! ```text
//! GET    /ace-group/GROUP/verif-data   the data with which it verifies the signatures of messages
//! GET    /ace-group/GROUP/creds        the credentials of the members; also FETCH
//! FETCH  /ace-group/GROUP/kdc-cred     the credential of the Group Manager, with a proof over the verifier's nonce
//! ```
//!
//! A peer that has proved no identity gets no information. A peer with the right `POST /ace-group/GROUP` may join as a
//! listener. With the right `POST /ace-group/GROUP/requester` it may also send. In a Group OSCORE group the first right
//! is for a monitor, and a responder needs the right `POST /ace-group/GROUP/responder`. A signature verifier needs only the
//! right `POST /ace-group/GROUP/verifier`. A peer without a right gets the same response for an existing group and for an
//! unknown group. A member gets its own parameters and the SenderIDs in use.
//! In a group with signatures it also gets the public keys of the other members, with their SenderIDs and addresses. A
//! member gets no further information about the other members.

use super::config::{GroupConfig, GroupError, Protocol};
use super::control_uri;
use super::controller::{Clash, Controller};
use super::joins::Joins;
use super::members::NewMember;
use super::observers::Observers;
use super::oscore::{self, NewOscoreMember};
use super::possession::{Challenges, NotProved};
use super::rekeying::Rekeying;
use super::tree::Refused;
use crate::access::policy::{OwnedParty, Question};
use crate::publisher::{Tickets, rules};
use crate::server::{sender, sender_in};
use crate::service::Service;
use crate::state::{Device, View};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen::identity::{Identity, Protection};
use tegmen_coap::Methods;
use tegmen_host::cbor::Out;
use tegmen_host::credentials::{Credentials, KeyStore, KeyTicket, StoredKey};
use tegmen_host::group::groupcomm::oscore::{
    OscoreFilter, OscoreJoinRequest, OscorePossession, encode_names, encode_policies, encode_sender_id, parse_cnonce,
    parse_gids,
};
use tegmen_host::group::groupcomm::{
    CredsFilter, GROUPCOMM_CBOR, GROUPS, GroupcommError, JoinRequest, REQUESTER, RESPONDER, VERIFIER,
};
use tegmen_host::problem::{self, Problem};
use tegmen_host::server::{Application, Reply, Request};
use tegmen_host::uri::Uri;
use tegmen_store::Store;
use tegmen_store::clock::now_millis;
use zeroize::Zeroizing;

/// CoAP Content-Format of `application/cbor` (RFC 8949, section 9.1).
const CBOR: u16 = 60;
/// The time after which a peer may repeat a request that was answered with 5.03.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// The default interval of [`GroupServer::with_join_interval`].
pub const JOIN_INTERVAL: Duration = Duration::from_secs(60);

/// The rights of the peers of a controller.
pub trait Authority: Send + Sync + 'static {
    /// Returns the name of the peer that has proved this identity; `None` if the identity belongs to no known peer.
    fn client(&self, identity: &Identity) -> Option<String>;

    /// Returns true if the peer with this identity may make this request. The path begins with a slash.
    fn may(&self, identity: &Identity, method: Code, path: &str) -> bool;

    /// Returns a number that changes with each change of a device, for example when a device is disabled or removed. The
    /// server calls [`Self::client`] again after a join only if the number has changed since the request. Returns `None`
    /// if there is no such number: the server then calls `client` again after each join.
    fn version(&self) -> Option<u64> {
        None
    }

    /// Returns the pre-shared key of the device of this name, with which the controller authenticates itself in the
    /// sessions that it opens with the device. `None` if the controller must open no session with the device. The default
    /// implementation returns `None` for each device.
    fn device_key(&self, _device: &str) -> Option<Zeroizing<Vec<u8>>> {
        None
    }

    /// Returns true if the device of this name may make this request, as [`Self::may`] does for a peer. The default
    /// implementation returns false.
    fn device_may(&self, _device: &str, _method: Code, _path: &str) -> bool {
        false
    }
}

/// The rights from the policy of an access control server, for devices that open a session with their own credentials.
pub struct ByPolicy<S> {
    /// The access control server.
    pub service: Arc<Service<S>>,
    /// The credentials of the CoAP server that has the controller's resources.
    pub credentials: Credentials,
    /// The name and the tags of the controller in the policy, in which the controller is a publisher.
    pub controller: OwnedParty,
}

impl<S: Store> ByPolicy<S> {
    /// Returns true if the policy in `view` lets this device make a request to the controller.
    fn decide(&self, view: &View, device: Option<&Device>, (method, path): (Code, &str)) -> bool {
        let Some(device) = device.filter(|device| !device.disabled && view.is_current()) else { return false };
        let question = Question { subject: device.party.party(), publisher: self.controller.party(), method, path };
        view.in_force().policy.decide(&question).is_allowed()
    }
}

impl<S: Store> Authority for ByPolicy<S> {
    fn client(&self, identity: &Identity) -> Option<String> {
        let enabled = |device: &Device| (!device.disabled).then(|| device.name().to_owned());
        sender(&self.service, &self.credentials, identity, enabled)?
    }

    fn may(&self, identity: &Identity, method: Code, path: &str) -> bool {
        let view = self.service.state().view();
        self.decide(&view, sender_in(&view, &self.credentials, identity), (method, path))
    }

    fn device_key(&self, device: &str) -> Option<Zeroizing<Vec<u8>>> {
        self.service.state().view().shared_key(device)
    }

    fn device_may(&self, device: &str, method: Code, path: &str) -> bool {
        let view = self.service.state().view();
        self.decide(&view, view.device(device), (method, path))
    }

    fn version(&self) -> Option<u64> {
        Some(self.service.state().view().device_changes())
    }
}

/// The rights from tokens of an access control server (RFC 9202): the controller is a publisher with a protokey. This
/// type is also the [key store](tegmen_host::server::ServerBuilder::key_store) of the controller's server.
#[derive(Clone)]
pub struct ByToken {
    /// The tokens.
    pub tickets: Tickets,
    /// The credentials of the CoAP server that has the controller's resources.
    pub credentials: Credentials,
}

impl ByToken {
    /// Returns the token with which the session of this identity was opened.
    fn ticket(&self, identity: &Identity) -> Option<Arc<crate::publisher::Ticket>> {
        if identity.protection == Protection::Plain {
            return None;
        }
        let name = self.credentials.name_of(identity.principal)?;
        let is_stored = self.credentials.stored(&name) == Some(identity.principal);
        let ticket = self.tickets.in_use(&name, now_millis() / 1000).filter(|_| is_stored)?;
        self.credentials.may_have_proved(identity.principal, &ticket.key).then_some(ticket)
    }
}

impl Authority for ByToken {
    fn client(&self, identity: &Identity) -> Option<String> {
        self.ticket(identity).map(|ticket| ticket.subscriber.clone())
    }

    fn may(&self, identity: &Identity, method: Code, path: &str) -> bool {
        let methods = Methods::of(method).0;
        let allows = |right: &crate::access::ace::Right| {
            right.path == path && right.methods().is_some_and(|allowed| allowed.0 & methods == methods)
        };
        self.ticket(identity).is_some_and(|ticket| ticket.rights.0.iter().any(allows))
    }
}

impl KeyStore for ByToken {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let Some(taken) = self.tickets.in_use(identity, now_millis() / 1000).filter(|taken| taken.connect.is_none())
        else {
            return self.tickets.find(identity, ticket);
        };
        // A right to join a group is the right to ask for its keys and to leave it. The controller decides again.
        let mut allow = rules(&taken.rights);
        let prefix = format!("/{GROUPS}/");
        let groups = taken.rights.0.iter().filter(|right| right.path.starts_with(&prefix));
        // The resources of a signature verifier are those of its group.
        let of_verifier = |path: &str| {
            let group = path.strip_suffix(VERIFIER)?.strip_suffix('/')?;
            // A group may have the name of this resource.
            group.starts_with(&prefix).then(|| group.to_owned())
        };
        let path_of = |path: &str| of_verifier(path).unwrap_or_else(|| path.to_owned());
        let groups = groups.map(|right| path_of(&right.path));
        allow.extend(groups.flat_map(|path| [format!("* {path}"), format!("* {path}/*")]));
        allow.push(format!("* /{GROUPS}"));
        ticket.answer(Some(StoredKey { name: None, key: taken.key.clone(), previous: None, allow: Some(allow) }));
    }
}

/// An event at a controller.
#[derive(Debug)]
pub enum Event<'a> {
    /// A member joined or left. If the controller has no [outbox](Controller::with_outbox), the function that receives
    /// the event must send the messages before it returns: the server responds to the peer directly afterwards.
    Rekeying {
        /// The name of the group.
        group: &'a str,
        /// The rekey messages of this change of the members, and the number of the epoch that the change has begun.
        rekeying: &'a Rekeying,
        /// A line for the log. It contains the name of the member, and a warning if few epochs are left.
        message: String,
    },
    /// A request was refused.
    Refused {
        /// The name of the peer; `None` if the peer has proved no name.
        who: Option<&'a str>,
        /// A line for the log, which also names what the operator has to do next.
        message: String,
    },
}

/// The server of a controller, as an [`Application`]. Its clones share one state.
pub struct GroupServer<S> {
    controller: Arc<Controller<S>>,
    authority: Arc<dyn Authority>,
    events: Arc<dyn Fn(Event<'_>) + Send + Sync>,
    joins: Arc<Joins>,
    challenges: Arc<Challenges>,
    observers: Arc<Observers>,
}

impl<S> Clone for GroupServer<S> {
    fn clone(&self) -> Self {
        Self {
            controller: Arc::clone(&self.controller),
            authority: Arc::clone(&self.authority),
            events: Arc::clone(&self.events),
            joins: Arc::clone(&self.joins),
            challenges: Arc::clone(&self.challenges),
            observers: Arc::clone(&self.observers),
        }
    }
}

/// The name of a peer, the identity that it proved, and the [version](Authority::version) of the authority before it
/// returned the name.
type Peer<'a> = (&'a str, Identity, Option<u64>);

/// A request to join an Axiom group, and the address at which the device listens, if it listens.
type Join = (JoinRequest, Option<IpAddr>);

/// A request of a member, or of a peer that wants to join.
enum Asked {
    Join(Box<Join>),
    OscoreJoin(OscoreJoinRequest),
    /// A request to join with a `control_uri` to which the Group Manager sends no requests. The value is the reason.
    NotReachable(&'static str),
    /// An empty request to join, which asks for the demand of a proof of possession.
    Demand,
    Keys {
        node: Option<String>,
    },
    /// A notification for a member that observes the group.
    Rekeying,
    Number,
    /// A request for the public keys or credentials of members. The value is the payload of the request, which names
    /// the members; it is empty for all members.
    Creds(Vec<u8>),
    ManagerCred,
    /// A request of a signature verifier for the credential of the Group Manager. The value is the verifier's nonce.
    ManagerCredFor(Vec<u8>),
    VerificationData,
    Policies,
    Active,
    Stale(u16),
    Clash(Clash),
    NewSenderId {
        node: String,
    },
    /// A request to replace the credential of the member. The payload is empty if the member asks for the demand of a
    /// proof.
    NewCredential {
        node: String,
        payload: Vec<u8>,
    },
    Leave {
        node: String,
    },
}

/// The rights of a peer in a group.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Rights {
    /// The peer may join the group.
    joins: bool,
    /// The peer may verify the signatures of messages in the group while it is no member. True only for a request to a
    /// resource that signature verifiers use.
    verifies: bool,
}

impl<S: Store> GroupServer<S> {
    /// Makes the server of a controller. `authority` knows the name and the rights of each peer, and `events` receives
    /// the events. Each join of a member begins an epoch, and the number of epochs is limited. So a member may join a
    /// group four times without a pause, and after that once in each [`JOIN_INTERVAL`].
    pub fn new(
        controller: Arc<Controller<S>>,
        authority: Arc<dyn Authority>,
        events: Arc<dyn Fn(Event<'_>) + Send + Sync>,
    ) -> Self {
        let challenges = Arc::new(Challenges::new(&mut *controller.crypto()));
        let (joins, observers) = (Arc::new(Joins::new(JOIN_INTERVAL)), Arc::default());
        Self { controller, authority, events, joins, challenges, observers }
    }

    /// Sets the interval of the limit for joins: a member may join a group four times without a pause, and then once in
    /// each interval. Zero removes the limit.
    #[must_use]
    pub fn with_join_interval(mut self, interval: Duration) -> Self {
        self.joins = Arc::new(Joins::new(interval));
        self
    }

    /// Returns true if the server has this path. The path begins without a slash.
    pub fn has(&self, path: &str) -> bool {
        path.strip_prefix(GROUPS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn refuse(&self, who: Option<&str>, code: Code, message: String) -> Code {
        (self.events)(Event::Refused { who, message });
        code
    }

    /// Checks the form and the rights of a request. Returns the name of the group, the parsed request, and the rights of
    /// the peer. A request to leave is allowed without a right.
    fn check(&self, request: &Request<'_>, who: &str) -> Result<(String, Asked, Rights), Code> {
        let mut parts = request.path().split('/').skip(1);
        let group = parts.next().unwrap_or_default().to_owned();
        let rest: Vec<&str> = parts.collect();
        let path = format!("/{GROUPS}/{group}");
        let is_for_verifiers = matches!(rest.as_slice(), ["verif-data" | "creds" | "kdc-cred"]);
        let rights = Rights {
            joins: self.authority.may(request.identity(), Code::POST, &path),
            verifies: is_for_verifiers && self.may_verify(request.identity(), &group),
        };
        if rights == Rights::default() && request.method() != Code::DELETE {
            let message = format!("{who} asks for the group {group}: the policy or the token does not allow it");
            return Err(self.refuse(Some(who), Code::FORBIDDEN, message));
        }
        let asked = match (request.method(), rest.as_slice()) {
            (Code::POST, []) if OscoreJoinRequest::is(request.payload()) => {
                let join = self.check_oscore_join(request, who, &group)?;
                let uri = join.control_uri.as_deref();
                match uri.map_or(Ok(()), |uri| self.check_control_uri(request, who, (uri, &group))) {
                    Ok(()) => Asked::OscoreJoin(join),
                    Err(why) => Asked::NotReachable(why),
                }
            }
            (Code::POST, []) if request.payload().is_empty() => Asked::Demand,
            (Code::POST, []) => Asked::Join(Box::new(self.check_join(request, who, &group)?)),
            // The handler runs again for each notification. A notification comes from no address.
            (Code::GET, []) if request.remote().is_none() => Asked::Rekeying,
            (Code::GET, []) => Asked::Keys { node: None },
            (Code::GET, ["num"]) => Asked::Number,
            (Code::GET, ["creds"]) => Asked::Creds(Vec::new()),
            (Code::FETCH, ["creds"]) => Asked::Creds(check_format(request)?.to_vec()),
            (Code::GET, ["kdc-cred"]) => Asked::ManagerCred,
            (Code::FETCH, ["kdc-cred"]) => {
                let cnonce = parse_cnonce(check_format(request)?);
                Asked::ManagerCredFor(cnonce.map_err(|error| self.malformed(who, &group, &error))?)
            }
            (Code::GET, ["verif-data"]) => Asked::VerificationData,
            (Code::GET, ["policies"]) => Asked::Policies,
            (Code::GET, ["active"]) => Asked::Active,
            (Code::FETCH, ["stale-sids"]) => {
                let since = minicbor::decode(request.payload());
                Asked::Stale(since.map_err(|error| self.malformed(who, &group, &error))?)
            }
            (Code::POST, ["clash"]) => {
                let clash = minicbor::decode(check_format(request)?);
                Asked::Clash(clash.map_err(|error| self.malformed(who, &group, &error))?)
            }
            (Code::POST, ["nodes", node]) => Asked::NewSenderId { node: (*node).to_owned() },
            (Code::POST, ["nodes", node, "cred"]) => {
                let payload = if request.payload().is_empty() { &[] } else { check_format(request)? };
                Asked::NewCredential { node: (*node).to_owned(), payload: payload.to_vec() }
            }
            (Code::GET, ["nodes", node]) => Asked::Keys { node: Some((*node).to_owned()) },
            (Code::DELETE, ["nodes", node]) => Asked::Leave { node: (*node).to_owned() },
            (
                _,
                []
                | ["num" | "creds" | "kdc-cred" | "verif-data" | "policies" | "active" | "stale-sids" | "clash"]
                | ["nodes", _]
                | ["nodes", _, "cred"],
            ) => {
                return Err(Code::METHOD_NOT_ALLOWED);
            }
            _ => return Err(Code::NOT_FOUND),
        };
        Ok((group, asked, rights))
    }

    /// Returns true if the peer may be a signature verifier of the group.
    fn may_verify(&self, identity: &Identity, group: &str) -> bool {
        self.authority.may(identity, Code::POST, &format!("/{GROUPS}/{group}/{VERIFIER}"))
    }

    fn malformed(&self, who: &str, group: &str, why: &dyn std::fmt::Display) -> Code {
        self.refuse(Some(who), Code::BAD_REQUEST, format!("{who} asks for the group {group}: {why}"))
    }

    /// Checks the form and the rights of a request to join a Group OSCORE group. The right to the group is enough for a
    /// monitor. Each other role needs the right to the path of the role.
    fn check_oscore_join(&self, request: &Request<'_>, who: &str, group: &str) -> Result<OscoreJoinRequest, Code> {
        let join = OscoreJoinRequest::parse(check_format(request)?);
        let join = join.map_err(|error| self.malformed(who, group, &error))?;
        if join.group != group {
            return Err(self.malformed(who, group, &"its scope names another group"));
        }
        for (role, is_wanted) in [(REQUESTER, join.roles.requester), (RESPONDER, join.roles.responder)] {
            let path = format!("/{GROUPS}/{group}/{role}");
            if is_wanted && !self.authority.may(request.identity(), Code::POST, &path) {
                let message = format!(
                    "{who} asks to be a {role} of the group {group}: the policy or the token does not allow POST {path}"
                );
                return Err(self.refuse(Some(who), Code::FORBIDDEN, message));
            }
        }
        Ok(join)
    }

    /// Checks the URI at which a device that joins wants to take rekeying messages. Returns the reason of a refusal.
    fn check_control_uri(
        &self,
        request: &Request<'_>,
        who: &str,
        (uri, group): (&str, &str),
    ) -> Result<(), &'static str> {
        control_uri::check(uri, group, request.remote())?;
        match self.authority.device_key(who) {
            Some(_) => Ok(()),
            None => {
                Err("The Group Manager opens sessions only with devices of the policy that have a pre-shared key: \
                         observe the group instead.")
            }
        }
    }

    fn check_join(&self, request: &Request<'_>, who: &str, group: &str) -> Result<Join, Code> {
        let malformed = |why: String| self.malformed(who, group, &why);
        let join = JoinRequest::parse(check_format(request)?).map_err(|error| malformed(error.to_string()))?;
        if join.group != group {
            return Err(malformed("its scope names another group".to_owned()));
        }
        let no_address = || malformed("the host of its control_uri is no IP address".to_owned());
        let address = match &join.control_uri {
            None => None,
            Some(uri) => Some(Uri::parse(uri).ok().and_then(|uri| uri.host.parse().ok()).ok_or_else(no_address)?),
        };
        let path = format!("/{GROUPS}/{group}/{REQUESTER}");
        if join.sends && !self.authority.may(request.identity(), Code::POST, &path) {
            let message = format!("{who} asks to send to the group {group}: the policy or the token does not allow it");
            return Err(self.refuse(Some(who), Code::FORBIDDEN, message));
        }
        Ok((join, address))
    }

    /// Answers a request to join. In a group with signatures the device must first prove that it has the private key of
    /// its public key.
    async fn ask_to_join(&self, peer: Peer<'_>, group: &str, join: Box<Join>) -> Result<Reply, GroupError> {
        let (who, ..) = peer;
        let (join, address) = &*join;
        let mut public_key = None;
        if let Some(scheme) = self.controller.signature(group).await? {
            match self.challenges.check((who, group), scheme, join, Instant::now()) {
                Ok(key) => public_key = Some(key),
                Err(NotProved::Missing) => {
                    let challenge = self.challenges.challenge((who, group), scheme, Instant::now());
                    let reply = Reply::new(Code::BAD_REQUEST);
                    let reply = reply.uint(OptionNumber::CONTENT_FORMAT, GROUPCOMM_CBOR.into());
                    return Ok(reply.payload(challenge.encode(group).as_slice()));
                }
                Err(NotProved::Refused(error)) => {
                    let why = match error {
                        GroupcommError::OtherCredential => "its public key is not of the scheme of the group",
                        _ => "it does not prove that it has the private key, or the proof came too late",
                    };
                    let message = format!("{who} asks for the group {group}: {why}");
                    (self.events)(Event::Refused { who: Some(who), message });
                    return Ok(explained(Code::BAD_REQUEST, error));
                }
            }
        }
        let (sends, checks_signatures, address) = (join.sends, join.checks_signatures, *address);
        let new = NewMember { name: who.to_owned(), address, sends, checks_signatures, public_key, oscore: None };
        let (code, epoch) = match self.join(peer, group, &new).await? {
            Ok(joined) => joined,
            Err(refusal) => return Ok(refusal),
        };
        let controller = &self.controller;
        controller.first_sent(group, epoch).await;
        let keys = controller.admitted_with(group, (who, epoch), join.creds.as_ref()).await?;
        Ok(joined(code, (group, keys.leaf), keys.encode()))
    }

    /// Demands a proof of possession from a device that wants to join a Group OSCORE group.
    async fn demand(&self, who: &str, group: &str) -> Result<Reply, GroupError> {
        let scheme = self.oscore_config(group).await?.signature;
        let scheme = scheme.ok_or_else(|| GroupError::OtherProtocol(group.to_owned()))?;
        let challenge = self.challenges.oscore_challenge((who, group), scheme, Instant::now());
        let reply = Reply::new(Code::BAD_REQUEST).uint(OptionNumber::CONTENT_FORMAT, GROUPCOMM_CBOR.into());
        Ok(reply.payload(challenge.encode(group).as_slice()))
    }

    /// Answers a request to join a Group OSCORE group. A device that wants to send first proves that it has the private
    /// key of its credential. A member that joins again may leave out its credential: it keeps the stored one, for which
    /// it gave the proof earlier.
    async fn ask_to_join_oscore(
        &self,
        peer: Peer<'_>,
        group: &str,
        join: OscoreJoinRequest,
    ) -> Result<Reply, GroupError> {
        let (who, ..) = peer;
        let config = self.oscore_config(group).await?;
        let scheme = config.signature.ok_or_else(|| GroupError::OtherProtocol(group.to_owned()))?;
        let OscoreJoinRequest { roles, creds, cnonce, possession, control_uri, .. } = join;
        let mut credential = None;
        match possession {
            // A monitor sends nothing, so nobody verifies its signatures.
            _ if roles.monitor => {}
            None => match self.controller.oscore_credential(group, who).await? {
                None => return self.demand(who, group).await,
                stored => credential = stored,
            },
            Some(possession) => {
                oscore::check_credential(&config, who, &possession.credential)?;
                let proof = (&possession, cnonce.as_slice());
                let checked = self.challenges.check_oscore((who, group), scheme, proof, Instant::now());
                if let Err(error) = checked {
                    let why =
                        "it does not prove that it has the private key of its credential, or the proof came too late";
                    let message = format!("{who} asks for the group {group}: {why}");
                    (self.events)(Event::Refused { who: Some(who), message });
                    return Ok(explained(Code::BAD_REQUEST, error));
                }
                credential = Some(possession.credential);
            }
        }
        let new = NewMember {
            name: who.to_owned(),
            address: None,
            sends: false,
            checks_signatures: true,
            public_key: credential,
            oscore: Some(NewOscoreMember { roles, cnonce, control_uri }),
        };
        let (code, epoch) = match self.join(peer, group, &new).await? {
            Ok(joined) => joined,
            Err(refusal) => return Ok(refusal),
        };
        let creds = creds.map(|filter| filter.relevant_to(roles));
        let (keys, leaf) = self.controller.oscore_admitted(group, (who, epoch), creds.as_ref()).await?;
        Ok(joined(code, (group, leaf), keys.encode()))
    }

    /// Returns the configuration of a Group OSCORE group.
    async fn oscore_config(&self, group: &str) -> Result<GroupConfig, GroupError> {
        let config = self.controller.config(group).await?;
        match config.protocol {
            Protocol::Oscore => Ok(config),
            Protocol::Axiom => Err(GroupError::OtherProtocol(group.to_owned())),
        }
    }

    /// Admits a peer. Returns the code of the response and the epoch that began, or the response that refuses the peer.
    async fn join(
        &self,
        (who, identity, version): Peer<'_>,
        group: &str,
        new: &NewMember,
    ) -> Result<Result<(Code, u16), Reply>, GroupError> {
        let clash = self.controller.clash_of(group, who).await?;
        if let Err(wait) = self.joins.take(group, who, clash, Instant::now()) {
            let message =
                format!("{who} joins the group {group} too often: correct the device, or evict and disable it");
            (self.events)(Event::Refused { who: Some(who), message });
            // RFC 8516. Max-Age has whole seconds.
            return Ok(Err(Reply::new(Code::TOO_MANY_REQUESTS).max_age(wait.saturating_add(Duration::from_secs(1)))));
        }
        let controller = &self.controller;
        let (rekeying, code) = match controller.add(group, new).await {
            Err(GroupError::MemberTaken { .. }) => (Box::pin(controller.admit(group, new)).await?, Code::CHANGED),
            added => (added?, Code::CREATED),
        };
        self.changed(group, &rekeying, format!("{who} joined the group {group}"));
        // The controller did not evict a device that was disabled during the join, because it was not a member yet.
        let is_same = version.is_some() && self.authority.version() == version;
        if !is_same && self.authority.client(&identity).as_deref() != Some(who) {
            let rekeying = Box::pin(controller.evict(group, who)).await?;
            self.changed(
                group,
                &rekeying,
                format!("{who} has no right any more, and is evicted from the group {group}"),
            );
            return Ok(Err(Reply::new(Code::FORBIDDEN)));
        }
        Ok(Ok((code, rekeying.epoch)))
    }

    /// Answers a request. Many devices may join an Axiom group at the same time, so the futures of their requests do not
    /// have the size of the large futures of other requests.
    async fn answer(&self, peer: Peer<'_>, (group, rights): (&str, Rights), asked: Asked) -> Result<Reply, GroupError> {
        let (who, ..) = peer;
        let controller = &self.controller;
        match asked {
            Asked::Join(join) => self.ask_to_join(peer, group, join).await,
            Asked::OscoreJoin(join) => Box::pin(self.ask_to_join_oscore(peer, group, join)).await,
            Asked::NotReachable(why) => Ok(self.not_reachable(who, group, why)),
            Asked::Demand => match controller.config(group).await?.protocol {
                Protocol::Axiom => Ok(Reply::new(self.malformed(who, group, &"the request to join is empty"))),
                Protocol::Oscore => self.demand(who, group).await,
            },
            Asked::Creds(payload) => Box::pin(self.creds(who, (group, rights), &payload)).await,
            Asked::Keys { node } => self.keys(who, group, node.as_deref()).await,
            Asked::Rekeying => {
                let encoded = match controller.config(group).await?.protocol {
                    Protocol::Axiom => controller.parameters(group, who).await?.encode(),
                    Protocol::Oscore => controller.oscore_rekeying(group, who).await?.encode(),
                };
                Ok(Reply::content(GROUPCOMM_CBOR, encoded.as_slice()))
            }
            Asked::Number => {
                let epoch = match controller.config(group).await?.protocol {
                    Protocol::Axiom => controller.parameters(group, who).await?.epoch,
                    Protocol::Oscore => controller.oscore_keys(group, who).await?.0.number,
                };
                let payload = minicbor::to_vec(epoch).unwrap_or_default();
                Ok(Reply::content(GROUPCOMM_CBOR, payload))
            }
            Asked::ManagerCred => {
                let cred = controller.manager_cred(group, who).await?;
                Ok(Reply::content(GROUPCOMM_CBOR, cred.encode().as_slice()))
            }
            Asked::ManagerCredFor(cnonce) => {
                let cred = controller.manager_cred_for_verifier(group, who, &cnonce);
                let cred = if rights.verifies { cred.await? } else { None };
                Ok(for_verifiers(cred.map(|cred| cred.encode())))
            }
            Asked::VerificationData => {
                let data = controller.verification_data(group, who);
                let data = if rights.verifies { data.await? } else { None };
                Ok(for_verifiers(data.map(|data| data.encode())))
            }
            Asked::Policies => {
                controller.oscore_keys(group, who).await?;
                Ok(Reply::content(GROUPCOMM_CBOR, encode_policies().as_slice()))
            }
            Asked::Active => {
                controller.oscore_keys(group, who).await?;
                Ok(Reply::content(CBOR, minicbor::to_vec(true).unwrap_or_default()))
            }
            Asked::Stale(since) => {
                let (epoch, stale) = controller.stale_ids(group, who, since).await?;
                if since >= epoch {
                    return Ok(Reply::new(self.malformed(who, group, &"its keys are not older than the current keys")));
                }
                // A member without the newer sets forgets all other members.
                let Some(stale) = stale else { return Ok(Reply::new(Code::CONTENT)) };
                let stale: Vec<minicbor::bytes::ByteVec> = stale.into_iter().map(Into::into).collect();
                Ok(Reply::content(CBOR, minicbor::to_vec(stale).unwrap_or_default()))
            }
            Asked::Clash(clash) => Box::pin(self.end_clash(who, group, clash)).await,
            Asked::NewSenderId { node } => Box::pin(self.new_sender_id(who, group, &node)).await,
            Asked::NewCredential { node, payload } => {
                Box::pin(self.new_credential(who, group, (&node, &payload))).await
            }
            Asked::Leave { node } => {
                if controller.node(group, who).await?.to_string() != node {
                    return Ok(Reply::new(Code::FORBIDDEN));
                }
                let rekeying = Box::pin(controller.evict(group, who)).await?;
                self.changed(group, &rekeying, format!("{who} left the group {group}"));
                Ok(Reply::new(Code::DELETED))
            }
        }
    }

    /// Refuses a request to join because of its `control_uri`. `why` is the reason, which the device gets.
    fn not_reachable(&self, who: &str, group: &str, why: &str) -> Reply {
        let message = format!("{who} asks for the group {group}: its control_uri is refused: {why}");
        (self.events)(Event::Refused { who: Some(who), message });
        with_problem(Code::BAD_REQUEST, &Problem::new("The Group Manager does not support this control_uri", why))
    }

    /// Answers a request of a member for its keys. `node` is the member in the path of the request; `None` for the path of
    /// the group.
    async fn keys(&self, who: &str, group: &str, node: Option<&str>) -> Result<Reply, GroupError> {
        let (leaf, encoded) = match self.controller.config(group).await?.protocol {
            Protocol::Axiom => {
                let keys = self.controller.parameters(group, who).await?;
                (keys.leaf, keys.encode())
            }
            Protocol::Oscore => {
                let (mut keys, leaf) = self.controller.oscore_keys(group, who).await?;
                keys.sender_id = keys.sender_id.filter(|_| node.is_some());
                (leaf, keys.encode())
            }
        };
        match node.is_none_or(|node| node == leaf.to_string()) {
            true => Ok(Reply::content(GROUPCOMM_CBOR, encoded.as_slice())),
            false => Ok(Reply::new(Code::FORBIDDEN)),
        }
    }

    /// Answers a request for the names of groups. The response has only groups that the peer may join, or whose
    /// signatures it may verify.
    fn find_groups(&self, request: &Request<'_>, response: &mut Response<'_, '_>, who: String) -> Result<(), Code> {
        if request.method() != Code::FETCH {
            return Err(Code::METHOD_NOT_ALLOWED);
        }
        let gids = parse_gids(check_format(request)?).map_err(|_| Code::BAD_REQUEST)?;
        let (server, responder, identity) = (self.clone(), request.defer(response), *request.identity());
        tokio::spawn(async move {
            let found = server.controller.groups_with(&gids).await;
            responder.send(match found {
                Ok(mut found) => {
                    let joins = |name: &str| server.authority.may(&identity, Code::POST, &format!("/{GROUPS}/{name}"));
                    found.retain(|(_, name)| joins(name) || server.may_verify(&identity, name));
                    Reply::content(GROUPCOMM_CBOR, encode_names(&found))
                }
                Err(error) => server.refusal(&who, (GROUPS, Rights::default()), &error),
            });
        });
        Ok(())
    }

    /// Answers a request for public keys or credentials of members. `payload` has the filter; it is empty for all members.
    async fn creds(&self, who: &str, (group, rights): (&str, Rights), payload: &[u8]) -> Result<Reply, GroupError> {
        let controller = &self.controller;
        let malformed = |why: &dyn std::fmt::Display| Ok(Reply::new(self.malformed(who, group, why)));
        let encoded = match controller.config(group).await?.protocol {
            // An Axiom group has no signature verifiers.
            Protocol::Axiom if !rights.joins => return Err(GroupError::OtherProtocol(group.to_owned())),
            Protocol::Axiom if payload.is_empty() => {
                controller.creds(group, who, &CredsFilter::default()).await?.encode()
            }
            Protocol::Axiom => match CredsFilter::parse(payload) {
                Ok(filter) => controller.creds(group, who, &filter).await?.encode(),
                Err(why) => return malformed(&why),
            },
            Protocol::Oscore => {
                let all = payload.is_empty().then(OscoreFilter::default);
                let filter = match all.map_or_else(|| OscoreFilter::parse(payload), Ok) {
                    Ok(filter) => filter,
                    Err(why) => return malformed(&why),
                };
                match controller.oscore_creds(group, who, &filter).await {
                    Err(GroupError::NoMember { .. }) if rights.verifies => {
                        controller.creds_for_verifier(group, &filter).await?.encode()
                    }
                    creds => creds?.encode(),
                }
            }
        };
        Ok(Reply::content(GROUPCOMM_CBOR, encoded.as_slice()))
    }

    /// Answers a request of a member of a Group OSCORE group for another Sender ID. The request begins an epoch, so it
    /// counts as a join.
    async fn new_sender_id(&self, who: &str, group: &str, node: &str) -> Result<Reply, GroupError> {
        let (keys, leaf) = self.controller.oscore_keys(group, who).await?;
        if leaf.to_string() != node {
            return Ok(Reply::new(Code::FORBIDDEN));
        }
        if keys.sender_id.is_none() {
            return Ok(explained(Code::BAD_REQUEST, GroupcommError::OtherRoles));
        }
        if let Err(wait) = self.joins.take(group, who, None, Instant::now()) {
            return Ok(Reply::new(Code::TOO_MANY_REQUESTS).max_age(wait.saturating_add(Duration::from_secs(1))));
        }
        let (rekeying, id) = self.controller.renew_sender_id(group, who).await?;
        self.changed(group, &rekeying, format!("{who} has another Sender ID in the group {group}"));
        Ok(Reply::new(Code::CHANGED)
            .uint(OptionNumber::CONTENT_FORMAT, GROUPCOMM_CBOR.into())
            .payload(encode_sender_id(&id).as_slice()))
    }

    /// Answers a request of a member of a Group OSCORE group to replace its credential (RFC 9594, section 4.9.1). The
    /// member proves that it has the private key, as for a join. A new credential begins an epoch, so it counts as a join.
    async fn new_credential(
        &self,
        who: &str,
        group: &str,
        (node, payload): (&str, &[u8]),
    ) -> Result<Reply, GroupError> {
        let config = self.oscore_config(group).await?;
        let scheme = config.signature.ok_or_else(|| GroupError::OtherProtocol(group.to_owned()))?;
        let (roles, leaf) = self.controller.oscore_roles(group, who).await?;
        if leaf.to_string() != node {
            return Ok(Reply::new(Code::FORBIDDEN));
        }
        if roles.monitor {
            return Ok(explained(Code::BAD_REQUEST, GroupcommError::OtherRoles));
        }
        if payload.is_empty() {
            return self.demand(who, group).await;
        }
        let scope = OscoreJoinRequest {
            group: group.to_owned(),
            roles,
            creds: None,
            cnonce: Vec::new(),
            possession: None,
            control_uri: None,
        };
        let (possession, cnonce) = match OscorePossession::parse_update(payload, scope.scope()) {
            Ok(update) => update,
            Err(error) => return Ok(Reply::new(self.malformed(who, group, &error))),
        };
        oscore::check_credential(&config, who, &possession.credential)?;
        let proof = (&possession, cnonce.as_slice());
        if let Err(error) = self.challenges.check_oscore((who, group), scheme, proof, Instant::now()) {
            let why = "it does not prove that it has the private key of its new credential, or the proof came too late";
            (self.events)(Event::Refused { who: Some(who), message: format!("{who} in the group {group}: {why}") });
            return Ok(explained(Code::BAD_REQUEST, error));
        }
        // A member that got no response to its request sends it again.
        if self.controller.oscore_credential(group, who).await?.as_ref() == Some(&possession.credential) {
            return Ok(Reply::new(Code::CHANGED));
        }
        if let Err(wait) = self.joins.take(group, who, None, Instant::now()) {
            return Ok(Reply::new(Code::TOO_MANY_REQUESTS).max_age(wait.saturating_add(Duration::from_secs(1))));
        }
        let rekeying = self.controller.replace_credential(group, who, &possession.credential).await?;
        self.changed(group, &rekeying, format!("{who} has another credential in the group {group}"));
        Ok(Reply::new(Code::CHANGED))
    }

    /// Answers the report of a clash. If the report has an effect, it begins an epoch, so it counts as a join of the
    /// member that reports.
    async fn end_clash(&self, who: &str, group: &str, clash: Clash) -> Result<Reply, GroupError> {
        let done = Ok(Reply::new(Code::CHANGED));
        let Some(users) = self.controller.clashing(group, who, clash).await? else { return done };
        if let Err(wait) = self.joins.take(group, who, None, Instant::now()) {
            return Ok(Reply::new(Code::TOO_MANY_REQUESTS).max_age(wait.saturating_add(Duration::from_secs(1))));
        }
        let rekeying = match self.controller.end_clash(group, who, clash).await {
            // Another member has reported the clash meanwhile.
            Err(GroupError::Outdated(_)) => {
                self.joins.give_back(group, who);
                return done;
            }
            ended => ended?,
        };
        let users = if users.is_empty() { "a controller".to_owned() } else { users.join(" and ") };
        let message = format!(
            "{who} reports two devices with the SenderID {} in the group {group}: {users} gets another SenderID by joining again; \
             use its credentials and its directory in one place only",
            clash.1
        );
        self.changed(group, &rekeying, message);
        done
    }

    fn changed(&self, group: &str, rekeying: &Rekeying, message: String) {
        let message = match &rekeying.warning {
            None => message,
            Some(warning) => format!("{message}; {warning}"),
        };
        (self.events)(Event::Rekeying { group, rekeying, message });
    }

    /// Makes the response for an error of the controller. A peer without a right in the group gets the same response for
    /// all groups.
    fn refusal(&self, who: &str, (group, rights): (&str, Rights), error: &GroupError) -> Reply {
        let may_join = rights.joins;
        let message = format!("{who} asks for the group {group}: {error}");
        (self.events)(Event::Refused { who: Some(who), message });
        match error {
            GroupError::NoMember { .. } if rights != Rights::default() => {
                explained(Code::FORBIDDEN, GroupcommError::NotAMember)
            }
            GroupError::Clashed { .. } if may_join => {
                let problem = Problem::new(
                    "Two devices used the SenderID of this member",
                    "Send a request to join again. Use the credentials of a device in one place only.",
                );
                with_problem(Code::CONFLICT, &problem).because(error.to_string())
            }
            GroupError::NoSenderId(_) | GroupError::Refused(Refused::Full | Refused::LastEpoch) => {
                let reply = explained(Code::SERVICE_UNAVAILABLE, GroupcommError::NoNodeIdentifier);
                reply.max_age(RETRY_AFTER).because(error.to_string())
            }
            GroupError::OtherCredential(_) if may_join => explained(Code::BAD_REQUEST, GroupcommError::OtherCredential),
            GroupError::OtherProtocol(_) if rights != Rights::default() => {
                let problem = Problem::new(
                    "The group has another protocol, Axiom or Group OSCORE",
                    "Join with the protocol of the group: `tegmen group join` with --group-oscore, or without it.",
                );
                with_problem(Code::BAD_REQUEST, &problem).because(error.to_string())
            }
            GroupError::NoMember { .. }
            | GroupError::NoGroup(_)
            | GroupError::Name(_)
            | GroupError::AddressTaken { .. }
            | GroupError::OtherFamily { .. } => Reply::new(Code::FORBIDDEN),
            _ => {
                let known = Some(error).filter(|_| rights != Rights::default());
                unavailable(known).max_age(RETRY_AFTER).because(error.to_string())
            }
        }
    }
}

/// Checks the Content-Format of a request, and returns its payload.
fn check_format<'a>(request: &'a Request<'_>) -> Result<&'a [u8], Code> {
    match request.message().uint(OptionNumber::CONTENT_FORMAT) == Some(GROUPCOMM_CBOR.into()) {
        true => Ok(request.payload()),
        false => Err(Code::UNSUPPORTED_CONTENT_FORMAT),
    }
}

/// Makes the response to a request to join. The peer has the leaf `leaf` of the key tree of the group `group`.
fn joined(code: Code, (group, leaf): (&str, u32), mut keys: Out) -> Reply {
    let reply = Reply::new(code).location(&format!("/{GROUPS}/{group}/nodes/{leaf}"));
    reply.uint(OptionNumber::CONTENT_FORMAT, GROUPCOMM_CBOR.into()).payload(std::mem::take(&mut *keys))
}

/// Makes a response with the reason of a refusal (RFC 9594, section 9).
fn explained(code: Code, error: GroupcommError) -> Reply {
    Reply::new(code).uint(OptionNumber::CONTENT_FORMAT, problem::CONTENT_FORMAT.into()).payload(error.encode())
}

/// Makes a response with problem details (RFC 9290).
fn with_problem(code: Code, problem: &Problem) -> Reply {
    Reply::new(code).uint(OptionNumber::CONTENT_FORMAT, problem::CONTENT_FORMAT.into()).payload(problem.to_cbor())
}

/// Makes the response to a request that only a signature verifier may send (draft-ietf-ace-key-groupcomm-oscore, section
/// 8.3.1). `encoded` is `None` if the peer is a member, or is no signature verifier.
fn for_verifiers(encoded: Option<Out>) -> Reply {
    match encoded {
        Some(encoded) => Reply::content(GROUPCOMM_CBOR, encoded.as_slice()),
        None => explained(Code::FORBIDDEN, GroupcommError::NotAVerifier),
    }
}

/// Makes the response for an error that RFC 9594 does not have, so the problem details have only a text. The response
/// does not contain a cause that is only for the operator. `error` is `None` if the peer must not learn the error.
fn unavailable(error: Option<&GroupError>) -> Reply {
    const LOG: &str = "The log of the controller has the cause.";
    let (title, detail) = match error {
        Some(GroupError::AdmittedAgain { .. }) => (
            "The device joined the group again meanwhile",
            "Send a request to join again. Use the credentials of a device in one place only.",
        ),
        Some(GroupError::NoPublicKey(_)) => {
            ("The group needs a public key", "Send a request to join with the public key of the device.")
        }
        // A retry does not help until an operator has removed the cause.
        Some(GroupError::Restored(_) | GroupError::Fault { .. }) => ("The controller cannot use the group", LOG),
        _ => (
            "The controller cannot do this now",
            "Send the request again after the time in Max-Age. The log of the controller has the cause.",
        ),
    };
    let problem = Problem::new(title, detail);
    with_problem(Code::SERVICE_UNAVAILABLE, &problem)
}

impl<S: Store> Application for GroupServer<S> {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !self.has(request.path()) {
            return Err(Code::NOT_FOUND);
        }
        let version = self.authority.version();
        let Some(who) = self.authority.client(request.identity()) else {
            return Err(self.refuse(
                None,
                Code::UNAUTHORIZED,
                "a peer that proved nothing asks for a group".to_owned(),
            ));
        };
        if request.path() == GROUPS {
            return self.find_groups(request, response, who);
        }
        let (group, asked, rights) = self.check(request, &who)?;
        let (server, responder, identity) = (self.clone(), request.defer(response), *request.identity());
        let is_notification = matches!(asked, Asked::Rekeying);
        let mut notifier = None;
        if is_notification || matches!(asked, Asked::Keys { node: None }) {
            response.observable();
            let registers = request.message().uint(OptionNumber::OBSERVE) == Some(REGISTER);
            notifier = registers.then(|| request.notifier());
        }
        // A future in a box is not copied when the runtime takes the task.
        tokio::spawn(Box::pin(async move {
            let answer = async {
                if let Some(notifier) = &notifier {
                    Box::pin(server.observers.start(&server.controller, notifier)).await?;
                }
                server.answer((&who, identity, version), (&group, rights), asked).await
            };
            responder.send(answer.await.unwrap_or_else(|error| match error {
                // RFC 9594, section 6.1.
                GroupError::NoGroup(_) if is_notification => explained(Code::NOT_FOUND, GroupcommError::GroupDeleted),
                error => server.refusal(&who, (&group, rights), &error),
            }));
        }));
        Ok(())
    }
}
