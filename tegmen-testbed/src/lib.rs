//! Measures Tegmen: so far its footprint on a mote.
pub mod footprint;
