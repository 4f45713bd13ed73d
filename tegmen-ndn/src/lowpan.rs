//! ICN LoWPAN (RFC 9139): Interests and Data packets, compressed for links of IEEE 802.15.4.
//!
//! [`compress`] makes the payload of frames out of a packet, and [`decompress`] restores the packet: a Data packet to the last byte, so
//! that its signature stays valid. A packet that the rules do not cover is sent uncompressed behind two bytes.
//!
//! Names are replaced by shorter ones with state that the nodes of a link share: a [`Context`] stands for a prefix that all nodes know, a
//! [`HopId`] for the name of one Interest until its Data packet comes back.

mod name;
mod restore;
mod time;

pub use restore::decompress;
pub use time::{time_code, time_value};

use crate::error::Error;
use crate::name::Name;
use crate::tlv::{self, Element, Elements, Type};
use tegmen_base::buf::{Frame, Full, Writer, copy};
use tegmen_base::crypto::DIGEST_LEN;

/// The first byte of a frame: it selects the page of RFC 9139 (RFC 8025).
pub const PAGE: u8 = 0xfe;

/// The free bytes that [`compress`] needs in front of an empty frame.
pub const HEADROOM: usize = 10;

/// The HopLimit of an Interest that has none (section 5.3.2).
pub const DEFAULT_HOP_LIMIT: u8 = 255;

/// A prefix that all nodes of the link know (section 8.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context<'n> {
    /// The number, from 1 to 127.
    pub id: u8,
    /// The prefix.
    pub prefix: Name<'n>,
}

/// A number for the name of an Interest on one link, from 1 to 127 (section 8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopId(u8);

