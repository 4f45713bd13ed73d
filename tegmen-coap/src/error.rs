//! The texts of the errors of messages and of the message layer.

use crate::message::BuildError;
use crate::storage::Busy;
use core::error::Error;
use core::fmt::{self, Display, Formatter};

impl Display for BuildError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the message is longer than its buffer",
            Self::Order => "an option has a lower number than the one before, or comes behind the payload",
        })
    }
}

impl Error for BuildError {}

impl Display for Busy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outstanding => "all space for exchanges is taken; wait for one to end",
            Self::TooLong => "the message is longer than what can be kept for retransmission",
        })
    }
}

impl Error for Busy {}
