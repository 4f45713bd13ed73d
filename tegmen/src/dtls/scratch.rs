//! Additional state of a handshake with public keys or with resumption, stored as tagged items at the end of its
//! outgoing buffer.
//!
//! A mote with pre-shared keys stores one text in that buffer, at the front. The items are stored from the end of the
//! buffer toward the front: the bytes of each item, then their length (2 bytes), then its kind (1 byte). The last
//! byte of the buffer is the kind of the first item, or 0.

use super::Fatal;
use crate::buf::copy;
use crate::secret::wipe;

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// Our private key of the key agreement, while the peer's share is not known.
    Private = 1,
    /// Our share of the key agreement, which is sent, and may have to be sent again.
    Share,
    /// The peer's share of the key agreement.
    PeerShare,
    /// The agreed shared secret, while the owner looks up a pre-shared key.
    Agreed,
    /// The SubjectPublicKeyInfo of the peer. The peer has not yet proved that it has the private key.
    PeerKey,
    /// The SHA-256 digest that the owner signs for us.
    Digest,
    /// Our signature, which is sent, and may have to be sent again.
    Signature,
    /// The cipher suite and the master secret of the session that is resumed now, or can be resumed later.
    Session,
    /// The session_id of our ClientHello or ServerHello. In a client, the session_id of the ServerHello may replace
    /// it.
    SessionId,
    /// The ticket that a client shows in its ClientHello.
    Ticket,
    /// The lifetime hint of a NewSessionTicket (4 bytes), and then the ticket.
    NewTicket,
    /// The encrypted premaster secret of a client, which is sent, and may have to be sent again.
    EncryptedPremaster,
    /// The version of the ClientHello. The premaster secret must begin with this version.
    ClientVersion,
    /// The session_id of a ServerHello, while our ClientHello may have to be sent again.
    NewSessionId,
    /// The name for the server_name extension of our ClientHello.
    ServerName,
    /// The number of the named server that answers (4 bytes), and whether the client sent its name (1 byte).
    Server,
    /// The two pre-shared keys that the client may have, until one of them opens the client's Finished.
    Psks,
}

/// Bytes of the length and the kind after each item.
const TRAILER: usize = 3;

/// The place of an item in the buffer: its bytes and its trailer, from `start` to `end`.
struct Place {
    start: usize,
    end: usize,
}

/// Returns the kind and the place of the item that ends at `end`; `None` if no item ends there.
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

/// Returns the position at which the next item will end.
fn free(room: &[u8]) -> usize {
    let mut end = room.len();
    while let Some((_, place)) = at(room, end) {
        end = place.start;
    }
    end
}

/// Returns the maximum length of the text at the front of the buffer.
pub(crate) fn front(room: &[u8]) -> usize {
    free(room).saturating_sub(TRAILER)
}

/// Removes all items, and wipes their bytes.
pub(crate) fn clear(room: &mut [u8]) {
    let start = front(room);
    wipe(room.get_mut(start..).unwrap_or(&mut []));
}

/// Returns the bytes of an item; empty if the buffer has no such item.
pub(crate) fn get(room: &[u8], item: Item) -> &[u8] {
    let bytes = place(room, item).and_then(|place| room.get(place.start..place.end.checked_sub(TRAILER)?));
    bytes.unwrap_or(&[])
}

/// Stores `bytes` as this item, in place of its earlier content. The first `front` bytes of the buffer belong to the
/// text.
pub(crate) fn put(room: &mut [u8], front: usize, item: Item, bytes: &[u8]) -> Result<(), Fatal> {
    put_parts(room, front, item, &[bytes])
}

/// Does the same as [`put`], for content in several parts.
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
