//! Connection ids (RFC 9146): a record names its session itself, from any address.
//!
//! In its ClientHello or ServerHello each end gives the id that it expects in the records that it receives. The other
//! end writes this id into all records of the protected epoch, after the number; the record encrypts its real content
//! type. Only [`Extended`](crate::dtls::roles::Extended) endpoints use connection ids. An id proves no address: see
//! `return_routability`.

use super::Fatal;
use super::handshake::extension::ExtensionType;
use super::record::MAX_FAILED;
use super::record::connection_id::{ConnectionId, MAX_LEN};
use crate::address::Path;
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::identity::PeerId;
use crate::time::Instant;

/// The use of connection ids by an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionIdConfig {
    /// Bytes of the ids that this endpoint issues, 0 to 20. With 0 it only writes the ids of peers that want one. All
    /// ids of an endpoint are different, so a server needs ids that are long enough for its sessions; 8 bytes are.
    pub len: u8,
    /// First byte of every id that this endpoint issues, so that the distributor of records to several endpoints finds
    /// the right endpoint. The other bytes are random.
    pub shard: u8,
    /// Pads records with a connection id: the length of content, content type and padding together is a multiple of
    /// this number of bytes, if the buffer is long enough. 0 and 1 add no padding.
    pub padding: u16,
    /// True to agree on return routability checks (RFC 9853) with peers that support them. Otherwise
    /// [`Self::follow_unchecked`] decides about peers at a new address.
    pub check: bool,
    /// False: a peer at a new address that cannot be checked receives answers at its old address for ever. True: it
    /// receives them at the new address as soon as a record from there is authentic and newer than all before. Then an
    /// attacker who forwards its records faster than the network can redirect our answers (RFC 9146, section 6).
    pub follow_unchecked: bool,
}

impl Default for ConnectionIdConfig {
    fn default() -> Self {
        Self { len: 8, shard: 0, padding: 0, check: true, follow_unchecked: false }
    }
}

/// The ids of a session, or of a handshake that offers one. A table keeps them beside a peer that has ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionIds {
    pub(crate) ours: ConnectionId,
    pub(crate) theirs: ConnectionId,
    /// False until the server has answered the offer of a client.
    pub(crate) agreed: bool,
    /// True if both ends support return routability checks; before the answer, if our end does.
    pub(crate) rrc: bool,
    /// The nonce from which the cookie of a check is made, and the time until which the check is valid.
    pub(crate) nonce: [u8; 8],
    pub(crate) until: Instant,
    forgeries: Forgeries,
}

/// Counts forged records, for ciphers with a tag of 8 bytes. Such a record has the id of a session, came from another
/// address, and did not open. It does not end the session: anybody who saw the id could send it, from anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Forgeries {
    /// Forged records since the session began.
    count: u16,
    /// Forged records in the current interval of 64 units of [`Instant::coarse`], about 67 seconds.
    lately: u8,
    interval: u8,
}

impl Forgeries {
    /// Number of forged records after which no record from another address is opened for the rest of the interval.
    const RATE: u8 = 8;
    /// Number of forged records in all after which no record from another address is opened: the session keeps its
    /// address.
    const LIMIT: u16 = MAX_FAILED;
}

impl ConnectionIds {
    /// Returns the state of a client's offer, with return routability checks or without.
    pub(crate) const fn offered(ours: ConnectionId, rrc: bool) -> Self {
        let until = Instant::from_micros(0);
        let forgeries = Forgeries { count: 0, lately: 0, interval: 0 };
        Self { ours, theirs: ConnectionId::EMPTY, agreed: false, rrc, nonce: [0; 8], until, forgeries }
    }

    /// True if the session tries to open a record that arrives at `now` from another address than its own.
    pub(crate) const fn may_try(&mut self, now: Instant) -> bool {
        let interval = (now.coarse() >> 6) as u8;
        if self.forgeries.interval != interval {
            (self.forgeries.interval, self.forgeries.lately) = (interval, 0);
        }
        self.forgeries.lately < Forgeries::RATE && self.forgeries.count < Forgeries::LIMIT
    }

    /// Counts a record that does not authenticate.
    pub(crate) const fn count_forgery(&mut self) {
        self.forgeries.lately = self.forgeries.lately.saturating_add(1);
        self.forgeries.count = self.forgeries.count.saturating_add(1);
    }

    /// Returns the result of a negotiation: the id that the peer writes, the id that we write, and whether both ends
    /// support return routability checks.
    pub(crate) const fn agreed(ours: ConnectionId, theirs: ConnectionId, rrc: bool) -> Self {
        Self { theirs, agreed: true, ..Self::offered(ours, rrc) }
    }

