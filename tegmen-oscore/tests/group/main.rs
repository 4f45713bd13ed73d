//! Groups (RFC 10021): the messages of other implementations, both modes at both ends, attacks, and losses.

mod attacks;
mod checker;
mod deterministic;
mod keys;
mod modes;
mod numbers;
mod phantom;
mod vectors;
mod world;
