//! Introspections at an access control server, beside plain GETs on the same DTLS sessions of the same process.

use crate::{
    Options,
    addresses::{Clients, KEY_TEXT, Question, Way},
    failure::failure,
    load::VALUE,
    report::{Limit, OURS, Report, Samples},
    scene::Scene,
    server::Process,
};
use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tegmen::coap::{Code, MessageRef, Response};
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_control::{
    access::{
        ace::{ACE_CBOR, Aif, Hint, IntrospectionRequest, IntrospectionResponse, Right, Scope},
        introspection::HINT_THUMBPRINT,
        policy::OwnedParty,
    },
    server::{AccessServer, INTROSPECT, Revocations, SharedKeys},
    state::{Credential, NewDevice},
};
use tegmen_host::{
    credentials::{Credentials, KeyStore, KeyTicket},
    resources::{Resource, Resources},
    server::{Application, Notifier, Request, Server, ServerConfig},
};
use tegmen_store::Database;

/// Least share of the rate of plain GETs.
const INTROSPECTIONS_MIN: f64 = 0.5;
/// Peers, each with a session.
const PEERS: u32 = 10_000;
/// Requests in flight at once, each of another peer.
const AT_ONCE: u64 = 256;
/// The path of the value that a GET asks for, without a slash in front.
const VALUE_PATH: &str = "value";
/// The SHA-256 of the certificate of the publisher `lamp`.
const THUMBPRINT: [u8; 32] = [9; 32];
const WARM_UP: Duration = Duration::from_millis(100);

/// Measures both kinds of introspection, and GETs, in turn in each pass.
pub(crate) fn measure(scene: &Path, options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("introspections");
    let directory = scene.join("introspections").to_string_lossy().into_owned();
    let exe = env::current_exe().map_err(failure)?.to_string_lossy().into_owned();
    let process = Process::start(|port| Some(vec![exe, VERB.to_owned(), directory, port.to_string()]))?;
    let mut clients = Clients::new(&process, Way::Dtls, PEERS)?;
    clients.await_server(&process)?;
    clients.connect(0..PEERS)?;
    (clients.window, clients.is_answer) = (AT_ONCE, is_answer);
    let about = "introspections beside a plain GET on the same sessions";
    let mut all: Vec<_> = [Asked::Certificate, Asked::Session]
        .into_iter()
        .flat_map(|asked| ["1/server CPU s", "1/s"].map(|unit| (asked, Samples::new(asked.said(about), unit, true))))
        .collect();
    for (_, samples) in &mut all {
        samples.demanded.0 = Some(Limit::AtLeast(INTROSPECTIONS_MIN));
    }
    let mut number = 0;
    for pass in 0..options.passes {
        let mut rates = [(0.0, 0.0); 3];
        for turn in 0..rates.len() {
            let at = (pass + turn) % rates.len();
            let asked = [Asked::Value, Asked::Certificate, Asked::Session][at];
            rates[at] = rate((&process, &mut clients), asked, &mut number, options.seconds)?;
        }
        let [get, certificate, session] = rates;
        for (asked, samples) in &mut all {
            let ours = if matches!(asked, Asked::Session) { session } else { certificate };
            let of = |(per_cpu, per_second)| if samples.unit == "1/s" { per_second } else { per_cpu };
            let (ours, get) = (of(ours), of(get));
            samples.push(OURS, ours);
            samples.push("plain GET", get);
        }
    }
    report.rows.extend(all.iter().flat_map(|(_, samples)| samples.rows()));
    report.header.notes.push(format!(
        "introspections: {PEERS} peers, {AT_ONCE} requests in flight, each of another peer, {} s a pass; an answer about a \
         certificate waits for its line of the audit log, one about a session identity also for its commit",
        options.seconds
    ));
    Ok(())
}

