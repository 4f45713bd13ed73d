//! EDHOC messages as bytes.

use crate::failure::Failure;
use lakers::EdhocMessageBuffer;
use tegmen_base::buf::Reader;
use tegmen_base::cbor;

/// An EDHOC message to send.
#[derive(Clone, Copy)]
pub struct Message(pub(crate) EdhocMessageBuffer);

impl Message {
    /// Maximum number of bytes of a message.
    pub const MAX: usize = lakers::MAX_MESSAGE_SIZE_LEN;

    /// Returns the bytes of the message.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.content.get(..self.0.len).unwrap_or(&[])
    }

    /// Returns a copy of a received message.
    pub(crate) fn read(bytes: &[u8]) -> Result<EdhocMessageBuffer, Failure> {
        EdhocMessageBuffer::new_from_slice(bytes).map_err(|_| Failure::TooLong)
    }

    /// Returns a copy of a received message_3 or message_4. The message must be one CBOR byte string in its shortest
    /// encoding, and at least as long as a tag. `lakers` does not check this.
    pub(crate) fn read_sealed(bytes: &[u8]) -> Result<EdhocMessageBuffer, Failure> {
        let mut reader = Reader::new(bytes);
        let sealed = cbor::read_bytes(&mut reader).ok_or(Failure::Malformed)?;
        let head_len = if sealed.len() < 24 { 1 } else { 2 };
        if !reader.is_empty() || sealed.len() < lakers::AES_CCM_TAG_LEN {
            return Err(Failure::Malformed);
        }
        if sealed.len() >= 0x100 || bytes.len() != sealed.len().wrapping_add(head_len) {
            return Err(Failure::Malformed);
        }
        Self::read(bytes)
    }
}
