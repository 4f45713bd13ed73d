//! The parts of a node that an image may leave out.

use super::pacing::Pacing;
use super::queue::Queue;

/// The memory of the parts of a node that an image may leave out. Each part is a type; `()` leaves the part out, and has
/// neither size nor code.
pub trait Features {
    /// Messages that wait for NSTART or PROBING_RATE.
    type Queue: Queue;
    /// The peers that were sent messages without acknowledgement. Without it a node sends confirmable messages only.
    type Pacing: Pacing;

    /// Returns the messages that wait.
    fn queue(&mut self) -> &mut Self::Queue;

    /// Returns the peers that were sent messages without acknowledgement.
    fn pacing(&mut self) -> &mut Self::Pacing;
}

/// A node that serves and asks, and nothing more.
impl Features for () {
    type Queue = ();
    type Pacing = ();

    #[inline]
    fn queue(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn pacing(&mut self) -> &mut () {
        self
    }
}

/// The parts of a node, `()` where one is left out.
#[derive(Clone, Copy, Default, Debug)]
pub struct Parts<Q = (), P = ()> {
    /// Messages that wait for NSTART or PROBING_RATE: see [`QueueArray`](super::QueueArray).
    pub queue: Q,
    /// The peers that were sent messages without acknowledgement: see [`PacingArray`](super::PacingArray).
    pub pacing: P,
}

impl<Q: Queue, P: Pacing> Features for Parts<Q, P> {
    type Queue = Q;
    type Pacing = P;

    #[inline]
    fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    #[inline]
    fn pacing(&mut self) -> &mut P {
        &mut self.pacing
    }
}
