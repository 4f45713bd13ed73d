//! Measures OSCORE: a GET and its response, compared with libOSCORE. The client and the server run in one thread. Each
//! of them protects one of the two messages and opens the other.

mod group;

use crate::{
    Options,
    program::{counts_instructions, instructions, peer_binary},
    report::{Absent, BASE, Header, Instructions, Judged, Limit, OURS, Report, Row, Samples, median},
};
use std::{env, path::Path, process::Command};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber};
use tegmen::oscore::{Aead, Context, OVERHEAD, Parameters, Unprotected};
use tegmen_bench_line::{Failure, cpu_time};
use tegmen_host::provider::HostCrypto;

const PEER: &str = "liboscore";
const INSTALL: &str = "apt-get install libclang-dev && bench/setup.sh liboscore";
const READING: [u8; 16] = *b"21.5 degrees C  ";
/// Number of pairs of a GET and its response in one pass.
const COUNT: u32 = 200_000;
/// Number of pairs of a GET and its response in one pass, if two commits of Tegmen are compared.
const COMPARED: u32 = 50_000;
/// Numbers of pairs (a GET and its response) in the two runs that count instructions. The number of instructions for a
/// pair is the difference between the instructions of the two runs, divided by the difference between the two numbers
/// of pairs.
const COUNTED: (u32, u32) = (100, 1_100);

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    report.header.notes.push(
        "a pair is a GET with a path of two segments and a response of 16 bytes: built, protected, unprotected and read, \
         both ends in one thread; AES-CCM-16-64-128"
            .into(),
    );
    let peer = match peer_binary("tegmen-bench-liboscore") {
        Ok(peer) => Some(peer),
        Err(reason) => {
            report.absent.push(Absent { name: PEER, reason: reason.0, install: INSTALL.into() });
            None
        }
    };
    let ask = |words: &[&str]| -> Result<String, Failure> {
        let Some(peer) = &peer else { return Ok(String::new()) };
        let output = Command::new(peer).args(words).output().map_err(|error| Failure::new(error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(Failure::new(format!("{PEER} failed"))),
        }
    };
    if peer.is_some() {
        report.header.versions.insert(PEER, ask(&["version"])?);
    }
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut pair = Pair::new()?;
    pair.run(COUNT)?; // warm
    for _ in 0..options.passes {
        ours.push(f64::from(COUNT) * 1e9 / pair.run(COUNT)?);
        if peer.is_some() {
            let words = ask(&["pairs", &COUNT.to_string()])?;
            let nanoseconds = words.strip_prefix("nanoseconds ").and_then(|number| number.parse::<f64>().ok());
            let rate = f64::from(COUNT) * 1e9 / nanoseconds.ok_or_else(|| Failure::new(format!("{PEER}: {words}")))?;
            ratios.extend(ours.last().map(|ours| ours / rate));
            theirs.push(rate);
        }
    }
    let counted = options.instructions && counts_instructions(&mut report);
    let counted = if counted { Some(counts(peer.as_deref())?) } else { None };
    if counted.is_some() {
        report.header.notes.push("instructions: callgrind, difference of two lengths".into());
    }
    let ratio = median(&ratios);
    report.rows.push(Row {
        instructions: counted,
        ours: median(&ours),
        peer: median(&theirs),
        ratio,
        more_is_better: true,
        ..Row::new("OSCORE request and response", PEER, "1/CPU s", Some(Limit::AtLeast(3.0).judge("ratio", ratio)))
    });
    group::rows(options, &mut report)?;
    Ok(report)
}

/// Counts the instructions for a pair of a GET and its response: with Tegmen, and with the peer's program at the path
/// `peer`, if it is given.
fn counts(peer: Option<&Path>) -> Result<Instructions, Failure> {
    let each = |program: &Path, verb: &str| -> Result<f64, Failure> {
        let all = |count: u32| instructions(&[program.to_string_lossy().into_owned(), verb.into(), count.to_string()]);
        Ok((all(COUNTED.1)? - all(COUNTED.0)?) as f64 / f64::from(COUNTED.1 - COUNTED.0))
    };
    let exe = env::current_exe().map_err(|error| Failure::new(error.to_string()))?;
    let ours = each(&exe, "oscore-pairs")?;
    let peer = peer.map(|peer| each(peer, "pairs")).transpose()?;
    Ok(Instructions { ours: Some(ours), peer, ratio: peer.map(|peer| ours / peer), judged: Judged::default() })
}

/// Exchanges pairs of a GET and its response, only with Tegmen. `words` contains the number of pairs. Prints the CPU
/// time. Callgrind counts the instructions of this command.
pub(crate) fn pairs(words: &[String]) -> Result<(), Failure> {
    let count = words.first().and_then(|count| count.parse().ok()).ok_or_else(|| Failure::new("how many?"))?;
    println!("nanoseconds {:.0}", Pair::new()?.run(count)?);
    Ok(())
}

