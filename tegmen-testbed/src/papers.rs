//! The plans that reproduce papers, and the plan that compares the simulator with ns-3.
//!
//! The modules that run these plans (the simulator, the mote, deployments, costs and figures) are beside this folder.
//! These modules do not depend on the modules in this folder.

pub mod agreement;
pub mod axiom;
pub mod blink;
pub mod delegation;
mod ends;
pub mod handshakes;
mod messages;
pub mod objects;
pub mod plans;
pub mod report;
mod sections;
pub mod two_way;

use tegmen::dtls::Records;

/// Returns the number of records in a datagram. The plans use it as the number of messages, because each record of
/// their handshakes contains one message.
fn records(datagram: &[u8]) -> usize {
    let mut datagram = datagram.to_vec();
    let mut records = Records::new(&mut datagram);
    std::iter::from_fn(|| records.next_record()?.ok().map(|_| ())).count()
}
