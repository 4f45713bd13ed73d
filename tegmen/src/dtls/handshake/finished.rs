//! Finished (RFC 5246, section 7.4.9).

use crate::crypto::Crypto;
use crate::crypto::hash::{HmacKey, Sha256};

/// Number of bytes of verify_data.
pub(crate) const VERIFY_LEN: usize = 12;

/// Writes the verify_data of the client or of the server. It covers all handshake messages up to this time.
#[inline(never)]
pub(crate) fn write_verify_data<C: Crypto>(
    master: &HmacKey,
    client: bool,
    transcript: &Sha256,
    out: &mut [u8; VERIFY_LEN],
) {
    let label: &[u8] = if client { b"client finished" } else { b"server finished" };
    master.prf::<C>(&[label, &transcript.digest_so_far::<C>()], out);
}
