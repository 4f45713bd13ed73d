//! Maps HTTP entity tags to CoAP entity tags, which have at most 8 bytes.

use sha2::{Digest as _, Sha256};
use std::collections::HashMap;

/// Maximum number of stored entity tags.
const MOST: usize = 4096;
/// Maximum length in bytes of a stored entity tag.
const LONGEST: usize = 256;

/// A CoAP entity tag (RFC 7252, section 5.10.6).
pub(super) type Tag = [u8; 8];

/// HTTP entity tags by their CoAP entity tags, which are digests of the HTTP tags. If the entity tag in a request is no
/// longer stored, the proxy cannot send it to the HTTP server. The server then sends a full response in place of 304.
#[derive(Default)]
pub(super) struct Tags(HashMap<Tag, String>);

impl Tags {
    /// Returns the CoAP tag of an HTTP tag, and stores both. Returns `None` if the HTTP tag is empty or too long.
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

    /// Returns the HTTP tag of a CoAP tag.
    pub(super) fn find(&self, tag: &[u8]) -> Option<&str> {
        self.0.get(tag).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
