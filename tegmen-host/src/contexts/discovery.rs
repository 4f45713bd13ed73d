//! Discovery of a server by the context that it shares with a client: the multicast address that a context maps to.

use sha2::{Digest as _, Sha256};
use std::net::Ipv6Addr;

/// Bits of an address that depend on the context.
pub const DISCOVERY_BITS: u32 = 24;

/// Returns the multicast address on a link at which the server of a context receives requests of a client that does not know its address:
/// `ff02::3:ffXX:XXXX`. `kid` and `id_context` are those of the client's requests, so both ends know them.
///
/// The bits are those of a SHA-256 digest: identifiers of contexts are often short, and count from 0 in each deployment. After the paper
/// "Content Object Security in the Internet of Things" (C. Gündoğan, C. Amsüss, T. C. Schmidt, M. Wählisch), section V-B, which leaves open
/// how the bits come from the identifier. The range is not assigned by IANA.
pub fn discovery_address(kid: &[u8], id_context: Option<&[u8]>) -> Ipv6Addr {
    let digest = Sha256::new().chain_update([kid.len() as u8]).chain_update(kid).chain_update(id_context.unwrap_or(&[]));
    let [high, middle, low, ..] = <[u8; 32]>::from(digest.finalize());
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 3, 0xff00 | u16::from(high), u16::from(middle) << 8 | u16::from(low))
}
