//! Compares records of an Axiom group with the group protection of other stacks. The traffic is the same, and in each
//! pass the stacks are measured in turn.

use super::records::{Group, MANY, SIZES, Traffic, rate};
use crate::{
    program::{peer_binary, python},
    report::{Absent, OURS, Report, Row, Samples},
};
use std::{path::Path, process::Command};
use tegmen::{
    axiom::Suite,
    crypto::{DIGEST_LEN, KEY_LEN},
};
use tegmen_bench_line::Failure;

/// The program of another stack. The command `version` prints the version of the stack. Any other command runs a number
/// of turns, and prints their CPU time. A turn seals and opens one record for each of the [`MANY`] members.
struct Peer {
    name: &'static str,
    install: &'static str,
    /// Number of turns in a pass.
    turns: u32,
    /// The command line that starts the program, or the reason why the program cannot be started.
    words: Result<Vec<String>, Failure>,
}

/// The description of a row: Tegmen's suite, the name of the protection, the kind of traffic, and the arguments with
/// which the program of the other stack measures the same kind of traffic.
type Kind = (Suite, &'static str, Traffic, &'static [&'static str]);

/// The rows that compare Tegmen with wolfSSL. The only suite that wolfSSL has especially for multicast does not
/// encrypt. wolfSSL accepts no suite with a pre-shared key for multicast. So the program uses suites with ECDHE_ECDSA.
/// Their records have the same form as the records of the suites with a pre-shared key.
const OF_WOLFSSL: [Kind; 6] = [
    (Suite::MacOnly, "HMAC-SHA-256, no encryption", Traffic::Requests, &["requests", "00fe"]),
    (Suite::MacOnly, "HMAC-SHA-256, no encryption", Traffic::OneRequest, &["one", "00fe"]),
    (Suite::Ccm8, "CCM_8", Traffic::Requests, &["requests", "c0ae"]),
    (Suite::Ccm8, "CCM_8", Traffic::OneRequest, &["one", "c0ae"]),
    (Suite::Ccm, "CCM", Traffic::Requests, &["requests", "c0ac"]),
    (Suite::Ccm, "CCM", Traffic::OneRequest, &["one", "c0ac"]),
];
/// The rows that compare Tegmen with aiocoap. The Group OSCORE of aiocoap signs a request, and protects a response with
/// a key that only two members have.
const OF_AIOCOAP: [Kind; 2] = [
    (Suite::Ccm8, "CCM with 8 bytes of tag, the peer signs", Traffic::Requests, &["requests"]),
    (Suite::Ccm8, "CCM with 8 bytes of tag", Traffic::Responses, &["responses"]),
];

/// Adds the rows of all other stacks to the report.
pub(super) fn rows(passes: usize, report: &mut Report) -> Result<(), Failure> {
    let wolfssl = Peer {
        name: "wolfssl",
        install: "apt-get install autoconf automake libtool && bench/setup.sh wolfssl-mcast",
        turns: 500,
        words: peer_binary("tegmen-bench-wolfssl-mcast").map(|path| vec![path.to_string_lossy().into_owned()]),
    };
    wolfssl.rows(&OF_WOLFSSL, passes, report)?;
    let aiocoap = Peer { name: "aiocoap", install: "bench/setup.sh aiocoap", turns: 20, words: aiocoap() };
    aiocoap.rows(&OF_AIOCOAP, passes, report)
}

fn aiocoap() -> Result<Vec<String>, Failure> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/aiocoap/group.py");
    Ok([python()?, script].map(|path| path.to_string_lossy().into_owned()).to_vec())
}

impl Peer {
    fn rows(&self, kinds: &[Kind], passes: usize, report: &mut Report) -> Result<(), Failure> {
        match self.ask(&["version"]) {
            Ok(version) => drop(report.header.versions.insert(self.name, version)),
            Err(Failure(reason)) => self.is_absent(reason, report),
        }
        for (kind, size) in kinds.iter().flat_map(|kind| SIZES.map(|size| (kind, size))) {
            self.row(kind, size, passes, report)?;
        }
        Ok(())
    }

    fn row(&self, kind: &Kind, size: usize, passes: usize, report: &mut Report) -> Result<(), Failure> {
        let (suite, how, traffic, words) = *kind;
        let operation = format!("{}, {size} B, {how}", traffic.said());
        eprintln!("{operation}, beside {}", self.name);
        let (size_word, many, turns) = (size.to_string(), MANY.to_string(), self.turns.to_string());
        let words = [words, &[&many, &size_word, &turns]].concat();
        let content = vec![0x5a; size];
        let mut ours: Box<dyn FnMut() -> Result<f64, Failure>> = match suite {
            Suite::MacOnly => {
                let mut group = Group::<DIGEST_LEN>::new(suite)?;
                Box::new(move || rate(|| group.turn(traffic, &content)))
            }
            _ => {
                let mut group = Group::<KEY_LEN>::new(suite)?;
                Box::new(move || rate(|| group.turn(traffic, &content)))
            }
        };
        let mut samples = Samples::new(operation.clone(), "1/CPU s", true);
        let mut is_present = self.words.is_ok();
        for pass in 0..passes {
            for turn in 0..2 {
                if (pass + turn) % 2 == 0 {
                    samples.push(OURS, ours()?);
                } else if is_present {
                    match self.rate(&words) {
                        Ok(rate) => samples.push(self.name, rate),
                        Err(Failure(reason)) => {
                            is_present = false;
                            self.is_absent(format!("{operation}: {reason}"), report);
                        }
                    }
                }
            }
        }
        report.rows.extend(samples.rows().into_iter().map(|row| Row { peer_name: self.name, ..row }));
        Ok(())
    }

    fn is_absent(&self, reason: String, report: &mut Report) {
        report.absent.push(Absent { name: self.name, reason, install: self.install.into() });
    }

    /// Returns the number of records for each CPU second.
    fn rate(&self, words: &[&str]) -> Result<f64, Failure> {
        let said = self.ask(words)?;
        let nanoseconds = said.strip_prefix("nanoseconds ").and_then(|number| number.parse::<f64>().ok());
        let nanoseconds = nanoseconds.ok_or_else(|| Failure::new(said.clone()))?;
        Ok(MANY as f64 * f64::from(self.turns) * 1e9 / nanoseconds)
    }

    fn ask(&self, words: &[&str]) -> Result<String, Failure> {
        let program = self.words.clone()?;
        let output = Command::new(&program[0]).args(&program[1..]).args(words).output();
        let output = output.map_err(|error| Failure::new(format!("{}: {error}", program[0])))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(Failure::new(said(&output.stderr))) }
    }
}
