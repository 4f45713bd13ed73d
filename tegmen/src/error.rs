//! The texts of the errors. Each text names the cause of the error. If the owner of the endpoint or node can remove the
//! cause, the text also names the next step.
//!
//! If the program of an image prints no errors, the image does not contain these texts.

use crate::axiom::{BadAssociation, SealRefused};
use crate::dtls::Fatal;
use crate::dtls::record::SealError;
use crate::endpoint::Misuse;
use crate::endpoint::peers::TableFull;
use crate::node::{SendError, TransferError};
use core::error::Error;
use core::fmt::{self, Display, Formatter};

/// Implements `Display` and `Error` for a type, with one text for each value.
macro_rules! texts {
    ($($error:ty { $($value:pat => $text:expr,)+ })+) => {$(
        impl Display for $error {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $text,)+ })
            }
        }

        impl Error for $error {}
    )+};
}

texts! {
    TransferError {
        Self::FirstBlock => "the first block of the response does not have the length in its Block2 option",
        Self::NoBlock2 => "the response to a request for a block has no Block2 option",
        Self::WrongBlock => "a block is not the one that was asked for",
        Self::Changed => "the entity tags of the blocks differ: the representation changed; ask for it again",
        Self::Refused(_) => "the server answered the request for a block with an error",
        Self::TooLong => "the response is longer than its memory",
        Self::TooManyBlocks { .. } => "the body needs more than 2^20 blocks; use larger ones",
        Self::Unanswered => "the request was not sent, was rejected, or has no response that can be accepted",
    }
    SealError {
        Self::Full => "the record is longer than its buffer or than 2^14 bytes",
        Self::KeyExhausted => "the key may seal no more records; begin a new session",
    }
    Misuse {
        Self::NotEstablished => "there is no such peer, or its handshake is not over",
        Self::Full => "the message is longer than its buffer",
        Self::TooLong => "the message is longer than a record of this session may be",
        Self::KeyExhausted => "the key may seal no more records; begin a new session",
    }
    BadAssociation {
        Self::Suite => "the crypto provider does not have the suite of the group, or its keys have another length",
        Self::Epoch => "the epoch of the association is not valid, or not newer than the last one; ask the controller",
        Self::Admission => "the keys are of another admission of the member",
    }
    SealRefused {
        Self::NotASender => "the member has no SenderID; ask the controller for one",
        Self::LeaseSpent => "the lease of record numbers is used up; keep a new reservation and extend by it",
        Self::Exhausted => "the keys of the epoch may seal no more records; ask the controller for the next epoch",
        Self::Full => "the record is longer than its buffer or than 2^14 bytes",
        Self::Unsigned => "the private key of the member did not sign, or the request is forgotten; check the key",
    }
    TableFull { Self => "the table is full, and no peer in it may be removed", }
}

impl Display for SendError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => {
                f.write_str("NSTART or PROBING_RATE allows no further message yet; wait for an exchange to end")
            }
            Self::TooLong => f.write_str("the message is longer than what can be kept for retransmission"),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Oscore(error) => error.fmt(f),
            Self::Group(refused) => refused.fmt(f),
        }
    }
}

impl Error for SendError {}

impl Display for Fatal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alert(alert) if alert.name() == "unassigned" => return alert.fmt(f),
            Self::Alert(alert) => return write!(f, "alert {alert}"),
            Self::UnexpectedMessage(kind) => {
                return write!(f, "it sent a handshake message out of order (type {})", kind.0);
            }
            Self::Decode => "it sent a handshake message that is not well formed",
            Self::IllegalParameter => "it sent a value out of range, or chose what was not offered",
            Self::UnsupportedExtension => "it answered an extension that was not sent",
            Self::NoCommonSuite => "the client offers no cipher suite that is accepted here",
            Self::NoCommonCertificateType => {
                "the client and this server have no type of certificate in common: X.509, or raw public keys"
            }
            Self::Version => "the client does not speak DTLS 1.2",
            Self::TooLarge => "it sent a handshake message that is longer than the buffer for it",
            Self::RecordOverflow => "it sent a record longer than was agreed on (record_size_limit)",
            Self::BadFinished => "its Finished does not match the handshake",
            Self::BadSignature => "it does not have the private key of what it showed",
            Self::Refused(_) => "its certificate or raw public key is not trusted",
            Self::NoCertificate => "the client showed no certificate: give it one of an authority that is trusted here",
            Self::NoExtendedMasterSecret => "it wants to resume a session without extended master secret",
            Self::WrongKeyOrIdentity { identity_known: true } => {
                "the identity is known, its key is another one; compare the key on both sides"
            }
            Self::WrongKeyOrIdentity { identity_known: false } => {
                "no such identity in the credentials; add it, or correct the client"
            }
            Self::NoCredentials => "no usable credentials for this peer",
            Self::TimedOut { .. } => "the peer fell silent",
            Self::Closed => "close_notify",
            Self::KeyExhausted => "a key reached its limit; a new handshake gives new ones",
            Self::Idle => "idle timeout",
            Self::Renegotiation => "its hello belongs to a renegotiation, and sessions are not renegotiated",
        })
    }
}

impl Error for Fatal {}
