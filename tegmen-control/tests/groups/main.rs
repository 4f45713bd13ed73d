//! Tests of the controller of groups with a database: power cuts at each transaction, two controllers, and bad input.

mod at_once;
mod clashes;
mod control;
mod crashes;
mod created;
mod credentials;
mod deleted;
mod departures;
#[path = "../disk/mod.rs"]
mod disk;
mod group_ids;
mod members;
mod oblivious;
mod oscore;
mod paths;
#[cfg(unix)]
mod provisioned;
#[path = "../recorder/mod.rs"]
mod recorder;
mod refusals;
mod rows;
mod sending;
mod server;
mod shared;
mod signatures;
mod together;
mod verifiers;
mod world;
