//! The texts of the errors of this crate.
//!
//! The firmware image of a program that prints no error does not contain these texts.

use crate::fragment::FragmentError;
use crate::frame::FrameError;
use crate::ip::ParseError;
use crate::iphc::HeaderError;
use crate::slip::NotControl;
use core::error::Error;
use core::fmt::{self, Display, Formatter};

/// Implements `Display` and `Error` for each error type in the list. Each value of the type has its own text.
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
    FrameError {
        Self::Truncated => "the frame ends before its header ends",
        Self::TooLong => "the frame is longer than IEEE 802.15.4 allows",
        Self::BadChecksum => "the checksum of the frame is wrong",
        Self::Unsupported => "the frame is a beacon, a command, secured, or of a later version",
    }
    FragmentError {
        Self::Truncated => "the fragment ends before its headers end",
        Self::Dispatch(_) => "the fragment begins with an unknown dispatch",
        Self::Headers(_) => "the compressed headers of the packet are refused",
        Self::TooLong => "the packet is longer than its buffer",
        Self::Contradicts => "the fragment overlaps other fragments of its packet, or exceeds the packet",
    }
    HeaderError {
        Self::Truncated => "the compressed headers end before they are whole",
        Self::Unsupported => "a dispatch, a reserved mode or a next header is unknown",
        Self::UnknownContext(_) => "the compressed headers name a context that this node does not have",
        Self::NoLinkAddress => "an address was left out, and the frame has none either",
        Self::WrongLength => "the packet cannot have the length that was announced",
        Self::TooLong => "the packet is longer than its buffer",
        Self::NoChecksum => "the sender left out the UDP checksum",
    }
    ParseError {
        Self::NotIpv6 => "the packet is not IPv6",
        Self::Truncated => "the packet ends before its headers end",
        Self::ExtensionHeader(_) => "the packet has an extension header, and none is supported",
        Self::NotUdp(_) => "the packet carries another protocol than UDP",
        Self::MulticastSource => "the source address of the packet is a multicast address",
        Self::BadChecksum => "the UDP checksum is wrong or missing",
    }
    NotControl { Self => "the frame is not a control frame that is known", }
}
