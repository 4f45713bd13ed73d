//! Concise problem details (RFC 9290): the description of an error, in a payload for programs and people.

use crate::cbor::{Malformed, read_map};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use std::fmt;

/// The Content-Format application/concise-problem-details+cbor.
pub const CONTENT_FORMAT: u16 = 257;

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
        Self::read(&mut Decoder::new(bytes)).map_err(|_| NotAProblem)
    }

    fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut problem = Self::default();
        read_map(decoder, |label, decoder| {
            match label {
                -1 => problem.title = Some(text(decoder)?),
                -2 => problem.detail = Some(text(decoder)?),
                -3 => problem.instance = Some(text(decoder)?),
                -4 => problem.response_code = Some(decoder.u8()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(problem)
    }
}

/// Reads a text string, or the text of a tagged string with language and direction (tag 38).
fn text(decoder: &mut Decoder<'_>) -> Result<String, minicbor::decode::Error> {
    if decoder.datatype()? == Type::Tag {
        decoder.tag()?;
        let len = decoder.array()?.unwrap_or(0);
        decoder.str()?;
        let text = decoder.str()?.to_owned();
        for _ in 2..len {
            decoder.skip()?;
        }
        return Ok(text);
    }
    decoder.str().map(str::to_owned)
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
