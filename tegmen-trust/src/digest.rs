//! SHA-256 of bytes that are in memory.

use aws_lc_rs::digest;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Returns the SHA-256 digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> Digest {
    // Unlike a context, this needs no memory from the heap.
    own(&digest::digest(&digest::SHA256, bytes))
}

/// Returns the SHA-256 digest of the concatenated `parts`.
pub fn sha256_of(parts: &[&[u8]]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    own(&context.finish())
}

/// Copies a digest of the library, which has 32 bytes.
fn own(digest: &digest::Digest) -> Digest {
    let mut own = [0; 32];
    own.copy_from_slice(digest.as_ref());
    own
}

#[cfg(test)]
mod tests;
