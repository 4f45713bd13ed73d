//! Firmware images for all members of a group: the messages, and the state of the end that sends.
//!
//! **This is an extension of ours.** RFC 7959, section 2.8, leaves blocks of a request to a group for further study. The sender sends
//! each block once to the group: a PUT that is not confirmable, with Block1, No-Response, and the argument [`ImageId`] in its query.
//! Then it asks the group with a GET that has the same argument. Each member responds with an [`ImageReport`], and the sender sends
//! again the blocks that a member lacks. [`ImageTransfer`] is the state of the sender, without sockets and clock;
//! [`crate::client::ask_for_image`] and [`crate::client::send_image`] do its work on the network. The other end is
//! [`crate::resources::Image`].

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

/// Bytes of a unit. Missing parts of an image are counted in units. Each block has the size of one unit or several.
pub const UNIT: u32 = 64;

/// The key of the argument of the query that names an image.
const KEY: &str = "image=";

/// The name of an image: the first 8 bytes of its SHA-256 digest, and its size in bytes. As text: `3f9a12bc44d0e1f2:300000`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageId {
    /// The first bytes of the SHA-256 digest.
    pub digest: [u8; 8],
    /// Bytes of the image.
    pub size: u32,
}

impl ImageId {
    /// Names the image with this digest and size.
    pub const fn new(digest: &Digest, size: u32) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *digest;
        Self { digest: [a, b, c, d, e, f, g, h], size }
    }

    /// Returns the units of the image. The last one may be shorter than the others.
    pub const fn units(self) -> u32 {
        self.size.div_ceil(UNIT)
    }

    /// True if an image with this digest has the name, given that it has the size.
    pub fn is_of(self, digest: &Digest) -> bool {
        digest.starts_with(&self.digest)
    }

    /// Returns the argument of a query that names the image.
    pub fn argument(self) -> String {
        format!("{KEY}{self}")
    }

    /// Reads the argument of a request; `None` if it has none, or one that names no image.
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

/// The text names no image.
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
