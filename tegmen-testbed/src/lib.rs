//! Measures Tegmen: so far its footprint on a mote.
pub mod blink;
pub mod footprint;
