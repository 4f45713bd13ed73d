//! Memory-mapped registers of the chip.

/// A 32-bit register at a fixed address.
#[derive(Clone, Copy)]
pub(crate) struct Register(usize);

impl Register {
    /// # Safety
    /// `address` must be the address of a 32-bit device register of the LM3S6965. A read or a write of this register
    /// must not access memory.
    pub(crate) const unsafe fn at(address: usize) -> Self {
        Self(address)
    }

    #[inline(always)]
    pub(crate) fn read(self) -> u32 {
        // SAFETY: `at` was promised a device register.
        unsafe { core::ptr::with_exposed_provenance::<u32>(self.0).read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn write(self, value: u32) {
        // SAFETY: `at` was promised a device register.
        unsafe { core::ptr::with_exposed_provenance_mut::<u32>(self.0).write_volatile(value) }
    }

    /// Reads the register, sets the bits of `bits`, and writes the result.
    #[inline(always)]
    pub(crate) fn set(self, bits: u32) {
        self.write(self.read() | bits);
    }
}
