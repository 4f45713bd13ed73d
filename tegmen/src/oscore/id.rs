//! Sender IDs and Recipient IDs (RFC 8613, section 3.1).

use super::cose::Padded;

/// Most bytes of a Sender ID or Recipient ID.
pub const MAX_ID: usize = 7;

/// Sender ID or Recipient ID: what stands for an endpoint in a context, 0 to 7 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Id(pub(super) Padded);

impl Id {
    /// An ID of these bytes; `None` if they are more than seven.
    pub fn new(value: &[u8]) -> Option<Self> {
        Padded::new(value).map(Self)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