/// Requests for each CPU second of the server, and for each second.
fn rate(
    (process, clients): (&Process, &mut Clients),
    asked: Asked,
    number: &mut u64,
    seconds: f64,
) -> Result<(f64, f64), Failure> {
    let constant = asked.question(0);
    let mut question = || {
        *number += 1;
        if matches!(asked, Asked::Session) { asked.question(*number) } else { constant.clone() }
    };
    clients.run_with(WARM_UP, &mut question)?;
    let (cpu, begin) = (process.cpu_nanoseconds()?, Instant::now());
    let ran = clients.run_with(Duration::from_secs_f64(seconds), &mut question)?;
    let (cpu, elapsed) = (process.cpu_nanoseconds()?.saturating_sub(cpu), begin.elapsed());
    match ran.lost {
        0 => Ok((ran.answered as f64 * 1e9 / cpu as f64, ran.answered as f64 / elapsed.as_secs_f64())),
        lost => Err(Failure::new(format!("{lost} of {} requests were not answered", ran.answered + lost))),
    }
}

#[derive(Clone, Copy)]
enum Asked {
    Value,
    /// The rights at a publisher with this certificate: nothing is stored.
    Certificate,
    /// The key of a session, whose identity is accepted once.
    Session,
}

impl Asked {
    fn said(self, about: &str) -> String {
        let of = if matches!(self, Self::Session) { "session identity" } else { "certificate" };
        format!("{about}, {of}")
    }

    fn question(self, number: u64) -> Question {
        let (token, hint) = match self {
            Self::Value => {
                return Question { code: Code::GET, path: VALUE_PATH, content_format: None, payload: Vec::new() };
            }
            Self::Certificate => (THUMBPRINT.to_vec(), Some(Hint::Name(HINT_THUMBPRINT.to_owned()))),
            // As random as identities are.
            Self::Session => {
                let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (format!("oven;{random:016x}{:08x}", number as u32).into_bytes(), None)
            }
        };
        let scope = Some(Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }])));
        let payload = IntrospectionRequest { scope, token, hint }.encode();
        Question { code: Code::POST, path: INTROSPECT, content_format: Some(ACE_CBOR), payload }
    }
}

fn is_answer(message: &MessageRef<'_>) -> bool {
    match message.code() {
        Code::CONTENT => message.payload() == VALUE,
        Code::CREATED => IntrospectionResponse::parse(message.payload()).is_ok_and(|response| response.active),
        _ => false,
    }
}

/// The program that [`measure`] starts: an access control server on 127.0.0.1, which also serves a resource for GET.
pub(crate) const VERB: &str = "access-server";

/// Serves until the process ends: `DIRECTORY PORT`.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let [directory, port] = words else { return Err(Failure::new(format!("{VERB} DIRECTORY PORT"))) };
    let scene = Scene::at(PathBuf::from(directory))?;
    let service = scene.service()?;
    let party = |words: &str| OwnedParty::from_words(words.split(' ')).map_err(failure);
    let subscriber = party(&format!("{IDENTITY} tag:display"))?;
    let subscriber = NewDevice::secret(subscriber, Credential::SharedKey, KEY_TEXT.as_bytes());
    let lamp = NewDevice::public(party("lamp tag:kitchen")?, Credential::Certificate(THUMBPRINT));
    for device in [subscriber, lamp] {
        scene.block_on(service.add("operator", &device.map_err(Failure::new)?)).map_err(failure)?;
    }
    let credentials = Credentials::default();
    let access = AccessServer::new(Arc::clone(&service), credentials.clone(), Revocations::default());
    let resources = Resources::new([(VALUE_PATH.to_owned(), Resource::value(VALUE))]);
    let config = ServerConfig::default().with(|config| {
        config.shards = 1;
        config.sessions.capacity.peers = 2 * PEERS as usize;
        config.log.report_requests = false;
        // The clients connect one after the other.
        config.trust.key_store_answers_every = Duration::from_millis(1);
    });
    let builder = Server::with(config).listen(&format!("coaps://127.0.0.1:{port}")).credentials(credentials);
    let server = builder.key_store(Keys(SharedKeys(service))).serve(Both { access, resources }).map_err(failure)?;
    loop {
        std::thread::park();
        // The server serves as long as it is there.
        let _ = server.addresses();
    }
}

/// Access control and a value.
#[derive(Clone)]
struct Both {
    access: AccessServer<Database>,
    resources: Resources,
}

impl Application for Both {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        match self.access.has(request.path()) {
            true => self.access.handle(request, response),
            false => self.resources.handle(request, response),
        }
    }

    fn every_second(&mut self, notifier: &Notifier) {
        self.access.every_second(notifier);
    }
}

/// The keys of devices, which may read the value, too.
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
