//! The program of a delegation server. It runs `tegmen_control::delegation` and a DTLS server on 127.0.0.1. Its
//! commands are lines on its standard input.

use super::{
    authority::Authority,
    devices::{self, PLACES, VALUE_PATH},
};
use crate::{failure::failure, scene::Scene, server::cpu_nanoseconds};
use rcgen::ExtendedKeyUsagePurpose;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tegmen::{dtls::ClientAuthentication, secret::Secret};
use tegmen_bench_line::Failure;
use tegmen_control::{
    audit::{AuditLog, Kind, Record},
    delegation::{Certificates, Delegations, DeviceConfig, Pace, ReplacedCertificate},
};
use tegmen_delegation::PSK_LEN;
use tegmen_host::{
    credentials::Credentials,
    hex::{from_hex, to_hex},
    public_keys::{PublicKeys, SUITES as ALL_SUITES},
    resources::Resources,
    server::{HelloLimits, Server, ServerConfig, Severity},
    x509::Verifier,
};
use tegmen_store::{Database, Store as _, store::Scan};
use tokio::sync::mpsc;

pub(crate) const VERB: &str = "delegation-server";
/// Lifetime of a delegation, in seconds.
const LIFETIME: u32 = 3600;
/// Number of verified certificate chains that the server remembers. It is the default of the library.
const REMEMBERED: usize = 1024;
/// The interval at which a command that waits examines all devices. An examination takes time of the measured server, and
/// with this interval it takes less than 1 % of this time.
const POLL: Duration = Duration::from_millis(20);

/// Returns the name of the device with this number.
pub(super) fn device(number: usize) -> String {
    format!("lamp-{number:04}.example")
}

/// Counts of the data that the server has.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(super) struct State {
    /// Number of rows that the delegation service has in the server's database, for each kind of row.
    pub(super) rows: BTreeMap<String, usize>,
    /// Number of entries that the delegation service has in the server's memory for connections, the names of peers,
    /// returning peers, sessions and refused connections. The entries of the devices are not counted.
    pub(super) entries: usize,
    /// Number of peers to which the server has assigned a number.
    pub(super) peers: usize,
    /// Number of DTLS sessions that are open at the server.
    pub(super) sessions: usize,
    /// Number of tickets that peers received after a handshake with certificates.
    pub(super) sealed: u64,
    /// Number of tickets that peers received after they resumed a session.
    pub(super) reissued: u64,
    /// Number of peers that received no ticket.
    pub(super) refused: u64,
}

/// A running delegation server. It ends when this value is dropped.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The address at which the server accepts DTLS.
    pub(super) address: SocketAddr,
}

impl Process {
    /// Starts a server for this number of devices, which are all at the port `port`. Calls `imprint` with the key of
    /// each device.
    pub(super) fn start(
        directory: &Path,
        devices: usize,
        port: u16,
        imprint: impl FnMut(Secret<PSK_LEN>) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let words = [directory.to_string_lossy().into_owned(), devices.to_string(), port.to_string()];
        let mut process = Self::spawn(VERB, &words)?;
        let keys: Vec<String> = process.ask("keys")?.split_whitespace().map(str::to_owned).collect();
        let secret = |key: String| from_hex(&key)?.try_into().ok().map(Secret::new);
        let keys: Option<Vec<_>> = keys.into_iter().map(secret).collect();
        let keys = keys.filter(|keys| keys.len() == devices).ok_or_else(|| Failure::new("no device keys"))?;
        keys.into_iter().try_for_each(imprint)?;
        Ok(process)
    }

