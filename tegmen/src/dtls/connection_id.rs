//! Connection ids (RFC 9146): each record contains an id of the session, so the peer may send records from any address.
//!
//! In its ClientHello or ServerHello, each endpoint sends the id that it expects in the records that it receives. The
//! other endpoint writes this id into all records of the protected epoch, after the record number. In such a record,
//! the real content type is encrypted together with the content. Only [`Extended`](crate::dtls::roles::Extended)
//! endpoints use connection ids. An id does not prove an address: see `return_routability`.

use super::Fatal;
use super::handshake::extension::ExtensionType;
use super::record::MAX_FAILED;
use super::record::connection_id::{ConnectionId, MAX_LEN};
use crate::address::Path;
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::identity::PeerId;
use crate::time::Instant;

/// The settings of an endpoint for connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionIdConfig {
    /// The number of bytes of each id that this endpoint issues, 0 to 20. With 0, the endpoint issues no ids, but still
    /// writes the id that a peer issued into its records to this peer. All ids of an endpoint are different. So the ids
    /// of a server must be long enough for its number of sessions: 8 bytes are enough.
    pub len: u8,
    /// The first byte of every id that this endpoint issues. If several endpoints share one address, the program that
    /// receives their datagrams reads this byte of each record. The byte identifies the endpoint that issued the id.
    /// The other bytes are random.
    pub shard: u8,
    /// The unit of padding in bytes, for records with a connection id. Padding makes the total length of content,
    /// content type and padding a multiple of this number, if the buffer is long enough. The values 0 and 1 mean no
    /// padding.
    pub padding: u16,
    /// True if the endpoint agrees on return routability checks (RFC 9853) with peers that support these checks. If no
    /// check was agreed on, [`Self::follow_unchecked`] decides about a peer at a new address.
    pub check: bool,
    /// The rule for a peer that sends from a new address, if no check was agreed on. If false, we continue to send our
    /// records to the peer's old address. If true, we send our records to the new address as soon as an authentic
    /// record that is newer than all earlier records arrives from that address. Then an attacker can redirect our
    /// records, if the attacker forwards the peer's records faster than the network does (RFC 9146, section 6).
    pub follow_unchecked: bool,
}

impl Default for ConnectionIdConfig {
    fn default() -> Self {
        Self { len: 8, shard: 0, padding: 0, check: true, follow_unchecked: false }
    }
}

/// The connection ids of a session, or of a handshake that offers an id. A table of peers stores this value only for
/// peers with connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionIds {
    pub(crate) ours: ConnectionId,
    pub(crate) theirs: ConnectionId,
    /// True after both endpoints have agreed on the ids. False while the server has not answered the client's offer.
    pub(crate) agreed: bool,
    /// True if both endpoints support return routability checks. Before the server answers the client's offer, true if
    /// our endpoint supports them.
    pub(crate) rrc: bool,
    /// The nonce from which the cookie of the last check is computed. The next field, `until`, is the time until which
    /// the check is valid.
    pub(crate) nonce: [u8; 8],
    pub(crate) until: Instant,
    forgeries: Forgeries,
}

/// Counts forged records, for ciphers with a tag of 8 bytes. A forged record has the id of a session and comes from an
/// address other than that of the session, but the record does not decrypt. A forged record does not end the session,
/// because anybody who saw the id can send such a record from any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Forgeries {
    /// Number of forged records since the session began.
    count: u16,
    /// Number of forged records in the current interval of 64 units of [`Instant::coarse`], about 67 seconds.
    lately: u8,
    interval: u8,
}

impl Forgeries {
    /// Number of forged records in one interval after which the session opens no more records from other addresses in
    /// the same interval.
    const RATE: u8 = 8;
    /// Total number of forged records after which the session never again opens a record from another address. The
    /// session then keeps its address.
    const LIMIT: u16 = MAX_FAILED;
}

impl ConnectionIds {
    /// Returns the state of a handshake in which the client offers the id `ours`. `rrc` is true if it also offers
    /// return routability checks.
    pub(crate) const fn offered(ours: ConnectionId, rrc: bool) -> Self {
        let until = Instant::from_micros(0);
        let forgeries = Forgeries { count: 0, lately: 0, interval: 0 };
        Self { ours, theirs: ConnectionId::EMPTY, agreed: false, rrc, nonce: [0; 8], until, forgeries }
    }

