//! Messages of the Token Revocation List (RFC 9770).

use minicbor::{Decoder, Encoder};
use tegmen_host::cbor::{
    Malformed, MapWriter, Sink, Written, bytes, integer, nullable, number, read_array, read_map, read_message_of,
};

const FULL_SET: i64 = 0;
const DIFF_SET: i64 = 1;
const CURSOR: i64 = 2;
const MORE: i64 = 3;

/// Maximum number of bytes of an answer that is read: about 30,000 hashes.
pub const MAX_LIST: usize = 1 << 20;

/// The hash of a token in the binary format of RFC 6920, section 6: the number of the hash function, and the hash.
pub type TokenHash = Vec<u8>;

/// The query of a GET request, from the values of its Uri-Query options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// Maximum number of updates, where 0 means all. `None` requests the whole list.
    pub diff: Option<u64>,
    /// The cursor of an earlier answer: an index. The requested updates are those after this index. If the value is not
    /// a number, this field is [`u64::MAX`], which is not an index.
    pub cursor: Option<u64>,
}

impl Query {
    /// Reads the values of the Uri-Query options. Ignores unknown options. If a parameter occurs twice, its value is
    /// invalid.
    ///
    /// # Errors
    /// The error for a 4.00 response: the value of `diff` is invalid, or the query has a `cursor` and no `diff`.
    pub fn parse<'q>(options: impl IntoIterator<Item = &'q [u8]>) -> Result<Self, TrlError> {
        let (mut diff, mut cursor) = (None, None);
        let mut wrong = false;
        for option in options {
            let (key, value) = match option.iter().position(|byte| *byte == b'=') {
                Some(at) => (option.get(..at).unwrap_or(&[]), option.get(at.saturating_add(1)..).unwrap_or(&[])),
                None => (option, &[][..]),
            };
            let place = match key {
                b"diff" => &mut diff,
                b"cursor" => &mut cursor,
                _ => continue,
            };
            let digits = value.iter().all(u8::is_ascii_digit);
            let valid = !value.is_empty() && digits && place.is_none();
            wrong |= key == b"diff" && !valid;
            // A cursor above 64 bits is past the last update.
            let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            *place = Some(number.filter(|_| valid).unwrap_or(u64::MAX));
        }
        match (wrong, diff, cursor) {
            (true, ..) => Err(TrlError { error: TrlErrorId::INVALID_VALUE, cursor: None }),
            (false, None, Some(_)) => Err(TrlError { error: TrlErrorId::INVALID_SET, cursor: None }),
            (false, diff, cursor) => Ok(Self { diff, cursor }),
        }
    }
}

/// The index of the last update in an answer, or null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// There is no index, because there is no update yet, or the updates are no longer kept. The message contains null.
    Null,
    /// The index of the last update that the answer contains.
    At(u64),
}

/// One update of the revocation list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// Hashes that were removed from the list, because their tokens expired.
    pub removed: Vec<TokenHash>,
    /// Hashes that were added to the list, because their tokens were revoked.
    pub added: Vec<TokenHash>,
}

/// The 2.05 response to a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The whole list.
    Full {
        /// The hashes of all revoked tokens that concern the requester and are not expired.
        hashes: Vec<TokenHash>,
        /// The index that a later query sends as its cursor to get only the updates after this answer.
        cursor: Option<Cursor>,
    },
    /// Updates of the revocation list.
    Diff {
        /// The updates, the latest first.
        updates: Vec<Update>,
        /// The index of the latest update in `updates`. A later query sends this index as its cursor.
        cursor: Option<Cursor>,
        /// True if further updates follow the index in `cursor`. If `cursor` is [`Cursor::Null`], true means that
        /// updates are lost, so the requester needs the whole list.
        more: Option<bool>,
    },
}

