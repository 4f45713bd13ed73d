//! The multicast address at which a client finds the server of a context.

use tegmen_base::crypto::{Crypto, DIGEST_LEN, digest};

/// Returns a link-local multicast address: the 16 bytes of `ff02::3:ffXX:XXXX`. At this address the server of a context
/// receives requests of clients that do not know the server's own address. `kid` and `id_context` are the values in the
/// client's requests, so both endpoints know them.
///
/// The last 24 bits are the first 24 bits of a SHA-256 digest of the length of `kid`, of `kid` and of `id_context`. A
/// digest is used because identifiers are often short, and often equal in different places. The paper "Content Object
/// Security in the Internet of Things" defines the address (section V-B), but not how its bits come from the
/// identifier. IANA has not assigned the range.
pub fn discovery_address<C: Crypto>(kid: &[u8], id_context: Option<&[u8]>) -> [u8; 16] {
    let [high, middle, low, ..] = digest::<C, DIGEST_LEN>(&[&[kid.len() as u8], kid, id_context.unwrap_or(&[])]);
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0xff, high, middle, low]
}
