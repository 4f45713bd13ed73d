//! The servers and clients (parties) of the demonstration of `tegmen up`: an access control server, a publisher and
//! subscribers. The access control server is also the controller of a group.

use super::folder::Folder;
use crate::log::Log;
use crate::output::Failure;
use crate::public_keys::servers_of;
use crate::random;
use crate::serve::access::{Files, Role, Roles};
use crate::serve::store::{Place, Rows};
use crate::serve::{delegation, groups};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_admin::{Api, Tls, serve};
use tegmen_control::access::policy::{Explanation, OwnedParty, Question};
use tegmen_control::access::protokey::{MAX_IDENTITY, Mode, Protokey, SessionIdentity};
use tegmen_control::group::{Controller, Sending};
use tegmen_control::service::Service;
use tegmen_control::state::{Credential, NewDevice};
use tegmen_control::subscriber::Introspector;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::to_hex;
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::Resources;
use tegmen_host::server::{self, Event, Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::SoftwareKey;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// The policy of the access control server.
const POLICY: &str = include_str!("policy.toml");
/// The name that the demonstration has as an operator in the audit log.
pub(super) const OPERATOR: &str = "the tour";
/// The path to which publishers send readings, and at which a subscriber stores the last reading.
pub(super) const READING: &str = "/temp";
/// The interface at which the members send and receive the multicast of the group.
pub(super) const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Maximum number of events of a subscriber that wait until a step of the demonstration reads them. Further events are
/// dropped. After the last step nothing reads the events.
const WAITING: usize = 16;

/// The access control server that `tegmen up` starts: its service and its CoAP server.
pub(super) struct AccessControl {
    pub(super) service: Arc<Service<Rows>>,
    pub(super) server: Server,
    pub(super) policy: PathBuf,
    pub(super) audit: PathBuf,
    /// True after the last step of the demonstration. Before that, the log leaves out the events of the group, because
    /// the steps report them.
    pub(super) walked: Arc<AtomicBool>,
    role: Role,
    groups: groups::Role,
    /// The tasks of the controller of groups.
    tasks: JoinSet<()>,
}

/// The HTTPS interface for administrators, while it runs.
pub(super) struct Administration {
    pub(super) url: String,
    /// The path of the certificate of this HTTPS interface. Clients of the interface must trust the certificate.
    pub(super) ca: PathBuf,
    /// The path of the bootstrap token, which creates the first API key.
    pub(super) bootstrap: PathBuf,
    serving: tokio::task::JoinHandle<()>,
}

impl Administration {
    /// Ends the HTTPS interface for administrators.
    pub(super) async fn stop(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

impl AccessControl {
    /// Starts an access control server with new keys and the policy of the demonstration. The server has no devices
    /// yet.
    pub(super) fn start(folder: &Folder, log: &Log) -> Result<Self, Failure> {
        let sealing_key =
            folder.write("sealing.key", &Zeroizing::new(to_hex(&Zeroizing::new(random::bytes::<32>()?)[..])))?;
        let pair = rcgen::KeyPair::generate().map_err(Failure::new)?;
        let audit_key = folder.write("audit.pem", &Zeroizing::new(pair.serialize_pem()))?;
        let policy = folder.write("policy.toml", POLICY)?;
        let (store, audit) = (Place::File(folder.path("access.db")), folder.path("audit.log"));
        let files = Files {
            store: &store,
            sealing_key: &sealing_key,
            policy: Some(&policy),
            audit: &audit,
            audit_key: &audit_key,
        };
        let role = Role::open(&files, log)?;
        let group_key = rcgen::KeyPair::generate().map_err(Failure::new)?;
        let group_key = SoftwareKey::from_pem(Zeroizing::new(group_key.serialize_pem()).as_bytes());
        let sending = Sending { interface: Some(LOOPBACK.to_string()), ..Sending::default() };
        let groups = groups::Role::open(
            Words::CONTROLLER.name(),
            Some(Arc::new(group_key.map_err(Failure::new)?)),
            &role,
            sending,
        )?;
        let credentials = Credentials::default();
        let (walked, report) = (Arc::<AtomicBool>::default(), groups::event_sink(log.clone()));
        let is_over = Arc::clone(&walked);
        let events = move |event: tegmen_control::group::server::Event<'_>| {
            if is_over.load(Ordering::Relaxed) {
                report(event);
            }
        };
        let application = Roles {
            tokens: None,
            proxy: None,
            directory: None,
            device: None,
            access: Some(role.application(&credentials)),
            groups: Some(groups.application(&role, &credentials, events)),
            resources: Resources::new([]),
        };
        let server = Server::builder().listen("coaps://127.0.0.1:0").shards(1).credentials(credentials);
        let server = server.key_store(role.shared_keys()).serve(application).map_err(Failure::new)?;
        let (service, _) = role.shared();
        Ok(Self { service, server, policy, audit, walked, role, groups, tasks: JoinSet::new() })
    }

    /// Starts the tasks of the controller on the runtime.
    pub(super) fn control_groups(&mut self) {
        self.tasks = self.groups.start(&self.role);
    }

    /// Opens a server of delegated sessions. Its devices are in the store of access control.
    pub(super) async fn delegate(&self, ca: &std::path::Path) -> Result<delegation::Role, Failure> {
        delegation::Role::open(delegation::of_ca(ca, servers_of(&[], &[])?), &self.role).await
    }

    /// Returns the controller of groups.
    pub(super) fn controller(&self) -> &Controller<Rows> {
        &self.groups.controller
    }

    /// Returns the address at which the server listens.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        let at = self.server.addresses().first().map(|listen| listen.address);
        at.ok_or_else(|| Failure::new("the access control server has no address"))
    }

    /// Serves the interface for administrators with a new certificate and a new bootstrap token.
    pub(super) async fn administer(&self, folder: &Folder) -> Result<Administration, Failure> {
        let pair = rcgen::KeyPair::generate().map_err(Failure::new)?;
        let names = vec![Ipv4Addr::LOCALHOST.to_string()];
        let params = rcgen::CertificateParams::new(names).map_err(Failure::new)?;
        let certificate = params.self_signed(&pair).map_err(Failure::new)?;
        let ca = folder.write("ca.pem", &certificate.pem())?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let tls = Tls::new(vec![certificate.der().clone()], key, None).map_err(Failure::new)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Failure::io)?;
        let url = format!("https://{}", listener.local_addr().map_err(Failure::io)?);
        let bootstrap = folder.path("bootstrap");
        let (service, rows) = self.role.shared();
        let (mut api, _) = Api::open(service, rows, &bootstrap).await.map_err(Failure::new)?;
        api.groups = Some(Arc::clone(&self.groups.controller));
        let (_, tls) = watch::channel(Arc::new(tls));
        let serving = tokio::spawn(serve(listener, tls, Arc::new(api)));
        Ok(Administration { url, ca, bootstrap, serving })
    }

    /// Stops the access control server, and closes its store and its log. Returns the number of handshake flights that
    /// the server retransmitted.
    pub(super) async fn stop(mut self) -> u32 {
        self.tasks.shutdown().await;
        self.server.stop().counters.retransmitted
    }

    /// Adds a device with this kind of credential and this secret.
    async fn add(&self, party: OwnedParty, kind: Credential, secret: &[u8]) -> Result<(), Failure> {
        let device = NewDevice::secret(party, kind, secret).map_err(Failure::new)?;
        self.service.add(OPERATOR, &device).await.map(drop).map_err(Failure::new)
    }

    /// Adds a device with a new shared key, and returns the key.
    pub(super) async fn enrol(&self, words: &Words) -> Result<Zeroizing<[u8; 32]>, Failure> {
        let key = Zeroizing::new(random::bytes()?);
        self.add(words.party()?, Credential::SharedKey, &*key).await?;
        Ok(key)
    }

    /// Returns the decision of the policy in force on a request, and the reason of the decision.
    pub(super) fn explain(
        &self,
        subject: &Words,
        publisher: &Words,
        method: Code,
        path: &str,
    ) -> Result<Explanation, Failure> {
        let (subject, publisher) = (subject.party()?, publisher.party()?);
        let question = Question { subject: subject.party(), publisher: publisher.party(), method, path };
        Ok(self.service.state().view().in_force().policy.explain(&question))
    }

    /// Returns true if the server gave the key of the session `identity` to this subscriber.
    pub(super) fn gave_key(&self, identity: &str, subscriber: &str) -> bool {
        let view = self.service.state().view();
        !view.sessions(|known, of| known.as_str() == identity && of == subscriber).is_empty()
    }
}

