//! Measures delegated sessions at the delegation server, in three measurements. The first measures full delegations: a
//! new peer authenticates itself at the server with a certificate, and receives a ticket. The rate of full delegations
//! is compared with the rates of two sets of curve operations alone: those that the server executes, and the same with
//! the signature of the authority's certificate, which the server verifies only once. The second compares the rates of
//! resumptions and of new tickets with the rate of resumptions at a server that delegates nothing. The third resets all
//! devices at once.

mod authority;
mod counting;
mod devices;
mod peers;
pub(crate) mod resuming;
pub(crate) mod server;

use crate::{
    Options,
    certificates::Bare,
    failure::failure,
    limit::nanoseconds,
    report::{Header, Judged, Limit, OURS, Report, Row, Samples, median},
};
use authority::{Authority, CERTIFICATES};
use devices::{Devices, VALUE_PATH};
use peers::{News, Peers, asking_for};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use resuming::Kind;
use server::{Process, State};
use std::{
    collections::VecDeque,
    fs,
    net::SocketAddr,
    ops::Range,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tegmen::crypto::NamedGroup;
use tegmen_bench_line::Failure;
use tegmen_host::x509::Verifier;

/// The number of devices that are registered at the server.
const DEVICES: usize = 1_000;
/// The number of peers in a pass. Each peer connects once. The next pass has new peers.
const PEERS: usize = 2 * DEVICES;
/// The number of peers that connect at the same time.
const AT_ONCE: usize = 128;
/// Number of parts into which each pass divides a measurement. The parts of two measurements that are compared with
/// each other alternate.
const PARTS: usize = 4;
/// The names of the two sets of curve operations with which full delegations are compared. The second set verifies one
/// signature more than the first.
const CURVE_OPERATIONS: [&str; 2] =
    ["curve operations that the server executes", "curve operations with the signature of the CA certificate"];
/// The number of signatures that the server verifies in a full delegation: the signature of the peer, and the signatures
/// of the peer's certificates except that of the authority's certificate, which the server remembers.
const VERIFIED: usize = CERTIFICATES;
/// Lower limit for the rate of full delegations, divided by the rate of the curve operations that the server executes.
const FULL_MIN: f64 = 0.8;
/// Lower limit for the rate of resumptions at a device, and for the rate of new tickets. Each of the two rates is
/// divided by the rate of resumptions at a server without delegation.
const RESUMED_MIN: f64 = 0.5;
/// The number of peers that resume their sessions at the device. The same number of peers resume their sessions at a
/// server without delegation.
const RETURNING: usize = 1_000;
/// Maximum time without an event at any peer. If no peer has an event for longer, the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures full delegations, resumptions, new tickets and resets. Also measures the memory that the server still uses
/// when all delegations are over.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    let mut scene = Scene::new()?;
    let mut full = Samples::new("full mutual P-256 delegations", "1/server CPU s", true);
    let mut resumed = [
        Samples::new("resumptions at a device", "1/server CPU s", true),
        Samples::new("new tickets for returning peers", "1/server CPU s", true),
    ];
    let mut storms = Vec::new();
    for pass in 0..options.passes {
        eprintln!("pass {} of {}", pass + 1, options.passes);
        scene.meet(pass)?;
        let (ours, bare) = scene.delegations(pass)?;
        eprintln!("  {ours:.0} delegations beside {:.0} and {:.0}", bare[0], bare[1]);
        full.push(OURS, ours);
        CURVE_OPERATIONS.into_iter().zip(bare).for_each(|(name, bare)| full.push(name, bare));
        let [device, bare] = scene.resumptions(pass)?;
        let reissued = scene.reissues()?;
        eprintln!("  {device:.0} resumptions at a device and {reissued:.0} new tickets beside {bare:.0}");
        for (samples, ours) in resumed.iter_mut().zip([device, reissued]) {
            samples.push(OURS, ours);
            samples.push("without a delegate", bare);
        }
        storms.push(scene.storm()?);
        scene.part()?;
    }
    let judged = |samples: &Samples, bound| {
        let rows = samples.rows().into_iter();
        rows.map(|row| Row { judged: row.judge_bound(bound), ..row }).collect::<Vec<_>>()
    };
    let is_executed = |row: &Row| row.peer_name == CURVE_OPERATIONS[0];
    let full = full.rows().into_iter();
    report.rows.extend(full.map(|row| match is_executed(&row) {
        true => Row { judged: row.judge_bound(FULL_MIN), ..row },
        false => row,
    }));
    report.rows.extend(resumed.iter().flat_map(|samples| judged(samples, RESUMED_MIN)));
    report.rows.extend(storm_rows(&storms));
    report.rows.extend(left_rows(&scene.left()?));
    report.header.notes.push(note());
    Ok(report)
}

