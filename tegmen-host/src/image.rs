//! Firmware images for all members of a group: the messages, and the state of the sender.
//!
//! **This is an extension by Tegmen.** RFC 7959, section 2.8, does not define how the payload of a request to a group
//! is divided into blocks. The sender sends each block once to the group: a non-confirmable PUT with Block1,
//! No-Response, and the argument [`ImageId`] in its query. Then it sends a GET with the same argument to the group.
//! Each member responds with an [`ImageReport`], and the sender sends the missing blocks again. [`ImageTransfer`] is
//! the state of the sender, without sockets and clock. [`crate::client::ask_for_image`] and
//! [`crate::client::send_image`] send the requests of the sender. [`crate::resources::Image`] is the receiver.

mod report;
mod transfer;
mod units;

pub use report::ImageReport;
pub use transfer::{Advance, ImageTransfer, NotAnImage};
pub(crate) use units::{Units, units_of};

use crate::digest::Digest;
use crate::hex::{from_hex, to_hex};
use std::fmt;
use std::str::FromStr;
use tegmen::coap::{MessageRef, OptionNumber};

/// The size of a unit in bytes. Reports count the missing parts of an image in units. The size of a block is a multiple
/// of this size.
pub const UNIT: u32 = 64;

/// The key of the query argument that names an image.
const KEY: &str = "image=";

/// The name of an image: the first 8 bytes of its SHA-256 digest, and its size in bytes. Its text form is, for example,
/// `3f9a12bc44d0e1f2:300000`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageId {
    /// The first bytes of the SHA-256 digest.
    pub digest: [u8; 8],
    /// The size of the image in bytes.
    pub size: u32,
}

impl ImageId {
    /// Returns the name of an image with this digest and size.
    pub const fn new(digest: &Digest, size: u32) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *digest;
        Self { digest: [a, b, c, d, e, f, g, h], size }
    }

    /// Returns the number of units of the image. The last unit may be shorter than the others.
    pub const fn units(self) -> u32 {
        self.size.div_ceil(UNIT)
    }

    /// True if this is the name of an image with this digest. The size is not compared.
    pub fn is_of(self, digest: &Digest) -> bool {
        digest.starts_with(&self.digest)
    }

    /// Returns the query argument that names the image.
    pub fn argument(self) -> String {
        format!("{KEY}{self}")
    }

    /// Reads the name of the image from the query argument `image=` of a request. Returns `None` if the request does
    /// not have this argument, or if the value of the argument is not a name of an image.
    pub fn in_query(message: &MessageRef<'_>) -> Option<Self> {
        let arguments = message.values(OptionNumber::URI_QUERY).filter_map(|value| std::str::from_utf8(value).ok());
        let text = arguments.filter_map(|argument| argument.strip_prefix(KEY)).next()?;
        text.parse().ok()
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", to_hex(&self.digest), self.size)
    }
}

/// The error that a text is not the name of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an image is named by 16 hexadecimal digits, a colon and its size in bytes, as 3f9a12bc44d0e1f2:300000")]
pub struct ImageIdError;

impl FromStr for ImageId {
    type Err = ImageIdError;

    fn from_str(text: &str) -> Result<Self, ImageIdError> {
        let (digest, size) = text.split_once(':').ok_or(ImageIdError)?;
        let digest = from_hex(digest).and_then(|digest| digest.try_into().ok()).ok_or(ImageIdError)?;
        // Digits alone: `parse` would also take a sign.
        let is_number = size.bytes().all(|byte| byte.is_ascii_digit());
        let size = size.parse().ok().filter(|size| is_number && *size > 0).ok_or(ImageIdError)?;
        Ok(Self { digest, size })
    }
}

#[cfg(test)]
mod tests;
