//! The negotiation of the maximum size of a record's content. The extensions are record_size_limit (RFC 8449) and its
//! predecessor max_fragment_length (RFC 6066, section 4).
//!
//! DTLS does not divide application data into several records. If the peer agreed on a limit, send at most
//! [`Peer::max_content`](crate::endpoint::Peer::max_content) bytes at a time. Only
//! [`Extended`](crate::dtls::roles::Extended) endpoints negotiate this limit.

use super::Fatal;
use super::handshake::extension::{Extensions, MaxFragmentLength};
use super::record::MAX_CONTENT;

/// Minimum value of record_size_limit (RFC 8449, section 4).
pub(crate) const MIN_LIMIT: u16 = 64;
/// Maximum useful value of record_size_limit: the maximum length of a record's content.
pub(crate) const MAX_LIMIT: u16 = MAX_CONTENT as u16;

/// The agreed limit of an association, in 16 bits: the limit in bytes, and optionally the bit [`BOTH`] or the bit
/// [`SENT_ONLY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordSize(u16);

/// A bit that is set if both directions have the same limit, as max_fragment_length requires.
const BOTH: u16 = 1 << 15;
/// A bit that is set, together with a limit, if the limit applies only to sent records. If all other bits are 0, this
/// bit is the limit [`MAX_LIMIT`].
const SENT_ONLY: u16 = MAX_LIMIT;

impl RecordSize {
    /// The value for an association without a negotiated limit.
    pub(crate) const UNLIMITED: Self = Self(0);

    /// Returns the limit in the form that is stored with a session.
    pub(crate) const fn to_bits(self) -> u16 {
        self.0
    }

    /// Reads the form that [`Self::to_bits`] returns.
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Server: returns the limit that a ClientHello requests with record_size_limit. If the ClientHello does not have
    /// this extension, returns the limit that it requests with max_fragment_length (RFC 8449, section 5).
    pub(crate) fn asked(hello: &Extensions) -> Result<Self, Fatal> {
        match (hello.record_size_limit, hello.max_fragment_length) {
            (Some(limit), _) => Self::limit(limit),
            (None, Some(length)) => Self::both(length),
            (None, None) => Ok(Self::UNLIMITED),
        }
    }

    /// Client: returns the limit that the extensions of a ServerHello request. `limit` is the client's own limit in
    /// bytes, or 0 if the client offered no limit. Returns an error if the ServerHello has both extensions (RFC 8449,
    /// section 5), an extension that was not offered, a max_fragment_length other than the offered one (RFC 6066,
    /// section 4), or a record_size_limit below 64.
    ///
    /// A server that resumes a session does not answer max_fragment_length, and the length of the first handshake
    /// remains (RFC 6066, sections 1.1 and 4). The client does not store this length. So if the server resumes a
    /// session and does not answer, the client sends no record that is longer than the length that it offers.
    pub(crate) fn answered(hello: &Extensions, limit: u16, resumed: bool) -> Result<Self, Fatal> {
        match (hello.record_size_limit, hello.max_fragment_length) {
            (None, None) => {
                let length = MaxFragmentLength::within(limit).filter(|_| resumed).and_then(MaxFragmentLength::bytes);
                Ok(length.map_or(Self::UNLIMITED, |bytes| Self(bytes | SENT_ONLY)))
            }
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

    /// Returns the contents of record_size_limit and of max_fragment_length for a ServerHello, in this order; `None`
    /// for an absent extension. `limit` is the server's own limit in bytes, or 0 if the server accepts every size.
    pub(crate) fn answer(self, limit: u16) -> (Option<u16>, Option<MaxFragmentLength>) {
        match self.0 {
            0 => (None, None),
            both if both & BOTH != 0 => (None, MaxFragmentLength::within(both & !BOTH)),
            _ => (Some(if limit > 0 { limit } else { MAX_LIMIT }), None),
        }
    }

    fn limit(limit: u16) -> Result<Self, Fatal> {
        // A value above the longest content of a record is allowed, and counts as that length.
        if limit < MIN_LIMIT { Err(Fatal::IllegalParameter) } else { Ok(Self(limit.min(MAX_LIMIT))) }
    }

    fn both(length: MaxFragmentLength) -> Result<Self, Fatal> {
        length.bytes().map(|bytes| Self(bytes | BOTH)).ok_or(Fatal::IllegalParameter)
    }

    /// Returns the maximum number of bytes of content that we may send in a record.
    pub(crate) const fn sent(self) -> usize {
        match self.0 & !BOTH {
            0 => MAX_CONTENT,
            limit if limit > SENT_ONLY => (limit & !SENT_ONLY) as usize,
            limit => limit as usize,
        }
    }

    /// Returns the maximum number of bytes of content that the peer may send in a record. `limit` is our own limit in
    /// bytes, or 0 if we have none.
    pub(crate) const fn received(self, limit: u16) -> usize {
        match self.0 {
            0 => MAX_CONTENT,
            both if both & BOTH != 0 => self.sent(),
            only if only > SENT_ONLY => MAX_CONTENT,
            _ if limit == 0 => MAX_CONTENT,
            _ => limit as usize,
        }
    }
}

#[cfg(test)]
mod tests;
