//! Secrets that are wiped on drop, cannot be printed or cloned, and are compared in constant time. Only this file
//! wipes and compares secrets.

use core::fmt;
use zeroize::optimization_barrier;

/// `N` secret bytes.
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Makes a secret of zeros, into which [`Self::expose_mut`] lets the caller write.
    pub const fn zeroed() -> Self {
        Self([0; N])
    }

    /// Makes a secret of these bytes. The caller must wipe its own copy.
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the cipher that needs them.
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// Returns the bytes, to be written.
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

/// Compares two tags, cookies or verify data. The time does not depend on the position of a difference.
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

/// Overwrites bytes with zeros, in a way that the compiler does not remove.
#[inline(never)]
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    optimization_barrier(bytes);
}
