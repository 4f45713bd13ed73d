//! The additional authenticated data of a message (RFC 10021, section 3.4), and the bytes that its signature covers
//! (RFC 10021, section 3.1).

use super::algorithms::{self, Algorithms};
use super::exchange::{GroupRequest, RequestHash};
use crate::cose::Cbor;
use crate::id::{Id, MAX_ID};
use crate::option::PartialIv;
use tegmen_base::buf::{Full, Reader, Writer};
use tegmen_base::cbor;
use tegmen_base::crypto::hash::DIGEST_LEN;
use tegmen_base::crypto::{GroupCrypto, MemberKey, NotAuthentic};

/// Maximum number of bytes of the additional authenticated data, without the two credentials in it.
pub(super) const OVERHEAD: usize = 136;

/// The bytes before external_aad in the Enc_structure of COSE (RFC 9052, section 5.3).
const ENC_STRUCTURE: &[u8] = b"\x83\x68Encrypt0\x40";
/// The bytes before external_aad in the Countersign_structure (RFC 9338, section 3.3). There is no sign_protected,
/// because the message has an abbreviated countersignature of version 2.
const COUNTERSIGN_STRUCTURE: &[u8] = b"\x84\x71CounterSignature0\x40";

/// The parts of external_aad that depend on the message or the group.
pub(super) struct Parts<'a> {
    pub algorithms: &'a Algorithms,
    pub request: &'a GroupRequest,
    /// The value of the OSCORE option of the message.
    pub option: &'a [u8],
    pub sender_credential: &'a [u8],
    pub group_manager_credential: &'a [u8],
}

/// The additional authenticated data in the form of an Enc_structure.
pub(super) struct Aad<'a>(&'a [u8]);

impl<'a> Aad<'a> {
    /// Writes the Enc_structure into `room`.
    ///
    /// # Errors
    /// [`Full`] if the credentials are too long.
    pub(super) fn new(parts: &Parts<'_>, room: &'a mut [u8]) -> Result<Self, Full> {
        let mut out = Writer::new(room);
        let GroupRequest { kid: Id(kid), number: PartialIv(number), gid, hash, .. } = parts.request;
        // The array has nine items: the version, the algorithms, and strings.
        let mut start = Cbor::<MAX_START>::beginning_with([0x89, 1]);
        parts.algorithms.write(&mut start);
        start.padded(kid);
        start.padded(number);
        let start = start.as_bytes();
        // The only option of class I (integrity-protected) is Request-Hash in the response to a deterministic request.
        let class_i = hash.map(|hash| request_hash_option(&hash));
        let class_i_len = class_i.as_ref().map_or(1, |option| string_len(option));
        let strings = [gid.as_bytes(), parts.option, parts.sender_credential, parts.group_manager_credential];
        let before = start.len().wrapping_add(class_i_len);
        let len = strings.iter().fold(before, |sum, string| sum.wrapping_add(string_len(string)));
        out.put(ENC_STRUCTURE)?;
        write_head(len, &mut out)?;
        out.put(start)?;
        match class_i {
            None => write_head(0, &mut out)?,
            Some(option) => write_head(option.len(), &mut out).and_then(|()| out.put(&option))?,
        }
        for string in strings {
            write_head(string.len(), &mut out)?;
            out.put(string)?;
        }
        Ok(Self(out.finish()))
    }

    pub(super) const fn as_bytes(&self) -> &[u8] {
        self.0
    }

    /// Returns the array in external_aad, without the head of its byte string.
    pub(super) fn array(&self) -> &[u8] {
        let mut external = Reader::new(self.external());
        cbor::read_bytes(&mut external).unwrap_or(&[])
    }

    /// Returns the byte string external_aad, with its head.
    fn external(&self) -> &[u8] {
        self.as_bytes().get(ENC_STRUCTURE.len()..).unwrap_or(&[])
    }

    /// Passes to `with` the bytes that the signature covers, in parts. The bytes are a Countersign_structure over a
    /// ciphertext and its tag.
    pub(super) fn signed<R>(&self, ciphertext: &[u8], with: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut head = [0; MAX_HEAD];
        let mut out = Writer::new(&mut head);
        // A payload is shorter than 2^16 bytes. For a longer payload, the head would be missing, and the signature
        // would not be valid.
        let _ = write_head(ciphertext.len(), &mut out);
        with(&[COUNTERSIGN_STRUCTURE, self.external(), out.written(), ciphertext])
    }

    /// Verifies the signature of a ciphertext.
    pub(super) fn verify<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        key: &MemberKey,
        ciphertext: &[u8],
        signature: &[u8; 64],
    ) -> Result<(), NotAuthentic> {
        self.signed(ciphertext, |message| crypto.verify_message(key, message, signature))
    }
}

/// Maximum number of bytes of external_aad before the options of class I, and a few bytes more, because whole words
/// are written.
const MAX_START: usize = 2 + algorithms::MAX_LEN + 2 * (1 + MAX_ID) + 1;

/// Returns the encoded option Request-Hash, the only option in external_aad.
fn request_hash_option(hash: &RequestHash) -> [u8; REQUEST_HASH_HEAD.len() + DIGEST_LEN] {
    let mut option = [0; _];
    let bytes = REQUEST_HASH_HEAD.iter().chain(hash);
    option.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    option
}

/// The header of the option 548 with 32 bytes (RFC 7252, section 3.1).
const REQUEST_HASH_HEAD: [u8; 4] = [0xed, 0x01, 0x17, 0x13];
/// Maximum number of bytes of the head of a byte string.
const MAX_HEAD: usize = 3;

/// Writes the head of a string of bytes in its shortest form (RFC 8949, section 4.2.1).
fn write_head(len: usize, out: &mut Writer<'_>) -> Result<(), Full> {
    match len {
        0..24 => out.u8(0x40 | len as u8),
        24..0x100 => out.put(&[0x58, len as u8]),
        0x100..0x1_0000 => out.u8(0x59).and_then(|()| out.u16(len as u16)),
        _ => Err(Full),
    }
}

/// Returns the number of bytes of a byte string with its head.
fn string_len(string: &[u8]) -> usize {
    let head: usize = match string.len() {
        0..24 => 1,
        24..0x100 => 2,
        _ => MAX_HEAD,
    };
    head.wrapping_add(string.len())
}
