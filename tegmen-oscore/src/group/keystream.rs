//! The keystream that encrypts a signature (RFC 10021, section 4.2).

use super::gid::Gid;
use crate::cose::Cbor;
use crate::id::Id;
use crate::option::PartialIv;
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, KEY_LEN};
use tegmen_base::secret::Secret;

/// Length of a signature in bytes.
pub(super) const SIGNATURE_LEN: usize = 64;
/// Maximum number of bytes of the array `info`.
const INFO_LEN: usize = 40;

/// Encrypts or decrypts the signature of a message. `id` and `number` are the member ID and the sequence number from
/// which the nonce of the message is made.
pub(super) fn apply<C: Crypto>(
    key: &Secret<KEY_LEN>,
    (id, number): (&Id, &PartialIv),
    gid: &Gid,
    is_request: bool,
    signature: &mut [u8; SIGNATURE_LEN],
) {
    let mut info = Cbor::<INFO_LEN>::beginning_with([0x84]);
    info.string(id.as_bytes());
    info.string(gid.as_bytes());
    info.put(&[if is_request { 0xf5 } else { 0xf4 }]);
    info.uint(SIGNATURE_LEN as u8);
    let mut hkdf = Hkdf::none();
    hkdf.extract::<C>(number.as_bytes(), &[key.expose()]);
    let mut keystream = Secret::<SIGNATURE_LEN>::zeroed();
    hkdf.expand_twice::<C>(info.as_bytes(), keystream.expose_mut());
    signature.iter_mut().zip(keystream.expose()).for_each(|(byte, key)| *byte ^= key);
}
