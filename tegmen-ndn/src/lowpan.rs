//! ICN LoWPAN (RFC 9139): Interests and Data packets, compressed for links of IEEE 802.15.4.
//!
//! [`compress`] converts a packet to the payload of frames, and [`decompress`] restores the packet. A Data packet is
//! restored exactly, so that its signature stays valid. If the rules do not cover a packet, the payload consists of two
//! bytes, followed by the unchanged packet.
//!
//! Both ends of a link share state with which they replace names by shorter names. A [`Context`] is a number for a
//! prefix that all nodes of the link know. A [`HopId`] is a number for the name of one Interest, until its Data packet
//! returns. A forwarder takes the number from its table of pending Interests ([`HopId::of_entry`]), and stores the HopID
//! of a neighbour in place of a PitToken.

mod bytes;
mod name;
mod restore;
mod time;

pub use restore::decompress;
pub use time::{time_code, time_value};

use crate::data::ReceivedData;
use crate::error::Error;
use crate::interest::{Fields, ReceivedInterest};
use crate::name::Name;
use crate::put_front;
use crate::signature::{KeyLocator, Signed};
use crate::tables::PitId;
use crate::tlv::{self, Element, Elements, Extent, Type};
use bytes::Out;
use tegmen_base::buf::{Frame, Full, Writer};
use tegmen_base::crypto::DIGEST_LEN;

/// The first byte of a frame. It selects the page (RFC 8025) that RFC 9139 defines.
pub const PAGE: u8 = 0xfe;

/// Number of free bytes that an empty frame must have at its front, so that [`compress`] can write the headers there.
pub const HEADROOM: usize = 10;

/// The HopLimit that represents an Interest without HopLimit (RFC 9139, section 5.3.2).
pub const DEFAULT_HOP_LIMIT: u8 = 255;

/// A prefix that all nodes of the link know (RFC 9139, section 8.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context<'n> {
    /// The number of the context, from 1 to 127.
    pub id: u8,
    /// The prefix of a name. A compressed packet contains the number of the context in place of this prefix.
    pub prefix: Name<'n>,
}

/// A number for the name of an Interest on one link, from 1 to 127 (RFC 9139, section 8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopId(u8);

impl HopId {
    /// Makes a HopID. Returns `None` for 0 and for numbers above 127.
    pub const fn new(id: u8) -> Option<Self> {
        if matches!(id, 1..=MAX_ID) { Some(Self(id)) } else { None }
    }

    /// Returns the number of the HopID, from 1 to 127.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the HopID for the Interest of an entry in the table of pending Interests of this node. Each of the first
    /// 127 entries has its own HopID, which is free again when the entry is removed. Returns `None` for other entries.
    /// Their Interests are sent without a HopID.
    pub const fn of_entry(entry: PitId) -> Option<Self> {
        if entry.0 < MAX_ID as u32 { Self::new((entry.0 as u8).wrapping_add(1)) } else { None }
    }

    /// Returns the entry for whose Interest this node has chosen the HopID. The entry may have been removed.
    pub const fn entry(self) -> PitId {
        PitId((self.0 as u32).wrapping_sub(1))
    }
}

/// The highest HopID, and the highest number of a context.
pub(crate) const MAX_ID: u8 = 127;
/// The flag in a CID (context identifier) that means that another CID follows.
const CHAINED: u8 = 0x80;

// The first byte of a dispatch (RFC 9139, section 5).
const COMPRESSED: u8 = 0x10;
const IS_DATA: u8 = 0x20;
const PREFIX: u8 = 8;
const FRESH: u8 = 4;
const HINT: u8 = 2;
const PARAMETERS: u8 = 1;
const FINAL_BLOCK: u8 = 8;
const CONTENT_TYPE: u8 = 4;
const KEY_DIGEST: u8 = 2;
// The bits of the second byte of a dispatch.
const DIGEST: u8 = 0x80;
const CIDS: u8 = 2;

/// The two bytes of a dispatch, and the three context identifiers (CIDs) that may follow them: the HopID, the context
/// of the packet's name, and the context of the KeyLocator. A CID that is absent is 0 here.
#[derive(Default)]
struct Dispatch {
    bytes: [u8; 2],
    cids: [u8; 3],
}

