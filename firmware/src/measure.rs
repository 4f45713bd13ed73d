//! The parts of an image that measures its code: marks around the counted code, notes that describe the marks, and an
//! exit code.
//!
//! Each mark costs one store instruction. The notes are in a section of the ELF file that is never loaded, so they cost
//! nothing.

use core::sync::atomic::{Ordering, compiler_fence};

/// Stores the mark at which the measured region `id` begins. `id` must be below [`REGIONS`].
#[inline(always)]
pub fn mark_begin(id: u32) {
    Region::new(id).begin();
}

/// Stores the mark at which the measured region `id` ends.
#[inline(always)]
pub fn mark_end(id: u32) {
    Region::new(id).end();
}

/// Runs `work` between the two marks of the measured region `id`, so that the instructions of `work` are counted in
/// this region.
#[inline(always)]
pub fn measured<T>(id: u32, work: impl FnOnce() -> T) -> T {
    Region::new(id).measured(work)
}

/// A measured region: the plugin `qemu/region.c` counts the instructions between the two marks of the region. A program
/// can choose the region at run time. The value contains the address of the first mark, so such a region costs no more
/// instructions than a region that is known at compile time.
#[derive(Clone, Copy)]
pub struct Region(usize);

impl Region {
    /// Returns the region `id`, which must be below [`REGIONS`].
    #[inline(always)]
    pub const fn new(id: u32) -> Self {
        Self(MARKS + 8 * (id % REGIONS) as usize)
    }

    /// Returns the number of the region.
    pub const fn id(self) -> u32 {
        ((self.0 - MARKS) / 8) as u32
    }

    /// Runs `work` between the two marks of this region, so that the instructions of `work` are counted in this region.
    #[inline(always)]
    pub fn measured<T>(self, work: impl FnOnce() -> T) -> T {
        self.begin();
        let result = work();
        self.end();
        result
    }

    #[inline(always)]
    fn begin(self) {
        mark(self.0);
    }

    #[inline(always)]
    fn end(self) {
        mark(self.0 + 4);
    }
}

/// Writes a mark at the address `word`. The written value has no meaning.
#[inline(always)]
fn mark(word: usize) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: link.x keeps these bytes of RAM free for the marks, and only `Region::new` computes their addresses.
    unsafe { core::ptr::with_exposed_provenance_mut::<usize>(word).write_volatile(word) };
    compiler_fence(Ordering::SeqCst);
}

/// Measures the stack of the whole `work`, including the code before and between its measured operations.
///
/// Take large values from a [`crate::place::Place`], so that the measured stack does not include these values.
#[inline(always)]
pub fn stack_of<T>(work: impl FnOnce() -> T) -> T {
    measured(REGIONS - 1, work)
}

/// Ends the run in QEMU. On a board without a debugger this causes a fault.
pub fn exit(succeeded: bool) -> ! {
    const EXIT_EXTENDED: usize = 0x20;
    const APPLICATION_EXIT: usize = 0x20026;
    let reason = [APPLICATION_EXIT, usize::from(!succeeded)];
    loop {
        // SAFETY: the ARM semihosting call reads the two words and does not return.
        unsafe {
            core::arch::asm!("bkpt #0xab", inout("r0") EXIT_EXTENDED => _, in("r1") &raw const reason, options(nostack));
        }
    }
}

/// A note in an image for the tool that measures the image. An image has an array of notes as a `#[used]` static in
/// `.footprint`.
#[repr(C)]
pub struct Note {
    kind: u32,
    value: u32,
    name: [u8; Self::NAME_LEN],
}

impl Note {
    /// Maximum length of a name, in bytes.
    pub const NAME_LEN: usize = 24;

    /// Makes a note that the instructions of the operation `name` are counted in the measured region `id`.
    pub const fn operation(id: u32, name: &str) -> Self {
        assert!(id < REGIONS - 1, "the last one is that of stack_of");
        Self { kind: 1, value: id, name: padded(name) }
    }

    /// Makes a note that a value of the type `name` has this number of bytes.
    pub const fn size(name: &str, bytes: usize) -> Self {
        Self { kind: 2, value: bytes as u32, name: padded(name) }
    }
}

/// Returns the bytes of `name`, followed by zeros. A longer name does not compile.
const fn padded(name: &str) -> [u8; Note::NAME_LEN] {
    let mut out = [0; Note::NAME_LEN];
    let mut i = 0;
    while i < name.len() {
        out[i] = name.as_bytes()[i];
        i += 1;
    }
    out
}

/// Number of measured regions that an image can have. The last region is the region of [`stack_of`].
pub const REGIONS: u32 = 32;
/// The address of the words to which a program writes the marks of the measured regions: two words for each region.
/// link.x contains the same address (`_marks`).
const MARKS: usize = 0x2000_ff00;