/// The words by which rules and commands identify a party: its name, then its tags.
pub(super) struct Words(pub(super) &'static [&'static str]);

impl Words {
    pub(super) const OVEN: Self = Self(&["oven", "tag:kitchen"]);
    pub(super) const DISPLAY: Self = Self(&["display", "tag:display"]);
    pub(super) const PANEL: Self = Self(&["panel", "tag:display"]);
    /// The publisher that represents the controller of groups.
    pub(super) const CONTROLLER: Self = Self(&["controller"]);

    pub(super) fn party(&self) -> Result<OwnedParty, Failure> {
        OwnedParty::from_words(self.0.iter().copied()).map_err(Failure::new)
    }

    pub(super) fn name(&self) -> &'static str {
        self.0.first().copied().unwrap_or_default()
    }
}

/// A publisher whose only secret is its protokey. It derives the key of each session from the protokey.
pub(super) struct Oven {
    protokey: Zeroizing<[u8; 32]>,
}

impl Oven {
    /// Draws a protokey, and registers it with the access control server.
    pub(super) async fn enrol(access: &AccessControl) -> Result<Self, Failure> {
        let protokey = Zeroizing::new(random::bytes()?);
        access.add(Words::OVEN.party()?, Credential::Protokey(Mode::Bound), &*protokey).await?;
        Ok(Self { protokey })
    }

