//! How much a record may hold: record_size_limit (RFC 8449), and max_fragment_length (RFC 6066, section 4) before it.
//!
//! DTLS does not cut what the application says, so whoever agreed on less has to be told less at a time:
//! [`Peer::max_content`](crate::endpoint::Peer::max_content). Only [`Extended`](crate::endpoint::Extended) endpoints speak
//! of it.

use super::Fatal;
use super::handshake::extension::Extensions;
use super::record::MAX_CONTENT;

/// The least that may be said in record_size_limit (RFC 8449, section 4).
pub const MIN_LIMIT: u16 = 64;
/// The most that has a meaning there: the longest content of a record.
pub const MAX_LIMIT: u16 = MAX_CONTENT as u16;

/// The content of max_fragment_length (RFC 6066, section 4): 1 to 4 for 512, 1024, 2048 and 4096 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxFragmentLength(pub u8);

impl MaxFragmentLength {
    /// In bytes; `None` if the number is not one of the four.
    pub const fn bytes(self) -> Option<u16> {
        match self.0 {
            1..=4 => Some(256 << self.0),
            _ => None,
        }
    }

    /// What is offered beside a limit to servers that do not know that: the next below it, if there is one.
    pub(crate) const fn within(limit: u16) -> Option<Self> {
        match limit {
            512..1024 => Some(Self(1)),
            1024..2048 => Some(Self(2)),
            2048..4096 => Some(Self(3)),
            4096..MAX_LIMIT => Some(Self(4)),
            _ => None,
        }
    }
}

/// What an association agreed on, in the two bytes that are free in its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordSize(u16);

/// Set if both sides have the same limit, as max_fragment_length has it.
const BOTH: u16 = 1 << 15;

impl RecordSize {
    /// Nothing was said of it.
    pub const UNLIMITED: Self = Self(0);

    /// As it is kept with a session.
    pub(crate) const fn to_bits(self) -> u16 {
        self.0
    }

    /// From what was kept.
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// A server takes what a hello asks for: record_size_limit, and max_fragment_length only without that (RFC 8449,
    /// section 5).
    pub(crate) fn asked(hello: &Extensions) -> Result<Self, Fatal> {
        match (hello.record_size_limit, hello.max_fragment_length) {
            (Some(limit), _) => Self::limit(limit),
            (None, Some(length)) => Self::both(length),
            (None, None) => Ok(Self::UNLIMITED),
        }
    }

    /// A client takes what a server answered to its own `limit`, which is 0 if it offered none. Both extensions in one
    /// answer are an error (RFC 8449, section 5), as is another length than was offered (RFC 6066, section 4).
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

    /// What a server answers, its own limit being `limit`, or 0 if it takes any.
    pub(crate) fn answer(self, limit: u16) -> (Option<u16>, Option<MaxFragmentLength>) {
        match self.0 {
            0 => (None, None),
            both if both & BOTH != 0 => (None, MaxFragmentLength::within(both & !BOTH)),
            _ => (Some(if limit > 0 { limit } else { MAX_LIMIT }), None),
        }
    }

    fn limit(limit: u16) -> Result<Self, Fatal> {
        // More than a record can hold may be said, and means no more than that.
        if limit < MIN_LIMIT { Err(Fatal::IllegalParameter) } else { Ok(Self(limit.min(MAX_LIMIT))) }
    }

    fn both(length: MaxFragmentLength) -> Result<Self, Fatal> {
        length.bytes().map(|bytes| Self(bytes | BOTH)).ok_or(Fatal::IllegalParameter)
    }

    /// The longest content that we may send, in bytes.
    pub const fn sent(self) -> usize {
        match self.0 & !BOTH {
            0 => MAX_CONTENT,
            limit => limit as usize,
        }
    }

    /// The longest content that the peer may send, in bytes, if our own limit is `limit`, or 0.
    pub const fn received(self, limit: u16) -> usize {
        match self.0 {
            0 => MAX_CONTENT,
            both if both & BOTH != 0 => self.sent(),
            _ if limit == 0 => MAX_CONTENT,
            _ => limit as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(record_size_limit: Option<u16>, fragment: Option<u8>) -> Extensions {
        let max_fragment_length = fragment.map(MaxFragmentLength);
        Extensions { record_size_limit, max_fragment_length, ..Extensions::default() }
    }

    #[test]
    fn a_server_that_is_asked_for_both_takes_the_limit() {
        let agreed = RecordSize::asked(&hello(Some(100), Some(2))).unwrap();
        assert_eq!((agreed.sent(), agreed.received(500), agreed.received(0)), (100, 500, MAX_CONTENT));
        assert_eq!(agreed.answer(500), (Some(500), None));
        // The other is not even looked at.
        assert_eq!(RecordSize::asked(&hello(Some(100), Some(9))), Ok(agreed));
        let agreed = RecordSize::asked(&hello(None, Some(2))).unwrap();
        assert_eq!((agreed.sent(), agreed.received(500)), (1024, 1024));
        assert_eq!(agreed.answer(500), (None, Some(MaxFragmentLength(2))));
    }

    #[test]
    fn what_no_endpoint_may_say_is_an_illegal_parameter() {
        for limit in [0, 1, 63] {
            assert_eq!(RecordSize::asked(&hello(Some(limit), None)), Err(Fatal::IllegalParameter));
            assert_eq!(RecordSize::answered(&hello(Some(limit), None), 512), Err(Fatal::IllegalParameter));
        }
        for length in [0, 5, 255] {
            assert_eq!(RecordSize::asked(&hello(None, Some(length))), Err(Fatal::IllegalParameter));
            assert_eq!(RecordSize::answered(&hello(None, Some(length)), 512), Err(Fatal::IllegalParameter));
        }
        assert_eq!(RecordSize::answered(&hello(Some(64), Some(1)), 512), Err(Fatal::IllegalParameter));
        assert_eq!(RecordSize::answered(&hello(None, Some(2)), 512), Err(Fatal::IllegalParameter));
    }

    #[test]
    fn what_was_not_offered_may_not_be_answered() {
        assert_eq!(RecordSize::answered(&hello(Some(64), None), 0), Err(Fatal::UnsupportedExtension));
        assert_eq!(RecordSize::answered(&hello(None, Some(1)), 0), Err(Fatal::UnsupportedExtension));
        // A limit below 512 has no length beside it.
        assert_eq!(RecordSize::answered(&hello(None, Some(1)), 511), Err(Fatal::UnsupportedExtension));
    }

    proptest! {
        #[test]
        fn both_ends_agree(client in MIN_LIMIT..=MAX_LIMIT, server in prop::option::of(MIN_LIMIT..=MAX_LIMIT), old: bool) {
            let server = server.unwrap_or(0);
            let fragment = MaxFragmentLength::within(client);
            let asked = Extensions {
                record_size_limit: (!old).then_some(client),
                max_fragment_length: fragment,
                ..Extensions::default()
            };
            let at_server = RecordSize::asked(&asked).unwrap();
            let (record_size_limit, max_fragment_length) = at_server.answer(server);
            let answered = Extensions { record_size_limit, max_fragment_length, ..Extensions::default() };
            let at_client = RecordSize::answered(&answered, client).unwrap();
            prop_assert_eq!(at_server.sent(), at_client.received(client));
            prop_assert_eq!(at_client.sent(), at_server.received(server));
            prop_assert!(at_server.sent() <= usize::from(client) || old && fragment.is_none());
        }
    }
}
