//! Tests of groups (`tegmen::axiom`): a comparison of records with another implementation, attacks that each have a
//! name, and a world of members on a network that loses, repeats, reorders and damages records.
#![allow(unreachable_pub, reason = "one module is of several test binaries")]

mod attacks;
mod group;
mod keys;
mod nodes;
mod observing;
mod paper;
#[path = "../world/recorder.rs"]
mod recorder;
mod records;
mod rekeying;
mod signatures;
mod world;
