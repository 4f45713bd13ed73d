//! The server of delegated sessions on a database, with devices that have neither a certificate nor a private key.

mod crashes;
#[path = "../disk/mod.rs"]
mod disk;
mod operators;
#[path = "../recorder/mod.rs"]
mod recorder;
mod restored;
mod revocations;
mod tickets;
mod world;
