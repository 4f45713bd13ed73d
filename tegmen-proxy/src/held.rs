//! A message that the proxy holds in memory.

use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, MessageRef, OptionNumber};

/// Memory for a message of at most `LEN` bytes. The length is 0 without a message.
pub(crate) struct Held<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
}

impl<const LEN: usize> Held<LEN> {
    pub(crate) const EMPTY: Self = Self { bytes: [0; LEN], len: 0 };

    /// Stores the message that `write` writes, in place of the earlier message.
    ///
    /// # Errors
    /// The error of `write`. The memory then holds no message.
    pub(crate) fn set<E>(&mut self, write: impl FnOnce(&mut Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        self.len = 0;
        let mut frame = Frame::new(&mut self.bytes, 0);
        write(&mut frame)?;
        self.len = frame.len();
        Ok(())
    }

    pub(crate) fn message(&self) -> Option<MessageRef<'_>> {
        MessageRef::parse(self.as_bytes()).ok()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Writes a message without its token.
///
/// # Errors
/// [`BuildError::Full`] if there is no space.
pub(crate) fn write_whole(message: &MessageRef<'_>, frame: &mut Frame<'_>) -> Result<(), BuildError> {
    let mut builder = Builder::new(frame, message.message_type(), message.code(), 0, &[])?;
    message.options().try_for_each(|(number, value)| builder.option(number, value))?;
    builder.payload(message.payload())
}

/// True for an option that describes one block of a transfer (RFC 7959). The proxy forwards such an option with its
/// message. Also true for Echo, the challenge of a server (RFC 9175), which the client must answer itself.
pub(crate) const fn is_of_blocks(number: OptionNumber) -> bool {
    matches!(
        number,
        OptionNumber::BLOCK1 | OptionNumber::BLOCK2 | OptionNumber::SIZE1 | OptionNumber::SIZE2 | OptionNumber::ECHO
    )
}
