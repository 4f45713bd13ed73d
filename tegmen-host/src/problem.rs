//! Concise problem details (RFC 9290): the description of an error, in a payload for programs and people.

use crate::cbor::{Malformed, nullable, read_array, read_message_of};
use minicbor::data::{Tag, Type};
use minicbor::{Decoder, Encoder};
use std::fmt;

/// The Content-Format application/concise-problem-details+cbor.
pub const CONTENT_FORMAT: u16 = 257;
/// The tag of a text with its language and direction (RFC 9290, appendix A).
const TEXT_WITH_LANGUAGE: Tag = Tag::new(38);

/// The description of a problem.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Problem {
    /// A short description of the problem.
    pub title: Option<String>,
    /// Details of this occurrence of the problem.
    pub detail: Option<String>,
    /// The URI of this occurrence of the problem.
    pub instance: Option<String>,
    /// The response code that the origin gave, as a number.
    pub response_code: Option<u8>,
}

/// The error that bytes are not concise problem details.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no concise problem details (RFC 9290): a CBOR map is expected")]
pub struct NotAProblem;

impl Problem {
    /// Returns a problem with this title and detail.
    pub fn new(title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { title: Some(title.into()), detail: Some(detail.into()), ..Self::default() }
    }

    /// Returns the payload.
    pub fn to_cbor(&self) -> Vec<u8> {
        let texts = [(-1, &self.title), (-2, &self.detail), (-3, &self.instance)];
        let count = texts.iter().filter(|(_, text)| text.is_some()).count() + usize::from(self.response_code.is_some());
        let mut encoder = Encoder::new(Vec::new());
        let written = (|| {
            encoder.map(count as u64)?;
            for (key, text) in texts {
                if let Some(text) = text {
                    encoder.i8(key)?.str(text)?;
                }
            }
            if let Some(code) = self.response_code {
                encoder.i8(-4)?.u8(code)?;
            }
            Ok::<_, minicbor::encode::Error<std::convert::Infallible>>(())
        })();
        debug_assert!(written.is_ok(), "a vector takes everything");
        encoder.into_writer()
    }

    /// Reads a payload. Unknown entries are skipped (RFC 9290, section 2).
    ///
    /// # Errors
    /// [`NotAProblem`] if the payload is not valid, for example if a label occurs twice.
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, NotAProblem> {
        let mut problem = Self::default();
        let read = read_message_of(bytes, usize::MAX, |label, decoder| {
            match label {
                -1 => problem.title = Some(text(decoder)?),
                -2 => problem.detail = Some(text(decoder)?),
                -3 => problem.instance = Some(decoder.str()?.to_owned()),
                -4 => problem.response_code = Some(decoder.u8()?),
                _ => return Ok(false),
            }
            Ok(true)
        });
        read.map(|()| problem).map_err(|_| NotAProblem)
    }
}

/// Reads a text string, or the text of a tagged array with language, text, and optionally direction.
fn text(decoder: &mut Decoder<'_>) -> Result<String, Malformed> {
    if decoder.datatype()? != Type::Tag {
        return Ok(decoder.str()?.to_owned());
    }
    if decoder.tag()? != TEXT_WITH_LANGUAGE {
        return Err(Malformed::Syntax);
    }
    let (mut text, mut count) = (None, 0_usize);
    read_array(decoder, |decoder| {
        match count {
            0 => _ = decoder.str()?,
            1 => text = Some(decoder.str()?.to_owned()),
            2 => _ = nullable(decoder, Decoder::bool)?,
            _ => return Err(Malformed::Syntax),
        }
        count = count.saturating_add(1);
        Ok(())
    })?;
    text.ok_or(Malformed::Syntax)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title.as_deref().unwrap_or("a problem without title"))?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(instance) = &self.instance {
            write!(f, " ({instance})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
