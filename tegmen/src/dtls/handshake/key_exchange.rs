//! ServerKeyExchange and ClientKeyExchange for plain PSK (RFC 4279, section 2). Each message contains the length of one
//! text, and then the text: the hint or the identity.

use super::{Write, end};
use crate::buf::{Full, Reader, Truncated, Writer};

/// Reads the PSK identity hint of a ServerKeyExchange, or the PSK identity of a ClientKeyExchange.
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Truncated> {
    let mut reader = Reader::new(body);
    let text = reader.with_len16()?;
    end(&reader)?;
    Ok(text)
}

/// Writes the PSK identity of a ClientKeyExchange, after its length.
pub(crate) fn write(writer: &mut Writer<'_>, identity: &[u8]) -> Write {
    write_len(writer, identity)?;
    writer.put(identity)
}

/// Writes the length of the PSK identity. The identity must follow it.
pub(crate) fn write_len(writer: &mut Writer<'_>, identity: &[u8]) -> Write {
    writer.u16(u16::try_from(identity.len()).map_err(|_| Full)?)
}