impl Answer {
    /// Reads the answer of a server to a query of its revocation list.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no answer to a query, or longer than [`MAX_LIST`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut full, mut diff, mut cursor, mut more) = (None, None, None, None);
        read_message_of(message, MAX_LIST, |label, decoder| {
            match label {
                FULL_SET => full = Some(read_hashes(decoder)?),
                DIFF_SET => diff = Some(read_updates(decoder)?),
                CURSOR => cursor = Some(read_cursor(decoder)?),
                MORE => more = Some(decoder.bool()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match (full, diff) {
            (Some(hashes), None) => Ok(Self::Full { hashes, cursor }),
            (None, Some(updates)) => Ok(Self::Diff { updates, cursor, more }),
            (Some(_), Some(_)) => Err(Malformed::Value(DIFF_SET)),
            (None, None) => Err(Malformed::Missing(FULL_SET)),
        }
    }

    /// Encodes the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        match self {
            Self::Full { hashes, cursor } => {
                map.entry(FULL_SET, |encoder| write_hashes(encoder, hashes));
                map.optional(CURSOR, *cursor, write_cursor);
            }
            Self::Diff { updates, cursor, more } => {
                map.entry(DIFF_SET, |encoder| write_updates(encoder, updates));
                map.optional(CURSOR, *cursor, write_cursor);
                map.optional(MORE, *more, |encoder, more| encoder.bool(more).map(|_| ()));
            }
        }
        map.finish().to_vec()
    }
}

fn read_hashes(decoder: &mut Decoder<'_>) -> Result<Vec<TokenHash>, Malformed> {
    let mut hashes = Vec::new();
    read_array(decoder, |decoder| {
        hashes.push(decoder.bytes()?.to_owned());
        Ok(())
    })?;
    Ok(hashes)
}

fn read_updates(decoder: &mut Decoder<'_>) -> Result<Vec<Update>, Malformed> {
    let mut updates = Vec::new();
    read_array(decoder, |decoder| {
        if decoder.array()? != Some(2) {
            return Err(Malformed::Syntax);
        }
        updates.push(Update { removed: read_hashes(decoder)?, added: read_hashes(decoder)? });
        Ok(())
    })?;
    Ok(updates)
}

fn read_cursor(decoder: &mut Decoder<'_>) -> Result<Cursor, Malformed> {
    Ok(nullable(decoder, Decoder::u64)?.map_or(Cursor::Null, Cursor::At))
}

fn write_hashes(encoder: &mut Encoder<Sink<'_>>, hashes: &[TokenHash]) -> Written {
    encoder.array(hashes.len() as u64)?;
    hashes.iter().try_for_each(|hash| bytes(encoder, hash))
}

fn write_updates(encoder: &mut Encoder<Sink<'_>>, updates: &[Update]) -> Written {
    encoder.array(updates.len() as u64)?;
    for update in updates {
        encoder.array(2)?;
        write_hashes(encoder, &update.removed)?;
        write_hashes(encoder, &update.added)?;
    }
    Ok(())
}

fn write_cursor(encoder: &mut Encoder<Sink<'_>>, cursor: Cursor) -> Written {
    match cursor {
        Cursor::Null => encoder.null().map(|_| ()),
        Cursor::At(index) => number(encoder, index),
    }
}

/// The number of an error of the revocation list (RFC 9770, section 14, registry "ACE Token Revocation List Errors").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrlErrorId(pub i64);

impl TrlErrorId {
    /// The value of a parameter is invalid.
    pub const INVALID_VALUE: Self = Self(0);
    /// The combination of parameters is not valid.
    pub const INVALID_SET: Self = Self(1);
    /// The cursor is greater than the index of the last update.
    pub const OUT_OF_BOUND_CURSOR: Self = Self(2);
}

/// The entry `ace-trl-error` of concise problem details (RFC 9290), which are the payload of a 4.00 response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrlError {
    /// The number of the error.
    pub error: TrlErrorId,
    /// The index of the last update of the revocation list, if the value of the parameter `cursor` is invalid; `None`
    /// for all other errors.
    pub cursor: Option<Cursor>,
}

/// The key of the entry `ace-trl-error` among the custom problem details.
const ACE_TRL_ERROR: i64 = 1;
const ERROR_ID: i64 = 0;
const ERROR_CURSOR: i64 = 1;

impl TrlError {
    /// Reads problem details (RFC 9290) that contain the entry `ace-trl-error`.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no problem details with this entry.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut error, mut cursor) = (None, None);
        read_message_of(message, MAX_LIST, |label, decoder| {
            if label != ACE_TRL_ERROR {
                return Ok(false);
            }
            read_map(decoder, |label, decoder| {
                match label {
                    ERROR_ID => error = Some(TrlErrorId(decoder.i64()?)),
                    ERROR_CURSOR => cursor = Some(read_cursor(decoder)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            Ok(true)
        })?;
        Ok(Self { error: error.ok_or(Malformed::Missing(ACE_TRL_ERROR))?, cursor })
    }

    /// Encodes problem details that contain only this entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut problem = MapWriter::default();
        problem.map(ACE_TRL_ERROR, Some(self), |map, Self { error, cursor }| {
            map.entry(ERROR_ID, |encoder| integer(encoder, error.0)).optional(ERROR_CURSOR, *cursor, write_cursor);
        });
        problem.finish().to_vec()
    }
}
