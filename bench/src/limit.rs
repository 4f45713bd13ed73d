//! Measures the speed limit of records: the time to seal or to open a record of 64 bytes, compared with the AES
//! instructions for the same record alone.
//!
//! Every record belongs to another session than the previous record. With few sessions the CPU caches still contain the
//! key schedule of each session. With many sessions the key of each record is expanded again. In a measurement with
//! many sessions, the time of the AES instructions alone also includes the expansion of the keys.

use crate::{
    Options,
    ours::{Ours, path_at_server},
    report::{Header, Limit, Report, Row, median},
};
use std::hint::black_box;
use tegmen::address::Path;
use tegmen::identity::PeerId;
use tegmen_accel::{KeySchedule, bare_record, bare_record_expanding};
use tegmen_bench_line::{Failure, Pair, Tally, Wire, cpu_time};
use tegmen_host::slab::BATCH;

/// Runs only the measurements of this module, and returns a report with their results.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut header = Header::new(options.passes);
    header.notes.push(NOTE.into());
    Ok(Report { header, rows: rows(options.passes)?, absent: Vec::new() })
}

/// Measures with two different numbers of open sessions. Returns two rows of the report for each number: one for
/// sealing a record, and one for opening a record.
pub(crate) fn rows(passes: usize) -> Result<Vec<Row>, Failure> {
    if !tegmen_accel::is_accelerated() {
        eprintln!("this processor has no AES instructions: records at the limit are left out");
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for (count, keys, bare) in [(512, "keys cached", Bare::Cached), (100_000, "keys expanded", Bare::Expanding)] {
        let mut crowd = Crowd::new(count, bare)?;
        crowd.pass()?; // warm
        let passes = (0..passes).map(|_| crowd.pass()).collect::<Result<Vec<Pass>, Failure>>()?;
        for (verb, of) in [("sealed", (|pass| pass.seal) as fn(&Pass) -> f64), ("opened", |pass| pass.open)] {
            let column = |of: &dyn Fn(&Pass) -> f64| median(&passes.iter().map(of).collect::<Vec<_>>());
            let surplus = column(&|pass| of(pass) - 2.0 * pass.bare);
            rows.push(Row {
                ours: column(&of),
                peer: column(&|pass| pass.bare),
                ratio: column(&|pass| of(pass) / pass.bare),
                surplus,
                ..Row::new(
                    format!("64 B record {verb}, {count} sessions in turn, {keys}"),
                    "bare AES",
                    "ns",
                    Some(Limit::AtMost(SURPLUS_MAX).judge("surplus", surplus)),
                )
            });
        }
    }
    Ok(rows)
}

/// The results of one pass: the mean time for each record, in nanoseconds.
struct Pass {
    seal: f64,
    open: f64,
    bare: f64,
}

#[derive(Clone, Copy)]
enum Bare {
    Cached,
    Expanding,
}

/// A number of sessions at their client and at their server, and the keys for the measurement of the AES instructions
/// alone.
struct Crowd {
    stack: Ours,
    /// The sessions at the client. The server needs no such list, because it finds a session by the address of the
    /// datagram.
    peers: Vec<PeerId>,
    keys: Vec<[u8; 16]>,
    schedules: Vec<KeySchedule>,
    datagrams: Vec<[u8; DATAGRAM_LEN]>,
    /// The paths that the datagrams have at the server.
    paths: Vec<Path>,
    bare: Bare,
}

impl Crowd {
    fn new(count: u32, bare: Bare) -> Result<Self, Failure> {
        let mut stack = Ours::new(tegmen::dtls::Config::default())?;
        let (mut wire, mut tally, mut opened) = (Wire::default(), Tally::default(), [0; 64]);
        let mut peers = Vec::new();
        for _ in 0..count {
            let mut pair = Pair::establish(&mut stack, &mut wire, &mut tally)?;
            pair.transfer(&mut wire, &mut tally, &PAYLOAD, &mut opened)?;
            if opened != PAYLOAD {
                return Err(Failure::new("a record came out changed"));
            }
            peers.push(pair.client.keep()?);
            pair.server.keep()?;
        }
        let keys: Vec<[u8; 16]> = (0..count).map(|i| u128::from(i).to_le_bytes()).collect();
        let schedules = match bare {
            Bare::Cached => keys.iter().map(KeySchedule::expand).collect(),
            Bare::Expanding => Vec::new(),
        };
        Ok(Self { stack, peers, keys, schedules, datagrams: vec![[0; DATAGRAM_LEN]; CHUNK], paths: Vec::new(), bare })
    }

    /// Seals and opens at least [`RECORDS`] records. Each session gets the same number of records.
    fn pass(&mut self) -> Result<Pass, Failure> {
        let (mut seal, mut open, mut records) = (0.0, 0.0, 0);
        let turns = RECORDS.div_ceil(self.peers.len());
        for _ in 0..turns {
            for chunk in (0..self.peers.len()).step_by(CHUNK) {
                let end = self.peers.len().min(chunk + CHUNK);
                seal += nanoseconds(|| self.seal(chunk..end))?;
                self.paths.clear();
                self.paths.extend((chunk..end).map(|session| path_at_server(session as u32 + 1)));
                open += nanoseconds(|| self.open())?;
                records += end - chunk;
            }
        }
        let bare = nanoseconds(|| {
            (0..turns).for_each(|_| self.bare());
            Ok(())
        })?;
        let each = |spent: f64| spent / records as f64;
        Ok(Pass { seal: each(seal), open: each(open), bare: each(bare) })
    }

    fn seal(&mut self, sessions: std::ops::Range<usize>) -> Result<(), Failure> {
        let node = &mut self.stack.client.borrow_mut().node;
        for (peer, datagram) in self.peers[sessions].iter().zip(&mut self.datagrams) {
            node.seal_into(*peer, &PAYLOAD, datagram)?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), Failure> {
        let node = &mut self.stack.server.borrow_mut().node;
        for (paths, datagrams) in self.paths.chunks(BATCH).zip(self.datagrams.chunks_mut(BATCH)) {
            // As a server does with the datagrams that it receives at once.
            node.prefetch(paths);
            for (path, datagram) in paths.iter().zip(datagrams) {
                if node.open(path, datagram)?.len() != PAYLOAD.len() {
                    return Err(Failure::new("a record came out with another length"));
                }
            }
        }
        Ok(())
    }

    /// Executes the AES rounds of one record with each key. As in Tegmen's stack, the blocks of a record do not wait
    /// for the blocks of another record.
    fn bare(&self) {
        match self.bare {
            Bare::Cached => self.schedules.iter().for_each(|schedule| {
                black_box(bare_record(schedule, *black_box(&BLOCK)));
            }),
            Bare::Expanding => self.keys.iter().for_each(|key| {
                black_box(bare_record_expanding(key, *black_box(&BLOCK)));
            }),
        }
    }
}

/// Returns the CPU time that `work` needs, in nanoseconds.
pub(crate) fn nanoseconds(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = cpu_time()?;
    work()?;
    Ok(cpu_time()?.saturating_sub(start).as_nanos() as f64)
}

/// The note in the report that explains the numbers `ours`, `peer` and `surplus` in the rows of this module.
pub(crate) const NOTE: &str = "records at the limit: ours is the mean time of one seal or of one open through our \
                               endpoint, each record of another session than the one before; peer is the AES rounds \
                               of the same record and, where keys are expanded, the expansion; surplus is ours \
                               without twice the peer's";
/// Maximum difference between the time of a record and twice the time of its AES instructions alone, in nanoseconds.
const SURPLUS_MAX: f64 = 60.0;
/// Minimum number of records in a pass.
const RECORDS: usize = 100_000;
/// Number of records that are sealed before they are opened.
const CHUNK: usize = 512;
const PAYLOAD: [u8; 64] = [0x5a; 64];
const BLOCK: [u8; 16] = [0; 16];
/// Length in bytes of a record with a content of 64 bytes: header, explicit nonce, content and tag.
pub(crate) const DATAGRAM_LEN: usize = 64 + tegmen::dtls::record::OVERHEAD;
