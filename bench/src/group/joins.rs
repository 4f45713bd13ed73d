//! Measures how fast peers join groups at a controller. Compares the joins with introspections in the same DTLS
//! sessions.

use crate::{
    Options,
    access_server::{self, PEERS},
    addresses::{Clients, Question, Way},
    introspections::{AT_ONCE, Asked, Rates, rate, rates},
    report::{OURS, Report, Samples},
    scene::Scene,
    server::Process,
};
use tegmen::coap::{Code, MessageRef};
use tegmen_bench_line::Failure;
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GROUPS, GroupKeys, JoinRequest};

/// Lower limit for the rate of joins, divided by the rate of introspections.
const JOINS_MIN: f64 = 0.3;
/// Number of members of the large group.
const LARGE: u32 = 1_000;
/// Number of small groups. The [`PEERS`] peers are distributed evenly among them.
const SMALL: usize = 100;
/// Number of groups in a pass: the large group and the small groups.
const EACH_PASS: usize = SMALL + 1;

/// Adds the rows of joins to the report.
pub(super) fn rows(options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("joins");
    let scene = Scene::new()?;
    let process = access_server::start(&scene.0, options.passes * EACH_PASS)?;
    let mut clients = Clients::new(&process, Way::Dtls, PEERS)?;
    clients.name(access_server::peer);
    clients.await_server(&process)?;
    clients.connect(0..PEERS)?;
    clients.window = AT_ONCE;
    let about = [
        format!("joins of a group by {LARGE} members"),
        format!("joins of {SMALL} groups by {} members each", PEERS as usize / SMALL),
    ];
    let mut all: Vec<_> = about
        .iter()
        .enumerate()
        .flat_map(|(at, about)| ["1/server CPU s", "1/s"].map(|unit| (at, Samples::new(about, unit, true))))
        .collect();
    let mut number = 0;
    for pass in 0..options.passes {
        let (mut joined, mut introspected) = ([(0.0, 0.0); 2], [(0.0, 0.0); 2]);
        for turn in 0..4 {
            let both = (&process, &mut clients);
            match (pass + turn) % 4 {
                0 => introspected[0] = rate(both, Asked::Certificate, &mut number, options.seconds)?,
                1 => joined[0] = join(both, LARGE, |_| pass * EACH_PASS)?,
                2 => introspected[1] = rate(both, Asked::Session, &mut number, options.seconds)?,
                _ => joined[1] = join(both, PEERS, |peer| pass * EACH_PASS + 1 + peer as usize % SMALL)?,
            }
        }
        for (at, samples) in &mut all {
            let of = |(per_cpu, per_second): Rates| if samples.unit == "1/s" { per_second } else { per_cpu };
            let (ours, [certificate, session]) = (of(joined[*at]), introspected.map(of));
            samples.push(OURS, ours);
            samples.push("introspections, session identity", session);
            samples.push("introspections, certificate", certificate);
        }
    }
    for row in all.iter().flat_map(|(_, samples)| samples.rows()) {
        let judged = row.judge_bound(JOINS_MIN);
        report.rows.push(crate::report::Row { judged, ..row });
    }
    report.header.notes.push(format!(
        "joins: {PEERS} peers, each a device with a session; {AT_ONCE} requests in flight, each of another peer; a join is decided \
         by the policy and waits for its commit (WAL, synchronous=FULL); members that wait for one commit share an epoch, whose \
         messages are sealed and signed, but not sent; the groups have no member at the beginning of a pass, and space for 1024; introspections, {} s a pass: \
         an answer about a certificate waits for its line of the audit log, one about a session identity also for its commit",
        options.seconds
    ));
    Ok(())
}

/// Lets each of the first `count` peers join a group. `group` gets the number of a peer, and returns the number of the
/// group that the peer joins. Returns the number of joins for each CPU second of the server, and then the number for
/// each second of real time.
fn join(
    (process, clients): (&Process, &mut Clients),
    count: u32,
    group: impl Fn(u32) -> usize,
) -> Result<Rates, Failure> {
    clients.is_answer = is_joined;
    rates(process, || {
        clients.each_asks(0..count, |peer| {
            let group = access_server::group(group(peer));
            let path = format!("{GROUPS}/{group}");
            let control_uri = Some(format!("coap://[fd00::{peer:x}]/{GROUPS}"));
            let payload =
                JoinRequest { group, sends: false, control_uri, checks_signatures: true, ..JoinRequest::default() }
                    .encode();
            Question { code: Code::POST, path: path.into(), content_format: Some(GROUPCOMM_CBOR), payload }
        })?;
        Ok(count.into())
    })
}

/// Returns true if the response contains the parameters that a new member needs.
fn is_joined(message: &MessageRef<'_>) -> bool {
    message.code() == Code::CREATED && GroupKeys::parse(message.payload()).is_ok()
}
