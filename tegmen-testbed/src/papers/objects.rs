//! The paper on content object security. It compares the cost of protection over CoAP with the cost over Named Data
//! Networking. The costs are the bytes of a request and its response, the time, and the instructions. The figures of
//! the paper are in `data/objects.toml`.

pub mod bytes;
pub mod caches;
pub mod creation;
pub mod delay;
pub mod discovery;

use crate::deployment::{Deployment, Plan};
use serde::Deserialize;
use std::collections::BTreeMap;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber};

/// Writes a request for the temperature: a confirmable GET.
fn request(frame: &mut Frame<'_>, message_id: u16) {
    let builder = Builder::new(frame, MessageType::Confirmable, Code::GET, message_id, &TOKEN);
    builder.and_then(|mut message| message.path(PATH)).expect("room");
}

/// Writes the response to [`request`], with the temperature as payload.
fn response(frame: &mut Frame<'_>, message_id: u16, payload: &[u8]) {
    let builder = Builder::new(frame, MessageType::Acknowledgement, Code::CONTENT, message_id, &TOKEN);
    let built = builder.and_then(|mut message| {
        message.uint(OptionNumber::CONTENT_FORMAT, 42)?;
        message.payload(payload)
    });
    built.expect("room");
}

/// The path of the resource. The firmware images request the same path.
const PATH: &str = "sensors/temperature";
const TOKEN: [u8; 2] = [0xca, 0xfe];
/// A reading of two bytes.
const READING: [u8; 2] = 2150u16.to_be_bytes();

/// The numbers that the paper prints.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    #[expect(dead_code, reason = "is in the file for its readers")]
    paper: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    platform: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    scenario: String,
    table2: BTreeMap<String, Overhead>,
    fig3: BTreeMap<String, u64>,
    table3: BTreeMap<String, Spread>,
    fig9: Fig9,
    fig11: BTreeMap<String, Creation>,
    fig13: Fig13,
    discovery: Discovery,
}

/// Numbers of bytes that a protection adds to a request and to its response.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overhead {
    structure: [u64; 2],
    context_id: [u64; 2],
    nonce: [u64; 2],
    mac: [u64; 2],
}

/// The distribution of a time, described by numbers in milliseconds.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spread {
    mean: f64,
    sd: f64,
    q1: f64,
    median: f64,
    q3: f64,
}

impl Spread {
    fn parts(self) -> [(&'static str, f64); 5] {
        let Self { mean, sd, q1, median, q3 } = self;
        [("mean", mean), ("sd", sd), ("q1", q1), ("median", median), ("q3", q3)]
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fig9 {
    single_hop_median_ms: BTreeMap<String, f64>,
    first_try_percent: BTreeMap<String, [f64; 2]>,
    success_percent: BTreeMap<String, [f64; 2]>,
}

/// The time in microseconds to create a request for the first time, and to create it for a retransmission.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    first: Option<f64>,
    again: f64,
}

/// The shares of answered requests in figure 13, in percent.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fig13 {
    simple: f64,
    coap: f64,
    coap_caches: f64,
    ndn: f64,
}

/// The parameters of Equation 1 in the paper.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Discovery {
    address_bits: i32,
    addresses: u32,
}

fn paper() -> Paper {
    toml::from_str(include_str!("../../data/objects.toml"))
        .expect("the file is part of the program, and a test reads it")
}

/// Returns the only deployment of a plan.
fn deployment(text: &str) -> Deployment {
    let plan = Plan::parse("objects", text).expect("the plan is part of the program, and a test reads it");
    plan.cases.into_iter().next().expect("a plan has a case").deployment
}
