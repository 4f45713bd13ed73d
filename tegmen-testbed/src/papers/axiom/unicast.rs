//! Exchanges between one node and the controller. A client and a server in this process make the datagrams. The
//! simulator carries the datagrams over the star topology of the paper.

use super::controller::Rekeying;
use super::deployment;
use crate::deployment::Loss;
use crate::figure::Figure;
use crate::interval::{self, Mean};
use crate::mote::Exchange;
use crate::papers::ends::Session;
use crate::papers::messages::{self, request};
use crate::parallel;
use crate::scenario::{Outcome, run_exchange};
use std::collections::BTreeMap;
use tegmen::coap::Code;
use tegmen::time::Duration;

/// The results of exchanges between one member and the controller. Each map belongs to one kind of exchange. The key of
/// the map is the share of frames that the link loses, in percent.
#[derive(Clone, Debug, Default)]
pub(super) struct Unicast {
    /// The results of an exchange in which a member opens a session with the controller, and joins the group. The key
    /// is the share of lost frames, in percent.
    pub(super) join: BTreeMap<u8, Flow>,
    /// The results of an exchange in which a member requests the messages that it missed. Its session with the
    /// controller is already open. The key is the share of lost frames, in percent.
    pub(super) repair: BTreeMap<u8, Flow>,
    /// The results of an exchange in which a member opens a session with the controller, and then requests the messages
    /// that it missed. The key is the share of lost frames, in percent.
    pub(super) repair_in_new_session: BTreeMap<u8, Flow>,
    /// The results of an exchange in which the controller sends a rekey message to one member. The key is the share of
    /// lost frames, in percent.
    pub(super) message: BTreeMap<u8, Flow>,
}

/// The results of all runs of an exchange.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Number of frames of an exchange, including the MAC layer's acknowledgements.
    pub(super) frames: Mean,
    /// Total length of the frames of an exchange in bytes, including the MAC layer's acknowledgements.
    pub(super) bytes: Mean,
    /// Number of runs.
    pub(super) runs: u64,
}

impl Unicast {
    /// Simulates all exchanges: without losses, and with each share of losses in [`Rekeying::repairs`].
    pub(super) fn of(rekeying: &Rekeying, seeds: u64) -> Self {
        let [request_to_join, admission] = &rekeying.joining.session;
        let join = in_session(Code::POST, request_to_join, admission);
        let repair = in_session(Code::GET, &[], &rekeying.answer);
        let alone = rekeying.evictions.iter().find_map(|eviction| eviction.point_to_point.messages.first());
        let message: Vec<_> = alone.map(|message| (true, message.clone(), 0)).into_iter().collect();
        let handshake = |datagrams: &[Datagram]| datagrams.len() - MESSAGES_OF_AN_EXCHANGE;
        let flows = |datagrams: Vec<Datagram>| {
            let exchange = Exchange::of(datagrams, TIMEOUT);
            let losses = rekeying.repairs.iter().map(|repair| repair.loss).chain([0]);
            losses.map(|loss| (loss, flow(&exchange, loss, seeds))).collect()
        };
        Self {
            join: flows(join),
            repair: flows(repair[handshake(&repair)..].to_vec()),
            repair_in_new_session: flows(repair),
            message: flows(message),
        }
    }

    /// Returns the mean number of frames and the mean number of bytes of each exchange, as entries of the result table.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let why = "until the last datagram has come; the MAC and the sender of a turn send again";
        let mut figures = Vec::new();
        for (name, flows) in [
            ("join", &self.join),
            ("ask_in_open_session", &self.repair),
            ("ask_in_new_session", &self.repair_in_new_session),
            ("message_to_one_member", &self.message),
        ] {
            for (loss, Flow { frames, bytes, runs }) in flows {
                for (what, mean) in [("frames", frames), ("bytes", bytes)] {
                    let id = format!("controller/{name}/{loss}_percent_lost/{what}");
                    figures.push(Figure::shown(id, None, mean.mean, what, why).sampled(*runs, *runs, mean));
                }
            }
        }
        figures
    }

    /// Returns the result of the exchange in which a member joins, over a link without losses; `None` if it was not
    /// simulated.
    pub(super) fn joining(&self) -> Option<&Flow> {
        self.join.get(&0)
    }
}

/// A datagram of an exchange. The first value is true if the sender of the datagram is the node that begins the
/// exchange. The second value has the bytes of the datagram. The third value is the time in microseconds that the
/// sender needs before it sends the datagram.
type Datagram = (bool, Vec<u8>, u64);

/// Returns the datagrams of an exchange: a handshake between a member and the controller, and then a request and its
/// answer.
fn in_session(code: Code, payload: &[u8], answer: &[u8]) -> Vec<Datagram> {
    let mut session = Session::open(b"lamp-17", &[7; 16]);
    session.send(true, &request(code, GROUP, Some(GROUPCOMM_CBOR).filter(|_| !payload.is_empty()), payload));
    let code = if code == Code::POST { Code::CREATED } else { Code::CONTENT };
    session.send(false, &messages::answer(code, GROUPCOMM_CBOR, answer));
    session.sent().into_iter().map(|sent| (sent.by_client, sent.bytes, 0)).collect()
}

fn flow(exchange: &Exchange, loss: u8, seeds: u64) -> Flow {
    let mut deployment = deployment();
    deployment.network.nodes = Some(1);
    deployment.network.loss = Loss::Every(f64::from(loss) / 100.0);
    deployment.traffic.group = None;
    deployment.traffic.readings = 1;
    let seeds: Vec<u64> = (1..=seeds).collect();
    let runs = parallel::each(&seeds, |seed| run_exchange(&deployment, exchange, *seed), |_| ());
    let [frames, bytes] = [|run: &Outcome| run.frames, |run: &Outcome| run.bytes]
        .map(|of| interval::mean(&runs.iter().map(|run| of(run) as f64).collect::<Vec<_>>()));
    Flow { frames, bytes, runs: runs.len() as u64 }
}

/// The path of the group's resource at its controller (RFC 9594, section 4.1).
const GROUP: &str = "ace-group/lamps";
/// The number of the Content-Format application/ace-groupcomm+cbor (RFC 9594, section 11.2).
pub(super) const GROUPCOMM_CBOR: u16 = 261;
/// Number of CoAP messages in an exchange: a request and its answer.
const MESSAGES_OF_AN_EXCHANGE: usize = 2;
/// Time after which CoAP retransmits a message (RFC 7252, section 4.8: ACK_TIMEOUT).
const TIMEOUT: Duration = Duration::from_secs(2);