/// Compresses a packet into an empty frame with [`HEADROOM`] free bytes in front.
///
/// `hop` is a HopID and the name of the Interest for which it was chosen, or `None` if there is no HopID. If `packet`
/// is an Interest, this node has chosen the HopID, and expects it in the Data packet. If `packet` is a Data packet, the
/// neighbour has chosen the HopID in its Interest.
///
/// # Errors
/// [`Full`], also for bytes that are neither an Interest nor a Data packet. The frame is then empty.
pub fn compress(
    packet: &[u8],
    contexts: &[Context<'_>],
    hop: Option<(HopId, Name<'_>)>,
    frame: &mut Frame<'_>,
) -> Result<(), Full> {
    let is_data = flag(packet.first() == Some(&(Type::DATA.0 as u8)), IS_DATA);
    let mut dispatch = Dispatch::default();
    let shared = Shared { contexts, hop };
    let written = frame.append_with(|out| {
        let out = &mut Out::new(out);
        match is_data {
            0 => shared.interest(packet, &mut dispatch, out),
            _ => shared.data(packet, &mut dispatch, out),
        }
        out.finish()
    });
    let mut head = [0; HEADROOM];
    let mut writer = Writer::new(&mut head);
    let out = &mut Out::new(&mut writer);
    if written.is_ok() {
        dispatch.write(frame.len(), out);
    } else {
        let kind = if is_data == 0 { Type::INTEREST } else { Type::DATA };
        append(packet, kind, frame).map_err(|_| Full)?;
        out.put(&[PAGE, is_data]);
    }
    let place = put_front(writer.written(), frame);
    if place.is_err() {
        frame.truncate(0);
    }
    place
}

/// Appends a packet of the type `kind`, without a change.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn append(packet: &[u8], kind: Type, frame: &mut Frame<'_>) -> Result<(), Error> {
    tlv::only(packet, kind)?;
    Ok(frame.append(packet)?)
}

impl Dispatch {
    /// Writes the page, the dispatch, the CIDs, and the length `len` of the body that follows.
    fn write(&self, len: usize, out: &mut Out<'_, '_>) {
        let [first, second] = self.bytes;
        let chain = self.cids.iter().rposition(|cid| *cid != 0).map_or(0, |last| last.saturating_add(1));
        out.put(&[PAGE, first, if chain == 0 { second } else { second | CIDS }]);
        for (place, cid) in self.cids.iter().take(chain).enumerate() {
            let follows = flag(place.saturating_add(1) < chain, CHAINED);
            out.byte(cid | follows);
        }
        out.length(out.len(), len);
    }
}

/// The length of a component that contains a digest, as it is written in a name.
const LEN_OF_DIGEST: u8 = DIGEST_LEN as u8;

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// The state by which a name is replaced with a shorter name: the contexts of the link, and the HopID of an Interest.
struct Shared<'s> {
    contexts: &'s [Context<'s>],
    hop: Option<(HopId, Name<'s>)>,
}

