//! NewSessionTicket (RFC 5077, section 3.3).

use super::{Write, end};
use crate::buf::{Reader, Truncated, Writer};

/// Bytes of the lifetime, before the ticket.
pub(crate) const LIFETIME_LEN: usize = 4;

/// Reads a whole message body. Returns the lifetime of the ticket in seconds, 0 if the server gives none, and the
/// ticket. The ticket is empty if the server has no ticket to issue.
pub(crate) fn read(body: &[u8]) -> Result<(u32, &[u8]), Truncated> {
    let mut reader = Reader::new(body);
    let lifetime = reader.u32()?;
    let ticket = reader.with_len16()?;
    end(&reader)?;
    Ok((lifetime, ticket))
}

/// Writes the body: `kept` is the lifetime and after it the ticket, nothing if there is none.
pub(crate) fn write(writer: &mut Writer<'_>, kept: &[u8]) -> Write {
    let (lifetime, ticket) = kept.split_at_checked(LIFETIME_LEN).unwrap_or((&[0; LIFETIME_LEN], &[]));
    writer.put(lifetime)?;
    writer.with_len16(ticket)
}
