//! SHA-256 of bytes that are in memory.

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Returns the SHA-256 digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> Digest {
    sha256_of(&[bytes])
}

/// Returns the SHA-256 digest of the concatenated `parts`.
pub fn sha256_of(parts: &[&[u8]]) -> Digest {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}
