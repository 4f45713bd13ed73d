//! Options (RFC 7252, sections 3.1 and 5.10).

use tegmen_base::buf::{Full, Reader, Truncated, Writer, copy, shift_left};

/// An option number (IANA CoAP Option Numbers registry).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OptionNumber(pub u16);

/// The class of an option for OSCORE (RFC 8613, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Class E: the option is encrypted, in the inner message. This is the class of every option without another
    /// definition.
    Encrypted,
    /// Class U: the option is unprotected, in the outer message, so that proxies can read it.
    Unprotected,
}

impl OptionNumber {
    /// The request applies only if the representation has this ETag.
    pub const IF_MATCH: Self = Self(1);
    /// The name of the target host.
    pub const URI_HOST: Self = Self(3);
    /// An identifier that distinguishes versions of a representation.
    pub const ETAG: Self = Self(4);
    /// The request applies only if the resource does not exist.
    pub const IF_NONE_MATCH: Self = Self(5);
    /// Registers for notifications in a request, and orders the notifications in responses (RFC 7641).
    pub const OBSERVE: Self = Self(6);
    /// The port of the target host.
    pub const URI_PORT: Self = Self(7);
    /// A segment of the path of the created resource.
    pub const LOCATION_PATH: Self = Self(8);
    /// The message is protected (RFC 8613).
    pub const OSCORE: Self = Self(9);
    /// A segment of the path of the requested resource.
    pub const URI_PATH: Self = Self(11);
    /// The format of the payload.
    pub const CONTENT_FORMAT: Self = Self(12);
    /// The number of seconds for which a response is fresh.
    pub const MAX_AGE: Self = Self(14);
    /// An argument of the query of the request, for example `key=value`.
    pub const URI_QUERY: Self = Self(15);
    /// The number of proxies through which a message may still pass (RFC 8768).
    pub const HOP_LIMIT: Self = Self(16);
    /// The Content-Format that the client wants for the response.
    pub const ACCEPT: Self = Self(17);
    /// An argument of the query of the created resource.
    pub const LOCATION_QUERY: Self = Self(20);
    /// A block of the response (RFC 7959).
    pub const BLOCK2: Self = Self(23);
    /// A block of the request (RFC 7959).
    pub const BLOCK1: Self = Self(27);
    /// The size of the representation in the response (RFC 7959, section 4).
    pub const SIZE2: Self = Self(28);
    /// The URI of the request that a client sends to a forward proxy.
    pub const PROXY_URI: Self = Self(35);
    /// The scheme of the URI that a forward proxy must use.
    pub const PROXY_SCHEME: Self = Self(39);
    /// The size of the representation in the request (RFC 7959, section 4).
    pub const SIZE1: Self = Self(60);
    /// A value that proves that a request is fresh (RFC 9175, section 2).
    pub const ECHO: Self = Self(252);
    /// The classes of responses that the client does not want (RFC 7967).
    pub const NO_RESPONSE: Self = Self(258);
    /// A value that distinguishes the blocks of one request body from the blocks of another request body (RFC 9175,
    /// section 3).
    pub const REQUEST_TAG: Self = Self(292);
    /// The hash of a request that several clients send with equal bytes (draft-ietf-core-cacheable-oscore-02, section
    /// 3.3).
    pub const REQUEST_HASH: Self = Self(548);

