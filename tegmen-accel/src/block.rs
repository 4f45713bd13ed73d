//! The blocks that CCM builds from lengths, nonce and associated data (RFC 3610, sections 2.2 and 2.3).
//!
//! A block is a `u128`. Its lowest byte is the first byte of the block.

use tegmen_base::crypto::{NotAuthentic, Unsupported};

/// The first MAC block, the first counter block and the mask of the tag for one message. `new` makes this value only if
/// CCM supports the lengths of the nonce, the associated data, the body and the tag.
pub(crate) struct Shape {
    /// Block 0 of the MAC: flags, nonce and length of the body.
    pub(crate) first: u128,
    /// Counter block 0.
    pub(crate) counter: u128,
    /// A mask for the tag. In the lowest bytes of the mask all bits are 1, and the number of these bytes is the length
    /// of the tag. All other bits are 0.
    mask: u128,
}

/// Number of bytes of associated data in the first block of associated data. The block begins with the length of the
/// data, in two bytes.
pub(crate) const HEAD: usize = 14;

impl Shape {
    #[inline(always)]
    pub(crate) fn new(nonce: &[u8], aad: &[u8], body: &[u8], tag: &[u8]) -> Result<Self, Unsupported> {
        let len = u32::try_from(body.len()).map_err(|_| Unsupported)?;
        let size = nonce.len();
        // The length of the body must fit the 15 bytes that it shares with the nonce.
        let fits = match size {
            13 => len >> 16 == 0,
            12 => len >> 24 == 0,
            7..=11 => true,
            _ => false,
        };
        // From 0xff00 on, another field announces the length of the associated data.
        if !fits || aad.len() >= 0xff00 || tag.len() < 4 || tag.len() > 16 || !tag.len().is_multiple_of(2) {
            return Err(Unsupported);
        }
        let counter = (14 - size as u128) | short(nonce) << 8;
        let flags = (tag.len() as u128 - 2) << 2 | if aad.is_empty() { 0 } else { 0x40 };
        let first = counter | flags | u128::from(len.swap_bytes()) << 96;
        Ok(Self { first, counter, mask: ones(tag.len()) })
    }

    /// Copies the computed tag `made` to `tag`, cut to the length of `tag`.
    #[inline(always)]
    pub(crate) fn cut(&self, made: u128, tag: &mut [u8]) {
        if let Ok(tag) = <&mut [u8; 8]>::try_from(&mut *tag) {
            *tag = (made as u64).to_le_bytes();
        } else {
            tag.iter_mut().zip(made.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }

    /// Compares the computed tag `made` with the received tag, in constant time: compares all bytes, and decides once
    /// at the end. If the tags differ, fills `body` with zeros.
    #[inline(always)]
    pub(crate) fn check(&self, made: u128, tag: &[u8], body: &mut [u8]) -> Result<(), NotAuthentic> {
        if std::hint::black_box((made ^ short(tag)) & self.mask) == 0 {
            return Ok(());
        }
        body.fill(0);
        Err(NotAuthentic)
    }
}

/// Returns the first block of the associated data, with its length. The associated data must not be empty.
#[inline(always)]
pub(crate) fn head(aad: &[u8]) -> u128 {
    let bytes = aad.get(..HEAD).unwrap_or(aad);
    u128::from((aad.len() as u16).swap_bytes()) | short(bytes) << 16
}

/// Returns a block of up to 16 bytes, padded with zeros.
#[inline(always)]
pub(crate) fn short(bytes: &[u8]) -> u128 {
    // Not put together in memory, and in the pieces in which protocols write a nonce of 12 bytes (salt and number) and
    // the 13 bytes before a record (number, then single bytes): a load that spans several young stores has to wait.
    if let Some((salt, number)) = bytes.split_first_chunk()
        && let Ok(number) = number.try_into()
    {
        return u128::from(u32::from_le_bytes(*salt)) | u128::from(u64::from_le_bytes(number)) << 32;
    }
    let (words, rest) = bytes.as_chunks();
    let tail = rest.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    match words {
        [] => tail.into(),
        [low] => u128::from(u64::from_le_bytes(*low)) | u128::from(tail) << 64,
        [low, high, ..] => u128::from(u64::from_le_bytes(*low)) | u128::from(u64::from_le_bytes(*high)) << 64,
    }
}

/// Writes the first bytes of `block`.
#[inline(always)]
pub(crate) fn put_short(bytes: &mut [u8], block: u128) {
    bytes.iter_mut().zip(block.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// Returns a block in which all bits of the first `len` bytes are 1.
#[inline(always)]
pub(crate) fn ones(len: usize) -> u128 {
    match len {
        0 => 0,
        _ => u128::MAX >> (128 - 8 * len.min(16)),
    }
}