    /// True if the session may try to open a record that arrives at `now` from an address other than the session's own.
    pub(crate) const fn may_try(&mut self, now: Instant) -> bool {
        let interval = (now.coarse() >> 6) as u8;
        if self.forgeries.interval != interval {
            (self.forgeries.interval, self.forgeries.lately) = (interval, 0);
        }
        self.forgeries.lately < Forgeries::RATE && self.forgeries.count < Forgeries::LIMIT
    }

    /// Counts a forged record.
    pub(crate) const fn count_forgery(&mut self) {
        self.forgeries.lately = self.forgeries.lately.saturating_add(1);
        self.forgeries.count = self.forgeries.count.saturating_add(1);
    }

    /// Returns the state after both endpoints have agreed. `ours` is the id that the peer writes, and `theirs` is the
    /// id that we write. `rrc` is true if both endpoints support return routability checks.
    pub(crate) const fn agreed(ours: ConnectionId, theirs: ConnectionId, rrc: bool) -> Self {
        Self { theirs, agreed: true, ..Self::offered(ours, rrc) }
    }

    /// Returns the ids that both endpoints agreed on: `ours` is the id that the peer writes, and `theirs` is the id
    /// that we write. Returns `None` if an id has more than 20 bytes.
    pub fn new(ours: &[u8], theirs: &[u8], return_routability: bool) -> Option<Self> {
        Some(Self::agreed(ConnectionId::new(ours)?, ConnectionId::new(theirs)?, return_routability))
    }

    /// Returns the id that we issued. It identifies the session in records of the peer.
    pub fn ours(&self) -> &[u8] {
        self.ours.bytes()
    }

    /// Returns the id that we write into every record to the peer.
    pub fn theirs(&self) -> &[u8] {
        self.theirs.bytes()
    }

    /// True if both endpoints support return routability checks.
    pub const fn return_routability(&self) -> bool {
        self.rrc
    }

    /// Returns our id if the peer must write it into its records, otherwise `None`.
    pub(crate) fn received(&self) -> Option<&ConnectionId> {
        Some(&self.ours).filter(|ours| self.agreed && !ours.is_empty())
    }

    /// Returns the peer's id if we must write it into our records, otherwise `None`.
    pub(crate) fn sent(&self) -> Option<&ConnectionId> {
        Some(&self.theirs).filter(|theirs| self.agreed && !theirs.is_empty())
    }

    /// Client: processes the server's answer to our offer.
    pub(crate) fn answered(&mut self, answer: &Hello<'_>) -> Result<(), Fatal> {
        let Some(theirs) = answer.connection_id else {
            return if answer.rrc { Err(Fatal::UnsupportedExtension) } else { Ok(()) };
        };
        if answer.rrc && !self.rrc {
            return Err(Fatal::UnsupportedExtension);
        }
        // The client offered connection ids, so it can no longer decline the id of the server.
        self.theirs = ConnectionId::new(theirs).ok_or(Fatal::TooLarge)?;
        (self.agreed, self.rrc) = (true, answer.rrc);
        Ok(())
    }

    /// Number of bytes of the form in which the ids are stored with a session.
    pub(crate) const PACKED_LEN: usize = 1 + 2 * (1 + MAX_LEN);

    /// Returns the ids in the form in which they are stored with a session. All bytes of this form are zero for a
    /// session without ids.
    pub(crate) fn pack(&self) -> [u8; Self::PACKED_LEN] {
        let mut packed = [0; Self::PACKED_LEN];
        let [flags, ours, rest @ ..] = &mut packed;
        *flags = if self.rrc { PACKED | PACKED_RRC } else { PACKED };
        *ours = self.ours.len;
        let (place, rest) = rest.split_at_mut(MAX_LEN);
        place.copy_from_slice(&self.ours.bytes);
        if let [theirs, place @ ..] = rest {
            *theirs = self.theirs.len;
            place.copy_from_slice(&self.theirs.bytes);
        }
        packed
    }

    /// Reads the form that [`Self::pack`] returns. Returns `None` if the form is that of a session without ids, or if
    /// an id is too long.
    pub(crate) fn unpack(packed: &[u8; Self::PACKED_LEN]) -> Option<Self> {
        let [flags, ids @ ..] = packed;
        let (ours, theirs) = ids.split_at(1 + MAX_LEN);
        let id = |packed: &[u8]| {
            let (len, bytes) = packed.split_first()?;
            ConnectionId::new(bytes.get(..usize::from(*len))?)
        };
        if flags & PACKED == 0 {
            return None;
        }
        Some(Self::agreed(id(ours)?, id(theirs)?, flags & PACKED_RRC != 0))
    }

