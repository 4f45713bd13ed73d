//! HelloVerifyRequest (RFC 6347, section 4.2.1).

use super::{Write, end};
use crate::buf::{Reader, Truncated, Writer};

/// The version in every HelloVerifyRequest: DTLS 1.0, regardless of the version that is negotiated later.
const VERSION_1_0: [u8; 2] = [254, 255];

/// Reads the cookie from the body of a HelloVerifyRequest. The version is ignored (RFC 6347, section 4.2.1).
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Truncated> {
    let mut reader = Reader::new(body);
    reader.u16()?;
    let cookie = reader.with_len8()?;
    end(&reader)?;
    Ok(cookie)
}

/// Writes the body of a HelloVerifyRequest.
pub(crate) fn write(writer: &mut Writer<'_>, cookie: &[u8]) -> Write {
    writer.put(&VERSION_1_0)?;
    writer.with_len8(cookie)
}
