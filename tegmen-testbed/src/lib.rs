//! Measures Tegmen: its footprint on a mote, its bytes, and what both mean in a radio network.
pub mod advice;
pub mod agreement;
pub mod blink;
pub mod cosim;
pub mod cost;
pub mod deployment;
pub mod footprint;
pub mod mote;
pub mod parallel;
pub mod pcap;
pub mod plans;
pub mod platform;
pub mod plot;
pub mod report;
pub mod runs;
pub mod scenario;
pub mod sim;
