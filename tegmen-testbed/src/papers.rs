//! The papers that the laboratory repeats, and the comparison with ns-3: the plans that bear their names.
//!
//! The machine that runs them (the simulator, the mote, deployments, costs, figures) lies beside this folder and knows
//! nothing of it.

pub mod agreement;
pub mod blink;
pub mod handshakes;
pub mod objects;
pub mod report;
pub mod two_way;
