//! A reader and a writer for the messages of groups and of access control. Each message is a CBOR map whose keys are
//! integers.

use minicbor::data::Type;
use minicbor::encode::Write;
use minicbor::{Decoder, Encoder};
use std::convert::Infallible;
use zeroize::{Zeroize as _, Zeroizing};

/// Maximum length of a message that is read, in bytes.
pub const MAX_MESSAGE: usize = 4096;
/// Maximum number of entries of one map.
const MAX_ENTRIES: usize = 64;
/// Maximum number of levels of a value that is skipped.
const MAX_DEPTH: u8 = 32;

/// The reason why bytes are not a valid message. A server answers such bytes with 4.00 and `invalid_request`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not well-formed CBOR, or a value has the wrong type.
    #[error("no well-formed message")]
    Syntax,
    /// The message is longer than [`MAX_MESSAGE`], a map has more than 64 entries, or an unknown value has more than 32
    /// levels.
    #[error("the message is too long")]
    TooLong,
    /// The parameter with this label occurs twice.
    #[error("parameter {0} comes twice")]
    Repeated(i64),
    /// The parameter with this label is missing.
    #[error("parameter {0} is missing")]
    Missing(i64),
    /// The value of the parameter with this label has the right type, but is not valid.
    #[error("the value of parameter {0} has no meaning")]
    Value(i64),
}

impl From<minicbor::decode::Error> for Malformed {
    fn from(_: minicbor::decode::Error) -> Self {
        Self::Syntax
    }
}

/// Reads a message that is one map. `take` reads the value of a label that it knows. For an unknown label `take` reads
/// nothing and returns false.
///
/// # Errors
/// [`Malformed`] if the bytes are not a valid message.
pub fn read_message<'b>(
    bytes: &'b [u8],
    take: impl FnMut(i64, &mut Decoder<'b>) -> Result<bool, Malformed>,
) -> Result<(), Malformed> {
    read_message_of(bytes, MAX_MESSAGE, take)
}

/// Does the same as [`read_message`] for a message of at most `longest` bytes.
///
/// # Errors
/// [`Malformed`] if the bytes are not a valid message.
pub fn read_message_of<'b>(
    bytes: &'b [u8],
    longest: usize,
    take: impl FnMut(i64, &mut Decoder<'b>) -> Result<bool, Malformed>,
) -> Result<(), Malformed> {
    if bytes.len() > longest {
        return Err(Malformed::TooLong);
    }
    let mut decoder = Decoder::new(bytes);
    read_map(&mut decoder, take)?;
    if decoder.position() == bytes.len() { Ok(()) } else { Err(Malformed::Syntax) }
}

/// Reads one map as [`read_message`] does.
///
/// # Errors
/// [`Malformed`] if there is no valid map.
pub fn read_map<'b>(
    decoder: &mut Decoder<'b>,
    take: impl FnMut(i64, &mut Decoder<'b>) -> Result<bool, Malformed>,
) -> Result<(), Malformed> {
    // The registries have no number for a key that is text.
    read_map_with(decoder, skip_value, take)
}