    /// Returns true if a message with this option must be rejected by an endpoint that does not know the option (RFC
    /// 7252, section 5.4.1).
    pub const fn is_critical(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns true if a proxy that does not know the option must not forward it (RFC 7252, section 5.4.2).
    pub const fn is_unsafe(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns true if the option belongs to the cache key: a stored response to a request with another value must
    /// not answer this request (RFC 7252, section 5.4.2).
    pub const fn is_cache_key(self) -> bool {
        self.0 & 0x1e != 0x1c
    }

    /// Returns the class of an option (RFC 8613, figure 5). For an option that can be in the outer and in the inner
    /// message, such as Observe, returns [`Class::Encrypted`].
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub const fn class(self) -> Class {
        match self {
            Self::URI_HOST | Self::URI_PORT | Self::OSCORE | Self::PROXY_URI | Self::PROXY_SCHEME => Class::Unprotected,
            // RFC 8768, section 5.
            Self::HOP_LIMIT => Class::Unprotected,
            _ => Class::Encrypted,
        }
    }
}

/// Reads one option after an option with the number `previous`. The payload marker is not an option, so the caller
/// must check for it first.
pub fn read<'a>(reader: &mut Reader<'a>, previous: u16) -> Result<(OptionNumber, &'a [u8]), Truncated> {
    let first = reader.u8()?;
    let (delta, len) = (first >> 4, first & 15);
    let delta = if delta < 13 { delta.into() } else { read_extended(reader, delta)? };
    let len = if len < 13 { len.into() } else { read_extended(reader, len)? };
    let number = previous.checked_add(delta).ok_or(Truncated)?;
    Ok((OptionNumber(number), reader.take(len.into())?))
}

/// Returns the value of the first option of this number in encoded options that a parser has checked.
pub fn find(run: &[u8], wanted: OptionNumber) -> Option<&[u8]> {
    let (mut reader, mut previous) = (Reader::new(run), 0);
    loop {
        let (number, value) = read(&mut reader, previous).ok()?;
        if number == wanted {
            return Some(value);
        }
        previous = number.0;
    }
}

/// Returns the value of a delta or a length, whose four bits are `nibble`. 13 means that the rest of the value is in
/// the next byte, and 14 that it is in the next two bytes.
fn read_extended(reader: &mut Reader<'_>, nibble: u8) -> Result<u16, Truncated> {
    match nibble {
        13 => Ok(u16::from(reader.u8()?).wrapping_add(13)),
        14 => reader.u16()?.checked_add(269).ok_or(Truncated),
        _ => Err(Truncated),
    }
}

/// Writes one option. Its number is `delta` more than the number of the previous option.
pub fn write(writer: &mut Writer<'_>, delta: u16, value: &[u8]) -> Result<(), Full> {
    if value.len() > MAX_VALUE {
        return Err(Full);
    }
    writer.put(Header::new(delta, value.len()).as_bytes())?;
    writer.put(value)
}

/// Longest value in bytes that a header can announce.
const MAX_VALUE: usize = 65_804;

/// The encoded bytes of an option that precede its value: the delta of the option number, and the length of the value.
pub struct Header {
    /// The encoded delta and length: the first `len` bytes of this array, at most five.
    bytes: [u8; 8],
    len: usize,
}

impl Header {
    /// Makes the header for a value of `len` bytes, at most 65,804.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn new(delta: u16, len: usize) -> Self {
        let mut header = Self { bytes: [0; 8], len: 1 };
        let nibbles = header.nibble(delta.into()) << 4 | header.nibble(len);
        let [first, ..] = &mut header.bytes;
        *first = nibbles;
        header
    }

    /// Returns the four bits of the header for a delta or a length. Appends one or two bytes to the header if the value
    /// does not fit into four bits.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn nibble(&mut self, value: usize) -> u8 {
        if value < 13 {
            return value as u8;
        }
        if value < 269 {
            self.push(value.wrapping_sub(13) as u8);
            return 13;
        }
        let value = value.wrapping_sub(269);
        self.push((value >> 8) as u8);
        self.push(value as u8);
        14
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Returns the bytes of the header.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len & 7).unwrap_or(&[])
    }
}

/// A selection of the options of an OSCORE message (RFC 8613, section 4.1). [`retain`] keeps the selected options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The outer options of class U, without OSCORE itself.
    Outside,
    /// The inner options of a request: class E.
    InsideRequest,
    /// The inner options of a response: class E. The inner Observe has no value, because the OSCORE sequence numbers
    /// give the order of notifications (RFC 8613, section 4.1.3.5.2).
    InsideResponse,
}