    /// Returns the ids that both ends agreed on: the one that the peer writes, and the one that we write; `None` if one has
    /// more than 20 bytes.
    pub fn new(ours: &[u8], theirs: &[u8], return_routability: bool) -> Option<Self> {
        Some(Self::agreed(ConnectionId::new(ours)?, ConnectionId::new(theirs)?, return_routability))
    }

    /// Returns the id that we issued. It identifies the session in records of the peer.
    pub fn ours(&self) -> &[u8] {
        self.ours.bytes()
    }

    /// Returns the id that goes into every record to the peer.
    pub fn theirs(&self) -> &[u8] {
        self.theirs.bytes()
    }

    /// True if the peer supports return routability checks.
    pub const fn return_routability(&self) -> bool {
        self.rrc
    }

    /// Our id, if the peer has to write it.
    pub(crate) fn received(&self) -> Option<&ConnectionId> {
        Some(&self.ours).filter(|ours| self.agreed && !ours.is_empty())
    }

    /// The peer's id, if we have to write it.
    pub(crate) fn sent(&self) -> Option<&ConnectionId> {
        Some(&self.theirs).filter(|theirs| self.agreed && !theirs.is_empty())
    }

    /// Takes a server's answer to our offer.
    pub(crate) fn answered(&mut self, answer: &Hello<'_>) -> Result<(), Fatal> {
        let Some(theirs) = answer.connection_id else {
            return if answer.rrc { Err(Fatal::UnsupportedExtension) } else { Ok(()) };
        };
        if answer.rrc && !self.rrc {
            return Err(Fatal::UnsupportedExtension);
        }
        // It is too late to decline.
        self.theirs = ConnectionId::new(theirs).ok_or(Fatal::TooLarge)?;
        (self.agreed, self.rrc) = (true, answer.rrc);
        Ok(())
    }

    /// Bytes of ids that are kept with a session.
    pub(crate) const PACKED_LEN: usize = 1 + 2 * (1 + MAX_LEN);

    /// Returns the ids in the form in which they are kept with a session. All zeros mean that there are none.
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

    /// Reads the output of [`Self::pack`]; `None` if there are no ids.
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

    /// Writes the extension connection_id and, if checks are supported, rrc into `out`; at most [`EXTENSIONS_LEN`]
    /// bytes.
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

/// Bytes of connection_id with the longest id, and of rrc.
pub(crate) const EXTENSIONS_LEN: usize = 4 + 1 + MAX_LEN + 4;

/// The content of a hello about connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hello<'r> {
    /// The id that the sender of the hello expects in the records that it receives.
    pub(crate) connection_id: Option<&'r [u8]>,
    /// True if the extension rrc is present (RFC 9853, section 3).
    pub(crate) rrc: bool,
}

impl<'r> Hello<'r> {
    /// Reads the part of a ClientHello after the cookie.
    pub(crate) fn of_client(behind_cookie: &'r [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(behind_cookie);
        reader.with_len16()?; // cipher_suites
        reader.with_len8()?; // compression_methods
        Self::read(reader)
    }

    /// Reads the body of a ServerHello.
    ///
    /// # Errors
    /// [`Truncated`] if it does not parse.
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

    /// Returns the id that a server agrees to, and true if the client supports checks; `None` without an id, or if the
    /// id is too long to be kept.
    pub(crate) fn accepted(&self) -> Option<(ConnectionId, bool)> {
        Some((ConnectionId::new(self.connection_id?)?, self.rrc))
    }
}

/// The settings of connection ids, and the state that an endpoint keeps for them.
#[derive(Clone, Copy, Debug)]
pub struct Mobility {
    pub(crate) config: ConnectionIdConfig,
    pub(crate) changes: AddressChanges,
    /// The peer and the path of a challenge that is sent after the last record of the datagram.
    pub(crate) challenge: Option<(PeerId, Path)>,
}

impl Mobility {
    pub(crate) const fn new(config: ConnectionIdConfig) -> Self {
        Self { config, changes: AddressChanges { followed: 0, checked: 0, refused: 0 }, challenge: None }
    }
}

/// Changes of address of peers with connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressChanges {
    /// The peer proved that it receives at its new address, or did not have to.
    pub followed: u32,
    /// A check was begun: its challenge went to the new address.
    pub checked: u32,
    /// Records from a new address of a peer that knows no check, or that were not newer than all before.
    pub refused: u32,
}

#[cfg(test)]
mod tests;