/// The result of one reset of all devices. A reset begins a new epoch of a device.
struct Storm {
    seconds: f64,
    /// The number of public-key operations of all peers after the operator began a new epoch of every device (a reset).
    operations: u64,
    /// CPU time of the server for each device, in milliseconds.
    cpu_each: f64,
}

fn storm_rows(storms: &[Storm]) -> Vec<Row> {
    let column = |of: fn(&Storm) -> f64| median(&storms.iter().map(of).collect::<Vec<_>>());
    let row = |what: &str, unit, ours, limit: Option<f64>| {
        let judged = limit.map(|limit| Limit::AtMost(limit).judge("ours", ours).binding());
        Row { ours, ..Row::new(format!("{what}, {DEVICES} devices reset at once"), "none", unit, judged) }
    };
    let operations = storms.iter().map(|storm| storm.operations).sum::<u64>() as f64;
    vec![
        row("time until all peers are back", "s", column(|storm| storm.seconds), None),
        row("server CPU time of each device", "ms", column(|storm| storm.cpu_each), None),
        row("operations with public keys at all peers of all passes", "operations", Some(operations), Some(0.0)),
    ]
}

/// Returns three rows of the report for the data that the server still has when all delegations are over. The first is
/// for the number of rows in the server's database. The second is for the number of entries in the server's memory. The
/// third is for the number of peers to which the server has assigned a number.
fn left_rows(state: &State) -> Vec<Row> {
    let row = |what: &str, unit, ours: usize| {
        let judged: Judged = Limit::AtMost(0.0).judge("ours", Some(ours as f64)).binding();
        Row {
            ours: Some(ours as f64),
            ..Row::new(format!("{what} left of finished delegations"), "none", unit, Some(judged))
        }
    };
    // The device has a row, and its two epochs that count have the numbers that they gave.
    let others = |kind: &str| !matches!(kind, "device" | "number");
    let rows = state.rows.iter().filter(|(kind, _)| others(kind)).map(|(_, count)| count).sum();
    vec![
        row("rows", "rows", rows),
        row("entries in memory", "entries", state.entries),
        row("peers with a number", "peers", state.peers),
    ]
}

fn note() -> String {
    format!(
        "delegations: {DEVICES} devices at one server, {PEERS} peers a pass that were never there, each with a chain of {CERTIFICATES} certificates below the \
         trust anchor, {AT_ONCE} at once; the store is SQLite (WAL, synchronous=FULL); the time of the server is that of all its threads until \
         each connection has its row; all peers have the certificate of one authority, and the server verifies its \
         signature only in the first handshake; the curve operations that the server executes in each later one are a \
         key pair, an agreement, a signature, and {VERIFIED} verified ones; those with the signature of the CA \
         certificate are the same and one verified signature more; both are done alone, {PARTS} times in turn with the \
         delegations"
    )
}

