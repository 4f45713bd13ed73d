//! The steps of `tegmen up` with delegated sessions. A delegation server opens a session in the name of a device, the
//! meter, which has no certificate. The peer of this session, the reader, then resumes the session at the meter.

use super::folder::Folder;
use super::parties::{AccessControl, OPERATOR};
use super::step::{Step, unproved};
use crate::ca;
use crate::output::{Failure, Output};
use crate::public_keys::{certificates, servers_of, signer};
use crate::serve::delegation::Role;
use crate::serve::device_keys::SUITES;
use crate::serve::store::Rows;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen::dtls::ClientAuthentication;
use tegmen_control::delegated::{DelegatedDevice, DeviceSettings, Scopes};
use tegmen_control::delegation::{ConnectionId, Delegations, DeviceConfig};
use tegmen_delegation::DeviceKey;
use tegmen_host::client::{ClientConfig, ClientError, ResumableSession, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{PublicKeys, SUITES as ALL_SUITES};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Listen, Request, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tokio::task::JoinSet;

/// The name of the delegated device (the meter). The ClientHello of a peer contains this name.
const METER: &str = "meter.example";
/// The common name in the certificate of the peer that requests the value of the delegated device.
const READER: &str = "reader";
/// The rule in the only scope of the delegated device.
const SCOPE: &str = "GET /energy";
const PATH: &str = "/energy";
const VALUE: &str = "1027 Wh";
/// Maximum duration of each wait for a result.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two checks during a wait.
const LOOK: Duration = Duration::from_millis(10);
/// The lifetime of the certificates that the demonstration makes: of the CA, and of the peers that the CA certifies.
const VALID: Duration = Duration::from_secs(60 * 86_400);

/// The servers of these steps: the delegation server, and the server of the delegated device.
pub(super) struct Delegated {
    server: Server,
    device: Server,
    /// The path of the directory of the CA. The directory also contains the certificate of the reader, which is the
    /// peer that resumes sessions at the device.
    ca: PathBuf,
    /// The tasks of the delegation server and of the device.
    tasks: JoinSet<()>,
}

/// The application of the device. It answers the requests of the delegation server, and has the resources for peers.
#[derive(Clone)]
struct Meter {
    device: DelegatedDevice,
    resources: Resources,
}

impl Application for Meter {
    fn handle(&mut self, request: &Request<'_>, response: &mut tegmen::coap::Response<'_, '_>) -> Result<(), Code> {
        match self.device.has(request.path()) {
            true => self.device.handle(request, response),
            false => self.resources.handle(request, response),
        }
    }
}

/// Returns the settings of a server with one thread at a free port, after `change` has changed them.
fn at_free_port(change: impl FnOnce(&mut ServerConfig)) -> ServerConfig {
    ServerConfig::default().with(|config| {
        config.listen = vec![Listen { address: SocketAddr::from(([127, 0, 0, 1], 0)), scheme: Scheme::Coaps }];
        config.shards = 1;
        config.log.report_requests = false;
        change(config);
    })
}

fn address(server: &Server) -> Result<SocketAddr, Failure> {
    let at = server.addresses().first().map(|listen| listen.address);
    at.ok_or_else(|| Failure::new("a server of the tour has no address"))
}

impl Delegated {
    /// Runs the steps of `tegmen up` that show delegated sessions. The first of these steps has the number `first`.
    /// Returns the delegation server and the device, which continue to run.
    ///
    /// # Errors
    /// The error of the first step with an unexpected result.
    pub(super) async fn walk(
        access: &AccessControl,
        folder: &Folder,
        out: Output,
        first: usize,
    ) -> Result<Self, Failure> {
        let ca = folder.path("ca");
        ca::init(&ca, "The tour", VALID)?;
        ca::issue_for_device(&ca, READER, VALID)?;
        let role = access.delegate(&ca).await?;
        let (parties, device) = Self::imprint(role.server.as_ref(), &role, ca, folder).await?;
        let mut story = Story { out, delegations: &role.server, parties: &parties, device, number: first };
        story.imprinted().await?;
        let (session, resumable) = story.resumed().await?;
        story.revoked(session, resumable).await?;
        drop(story);
        Ok(parties)
    }

    /// Imprints the device. Then starts the device and the delegation server.
    async fn imprint(
        delegations: &Delegations<Rows>,
        role: &Role,
        ca: PathBuf,
        folder: &Folder,
    ) -> Result<(Self, DelegatedDevice), Failure> {
        let verifier = servers_of(&[ca.join("ca.pem")], &[])?;
        let config = at_free_port(|config| {
            config.delegate = Some(Arc::clone(&role.server) as _);
            let keys = PublicKeys::new(ALL_SUITES).believing(verifier).asking(ClientAuthentication::Required);
            config.trust.public_keys = Some(keys);
        });
        let server = Server::with(config).on_event(|_| {}).serve(Resources::new([])).map_err(Failure::new)?;
        // The device needs its address before it has its key, and the server its key before it speaks with the device.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(Failure::io)?;
        let config = DeviceConfig {
            tags: vec!["meter".to_owned()],
            address: socket.local_addr().map_err(Failure::io)?,
            scopes: vec![vec![SCOPE.to_owned()]],
            places: 16,
            lifetime: 86_400,
        };
        let address = config.address;
        let key = delegations.imprint(METER, config, OPERATOR).await.map_err(Failure::new)?;
        let settings = DeviceSettings {
            name: METER.to_owned(),
            key: Some(DeviceKey(key)),
            state: folder.path("meter.state"),
            scopes: Scopes::parse(&[SCOPE.to_owned()]).map_err(Failure::new)?,
        };
        let credentials = Credentials::default();
        let device = DelegatedDevice::open(settings, credentials.clone()).map_err(Failure::new)?;
        let config = at_free_port(|config| {
            config.listen = vec![Listen { address, scheme: Scheme::Coaps }];
            device.configure(config);
        });
        let resources = Resources::new([(PATH.trim_matches('/').to_owned(), Resource::value(VALUE.as_bytes()))]);
        let meter = Meter { device: device.clone(), resources };
        let builder = Server::with(config).credentials(credentials).policy(device.policy(false));
        let of_device = builder.inherit([socket]).on_event(|_| {}).serve(meter.clone()).map_err(Failure::new)?;
        let mut tasks = role.start();
        let (sessions, running) = (of_device.session_list(), device.clone());
        tasks.spawn(async move { running.run(sessions, meter).await });
        Ok((Self { server, device: of_device, ca, tasks }, device))
    }

    /// Returns two commands of OpenSSL. The first opens a session with the delegation server, and the second resumes
    /// the session at the device.
    pub(super) fn commands(&self, folder: &Folder) -> Result<[String; 2], Failure> {
        let (certificate, key) = ca::device_files(&self.ca, READER);
        let session = folder.path("reader.session");
        let (ca, session) = (self.ca.join("ca.pem"), session.display());
        let client = |at: SocketAddr, more: &str| {
            let (ca, certificate, key) = (ca.display(), certificate.display(), key.display());
            format!(
                "openssl s_client -dtls1_2 -cipher ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0 -CAfile {ca} -verify_return_error \
                 -servername {METER} -verify_hostname {METER} -cert {certificate} -key {key} -connect {at} {more} {session}"
            )
        };
        Ok([client(address(&self.server)?, "-sess_out"), client(address(&self.device)?, "-sess_in")])
    }

    /// Stops the delegation server and the device. Returns the number of handshake flights that both retransmitted.
    pub(super) async fn stop(self) -> u32 {
        let Self { server, device, mut tasks, .. } = self;
        tasks.shutdown().await;
        server.stop().counters.retransmitted + device.stop().counters.retransmitted
    }
}

/// The state that the steps share.
struct Story<'a> {
    out: Output,
    delegations: &'a Arc<Delegations<Rows>>,
    parties: &'a Delegated,
    device: DelegatedDevice,
    /// The number of the next step.
    number: usize,
}