    /// Starts this program with the subcommand `verb`. Reads the address that it prints first.
    pub(super) fn spawn(verb: &str, words: &[String]) -> Result<Self, Failure> {
        let exe = env::current_exe().map_err(failure)?;
        let mut command = Command::new(exe);
        let child = command.arg(verb).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(failure)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("no pipes"));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).map_err(failure)?;
        let address = line.trim().parse().map_err(|_| Failure::new(format!("{verb} does not start")))?;
        Ok(Self { child, input, output, address })
    }

    /// Sends one command line to the server, and returns the line with which it answers.
    pub(super) fn ask(&mut self, line: &str) -> Result<String, Failure> {
        let mut answer = String::new();
        writeln!(self.input, "{line}")
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut answer))
            .map_err(failure)?;
        match answer.is_empty() {
            true => Err(Failure::new(format!("the server ends at {line}"))),
            false => Ok(answer),
        }
    }

    pub(super) fn state(&mut self) -> Result<State, Failure> {
        serde_json::from_str(&self.ask("state")?).map_err(failure)
    }

    /// Returns the CPU time of all threads of the process in nanoseconds.
    pub(super) fn cpu_nanoseconds(&self) -> Result<u64, Failure> {
        cpu_nanoseconds(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the server until its standard input ends. `words` are the arguments `DIRECTORY DEVICES PORT`.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let [directory, count, port] = words else { return Err(Failure::new(format!("{VERB} DIRECTORY DEVICES PORT"))) };
    let (count, port): (usize, u16) = (count.parse().map_err(failure)?, port.parse().map_err(failure)?);
    let directory = PathBuf::from(directory);
    let authority = Authority::open(&directory)?;
    let verifier = authority.verifier(REMEMBERED)?;
    let scene = Scene::at(directory.join(VERB))?;
    let (service, _, database) = scene.service()?;
    let audit = service.audit().clone();
    let certificates = Arc::new(OfAuthority { authority, verifier: Arc::clone(&verifier), known: Mutex::default() });
    let delegations = scene.block_on(async {
        let delegations = Delegations::open(database.clone(), service, audit.clone()).await.map_err(failure)?;
        delegations.with_certificates(certificates).await.map_err(failure)
    })?;
    let delegations = Arc::new(delegations);
    let keys: Arc<Mutex<BTreeMap<usize, String>>> = Arc::default();
    scene.at_once((0..count).map(Ok), |number| {
        let (delegations, keys) = (Arc::clone(&delegations), Arc::clone(&keys));
        async move {
            let config = DeviceConfig {
                tags: vec!["delegated".to_owned()],
                address: devices::address(number, port),
                scopes: vec![vec![format!("GET /{VALUE_PATH}")]],
                places: PLACES as u32,
                lifetime: LIFETIME,
            };
            let key = delegations.imprint(&device(number), config, "operator").await.map_err(failure)?;
            keys.lock().unwrap_or_else(PoisonError::into_inner).insert(number, to_hex(key.expose()));
            Ok(())
        }
    })?;
    let credentials = Credentials::default();
    let server = listen(&delegations, verifier, &credentials)?;
    println!("{}", server.addresses()[0].address);
    let (lines, mut commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin()
            .lines()
            .map_while(Result::ok)
            .take_while(|line| lines.send(line.clone()).is_ok())
            .for_each(drop);
    });
    scene.block_on(async {
        let obeys = async {
            while let Some(command) = commands.recv().await {
                let answer = match command.as_str() {
                    "keys" => keys
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .values()
                        .cloned()
                        .collect::<Vec<_>>()
                        .join(" "),
                    "settled" => settled(&delegations).await,
                    "durable" => durable(&delegations, &audit).await?,
                    "reset" => reset(&delegations, count).await?,
                    "state" => state(&delegations, &database, (&credentials, &server)).await?,
                    other => return Err(Failure::new(format!("not known: {other}"))),
                };
                println!("{answer}");
            }
            Ok(())
        };
        tokio::select! {
            () = delegations.run(Pace::default()) => Ok(()),
            done = obeys => done,
        }
    })
}

fn listen(
    delegations: &Arc<Delegations<Database>>,
    verifier: Arc<Verifier>,
    credentials: &Credentials,
) -> Result<Server, Failure> {
    let config = ServerConfig::default().with(|config| {
        config.shards = 1;
        config.sessions.hellos = HelloLimits { per_prefix: 0, total: 0 };
        config.log.report_requests = false;
    });
    let keys = PublicKeys::new(ALL_SUITES).believing(verifier).asking(ClientAuthentication::Required);
    let builder = Server::with(config).listen("coaps://127.0.0.1:0").credentials(credentials.clone()).trust(keys);
    let builder = builder.delegate(Arc::clone(delegations) as _).on_event(|event| {
        if matches!(event.severity(), Severity::Warning | Severity::Error) {
            eprintln!("delegation server: {event}");
        }
    });
    builder.serve(Resources::new([])).map_err(failure)
}

