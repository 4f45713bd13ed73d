//! Heap in use by the count of the C library's allocator, which serves C stacks and Rust stacks.
//!
//! Memory in its cache for each thread counts as used, so the driver turns the cache off:
//! `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`.

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

/// Returns 0: other C libraries do not report it.
#[cfg(not(target_env = "gnu"))]
pub fn in_use() -> i64 {
    0
}
