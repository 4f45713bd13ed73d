//! The texts of the errors. Each text names the cause and, if a user of the program can correct the error, the next
//! step.
//!
//! An image that prints no error does not contain these texts.

use crate::error::ProtectError;
use crate::group::BadGroup;
use crate::option::BadOption;
use crate::unprotect::UnprotectError;
use core::error::Error;
use core::fmt::{self, Display, Formatter};

impl Display for BadOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the OSCORE option is not valid")
    }
}

impl Error for BadOption {}

impl Display for ProtectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseSpent => "the lease of sender sequence numbers is used up; keep a new end and extend the lease",
            Self::Exhausted => "all sender sequence numbers are used up; derive a new OSCORE context",
            Self::Full => "the message is longer than its buffer",
            Self::Malformed => "the frame holds no message, or one that is protected already",
            Self::Unsupported => "the crypto provider does not have the algorithm",
        })
    }
}

impl Error for ProtectError {}

impl Display for UnprotectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unprotected => "the message is not protected",
            Self::BadOption => "the OSCORE option is not valid, or lacks what a request must have",
            Self::UnknownContext => {
                "the message names an OSCORE context that is unknown; compare the IDs of both sides"
            }
            Self::Replayed => "the number of the message was used before, or is too old",
            Self::NotAuthentic => "the message does not authenticate; compare the keys of both sides",
            Self::Malformed => "the message is authentic, but its content is not valid",
            Self::UnknownMember => {
                "the sender is no known member of the group; ask the Group Manager for its credential"
            }
            Self::TooManyMembers => {
                "more members of the group answered than there are places for; give the request more places"
            }
        })
    }
}

impl Error for UnprotectError {}

impl Display for BadGroup {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IdTooLong { max } => {
                return write!(f, "the ID is longer than the algorithms of the group allow, which is {max} bytes");
            }
            Self::GidTooLong => "the Group Identifier is longer than 16 bytes",
            Self::Algorithms => "the algorithms of the group allow no mode, or differ in the curve of their keys",
            Self::Unsupported => "the crypto provider does not have an algorithm of the group",
            Self::Credential => "the credential is no CWT Claims Set with a key on the curve of the group",
            Self::InvalidKey => {
                "the public key in the credential is not valid; ask the Group Manager for the credential again"
            }
            Self::CredentialTooLong => "the credential is longer than the context has space for; give it more bytes",
            Self::SameIds => "the other member has the ID of this one; ask the Group Manager for the IDs again",
        })
    }
}

impl Error for BadGroup {}
