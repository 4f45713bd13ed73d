//! NewSessionTicket (RFC 5077, section 3.3).

use super::{Write, end};
use crate::buf::{Reader, Truncated, Writer};

/// Number of bytes of the lifetime field, which precedes the ticket.
pub(crate) const LIFETIME_LEN: usize = 4;

/// Reads the body of a NewSessionTicket. Returns two values. The first is the lifetime of the ticket in seconds; 0 if
/// the server gives no lifetime. The second is the ticket, which is empty if the server has no ticket to issue.
pub(crate) fn read(body: &[u8]) -> Result<(u32, &[u8]), Truncated> {
    let mut reader = Reader::new(body);
    let lifetime = reader.u32()?;
    let ticket = reader.with_len16()?;
    end(&reader)?;
    Ok((lifetime, ticket))
}

/// Writes the body of a NewSessionTicket. `kept` is the lifetime (4 bytes) followed by the ticket; it is empty if there
/// is no ticket.
pub(crate) fn write(writer: &mut Writer<'_>, kept: &[u8]) -> Write {
    let (lifetime, ticket) = kept.split_at_checked(LIFETIME_LEN).unwrap_or((&[0; LIFETIME_LEN], &[]));
    writer.put(lifetime)?;
    writer.with_len16(ticket)
}
