//! Finished (RFC 5246, section 7.4.9).

use crate::crypto::Crypto;
use crate::crypto::hash::{HmacKey, Sha256};

/// Bytes of verify_data.
pub const VERIFY_LEN: usize = 12;

/// The verify_data of one side over the handshake so far.
pub(crate) fn verify_data<C: Crypto>(master: &HmacKey, client: bool, transcript: &Sha256) -> [u8; VERIFY_LEN] {
    let label: &[u8] = if client { b"client finished" } else { b"server finished" };
    let mut verify_data = [0; VERIFY_LEN];
    let digest = transcript.digest_so_far::<C>();
    master.prf::<C>(&[label, &digest], &mut verify_data);
    verify_data
}
