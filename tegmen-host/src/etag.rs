//! Entity tags of representations.

use std::hash::{DefaultHasher, Hasher as _};

/// Returns the entity tag (RFC 7252, section 5.10.6) of a representation. A different build of the server may compute a
/// different tag for the same representation. Clients then receive the representation once more.
pub(crate) fn etag(representation: &[u8]) -> [u8; 4] {
    let mut hasher = DefaultHasher::new();
    hasher.write(representation);
    (hasher.finish() as u32).to_be_bytes()
}