impl HopId {
    /// Returns `None` for 0 and for numbers above 127.
    pub const fn new(id: u8) -> Option<Self> {
        if matches!(id, 1..=MAX_ID) { Some(Self(id)) } else { None }
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

const MAX_ID: u8 = 127;
/// The flag of a CID that another one follows.
const CHAINED: u8 = 0x80;

// The first byte of a dispatch (section 5).
const COMPRESSED: u8 = 0x10;
const IS_DATA: u8 = 0x20;
const KIND: u8 = COMPRESSED | IS_DATA;
const PREFIX: u8 = 8;
const FRESH: u8 = 4;
const HINT: u8 = 2;
const PARAMETERS: u8 = 1;
const FINAL_BLOCK: u8 = 8;
const CONTENT_TYPE: u8 = 4;
const KEY_DIGEST: u8 = 2;
/// The bit of the first byte that no Data packet has.
const DATA_RESERVED: u8 = 1;
// The second byte.
const DIGEST: u8 = 0x80;
const CIDS: u8 = 2;

/// The two bytes of a dispatch, and the CIDs behind them: the HopID, the context of the packet's name, and that of the KeyLocator.
#[derive(Default)]
struct Dispatch {
    bytes: [u8; 2],
    cids: [u8; 3],
}

/// Compresses a packet into an empty frame with [`HEADROOM`] free bytes in front.
///
/// `hop` is the number under which this node waits for the answer to an Interest. For a Data packet it is the number that the neighbour gave
/// its Interest, and the name of this Interest.
///
/// # Errors
/// [`Full`], also for bytes that are neither an Interest nor a Data packet. The frame is then empty.
pub fn compress(
    packet: &[u8],
    contexts: &[Context<'_>],
    hop: Option<(HopId, Name<'_>)>,
    frame: &mut Frame<'_>,
) -> Result<(), Full> {
    let element = Elements::of(packet).next().and_then(Result::ok).filter(|element| element.end == packet.len());
    let Element { kind, value, .. } = element.ok_or(Full)?;
    let mut dispatch = Dispatch::default();
    let written = frame.append_with(|out| match kind {
        Type::INTEREST => interest(value, contexts, hop, &mut dispatch, out).ok_or(Full),
        Type::DATA => data(value, contexts, hop, &mut dispatch, out).ok_or(Full),
        _ => Err(Full),
    });
    let head = match (written, kind) {
        (Ok(()), _) => put_dispatch(&dispatch, frame),
        (Err(Full), Type::INTEREST) => frame.append(packet).and_then(|()| put_front(&[PAGE, 0], frame)),
        (Err(Full), Type::DATA) => frame.append(packet).and_then(|()| put_front(&[PAGE, IS_DATA], frame)),
        (Err(Full), _) => Err(Full),
    };
    if head.is_err() {
        frame.truncate(0);
    }
    head
}

fn put_front(bytes: &[u8], frame: &mut Frame<'_>) -> Result<(), Full> {
    let place = frame.widen(bytes.len(), 0)?;
    copy(place, bytes)
}

fn put_dispatch(dispatch: &Dispatch, frame: &mut Frame<'_>) -> Result<(), Full> {
    let [first, second] = dispatch.bytes;
    let chain = dispatch.cids.iter().rposition(|cid| *cid != 0).map_or(0, |last| last.saturating_add(1));
    let mut head = [0; HEADROOM];
    let mut out = Writer::new(&mut head);
    out.put(&[PAGE, first, if chain == 0 { second } else { second | CIDS }])?;
    for (place, cid) in dispatch.cids.iter().take(chain).enumerate() {
        let is_last = place.saturating_add(1) == chain;
        out.u8(if is_last { *cid } else { cid | CHAINED })?;
    }
    put_length(frame.len(), &mut out)?;
    put_front(out.written(), frame)
}

/// Elements that are expected one by one.
struct Cursor<'p> {
    elements: Elements<'p>,
    next: Option<Result<Element<'p>, Error>>,
}

impl<'p> Cursor<'p> {
    fn of(value: &'p [u8]) -> Self {
        let mut elements = Elements::of(value);
        let next = elements.next();
        Self { elements, next }
    }

    /// Takes the value of the next element if it has this type.
    fn take(&mut self, kind: Type) -> Option<&'p [u8]> {
        let value = self.next.as_ref()?.as_ref().ok().filter(|element| element.kind == kind)?.value;
        self.next = self.elements.next();
        Some(value)
    }

    /// Takes the next element if it has this type, and no value. Returns true if it did.
    fn take_empty(&mut self, kind: Type) -> bool {
        let is_it = matches!(self.next, Some(Ok(Element { kind: next, value: [], .. })) if next == kind);
        is_it && self.take(kind).is_some()
    }

    const fn is_at_end(&self) -> bool {
        self.next.is_none()
    }
}

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// Writes the body of a compressed Interest (section 5.3.2). Returns `None` if the rules do not cover it, or it does not fit.
fn interest(
    value: &[u8],
    contexts: &[Context<'_>],
    hop: Option<(HopId, Name<'_>)>,
    dispatch: &mut Dispatch,
    out: &mut Writer<'_>,
) -> Option<()> {
    let mut cursor = Cursor::of(value);
    let name = Name::parse(cursor.take(Type::NAME)?).ok()?;
    let (can_be_prefix, must_be_fresh) =
        (cursor.take_empty(Type::CAN_BE_PREFIX), cursor.take_empty(Type::MUST_BE_FRESH));
    let hint = cursor.take(Type::FORWARDING_HINT);
    let nonce = cursor.take(Type::NONCE).unwrap_or(&[]);
    let lifetime = cursor.take(Type::LIFETIME);
    let hop_limit = cursor.take(Type::HOP_LIMIT).unwrap_or(&[DEFAULT_HOP_LIMIT]);
    let parameters = cursor.take(Type::PARAMETERS);
    if !cursor.is_at_end() || !matches!(nonce.len(), 0 | 4) || hop_limit.len() != 1 {
        return None;
    }
    // The digest is the last component, behind a type and a length of one byte each.
    let last = name.last().map(|last| last.kind);
    let has_digest = matches!(last, Some(Type::IMPLICIT_DIGEST | Type::PARAMETERS_DIGEST));
    if (last == Some(Type::PARAMETERS_DIGEST)) != parameters.is_some() {
        return None;
    }
    let (components, digest) = match name.as_bytes().split_last_chunk::<DIGEST_LEN>() {
        Some((front, digest)) if has_digest => (front.get(..front.len().checked_sub(2)?)?, digest.as_slice()),
        _ => (name.as_bytes(), [].as_slice()),
    };
    let [hop_id, context, _] = &mut dispatch.cids;
    *hop_id = hop.map_or(0, |(id, _)| id.0);
    let components = shorten(Name::of_checked(components), contexts, context);
    name::write(&components, out)?;
    out.put(digest).ok()?;
    if let Some(hint) = hint {
        // The length goes in front, so the names are counted first.
        let (mut names, mut len) = (Cursor::of(hint), 0usize);
        while let Some(name) = names.take(Type::NAME) {
            len = len.checked_add(name::short_len(&Name::parse(name).ok()?))?;
        }
        if !names.is_at_end() {
            return None;
        }
        put_length(len, out).ok()?;
        let mut names = Cursor::of(hint);
        while let Some(name) = names.take(Type::NAME) {
            name::write(&Name::of_checked(name), out)?;
        }
    }
    out.put(hop_limit).ok()?;
    if let Some(parameters) = parameters {
        put_bytes(parameters, out)?;
    }
    out.put(nonce).ok()?;
    if let Some(lifetime) = lifetime {
        out.u8(time_code(tlv::integer(lifetime, Type::LIFETIME).ok()?)).ok()?;
    }
    let first = flag(can_be_prefix, PREFIX) | flag(must_be_fresh, FRESH);
    let first = first | flag(hint.is_some(), HINT) | flag(parameters.is_some(), PARAMETERS);
    dispatch.bytes = [COMPRESSED | first, flag(last == Some(Type::IMPLICIT_DIGEST), DIGEST)];
    Some(())
}

/// Writes the body of a compressed Data packet (section 5.4.2). Returns `None` if the rules do not cover it, or it does not fit.
fn data(
    value: &[u8],
    contexts: &[Context<'_>],
    hop: Option<(HopId, Name<'_>)>,
    dispatch: &mut Dispatch,
    out: &mut Writer<'_>,
) -> Option<()> {
    let mut cursor = Cursor::of(value);
    let name = Name::parse(cursor.take(Type::NAME)?).ok()?;
    let (mut content_type, mut freshness, mut last) = (None, None, None);
    if let Some(meta) = cursor.take(Type::META_INFO) {
        let mut meta = Cursor::of(meta);
        content_type = meta.take(Type::CONTENT_TYPE);
        freshness = meta.take(Type::FRESHNESS);
        last = meta.take(Type::FINAL_BLOCK);
        let is_empty = content_type.is_none() && freshness.is_none() && last.is_none();
        if !meta.is_at_end() || is_empty {
            return None;
        }
    }
    let content = cursor.take(Type::CONTENT)?;
    let mut info = Cursor::of(cursor.take(Type::SIGNATURE_INFO)?);
    let kind = info.take(Type::SIGNATURE_TYPE)?;
    let locator = Locator::take(&mut info, kind)?;
    let signature = cursor.take(Type::SIGNATURE_VALUE)?;
    if !cursor.is_at_end() || !info.is_at_end() {
        return None;
    }
    let [hop_id, context, key_context] = &mut dispatch.cids;
    let suffix = hop.and_then(|(id, interest)| Some((id, name.as_bytes().strip_prefix(interest.as_bytes())?)));
    let name = match suffix {
        Some((HopId(id), suffix)) => {
            *hop_id = id;
            Name::of_checked(suffix)
        }
        None => shorten(name, contexts, context),
    };
    name::write(&name, out)?;
    if let Some(content_type) = content_type {
        put_bytes(content_type, out)?;
    }
    if let Some(last) = last {
        let last = Name::parse(last).ok().filter(|last| last.len() == 1)?;
        name::write(&last, out)?;
    }
    put_bytes(content, out)?;
    let (locator, is_digest) = match locator {
        Locator::Name(name) => (Locator::Name(shorten(name, contexts, key_context)), false),
        Locator::Digest(_) => (locator, true),
        Locator::Absent => (locator, false),
    };
    let kind_len = length_len(kind.len()).saturating_add(kind.len());
    put_length(kind_len.saturating_add(locator.len()), out).ok()?;
    put_bytes(kind, out)?;
    locator.write(out)?;
    put_bytes(signature, out)?;
    if let Some(freshness) = freshness {
        out.u8(exact_code(freshness)?).ok()?;
    }
    let first = flag(last.is_some(), FINAL_BLOCK) | flag(content_type.is_some(), CONTENT_TYPE);
    dispatch.bytes = [COMPRESSED | IS_DATA | first | flag(is_digest, KEY_DIGEST), 0];
    Some(())
}

/// Returns the code of a FreshnessPeriod that its code restores to the same bytes.
fn exact_code(freshness: &[u8]) -> Option<u8> {
    let millis = tlv::integer(freshness, Type::FRESHNESS).ok()?;
    let code = time_code(millis);
    let is_exact = time::is_exact(code, millis) && tlv::integer_bytes(millis, &mut [0; 8]) == freshness;
    is_exact.then_some(code)
}

/// The KeyLocator of a signature.
#[derive(Clone, Copy)]
enum Locator<'p> {
    Absent,
    Name(Name<'p>),
    Digest(&'p [u8]),
}

impl<'p> Locator<'p> {
    /// Takes the KeyLocator of a signature of this SignatureType, if the rules cover it.
    fn take(info: &mut Cursor<'p>, kind: &[u8]) -> Option<Self> {
        if !has_key(kind)? {
            return Some(Self::Absent);
        }
        let mut locator = Cursor::of(info.take(Type::KEY_LOCATOR)?);
        let taken = match locator.take(Type::NAME) {
            Some(name) => Self::Name(Name::parse(name).ok()?),
            None => Self::Digest(locator.take(Type::KEY_DIGEST)?),
        };
        locator.is_at_end().then_some(taken)
    }

    fn len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Name(name) => name::short_len(name),
            Self::Digest(digest) => length_len(digest.len()).saturating_add(digest.len()),
        }
    }

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Absent => Some(()),
            Self::Name(name) => name::write(name, out),
            Self::Digest(digest) => put_bytes(digest, out),
        }
    }
}

/// True for a SignatureType that requires a KeyLocator, false for a digest. Returns `None` for others.
fn has_key(kind: &[u8]) -> Option<bool> {
    match tlv::integer(kind, Type::SIGNATURE_TYPE) {
        Ok(0) => Some(false),
        Ok(1 | 3..=5) => Some(true),
        _ => None,
    }
}

/// Removes the longest prefix that is a context, and notes the context.
fn shorten<'n>(name: Name<'n>, contexts: &[Context<'_>], cid: &mut u8) -> Name<'n> {
    let known = contexts.iter().filter(|context| {
        matches!(context.id, 1..=MAX_ID) && !context.prefix.is_empty() && context.prefix.is_prefix_of(&name)
    });
    let longest = known.max_by_key(|context| context.prefix.as_bytes().len());
    let rest = longest.and_then(|context| Some((context.id, name.as_bytes().strip_prefix(context.prefix.as_bytes())?)));
    match rest {
        Some((id, rest)) => {
            *cid = id;
            Name::of_checked(rest)
        }
        None => name,
    }
}

/// Writes bytes behind their length.
fn put_bytes(bytes: &[u8], out: &mut Writer<'_>) -> Option<()> {
    put_length(bytes.len(), out).ok()?;
    out.put(bytes).ok()
}

/// Returns the bytes of a length (RFC 6256).
const fn length_len(len: usize) -> usize {
    match len {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

/// Writes a length as a self-delimiting numeric value (section 5.1, RFC 6256).
fn put_length(len: usize, out: &mut Writer<'_>) -> Result<(), Full> {
    if len >= 0x20_0000 {
        return Err(Full);
    }
    for group in (1..length_len(len)).rev() {
        out.u8((len >> group.wrapping_mul(7)) as u8 | CHAINED)?;
    }
    out.u8(len as u8 & !CHAINED)
}
