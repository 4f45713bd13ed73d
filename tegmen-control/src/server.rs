//! An access control server over CoAP: an [`Application`] for a server of [`tegmen_host`].
//!
//! ```text
//! POST /introspect   application/ace+cbor (19): is this token valid, and what is its key? (RFC 9200, section 5.9)
//! POST /token        application/ace+cbor (19): an access token for a publisher (RFC 9200, section 5.8)
//! POST /enrol        application/cbor (60): a device registers its credential by a one-time key ([`enrolment`])
//! GET  /revoke/trl   application/ace-trl+cbor (262): the revoked tokens; Observe, ?diff=N&cursor=M (RFC 9770)
//! ```
//!
//! A peer is recognized as a device by its certificate or raw public key, or by the key of the session if the device
//! shares this key with the server ([`SharedKeys`]). If a request changes the state, the response is sent when the
//! change is durable. The rate of each peer is limited by
//! [`ServerCoap::requests_per_second`](tegmen_host::server::ServerCoap::requests_per_second).

use crate::access::ace::trl::Query;
use crate::access::ace::{ACE_CBOR, ACE_TRL_CBOR};
use crate::access::enrolment::{self, CBOR, ENROL};
use crate::access::introspection::Reply;
use crate::access::revocation::{Requester, list_key};
use crate::audit::Then;
use crate::service::{Asker, Path, Service};
use crate::state::{Credential, Device, Event, View};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen::dtls::CertificateType;
use tegmen::identity::{Identity, Protection};
use tegmen_host::credentials::{Credentials, KeyStore, KeyTicket, StoredKey};
use tegmen_host::digest::sha256;
use tegmen_host::group::groupcomm::GROUPS;
use tegmen_host::problem;
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Application, Notifier, Prepared, Request};
use tegmen_host::x509::{self, AllowedKey, PeerVerifier, Refusal, Verified};
use tegmen_store::Store;
use zeroize::Zeroizing;

/// The path of introspection, without the first slash.
pub const INTROSPECT: &str = "introspect";
/// The path for requests of tokens, without the first slash.
pub const TOKEN: &str = "token";
/// The path of the revocation list, without the first slash.
pub const REVOKED: &str = "revoke/trl";

/// The notifications of the devices that observe the revocation list. A device is notified when the part of the list
/// that concerns this device changes. Make this value before the state, and pass the events of the state to
/// [`Self::take`]. Then pass the value to the [`AccessServer`].
#[derive(Clone, Default)]
pub struct Revocations(Arc<Mutex<Option<Observed>>>);

struct Observed {
    notifier: Notifier,
    name: Arc<NameOf>,
}

/// A function that returns the name of the device to which an identity belongs; `None` if it belongs to no device.
type NameOf = dyn Fn(&Identity) -> Option<String> + Send + Sync;

impl Revocations {
    /// Handles an event of the state: if the revocation list has changed, notifies the devices that observe it.
    pub fn take(&self, event: &Event<'_>) {
        let observed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Event::Revocations(concerned), Some(Observed { notifier, name })) = (event, &*observed) {
            let (concerned, name) = (BTreeSet::clone(concerned), Arc::clone(name));
            let is_concerned = move |identity: &Identity| name(identity).is_some_and(|name| concerned.contains(&name));
            notifier.changed_for(REVOKED, is_concerned);
        }
    }
}

/// The access control server, as an [`Application`]. Its clones share one state.
pub struct AccessServer<S> {
    service: Arc<Service<S>>,
    credentials: Credentials,
    revocations: Revocations,
}

impl<S> Clone for AccessServer<S> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            credentials: self.credentials.clone(),
            revocations: self.revocations.clone(),
        }
    }
}

impl<S: Store> AccessServer<S> {
    /// Makes the application. `service` makes the decisions, `credentials` are the credentials of the CoAP server that
    /// calls the application, and `revocations` notifies the devices that observe the revocation list.
    pub const fn new(service: Arc<Service<S>>, credentials: Credentials, revocations: Revocations) -> Self {
        Self { service, credentials, revocations }
    }

    /// Stores the notifier of a request for the revocation list, unless a notifier is stored already. Before the first
    /// request for the list, no device observes the list, so no notifier is necessary.
    fn learn(&self, request: &Request<'_>) {
        let mut observed = self.revocations.0.lock().unwrap_or_else(PoisonError::into_inner);
        observed.get_or_insert_with(|| {
            // The state of the service holds the observers, so they do not hold the service.
            let (service, credentials) = (Arc::downgrade(&self.service), self.credentials.clone());
            let name = move |identity: &Identity| {
                sender(&*service.upgrade()?, &credentials, identity, |device| device.name().to_owned())
            };
            Observed { notifier: request.notifier(), name: Arc::new(name) }
        });
    }