/// Does the same as [`read_map`], and calls `read_key` for each key that is not an integer. The function skips the
/// value of this key.
///
/// # Errors
/// [`Malformed`] if there is no valid map.
pub(crate) fn read_map_with<'b>(
    decoder: &mut Decoder<'b>,
    mut read_key: impl FnMut(&mut Decoder<'b>) -> Result<(), Malformed>,
    mut take: impl FnMut(i64, &mut Decoder<'b>) -> Result<bool, Malformed>,
) -> Result<(), Malformed> {
    let mut left = decoder.map()?;
    // The labels from 0 to 63, a bit for each, and the others.
    let (mut seen, mut others): (u64, Vec<i128>) = (0, Vec::new());
    for entry in 0_usize.. {
        match &mut left {
            Some(0) => break,
            Some(left) => *left = left.saturating_sub(1),
            None if decoder.datatype()? == Type::Break => {
                decoder.skip()?;
                break;
            }
            None => {}
        }
        if entry >= MAX_ENTRIES {
            return Err(Malformed::TooLong);
        }
        if !is_integer(decoder.datatype()?) {
            read_key(decoder)?;
            skip_value(decoder)?;
            continue;
        }
        let label: i128 = decoder.int()?.into();
        let is_repeated = match label {
            0..64 => {
                let before = seen;
                seen |= 1 << label;
                before == seen
            }
            _ => {
                others.push(label);
                others.iter().rev().skip(1).any(|other| *other == label)
            }
        };
        // No registry has a label that needs more than 64 bits.
        let known = i64::try_from(label).ok();
        if is_repeated {
            return Err(known.map_or(Malformed::Syntax, Malformed::Repeated));
        }
        let is_taken = known.map_or(Ok(false), |label| take(label, decoder))?;
        if !is_taken {
            skip_value(decoder)?;
        }
    }
    Ok(())
}

/// Skips a value of at most 32 levels, as [`read_message`] skips the value of an unknown label.
///
/// # Errors
/// [`Malformed`] if there is no well-formed value, or if it has more levels.
pub(crate) fn skip_value(decoder: &mut Decoder<'_>) -> Result<(), Malformed> {
    skip(decoder, MAX_DEPTH)
}

/// Skips a value of at most `depth` levels. Refuses the code for the end of an item in place of a value, and a simple
/// value below 32 in two bytes (RFC 8949, sections 3 and 3.3).
fn skip(decoder: &mut Decoder<'_>, depth: u8) -> Result<(), Malformed> {
    let inner = depth.checked_sub(1).ok_or(Malformed::TooLong)?;
    let start = decoder.position();
    match decoder.datatype()? {
        Type::Array | Type::ArrayIndef => read_array(decoder, |decoder| skip(decoder, inner)),
        Type::Map | Type::MapIndef => {
            let pair = |decoder: &mut Decoder<'_>| skip(decoder, inner).and_then(|()| skip(decoder, inner));
            match decoder.map()? {
                Some(len) => (0..len).try_for_each(|_| pair(decoder)),
                None => until_break(decoder, pair),
            }
        }
        Type::Tag => {
            decoder.tag()?;
            skip(decoder, inner)
        }
        Type::Break => Err(Malformed::Syntax),
        Type::Simple if decoder.simple()? < 32 && decoder.position() > start.saturating_add(1) => {
            Err(Malformed::Syntax)
        }
        Type::Simple => Ok(()),
        _ => Ok(decoder.skip()?),
    }
}

/// Calls `take` for each part of an item of indefinite length.
fn until_break<'b>(
    decoder: &mut Decoder<'b>,
    mut take: impl FnMut(&mut Decoder<'b>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while decoder.datatype()? != Type::Break {
        take(decoder)?;
    }
    Ok(decoder.skip()?)
}

/// Reads an array, and calls `take` for each element.
///
/// # Errors
/// [`Malformed`] if there is no valid array.
pub fn read_array<'b>(
    decoder: &mut Decoder<'b>,
    mut take: impl FnMut(&mut Decoder<'b>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    match decoder.array()? {
        // Each element has a byte at least, so the end of the bytes ends this loop.
        Some(len) => (0..len).try_for_each(|_| take(decoder)),
        None => until_break(decoder, take),
    }
}

/// Reads a value that can be null. Calls `read` for a value that is not null.
///
/// # Errors
/// [`Malformed`] if the value is not valid.
pub fn nullable<'b, T>(
    decoder: &mut Decoder<'b>,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, minicbor::decode::Error>,
) -> Result<Option<T>, Malformed> {
    if decoder.datatype()? == Type::Null {
        decoder.null()?;
        return Ok(None);
    }
    Ok(Some(read(decoder)?))
}

/// True for a CBOR type that is an integer.
pub const fn is_integer(datatype: Type) -> bool {
    use Type::{I8, I16, I32, I64, Int, U8, U16, U32, U64};
    matches!(datatype, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | Int)
}

/// Initial capacity of a buffer in bytes, which is enough for most messages.
const FIRST: usize = 120;

/// The bytes of a message that is being written, which are wiped on drop. When the bytes outgrow their buffer, [`Sink`]
/// wipes the old buffer.
pub type Out = Zeroizing<Vec<u8>>;

