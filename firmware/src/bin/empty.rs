//! The empty image: it starts, measures nothing and ends. Its sizes are subtracted from the sizes of the other images.
#![no_std]
#![no_main]

use tegmen_firmware::measure::{Note, exit, mark_begin, mark_end};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 1] = [Note::operation(0, "nothing")];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    mark_begin(0);
    mark_end(0);
    exit(true)
}