    /// Draws the identity of a session with a subscriber, and derives the key of this session. Returns the identity and
    /// the key.
    pub(super) fn session_key(&self, subscriber: &str) -> Result<(String, Zeroizing<Vec<u8>>), Failure> {
        let mut buffer = [0; MAX_IDENTITY];
        let identity = SessionIdentity::write(Words::OVEN.name(), &random::bytes()?, &mut buffer);
        let identity = identity.ok_or_else(|| Failure::new("no session identity"))?;
        let protokey = Protokey::new(&*self.protokey).ok_or_else(|| Failure::new("no protokey"))?;
        let key = protokey.session_key::<HostCrypto>(Mode::Bound, identity, subscriber);
        let key = Zeroizing::new(key.expose().to_vec());
        Ok((identity.as_str().to_owned(), key))
    }
}

/// Opens a session of the oven, which is the publisher. The session does not reconnect when it ends, because each
/// session needs a new identity.
pub(super) async fn connect(at: SocketAddr, identity: &str, key: &[u8]) -> Result<Session, ClientError> {
    Session::connect_to(at, Scheme::Coaps, once(identity, key)).await
}

/// Returns the settings of one session of the oven, which is the publisher. The session does not reconnect.
fn once(identity: &str, key: &[u8]) -> ClientConfig {
    ClientConfig::psk(identity, key).with(|config| config.recovery.reconnect = false)
}

/// A subscriber: it receives the readings of publishers, and asks the access control server for the key of each
/// session.
pub(super) struct Subscriber {
    pub(super) address: SocketAddr,
    reading: Arc<Mutex<Option<String>>>,
    access: Session,
    server: Arc<Server>,
    /// Receives each session that ended because its key was revoked.
    pub(super) revoked: mpsc::Receiver<server::Session>,
    /// Receives the session identity of each failed handshake, and the reason of the failure.
    failed: mpsc::Receiver<(String, String)>,
    following: tokio::task::JoinHandle<()>,
}

