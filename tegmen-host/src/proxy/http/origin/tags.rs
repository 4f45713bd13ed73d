//! Entity tags of HTTP as those of CoAP, which have 8 bytes at most.

use sha2::{Digest as _, Sha256};
use std::collections::HashMap;

/// Entity tags that are remembered.
const MOST: usize = 4096;
/// Maximum number of bytes of an entity tag that is remembered.
const LONGEST: usize = 256;

/// An entity tag of CoAP (RFC 7252, section 5.10.6).
pub(super) type Tag = [u8; 8];

/// Entity tags of HTTP by those of CoAP, which are their digests. A tag that is not there any more costs a response that could have been 304.
#[derive(Default)]
pub(super) struct Tags(HashMap<Tag, String>);

impl Tags {
    /// Returns the tag of CoAP, and remembers that of HTTP; `None` if that is too long.
    pub(super) fn remember(&mut self, text: &str) -> Option<Tag> {
        if text.is_empty() || text.len() > LONGEST {
            return None;
        }
        let tag = *Sha256::digest(text).first_chunk()?;
        if self.0.len() >= MOST && !self.0.contains_key(&tag) {
            self.0.clear();
        }
        self.0.insert(tag, text.to_owned());
        Some(tag)
    }

    /// Returns the tag of HTTP.
    pub(super) fn find(&self, tag: &[u8]) -> Option<&str> {
        self.0.get(tag).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
