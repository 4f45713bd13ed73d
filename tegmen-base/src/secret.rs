//! Secrets: wiped on drop, not printable, not clonable, compared in constant time. The only file that wipes and compares.

use core::fmt;
use zeroize::optimization_barrier;

/// `N` secret bytes.
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// All bytes zero: a place to write a secret into with [`Self::expose_mut`].
    pub const fn zeroed() -> Self {
        Self([0; N])
    }

    /// Takes the bytes in; the caller wipes its own copy.
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the cipher that needs them.
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// The bytes, to be written.
    pub const fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> Secret<N> {
    /// Overwrites the bytes with zeros.
    pub fn wipe(&mut self) {
        wipe(&mut self.0);
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Compares two tags, cookies or verify data in a time that does not depend on the place where they differ.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut difference = 0;
    // The compiler must not use the difference before the last byte is compared.
    for (a, b) in a.iter().zip(b) {
        difference |= a ^ b;
        optimization_barrier(&difference);
    }
    difference == 0
}

/// Overwrites bytes that are not needed any more, in a way the compiler keeps.
#[inline(never)]
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    optimization_barrier(bytes);
}
