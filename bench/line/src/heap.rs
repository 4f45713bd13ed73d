//! Measures the heap memory in use, as the allocator of the C library counts it. C stacks and Rust stacks use this
//! allocator.
//!
//! Memory in the allocator's cache for each thread counts as used, so the driver disables this cache:
//! `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`.

/// Runs `step`. If `counted` is true, adds the number of bytes that `step` has left allocated to `total`.
pub(crate) fn growth<T>(counted: bool, total: &mut i64, step: impl FnOnce() -> T) -> T {
    if !counted {
        return step();
    }
    let before = in_use();
    let result = step();
    *total += in_use() - before;
    result
}

/// Returns the number of bytes that the allocator has currently allocated.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the allocator's own statistics have no safe wrapper")]
pub fn in_use() -> i64 {
    // SAFETY: mallinfo2 takes no argument, locks the allocator itself and returns plain numbers by value.
    let info = unsafe { libc::mallinfo2() };
    i64::try_from(info.uordblks + info.hblkhd).unwrap_or(i64::MAX)
}

/// Returns 0, because other C libraries do not report the number.
#[cfg(not(target_env = "gnu"))]
pub fn in_use() -> i64 {
    0
}