    /// Returns the name of the device that sent a request, if the device is enabled.
    fn device(&self, identity: &Identity) -> Option<String> {
        enabled_in(&self.service.state().view(), &self.credentials, identity)
    }

    /// Returns true if the sender of a request is a device of this server. Such a sender may use only the paths of this
    /// server.
    pub fn knows(&self, identity: &Identity) -> bool {
        sender(&self.service, &self.credentials, identity, |_| ()).is_some()
    }

    /// Returns true if the server has this path. The path begins without a slash.
    pub fn has(&self, path: &str) -> bool {
        matches!(path, INTROSPECT | TOKEN | REVOKED | ENROL)
    }

    /// Answers a request for a token or an introspection. Defers the response until the decision is durable.
    fn ask(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let service = &self.service;
        if request.message().uint(OptionNumber::CONTENT_FORMAT) != Some(ACE_CBOR.into()) {
            let device = self.device(request.identity());
            service.refuse(device.as_deref(), "other-content-format", "a request that is not application/ace+cbor");
            return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
        }
        let path = if request.path() == TOKEN { Path::Token } else { Path::Introspect };
        let who = |view: &View| enabled_in(view, &self.credentials, request.identity());
        service.answer_then(path, who, request.payload(), Peer { request, response });
        Ok(())
    }

    /// Answers a request to enrol. Defers the response until the device is registered durably.
    fn enrol(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let service = Arc::clone(&self.service);
        let Some(name) = enrolling(&self.credentials, request.identity()) else {
            service.refuse(None, "not-authenticated", "an enrolment, in a session without a one-time key");
            return Err(Code::UNAUTHORIZED);
        };
        if request.message().uint(OptionNumber::CONTENT_FORMAT) != Some(CBOR.into()) {
            service.refuse(Some(&name), "other-content-format", "an enrolment that is not application/cbor");
            return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
        }
        let payload = Zeroizing::new(request.payload().to_vec());
        let responder = request.defer(response);
        tokio::spawn(async move { responder.send(service.enrol(&name, &payload).await.into()) });
        Ok(())
    }

    fn revoked(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let Some(device) = self.device(request.identity()) else {
            self.service.refuse(None, "not-authenticated", "the revocation list, for a peer that is no device");
            return Err(Code::UNAUTHORIZED);
        };
        self.learn(request);
        let query = Query::parse(request.message().values(OptionNumber::URI_QUERY));
        let requester = Requester::Device(&device);
        match query.and_then(|query| self.service.state().view().revocations(requester, query)) {
            Ok(answer) => {
                response.observable();
                response.uint(OptionNumber::CONTENT_FORMAT, ACE_TRL_CBOR.into())?;
                response.payload(&answer.encode())
            }
            Err(error) => {
                self.service.refuse(Some(&device), "bad-query", "the revocation list, with a query that is not valid");
                response.set_code(Code::BAD_REQUEST);
                response.uint(OptionNumber::CONTENT_FORMAT, problem::CONTENT_FORMAT.into())?;
                response.payload(&error.encode())
            }
        }
    }
}

impl<S: Store> Application for AccessServer<S> {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        match (request.path(), request.method()) {
            (INTROSPECT | TOKEN, Code::POST) => self.ask(request, response),
            (ENROL, Code::POST) => self.enrol(request, response),
            (REVOKED, Code::GET) => self.revoked(request, response),
            (INTROSPECT | TOKEN | REVOKED | ENROL, _) => Err(Code::METHOD_NOT_ALLOWED),
            _ => Err(Code::NOT_FOUND),
        }
    }

    fn every_second(&mut self, _: &Notifier) {
        let service = Arc::clone(&self.service);
        // If the store is not available, the tokens stay on the list until the next second.
        tokio::spawn(async move { service.expire().await });
    }
}

/// The sender of a request over CoAP.
struct Peer<'r, 'o, 'f> {
    request: &'r Request<'r>,
    response: &'r mut Response<'o, 'f>,
}