impl Story<'_> {
    fn print(&mut self, step: Step) {
        step.print(self.out, self.number);
        self.number += 1;
    }

    /// Runs the step in which the delegation server begins the first epoch with the device.
    async fn imprinted(&mut self) -> Result<(), Failure> {
        let reached = async || {
            let report = self.delegations.show(METER).map_err(Failure::new)?;
            let told = report.contact.status.filter(|status| status.epoch == report.epoch && report.epoch == 1);
            Ok::<_, Failure>(told.filter(|status| *status == self.device.status()).map(|status| status.epoch))
        };
        let epoch = wait("imprinted", "the server does not reach the device", reached).await?;
        let error = match self.authenticate(address(&self.parties.device)?).await {
            Err(error @ ClientError::Handshake { .. }) => error.to_string(),
            Err(error) => return Err(unproved("imprinted", &error)),
            Ok(_) => return Err(unproved("imprinted", &"the meter opens a session with certificates")),
        };
        let step = Step {
            name: "imprinted",
            title: "The operator imprints a meter, and its delegation server begins an epoch with it.",
            facts: vec![
                format!("Both derive the keys of epoch {epoch} from a session between them."),
                format!("A reader without a ticket gets no session with the meter: {error}."),
            ],
            proved: "a device and its delegation server have the same keys, and the device does no handshake with certificates",
            more: json!({ "device": METER, "epoch": epoch, "error": error }),
        };
        self.print(step);
        Ok(())
    }

    /// Runs the step in which a peer opens a session with the delegation server, and resumes this session at the
    /// device.
    async fn resumed(&mut self) -> Result<(Session, Arc<ResumableSession>), Failure> {
        let failed = |why: &dyn std::fmt::Display| unproved("resumed", &why);
        let at = address(&self.parties.server)?;
        // The server has no number for a connection before the epoch is settled.
        let opened = async || {
            let session = self.authenticate(at).await.map_err(|error| failed(&error))?;
            let resumable = session.take_resumable().filter(|resumable| resumable.is_ticket);
            session.close();
            Ok::<_, Failure>(resumable.map(|resumable| (session.server(), session.handshake_time(), resumable)))
        };
        let (name, authenticated, resumable) = wait("resumed", "the server gives no ticket", opened).await?;
        let name = name.filter(|name| *name == format!("CN={METER}"));
        let name = name.ok_or_else(|| failed(&"the server showed another certificate"))?;
        let (bytes, resumable) = (resumable.handle.len(), Arc::new(resumable));
        let session = self.resume(&resumable).await.map_err(|error| failed(&error))?;
        let response = session.get(PATH).await.map_err(|error| failed(&error))?;
        let denied = session.put(PATH, b"0").await.map_err(|error| failed(&error))?;
        if !session.is_resumed() || response.payload != VALUE.as_bytes() || denied.code != Code::FORBIDDEN {
            return Err(failed(&format!("the responses {} and {}", response.code, denied.code)));
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (authenticated, resumed) = (ms(authenticated), ms(session.handshake_time()));
        let step = Step {
            name: "resumed",
            title: "A reader opens a session with the delegation server in the name of the meter, and resumes it at the meter.",
            facts: vec![
                format!("The server shows the certificate {name}: {authenticated:.1} ms with certificates of both."),
                format!("The meter opens the ticket of {bytes} bytes: {resumed:.1} ms."),
                format!(
                    "GET {PATH} by the reader: {}, {VALUE}. PUT: {}, the scope is '{SCOPE}'.",
                    response.code, denied.code
                ),
            ],
            proved: "a peer with a certificate has a session with a device that has none, and the rights that the policy gives it",
            more: json!({ "device": METER, "peer": format!("CN={READER}"), "ticket": bytes, "reading": VALUE,
                          "denied": denied.code.to_string(), "ms": authenticated, "resumed_ms": resumed }),
        };
        self.print(step);
        Ok((session, resumable))
    }

    /// Runs the step in which the operator revokes the connection.
    async fn revoked(&mut self, session: Session, resumable: Arc<ResumableSession>) -> Result<(), Failure> {
        let failed = |why: &dyn std::fmt::Display| unproved("revoked-ticket", &why);
        let id = self.connection().await?;
        let began = Instant::now();
        self.delegations.revoke(METER, id, OPERATOR).await.map_err(Failure::new)?;
        let ended = async || Ok::<_, Failure>((!session.is_open()).then_some(()));
        wait("revoked-ticket", "the meter does not end the session", ended).await?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let error = match self.resume(&resumable).await {
            Err(error @ ClientError::Handshake { .. }) => error,
            Err(error) => return Err(failed(&error)),
            Ok(_) => return Err(failed(&"the meter resumes the session")),
        };
        let step = Step {
            name: "revoked-ticket",
            title: "The operator revokes the connection, and the reader shows its ticket to the meter again.",
            facts: vec![
                format!("The meter learns it and ends the session {id} after {ms:.1} ms."),
                format!("It refuses the ticket: {error}."),
            ],
            proved: "a device ends a session that was revoked, and refuses its ticket",
            more: json!({ "device": METER, "connection": id.to_string(), "ms": ms, "error": error.to_string() }),
        };
        self.print(step);
        Ok(())
    }

    /// Returns the connection of the reader (the peer): the last connection that the delegation server lists for the
    /// meter (the device).
    async fn connection(&self) -> Result<ConnectionId, Failure> {
        let listed = async || {
            let page = self.delegations.connections(METER, None, 10).await.map_err(Failure::new)?;
            Ok::<_, Failure>(page.connections.last().map(|connection| connection.id))
        };
        wait("revoked-ticket", "the server lists no connection", listed).await
    }

    /// Opens a session of the reader (the peer) with the delegation server at the address `at`. The reader
    /// authenticates itself with its certificate, and its ClientHello names the meter (the device) as the server.
    async fn authenticate(&self, at: SocketAddr) -> Result<Session, ClientError> {
        let keys = self.keys().map_err(|failure| ClientError::System(std::io::Error::other(failure.message)))?;
        let config = ClientConfig::default().with(|config| {
            config.dtls.suites = SUITES;
            config.trust.public_keys = Some(keys);
            config.state.hand_over = true;
            config.recovery.reconnect = false;
        });
        Session::connect_to(at, Scheme::Coaps, config).await
    }

    fn keys(&self) -> Result<PublicKeys, Failure> {
        let (certificate, key) = ca::device_files(&self.parties.ca, READER);
        let keys = PublicKeys::new(SUITES).with_chain(&certificates(&certificate)?, signer(&key)?);
        let verifier = servers_of(&[self.parties.ca.join("ca.pem")], &[])?;
        Ok(keys.map_err(Failure::new)?.believing(verifier).expecting(METER))
    }

    /// Lets the reader (the peer) resume its session at the meter (the delegated device). For the resumption the reader
    /// uses neither its certificate nor the key of the certificate.
    async fn resume(&self, resumable: &Arc<ResumableSession>) -> Result<Session, ClientError> {
        let config = ClientConfig::default().with(|config| {
            config.dtls.suites = SUITES;
            config.state.handed_over = Some(Arc::clone(resumable));
            config.recovery.reconnect = false;
        });
        let at = address(&self.parties.device);
        let at = at.map_err(|failure| ClientError::System(std::io::Error::other(failure.message)))?;
        Session::connect_to(at, Scheme::Coaps, config).await
    }
}

/// Calls a function again and again until it returns a value, or until [`PATIENCE`] is over.
async fn wait<T>(
    step: &str,
    missing: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(unproved(step, &missing));
        }
        tokio::time::sleep(LOOK).await;
    }
}