impl Part {
    /// Returns the number of bytes that remain of the value of an option, or `None` if the option is removed.
    fn keeps(self, number: OptionNumber, len: usize) -> Option<usize> {
        let outside = number.class() == Class::Unprotected;
        let kept = if self == Self::Outside { outside && number != OptionNumber::OSCORE } else { !outside };
        let empty = self == Self::InsideResponse && number == OptionNumber::OBSERVE;
        kept.then_some(if empty { 0 } else { len })
    }
}

/// Removes options in place from encoded options that a parser has checked. Returns the remaining length.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn retain(run: &mut [u8], part: Part) -> usize {
    let (mut from, mut to) = (0usize, 0usize);
    let (mut number, mut last) = (0u16, 0u16);
    loop {
        let mut reader = Reader::new(run.get(from..).unwrap_or(&[]));
        let Ok((option, value)) = read(&mut reader, number) else { return to };
        let (end, value_len) = (run.len().wrapping_sub(reader.rest().len()), value.len());
        number = option.0;
        if let Some(len) = part.keeps(option, value_len) {
            // The new header is not longer than the old header together with the headers of the options that were
            // removed before it. So it fits.
            let header = Header::new(number.wrapping_sub(last), len);
            let _ = copy(run.get_mut(to..).unwrap_or(&mut []), header.as_bytes());
            to = to.wrapping_add(header.as_bytes().len());
            let value_at = end.wrapping_sub(value_len);
            let value = run.get_mut(..value_at.wrapping_add(len)).unwrap_or(&mut []);
            to = to.wrapping_add(shift_left(value, value_at, to));
            last = number;
        }
        from = end;
    }
}

/// The outer and inner options of a message, in one sequence ordered by their numbers.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    outer: Run<'a>,
    inner: Run<'a>,
}

/// A sequence of encoded options. `next` is the option that the iterator returns next, and `rest` has the bytes after
/// this option.
#[derive(Clone, Debug)]
struct Run<'a> {
    rest: Reader<'a>,
    next: Option<(OptionNumber, &'a [u8])>,
}

impl<'a> Run<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut run = Self { rest: Reader::new(bytes), next: None };
        run.advance(0);
        run
    }

    fn advance(&mut self, previous: u16) {
        // `MessageRef::parse` has checked these bytes, so an error means only that no option remains.
        self.next = read(&mut self.rest, previous).ok();
    }

    fn take(&mut self) -> Option<(OptionNumber, &'a [u8])> {
        let (number, value) = self.next?;
        self.advance(number.0);
        Some((number, value))
    }
}

impl<'a> Options<'a> {
    /// Makes the sequence of all options of a message. `outer` contains the encoded outer options, and `inner` contains
    /// the encoded inner options. A parser must have checked both encodings.
    pub fn new(outer: &'a [u8], inner: &'a [u8]) -> Self {
        Self { outer: Run::new(outer), inner: Run::new(inner) }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (OptionNumber, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match (self.outer.next, self.inner.next) {
            (Some((outer, _)), Some((inner, _))) if inner < outer => self.inner.take(),
            (Some(_), _) => self.outer.take(),
            (None, _) => self.inner.take(),
        }
    }
}

/// Reads the value of an option of format `uint` (RFC 7252, section 3.2). Returns `None` if it is longer than four
/// bytes.
pub fn uint(value: &[u8]) -> Option<u32> {
    if value.len() > 4 {
        return None;
    }
    Some(value.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Writes a number as the shortest `uint` to the end of `bytes`. Returns the bytes of this `uint`.
pub fn uint_bytes(value: u32, bytes: &mut [u8; 4]) -> &[u8] {
    *bytes = value.to_be_bytes();
    let skip = (value.leading_zeros() / 8) as usize;
    bytes.get(skip..).unwrap_or(&[])
}

#[cfg(test)]
mod tests;
