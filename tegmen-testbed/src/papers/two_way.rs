//! The plan `two-way`: the paper on two-way authentication, figure by figure. The figures of the paper are in
//! `data/two-way.toml`.
//!
//! The plan computes energies, sums, battery lives and the overhead of records from other numbers in the paper. Each
//! result must equal the figure in the paper.
//!
//! The plan also simulates round trips. The simulated motes do not support TLS_RSA_WITH_AES_128_CBC_SHA, which the
//! paper uses. So they send plain datagrams with the lengths of the records (`Protection::record_len`). The plan then
//! adds the time that the paper gives for encryption and HMAC.
//!
//! Finally, the plan computes the time and energy of Tegmen's handshakes on the processor of the paper, and shows them
//! beside the values of the paper.

pub mod architecture;
mod round_trip;

use crate::cost::{self, CYCLES_PER_INSTRUCTION, Image};
use crate::figure::{Figure, MISPRINT, Source, all_of};
use crate::platform::Platform;
pub use round_trip::{Effort, FULL};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Returns all figures of the plan `two-way`. Calls `done` with the number of finished runs and the number of all runs.
pub fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let paper = paper();
    let mut figures = energies(&paper);
    figures.extend(batteries(&paper));
    figures.extend(all_of(Source::Counted, computation(&paper)));
    figures.extend(handshake_times(&paper));
    figures.extend(overhead(&paper));
    figures.extend(round_trip::figures(&paper, effort, done));
    figures.extend(memory(&paper));
    figures
}

/// Checks table I: the energies must follow from supply voltage, current and time, and the sums must follow from the
/// energies.
fn energies(paper: &Paper) -> Vec<Figure> {
    let table = &paper.table1;
    let mut figures = Vec::new();
    let mut sums = [[0.0; 2]; 2];
    for (all, rows) in [&table.minimum, &table.idle].into_iter().enumerate() {
        for (name, row) in rows {
            for (column, handshake) in HANDSHAKES.into_iter().enumerate() {
                let energy = table.supply_v * row.ma * row.ms[column] / 1e3;
                sums[all][column] += energy;
                if row.ms[column] > 0.0 {
                    let id = format!("table1/{name}/{handshake}");
                    figures.push(Figure::follows(id, row.mj[column], energy, "mJ", PERCENT));
                }
            }
        }
    }
    let [minimum, idle] = sums;
    for (column, handshake) in HANDSHAKES.into_iter().enumerate() {
        let mut sum = |name: &str, printed: [f64; 2], ours| {
            let id = format!("table1/{name}/{handshake}");
            figures.push(Figure::follows(id, printed[column], ours, "mJ", PERCENT));
        };
        sum("total_minimum", table.total_minimum_mj, minimum[column]);
        sum("total", table.total_mj, minimum[column] + idle[column]);
    }
    figures
}

/// Returns the figures of the life of the paper's two batteries.
fn batteries(paper: &Paper) -> Vec<Figure> {
    let battery = &paper.battery;
    let joules = battery.mah * battery.volts * 3.6;
    let mut figures = vec![Figure::follows("battery/energy".into(), battery.joules, joules, "J", 0.0)];
    for (column, handshake) in HANDSHAKES.into_iter().enumerate() {
        let a_day = paper.table1.total_minimum_mj[column] / 1e3;
        let years = joules * battery.share_percent / 100.0 / a_day / DAYS;
        // The paper gives half years, with the words "more than".
        let ours = (years * 2.0).floor() / 2.0;
        let id = format!("battery/{handshake}/half_years");
        figures.push(Figure::follows(id, battery.years[column], ours, "years", 0.0));
        let why = "the same before it is rounded down";
        let id = format!("battery/{handshake}/years");
        figures.push(Figure::shown(id, None, years, "years", why).of(Source::Paper));
    }
    figures
}

