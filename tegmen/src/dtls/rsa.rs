//! The premaster secret of the RSA key exchange (RFC 5246, section 7.4.7.1). The client draws the secret, and
//! encrypts it to the key in the server's certificate.
//!
//! The core does not compute RSA: it asks the owner of the endpoint with [`Need`](super::need::Need). A server
//! continues after every result of the decryption. If the decryption failed, the peer notices it only because the
//! Finished messages do not match. This protects against Bleichenbacher's attack.

use crate::secret::Secret;
use core::hint::black_box;

/// Number of bytes of a premaster secret: the version in the ClientHello, and 46 random bytes.
pub const PREMASTER_LEN: usize = 48;

/// Returns the premaster secret in `block`, which is a decrypted block of RSA, including the padding (RFC 8017, section
/// 7.2.2, for a message of 48 bytes). The padding must be correct, and the secret must begin with `version`, the
/// version in the ClientHello. If one of these conditions is not met, returns `random`: 48 random bytes, which the
/// caller drew before the decryption. No branch and no accessed address depends on which of the two secrets is
/// returned. `./ci.sh timing` checks this.
///
/// `modulus_len` is the length of the key's modulus in bytes, which is not secret. If `block` has another length, the
/// result is `random`.
pub fn premaster_secret(
    block: &[u8],
    modulus_len: usize,
    version: [u8; 2],
    random: &Secret<PREMASTER_LEN>,
) -> Secret<PREMASTER_LEN> {
    let mut out = Secret::new(*random.expose());
    // The block is: 00 02, at least eight bytes that are not zero, 00, the secret.
    let Some((padding, secret)) = block.split_last_chunk::<PREMASTER_LEN>().filter(|_| block.len() == modulus_len)
    else {
        return out;
    };
    let Some(([zero, two], [filler @ .., end])) = padding.split_first_chunk::<2>() else { return out };
    if filler.len() < 8 {
        return out;
    }
    let mut wrong = zero | (two ^ 2) | end | (secret[0] ^ version[0]) | (secret[1] ^ version[1]);
    for byte in filler {
        // The result is all ones only if the byte is zero, because the subtraction then wraps around.
        wrong |= (u16::from(*byte).wrapping_sub(1) >> 8) as u8;
    }
    let keep = black_box((u16::from(wrong).wrapping_sub(1) >> 8) as u8);
    for (byte, right) in out.expose_mut().iter_mut().zip(secret) {
        *byte = (right & keep) | (*byte & !keep);
    }
    out
}

#[cfg(test)]
mod tests;
