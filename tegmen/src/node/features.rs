//! The parts of a node that an image may leave out.

use super::oscore::Oscore;
use super::pacing::Pacing;
use super::queue::Queue;

/// The memory of the parts of a node that an image may leave out. Each part is a type; `()` leaves the part out, and has
/// neither size nor code.
pub trait Features {
    /// Messages that wait for NSTART or PROBING_RATE.
    type Queue: Queue;
    /// The peers that were sent messages without acknowledgement. Without it a node sends confirmable messages only.
    type Pacing: Pacing;
    /// The OSCORE contexts.
    type Oscore: Oscore;

    /// Returns the messages that wait.
    fn queue(&mut self) -> &mut Self::Queue;

    /// Returns the peers that were sent messages without acknowledgement.
    fn pacing(&mut self) -> &mut Self::Pacing;

    /// Returns the OSCORE contexts, and the messages that wait.
    fn oscore(&mut self) -> (&mut Self::Oscore, &Self::Queue);
}

/// A node that serves and asks, and nothing more.
impl Features for () {
    type Queue = ();
    type Pacing = ();
    type Oscore = ();

    #[inline]
    fn queue(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn pacing(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn oscore(&mut self) -> (&mut (), &()) {
        (self, &())
    }
}

/// The parts of a node, `()` where one is left out.
#[derive(Clone, Copy, Default, Debug)]
pub struct Parts<Q = (), P = (), O = ()> {
    /// Messages that wait for NSTART or PROBING_RATE: see [`QueueArray`](super::QueueArray).
    pub queue: Q,
    /// The peers that were sent messages without acknowledgement: see [`PacingArray`](super::PacingArray).
    pub pacing: P,
    /// The OSCORE contexts: see [`OneContext`](super::OneContext).
    pub oscore: O,
}

impl<Q: Queue, P: Pacing, O: Oscore> Features for Parts<Q, P, O> {
    type Queue = Q;
    type Pacing = P;
    type Oscore = O;

    #[inline]
    fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    #[inline]
    fn pacing(&mut self) -> &mut P {
        &mut self.pacing
    }

    #[inline]
    fn oscore(&mut self) -> (&mut O, &Q) {
        (&mut self.oscore, &self.queue)
    }
}

/// A request that a node with the features `F` opened.
pub(super) type ExchangeOf<F> = <<F as Features>::Oscore as Oscore>::Exchange;
