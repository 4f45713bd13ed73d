//! Observations of a group, without protection or protected by Axiom (RFC 7641): each member notifies the client of
//! changes, until the observation ends.

use super::group::{Asking, Member, join, socket};
use super::request::Part;
use super::round::Round;
use super::{AskedMembers, ClientError, Request, Response};
use crate::clock;
use crate::group::{Group, Membership, Memberships};
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::coap::observe::{DEREGISTER, REGISTER};
use tegmen::crypto::Crypto as _;
use tegmen::node::RequestHead;

/// The time between two checks for a new epoch of the group.
const LOOK: Duration = Duration::from_secs(1);

/// The times of an observation of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObserveMembers {
    /// The time within which members respond to a registration. Members that do not respond within this time are
    /// reported as missing.
    pub wait: Duration,
    /// The maximum time between two registrations; `None` sets no maximum. The client registers earlier if the Max-Age
    /// of a response has passed, but not earlier than 60 seconds after the last registration.
    pub alive: Option<Duration>,
}

/// Observes a resource of a group that Axiom protects. Ends the observation when `until` is ready. Calls `on_reply`
/// with the first response of each member, and then with each newer representation of a member. A member that does not
/// permit the observation responds without an Observe option. Calls `on_registered` after each registration, with the
/// members that responded and the members that are missing.
///
/// The client repeats the registration with the same token. So members that missed the registration, or that joined
/// later, also register the client. The client also repeats the registration when an epoch begins. Run
/// [`Controller::follow`](crate::controller::Controller::follow) at the same time: it fetches the keys of a missed
/// epoch.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn observe_members(
    membership: &Membership,
    request: &Request<'_>,
    times: ObserveMembers,
    until: impl Future<Output = ()>,
    mut on_reply: impl FnMut(SocketAddr, Response),
    mut on_registered: impl FnMut(&AskedMembers),
) -> Result<(), ClientError> {
    request.check()?;
    let on_reply = |(from, _): Member, response| on_reply(from, response);
    let (asking, remote, own) = join(membership, (request.method, times.wait), 1, on_reply)?;
    observe(asking, (remote, Way::Protected(membership, own)), request, times, until, &mut on_registered).await
}

/// Observes a resource of a group without protection, as [`observe_members`] does for a protected group. Anybody who
/// receives the registration can send notifications. A member is missing if it responded to the previous registration,
/// but not to this one. If a notification comes in blocks, `on_reply` gets only the first block.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn observe_group(
    (group, port): (&Group, u16),
    request: &Request<'_>,
    times: ObserveMembers,
    until: impl Future<Output = ()>,
    mut on_reply: impl FnMut(SocketAddr, Response),
    mut on_registered: impl FnMut(&AskedMembers),
) -> Result<(), ClientError> {
    request.check()?;
    let on_reply = |(from, _): Member, response| on_reply(from, response);
    let socket = socket(group, port)?;
    let asking = Asking::new(socket, (request.method, times.wait), (1, (), Memberships::default()), on_reply)?;
    observe(asking, (group.at(port), Way::Clear), request, times, until, &mut on_registered).await
}

/// The protection of an observation.
#[derive(Clone, Copy)]
enum Way<'m> {
    /// The membership, and the local address of the client.
    Protected(&'m Membership, SocketAddr),
    Clear,
}

impl Way<'_> {
    /// Returns the epoch of the keys. Without protection it never changes.
    fn epoch(self) -> u16 {
        match self {
            Self::Protected(membership, _) => membership.epoch(),
            Self::Clear => 0,
        }
    }

    async fn ask<F: FnMut(Member, Response)>(
        self,
        asking: &mut Asking<F, Memberships>,
        remote: SocketAddr,
        (request, part): (&Request<'_>, Part<'_>),
    ) -> Result<(), ClientError> {
        match self {
            Self::Protected(membership, _) => asking.ask_protected(membership, remote, (request, part)).await,
            Self::Clear => asking.ask((remote, RequestHead::new(request.method)), (request, part)).await,
        }
    }
}

async fn observe<F: FnMut(Member, Response)>(
    mut asking: Asking<F, Memberships>,
    (remote, way): (SocketAddr, Way<'_>),
    request: &Request<'_>,
    times: ObserveMembers,
    until: impl Future<Output = ()>,
    on_registered: &mut impl FnMut(&AskedMembers),
) -> Result<(), ClientError> {
    let (mut token, mut random, mut until) = ([0; TOKEN], [0; 1], std::pin::pin!(until));
    asking.environment.crypto.random(&mut token);
    let part = Part { observe: Some(REGISTER), token: Some(&token), ..Part::default() };
    let mut before = Vec::new();
    loop {
        let expected = match way {
            Way::Protected(membership, _) => membership.expected(),
            Way::Clear => std::mem::take(&mut before),
        };
        let epoch = way.epoch();
        asking.environment.crypto.random(&mut random);
        asking.members.begin_round(Round::new(times.wait, times.alive, random));
        way.ask(&mut asking, remote, (request, part)).await?;
        let (mut expected, end) = (Some(expected), clock::now().after(times.wait));
        // Members that did not begin the epoch yet would miss the request.
        while way.epoch() == epoch || clock::now() < end {
            if clock::now() >= end {
                if let Some(expected) = expected.take() {
                    let responded = asking.members.responded.clone();
                    match way {
                        Way::Protected(membership, _) => membership.note_answers(&responded),
                        Way::Clear => before.clone_from(&responded),
                    }
                    let challenged = std::mem::take(&mut asking.members.challenged);
                    on_registered(&AskedMembers::new(responded, expected, challenged));
                }
                if asking.members.is_round_over() {
                    break;
                }
            }
            let look = clock::now().after(LOOK);
            let look = if expected.is_some() { look.min(end) } else { look };
            let datagram = tokio::select! {
                biased;
                () = &mut until => {
                    let part = Part { observe: Some(DEREGISTER), wants_nothing: true, ..part };
                    return way.ask(&mut asking, remote, (request, part)).await;
                }
                datagram = asking.receive(look) => datagram,
            };
            match (datagram, way) {
                (Some(datagram), Way::Protected(membership, own)) => asking.take(membership, own, datagram),
                (Some(datagram), Way::Clear) => asking.take_response(remote, datagram).await,
                (None, _) => {}
            }
            while let Some(echo) = asking.members.challenges.pop() {
                let part = Part { echo: Some(&echo), ..part };
                way.ask(&mut asking, remote, (request, part)).await?;
            }
        }
    }
}

/// Length of a token in bytes: see [`Node::request_group`](tegmen::node::Node::request_group).
const TOKEN: usize = 7;
