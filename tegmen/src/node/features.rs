//! The optional parts of a node. An image contains no code for a part that it does not use.

use super::bodies::Bodies;
use super::group_requests::GroupRequests;
use super::groups::Groups;
use super::leisure::Leisure;
use super::observers::{Observer, Observers};
use super::oscore::Oscore;
use super::pacing::Pacing;
use super::queue::Queue;
use crate::coap::PeerExchanges;
use crate::endpoint::Peers;

/// The memory of the optional parts of a node. Each part is a type. A node whose type for a part is `()` does not have
/// this part: `()` has no size and no code.
pub trait Features {
    /// The type of the queue of messages that wait until NSTART or PROBING_RATE allows them.
    type Queue: Queue;
    /// The type that stores, for each peer, the time from which the node may send the next non-confirmable message. If
    /// the type is `()`, the node sends only confirmable requests and notifications.
    type Pacing: Pacing;
    /// The type of the OSCORE contexts.
    type Oscore: Oscore;
    /// The type of the list of clients that observe resources (RFC 7641).
    type Observers: Observers<ExchangeOf<Self>, RegistrationOf<Self>>;
    /// The type of the memory for bodies of requests and responses that are longer than a message (RFC 7959).
    type Bodies: Bodies;
    /// The type of the memory for delayed responses to requests to a group (RFC 7252, section 8.2).
    type Leisure: Leisure;
    /// The type of the memory for our open requests to groups: the requests that still wait for responses (RFC 7252,
    /// section 8). If the type is `()`, the node sends no requests to groups.
    type GroupRequests: GroupRequests;
    /// The type of the memory for the Axiom groups of which the node is a member.
    type Groups: Groups;

    /// Returns the queue of messages that wait until NSTART or PROBING_RATE allows them.
    fn queue(&mut self) -> &mut Self::Queue;

    /// Returns the memory that stores, for each peer, the time from which the node may send the next non-confirmable
    /// message.
    fn pacing(&mut self) -> &mut Self::Pacing;

    /// Returns the OSCORE contexts, and the queue of messages that wait until NSTART or PROBING_RATE allows them.
    fn oscore(&mut self) -> (&mut Self::Oscore, &Self::Queue);

    /// Returns the list of clients that observe resources.
    fn observers(&mut self) -> &mut Self::Observers;

    /// Returns the memory for bodies of requests and responses.
    fn bodies(&mut self) -> &mut Self::Bodies;

    /// Returns the delayed responses to requests to a group.
    fn leisure(&mut self) -> &mut Self::Leisure;

    /// Returns our open requests to groups: the requests that still wait for responses.
    fn group_requests(&mut self) -> &mut Self::GroupRequests;

    /// Returns the Axiom groups of which the node is a member.
    fn groups(&mut self) -> &mut Self::Groups;
}

/// The features of a node without optional parts. Such a node only serves requests and sends requests.
impl Features for () {
    type Queue = ();
    type Pacing = ();
    type Oscore = ();
    type Observers = ();
    type Bodies = ();
    type Leisure = ();
    type GroupRequests = ();
    type Groups = ();

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

    #[inline]
    fn observers(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn bodies(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn leisure(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn group_requests(&mut self) -> &mut () {
        self
    }

    #[inline]
    fn groups(&mut self) -> &mut () {
        self
    }
}

/// The optional parts of a node. If the type of a part is `()`, the node does not have this part.
#[derive(Clone, Copy, Default, Debug)]
pub struct Parts<Q = (), P = (), S = (), O = (), B = (), L = (), G = (), A = ()> {
    /// The queue of messages that wait until NSTART or PROBING_RATE allows them: see [`QueueArray`](super::QueueArray).
    pub queue: Q,
    /// For each peer, the time from which the node may send the next non-confirmable message: see
    /// [`PacingArray`](super::PacingArray).
    pub pacing: P,
    /// The OSCORE contexts: see [`OneContext`](super::OneContext).
    pub oscore: S,
    /// The clients that observe resources: see [`ObserverArray`](super::ObserverArray).
    pub observers: O,
    /// The bodies of requests and responses that are longer than a message: see [`BodyArray`](super::BodyArray).
    pub bodies: B,
    /// The delayed responses to requests to a group: see [`LeisureArray`](super::LeisureArray).
    pub leisure: L,
    /// Our open requests to groups: the requests that still wait for responses. See
    /// [`GroupRequestArray`](super::GroupRequestArray).
    pub group_requests: G,
    /// The Axiom groups of which the node is a member: see [`GroupArray`](super::GroupArray).
    pub groups: A,
}

impl<Q, P, S, O, B, L, G, A> Features for Parts<Q, P, S, O, B, L, G, A>
where
    Q: Queue,
    P: Pacing,
    S: Oscore,
    O: Observers<S::Exchange, A::Registration>,
    B: Bodies,
    L: Leisure,
    G: GroupRequests,
    A: Groups,
{
    type Queue = Q;
    type Pacing = P;
    type Oscore = S;
    type Observers = O;
    type Bodies = B;
    type Leisure = L;
    type GroupRequests = G;
    type Groups = A;

    #[inline]
    fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    #[inline]
    fn pacing(&mut self) -> &mut P {
        &mut self.pacing
    }

    #[inline]
    fn oscore(&mut self) -> (&mut S, &Q) {
        (&mut self.oscore, &self.queue)
    }

    #[inline]
    fn observers(&mut self) -> &mut O {
        &mut self.observers
    }

    #[inline]
    fn bodies(&mut self) -> &mut B {
        &mut self.bodies
    }

    #[inline]
    fn leisure(&mut self) -> &mut L {
        &mut self.leisure
    }

    #[inline]
    fn group_requests(&mut self) -> &mut G {
        &mut self.group_requests
    }

    #[inline]
    fn groups(&mut self) -> &mut A {
        &mut self.groups
    }
}

/// The type that identifies a request in its OSCORE context, in a node with the features `F`.
pub(super) type ExchangeOf<F> = <<F as Features>::Oscore as Oscore>::Exchange;

/// The type of the data that a node with the features `F` stores for an observer that is a member of a protected group.
pub(super) type RegistrationOf<F> = <<F as Features>::Groups as Groups>::Registration;

/// The type of the entry of an observer in a node with the features `F`.
pub(super) type ObserverOf<F> = Observer<ExchangeOf<F>, RegistrationOf<F>>;

/// The type of the state that an application stores for each peer in the table `P`.
pub(super) type StateOf<P> = <<P as Peers>::Attached as PeerExchanges>::State;