impl Asker for Peer<'_, '_, '_> {
    fn later(self) -> impl FnOnce(Reply) + Send + 'static {
        let responder = self.request.defer(self.response);
        move |reply| responder.send(reply.into())
    }

    fn prepare(self, reply: Reply, prepared: &mut Prepared) -> Option<Then> {
        self.request.prepare(self.response, reply.into(), prepared);
        None
    }
}

/// Returns the result of `take` for the device that sent a request, even if the device is disabled. Returns `None` for
/// a peer that proved no identity, or that is no device.
pub(crate) fn sender<S: Store, T>(
    service: &Service<S>,
    credentials: &Credentials,
    identity: &Identity,
    take: impl FnOnce(&Device) -> T,
) -> Option<T> {
    sender_in(&service.state().view(), credentials, identity).map(take)
}

/// Returns the device that sent a request, as [`sender`] does. `view` has the devices.
pub(crate) fn sender_in<'v>(view: &'v View, credentials: &Credentials, identity: &Identity) -> Option<&'v Device> {
    if identity.protection == Protection::Plain {
        return None;
    }
    // A session of an earlier key of the device, or of an earlier device of this name, gives no right.
    match credentials.stored_as(identity.principal, |name, digest| view.with_session_key(name, digest)) {
        Some(device) => device,
        None => {
            let (kind, digest) = credentials.certified(identity.principal)?;
            view.with_digest(&digest).filter(|device| match device.credential {
                Credential::Certificate(_) => kind == CertificateType::X509,
                Credential::PublicKey(_) => kind == CertificateType::RAW_PUBLIC_KEY,
                Credential::SharedKey | Credential::Protokey(_) | Credential::Oscore | Credential::Edhoc => false,
            })
        }
    }
}

/// Returns the name of the device that sent a request, if the device is enabled. `view` has the devices.
fn enabled_in(view: &View, credentials: &Credentials, identity: &Identity) -> Option<String> {
    let device = sender_in(view, credentials, identity)?;
    (!device.disabled).then(|| device.name().to_owned())
}

/// Returns the name of the device that enrols in the session of this identity; `None` if the session has another
/// purpose.
fn enrolling(credentials: &Credentials, identity: &Identity) -> Option<String> {
    if identity.protection == Protection::Plain {
        return None;
    }
    let proved = credentials.name_of(identity.principal)?;
    let is_stored = credentials.stored(&proved) == Some(identity.principal);
    enrolment::name_of(&proved).filter(|_| is_stored).map(str::to_owned)
}

/// The pre-shared keys for sessions with the access control server: the keys that devices share with the access control
/// server, the keys with which devices enrol, and the keys with which resource servers read the revocation list.
pub struct SharedKeys<S>(pub Arc<Service<S>>);

impl<S: Store> KeyStore for SharedKeys<S> {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let (view, now) = (self.0.state().view(), self.0.seconds());
        let of_list = view.token_key(identity).map(|key| list_key::<HostCrypto>(&key).expose().to_vec().into());
        let (key, allow) = if let Some(key) = view.shared_key(identity) {
            // The rules of the most frequent requests come first.
            let resources = format!("{GROUPS}/*");
            let own =
                [("POST", INTROSPECT), ("*", resources.as_str()), ("POST", TOKEN), ("GET", REVOKED), ("*", GROUPS)];
            (Some(key), own.map(|(method, path)| format!("{method} /{path}")).into())
        } else if of_list.is_some() {
            (of_list, vec![format!("GET /{REVOKED}")])
        } else {
            let key = enrolment::name_of(identity).and_then(|name| view.enrolment_key(name, now));
            (key, vec![format!("POST /{ENROL}")])
        };
        drop(view);
        ticket.answer(key.map(|key| StoredKey { name: None, key, previous: None, allow: Some(allow) }));
    }
}

/// Accepts the raw public keys of devices that are enabled.
pub struct DeviceKeys<S>(pub Arc<Service<S>>);

impl<S: Store> PeerVerifier for DeviceKeys<S> {
    fn takes_raw_keys(&self) -> bool {
        true
    }

    fn verify_raw<'c>(&self, spki: &'c [u8]) -> Result<Verified<'c>, Refusal> {
        let digest = sha256(spki);
        let view = self.0.state().view();
        let device = view
            .with_digest(&digest)
            .filter(|device| !device.disabled && matches!(device.credential, Credential::PublicKey(_)));
        let allowed: Vec<_> =
            device.map(|device| AllowedKey { digest, name: device.name().to_owned() }).into_iter().collect();
        x509::verify_raw(spki, &allowed)
    }
}
