//! The papers that the laboratory repeats, and the comparison with ns-3: the plans that bear their names.
//!
//! The machine that runs them (the simulator, the mote, deployments, costs, figures) lies beside this folder and knows
//! nothing of it.

pub mod agreement;
pub mod axiom;
pub mod blink;
pub mod delegation;
mod ends;
pub mod handshakes;
mod messages;
pub mod objects;
pub mod report;
pub mod two_way;

use tegmen::dtls::Records;

/// Returns the number of records in a datagram; each has one message in these papers.
fn records(datagram: &[u8]) -> usize {
    let mut datagram = datagram.to_vec();
    let mut records = Records::new(&mut datagram);
    std::iter::from_fn(|| records.next_record()?.ok().map(|_| ())).count()
}
