//! The additional state of a handshake with public keys or with resumption. It is stored as items at the end of the
//! outgoing buffer of the handshake.
//!
//! The front of this buffer holds one text: the cookie, the PSK identity hint or the PSK identity. A mote with
//! pre-shared keys stores only this text. The items are stored from the end of the buffer toward the front. Each item
//! consists of its bytes, then its length (2 bytes), and then its kind (1 byte). So the last byte of the buffer is the
//! kind of the first item, or 0 if the buffer has no items.

use super::Fatal;
use crate::buf::copy;
use crate::secret::wipe;

/// The kind of an item in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// Our private key of the key agreement, until the peer's share is known.
    Private = 1,
    /// Our share of the key agreement. It stays in the buffer, because it may have to be sent again.
    Share,
    /// The peer's share of the key agreement.
    PeerShare,
    /// The agreed shared secret. It is stored while the owner of the endpoint looks up a pre-shared key.
    Agreed,
    /// The SubjectPublicKeyInfo of the peer. It is stored until the peer has proved that it has the private key.
    PeerKey,
    /// The SHA-256 digest of the data that the owner of the endpoint must sign for us.
    Digest,
    /// The signature that the owner of the endpoint made. It stays in the buffer, because it may have to be sent again.
    Signature,
    /// The cipher suite and the master secret of a session. This session is resumed in this handshake, or can be
    /// resumed later.
    Session,
    /// The session_id of our ClientHello or ServerHello. In a client, the session_id of the ServerHello replaces it
    /// later.
    SessionId,
    /// The ticket that the client sends in its ClientHello.
    Ticket,
    /// The lifetime hint of a NewSessionTicket (4 bytes), followed by the ticket.
    NewTicket,
    /// The premaster secret that the client has encrypted. It stays in the buffer, because it may have to be sent
    /// again.
    EncryptedPremaster,
    /// The version in the ClientHello. The premaster secret must begin with this version.
    ClientVersion,
    /// The session_id of a ServerHello, until it is certain that our ClientHello need not be sent again.
    NewSessionId,
    /// The name for the server_name extension of our ClientHello.
    ServerName,
    /// The number of the named server that answers (4 bytes), followed by 1 byte: true if the client sent the server's
    /// name.
    Server,
    /// The two pre-shared keys that the client may have. They are stored until one of them decrypts the client's
    /// Finished.
    Psks,
}

/// Number of bytes of the length and the kind, which follow the bytes of each item.
const TRAILER: usize = 3;

/// The place of an item in the buffer, from `start` to `end`. It includes the length and the kind.
struct Place {
    start: usize,
    end: usize,
}

/// Returns the kind and the place of the item whose last byte precedes the position `end`; `None` if there is no such
/// item.
fn at(room: &[u8], end: usize) -> Option<(u8, Place)> {
    let (_, [high, low, kind]) = room.get(..end)?.split_last_chunk::<TRAILER>()?;
    if *kind == 0 {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let start = end.checked_sub(TRAILER)?.checked_sub(len)?;
    Some((*kind, Place { start, end }))
}

fn place(room: &[u8], item: Item) -> Option<Place> {
    let mut end = room.len();
    loop {
        let (kind, place) = at(room, end)?;
        if kind == item as u8 {
            return Some(place);
        }
        end = place.start;
    }
}

/// Returns the position in the buffer at which the stored items begin. The items fill the buffer from its end. The
/// bytes before the position are free for more items, and for the text at the front of the buffer: the cookie, the PSK
/// identity hint or the PSK identity. The next item ends at this position.
fn free(room: &[u8]) -> usize {
    let mut end = room.len();
    while let Some((_, place)) = at(room, end) {
        end = place.start;
    }
    end
}

/// Returns the maximum length in bytes of the text at the front of the buffer. This text is the cookie, the PSK
/// identity hint or the PSK identity.
pub(crate) fn front(room: &[u8]) -> usize {
    free(room).saturating_sub(TRAILER)
}

/// Removes all items, and wipes their bytes.
pub(crate) fn clear(room: &mut [u8]) {
    let start = front(room);
    wipe(room.get_mut(start..).unwrap_or(&mut []));
}

/// Returns the bytes of an item; an empty slice if the buffer has no such item.
pub(crate) fn get(room: &[u8], item: Item) -> &[u8] {
    let bytes = place(room, item).and_then(|place| room.get(place.start..place.end.checked_sub(TRAILER)?));
    bytes.unwrap_or(&[])
}

/// Stores `bytes` as this item, and replaces the earlier content of the item. `front` is the number of bytes of the
/// text at the front of the buffer: the cookie, the PSK identity hint or the PSK identity.
pub(crate) fn put(room: &mut [u8], front: usize, item: Item, bytes: &[u8]) -> Result<(), Fatal> {
    put_parts(room, front, item, &[bytes])
}

/// Does the same as [`put`], but the content is given in several parts.
pub(crate) fn put_parts(room: &mut [u8], front: usize, item: Item, parts: &[&[u8]]) -> Result<(), Fatal> {
    forget(room, item);
    let end = free(room);
    let len = parts.iter().fold(0usize, |len, part| len.saturating_add(part.len()));
    // A zero before this item, at the place of the next item's kind, ends the search.
    let needed = len.saturating_add(2 * TRAILER);
    let start = end.checked_sub(needed).filter(|start| *start >= front).ok_or(Fatal::TooLarge)?;
    let [high, low] = u16::try_from(len).map_err(|_| Fatal::TooLarge)?.to_be_bytes();
    let place = room.get_mut(start..end).ok_or(Fatal::TooLarge)?;
    let (zeros, place) = place.split_at_mut_checked(TRAILER).ok_or(Fatal::TooLarge)?;
    zeros.fill(0);
    let (mut body, trailer) = place.split_at_mut_checked(len).ok_or(Fatal::TooLarge)?;
    for part in parts {
        copy(body, part).map_err(|_| Fatal::TooLarge)?;
        body = body.get_mut(part.len()..).ok_or(Fatal::TooLarge)?;
    }
    copy(trailer, &[high, low, item as u8]).map_err(|_| Fatal::TooLarge)
}

/// Removes an item, and wipes its bytes.
pub(crate) fn forget(room: &mut [u8], item: Item) {
    let Some(Place { start, end }) = place(room, item) else { return };
    let first = free(room);
    wipe(room.get_mut(start..end).unwrap_or(&mut []));
    let moved = room.get_mut(first..end).unwrap_or(&mut []);
    let hole = end.saturating_sub(start).min(moved.len());
    moved.rotate_right(hole);
}

#[cfg(test)]
mod tests;