/// The programs and the peers of the benchmark.
struct Scene {
    directory: PathBuf,
    authority: Authority,
    verifier: Arc<Verifier>,
    server: Process,
    /// The process of a device, and then the process of a server that delegates nothing. Peers resume sessions at both.
    resuming: [Process; 2],
    devices: Devices,
    peers: Peers,
    /// For each process in `resuming`, the peers that resume their sessions at this process.
    returning: [Peers; 2],
    /// The two sets of curve operations, in the order of [`CURVE_OPERATIONS`].
    bare: [Bare; 2],
    share: Vec<u8>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Scene {
    fn new() -> Result<Self, Failure> {
        let directory = std::env::current_dir().map_err(failure)?;
        let directory = directory.join(format!("target/bench-delegation-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(failure)?;
        let authority = Authority::create(&directory)?;
        let devices = Devices::start()?;
        let mut server = Process::start(&directory, DEVICES, devices.port, |key| devices.add(key))?;
        server.ask("settled")?;
        let kinds = [Kind::Device, Kind::Bare];
        let resuming = [kinds[0].start(&directory)?, kinds[1].start(&directory)?];
        let key = KeyPair::generate().map_err(failure)?.serialize_pem();
        // One of the verified signatures is the signature of the peer itself.
        let bare = |verified: usize| Bare::with(key.as_bytes(), NamedGroup::SECP256R1, verified - 1);
        let mut bare = [bare(VERIFIED)?, bare(VERIFIED + 1)?];
        let (_, share) = bare[0].key_pair()?;
        let returning = [Peers::new()?, Peers::new()?];
        let peers = Peers::new()?;
        let verifier = authority.verifier(1)?;
        let mut scene =
            Self { directory, authority, verifier, server, resuming, devices, peers, returning, bare, share };
        scene.open_returning()?;
        Ok(scene)
    }

    /// Opens the sessions that the peers in `returning` resume later.
    fn open_returning(&mut self) -> Result<(), Failure> {
        for peers in &mut self.returning {
            let keys = (0..RETURNING).map(|number| issue(&self.authority, &self.verifier, number, resuming::NAME));
            peers.replace(keys.collect::<Result<Vec<_>, _>>()?);
        }
        let [device, bare] = &mut self.returning;
        for (peer, kept) in resuming::delegated(RETURNING)?.into_iter().enumerate() {
            device.keep(peer, kept);
        }
        open_all(bare, 0..RETURNING, |_| self.resuming[1].address, false)
    }

    /// Replaces the peers with new peers, which are unknown to every server.
    fn meet(&mut self, pass: usize) -> Result<(), Failure> {
        let keys = (0..PEERS)
            .map(|peer| issue(&self.authority, &self.verifier, pass * PEERS + peer, &server::device(peer % DEVICES)));
        self.peers.replace(keys.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    /// Returns three rates, each in delegations for each CPU second. The first rate is measured at the server, with full
    /// delegations. The other two rates count the time of only the operations on elliptic curves of such a handshake,
    /// in the order of [`CURVE_OPERATIONS`].
    fn delegations(&mut self, pass: usize) -> Result<(f64, [f64; 2]), Failure> {
        let (mut spent, mut bare) = (0, [0.0; 2]);
        let each = PEERS / PARTS;
        for part in 0..PARTS {
            for turn in 0..2 {
                let of = (pass + part + turn) % 2;
                bare[of] += nanoseconds(|| (0..each).try_for_each(|_| self.bare[of].end(&self.share)))?;
            }
            let begin = self.server.cpu_nanoseconds()?;
            let address = self.server.address;
            open_all(&mut self.peers, part * each..(part + 1) * each, |_| address, false)?;
            self.server.ask("durable")?;
            spent += self.server.cpu_nanoseconds()? - begin;
        }
        (0..PEERS).for_each(|peer| self.peers.close(peer));
        self.peers.turn()?;
        let rate = |nanoseconds: f64| PEERS as f64 * 1e9 / nanoseconds;
        Ok((rate(spent as f64), bare.map(rate)))
    }

    /// Returns the number of resumptions for each second of CPU time: first at the device, then at a server without
    /// delegation.
    fn resumptions(&mut self, pass: usize) -> Result<[f64; 2], Failure> {
        let mut spent = [0; 2];
        for turn in 0..2 * PARTS {
            let at = (pass + turn) % 2;
            let (process, peers) = (&mut self.resuming[at], &mut self.returning[at]);
            let (address, begin) = (process.address, process.cpu_nanoseconds()?);
            open_all(peers, 0..RETURNING, |_| address, true)?;
            spent[at] += process.cpu_nanoseconds()? - begin;
        }
        Ok(spent.map(|spent| (PARTS * RETURNING) as f64 * 1e9 / spent as f64))
    }

    /// Returns the number of new tickets for each CPU second of the server. The peers that request them have tickets of
    /// the previous epoch.
    fn reissues(&mut self) -> Result<f64, Failure> {
        self.server.ask("reset")?;
        self.server.ask("settled")?;
        let (address, begin) = (self.server.address, self.server.cpu_nanoseconds()?);
        open_all(&mut self.peers, 0..PEERS, |_| address, true)?;
        self.server.ask("durable")?;
        let spent = self.server.cpu_nanoseconds()? - begin;
        (0..PEERS).for_each(|peer| self.peers.close(peer));
        self.peers.turn()?;
        Ok(PEERS as f64 * 1e9 / spent as f64)
    }

    /// Measures a reset. Before the reset, each device has a session with a peer. All devices then begin another epoch
    /// at once, which ends the sessions. A peer whose session ends tries its ticket at the device. If the device
    /// refuses the ticket, the peer gets a new ticket from the server, and connects to the device again. Finally, the
    /// device answers a request of the peer.
    fn storm(&mut self) -> Result<Storm, Failure> {
        let Self { devices, peers, server, .. } = self;
        let at_device = |peer: usize| devices.address(peer);
        open_all(peers, 0..DEVICES, at_device, true)?;
        let (operations, cpu, begin) = (peers.operations(), server.cpu_nanoseconds()?, Instant::now());
        server.ask("reset")?;
        let (mut stages, mut back, mut heard) = (vec![Stage::AtDevice; DEVICES], 0, Instant::now());
        while back < DEVICES {
            for (peer, news) in peers.turn()? {
                if peer >= DEVICES {
                    continue;
                }
                heard = Instant::now();
                stages[peer] = match (stages[peer], news) {
                    // The device began another epoch.
                    (Stage::AtDevice, News::Closed(_)) => {
                        peers.open(peer, at_device(peer), true)?;
                        Stage::Tries
                    }
                    // At the second time the server had no ticket yet.
                    (Stage::Tries | Stage::Returns, News::Closed(_)) => {
                        peers.open(peer, server.address, true)?;
                        Stage::AtServer
                    }
                    (Stage::AtServer, News::Established(_)) => {
                        peers.close(peer);
                        peers.open(peer, at_device(peer), true)?;
                        Stage::Returns
                    }
                    (Stage::Returns, News::Established(true)) => {
                        peers.ask(peer, VALUE_PATH)?;
                        Stage::Asks
                    }
                    (Stage::Asks, News::Answered(code)) if code.is_success() => {
                        back += 1;
                        Stage::Back
                    }
                    (stage, News::Established(resumed)) => {
                        return Err(Failure::new(format!("{stage:?}: a session begins, resumed: {resumed}")));
                    }
                    (stage, News::Answered(code)) => return Err(Failure::new(format!("{stage:?}: {code}"))),
                    (stage, News::Closed(reason)) => return Err(Failure::new(format!("{stage:?}: {reason}"))),
                };
            }
            if heard.elapsed() > PATIENCE {
                return Err(Failure::new(format!("{back} of {DEVICES} peers are back, and the others are silent")));
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        server.ask("durable")?;
        let cpu = server.cpu_nanoseconds()? - cpu;
        Ok(Storm { seconds, operations: peers.operations() - operations, cpu_each: cpu as f64 / 1e6 / DEVICES as f64 })
    }

    /// Closes all sessions of the peers, and waits until the server has completed its work for the devices.
    fn part(&mut self) -> Result<(), Failure> {
        (0..PEERS).for_each(|peer| self.peers.close(peer));
        self.peers.turn()?;
        self.server.ask("settled").map(drop)
    }

    /// Begins two new epochs at all devices, so that no connection is valid any longer. Waits until the server has
    /// deleted the data of the connections. Then returns the state of the server.
    fn left(&mut self) -> Result<State, Failure> {
        for _ in 0..2 {
            self.server.ask("reset")?;
            self.server.ask("settled")?;
        }
        let (mut state, begin) = (self.server.state()?, Instant::now());
        // The work behind epochs is done in turn with other work.
        let is_quiet = |state: &State| state.entries == 0 && state.sessions == 0 && state.peers == 0;
        while !is_quiet(&state) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(200));
            state = self.server.state()?;
        }
        Ok(state)
    }
}

/// The steps of a peer that reconnects to its device after a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The peer has a session with the device.
    AtDevice,
    /// The peer tries to resume its session at the device with its ticket.
    Tries,
    /// The peer requests a new ticket from the server.
    AtServer,
    /// The peer connects to the device with the new ticket.
    Returns,
    /// The peer waits for the answer to a request.
    Asks,
    Back,
}

fn issue(
    authority: &Authority,
    verifier: &Arc<Verifier>,
    peer: usize,
    name: &str,
) -> Result<tegmen_host::public_keys::PublicKeys, Failure> {
    let keys = authority.issue(&format!("peer-{peer:06}"), ExtendedKeyUsagePurpose::ClientAuth)?;
    Ok(asking_for(keys, Arc::clone(verifier), name))
}

/// Lets each peer in `range` open a session. At most [`AT_ONCE`] peers open a session at the same time. If
/// `with_ticket` is true, a peer resumes its last session with its ticket.
fn open_all(
    peers: &mut Peers,
    range: Range<usize>,
    address: impl Fn(usize) -> SocketAddr,
    with_ticket: bool,
) -> Result<(), Failure> {
    let (mut waiting, mut open, mut heard): (VecDeque<usize>, _, _) = (range.collect(), 0, Instant::now());
    while open > 0 || !waiting.is_empty() {
        while open < AT_ONCE
            && let Some(peer) = waiting.pop_front()
        {
            peers.open(peer, address(peer), with_ticket)?;
            open += 1;
        }
        for (peer, news) in peers.turn()? {
            heard = Instant::now();
            match news {
                News::Established(is) if is == with_ticket => open -= 1,
                News::Established(_) => return Err(Failure::new(format!("peer {peer}: another kind of handshake"))),
                News::Closed(reason) => return Err(Failure::new(format!("peer {peer}: {reason}"))),
                News::Answered(_) => {}
            }
        }
        if heard.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{} sessions do not begin", open + waiting.len())));
        }
    }
    Ok(())
}
