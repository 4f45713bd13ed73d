//! The errors of packets.

use crate::types::Type;
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::{Full, Truncated};
use tegmen_base::crypto::Unsupported;

/// The reason why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// An element is longer than its container.
    Truncated,
    /// Bytes follow the packet.
    Trailing,
    /// A type or a length is not encoded in as few bytes as possible.
    NotShortest,
    /// The type of an element is 0 or above 4,294,967,295, or the type of a component of a name is above 65,535.
    Type,
    /// A critical element is unknown, repeated or out of order.
    Critical(Type),
    /// An element of this type is missing, or an element of another type is in its place.
    Missing(Type),
    /// The value of an element has a length that its type does not allow.
    Length(Type),
    /// The name of an Interest has no component, or a wrong number of digests of parameters: an Interest with
    /// parameters must have one digest, and an Interest without parameters must have none.
    Name,
    /// A compressed packet has a reserved bit, an unknown context or HopID, or a length that is out of range.
    Compression,
    /// The packet does not fit the output.
    TooLong,
    /// A time of a ValidityPeriod does not have the form `yyyymmddThhmmss`, or is before 1970.
    Time,
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("an element is longer than its container"),
            Self::Trailing => f.write_str("bytes follow the packet"),
            Self::NotShortest => f.write_str("a type or a length is not encoded in as few bytes as possible"),
            Self::Type => f.write_str("a type is out of range"),
            Self::Critical(kind) => {
                write!(f, "the critical element of type {} is unknown, repeated or out of order", kind.0)
            }
            Self::Missing(kind) => write!(f, "the element of type {} is missing", kind.0),
            Self::Length(kind) => write!(f, "the element of type {} has a wrong length", kind.0),
            Self::Name => f.write_str("the name of an Interest is empty, or does not fit its parameters"),
            Self::Compression => {
                f.write_str("the compressed packet has a reserved bit, or an unknown context or HopID")
            }
            Self::TooLong => f.write_str("the packet does not fit the output"),
            Self::Time => f.write_str("a time of the validity is not written as yyyymmddThhmmss, or is before 1970"),
        }
    }
}

impl core::error::Error for Error {}

impl From<Truncated> for Error {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        Self::TooLong
    }
}

/// The reason why a packet is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// The packet does not fit the output.
    Full,
    /// The provider of ciphers does not have the kind of signature, or the key is not valid.
    Unsupported,
    /// The name of an Interest with parameters already contains their digest, or the name of an Interest is empty.
    Name,
}

impl Display for WriteError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the packet does not fit the output",
            Self::Unsupported => "the provider of ciphers does not support the signature or the key",
            Self::Name => "the name is empty, or has the digest of parameters already",
        })
    }
}

impl core::error::Error for WriteError {}

impl From<Full> for WriteError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<Unsupported> for WriteError {
    fn from(_: Unsupported) -> Self {
        Self::Unsupported
    }
}
