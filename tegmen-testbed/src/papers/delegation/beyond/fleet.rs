//! Simulates the end of the epochs of 1,000 devices. For each device the server opens a session with the device, and
//! begins the next epoch. Then one peer of the device sends its ticket of the previous epoch. The device refuses this
//! ticket. The peer gets another ticket from the server, and resumes its session. The server and the peers are on the
//! Internet. Node 0, the border router, connects them with the devices.
//!
//! A client and a server in this process make the datagrams. The datagrams that one of them sends together are called a
//! turn. The simulator carries each turn when the previous turn has arrived completely.

use super::super::BYTES;
use super::storm::REISSUE;
use super::{Case, Effort, Job, Measured, Runs, deployment, seconds, seeds};
use crate::cost::{self, Costs, HandshakeCosts};
use crate::deployment::{Deployment, Shape};
use crate::figure::{Figure, Source};
use crate::mote::Exchange;
use crate::papers::ends::{self, Sent, Session};
use crate::papers::messages::{message, request};
use crate::platform::Platform;
use crate::scenario;
use crate::sim::Micros;
use tegmen::coap::{Code, MessageType};
use tegmen::time::Duration;
use tegmen_delegation::PSK_LEN;

/// Returns a case for each network ([`CELLS`] and [`TREE`]) and each of its time spans, and a case for the server's
/// work.
pub(super) fn cases(effort: Effort) -> Vec<Case> {
    let mut cases = vec![Case { jobs: Vec::new(), figures: Box::new(move |_| counted(effort.devices)) }];
    for network in [CELLS, TREE].map(|network| network.of_at_most(effort.devices)) {
        for (span, within_s) in network.spans {
            let job = |seed: u64| -> Job { Box::new(move || run(network, within_s, seed)) };
            let runs = effort.devices / network.devices;
            let name = format!("fleet/{}/{span}", network.name);
            cases.push(Case {
                jobs: seeds(runs as u64).map(job).collect(),
                figures: Box::new(move |runs| figures(&name, effort.devices as u64, runs)),
            });
        }
    }
    cases
}

