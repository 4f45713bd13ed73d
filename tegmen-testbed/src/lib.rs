//! Measures Tegmen: its footprint on a mote, its bytes, and what both mean in a radio network.
pub mod agreement;
pub mod blink;
pub mod footprint;
pub mod parallel;
pub mod pcap;
pub mod sim;
