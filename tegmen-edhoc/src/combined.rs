//! The combined request (RFC 9668, section 3). Its payload is message_3, followed by the ciphertext of the first OSCORE
//! request.

use tegmen_base::buf::Reader;
use tegmen_base::cbor;

/// The number of the EDHOC option. The option is empty and critical, and OSCORE does not protect it.
pub const EDHOC_OPTION: u16 = 21;

/// Splits the payload of a combined request into message_3 and the OSCORE ciphertext. Returns `None` if message_3 or
/// the ciphertext is missing.
pub fn split(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(payload);
    cbor::read_bytes(&mut reader)?;
    let message_len = payload.len().checked_sub(reader.rest().len())?;
    payload.split_at_checked(message_len).filter(|(_, ciphertext)| !ciphertext.is_empty())
}
