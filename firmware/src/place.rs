//! Static memory for values that are too large for the stack.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// A static whose value can be borrowed once, for the rest of the run.
pub struct Place<T> {
    taken: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `fill` hands the value out once, so it is only moved between contexts, never shared by them.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    /// Creates a [`Place`] without a value. The image stores no bytes for it in flash memory, because the bytes of the
    /// value are undefined before [`Self::fill`].
    pub const fn empty() -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Makes the value and stores it. Returns `None` from the second call on.
    #[inline]
    pub fn fill(&'static self, make: impl FnOnce() -> T) -> Option<&'static mut T> {
        if is_taken(&self.taken) {
            return None;
        }
        // SAFETY: `taken` was false, so no other borrow of the value exists or will.
        Some(unsafe { &mut *self.value.get() }.write(make()))
    }
}

/// Marks a value as taken. Returns true if it was taken before.
#[inline(never)]
fn is_taken(taken: &AtomicBool) -> bool {
    taken.swap(true, Ordering::Relaxed)
}

/// A static whose value can be borrowed once, for the rest of the run. In contrast to [`Place`], it has a value from
/// the start. A value whose bytes are all zero needs no flash memory and is never on the stack.
pub struct Kept<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `take` hands the value out once, so it is only moved between contexts, never shared by them.
unsafe impl<T: Send> Sync for Kept<T> {}

impl<T> Kept<T> {
    /// Creates a [`Kept`] with this value.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns the value; `None` from the second call on.
    pub fn take(&'static self) -> Option<&'static mut T> {
        if is_taken(&self.taken) {
            return None;
        }
        // SAFETY: `taken` was false, so no other borrow of the value exists or will.
        Some(unsafe { &mut *self.value.get() })
    }
}

/// A value of the only thread of an image. It may contain references that no other thread may share.
pub struct OfMain<T>(pub T);

// SAFETY: an image has one thread, and its interrupt handlers touch nothing but their own statics.
unsafe impl<T> Send for OfMain<T> {}