/// Compares the row "computation" of table I with the instructions of Tegmen's client in a handshake.
fn computation(paper: &Paper) -> Vec<Figure> {
    let opal = Platform::find("opal").expect("a platform of the file");
    let printed = &paper.table1.minimum["computation"];
    let mut figures = Vec::new();
    for (name, image, operation, why) in [
        ("certificate_chain", "dtls_x509", "handshake client", "without a TPM: P-256 on the processor itself"),
        ("raw_public_key", "dtls_rpk", "handshake client", "without a TPM: P-256 on the processor itself"),
        ("psk", "dtls_psk", "handshake client", "no public keys, as the paper's motes without a TPM"),
        ("resumed", "dtls_resume", "resumption client", "no public keys: with the ticket of an earlier handshake"),
    ] {
        let instructions = instructions(image, operation);
        let id = |what: &str| format!("computation/{name}/{what}");
        let with_tpm = Some(printed.ms[0]).filter(|_| name == "certificate_chain");
        figures.push(Figure::shown(id("instructions"), None, instructions as f64, "instructions", why));
        for (end, cycles) in ["least", "most"].into_iter().zip(CYCLES_PER_INSTRUCTION) {
            let ms = cost::micros(instructions, cycles, opal.clock_hz) as f64 / 1e3;
            let energy = paper.table1.supply_v * printed.ma * ms / 1e3;
            figures.push(Figure::shown(id(&format!("time_{end}")), with_tpm, ms, "ms", why));
            figures.push(Figure::shown(
                id(&format!("energy_{end}")),
                with_tpm.map(|_| printed.mj[0]),
                energy,
                "mJ",
                why,
            ));
        }
    }
    let tpm: f64 =
        paper.table1.minimum.iter().filter(|(name, _)| name.starts_with("tpm")).map(|(_, row)| row.mj[0]).sum();
    let most = cost::micros(instructions("dtls_x509", "handshake client"), CYCLES_PER_INSTRUCTION[1], opal.clock_hz);
    let ours = paper.table1.supply_v * printed.ma * most as f64 / 1e6;
    let what = "the paper's TPM takes more energy for RSA of 2048 bits than a Cortex-M3 does for P-256 without one";
    figures.push(Figure::holds("computation/a_tpm_costs_more_than_p256".into(), tpm > ours, what));
    figures
}

/// Computes figure 7 from the numbers of table I. The duration of a handshake is the time for which the processor waits
/// or computes.
fn handshake_times(paper: &Paper) -> Vec<Figure> {
    let lasts = |column: usize| {
        (paper.table1.idle["cpu_idle"].ms[column] + paper.table1.minimum["computation"].ms[column]) / 1e3
    };
    let mut figures: Vec<_> = HANDSHAKES
        .into_iter()
        .enumerate()
        .map(|(column, handshake)| {
            let why = "figure 7 prints no number; this follows from table I";
            Figure::shown(format!("fig7/{handshake}/time"), None, lasts(column), "s", why).of(Source::Paper)
        })
        .collect();
    let shorter = lasts(0) - lasts(1);
    let almost = paper.figure7.shorter_without_client_s;
    let what = "a handshake without the client's certificate is shorter by almost two seconds";
    let holds = shorter < almost && shorter > 0.8 * almost;
    figures.push(Figure::holds("fig7/almost_two_seconds_shorter".into(), holds, what).of(Source::Paper));
    figures
}

/// Returns the figures of the number of bytes that a record adds to its content.
fn overhead(paper: &Paper) -> Vec<Figure> {
    let Records { header, iv, hmac, padding, max } = paper.records;
    let mut figures =
        vec![Figure::follows("overhead/sum".into(), max as f64, (header + iv + hmac + padding) as f64, BYTES, 0.0)];
    let added = |len: usize| Protection::Aes128Sha1.record_len(len) - len;
    let (least, most) = (0..1024).map(added).fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
    let mut longest = Figure::follows("overhead/most".into(), max as f64, most as f64, BYTES, 0.0);
    longest.verdict =
        format!("{MISPRINT}: the byte with the length of the padding counts as well (RFC 5246, section 6.2.3.2)");
    figures.push(longest);
    let shortest = Figure::shown("overhead/least".into(), None, least as f64, BYTES, "where no padding is needed");
    figures.push(shortest.of(Source::Paper));
    figures
}