/// Compares Tegmen's OSCORE in the working tree with that in another commit, and adds the result to the report as a
/// row. The directory `base` has the program `tegmen-bench` of the other commit. The two programs run as separate
/// processes.
pub(crate) fn compare(options: &Options, base: &Path, report: &mut Report) -> Result<(), Failure> {
    let exe = env::current_exe().map_err(|error| Failure::new(error.to_string()))?;
    let programs = [(OURS, exe), (BASE, base.join("tegmen-bench"))];
    let mut samples = Samples::new("OSCORE request and response", "1/CPU s", true);
    for pass in 0..options.passes {
        for turn in 0..programs.len() {
            let (name, program) = &programs[(pass + turn) % programs.len()];
            let output = Command::new(program).args(["oscore-pairs", &COMPARED.to_string()]).output();
            let output = output.map_err(|error| Failure::new(error.to_string()))?;
            let said = String::from_utf8_lossy(&output.stdout);
            let nanoseconds = said.trim().strip_prefix("nanoseconds ").and_then(|number| number.parse::<f64>().ok());
            let Some(nanoseconds) = nanoseconds else {
                let reason = "oscore-pairs: the program does not print the time".into();
                report.absent.push(Absent { name, reason, install: "nothing, a later base prints it".into() });
                return Ok(());
            };
            samples.push(name, f64::from(COMPARED) * 1e9 / nanoseconds);
        }
    }
    report.rows.extend(samples.rows());
    Ok(())
}

/// The OSCORE contexts of a client and of its server.
struct Pair {
    client: Context,
    server: Context,
    /// The cryptographic providers of the client and of the server. Each has its own provider, as in a real network.
    cryptos: [HostCrypto; 2],
}

impl Pair {
    fn new() -> Result<Self, Failure> {
        let context = |sender_id, recipient_id| {
            let parameters = Parameters {
                master_secret: &[7; 16],
                master_salt: b"salt",
                sender_id,
                recipient_id,
                id_context: None,
                aead: Aead::AesCcm16_64_128,
            };
            let context = Context::new::<HostCrypto>(&parameters);
            let mut context = context.map_err(|error| Failure::new(format!("{error:?}")))?;
            // Nothing is sent anywhere.
            context.lease_mut().extend(u64::MAX);
            Ok(context)
        };
        let crypto = || HostCrypto::from_os().map_err(|error| Failure::new(error.to_string()));
        Ok(Self { client: context(b"c", b"s")?, server: context(b"s", b"c")?, cryptos: [crypto()?, crypto()?] })
    }

    /// Exchanges `count` pairs of a GET and its response. Returns the CPU time of all pairs together, in nanoseconds.
    fn run(&mut self, count: u32) -> Result<f64, Failure> {
        let start = cpu_time()?;
        for n in 0..count {
            self.exchange(n as u16).ok_or_else(|| Failure::new("a message came out changed"))?;
        }
        Ok(cpu_time()?.saturating_sub(start).as_nanos() as f64)
    }

    fn exchange(&mut self, message_id: u16) -> Option<()> {
        let Self { client, server, cryptos: [at_client, at_server] } = self;
        let mut storage = [0; 128 + OVERHEAD];
        let mut request = Frame::new(&mut storage, OVERHEAD);
        let mut builder =
            Builder::new(&mut request, MessageType::Confirmable, Code::GET, message_id, &[0xca, 0xfe]).ok()?;
        builder.option(OptionNumber::URI_PATH, b"sensors").ok()?;
        builder.option(OptionNumber::URI_PATH, b"temperature").ok()?;
        let mut pending = client.protect_request(at_client, &mut request).ok()?;

        let Ok(Unprotected::Fresh(asked, nonce)) = server.unprotect_request(at_server, request.bytes_mut()) else {
            return None;
        };
        if asked.code() != Code::GET || !asked.path_is("sensors/temperature") {
            return None;
        }
        let mut storage = [0; 128 + OVERHEAD];
        let mut response = Frame::new(&mut storage, OVERHEAD);
        let kind = MessageType::Acknowledgement;
        let mut builder = Builder::new(&mut response, kind, Code::CONTENT, message_id, asked.token()).ok()?;
        builder.uint(OptionNumber::CONTENT_FORMAT, 42).ok()?;
        builder.payload(&READING).ok()?;
        let binding = nonce.binding();
        server.protect_response(at_server, &binding, Some(nonce), &mut response).ok()?;

        let answer = client.unprotect_response(at_client, &mut pending, response.bytes_mut()).ok()?;
        (answer.code() == Code::CONTENT && answer.payload() == READING).then_some(())
    }
}