    /// Writes the extension connection_id into `out`, and the extension rrc if our endpoint supports checks. Writes
    /// at most [`EXTENSIONS_LEN`] bytes.
    pub(crate) fn write_extensions(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let id = self.ours.bytes();
        out.u16(ExtensionType::CONNECTION_ID.0)?;
        out.u16((id.len() as u16).wrapping_add(1))?;
        out.with_len8(id)?;
        if self.rrc { out.put(&[0, ExtensionType::RRC.0 as u8, 0, 0]) } else { Ok(()) }
    }
}

const PACKED: u8 = 1;
const PACKED_RRC: u8 = 2;

/// Maximum number of bytes of both extensions: connection_id with the longest id, and rrc.
pub(crate) const EXTENSIONS_LEN: usize = 4 + 1 + MAX_LEN + 4;

/// The two extensions of a ClientHello or ServerHello that concern connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hello<'r> {
    /// The id that the sender of the message expects in the records that it receives.
    pub(crate) connection_id: Option<&'r [u8]>,
    /// True if the extension rrc is present (RFC 9853, section 3): the sender supports return routability checks.
    pub(crate) rrc: bool,
}

impl<'r> Hello<'r> {
    /// Reads the extensions from a ClientHello. `behind_cookie` is the part of the ClientHello after the cookie.
    pub(crate) fn of_client(behind_cookie: &'r [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(behind_cookie);
        reader.with_len16()?; // cipher_suites
        reader.with_len8()?; // compression_methods
        Self::read(reader)
    }

    /// Reads the extensions from the body of a ServerHello.
    ///
    /// # Errors
    /// [`Truncated`] if the body does not parse.
    pub(crate) fn of_server(body: &'r [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        reader.take(2 + 32)?; // version and random
        reader.with_len8()?; // session_id
        reader.take(2 + 1)?; // cipher_suite and compression_method
        Self::read(reader)
    }

    fn read(mut reader: Reader<'r>) -> Result<Self, Truncated> {
        let mut found = Self::default();
        if reader.is_empty() {
            return Ok(found);
        }
        let mut list = Reader::new(reader.with_len16()?);
        while !list.is_empty() {
            let kind = ExtensionType(list.u16()?);
            let mut data = Reader::new(list.with_len16()?);
            match kind {
                ExtensionType::CONNECTION_ID => found.connection_id = Some(data.with_len8()?),
                ExtensionType::RRC => found.rrc = true,
                _ => continue,
            }
            if !data.is_empty() {
                return Err(Truncated);
            }
        }
        Ok(found)
    }

    /// Server: returns the client's id, which the server will write into its records, and true if the client supports
    /// return routability checks. Returns `None` if the client offers no id, or if its id is too long to be stored.
    pub(crate) fn accepted(&self) -> Option<(ConnectionId, bool)> {
        Some((ConnectionId::new(self.connection_id?)?, self.rrc))
    }
}

/// The data of an endpoint for connection ids: the settings, the counts of address changes, and the next challenge.
#[derive(Clone, Copy, Debug)]
pub struct Mobility {
    pub(crate) config: ConnectionIdConfig,
    pub(crate) changes: AddressChanges,
    /// The peer and the path of a challenge that must be sent; `None` if there is no challenge. It is sent after the
    /// last record of the datagram is processed.
    pub(crate) challenge: Option<(PeerId, Path)>,
}

impl Mobility {
    pub(crate) const fn new(config: ConnectionIdConfig) -> Self {
        Self { config, changes: AddressChanges { followed: 0, checked: 0, refused: 0 }, challenge: None }
    }
}

/// Counts of address changes of peers with connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressChanges {
    /// Number of address changes that we followed: we now send our records to the new address, because the peer proved
    /// that it receives there, or because no proof was required.
    pub followed: u32,
    /// Number of return routability checks (RFC 9853) that were begun: a challenge was sent to the new address.
    pub checked: u32,
    /// Number of records from a new address after which we continued to send to the old address. There are two causes:
    /// the peer does not support the return routability check, or the record was not newer than all earlier records.
    pub refused: u32,
}

#[cfg(test)]
mod tests;
