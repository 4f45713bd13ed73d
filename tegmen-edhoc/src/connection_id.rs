//! Connection identifiers (RFC 9528, section 3.3).

use lakers::ConnId;
use tegmen_base::buf::Reader;
use tegmen_base::cbor;

/// A connection identifier of 0 to 7 bytes. It becomes the OSCORE Recipient ID of the peer that chose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionId(pub(crate) ConnId);

impl ConnectionId {
    /// Maximum number of bytes of an identifier.
    pub const MAX: usize = 7;

    /// Creates an identifier from its bytes; `None` if there are more than [`Self::MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::MAX { None } else { ConnId::from_slice(bytes).map(Self) }
    }

    /// Returns the bytes of the identifier.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Returns the identifier in the CBOR form of messages: an integer of one byte, or a byte string.
    pub fn as_cbor(&self) -> &[u8] {
        self.0.as_cbor()
    }

    /// Converts an identifier that `lakers` has read. Returns `None` for an identifier that is too long. Also returns
    /// `None` for a byte string of one byte, if RFC 9528 requires an integer for this byte.
    pub(crate) fn of(read: ConnId) -> Option<Self> {
        Self::new(read.as_slice()).filter(|id| id.0 == read)
    }

    /// Reads an identifier in the CBOR form of messages. Returns `None` for an identifier that is malformed or too
    /// long. Also returns `None` for a byte string of one byte, if RFC 9528 requires an integer for this byte.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let rest = reader.rest();
        let (major, number) = cbor::read_head(reader)?;
        let id = match major {
            cbor::UNSIGNED | cbor::NEGATIVE => Self::new(rest.get(..1)?),
            cbor::BYTES => Self::new(reader.take(number).ok()?),
            _ => None,
        };
        // Only the shortest form is valid, so that each identifier has exactly one form.
        id.filter(|id| rest.starts_with(id.as_cbor()))
    }
}
