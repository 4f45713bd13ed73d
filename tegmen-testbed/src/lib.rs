//! Measures Tegmen: its memory and its number of instructions on a mote, the length of its messages, and the effect of
//! these three costs in a radio network.
pub mod advice;
pub mod coap_protected;
pub mod cosim;
pub mod cost;
pub mod deployment;
pub mod figure;
pub mod footprint;
pub mod frames;
pub mod interval;
pub mod mote;
pub mod papers;
pub mod parallel;
pub mod pcap;
pub mod plans;
pub mod platform;
pub mod plot;
mod report;
pub mod runs;
pub mod scenario;
pub mod sim;

/// The Rust example in README.md, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
