//! Hello extensions (RFC 5246, section 7.4.1.4).

use super::Write;
use crate::buf::{Reader, Truncated, Writer};

/// The number of an extension (IANA TLS ExtensionType registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtensionType(pub(crate) u16);

impl ExtensionType {
    /// server_name (RFC 6066, section 3).
    pub(crate) const SERVER_NAME: Self = Self(0x0000);
    /// supported_groups (RFC 8422, section 5.1.1).
    pub(crate) const SUPPORTED_GROUPS: Self = Self(0x000a);
    /// ec_point_formats (RFC 8422, section 5.1.2).
    pub(crate) const EC_POINT_FORMATS: Self = Self(0x000b);
    /// signature_algorithms (RFC 5246, section 7.4.1.4.1).
    pub(crate) const SIGNATURE_ALGORITHMS: Self = Self(0x000d);
    /// client_certificate_type (RFC 7250).
    pub(crate) const CLIENT_CERTIFICATE_TYPE: Self = Self(0x0013);
    /// server_certificate_type (RFC 7250).
    pub(crate) const SERVER_CERTIFICATE_TYPE: Self = Self(0x0014);
    /// encrypt_then_mac (RFC 7366); its content is empty.
    pub(crate) const ENCRYPT_THEN_MAC: Self = Self(0x0016);
    /// extended_master_secret (RFC 7627).
    pub(crate) const EXTENDED_MASTER_SECRET: Self = Self(0x0017);
    /// SessionTicket (RFC 5077, section 3.2).
    pub(crate) const SESSION_TICKET: Self = Self(0x0023);
    /// max_fragment_length (RFC 6066, section 4).
    pub(crate) const MAX_FRAGMENT_LENGTH: Self = Self(0x0001);
    /// record_size_limit (RFC 8449).
    pub(crate) const RECORD_SIZE_LIMIT: Self = Self(0x001c);
    /// connection_id (RFC 9146, section 3).
    pub(crate) const CONNECTION_ID: Self = Self(0x0036);
    /// rrc (RFC 9853, section 3).
    pub(crate) const RRC: Self = Self(0x003d);
    /// renegotiation_info (RFC 5746).
    pub(crate) const RENEGOTIATION_INFO: Self = Self(0xff01);
}

/// The content of max_fragment_length (RFC 6066, section 4): 1 for 512 bytes, 2 for 1024, 3 for 2048, and 4 for 4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MaxFragmentLength(pub(crate) u8);

impl MaxFragmentLength {
    /// Returns the maximum fragment length in bytes; `None` if the content of the extension is not 1, 2, 3 or 4.
    pub(crate) const fn bytes(self) -> Option<u16> {
        match self.0 {
            1..=4 => Some(256 << self.0),
            _ => None,
        }
    }

    /// Returns the content of max_fragment_length for the largest fragment length that is at most `limit` bytes.
    /// Returns `None` if `limit` is below 512, because the shortest fragment length is 512 bytes. Returns `None` if
    /// `limit` is 2^14 or more, because every record then fits the limit. A client offers max_fragment_length in
    /// addition to record_size_limit, for servers that do not support record_size_limit.
    pub(crate) const fn within(limit: u16) -> Option<Self> {
        match limit {
            512..1024 => Some(Self(1)),
            1024..2048 => Some(Self(2)),
            2048..4096 => Some(Self(3)),
            4096..0x4000 => Some(Self(4)),
            _ => None,
        }
    }
}

/// The supported extensions in one ClientHello or ServerHello. This message was received, or will be sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Extensions {
    /// True if extended_master_secret is present.
    pub(crate) extended_master_secret: bool,
    /// True if renegotiation_info is present.
    pub(crate) renegotiation_info: bool,
    /// The value of record_size_limit in bytes; `None` if the extension is absent.
    pub(crate) record_size_limit: Option<u16>,
    /// The content of max_fragment_length; `None` if the extension is absent.
    pub(crate) max_fragment_length: Option<MaxFragmentLength>,
    /// True if the message has an extension that this endpoint never sends.
    pub(crate) other: bool,
}

/// The content of ec_point_formats with one format: uncompressed points.
pub(crate) const UNCOMPRESSED: [u8; 2] = [1, 0];

/// True if ec_point_formats contains the format of uncompressed points, as RFC 8422, section 5.1.2, requires.
pub(crate) fn has_uncompressed(data: &[u8]) -> bool {
    vector(data).is_some_and(|formats| formats.contains(&0))
}

/// Returns the content of a vector; `None` if the first byte of `data` is not the number of bytes that follow.
fn vector(data: &[u8]) -> Option<&[u8]> {
    data.split_first().filter(|(len, bytes)| usize::from(**len) == bytes.len()).map(|(_, bytes)| bytes)
}

/// Returns the type and the content of each extension in `list`. `list` is an extension block without its length, which
/// [`Extensions::read`] has already checked.
pub(crate) fn each(list: &[u8]) -> impl Iterator<Item = (ExtensionType, &[u8])> {
    let mut list = Reader::new(list);
    core::iter::from_fn(move || Some((ExtensionType(list.u16().ok()?), list.with_len16().ok()?)))
}

