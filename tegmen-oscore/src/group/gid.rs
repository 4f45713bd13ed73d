//! Group Identifiers (RFC 10021, section 2.1.3).

use crate::naming::MAX_ID_CONTEXT;

/// A Group Identifier, which is the ID Context of a group: up to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gid {
    bytes: [u8; MAX_ID_CONTEXT],
    len: u8,
}

impl Gid {
    /// Makes a Group Identifier. Returns `None` if `value` is too long.
    pub(super) fn new(value: &[u8]) -> Option<Self> {
        let mut gid = Self { bytes: [0; MAX_ID_CONTEXT], len: value.len() as u8 };
        gid.bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(gid)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}
