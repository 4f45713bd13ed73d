//! The server for the measurements of introspections and joins. It is an access control server on 127.0.0.1 and the
//! controller of groups. It also answers a GET with a value.

use crate::{addresses::KEY_TEXT, failure::failure, load::VALUE, scene::Scene, server::Process};
use std::{
    env,
    net::Ipv6Addr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tegmen::coap::{Code, Response};
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_control::{
    access::policy::OwnedParty,
    group::{
        Controller, GroupConfig,
        server::{ByPolicy, Event, GroupServer},
    },
    server::{AccessServer, Revocations, SharedKeys},
    service::Service,
    state::{Credential, NewDevice},
};
use tegmen_host::{
    credentials::{Credentials, KeyStore, KeyTicket},
    resources::{Resource, Resources},
    server::{Application, Notifier, Request, Server, ServerConfig, Severity},
};
use tegmen_store::Database;

pub(crate) const VERB: &str = "access-server";
/// The number of peers. Each peer has a DTLS session with the server.
pub(crate) const PEERS: u32 = 10_000;
/// The path of the value that a GET requests. It begins without a slash.
pub(crate) const VALUE_PATH: &str = "value";
/// The SHA-256 of the certificate of the publisher `lamp`.
pub(crate) const THUMBPRINT: [u8; 32] = [9; 32];
/// Maximum number of bytes for stored replies. The server stores each reply for EXCHANGE_LIFETIME (247 s; RFC 7252,
/// section 4.8.2), so all replies of a run must fit into this number of bytes. The server's default limit is enough for
/// the replies to about two million introspections. A run makes more than two million introspections within
/// EXCHANGE_LIFETIME.
const MAX_EXCHANGE_BYTES: usize = 4 << 30;
/// The last epoch that a group can reach. A join begins a new epoch. If several joins wait for the same commit of the
/// database, they share one epoch.
const EPOCHS: u16 = 2_000;

/// Starts the server with this number of groups, which have no members yet.
pub(crate) fn start(scene: &Path, groups: usize) -> Result<Process, Failure> {
    let directory = scene.join(VERB).to_string_lossy().into_owned();
    let exe = env::current_exe().map_err(failure)?.to_string_lossy().into_owned();
    let words = |port: u16| Some(vec![exe, VERB.to_owned(), directory, port.to_string(), groups.to_string()]);
    Process::start_with(words, Stdio::inherit())
}

/// Returns the name of the device with this number, which must be below [`PEERS`].
pub(crate) fn peer(number: u32) -> String {
    format!("display-{number:05}")
}

/// Returns the name of the group with this number.
pub(crate) fn group(number: usize) -> String {
    format!("group-{number}")
}

/// Runs the server until its process is ended. `words` are the arguments `DIRECTORY PORT GROUPS`. GROUPS is the number
/// of groups. If it is 0, the server knows only one device, which all peers use.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let [directory, port, groups] = words else {
        return Err(Failure::new(format!("{VERB} DIRECTORY PORT GROUPS")));
    };
    let groups: usize = groups.parse().map_err(failure)?;
    let scene = Scene::at(PathBuf::from(directory))?;
    let (service, signer, database) = scene.service()?;
    let lamp = OwnedParty::from_words("lamp tag:kitchen".split(' ')).map_err(failure)?;
    let lamp = NewDevice::public(lamp, Credential::Certificate(THUMBPRINT)).map_err(failure)?;
    scene.block_on(service.add("operator", &lamp)).map_err(failure)?;
    let names = if groups == 0 { vec![IDENTITY.to_owned()] } else { (0..PEERS).map(peer).collect() };
    let devices = names.into_iter().map(|name| {
        let party = OwnedParty::from_words([name.as_str(), "tag:display"]).map_err(failure)?;
        NewDevice::secret(party, Credential::SharedKey, KEY_TEXT.as_bytes()).map_err(Failure::new)
    });
    scene.at_once(devices, |device| {
        let service = Arc::clone(&service);
        async move { service.add("operator", &device).await.map(drop).map_err(failure) }
    })?;
    let controller = Arc::new(Controller::new(database, Some(signer)).map_err(failure)?);
    scene.at_once((0..groups).map(Ok), |number| {
        let controller = Arc::clone(&controller);
        async move {
            // The groups at one port have different GroupIDs, of which there are 255.
            let port = u16::try_from(number / usize::from(u8::MAX)).map_err(failure)?.saturating_add(5684);
            let address = (Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1), port).into();
            let config = GroupConfig { last_epoch: EPOCHS, ..GroupConfig::at(address) };
            controller.create(&group(number), config, &[]).await.map_err(failure)?;
            // The controller has it in memory from now on.
            controller.messages(&group(number)).await.map(drop).map_err(failure)
        }
    })?;
    let credentials = Credentials::default();
    let server = listen(port, &service, &controller, credentials)?;
    loop {
        std::thread::park();
        // The server serves as long as it is there.
        let _ = server.addresses();
    }
}

fn listen(
    port: &str,
    service: &Arc<Service<Database>>,
    controller: &Arc<Controller<Database>>,
    credentials: Credentials,
) -> Result<Server, Failure> {
    let access = AccessServer::new(Arc::clone(service), credentials.clone(), Revocations::default());
    let resources = Resources::new([(VALUE_PATH.to_owned(), Resource::value(VALUE))]);
    let party = OwnedParty::from_words(["controller"]).map_err(failure)?;
    let authority = ByPolicy { service: Arc::clone(service), credentials: credentials.clone(), controller: party };
    let print_refused = |event: Event<'_>| {
        if let Event::Refused { message, .. } = event {
            eprintln!("{message}");
        }
    };
    let groups = GroupServer::new(Arc::clone(controller), Arc::new(authority), Arc::new(print_refused));
    let config = ServerConfig::default().with(|config| {
        config.shards = 1;
        config.sessions.capacity.peers = 2 * PEERS as usize;
        config.log.report_requests = false;
        config.coap.max_exchange_bytes = MAX_EXCHANGE_BYTES;
        // The clients connect one after the other.
        config.trust.key_store_answers_every = Duration::from_millis(1);
    });
    let builder = Server::with(config).listen(&format!("coaps://127.0.0.1:{port}")).credentials(credentials);
    let builder = builder.key_store(Keys(SharedKeys(Arc::clone(service))));
    let builder = builder.on_event(|event| {
        if matches!(event.severity(), Severity::Warning | Severity::Error) {
            eprintln!("{event}");
        }
    });
    builder.serve(All { access, groups, resources }).map_err(failure)
}

/// The application of the server: access control, the groups, and a value.
#[derive(Clone)]
struct All {
    access: AccessServer<Database>,
    groups: GroupServer<Database>,
    resources: Resources,
}

impl Application for All {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        match request.path() {
            path if self.access.has(path) => self.access.handle(request, response),
            path if self.groups.has(path) => self.groups.handle(request, response),
            _ => self.resources.handle(request, response),
        }
    }

    fn every_second(&mut self, notifier: &Notifier) {
        self.access.every_second(notifier);
    }
}

/// The pre-shared keys of the devices. The server knows them from its database. This type also gives each device the
/// right to read the value at [`VALUE_PATH`].
struct Keys(SharedKeys<Database>);

impl KeyStore for Keys {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let with_value = KeyTicket::new(move |found| {
            ticket.answer(found.map(|mut stored| {
                stored.allow.get_or_insert_default().push(format!("GET /{VALUE_PATH}"));
                stored
            }));
        });
        self.0.find(identity, with_value);
    }
}
