//! The maximum size of a record's content: record_size_limit (RFC 8449), and its predecessor max_fragment_length (RFC
//! 6066, section 4).
//!
//! DTLS does not split application data. If the peer agreed on a limit, send it no more than
//! [`Peer::max_content`](crate::endpoint::Peer::max_content) at a time. Only [`Extended`](crate::dtls::roles::Extended)
//! endpoints negotiate this limit.

use super::Fatal;
use super::handshake::extension::{Extensions, MaxFragmentLength};
use super::record::MAX_CONTENT;

/// Minimum value of record_size_limit (RFC 8449, section 4).
pub(crate) const MIN_LIMIT: u16 = 64;
/// Maximum value of record_size_limit that has an effect: the longest content of a record.
pub(crate) const MAX_LIMIT: u16 = MAX_CONTENT as u16;

/// The limit that an association agreed on, in the two free bytes of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordSize(u16);

/// Set if both sides have the same limit, as with max_fragment_length.
const BOTH: u16 = 1 << 15;

impl RecordSize {
    /// No limit was negotiated.
    pub(crate) const UNLIMITED: Self = Self(0);

    /// Returns the limit in the form in which it is kept with a session.
    pub(crate) const fn to_bits(self) -> u16 {
        self.0
    }

    /// Reads the output of [`Self::to_bits`].
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Server: returns the limit that a ClientHello asks for with record_size_limit, or with max_fragment_length if
    /// there is no record_size_limit (RFC 8449, section 5).
    pub(crate) fn asked(hello: &Extensions) -> Result<Self, Fatal> {
        match (hello.record_size_limit, hello.max_fragment_length) {
            (Some(limit), _) => Self::limit(limit),
            (None, Some(length)) => Self::both(length),
            (None, None) => Ok(Self::UNLIMITED),
        }
    }

    /// Client: returns the limit that a server answered to the client's own `limit`, which is 0 if the client offered
    /// none. Both extensions in one answer are an error (RFC 8449, section 5), as is a length other than the offered
    /// one (RFC 6066, section 4).
    pub(crate) fn answered(hello: &Extensions, limit: u16) -> Result<Self, Fatal> {
        match (hello.record_size_limit, hello.max_fragment_length) {
            (None, None) => Ok(Self::UNLIMITED),
            (Some(_), Some(_)) => Err(Fatal::IllegalParameter),
            (Some(theirs), None) if limit > 0 => Self::limit(theirs),
            (None, Some(length)) => match MaxFragmentLength::within(limit) {
                Some(offered) if offered == length => Self::both(length),
                Some(_) => Err(Fatal::IllegalParameter),
                None => Err(Fatal::UnsupportedExtension),
            },
            (Some(_), None) => Err(Fatal::UnsupportedExtension),
        }
    }

    /// Returns the answer of a server whose own limit is `limit`, or 0 if it accepts any size.
    pub(crate) fn answer(self, limit: u16) -> (Option<u16>, Option<MaxFragmentLength>) {
        match self.0 {
            0 => (None, None),
            both if both & BOTH != 0 => (None, MaxFragmentLength::within(both & !BOTH)),
            _ => (Some(if limit > 0 { limit } else { MAX_LIMIT }), None),
        }
    }

    fn limit(limit: u16) -> Result<Self, Fatal> {
        // A higher value than a record can hold is allowed, and counts as the longest content.
        if limit < MIN_LIMIT { Err(Fatal::IllegalParameter) } else { Ok(Self(limit.min(MAX_LIMIT))) }
    }

    fn both(length: MaxFragmentLength) -> Result<Self, Fatal> {
        length.bytes().map(|bytes| Self(bytes | BOTH)).ok_or(Fatal::IllegalParameter)
    }

    /// The longest content that we may send, in bytes.
    pub(crate) const fn sent(self) -> usize {
        match self.0 & !BOTH {
            0 => MAX_CONTENT,
            limit => limit as usize,
        }
    }

    /// The longest content that the peer may send, in bytes, if our own limit is `limit`, or 0.
    pub(crate) const fn received(self, limit: u16) -> usize {
        match self.0 {
            0 => MAX_CONTENT,
            both if both & BOTH != 0 => self.sent(),
            _ if limit == 0 => MAX_CONTENT,
            _ => limit as usize,
        }
    }
}

#[cfg(test)]
mod tests;
