//! Makes the Ethernet controller of the board a network driver of Embassy.

use core::task::Context;
use embassy_net_driver::{Capabilities, Driver, HardwareAddress, LinkState, RxToken, TxToken};
use embassy_sync::waitqueue::AtomicWaker;
use mote_board::ethernet::{Ethernet, FRAME_LEN};

/// The task of the network stack. The interrupt of the controller wakes this task.
static STACK: AtomicWaker = AtomicWaker::new();

/// The driver.
pub(crate) struct Controller {
    ethernet: Ethernet,
    address: [u8; 6],
    received: [u8; FRAME_LEN],
    sent: [u8; FRAME_LEN],
}

impl Controller {
    /// Starts the controller with this hardware address.
    pub(crate) fn start(address: [u8; 6]) -> Self {
        let mut ethernet = Ethernet::start(address);
        ethernet.enable_interrupt(|| STACK.wake());
        Self { ethernet, address, received: [0; FRAME_LEN], sent: [0; FRAME_LEN] }
    }
}

impl Driver for Controller {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = ToSend<'a>;

    fn receive(&mut self, cx: &mut Context<'_>) -> Option<(Received<'_>, ToSend<'_>)> {
        // First the waker, then the queue: a frame that arrives between the two wakes the task.
        STACK.register(cx.waker());
        if !self.ethernet.has_frame() {
            return None;
        }
        let len = self.ethernet.receive(&mut self.received);
        let frame = self.received.get_mut(..len)?;
        Some((Received(frame), ToSend { ethernet: &mut self.ethernet, frame: &mut self.sent }))
    }

    fn transmit(&mut self, _: &mut Context<'_>) -> Option<ToSend<'_>> {
        // `Ethernet::send` waits for the frame before, for 0.1 ms at most.
        Some(ToSend { ethernet: &mut self.ethernet, frame: &mut self.sent })
    }

    fn link_state(&mut self, _: &mut Context<'_>) -> LinkState {
        // QEMU emulates no cable that could be pulled out. A product asks the PHY.
        LinkState::Up
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.max_transmission_unit = FRAME_LEN;
        capabilities.max_burst_size = Some(1);
        capabilities
    }

    fn hardware_address(&self) -> HardwareAddress {
        HardwareAddress::Ethernet(self.address)
    }
}

/// A received frame.
pub(crate) struct Received<'a>(&'a mut [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// The buffer for a frame to send.
pub(crate) struct ToSend<'a> {
    ethernet: &'a mut Ethernet,
    frame: &'a mut [u8; FRAME_LEN],
}

impl TxToken for ToSend<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        // The stack asks for no more than the capabilities allow.
        let (frame, _) = self.frame.split_at_mut(len);
        let result = write(frame);
        self.ethernet.send(frame);
        result
    }
}