/// Waits until every device has begun its current epoch, no message waits for a device, and the rows of earlier epochs
/// are removed from the database.
async fn settled(delegations: &Delegations<Database>) -> String {
    let is_settled = || {
        let devices = delegations.list(None, usize::MAX);
        devices.iter().all(|device| {
            let is_told = device.pending.is_none() && device.reset.is_none() && device.untold == 0;
            device.epoch > 0 && is_told && device.contact.status.is_some_and(|status| status.epoch == device.epoch)
        })
    };
    while !is_settled() || delegations.entries().littered > 0 {
        tokio::time::sleep(POLL).await;
    }
    "settled".to_owned()
}

/// Writes the rows and the lines that wait. Returns when each connection has a row in the database and a line in the
/// audit log.
async fn durable(delegations: &Delegations<Database>, audit: &AuditLog) -> Result<String, Failure> {
    delegations.settle().await.map_err(failure)?;
    while delegations.entries().connections > 0 {
        tokio::time::sleep(POLL).await;
    }
    let message = "the benchmark waits for all lines".to_owned();
    let line = Record { kind: Kind::Server, who: String::new(), code: "durable", message };
    audit.write(line).await.map_err(failure)?;
    Ok("durable".to_owned())
}

/// Begins the next epoch at all devices.
async fn reset(delegations: &Arc<Delegations<Database>>, count: usize) -> Result<String, Failure> {
    let mut all = tokio::task::JoinSet::new();
    for number in 0..count {
        let delegations = Arc::clone(delegations);
        all.spawn(async move { delegations.reset(&device(number), "operator").await });
    }
    while let Some(done) = all.join_next().await {
        done.map_err(failure)?.map_err(failure)?;
    }
    Ok("reset".to_owned())
}

async fn state(
    delegations: &Delegations<Database>,
    database: &Database,
    (credentials, server): (&Credentials, &Server),
) -> Result<String, Failure> {
    let mut rows = BTreeMap::new();
    let mut scan = Some(Scan::of("delegation/", 1000));
    while let Some(next) = scan {
        let page = database.scan(next.clone()).await.map_err(failure)?;
        for entry in &page.entries {
            let kind = String::from_utf8_lossy(&entry.key).split('/').nth(1).unwrap_or_default().to_owned();
            *rows.entry(kind).or_insert(0) += 1;
        }
        scan = next.following(&page);
    }
    let (counts, entries) = (delegations.counts(), delegations.entries());
    let state = State {
        rows,
        entries: entries.connections + entries.names + entries.returning + entries.sessions + entries.refused,
        peers: credentials.peers(),
        sessions: server.totals().peers,
        sealed: counts.sealed,
        reissued: counts.reissued,
        refused: counts.not_given + counts.without_rights + counts.refused,
    };
    serde_json::to_string(&state).map_err(failure)
}

/// The certificates by which the peers recognize the devices. An authority issues a certificate for each device. This
/// value keeps the certificates in memory.
struct OfAuthority {
    authority: Authority,
    verifier: Arc<Verifier>,
    known: Mutex<HashMap<String, Arc<PublicKeys>>>,
}

impl OfAuthority {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<PublicKeys>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificates for OfAuthority {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        self.known().get(device).cloned()
    }

    fn prepare(&self, device: &str) -> Result<(), String> {
        if self.of(device).is_none() {
            let keys =
                self.authority.issue(device, ExtendedKeyUsagePurpose::ServerAuth).map_err(|failure| failure.0)?;
            self.known().insert(device.to_owned(), Arc::new(keys.believing(Arc::clone(&self.verifier) as _)));
        }
        Ok(())
    }

    fn replace(&self, _: &str) -> Result<Vec<ReplacedCertificate>, String> {
        Err("the benchmark replaces no certificates".to_owned())
    }

    fn problem(&self, _: &str) -> Option<String> {
        None
    }
}