/// Compares the memory sizes in table II with those of Tegmen's firmware images.
fn memory(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (place, what) in ["ram", "rom"].into_iter().enumerate() {
        let sum: u64 = paper.table2.values().map(|bytes| bytes[place]).sum();
        let printed = paper.table2_total.bytes[place];
        figures.push(Figure::follows(format!("table2/total/{what}"), printed as f64, sum as f64, BYTES, 0.0));
        let of = |image: &str| {
            let memory = Image::of(image).expect(BUDGET).memory;
            if place == 0 { memory.ram } else { memory.rom }
        };
        let beyond = |image: &str, base: &str| of(image) - of(base);
        let row = |name: &str| paper.table2[name][place];
        for (name, printed, ours, why) in [
            (
                "all",
                printed,
                of("dtls_x509"),
                "both ends with certificates, P-256 on the processor; without radio and system",
            ),
            (
                "dtls",
                row("dtls_messages") + row("dtls_network") + row("cryptography"),
                beyond("dtls_psk", "empty"),
                "both ends with a pre-shared key, ciphers included; the paper's with what RSA needs around the TPM",
            ),
            (
                "public_keys",
                row("tpm"),
                beyond("dtls_x509", "dtls_psk"),
                "certificates and P-256 in software; the paper's are the drivers of its TPM",
            ),
            ("ip_stack", row("ip_stack"), beyond("lowpan", "empty"), "6LoWPAN alone; BLIP routes as well"),
        ] {
            let id = format!("table2/ours/{name}/{what}");
            figures.push(Figure::shown(id, Some(printed as f64), ours as f64, BYTES, why).of(Source::Counted));
        }
    }
    figures
}

fn instructions(image: &str, operation: &str) -> u64 {
    Image::of(image).and_then(|image| image.operation(operation)).expect(BUDGET)
}

/// The protection of the datagrams in the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Protection {
    /// No protection.
    None,
    /// An HMAC with SHA-1, without encryption.
    Sha1Only,
    /// An HMAC with SHA-1, and encryption with AES-128 in CBC mode.
    Aes128Sha1,
}

impl Protection {
    /// Returns the length of a DTLS 1.2 record whose content has `content` bytes (RFC 5246, section 6.2.3; RFC 6347,
    /// section 4.1).
    const fn record_len(self, content: usize) -> usize {
        match self {
            Self::None => content,
            Self::Sha1Only => RECORD_HEADER + content + HMAC,
            // One byte more is the length of the padding.
            Self::Aes128Sha1 => RECORD_HEADER + BLOCK + (content + HMAC + 1).next_multiple_of(BLOCK),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    #[expect(dead_code, reason = "is in the file for its readers")]
    paper: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    platform: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    scenario: String,
    table1: Table1,
    battery: Battery,
    /// The rows of table II, each with the sizes of RAM and ROM in bytes.
    table2: BTreeMap<String, [u64; 2]>,
    table2_total: Total,
    records: Records,
    round_trip: RoundTrip,
    figure7: Figure7,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table1 {
    supply_v: f64,
    total_minimum_mj: [f64; 2],
    total_mj: [f64; 2],
    minimum: BTreeMap<String, Row>,
    idle: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    ma: f64,
    ms: [f64; 2],
    mj: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Battery {
    mah: f64,
    volts: f64,
    joules: f64,
    share_percent: f64,
    years: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Total {
    bytes: [u64; 2],
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Records {
    header: usize,
    iv: usize,
    hmac: usize,
    padding: usize,
    max: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundTrip {
    sha1_255_bytes_ms: f64,
    aes_255_bytes_ms: f64,
    uj_for_each_byte: f64,
    single_hop: Increases,
    four_hops: Increases,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Increases {
    aes128_sha1: Increase,
    sha1_only: Increase,
}

/// The difference between the round-trip times of protected datagrams and of datagrams without protection.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Increase {
    mean_percent: f64,
    max_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure7 {
    shorter_without_client_s: f64,
}

fn paper() -> Paper {
    toml::from_str(include_str!("../../data/two-way.toml"))
        .expect("the file is part of the program, and a test reads it")
}

/// The names of the columns of table I.
const HANDSHAKES: [&str; 2] = ["fully_authenticated", "server_authenticated"];
const DAYS: f64 = 365.0;
const RECORD_HEADER: usize = 13;
/// Length of an AES block in bytes. The initialization vector of a record has the same length.
const BLOCK: usize = 16;
/// Length of an HMAC-SHA1, in bytes.
const HMAC: usize = 20;
const BYTES: &str = "bytes";
/// Maximum difference between a number of the paper and the value that follows from other numbers of the paper, in
/// percent. The energies of table I follow from supply voltage, current and time within this limit.
const PERCENT: f64 = 0.4;
const BUDGET: &str = "the budget is part of the program, and a test reads it";

#[cfg(test)]
mod tests;
