//! Counts the instructions of a record, a handshake and a request, and compares them with the values of an earlier
//! commit: `./ci.sh instructions`.
//!
//! The program starts itself under `valgrind --tool=callgrind`, which counts only the instructions in [`counted`]. Each
//! row is counted for two numbers of repetitions. The difference is divided by the additional repetitions, so that work
//! that is done once does not count. The input and the random numbers are fixed. No row may exceed its value in
//! `bench/instructions.json` by more than two percent. `--json` prints the values in the form of that file.

#[path = "../callgrind/mod.rs"]
mod callgrind;
mod ends;

use callgrind::{Failure, instructions};
use ends::Pair;
use std::hint::black_box;
use std::process::ExitCode;
use tegmen::buf::Frame;
use tegmen::dtls::record::ContentType;
use tegmen::dtls::{Channel, CipherSuite, Records};
use tegmen::endpoint::{MAX_HEADROOM, MAX_TAILROOM};
use tegmen_host::provider::HostCrypto;

/// The name of a row, and a function that repeats its work the given number of times.
type Row = (&'static str, fn(u32));

const ROWS: [Row; 10] = [
    ("GET over DTLS, server", get),
    ("PSK handshake, both ends", handshake),
    ("seal 64 B, CCM_8", |times| seal(CCM_8, 64, times)),
    ("open 64 B, CCM_8", |times| open(CCM_8, 64, times)),
    ("seal 1024 B, CCM_8", |times| seal(CCM_8, 1024, times)),
    ("open 1024 B, CCM_8", |times| open(CCM_8, 1024, times)),
    ("seal 64 B, GCM", |times| seal(GCM, 64, times)),
    ("open 64 B, GCM", |times| open(GCM, 64, times)),
    ("seal 1024 B, GCM", |times| seal(GCM, 1024, times)),
    ("open 1024 B, GCM", |times| open(GCM, 1024, times)),
];
const CCM_8: CipherSuite = CipherSuite::PSK_WITH_AES_128_CCM_8;
const GCM: CipherSuite = CipherSuite::PSK_WITH_AES_128_GCM_SHA256;
/// Number of repetitions in the shorter run of a row, and number of additional repetitions in the longer run.
const TIMES: (u32, u32) = (20, 100);
/// Maximum percentage by which a row may exceed its earlier value.
const LIMIT: f64 = 2.0;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &words[..] {
        [row, times] => repeat(row, times).map(|()| true),
        [word] if word == "--json" => values().and_then(|counts| as_json(&counts)).map(|()| true),
        _ => values().and_then(|counts| compare(&counts)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

// --- what is counted ---

/// Calls `work`. Callgrind counts the instructions of this function.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn repeat(row: &str, times: &str) -> Result<(), Failure> {
    let (_, work) = ROWS.iter().find(|(name, _)| *name == row).ok_or("no such row")?;
    work(times.parse()?);
    Ok(())
}

fn get(times: u32) {
    let mut pair = Pair::new(1);
    pair.handshake();
    for number in 0..WARM + times {
        let mut request = pair.request(number as u16);
        let mut out = [0; 1500];
        let len = match number < WARM {
            true => pair.answer(&mut request, &mut out),
            false => counted(|| pair.answer(&mut request, &mut out)),
        };
        pair.expect_content(&mut out[..len]);
    }
}

/// Number of requests before the first counted request. It exceeds the number of replies that the server stores.
const WARM: u32 = 64;

fn handshake(times: u32) {
    for seed in 0..times {
        let mut pair = Pair::new(seed as u8);
        counted(|| pair.handshake());
    }
}

fn channels(suite: CipherSuite) -> [Channel; 2] {
    let block: Vec<u8> = (0..40).collect();
    [true, false].map(|client| suite.channel(false, &block, client).expect("keys of a known suite"))
}

fn seal(suite: CipherSuite, len: usize, times: u32) {
    records(suite, len, times, |frame, work| counted(|| work(frame)), |work| work());
}

fn open(suite: CipherSuite, len: usize, times: u32) {
    records(suite, len, times, |frame, work| work(frame), |work| counted(work));
}

/// Seals records with a content of `len` bytes, and opens them again.
fn records(
    suite: CipherSuite,
    len: usize,
    times: u32,
    sealing: impl Fn(&mut Frame<'_>, &mut dyn FnMut(&mut Frame<'_>)),
    opening: impl Fn(&mut dyn FnMut()),
) {
    let [mut client, mut server] = channels(suite);
    let mut crypto = HostCrypto::new([7; 32], 16);
    let mut other = HostCrypto::new([8; 32], 16);
    let content = vec![0x55; len];
    for _ in 0..times {
        let mut storage = vec![0; MAX_HEADROOM + len + MAX_TAILROOM];
        let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
        frame.append(&content).expect("space for it");
        sealing(&mut frame, &mut |frame| {
            client.seal(&mut crypto, ContentType::APPLICATION_DATA, frame).expect("space for a tag");
        });
        let mut record = frame.finish().to_vec();
        let mut opened = 0;
        opening(&mut || {
            let mut records = Records::new(&mut record);
            let record = records.next_record().expect("a record").expect("with a header");
            opened = server.open(&mut other, record).expect("authentic").len();
        });
        assert_eq!(opened, len);
    }
}

// --- the counting ---

fn values() -> Result<Vec<(&'static str, f64)>, Failure> {
    let (few, more) = TIMES;
    let mut counts = Vec::new();
    for (name, _) in ROWS {
        let difference =
            instructions("instructions", name, few + more)?.checked_sub(instructions("instructions", name, few)?);
        counts.push((name, difference.ok_or("fewer instructions for more work")? as f64 / f64::from(more)));
    }
    Ok(counts)
}

fn as_json(counts: &[(&str, f64)]) -> Result<(), Failure> {
    let rows: serde_json::Map<_, _> =
        counts.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect();
    println!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

/// Prints each row with its earlier value. Returns true if all rows are within the limit.
fn compare(counts: &[(&str, f64)]) -> Result<bool, Failure> {
    if !tegmen_accel::is_accelerated() {
        return Err(
            "instructions.json has the values of a CPU with AES instructions, which this one does not have".into()
        );
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/instructions.json");
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let commit = file["commit"].as_str().ok_or("instructions.json names no commit")?;
    println!("{:26} {commit:>10} {:>10}", "instructions", "today");
    let mut within = true;
    for (name, count) in counts {
        let before = file["rows"][name].as_f64().ok_or_else(|| format!("instructions.json has no row {name}"))?;
        let is_within = *count <= before * (1.0 + LIMIT / 100.0);
        let note = if is_within { "" } else { "  above the limit" };
        within &= is_within;
        println!("{name:26} {before:10.1} {count:10.1} {:+6.2} %{note}", (count / before - 1.0) * 100.0);
    }
    Ok(within)
}