/// True if the list has a renegotiation_info that is not empty. In the first handshake of a connection,
/// renegotiation_info is empty (RFC 5746, section 3.4).
pub(crate) fn renegotiates(list: &[u8]) -> bool {
    each(list).any(|(kind, data)| kind == ExtensionType::RENEGOTIATION_INFO && data != [0])
}

/// Maximum number of extensions in a ClientHello or ServerHello. No peer needs more extensions. This maximum limits the
/// time of the search for extensions that occur twice.
const MAX_EXTENSIONS: usize = 64;

/// True if no extension occurs twice (RFC 5246, section 7.4.1.4) and the list has at most [`MAX_EXTENSIONS`]
/// extensions.
fn is_set(list: &[u8]) -> bool {
    let alone = |(at, (kind, _)): (usize, (ExtensionType, &[u8]))| {
        at < MAX_EXTENSIONS && each(list).take(at).all(|(before, _)| before != kind)
    };
    each(list).enumerate().all(alone)
}

/// Writes one extension.
pub(crate) fn put(writer: &mut Writer<'_>, kind: ExtensionType, data: &[u8]) -> Write {
    writer.u16(kind.0)?;
    writer.with_len16(data)
}

impl Extensions {
    /// Reads an extension block, which may be absent. If `record_size` is true, the endpoint supports the extensions
    /// for the size of records and for connection ids. This function then refuses a block in which an extension occurs
    /// twice. It ignores the extensions for connection ids, because the module
    /// [connection_id](crate::dtls::connection_id) reads them. If `record_size` is false, both kinds of extensions
    /// count as unsupported.
    pub(crate) fn read(reader: &mut Reader<'_>, record_size: bool) -> Result<Self, Truncated> {
        let mut found = Self::default();
        if reader.is_empty() {
            return Ok(found);
        }
        let mut list = Reader::new(reader.with_len16()?);
        if record_size && !is_set(list.rest()) {
            return Err(Truncated);
        }
        while !list.is_empty() {
            let kind = ExtensionType(list.u16()?);
            let data = list.with_len16()?;
            match kind {
                ExtensionType::EXTENDED_MASTER_SECRET if data.is_empty() => found.extended_master_secret = true,
                ExtensionType::RENEGOTIATION_INFO if data == [0] || record_size && vector(data).is_some() => {
                    found.renegotiation_info = true;
                }
                ExtensionType::RECORD_SIZE_LIMIT if record_size => {
                    let [high, low] = *data else { return Err(Truncated) };
                    found.record_size_limit = Some(u16::from_be_bytes([high, low]));
                }
                ExtensionType::MAX_FRAGMENT_LENGTH if record_size => {
                    let [length] = *data else { return Err(Truncated) };
                    found.max_fragment_length = Some(MaxFragmentLength(length));
                }
                // A supported extension whose content is not allowed in a first handshake.
                ExtensionType::EXTENDED_MASTER_SECRET | ExtensionType::RENEGOTIATION_INFO => return Err(Truncated),
                ExtensionType::CONNECTION_ID | ExtensionType::RRC if record_size => {}
                _ => found.other = true,
            }
        }
        Ok(found)
    }

    /// Returns the extension block that a mote sends. The block has at most two extensions. It is empty if neither
    /// extension is set.
    pub(crate) fn bytes(&self) -> &'static [u8] {
        // The length of the list, and of each extension its type, length and content.
        match (self.extended_master_secret, self.renegotiation_info) {
            (false, false) => &[],
            (true, false) => &[0, 4, 0x00, 0x17, 0, 0],
            (false, true) => &[0, 5, 0xff, 0x01, 0, 1, 0],
            (true, true) => &[0, 9, 0x00, 0x17, 0, 0, 0xff, 0x01, 0, 1, 0],
        }
    }

    /// Writes an extension block: the extensions that are set in `self`, and then the extensions that `more` writes.
    /// Writes nothing if there are no extensions.
    pub(crate) fn write_with(&self, writer: &mut Writer<'_>, more: impl FnOnce(&mut Writer<'_>) -> Write) -> Write {
        let before = writer.len();
        writer.behind_len::<2>(|writer| {
            if self.extended_master_secret {
                put(writer, ExtensionType::EXTENDED_MASTER_SECRET, &[])?;
            }
            if self.renegotiation_info {
                put(writer, ExtensionType::RENEGOTIATION_INFO, &[0])?;
            }
            if let Some(limit) = self.record_size_limit {
                put(writer, ExtensionType::RECORD_SIZE_LIMIT, &limit.to_be_bytes())?;
            }
            if let Some(MaxFragmentLength(length)) = self.max_fragment_length {
                put(writer, ExtensionType::MAX_FRAGMENT_LENGTH, &[length])?;
            }
            more(writer)
        })?;
        if writer.len() == before.wrapping_add(2) {
            writer.truncate(before);
        }
        Ok(())
    }
}
