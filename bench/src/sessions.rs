//! Measures a table with many sessions: the memory for each session, and the time of a search for one session.
//!
//! Every session comes from a real handshake, and has carried one record. The state of the session at the client is
//! then removed, because the memory of the server is measured. The function [`speaking`] instead sends requests to
//! `tegmen serve`. The memory of `tegmen serve` contains the CoAP state of its peers, too.

use crate::{
    Options,
    addresses::{Kind, Server, Way},
    limit::{DATAGRAM_LEN, nanoseconds},
    ours::{Node, Ours, path_at_server},
    program::CANDIDATES,
    report::{Absent, Header, Limit, Report, Row},
};
use std::hint::black_box;
use tegmen::{
    coap::Code,
    dtls::Config,
    endpoint::{Peers, Phase},
    identity::PeerId,
    time::{Duration, Instant},
};
use tegmen_bench_line::{Command, Failure, Pair, Reply, Stack, Tally, Wire, heap_in_use};

/// Opens the requested number of sessions, and measures them.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    if options.speaking {
        return speaking(options.count.unwrap_or(SPEAKING));
    }
    let count = options.count.unwrap_or(SILENT);
    let mut report = Report { header: Header::new(1), rows: Vec::new(), absent: Vec::new() };
    report.header.notes.push(format!("{count} sessions, each from a handshake, clients dropped"));
    let mut crowd = Crowd::new(count)?;
    report.header.versions.insert("ours", crowd.stack.version());

    let bytes = crowd.bytes() as f64 / f64::from(count);
    let (peer_name, peer) = leanest_peer(&mut report);
    let mut rows = vec![
        Row {
            peer,
            ratio: peer.map(|peer| bytes / peer),
            ..row("bytes_per_session", peer_name, "B", bytes, at_most(256.0))
        },
        row("bytes_per_session_by_allocator", "none", "B", crowd.heap as f64 / f64::from(count), at_most(256.0)),
    ];
    eprintln!("searching");
    rows.push(row("find_by_address_ns", "none", "ns", crowd.find()?, below(1000.0)));
    rows.push(row("open_record_ns", "none", "ns", crowd.open()?, None));
    eprintln!("alarms");
    let alarms = crowd.alarms()?;
    rows.push(row("next_deadline_ns", "none", "ns", alarms.mean, below(1000.0)));
    rows.push(row("next_deadline_longest_100_ns", "none", "ns", alarms.longest, None));
    report.rows = rows;
    report.header.notes.extend([
        "bytes_per_session: entries, index, timers, handshakes and key schedules, divided by the sessions; peer is the \
         leanest of the peers, the heap of one session at its server"
            .into(),
        "find_by_address_ns: each search begins when the one before has ended; find and open take sessions at random"
            .into(),
        "next_deadline_ns: ask for the next alarm, take it, set it again a day later, until all have rung; now and then \
         one has to sort many into finer slots, and the longest hundred are beside it"
            .into(),
    ]);
    Ok(report)
}

/// Measures the memory of `tegmen serve` for each session that has sent a request in the last EXCHANGE_LIFETIME (247 s;
/// RFC 7252, section 4.8.2). The rows show by how much the memory grows with the handshake, the first request and the
/// second request.
fn speaking(count: u32) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(1), rows: Vec::new(), absent: Vec::new() };
    let all = FIRST + count;
    let mut server = Server::begin(Kind::Ours, Way::Dtls, all)?;
    // By the time these sessions have spoken, the server has allocated everything that it allocates only once.
    server.clients.connect(0..FIRST)?;
    server.clients.put()?;
    server.clients.each_once(0..FIRST, method)?;
    let mut grown = vec![server.process.memory()?];
    eprintln!("{count} handshakes");
    server.clients.connect(FIRST..all)?;
    grown.push(server.process.memory()?);
    let begin = std::time::Instant::now();
    for _ in 0..2 {
        eprintln!("{count} requests");
        server.clients.each_once(FIRST..all, method)?;
        grown.push(server.process.memory()?);
    }
    if begin.elapsed() >= std::time::Duration::from_secs(247) {
        return Err(Failure::new("the requests took longer than EXCHANGE_LIFETIME: fewer sessions, by --count"));
    }
    let each = |from: usize, to: usize| grown[to].saturating_sub(grown[from]) as f64 / f64::from(count);
    report.rows = vec![
        row("bytes of a session that asked once", "none", "B", each(0, 2), at_most(768.0)),
        row("of these: of the session, before it asks", "none", "B", each(0, 1), at_most(256.0)),
        row("of these: of CoAP, for the first request", "none", "B", each(1, 2), None),
        row("bytes more for the second request", "none", "B", each(2, 3), None),
    ];
    report.header.notes.push(format!(
        "{count} sessions of `tegmen serve`, DTLS with PSK, an address each, behind {FIRST} others; each tenth request is a \
         POST, the others GET a value; anonymous memory of the process, {} bytes before the first of them; both requests of \
         all within {} s",
        grown[0],
        begin.elapsed().as_secs()
    ));
    Ok(report)
}

