//! Prints the number of new keys, the bytes of the messages and the mean time of an eviction, for two groups: one with
//! a key tree, 100,000 members and signatures, and one with 100 members without signatures.
//!
//! The optional argument is the number of members of the first group.

use std::time::Instant;
use tegmen_control::group::{KeyTree, RekeyMessage};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

/// The number of evictions over which the mean time is computed.
const ROUNDS: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members = std::env::args().nth(1).map_or(Ok(100_000), |it| it.parse())?;
    let signer = SoftwareKey::from_pem(rcgen::KeyPair::generate()?.serialize_pem().as_bytes())?;
    print("key tree, signed", members, Some(&signer))?;
    print("point to point", 100, None)?;
    Ok(())
}

fn print(name: &str, members: u32, signer: Option<&dyn Signer>) -> Result<(), Box<dyn std::error::Error>> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    let mut crypto = HostCrypto::new(seed, 0);
    let levels = members.next_power_of_two().ilog2() as u8;
    let mut tree = KeyTree::new(&mut crypto, levels, 1000, members);
    let first = 1 << levels;
    let start = Instant::now();
    let mut messages: Vec<RekeyMessage> = Vec::new();
    for round in 0..ROUNDS {
        let change = tree.evict(&mut crypto, first + round)?;
        tree.apply(change);
        messages = tree.messages(&mut crypto, signer)?;
    }
    let mean = start.elapsed() / ROUNDS;
    let bytes: usize = messages.iter().map(|it| it.bytes.len()).sum();
    let longest = messages.iter().map(|it| it.bytes.len()).max().unwrap_or(0);
    let keys = messages.len() - 1;
    println!("{name}: {members} members, {ROUNDS} evictions in turn");
    println!(
        "  the last: {keys} encrypted keys and the message of the epoch, {bytes} bytes, the longest message {longest}"
    );
    println!("  {:.3} ms on one thread, the mean of all", mean.as_secs_f64() * 1000.0);
    Ok(())
}
