//! IPv6 over IEEE 802.15.4 (6LoWPAN): what a mote puts on the air, and what it takes from it.
pub mod frame;
