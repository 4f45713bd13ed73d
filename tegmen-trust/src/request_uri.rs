//! The path and the query of a request (RFC 7252, sections 5.10.1, 6.4 and 6.5).
//!
//! Policy, handler, observers and log read path and query through [`Path`] and [`Query`], so they agree on the resource
//! that a request names. [`MessageRef::path_is`] compares bytes, and agrees with [`Path`] on every valid path.
//!
//! A path is valid if
//! * each segment is UTF-8 (section 3.2: options of format `string`),
//! * no segment is `.` or `..` (section 5.10.1),
//! * no segment contains a slash: the text of the path would not show where the segment ends,
//! * no segment is empty except the last of several segments: `/a/` and `/a` are different paths. The path `/` has no
//!   segment. A path of one empty segment would be the same path (section 6.5), so it is not valid.
//!
//! A query is valid if each argument is UTF-8. An argument may be empty and may contain `&`.

use std::fmt;
use tegmen::coap::{MessageRef, OptionNumber, Options};

/// The reason why a path or a query is not valid. The request is answered with 4.00.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidUri {
    /// A segment or an argument is not UTF-8.
    NotUtf8,
    /// A segment of the path contains a slash.
    Slash,
    /// A segment is empty and is not the last of several.
    Empty,
    /// A segment is `.` or `..`.
    Dots,
}

impl fmt::Display for InvalidUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "a segment of the path or an argument of the query is not UTF-8",
            Self::Slash => "a segment of the path contains a slash",
            Self::Empty => "a segment of the path is empty and is not the last of several",
            Self::Dots => "a segment of the path is . or ..",
        })
    }
}

impl std::error::Error for InvalidUri {}

/// Reads the path and the query of a request in one pass over its options. Replaces the content of `path` by the
/// path, without a slash in front. In the text of an invalid path, U+FFFD replaces bytes that are not UTF-8.
///
/// # Errors
/// The error of [`Path::of`]. If the path is valid, the error of [`Query::of`].
pub fn read(message: &MessageRef<'_>, path: &mut String) -> Result<(), InvalidUri> {
    path.clear();
    let (mut before, mut valid, mut separator) = (Before::Nothing, Ok(()), "");
    // The options come in the order of their numbers, and Uri-Query has the greater one.
    for (number, value) in message.options().take_while(|(number, _)| number.0 <= OptionNumber::URI_QUERY.0) {
        if number == OptionNumber::URI_PATH {
            path.push_str(separator);
            separator = "/";
            match before.check(value) {
                Ok(segment) => path.push_str(segment),
                Err(error) => {
                    path.push_str(&String::from_utf8_lossy(value));
                    valid = valid.and(Err(error));
                }
            }
        } else if number == OptionNumber::URI_QUERY && std::str::from_utf8(value).is_err() {
            valid = valid.and(Err(InvalidUri::NotUtf8));
        }
    }
    valid
}

/// The kind of the previous segment of the path.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    Empty,
    Text,
}

impl Before {
    /// Checks the next segment of a path, and returns its text.
    fn check<'s>(&mut self, segment: &'s [u8]) -> Result<&'s str, InvalidUri> {
        let next = if segment.is_empty() { Self::Empty } else { Self::Text };
        let before = std::mem::replace(self, next);
        match (before, segment) {
            (Self::Empty, _) => Err(InvalidUri::Empty),
            (_, b"." | b"..") => Err(InvalidUri::Dots),
            (Self::Nothing, b"") => Err(InvalidUri::Empty),
            _ if segment.contains(&b'/') => Err(InvalidUri::Slash),
            _ => std::str::from_utf8(segment).map_err(|_| InvalidUri::NotUtf8),
        }
    }
}

/// The valid path of a request.
#[derive(Clone, Debug)]
pub struct Path<'r> {
    segments: Values<'r>,
}

impl<'r> Path<'r> {
    /// Reads the Uri-Path options of a message.
    ///
    /// # Errors
    /// [`InvalidUri`].
    pub fn of(message: &MessageRef<'r>) -> Result<Self, InvalidUri> {
        let mut before = Before::Nothing;
        for segment in message.values(OptionNumber::URI_PATH) {
            before.check(segment)?;
        }
        Ok(Self { segments: Values::new(message, OptionNumber::URI_PATH) })
    }

    /// Returns the segments in their order; `/` has none.
    pub fn segments(&self) -> impl Iterator<Item = &'r str> + Clone + use<'r> {
        self.segments.clone()
    }

    /// Returns the bytes of the path as text, with a slash before each segment. Without a segment, returns `/`.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + Clone + use<'r> {
        let root = self.segments().next().map_or("/", |_| "");
        root.bytes().chain(self.segments().flat_map(|segment| std::iter::once(b'/').chain(segment.bytes())))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.segments().peekable();
        if segments.peek().is_none() {
            return f.write_str("/");
        }
        segments.try_for_each(|segment| f.write_str("/").and_then(|()| f.write_str(segment)))
    }
}

/// The valid query of a request.
#[derive(Clone, Debug)]
pub struct Query<'r> {
    arguments: Values<'r>,
}

impl<'r> Query<'r> {
    /// Reads the Uri-Query options of a message.
    ///
    /// # Errors
    /// [`InvalidUri::NotUtf8`].
    pub fn of(message: &MessageRef<'r>) -> Result<Self, InvalidUri> {
        let mut arguments = message.values(OptionNumber::URI_QUERY);
        if arguments.any(|argument| std::str::from_utf8(argument).is_err()) {
            return Err(InvalidUri::NotUtf8);
        }
        Ok(Self { arguments: Values::new(message, OptionNumber::URI_QUERY) })
    }

    /// Returns the arguments in their order.
    pub fn arguments(&self) -> impl Iterator<Item = &'r str> + Clone + use<'r> {
        self.arguments.clone()
    }

    /// Returns the value of the first argument `name=value`. The value of an argument `name` without `=` is empty.
    pub fn get(&self, name: &str) -> Option<&'r str> {
        self.arguments().find_map(|argument| {
            let (found, value) = argument.split_once('=').unwrap_or((argument, ""));
            (found == name).then_some(value)
        })
    }
}

/// The segments of a [`Path`], or the arguments of a [`Query`].
#[derive(Clone, Debug)]
struct Values<'r> {
    options: Options<'r>,
    number: OptionNumber,
}

impl<'r> Values<'r> {
    fn new(message: &MessageRef<'r>, number: OptionNumber) -> Self {
        Self { options: message.options(), number }
    }
}

impl<'r> Iterator for Values<'r> {
    type Item = &'r str;

    fn next(&mut self) -> Option<&'r str> {
        let number = self.number;
        // The constructor of the view has checked that these bytes are UTF-8.
        self.options.find(|(found, _)| *found == number).and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

#[cfg(test)]
mod tests;
