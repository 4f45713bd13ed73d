//! The time driver of Embassy. It uses the millisecond clock of the board, and wakes the tasks whose timers have
//! expired.

use core::cell::RefCell;
use core::task::Waker;
use cortex_m::interrupt::{Mutex, free};
use cortex_m_rt::exception;
use embassy_time_driver::{Driver, time_driver_impl};
use embassy_time_queue_utils::Queue;
use mote_board::clock;

struct Clock {
    timers: Mutex<RefCell<Queue>>,
}

time_driver_impl!(static CLOCK: Clock = Clock { timers: Mutex::new(RefCell::new(Queue::new())) });

impl Driver for Clock {
    fn now(&self) -> u64 {
        clock::millis()
    }

    fn schedule_wake(&self, at: u64, waker: &Waker) {
        // The next interrupt comes within a millisecond anyway, so no alarm is set.
        free(|cs| self.timers.borrow(cs).borrow_mut().schedule_wake(at, waker));
    }
}

#[exception]
fn SysTick() {
    clock::tick();
    free(|cs| CLOCK.timers.borrow(cs).borrow_mut().next_expiration(clock::millis()));
}