/// A network that connects the devices of the fleet.
#[derive(Clone, Copy)]
struct Network {
    name: &'static str,
    topology: Shape,
    /// Maximum number of devices in one network. Each network has one node 0, which is the border router.
    devices: usize,
    /// The time spans in which the server begins the epochs of all devices, each with its name and its seconds.
    spans: [(&'static str, f64); 2],
}

impl Network {
    fn of_at_most(self, devices: usize) -> Self {
        Self { devices: self.devices.min(devices), ..self }
    }

    fn deployment(self, within_s: f64) -> Deployment {
        let mut deployment = deployment();
        deployment.network.topology = self.topology;
        deployment.network.nodes = Some(self.devices);
        deployment.network.fanout = (self.topology == Shape::Tree).then_some(FANOUT);
        deployment.traffic.period_s = within_s;
        deployment
    }
}

fn run(network: Network, within_s: f64, seed: u64) -> Measured {
    let exchange = exchange();
    let outcome = scenario::run_exchanges(&network.deployment(within_s), &exchange, seed);
    let each = network.devices as f64;
    let mut measured = vec![
        ("returned", outcome.answered as f64 / each * 100.0),
        ("frames", outcome.frames as f64 / each),
        ("bytes", outcome.bytes as f64 / each),
    ];
    if outcome.answered == outcome.made {
        measured.push(("time", seconds(outcome.last_answer)));
    }
    if let (Some(median), Some(longest)) = (outcome.delays.get(outcome.delays.len() / 2), outcome.delays.last()) {
        measured.extend([("median", seconds(*median)), ("longest", seconds(*longest))]);
    }
    measured
}

/// The datagrams of one device: its session with the server, the refused handshake of a peer, and the resumed session.
struct Steps {
    session: Vec<Sent>,
    refused: Vec<Sent>,
    resumed: Vec<Sent>,
}

impl Steps {
    fn new() -> Self {
        let mut session = Session::open(b"lamp.example;2;0123456789abcdef", &[7; PSK_LEN]);
        session.send(true, &request(Code::POST, "dlg/ep", None, &[0x45; BEGIN]));
        session.send(false, &changed());
        let [refused, resumed] = ends::returned(&request(Code::PUT, "light", None, b"1"), &changed());
        Self { session: session.sent(), refused, resumed }
    }

    fn all(&self) -> impl Iterator<Item = &Sent> {
        self.session.iter().chain(&self.refused).chain(&self.resumed)
    }
}

fn changed() -> Vec<u8> {
    message(MessageType::Acknowledgement, Code::CHANGED, |_| Ok(()))
}

/// Returns the exchange of one device. The device needs computing time before it sends datagrams. The server and the
/// peer on the Internet need 20 ms before they send datagrams.
fn exchange() -> Exchange {
    let (steps, costs) = (Steps::new(), Costs::of_budget());
    let server = |[_, of_server]: [HandshakeCosts; 2]| of_server;
    let (psk, delegated) = (server(costs.handshakes.psk), server(costs.handshakes.delegated));
    let mut datagrams = Vec::new();
    let reissue = REISSUE.as_micros() as Micros;
    let parts = [(&steps.session, psk, 0), (&steps.refused, delegated, 0), (&steps.resumed, delegated, reissue)];
    for (part, handshake, before) in parts {
        for (place, Sent { by_client, bytes }) in part.iter().enumerate() {
            let pause = match by_client {
                true => INTERNET + if place == 0 { before } else { 0 },
                false => work(&costs, handshake, bytes),
            };
            datagrams.push((*by_client, bytes.clone(), pause));
        }
    }
    Exchange::of(datagrams, Duration::from_secs(1))
}

/// Returns the computing time that a device needs before it sends this datagram.
fn work(costs: &Costs, handshake: HandshakeCosts, datagram: &[u8]) -> Micros {
    let z1 = Platform::find("z1").expect("a platform of the file");
    let instructions = match datagram.first() {
        Some(&APPLICATION_DATA) => costs.open + costs.serve + costs.seal,
        Some(&ALERT) => handshake.answer,
        _ => handshake.flight,
    };
    cost::micros(instructions, cost::CYCLES_PER_INSTRUCTION[1], z1.clock_hz)
}

/// Returns the figures that follow from the datagrams alone, including the number of the server's operations.
fn counted(devices: usize) -> Vec<Figure> {
    let steps = Steps::new();
    let len = |part: &[Sent]| part.iter().map(|sent| sent.bytes.len()).sum::<usize>() as f64;
    let bytes = |what: &str, part: &[Sent], why: &str| {
        Figure::shown(format!("fleet/device/{what}/bytes"), None, len(part), BYTES, why)
    };
    let mut figures = vec![
        bytes("epoch", &steps.session, "the session with the server, and the request that begins the epoch"),
        bytes("refusal", &steps.refused, "a peer with the ticket of the epoch before"),
        bytes("resumption", &steps.resumed, "the peer with a ticket of the present epoch, a request and its response"),
        Figure::shown(
            "fleet/device/datagrams".into(),
            None,
            steps.all().count() as f64,
            "datagrams",
            "of one device with its server and with one peer",
        ),
    ];
    let count = |part: &[Sent], is_meant: fn(&[u8]) -> bool| {
        (part.iter().filter(|sent| is_meant(&sent.bytes)).count() * devices) as f64
    };
    let id = |what: &str| format!("fleet/server/{what}");
    figures.extend([
        Figure::shown(
            id("psk_handshakes"),
            None,
            count(&steps.session, is_key_exchange),
            OPERATIONS,
            "one with each device",
        ),
        Figure::shown(id("resumptions"), None, count(&steps.refused, is_alert), OPERATIONS, RENEWALS),
        Figure::at_most(
            id("public_key_operations"),
            None,
            [&steps.session, &steps.refused, &steps.resumed].map(|part| count(part, has_public_keys)).iter().sum(),
            0.0,
            OPERATIONS,
            "",
        ),
    ]);
    figures.into_iter().map(|figure| figure.of(Source::Counted)).collect()
}

/// Returns true if the datagram is an alert.
fn is_alert(datagram: &[u8]) -> bool {
    datagram.first() == Some(&ALERT)
}

/// Returns true if the datagram begins with ClientKeyExchange. A full handshake has one such flight (RFC 5246, section
/// 7.4.7).
fn is_key_exchange(datagram: &[u8]) -> bool {
    const CLIENT_KEY_EXCHANGE: u8 = 16;
    datagram.first() == Some(&HANDSHAKE) && datagram.get(RECORD_HEADER) == Some(&CLIENT_KEY_EXCHANGE)
}

/// Returns true if the datagram begins with a Certificate or CertificateVerify message (RFC 5246, section 7.4; RFC
/// 8422, section 5.4).
fn has_public_keys(datagram: &[u8]) -> bool {
    const CERTIFICATE: u8 = 11;
    const CERTIFICATE_VERIFY: u8 = 15;
    let kind = datagram.get(RECORD_HEADER);
    datagram.first() == Some(&HANDSHAKE) && kind.is_some_and(|kind| [CERTIFICATE, CERTIFICATE_VERIFY].contains(kind))
}

fn figures(name: &str, devices: u64, runs: &Runs) -> Vec<Figure> {
    let mut figures = vec![runs.complete(name, devices, "returned")];
    figures.extend(runs.shown(
        name,
        devices,
        &[
            ("time", "s", "from the first reset until the peer of the last device has its response; of cells the mean"),
            ("median", "s", "from the reset of a device until its peer has its response"),
            ("longest", "s", "the same for the last of a network"),
            ("frames", "frames per device", "of all hops, with acknowledgements of the link layer"),
            ("bytes", "bytes per device", "PSDUs of all these frames"),
        ],
    ));
    figures
}

/// Networks of 50 devices each, which do not hear the other networks. Each network has its own border router, which is
/// node 0.
const CELLS: Network =
    Network { name: "cells_of_50", topology: Shape::Star, devices: 50, spans: [IN_A_SECOND, IN_AN_HOUR] };
/// A network with one border router for all devices. The farthest devices are three hops away.
const TREE: Network =
    Network { name: "tree", topology: Shape::Tree, devices: 1000, spans: [("in_five_minutes", 300.0), IN_AN_HOUR] };
const FANOUT: usize = 10;
const IN_A_SECOND: (&str, f64) = ("in_a_second", 1.0);
const IN_AN_HOUR: (&str, f64) = ("in_an_hour", 3600.0);
/// The assumed time, in microseconds, that the server or the peer needs to answer over the Internet. It begins when
/// node 0 receives the datagrams of the device, and ends when node 0 receives the answer.
const INTERNET: Micros = 20_000;
/// Length in bytes of the payload of a request that begins an epoch. The payload contains the number of the epoch, the
/// time, and a check value.
const BEGIN: usize = 2 + 4 + 8;
/// The content type of alerts (RFC 5246, section 6.2.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const RECORD_HEADER: usize = 13;
const OPERATIONS: &str = "operations for the fleet";
const RENEWALS: &str =
    "one for each peer that a device refused: the server opens the ticket of the epoch before and seals another one";
