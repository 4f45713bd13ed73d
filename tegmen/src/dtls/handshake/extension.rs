//! Hello extensions (RFC 5246, section 7.4.1.4).

use super::Write;
use crate::buf::{Reader, Truncated, Writer};
use crate::dtls::connection_id;
use crate::dtls::record_size::MaxFragmentLength;

/// The number of an extension (IANA TLS ExtensionType registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionType(pub u16);

impl ExtensionType {
    /// extended_master_secret (RFC 7627).
    pub const EXTENDED_MASTER_SECRET: Self = Self(0x0017);
    /// max_fragment_length (RFC 6066, section 4).
    pub const MAX_FRAGMENT_LENGTH: Self = Self(0x0001);
    /// record_size_limit (RFC 8449).
    pub const RECORD_SIZE_LIMIT: Self = Self(0x001c);
    /// connection_id (RFC 9146, section 3).
    pub const CONNECTION_ID: Self = Self(0x0036);
    /// rrc (RFC 9853, section 3).
    pub const RRC: Self = Self(0x003d);
    /// renegotiation_info (RFC 5746).
    pub const RENEGOTIATION_INFO: Self = Self(0xff01);
}

/// The extensions that matter here, as seen in a hello.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Extensions {
    /// extended_master_secret is there.
    pub extended_master_secret: bool,
    /// renegotiation_info is there and empty, as in a first handshake.
    pub renegotiation_info: bool,
    /// What record_size_limit says.
    pub record_size_limit: Option<u16>,
    /// What max_fragment_length says.
    pub max_fragment_length: Option<MaxFragmentLength>,
    /// One is there that this endpoint never sends.
    pub other: bool,
}

impl Extensions {
    /// Reads an extension block, which may be missing altogether. Those of the size of records are others to an endpoint
    /// without `record_size`; so are those of [connection ids](crate::dtls::connection_id), which are read there.
    pub fn read(reader: &mut Reader<'_>, record_size: bool) -> Result<Self, Truncated> {
        let mut found = Self::default();
        if reader.is_empty() {
            return Ok(found);
        }
        let mut list = Reader::new(reader.with_len16()?);
        while !list.is_empty() {
            let kind = ExtensionType(list.u16()?);
            let data = list.with_len16()?;
            match kind {
                ExtensionType::EXTENDED_MASTER_SECRET if data.is_empty() => found.extended_master_secret = true,
                ExtensionType::RENEGOTIATION_INFO if data == [0] => found.renegotiation_info = true,
                ExtensionType::RECORD_SIZE_LIMIT if record_size => {
                    let [high, low] = *data else { return Err(Truncated) };
                    found.record_size_limit = Some(u16::from_be_bytes([high, low]));
                }
                ExtensionType::MAX_FRAGMENT_LENGTH if record_size => {
                    let [length] = *data else { return Err(Truncated) };
                    found.max_fragment_length = Some(MaxFragmentLength(length));
                }
                // Ours, but with another content than a first handshake allows.
                ExtensionType::EXTENDED_MASTER_SECRET | ExtensionType::RENEGOTIATION_INFO => return Err(Truncated),
                ExtensionType::CONNECTION_ID | ExtensionType::RRC if record_size => {}
                _ => found.other = true,
            }
        }
        Ok(found)
    }

    /// Writes the block, and in it `more` extensions; nothing at all where there is none.
    pub fn write(&self, writer: &mut Writer<'_>, more: &[u8]) -> Write {
        if self.record_size_limit.is_some() || self.max_fragment_length.is_some() || !more.is_empty() {
            return self.write_each(writer, more);
        }
        // The length of the list, and of each extension its type, length and content.
        writer.put(match (self.extended_master_secret, self.renegotiation_info) {
            (false, false) => &[],
            (true, false) => &[0, 4, 0x00, 0x17, 0, 0],
            (false, true) => &[0, 5, 0xff, 0x01, 0, 1, 0],
            (true, true) => &[0, 9, 0x00, 0x17, 0, 0, 0xff, 0x01, 0, 1, 0],
        })
    }

    /// As [`Self::write`], for a block that a mote has no use for.
    fn write_each(&self, writer: &mut Writer<'_>, more: &[u8]) -> Write {
        let mut list = [0; 4 + 5 + 6 + 5 + connection_id::EXTENSIONS_LEN];
        let mut each = Writer::new(&mut list);
        if self.extended_master_secret {
            each.put(&[0x00, 0x17, 0, 0])?;
        }
        if self.renegotiation_info {
            each.put(&[0xff, 0x01, 0, 1, 0])?;
        }
        if let Some(limit) = self.record_size_limit {
            each.put(&[0x00, 0x1c, 0, 2])?;
            each.u16(limit)?;
        }
        if let Some(MaxFragmentLength(length)) = self.max_fragment_length {
            each.put(&[0x00, 0x01, 0, 1, length])?;
        }
        each.put(more)?;
        writer.with_len16(each.written())
    }
}
