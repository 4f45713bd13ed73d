//! Tests of the server of delegated sessions with a database. The devices have neither a certificate nor a private key.

mod crashes;
mod device;
#[path = "../disk/mod.rs"]
mod disk;
mod loopback;
mod operators;
#[path = "../recorder/mod.rs"]
mod recorder;
mod reissue;
mod restored;
mod revocations;
mod shared;
mod talking;
#[path = "../../../tegmen-host/tests/test_ca/mod.rs"]
mod test_ca;
mod tickets;
mod world;
