//! Hello extensions (RFC 5246, section 7.4.1.4).

use super::Write;
use crate::buf::{Reader, Truncated, Writer};

/// The number of an extension (IANA TLS ExtensionType registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionType(pub u16);

impl ExtensionType {
    /// extended_master_secret (RFC 7627).
    pub const EXTENDED_MASTER_SECRET: Self = Self(0x0017);
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
    /// One is there that this stack never sends.
    pub other: bool,
}

impl Extensions {
    /// Reads an extension block, which may be missing altogether.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
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
                // Ours, but with another content than a first handshake allows.
                ExtensionType::EXTENDED_MASTER_SECRET | ExtensionType::RENEGOTIATION_INFO => return Err(Truncated),
                _ => found.other = true,
            }
        }
        Ok(found)
    }

    /// Writes the block; nothing at all where no extension is set.
    pub fn write(&self, writer: &mut Writer<'_>) -> Write {
        // The length of the list, and of each extension its type, length and content.
        writer.put(match (self.extended_master_secret, self.renegotiation_info) {
            (false, false) => &[],
            (true, false) => &[0, 4, 0x00, 0x17, 0, 0],
            (false, true) => &[0, 5, 0xff, 0x01, 0, 1, 0],
            (true, true) => &[0, 9, 0x00, 0x17, 0, 0, 0xff, 0x01, 0, 1, 0],
        })
    }
}