/// Returns the method of the request with this number. Each tenth request is a POST, which must not be executed twice.
const fn method(asked: u64) -> Code {
    if asked % 10 == 9 { Code::POST } else { Code::GET }
}

fn row(operation: &str, peer_name: &'static str, unit: &'static str, ours: f64, limit: Option<Limit>) -> Row {
    Row { ours: Some(ours), ..Row::new(operation, peer_name, unit, limit.map(|limit| limit.judge("ours", Some(ours)))) }
}

fn at_most(limit: f64) -> Option<Limit> {
    Some(Limit::AtMost(limit))
}

fn below(limit: f64) -> Option<Limit> {
    Some(Limit::Below(limit))
}

/// Returns the peer whose server needs the least memory for a session, and the number of bytes. Returns `none` and
/// `None` if no peer was measured.
fn leanest_peer(report: &mut Report) -> (&'static str, Option<f64>) {
    let mut least: Option<(&'static str, u64)> = None;
    for candidate in CANDIDATES.iter().skip(1) {
        match candidate.ask_once(Command::Heap(2_000)) {
            Ok(Reply::Heap { server, .. }) => {
                if least.is_none_or(|(_, known)| server < known) {
                    least = Some((candidate.name, server));
                }
            }
            other => report.absent.push(Absent {
                name: candidate.name,
                reason: other.map_or_else(|failure| failure.0, |reply| reply.to_string()),
                install: candidate.install.to_owned(),
            }),
        }
    }
    least.map_or(("none", None), |(name, bytes)| (name, Some(bytes as f64)))
}

/// A Tegmen server with many open DTLS sessions. For some of these sessions this value also contains an encrypted DTLS
/// record that the client of the session made for the server.
struct Crowd {
    stack: Ours,
    count: u32,
    /// Heap memory in bytes after all sessions are open. The endpoint of the clients is counted too, but without
    /// sessions, because its sessions were removed.
    heap: i64,
    /// Encrypted records that clients send, for some of all sessions. Each entry has the number of the client, and the
    /// datagram that contains the record.
    records: Vec<(u32, [u8; DATAGRAM_LEN])>,
    random: u64,
}

struct Alarms {
    mean: f64,
    longest: f64,
}

impl Crowd {
    fn new(count: u32) -> Result<Self, Failure> {
        let (mut wire, mut tally) = (Wire::default(), Tally::default());
        let (mut records, mut opened) = (Vec::with_capacity(SAMPLES), [0; 64]);
        let step = (count as usize / SAMPLES).max(1);
        let before = heap_in_use();
        let mut stack = Ours::new(Config { idle_timeout: IDLE, ..Config::default() })?;
        for done in 0..count {
            if done.is_multiple_of((count / 20).max(1)) {
                eprintln!("{done} of {count} sessions");
            }
            let mut pair = Pair::establish(&mut stack, &mut wire, &mut tally)?;
            pair.transfer(&mut wire, &mut tally, b"hold", &mut opened)?;
            pair.server.keep()?;
            let client = pair.client.keep()?;
            let Node { now, endpoint, .. } = &mut stack.server.borrow_mut().node;
            *now = now.after_millis(1);
            let at_client = &mut stack.client.borrow_mut().node;
            at_client.now = *now;
            if (done as usize).is_multiple_of(step) && records.len() < SAMPLES {
                let mut datagram = [0; DATAGRAM_LEN];
                at_client.seal_into(client, &[0x5a; 64], &mut datagram)?;
                records.push((done + 1, datagram));
            }
            at_client.endpoint.peers.remove(client);
            if endpoint.peers.len() as u32 != done + 1 {
                return Err(Failure::new("a session was lost"));
            }
        }
        Ok(Self { stack, count, heap: heap_in_use() - before, records, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Returns the size of the server's tables and caches in bytes. The tables and caches compute their sizes
    /// themselves.
    fn bytes(&self) -> usize {
        let Node { endpoint, environment, .. } = &self.stack.server.borrow().node;
        endpoint.peers.bytes() + environment.crypto.cache_bytes()
    }

    /// Searches for sessions by their addresses. Each search depends on the session that the previous search found.
    /// Returns the mean time of a search in nanoseconds.
    fn find(&mut self) -> Result<f64, Failure> {
        let peers = &self.stack.server.borrow().node.endpoint.peers;
        let mut found = PeerId::new(0, 0);
        let spent = nanoseconds(|| {
            for turn in 0..SEARCHES {
                let mixed = (u64::from(found.index) << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let session = (((mixed >> 32) * u64::from(self.count)) >> 32) as u32 + 1;
                let path = path_at_server(session);
                found = peers.find(&path, Phase::Established).ok_or_else(|| Failure::new("a session was lost"))?;
            }
            black_box(found);
            Ok(())
        })?;
        Ok(spent / SEARCHES as f64)
    }

    /// Opens the stored records in random order. Returns the mean time for a record in nanoseconds.
    fn open(&mut self) -> Result<f64, Failure> {
        for last in (1..self.records.len()).rev() {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.records.swap(last, (self.random >> 33) as usize % (last + 1));
        }
        let node = &mut self.stack.server.borrow_mut().node;
        let count = self.records.len();
        let spent = nanoseconds(|| {
            self.records
                .iter_mut()
                .try_for_each(|(session, datagram)| node.open(&path_at_server(*session), datagram).map(|_| ()))
        })?;
        Ok(spent / count as f64)
    }

    /// Lets the alarm of every session fire once, and sets it again. The alarms fire in batches of [`PART`] alarms.
    /// Returns the mean CPU time for one alarm, and the longest CPU time for one batch, in nanoseconds.
    fn alarms(&mut self) -> Result<Alarms, Failure> {
        let Node { endpoint, now, .. } = &mut self.stack.server.borrow_mut().node;
        let (mut longest, mut rung) = (0.0_f64, 0);
        let mut part = |now: &mut Instant| {
            for _ in 0..PART {
                let next = endpoint.next_alarm().ok_or_else(|| Failure::new("an alarm was lost"))?;
                *now = next.max(*now);
                if let Some(id) = endpoint.peers.take_due(*now) {
                    endpoint.peers.schedule(id, now.after(IDLE));
                    rung += 1;
                }
            }
            Ok(rung)
        };
        let (mut spent, mut all) = (0.0, 0);
        while all < self.count {
            let this = nanoseconds(|| part(now).map(|rung| all = rung))?;
            longest = longest.max(this);
            spent += this;
        }
        Ok(Alarms { mean: spent / f64::from(all), longest })
    }
}

/// Default number of sessions in the table whose memory and search time are measured.
const SILENT: u32 = 1_000_000;
const SPEAKING: u32 = 1_000_000;
/// Number of sessions that send a request before [`speaking`] opens the measured sessions.
const FIRST: u32 = 2_000;
/// The idle timeout of sessions. It ends long after the last handshake.
const IDLE: Duration = Duration::from_secs(86_400);
/// Maximum number of sessions from which a record is stored.
const SAMPLES: usize = 10_000;
const SEARCHES: u64 = 200_000;
/// Number of alarms (timer events of sessions) between two readings of the CPU time.
const PART: u32 = 100;
