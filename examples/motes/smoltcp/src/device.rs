//! The Ethernet controller in the form of a network device of smoltcp.

use mote_board::ethernet::{Ethernet, FRAME_LEN};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// The controller, and a buffer for a frame in each direction.
pub(crate) struct Controller {
    ethernet: Ethernet,
    received: [u8; FRAME_LEN],
    sent: [u8; FRAME_LEN],
}

impl Controller {
    pub(crate) const fn new(ethernet: Ethernet) -> Self {
        Self { ethernet, received: [0; FRAME_LEN], sent: [0; FRAME_LEN] }
    }
}

impl Device for Controller {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = ToSend<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, ToSend<'_>)> {
        if !self.ethernet.has_frame() {
            return None;
        }
        let len = self.ethernet.receive(&mut self.received);
        let frame = self.received.get(..len)?;
        Some((Received(frame), ToSend { ethernet: &mut self.ethernet, frame: &mut self.sent }))
    }

    fn transmit(&mut self, _: Instant) -> Option<ToSend<'_>> {
        self.ethernet.can_send().then_some(ToSend { ethernet: &mut self.ethernet, frame: &mut self.sent })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_LEN;
        capabilities.max_burst_size = Some(1);
        capabilities
    }
}

/// A received frame.
pub(crate) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
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
        // smoltcp asks for no more than the capabilities allow.
        let (frame, _) = self.frame.split_at_mut(len);
        let result = write(frame);
        self.ethernet.send(frame);
        result
    }
}
