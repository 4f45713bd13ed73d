//! The value of the OSCORE option (RFC 8613, section 6.1).

use super::id::{MAX_ID, Padded};
use tegmen_base::buf::{Headroom, Reader, Truncated};

/// The largest sequence number of a message (RFC 8613, section 7.2.1).
pub const MAX_PARTIAL_IV: u64 = (1 << 40) - 1;

/// A sender sequence number in its encoded form: one to five bytes, without a leading zero byte (RFC 8613, section
/// 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialIv(pub(super) Padded);

impl PartialIv {
    /// The sequence number 0.
    pub(crate) const ZERO: Self = Self(Padded::of(0, 1));

    /// Returns the shortest encoded form of a sequence number. Returns `None` if the sequence number is above 2^40 - 1.
    pub(crate) const fn new(number: u64) -> Option<Self> {
        if number > MAX_PARTIAL_IV {
            return None;
        }
        // The sequence number 0 also takes one byte.
        let bits = u64::BITS.wrapping_sub((number | 1).leading_zeros());
        Some(Self(Padded::of(number, (bits.wrapping_add(7) / 8) as u8)))
    }

    fn read(value: &[u8]) -> Result<Self, BadOption> {
        match value {
            [0, _, ..] | [_, _, _, _, _, _, ..] => Err(BadOption),
            _ => Padded::new(value).map(Self).ok_or(BadOption),
        }
    }

    /// Returns the sequence number.
    pub(crate) const fn number(&self) -> u64 {
        self.0.number()
    }

    /// Returns the encoded value.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The error for an OSCORE option whose value RFC 8613 does not allow. A request with such a value is answered with
/// 4.02.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadOption;

impl From<Truncated> for BadOption {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// The bits of the first byte that contain the length of the Partial IV.
const PARTIAL_IV_LEN: u8 = 0b0000_0111;
const KID: u8 = 0b0000_1000;
const KID_CONTEXT: u8 = 0b0001_0000;
const GROUP: u8 = 0b0010_0000;
const RESERVED: u8 = 0b1110_0000;

/// Length of the longest value in bytes (RFC 8613, section 2).
const MAX_VALUE: usize = 255;

/// Returns the length of the longest value whose kid context has at most `max_kid_context` bytes.
pub(super) const fn max_len(max_kid_context: usize) -> usize {
    max_kid_context.wrapping_add(1 + 5 + 1 + MAX_ID)
}

/// The content of the OSCORE option of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OscoreOption<'a> {
    /// The Partial IV: the sequence number of the message. A response may have no Partial IV.
    pub partial_iv: Option<PartialIv>,
    /// The ID Context of the security context.
    pub kid_context: Option<&'a [u8]>,
    /// The Sender ID of the security context. Only requests, and responses in a group, contain it.
    pub kid: Option<&'a [u8]>,
    /// Group Flag: the message is protected in the group mode of Group OSCORE (RFC 10021, section 4.1).
    pub group: bool,
}

impl<'a> OscoreOption<'a> {
    /// Reads a value.
    ///
    /// # Errors
    /// [`BadOption`] if a reserved bit is set, if the Partial IV is too long or not in its shortest form, if bytes
    /// are missing or left over, or if all flags are zero in a value that is not empty.
    pub fn parse(value: &'a [u8]) -> Result<Self, BadOption> {
        Self::read::<false>(value)
    }

    /// Reads a value for an endpoint that supports Group OSCORE. The Group Flag is then not reserved (RFC 10021,
    /// section 4.1).
    ///
    /// # Errors
    /// The errors of [`Self::parse`].
    pub fn parse_in_group(value: &'a [u8]) -> Result<Self, BadOption> {
        Self::read::<true>(value)
    }

    fn read<const IN_GROUP: bool>(value: &'a [u8]) -> Result<Self, BadOption> {
        let mut reader = Reader::new(value);
        if reader.is_empty() {
            return Ok(Self::default());
        }
        if value.len() > MAX_VALUE {
            return Err(BadOption);
        }
        let flags = reader.u8()?;
        let group = IN_GROUP && flags & GROUP != 0;
        if flags == 0 || flags & RESERVED != if group { GROUP } else { 0 } {
            return Err(BadOption);
        }
        let partial_iv = match flags & PARTIAL_IV_LEN {
            0 => None,
            len => Some(PartialIv::read(reader.take(len.into())?)?),
        };
        let kid_context = if flags & KID_CONTEXT != 0 { Some(reader.with_len8()?) } else { None };
        let kid = if flags & KID != 0 { Some(reader.rest()) } else { None };
        if kid.is_none() && !reader.is_empty() {
            return Err(BadOption);
        }
        Ok(Self { partial_iv, kid_context, kid, group })
    }

    /// Writes the value in front of the bytes that are already written. The kid context has at most 255 bytes,
    /// because its length is written in one byte.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn write(&self, headroom: &mut Headroom<'_>) {
        let mut flags = if self.group { GROUP } else { 0 };
        headroom.put(self.kid.unwrap_or(&[]));
        if self.kid.is_some() {
            flags |= KID;
        }
        if let Some(context) = self.kid_context {
            headroom.put(context);
            headroom.push(context.len() as u8);
            flags |= KID_CONTEXT;
        }
        if let Some(partial_iv) = &self.partial_iv {
            headroom.put(partial_iv.as_bytes());
            flags |= partial_iv.0.len() as u8;
        }
        if flags != 0 {
            headroom.push(flags);
        }
    }
}

#[cfg(test)]
mod tests;
