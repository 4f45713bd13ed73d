//! Names in text (packet format, section "NDN URI Scheme"; naming conventions, revision 3).

use crate::name::{Component, Name};
use crate::tlv::{self, Type};
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::{Full, Writer};
use tegmen_base::crypto::DIGEST_LEN;

/// The types of components whose values are written in hexadecimal digits, each with the text before the value.
const DIGESTS: [(Type, &str); 2] =
    [(Type::IMPLICIT_DIGEST, "sha256digest"), (Type::PARAMETERS_DIGEST, "params-sha256")];

/// The types of components whose values are written as numbers, each with the text before the value.
const NUMBERS: [(Type, &str); 5] = [
    (Type::SEGMENT, "seg"),
    (Type::BYTE_OFFSET, "off"),
    (Type::VERSION, "v"),
    (Type::TIMESTAMP, "t"),
    (Type::SEQUENCE, "seq"),
];

impl Display for Component<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some((_, text)) = DIGESTS.iter().find(|(kind, _)| *kind == self.kind) {
            write!(f, "{text}=")?;
            return self.value.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        }
        let named = NUMBERS.iter().find(|(kind, _)| *kind == self.kind);
        if let Some(((_, text), number)) = named.zip(self.shortest_number()) {
            return write!(f, "{text}={number}");
        }
        if self.kind != Type::GENERIC {
            write!(f, "{}=", self.kind.0)?;
        }
        if self.value.iter().all(|byte| *byte == b'.') {
            f.write_str("...")?;
        }
        self.value.iter().try_for_each(|byte| match byte {
            byte if is_unreserved(*byte) => write!(f, "{}", char::from(*byte)),
            byte => write!(f, "%{byte:02X}"),
        })
    }
}

impl Component<'_> {
    /// Returns the number of the component if it is encoded in as few bytes as possible, so that different components
    /// have different texts.
    fn shortest_number(&self) -> Option<u64> {
        self.number().filter(|number| tlv::integer_bytes(*number, &mut [0; 8]) == self.value)
    }
}

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("/");
        }
        self.components().try_for_each(|component| write!(f, "/{component}"))
    }
}

/// The reason why a text is not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UriError {
    /// A component has no characters. Write `...` for an empty component.
    Empty,
    /// A `%` is not followed by two hexadecimal digits, or the text of a digest does not have 64 hexadecimal digits.
    Hexadecimal,
    /// The type before `=` is neither a number from 1 to 65,535 nor a known word.
    Type,
    /// The value of a component is not a number.
    Number,
    /// The name does not fit the output.
    Full,
}

impl Display for UriError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a component is empty; write '...' for an empty one",
            Self::Hexadecimal => "hexadecimal digits are missing after '%', or a digest does not have 64 of them",
            Self::Type => {
                "the type before '=' is neither a number from 1 to 65535 nor one of sha256digest, params-sha256, \
                           seg, off, v, t, seq"
            }
            Self::Number => "the value of a segment, offset, version, time or sequence number is not a number",
            Self::Full => "the name is too long",
        })
    }
}

impl core::error::Error for UriError {}

impl From<Full> for UriError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Writes the value of the Name element for a text, such as `/house/temp/v=7`. The text may begin with `ndn:`, and end with `/`.
///
/// # Errors
/// [`UriError`].
pub fn write_uri(text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let text = text.strip_prefix("ndn:").unwrap_or(text);
    let text = text.strip_prefix('/').unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Ok(());
    }
    text.split('/').try_for_each(|component| write_component(component, out))
}

fn write_component(text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let Some((kind, value)) = text.split_once('=') else {
        return write_text(Type::GENERIC, text, out);
    };
    if let Some((kind, _)) = DIGESTS.iter().find(|(_, name)| *name == kind) {
        let digits = value.as_bytes();
        if digits.len() != 2 * DIGEST_LEN {
            return Err(UriError::Hexadecimal);
        }
        tlv::write_head(out, *kind, DIGEST_LEN)?;
        return digits.as_chunks::<2>().0.iter().try_for_each(|pair| Ok(out.u8(hexadecimal(*pair)?)?));
    }
    if let Some((kind, _)) = NUMBERS.iter().find(|(_, name)| *name == kind) {
        let number = value.parse().map_err(|_| UriError::Number)?;
        return Ok(tlv::write_integer(out, *kind, number)?);
    }
    match kind.parse() {
        // The types 1 and 2 are digests. In a URI they are written as words, for which the length of the value is
        // checked.
        Ok(kind @ 3..=0xffff) => write_text(Type(kind), value, out),
        _ => Err(UriError::Type),
    }
}

/// Writes a component. Its text may contain escaped bytes.
fn write_text(kind: Type, text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let text = match text.strip_prefix("...") {
        Some(dots) if dots.bytes().all(|byte| byte == b'.') => dots,
        _ if text.is_empty() => return Err(UriError::Empty),
        _ => text,
    };
    let escaped = text.bytes().filter(|byte| *byte == b'%').count();
    let len = text.len().checked_sub(escaped.saturating_mul(2)).ok_or(UriError::Hexadecimal)?;
    tlv::write_head(out, kind, len)?;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let (high, low) = bytes.next().zip(bytes.next()).ok_or(UriError::Hexadecimal)?;
                hexadecimal([high, low])?
            }
            byte => byte,
        };
        out.u8(byte)?;
    }
    Ok(())
}

fn hexadecimal(pair: [u8; 2]) -> Result<u8, UriError> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    let (high, low) = high.zip(low).ok_or(UriError::Hexadecimal)?;
    Ok((high << 4 | low) as u8)
}

/// Returns true for a byte that is written without an escape (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