impl Subscriber {
    /// Registers a subscriber with a new shared key, and starts it. Clients in `credentials` have rights at the
    /// subscriber.
    pub(super) async fn start(
        words: &Words,
        access: &AccessControl,
        credentials: Credentials,
        events: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let (key, at) = (access.enrol(words).await?, access.address()?);
        let session = Session::connect_to(at, Scheme::Coaps, ClientConfig::psk(words.name(), &key[..])).await;
        let session = session.map_err(Failure::new)?;
        let reading = Arc::<Mutex<Option<String>>>::default();
        let (written, read) = (Arc::clone(&reading), Arc::clone(&reading));
        let router = Router::new()
            .put(READING, move |request, response| {
                let text = String::from_utf8(request.payload().to_vec()).map_err(|_| Code::BAD_REQUEST)?;
                *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                response.set_code(Code::CHANGED);
                Ok(())
            })
            .get(READING, move |_, response| {
                let text = read.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Code::NOT_FOUND)?;
                response.payload(text.as_bytes())
            });
        let allow = vec![format!("PUT {READING}")];
        let keys = Introspector::new(session.clone(), tokio::runtime::Handle::current(), allow);
        let mut config = ServerConfig::default();
        // A session is never resumed, so each has a key that the access control server gave for it.
        config.resumption = None;
        let server = Server::with(config).listen("coaps://127.0.0.1:0").shards(1);
        let server = server.credentials(credentials).key_store(keys.clone());
        let (fails, failed) = mpsc::channel(WAITING);
        let events = move |event| {
            let failure = match &event {
                Event::Failed { identity: Some(identity), reason, .. } => Some((identity.clone(), reason.to_string())),
                _ => None,
            };
            events(event);
            let _ = failure.map(|failure| fails.try_send(failure));
        };
        let server = Arc::new(server.on_event(events).serve(router).map_err(Failure::new)?);
        let address = server.addresses().first().map_or(at, |listen| listen.address);
        let (ended, revoked) = mpsc::channel(WAITING);
        let of = Arc::clone(&server);
        let following = tokio::spawn(async move {
            loop {
                // If the access control server ends the observation, it begins again.
                let _ = keys.end_revoked(&of, |session| drop(ended.try_send(session.clone()))).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        Ok(Self { address, reading, access: session, server, revoked, failed, following })
    }

    /// Tries to open a session of the oven (the publisher) with this subscriber. The subscriber must refuse the
    /// session. Returns the reason of the refusal, from the client or from the server, whichever reports it first.
    ///
    /// # Errors
    /// A text, if the subscriber accepts the session, or if the handshake fails for another reason.
    pub(super) async fn refuses(&mut self, identity: &str, key: &[u8]) -> Result<String, &'static str> {
        // A server takes a key for a wrong one when its client sends the last flight once more.
        let config = once(identity, key).with(|config| config.dtls.retransmit_first = Duration::from_millis(100));
        let connecting = Session::connect_to(self.address, Scheme::Coaps, config);
        let failure = async {
            while let Some((of, reason)) = self.failed.recv().await {
                if of == identity {
                    return reason;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            reason = failure => Ok(reason),
            connected = connecting => match connected {
                Err(error @ ClientError::IdentityOrKey { .. }) => Ok(error.to_string()),
                Err(_) => Err("the handshake fails for another reason"),
                Ok(_) => Err("the session begins"),
            },
        }
    }

    /// Returns the last reading that arrived.
    pub(super) fn reading(&self) -> Option<String> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the server of the subscriber. Returns the number of handshake flights that this server and the session
    /// with the access control server retransmitted.
    pub(super) async fn stop(self) -> u32 {
        self.following.abort();
        let _ = self.following.await;
        let asked = self.access.counters().retransmitted;
        self.access.close();
        let totals = match Arc::try_unwrap(self.server) {
            Ok(server) => server.stop(),
            Err(server) => server.totals(),
        };
        asked.saturating_add(totals.counters.retransmitted)
    }
}
