//! The plan `objects-discovery`, which reproduces Equation 1 and section V-B of the paper: a client discovers a server
//! with a multicast request. Only the server that has the same OSCORE context can open the request.

use super::paper;
use crate::figure::{Figure, Source};
use std::collections::HashSet;
use tegmen::buf::Frame;
use tegmen::crypto::{Crypto as _, RustCrypto};
use tegmen::oscore::{Aead, Context, OVERHEAD, Parameters, Unprotected, discovery_address};

/// The size of a run of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of random networks. Each network has as many nodes as the network in the paper. The OSCORE contexts of
    /// the nodes are random.
    pub links: u32,
    /// Number of servers that receive one request.
    pub servers: u32,
}

/// The size of a run that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { links: 5_000, servers: 575 };

/// Returns all figures of the plan `objects-discovery`.
pub fn figures(effort: Effort) -> Vec<Figure> {
    let paper = paper().discovery;
    let addresses = 2f64.powi(paper.address_bits);
    let n = paper.addresses;
    let expected = 100.0 * collision(n, addresses);
    let below = "the paper: less than 1 % for 575 addresses";
    let most = (1..).take_while(|n| collision(n + 1, addresses) < 0.01).last().map_or(0, |n| n + 1);
    let mut figures = vec![
        Figure::at_most(format!("eq1/{n}/collision"), Some(1.0), expected, 1.0, "percent", below),
        Figure::shown("eq1/most_below_1_percent".into(), Some(f64::from(n)), f64::from(most), "addresses", MOST),
    ];
    let mut crypto = RustCrypto::new([0xd1; 32]);
    let (mut links_with_collision, mut receivers) = (0u32, 0u64);
    for _ in 0..effort.links {
        let (distinct, taking) = link(&mut crypto, n);
        links_with_collision += u32::from(distinct < n);
        receivers += u64::from(taking);
    }
    let links = f64::from(effort.links);
    let share = f64::from(links_with_collision) / links;
    // Four standard deviations of a binomial distribution.
    let width = 400.0 * (expected / 100.0 * (1.0 - expected / 100.0) / links).sqrt();
    figures.push(
        Figure::shown(format!("eq1/{n}/collision_of_contexts"), Some(expected), 100.0 * share, "percent", DRAWN)
            .of(Source::Simulated),
    );
    let agrees = (100.0 * share - expected).abs() <= width;
    figures.push(Figure::holds(
        "eq1/contexts_agree".into(),
        agrees,
        "contexts that are drawn collide as often as Equation 1 predicts",
    ));
    let mean = receivers as f64 / links;
    figures.push(
        Figure::shown("discovery/nodes_that_take_a_request".into(), None, mean, "nodes", TAKEN).of(Source::Simulated),
    );
    let all = "a request to all nodes reaches each of them";
    figures.push(Figure::shown("discovery/nodes_without_the_address".into(), None, f64::from(n), "nodes", all));
    let opened = openings(effort.servers);
    let one =
        "of servers with the same identifiers and other secrets, the owner of the context alone opens the request";
    figures.push(Figure::holds("discovery/one_server_opens".into(), opened == 1, one));
    figures
}

/// Returns the result of Equation 1: the probability that at least two of `n` nodes have the same address.
fn collision(n: u32, addresses: f64) -> f64 {
    1.0 - (1..n).map(|k| (addresses - f64::from(k)) / addresses).product::<f64>()
}

/// Makes a random network of `n` nodes, each with one context. Returns the number of different addresses, and the
/// number of nodes that receive a request to the address of the first node.
fn link(crypto: &mut RustCrypto, n: u32) -> (u32, u32) {
    let mut kid = [0; 7];
    let mut seen = HashSet::new();
    let (mut first, mut taking) = (None, 0);
    for _ in 0..n {
        crypto.random(&mut kid);
        let address = discovery_address::<RustCrypto>(&kid, None);
        taking += u32::from(*first.get_or_insert(address) == address);
        seen.insert(address);
    }
    (seen.len() as u32, taking)
}

/// Sends one request to servers whose contexts have the same identifiers, but different secrets. Returns the number of
/// servers that can open it.
fn openings(servers: u32) -> u32 {
    let crypto = &mut RustCrypto::new([0xd2; 32]);
    let parameters = |secret: &'static [u8], sender_id: &'static [u8], recipient_id: &'static [u8]| Parameters {
        master_secret: secret,
        master_salt: &[],
        sender_id,
        recipient_id,
        id_context: None,
        aead: Aead::default(),
    };
    let secrets: Vec<&'static [u8]> =
        (0..servers).map(|number| &*Vec::leak([number.to_be_bytes(); 4].concat())).collect();
    let Some(owner) = secrets.get(secrets.len() / 2) else { return 0 };
    let mut client = Context::new::<RustCrypto>(&parameters(owner, &[1], &[2])).expect("right parameters");
    client.lease_mut().extend(8);
    let mut storage = [0; 128];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    super::request(&mut frame, 1);
    client.protect_request(crypto, &mut frame).expect("room");
    let opens = |secret: &&&'static [u8]| {
        let mut server = Context::new::<RustCrypto>(&parameters(secret, &[2], &[1])).expect("right parameters");
        let mut datagram = frame.bytes().to_vec();
        matches!(server.unprotect_request(crypto, &mut datagram), Ok(Unprotected::Fresh(..)))
    };
    secrets.iter().filter(opens).count() as u32
}

const MOST: &str = "the paper's number is below the bound, and this one is the last below it";
const DRAWN: &str = "the paper's value here is that of its equation; ours are links of nodes whose contexts have random identifiers of 7 bytes";
const TAKEN: &str = "the owner, and nodes whose context has the same address";

#[cfg(test)]
mod tests;
