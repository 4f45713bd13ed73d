//! Sender IDs and Recipient IDs (RFC 8613, section 3.1).

/// Maximum number of bytes of a Sender ID or Recipient ID.
pub(super) const MAX_ID: usize = 7;

/// A Sender ID or Recipient ID of 0 to 7 bytes, which identifies an endpoint in a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Id(pub(super) Padded);

impl Id {
    /// Makes an ID of these bytes. Returns `None` for more than seven bytes.
    pub fn new(value: &[u8]) -> Option<Self> {
        Padded::new(value).map(Self)
    }

    /// Returns the bytes of the ID.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A sender ID or a Partial IV of up to seven bytes, padded with zeros in front as the nonce requires. The last byte of
/// the array is the number of bytes without the padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(align(4))]
pub(super) struct Padded([u8; MAX_ID + 1]);

impl Padded {
    /// Pads these bytes. Returns `None` for more than seven bytes.
    pub(super) fn new(value: &[u8]) -> Option<Self> {
        if value.len() > MAX_ID {
            return None;
        }
        Some(Self::of(value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), value.len() as u8))
    }

    /// Makes a value of the last `len` bytes of a number.
    pub(super) const fn of(number: u64, len: u8) -> Self {
        Self((number << 8 | len as u64).to_be_bytes())
    }

    /// Returns the bytes as a number.
    pub(super) const fn number(&self) -> u64 {
        u64::from_be_bytes(self.0) >> 8
    }

    pub(super) const fn len(&self) -> usize {
        let [.., len] = self.0;
        len as usize
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        let [bytes @ .., len] = &self.0;
        // The length is at most seven. The mask proves this to the compiler.
        bytes.get(MAX_ID.wrapping_sub(usize::from(*len & 7))..).unwrap_or(&[])
    }
}
