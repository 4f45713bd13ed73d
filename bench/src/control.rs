//! Measures the store of an access control server. Compares the number of tokens that the server grants in a second
//! with the number of rows that SQLite alone writes. Also measures a store with a million devices.

use crate::{
    Options,
    failure::failure,
    introspections,
    report::{Header, Limit, OURS, Report, Row, Samples},
    scene::{Scene, device},
};
use rusqlite::{Connection, params};
use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Arc,
    time::Instant,
};
use tegmen_bench_line::Failure;
use tegmen_control::{
    access::{
        ace::{Aif, Right, Scope, TokenRequest},
        protokey::Mode,
    },
    service::Service,
    state::Credential,
};
use tegmen_store::Database;
use tokio::{runtime::Runtime, task::JoinSet};

/// Number of grants that wait for their answers at the same time. The server can write all of them in one commit, so
/// SQLite alone also writes this number of rows in one commit.
const IN_FLIGHT: usize = 512;
/// Number of batches in one pass. A batch has [`IN_FLIGHT`] grants.
const BATCHES: usize = 10;
/// Maximum size of a database with a million devices, in bytes.
const BYTES_MAX: f64 = 450e6;
/// Maximum time that a server with a million devices needs to start, in seconds.
const START_MAX: f64 = 5.0;
/// Lower limit for the number of tokens that the server grants in a second, divided by the number of rows that SQLite
/// alone writes in a second.
const GRANTS_MIN: f64 = 0.6;

/// Measures the rate of grants, the size of a database with many devices, and the time that a server needs to start.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let scene = Scene::new()?;
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    report.header.versions.insert("SQLite", rusqlite::version().to_owned());
    report.header.notes.push(format!(
        "grants: {IN_FLIGHT} at once, one commit for all that wait; each waits for its commit (WAL, synchronous=FULL) and its line of the audit log; bare SQLite \
         commits {IN_FLIGHT} rows of as many bytes, and appends and syncs {IN_FLIGHT} lines"
    ));
    introspections::measure(&scene.0, options, &mut report)?;
    grants(&scene, options, &mut report)?;
    devices(&scene, options.count.unwrap_or(1_000_000), &mut report)?;
    Ok(report)
}

/// Measures the number of tokens that are granted in a second, and the number of rows that SQLite alone writes in a
/// second.
fn grants(scene: &Scene, options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("grants");
    let (service, ..) = scene.service()?;
    let mut bare = Bare::new(&scene.0)?;
    let mut samples = Samples::new("durable grants of tokens", "1/s", true);
    samples.demanded.0 = Some(GRANTS_MIN);
    for pass in 0..options.passes {
        for turn in 0..2 {
            match (pass + turn) % 2 {
                0 => samples.push(OURS, granted(&scene.1, &service)?),
                _ => samples.push("bare SQLite", bare.measure()?),
            }
        }
    }
    report.rows.extend(samples.rows());
    Ok(())
}

fn granted(runtime: &Runtime, service: &Arc<Service<Database>>) -> Result<f64, Failure> {
    let scope = Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }]));
    let request = TokenRequest { audience: Some("oven".to_owned()), scope: Some(scope), ..TokenRequest::default() };
    let request: Arc<[u8]> = request.encode().to_vec().into();
    let ask = || {
        let (service, request) = (Arc::clone(service), Arc::clone(&request));
        async move { service.token(Some("display"), &request).await.code }
    };
    let begin = Instant::now();
    runtime.block_on(async {
        let (mut all, mut left) = (JoinSet::new(), BATCHES * IN_FLIGHT);
        loop {
            while left > 0 && all.len() < IN_FLIGHT {
                all.spawn(ask());
                left -= 1;
            }
            let Some(code) = all.join_next().await else { return Ok(()) };
            let code = code.map_err(failure)?;
            if !code.is_success() {
                return Err(Failure::new(format!("a grant was answered with {code}")));
            }
        }
    })?;
    Ok((BATCHES * IN_FLIGHT) as f64 / begin.elapsed().as_secs_f64())
}

/// A SQLite database and a log file that are used without Tegmen. They are compared with Tegmen's store and audit log.
struct Bare {
    connection: Connection,
    log: File,
    next: u64,
}

impl Bare {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(dir.join("bare.db")).map_err(failure)?;
        let set = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                   CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";
        connection.execute_batch(set).map_err(failure)?;
        let log = OpenOptions::new().create(true).append(true).open(dir.join("bare.log")).map_err(failure)?;
        Ok(Self { connection, log, next: 0 })
    }

    /// Returns the number of grants that become durable in a second. A grant is durable when its row in the database
    /// and its line in the log file are durable.
    fn measure(&mut self) -> Result<f64, Failure> {
        let begin = Instant::now();
        for _ in 0..BATCHES {
            let transaction = self.connection.transaction().map_err(failure)?;
            {
                let mut insert = transaction.prepare_cached("INSERT INTO rows VALUES (?1, ?2)").map_err(failure)?;
                for _ in 0..IN_FLIGHT {
                    self.next += 1;
                    // As random as the names of sessions are.
                    let key = format!("session/oven;{:016x}", self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    insert.execute(params![key.as_bytes(), [7_u8; 120]]).map_err(failure)?;
                }
            }
            transaction.commit().map_err(failure)?;
            let line = [b'x'; 255];
            let lines: Vec<u8> = line.into_iter().chain([b'\n']).cycle().take(256 * IN_FLIGHT).collect();
            self.log.write_all(&lines).and_then(|()| self.log.sync_data()).map_err(failure)?;
        }
        Ok((BATCHES * IN_FLIGHT) as f64 / begin.elapsed().as_secs_f64())
    }
}

/// Measures the size of a database with `count` devices, and the time that a server needs to open this database when it
/// starts.
fn devices(scene: &Scene, count: u32, report: &mut Report) -> Result<(), Failure> {
    eprintln!("{count} devices");
    let state = Arc::new(scene.state("devices.db")?);
    let sensors = (0..count).map(|number| {
        let words = format!("sensor-{number:07} tag:building-{:03} tag:sensor", number % 500);
        device(&words, Credential::Protokey(Mode::Bound))
    });
    scene.at_once(sensors, |new| {
        let state = Arc::clone(&state);
        async move { state.add(&new).await.map(drop).map_err(failure) }
    })?;
    drop(state);
    let bytes = fs::metadata(scene.file("devices.db")).map_err(failure)?.len() as f64;
    let begin = Instant::now();
    let state = scene.state("devices.db")?;
    let seconds = begin.elapsed().as_secs_f64();
    let last = format!("sensor-{:07}", count.saturating_sub(1));
    if state.view().device(&last).is_none() {
        return Err(Failure::new(format!("{last} is missing after a start")));
    }
    for (operation, unit, number, limit) in
        [("database", "bytes", bytes, BYTES_MAX), ("start of a server", "s", seconds, START_MAX)]
    {
        let judged = (count == 1_000_000).then(|| Limit::AtMost(limit).judge("ours", Some(number)));
        let row = Row::new(format!("{operation}, {count} devices with protokeys and two tags"), "none", unit, judged);
        report.rows.push(Row { ours: Some(number), ..row });
    }
    Ok(())
}
