//! The start of an image: the vector table, the reset, and the panic handler. The module also measures the stack, and
//! keeps the memory functions that the compiler calls in every image.

use crate::register::Register;
use core::panic::PanicInfo;

unsafe extern "C" {
    fn Reset();
    fn SysTick();
    fn UART0();
    /// The first byte past the stack (link.x).
    static _stack_top: u32;
    /// The lowest byte of the stack (link.x).
    static _stack_limit: u32;
}

// Fills .data and .bss, paints the stack and calls the image's `main`, which does not return.
core::arch::global_asm!(
    ".section .text.Reset, \"ax\", %progbits",
    ".global Reset",
    ".thumb_func",
    "Reset:",
    "   ldr  r0, =_data_start",
    "   ldr  r1, =_data_end",
    "   ldr  r2, =_data_load",
    "1: cmp  r0, r1",
    "   bhs  2f",
    "   ldr  r3, [r2], #4",
    "   str  r3, [r0], #4",
    "   b    1b",
    "2: ldr  r0, =_bss_start",
    "   ldr  r1, =_bss_end",
    "   movs r3, #0",
    "3: cmp  r0, r1",
    "   bhs  4f",
    "   str  r3, [r0], #4",
    "   b    3b",
    "4: ldr  r0, =_stack_limit",
    "   ldr  r3, ={paint}",
    "5: cmp  r0, sp",
    "   bhs  6f",
    "   str  r3, [r0], #4",
    "   b    5b",
    "6: bl   main",
    "   udf  #0",
    paint = const PAINT,
);

/// A word of the vector table.
#[repr(C)]
union Vector {
    handler: unsafe extern "C" fn(),
    stack: *const u32,
    reserved: usize,
}

// SAFETY: the table is only read, by the processor.
unsafe impl Sync for Vector {}

/// The vector table: the vectors of ARMv7-M (section B1.5.2), and the vectors of the chip's interrupts 0 to 5.
/// Interrupt 5 is that of UART0.
#[used]
#[unsafe(link_section = ".vectors")]
static VECTORS: [Vector; 22] = {
    let mut table = [const { Vector { handler: fault } }; 22];
    table[0] = Vector { stack: &raw const _stack_top };
    table[1] = Vector { handler: Reset };
    table[7] = Vector { reserved: 0 };
    table[8] = Vector { reserved: 0 };
    table[9] = Vector { reserved: 0 };
    table[10] = Vector { reserved: 0 };
    table[13] = Vector { reserved: 0 };
    table[15] = Vector { handler: SysTick };
    table[16 + 5] = Vector { handler: UART0 };
    table
};

/// Handles a fault, or an unexpected interrupt.
extern "C" fn fault() {
    restart()
}

/// Handles a panic. The linker adds this function only if some code of the image can panic. The tool `footprint` counts
/// the places in the code that can panic.
#[panic_handler]
#[inline(never)]
fn panic(_info: &PanicInfo<'_>) -> ! {
    restart()
}

/// Restarts the image, as a mote in the field does after a fault. QEMU's option `-no-reboot` turns this into an exit.
pub fn restart() -> ! {
    // SAFETY: AIRCR of the ARMv7-M system control space.
    const RESET_CONTROL: Register = unsafe { Register::at(0xe000_ed0c) };
    RESET_CONTROL.write(0x05fa_0004);
    loop {}
}

/// Returns the maximum number of bytes of stack in use since the reset. The reset fills the stack with the word
/// `PAINT`, so the stack was used down to the lowest word with another value.
pub fn stack_used() -> usize {
    let (limit, top) = (&raw const _stack_limit, &raw const _stack_top);
    let mut lowest = limit;
    // SAFETY: link.x puts the stack, whole words of RAM, between the two symbols.
    while lowest < top && unsafe { lowest.read_volatile() } == PAINT {
        lowest = lowest.wrapping_add(1);
    }
    top.addr().wrapping_sub(lowest.addr())
}

const PAINT: u32 = 0xa5a5_a5a5;

/// The functions that compiled code calls implicitly. Every image contains them, including the empty image, so that
/// they do not count as a difference between images.
#[used]
#[unsafe(link_section = ".keep")]
static MEMORY_FUNCTIONS: [unsafe extern "C" fn(); 13] = [
    memory::memcpy,
    memory::memmove,
    memory::memset,
    memory::memcmp,
    memory::bcmp,
    memory::__aeabi_memcpy,
    memory::__aeabi_memcpy4,
    memory::__aeabi_memmove,
    memory::__aeabi_memmove4,
    memory::__aeabi_memset,
    memory::__aeabi_memset4,
    memory::__aeabi_memclr,
    memory::__aeabi_memclr4,
];

/// Declarations of the functions in `MEMORY_FUNCTIONS`. Only the addresses of these functions are used, so the
/// declarations have no arguments.
mod memory {
    unsafe extern "C" {
        pub(super) fn memcpy();
        pub(super) fn memmove();
        pub(super) fn memset();
        pub(super) fn memcmp();
        pub(super) fn bcmp();
        pub(super) fn __aeabi_memcpy();
        pub(super) fn __aeabi_memcpy4();
        pub(super) fn __aeabi_memmove();
        pub(super) fn __aeabi_memmove4();
        pub(super) fn __aeabi_memset();
        pub(super) fn __aeabi_memset4();
        pub(super) fn __aeabi_memclr();
        pub(super) fn __aeabi_memclr4();
    }
}
