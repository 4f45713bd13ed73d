//! Derives the keys and the common IV of a security context (RFC 8613, section 3.2.1).

use super::cose::{Aead, Cbor};
use super::id::Id;
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, KEY_LEN};

/// Derives a key for `id` if `out` has 16 bytes, and otherwise the common IV, which is shorter (RFC 8613, section
/// 3.2.1). The array `info` has at most `INFO_LEN` bytes.
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

/// Writes the array `info` (RFC 8613, section 3.2.1) for an output of `len` bytes. `info` already contains the head
/// of the array.
pub(super) fn write_info<const INFO_LEN: usize>(
    info: &mut Cbor<INFO_LEN>,
    id_context: Option<&[u8]>,
    aead: Aead,
    id: &Id,
    len: u8,
) {
    let kind: &[u8] = if usize::from(len) == KEY_LEN { KEY } else { IV };
    write_info_of(info, id_context, aead, id, (kind, len));
}

/// Does the same as [`write_info`], for `len` bytes of the type `kind`, which is an encoded text of CBOR.
#[inline]
pub(super) fn write_info_of<const INFO_LEN: usize>(
    info: &mut Cbor<INFO_LEN>,
    id_context: Option<&[u8]>,
    aead: Aead,
    id: &Id,
    (kind, len): (&[u8], u8),
) {
    info.string(id.as_bytes());
    match id_context {
        Some(id_context) => info.string(id_context),
        None => info.put(&[0xf6]),
    }
    info.uint(aead.cose_id());
    info.put(kind);
    info.uint(len);
}

/// The type of a key, as an encoded text of CBOR.
pub(super) const KEY: &[u8] = b"\x63Key";
/// The type of a common IV, as an encoded text of CBOR.
pub(super) const IV: &[u8] = b"\x62IV";
