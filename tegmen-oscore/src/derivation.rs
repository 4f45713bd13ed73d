//! Derivation of keys and the common IV of a security context (RFC 8613, section 3.2.1).

use super::cose::{Aead, Cbor};
use super::id::Id;
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, KEY_LEN};

/// Derives a key of 16 bytes for `id`, or the common IV, which is shorter (RFC 8613, section 3.2.1). The array `info` has
/// at most `INFO_LEN` bytes.
#[inline(never)]
pub(super) fn expand<C: Crypto, const INFO_LEN: usize>(
    hkdf: &Hkdf,
    (id_context, aead): (Option<&[u8]>, Aead),
    id: &Id,
    out: &mut [u8],
) {
    let mut info = Cbor::<INFO_LEN>::beginning_with([0x85]);
    write_info(&mut info, id_context, aead, id, out.len() as u8);
    hkdf.expand::<C>(info.as_bytes(), out);
}

/// The array `info` (RFC 8613, section 3.2.1) for `len` bytes, of which the head is there.
pub(super) fn write_info<const INFO_LEN: usize>(
    info: &mut Cbor<INFO_LEN>,
    id_context: Option<&[u8]>,
    aead: Aead,
    id: &Id,
    len: u8,
) {
    info.string(id.as_bytes());
    match id_context {
        Some(id_context) => info.string(id_context),
        None => info.put(&[0xf6]),
    }
    info.uint(aead.cose_id());
    info.put(if usize::from(len) == KEY_LEN { b"\x63Key" } else { b"\x62IV" });
    info.uint(len);
}