impl Shared<'_> {
    /// Writes the body of a compressed Interest (RFC 9139, section 5.3.2). `out` stores an error if the rules do not
    /// cover the Interest.
    fn interest(&self, packet: &[u8], dispatch: &mut Dispatch, out: &mut Out<'_, '_>) {
        let mut received = ReceivedInterest::unread(packet);
        let mut fields = Fields::default();
        out.require(received.read(&mut fields, Extent::Exact).is_ok());
        let interest = &received.interest;
        let [hop_id, context, _] = &mut dispatch.cids;
        *hop_id = self.hop.map_or(0, |(id, _)| id.0);
        // A digest is the value of the last component. The type and the length of this component have one byte each.
        let last = name::write_components(self.shorten(interest.name.as_bytes(), context), out);
        let (kind, digest) = match last {
            [kind @ 1..=2, LEN_OF_DIGEST, digest @ ..] if digest.len() == DIGEST_LEN => (Type((*kind).into()), digest),
            _ => (Type::GENERIC, last),
        };
        out.require(
            (kind != Type::GENERIC || digest.is_empty())
                && (kind == Type::PARAMETERS_DIGEST) == interest.parameters.is_some(),
        );
        out.put(digest);
        if let Some(hint) = &interest.hint {
            let start = out.len();
            for name in Elements::of(hint.as_bytes()) {
                match name {
                    Ok(Element { kind: Type::NAME, value, .. }) => name::write(value, out),
                    _ => out.require(false),
                }
            }
            out.count(start);
        }
        out.byte(interest.hop_limit.unwrap_or(DEFAULT_HOP_LIMIT));
        if let Some(parameters) = interest.parameters {
            out.bytes(parameters);
        }
        if let Some(nonce) = &interest.nonce {
            out.put(nonce);
        }
        if let Some(lifetime) = interest.lifetime {
            out.byte(time_code(lifetime));
        }
        let first = flag(interest.can_be_prefix, PREFIX) | flag(interest.must_be_fresh, FRESH);
        let first = first | flag(interest.hint.is_some(), HINT) | flag(interest.parameters.is_some(), PARAMETERS);
        dispatch.bytes = [COMPRESSED | first, flag(kind == Type::IMPLICIT_DIGEST, DIGEST)];
    }

    /// Writes the body of a compressed Data packet (RFC 9139, section 5.4.2). `out` stores an error if the rules do not
    /// cover the packet.
    fn data(&self, packet: &[u8], dispatch: &mut Dispatch, out: &mut Out<'_, '_>) {
        let mut received = ReceivedData::unread(packet);
        // The packet is compressed only if the receiver can restore exactly the same bytes.
        out.require(received.read(Extent::Exact).is_ok());
        let ReceivedData { data, signed: Signed { info, value: signature, .. }, .. } = &received;
        out.require(
            is_known(u8::try_from(info.kind.0).unwrap_or(u8::MAX), info.key.is_some()) && data.content.is_some(),
        );
        let [hop_id, context, key_context] = &mut dispatch.cids;
        let name = data.name.as_bytes();
        let suffix = self.hop.and_then(|(id, interest)| Some((id, name.strip_prefix(interest.as_bytes())?)));
        let shorter = match suffix {
            Some((HopId(id), suffix)) => {
                *hop_id = id;
                suffix
            }
            None => self.shorten(name, context),
        };
        name::write(shorter, out);
        let mut first = COMPRESSED | IS_DATA;
        if let Some(kind) = data.content_type {
            first |= CONTENT_TYPE;
            out.integer(kind.0);
        }
        if let Some(last) = data.final_block {
            first |= FINAL_BLOCK;
            name::write_last(&last, out);
        }
        out.bytes(data.content.unwrap_or(&[]));
        let start = out.len();
        out.integer(info.kind.0);
        match info.key {
            None => {}
            Some(KeyLocator::Name(name)) => name::write(self.shorten(name.as_bytes(), key_context), out),
            Some(KeyLocator::Digest(digest)) => {
                first |= KEY_DIGEST;
                out.bytes(digest);
            }
        }
        out.count(start);
        out.bytes(signature);
        if let Some(millis) = data.freshness {
            let code = time_code(millis);
            out.require(time::is_exact(code, millis));
            out.byte(code);
        }
        dispatch.bytes = [first, 0];
    }

    /// Removes the longest prefix of `name` that is the prefix of a context, and stores the number of this context in
    /// `cid`. Returns the rest of the name.
    #[inline(never)]
    fn shorten<'n>(&self, name: &'n [u8], cid: &mut u8) -> &'n [u8] {
        let mut rest = name;
        for Context { id, prefix } in self.contexts {
            if let Some(shorter) = name.strip_prefix(prefix.as_bytes())
                && shorter.len() < rest.len()
                && matches!(id, 1..=MAX_ID)
            {
                (rest, *cid) = (shorter, *id);
            }
        }
        rest
    }
}

/// Returns true if a signature of this SignatureType has a KeyLocator, as `has_key` claims. All known types have one,
/// except a digest.
fn is_known(kind: u8, has_key: bool) -> bool {
    let kinds: u32 = if has_key { 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 } else { 1 };
    kinds.checked_shr(kind.into()).unwrap_or(0) & 1 == 1
}
