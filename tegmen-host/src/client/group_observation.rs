//! Observations of a group that Axiom protects (RFC 7641): each member notifies the client of changes, until the
//! observation ends.

use super::group::{Member, join};
use super::request::Part;
use super::round::Round;
use super::{AskedMembers, ClientError, Request, Response};
use crate::clock;
use crate::group::Membership;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::coap::observe::{DEREGISTER, REGISTER};
use tegmen::crypto::Crypto as _;

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
    let (mut asking, remote, own) = join(membership, (request.method, times.wait), 1, on_reply)?;
    let (mut token, mut random, mut until) = ([0; TOKEN], [0; 1], std::pin::pin!(until));
    asking.environment.crypto.random(&mut token);
    let part = Part { observe: Some(REGISTER), token: Some(&token), ..Part::default() };
    loop {
        let (expected, epoch) = (membership.expected(), membership.epoch());
        asking.environment.crypto.random(&mut random);
        asking.members.begin_round(Round::new(times.wait, times.alive, random));
        asking.ask_protected(membership, remote, (request, part)).await?;
        let (mut expected, end) = (Some(expected), clock::now().after(times.wait));
        // Members that did not begin the epoch yet would miss the request.
        while membership.epoch() == epoch || clock::now() < end {
            if clock::now() >= end {
                if let Some(expected) = expected.take() {
                    let responded = asking.members.responded.clone();
                    membership.note_answers(&responded);
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
                    return asking.ask_protected(membership, remote, (request, part)).await;
                }
                datagram = asking.receive(look) => datagram,
            };
            if let Some(datagram) = datagram {
                asking.take(membership, own, datagram);
            }
            while let Some(echo) = asking.members.challenges.pop() {
                let part = Part { echo: Some(&echo), ..part };
                asking.ask_protected(membership, remote, (request, part)).await?;
            }
        }
    }
}

/// Length of a token in bytes: see [`Node::request_group`](tegmen::node::Node::request_group).
const TOKEN: usize = 7;
