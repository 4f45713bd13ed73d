//! Heap in use, as the C library's allocator sees it: C stacks and Rust stacks both end there.
//!
//! Its per-thread cache counts as used until it is off: the driver sets `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`.

/// Runs `step` and adds the bytes it left allocated to `total`, if they are to be counted.
pub(crate) fn growth<T>(counted: bool, total: &mut i64, step: impl FnOnce() -> T) -> T {
    if !counted {
        return step();
    }
    let before = in_use();
    let result = step();
    *total += in_use() - before;
    result
}

/// Bytes that the allocator has given out.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the allocator's own statistics have no safe wrapper")]
pub fn in_use() -> i64 {
    // SAFETY: mallinfo2 takes no argument, locks the allocator itself and returns plain numbers by value.
    let info = unsafe { libc::mallinfo2() };
    i64::try_from(info.uordblks + info.hblkhd).unwrap_or(i64::MAX)
}

/// Not known here.
#[cfg(not(target_env = "gnu"))]
pub fn in_use() -> i64 {
    0
}
