//! A place for what is too large for the stack.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A static that can be borrowed for ever, once.
pub struct Place<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `take` hands the value out once, so it is only moved between contexts, never shared by them.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    /// A place that holds `value`.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, or `None` from the second call on.
    #[inline]
    pub fn take(&'static self) -> Option<&'static mut T> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: `taken` was false, so no other borrow of the value exists or will.
        Some(unsafe { &mut *self.value.get() })
    }
}
