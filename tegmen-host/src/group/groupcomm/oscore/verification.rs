//! Messages between a signature verifier and the Group Manager (draft-ietf-ace-key-groupcomm-oscore, sections 9.5.2 and
//! 9.6).

use super::super::creds::CNONCE;
use super::super::{GKTY, KEY, PROFILE, array};
use super::creds::NUM;
use super::keys::{EXI, EXP, ReadKey, write_verification_key};
use super::{GROUP_OSCORE, LONGEST_NONCE};
use crate::cbor::{Malformed, MapWriter, Out, bytes, integer, number, read_map, read_message};
use tegmen::crypto::{Curve, KEY_LEN};
use tegmen::oscore::Aead;
use tegmen::oscore::group::Algorithms;
use tegmen::secret::Secret;
use tegmen_store::clock::now;

/// The label of the Signature Encryption Key. The draft suggests this number (section 12).
const SIGN_ENC_KEY: i64 = 33;

/// The data of a group with which a signature verifier verifies messages in the group mode.
pub struct VerificationData {
    /// The Group Identifier.
    pub gid: Vec<u8>,
    /// The key that decrypts the signatures of messages (RFC 10021, section 2.1.9). It decrypts no other part of a message.
    pub signature_encryption_key: Secret<KEY_LEN>,
    /// The algorithm that encrypts messages of both modes.
    pub aead: Aead,
    /// The curve of the keys of all members.
    pub curve: Curve,
    /// The version of the keying material, from 1.
    pub number: u16,
    /// The time after which the keying material must not be used, in seconds since 1970.
    pub expires: u64,
}

impl VerificationData {
    /// Returns the algorithms of the group.
    pub const fn algorithms(&self) -> Algorithms {
        let aead = Some(self.aead);
        Algorithms { aead, group_encryption: aead, ..Algorithms::both(self.curve) }
    }

    /// Writes the payload of the response.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(GKTY, |encoder| integer(encoder, GROUP_OSCORE));
        map.map(KEY, Some(self), |map, data| write_verification_key(map, &data.gid, (data.aead, data.curve)));
        map.entry(NUM, |encoder| number(encoder, self.number.into()));
        map.entry(PROFILE, |encoder| integer(encoder, GROUP_OSCORE));
        map.entry(EXP, |encoder| number(encoder, self.expires));
        map.entry(EXI, |encoder| number(encoder, self.expires.saturating_sub(now())));
        map.entry(SIGN_ENC_KEY, |encoder| bytes(encoder, self.signature_encryption_key.expose()));
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not such a payload, or if the group uses algorithms that this program does not have.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut key = ReadKey::default();
        let (mut kind, mut version, mut expires, mut signature_encryption_key) = (None, None, None, None);
        read_message(message, |label, decoder| {
            match label {
                GKTY => kind = Some(decoder.i64()?),
                KEY => read_map(decoder, |label, decoder| key.take(label, decoder))?,
                NUM => version = Some(decoder.u16()?),
                EXP => expires = Some(decoder.u64()?),
                SIGN_ENC_KEY => signature_encryption_key = Some(Secret::new(array(decoder)?)),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if kind != Some(GROUP_OSCORE) {
            return Err(Malformed::Value(GKTY));
        }
        let (aead, curve, gid) = key.known().ok_or(Malformed::Value(KEY))?;
        Ok(Self {
            gid,
            signature_encryption_key: signature_encryption_key.ok_or(Malformed::Missing(SIGN_ENC_KEY))?,
            aead,
            curve,
            number: version.ok_or(Malformed::Missing(NUM))?,
            expires: expires.ok_or(Malformed::Missing(EXP))?,
        })
    }
}

/// Writes the payload of a request for the credential of the Group Manager. `cnonce` is the nonce that the proof of the
/// Group Manager covers.
pub fn encode_cnonce(cnonce: &[u8]) -> Out {
    let mut map = MapWriter::default();
    map.entry(CNONCE, |encoder| bytes(encoder, cnonce));
    map.finish()
}

/// Reads the payload of a request for the credential of the Group Manager. Returns the nonce, which has 1 to 64 bytes.
///
/// # Errors
/// [`Malformed`] if the bytes are not such a payload.
pub fn parse_cnonce(message: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut cnonce = None;
    read_message(message, |label, decoder| {
        let is_it = label == CNONCE;
        if is_it {
            cnonce = Some(decoder.bytes()?.to_vec());
        }
        Ok(is_it)
    })?;
    let cnonce = cnonce.ok_or(Malformed::Missing(CNONCE))?;
    if (1..=LONGEST_NONCE).contains(&cnonce.len()) { Ok(cnonce) } else { Err(Malformed::Value(CNONCE)) }
}