/// The result of writing to memory, which cannot fail.
pub type Written = Result<(), minicbor::encode::Error<Infallible>>;

/// A writer of one value.
pub struct Sink<'o>(&'o mut Vec<u8>);

impl<'o> Sink<'o> {
    /// Returns a writer that appends to these bytes.
    pub const fn new(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Moves the bytes to a larger buffer with space for at least `len` bytes, and wipes the old buffer.
    #[cold]
    fn grow(&mut self, len: usize) {
        let mut larger = Vec::with_capacity(len.saturating_mul(2).max(FIRST));
        larger.extend_from_slice(self.0);
        self.0.zeroize();
        *self.0 = larger;
    }
}

impl Write for Sink<'_> {
    type Error = Infallible;

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        let len = self.0.len().saturating_add(bytes.len());
        if len > self.0.capacity() {
            self.grow(len);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Returns the first byte of a map with this number of entries, at most 23 (RFC 8949, section 3.1).
const fn head(count: u8) -> u8 {
    debug_assert!(count < 24, "no message has as many parameters");
    0xa0 | count
}

/// A map that is being written.
pub struct MapWriter {
    /// The bytes until now: the bytes of the enclosing map, the first byte of this map, and the entries of this map.
    /// [`Self::finish`] replaces the first byte of this map.
    out: Out,
    /// The index of the first byte of this map.
    start: usize,
    count: u8,
}

impl Default for MapWriter {
    fn default() -> Self {
        Self::behind(Out::default())
    }
}

impl MapWriter {
    /// Begins a map in a buffer of this number of bytes. A longer map gets a larger buffer.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::behind(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    /// Begins a map after the bytes `out`.
    fn behind(mut out: Out) -> Self {
        let start = out.len();
        let Ok(()) = Sink(&mut out).write_all(&[head(0)]);
        Self { out, start, count: 0 }
    }

    /// Adds an entry whose value `write` writes.
    pub fn entry(&mut self, label: i64, write: impl FnOnce(&mut Encoder<Sink<'_>>) -> Written) -> &mut Self {
        let mut encoder = Encoder::new(Sink(&mut self.out));
        let written: Written = encoder.i64(label).map(|_| ());
        let Ok(()) = written.and_then(|()| write(&mut encoder)) else { return self };
        self.count = self.count.saturating_add(1);
        self
    }

    /// Adds an entry if `value` is not `None`.
    pub fn optional<T>(
        &mut self,
        label: i64,
        value: Option<T>,
        write: impl FnOnce(&mut Encoder<Sink<'_>>, T) -> Written,
    ) -> &mut Self {
        match value {
            Some(value) => self.entry(label, |encoder| write(encoder, value)),
            None => self,
        }
    }

    /// Adds an entry whose value is a map, if `value` is not `None`. `write` adds the entries of the inner map.
    pub fn map<T>(&mut self, label: i64, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        if let Some(value) = value {
            self.entry(label, |_| Ok(()));
            let mut map = Self::behind(std::mem::take(&mut self.out));
            write(&mut map, value);
            self.out = map.finish();
        }
        self
    }

    /// Returns the bytes of the finished map.
    pub fn finish(mut self) -> Out {
        if let Some(first) = self.out.get_mut(self.start) {
            *first = head(self.count);
        }
        self.out
    }
}

/// Writes a text string.
pub fn text(encoder: &mut Encoder<Sink<'_>>, text: &str) -> Written {
    encoder.str(text).map(|_| ())
}

/// Writes a byte string.
pub fn bytes(encoder: &mut Encoder<Sink<'_>>, bytes: &[u8]) -> Written {
    encoder.bytes(bytes).map(|_| ())
}

/// Writes an integer.
pub fn integer(encoder: &mut Encoder<Sink<'_>>, value: i64) -> Written {
    encoder.i64(value).map(|_| ())
}

/// Writes a number that is not negative.
pub fn number(encoder: &mut Encoder<Sink<'_>>, value: u64) -> Written {
    encoder.u64(value).map(|_| ())
}
