//! One request to a group of servers, and the responses of the members of the group (RFC 7252, section 8). The request
//! is not protected, or it is protected by Axiom or by Group OSCORE.

use super::oscore::unprotectable;
use super::request::Part;
use super::round::Round;
use super::{ClientError, Request, Response};
use crate::clock;
use crate::group::{Group, Membership, Memberships};
use crate::provider::HostCrypto;
use crate::udp::{self, BindError, MAX_DATAGRAM};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tegmen::address::{Address, Path};
use tegmen::axiom::SealRefused;
use tegmen::buf::Full;
use tegmen::coap::observe::Order;
use tegmen::coap::{Busy, Code, Exchanges, Fixed, MessageRef, OptionNumber, RequestId, Token};
use tegmen::cx::Environment;
use tegmen::dtls::{ClientOnly, Config, Records};
use tegmen::endpoint::{Endpoint, OnePeer};
use tegmen::identity::{Identity, Principal, Protection, SenderId};
use tegmen::node::{Application, GroupRequests, Groups, Node, Oscore, Parts, RequestHead, SendError};
use tegmen::oscore::{OpenedRequest, ProtectError};
use tegmen::time::Instant;
use tokio::net::UdpSocket;

/// Maximum number of bytes of a message to a group. Every node can receive a message of this length (RFC 7252, section
/// 4.6).
const MAX_MESSAGE: usize = 1152;
/// Maximum number of members whose responses are accepted.
const MAX_MEMBERS: usize = 65_536;
/// Maximum number of repetitions of a request to a protected group. For each member that demands an Echo option, the
/// client repeats the request with the value that this member sent.
const MAX_AGAIN: usize = 32;

/// Sends a non-confirmable request without protection to a group. Calls `on_reply` with each response until `wait` has
/// passed. Members respond at a random time, usually within 5 seconds. If a response comes in blocks, `on_reply` gets
/// only the first block. Returns the number of members that responded.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn ask_group(
    group: &Group,
    port: u16,
    request: &Request<'_>,
    wait: Duration,
    mut on_reply: impl FnMut(SocketAddr, Response),
) -> Result<usize, ClientError> {
    let (remote, socket) = (group.at(port), socket(group, port)?);
    request.check()?;
    let on_reply = |(from, _): Member, response| on_reply(from, response);
    let mut asking = Asking::new(socket, (request.method, wait), (1, (), ()), on_reply)?;
    asking.ask((remote, RequestHead::new(request.method)), (request, Part::default())).await?;
    let end = asking.start.after(wait);
    while let Some(received) = asking.receive(end).await {
        asking.take_response(remote, received).await;
    }
    Ok(asking.members.responded.len())
}

/// Makes the socket of a client of a group without protection.
pub(super) fn socket(group: &Group, port: u16) -> Result<UdpSocket, ClientError> {
    let socket = group.socket(None).and_then(UdpSocket::from_std);
    socket.map_err(|source| ClientError::Unreachable { remote: group.at(port), source })
}

/// The members of a group, divided by their reaction to a request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AskedMembers {
    /// The members that responded.
    pub responded: Vec<IpAddr>,
    /// Members that responded to a recent request, but not to this request.
    pub missing: Vec<IpAddr>,
    /// Members that demanded an Echo option and did not respond afterwards. The Echo option proves to a member that the
    /// request is new.
    pub challenged: Vec<IpAddr>,
}

/// Sends a request to a group that Axiom protects. Calls `on_reply` with each response until `wait` has passed. Members
/// respond at a random time, usually within 5 seconds. The keys prove that a member sent the response, and the source
/// address identifies the member. If two members respond from the same address, the membership reports
/// [`MembershipEvent::Clash`](crate::group::MembershipEvent::Clash) to the function of [`Membership::on_event`].
///
/// A member that does not know the sequence numbers of this client, for example after a restart, responds first with an
/// Echo option (RFC 9175), and does not execute the request. The client then sends the request with this option to the
/// group again, and the other members execute the request a second time. Therefore a request with POST or PATCH is not
/// repeated, and a member that demands an Echo option never executes such a request.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn ask_members(
    membership: &Membership,
    request: &Request<'_>,
    wait: Duration,
    mut on_reply: impl FnMut(SocketAddr, Response),
) -> Result<AskedMembers, ClientError> {
    request.check()?;
    let on_reply = |(from, _): Member, response| on_reply(from, response);
    let (mut asking, remote, own) = join(membership, (request.method, wait), 1 + MAX_AGAIN, on_reply)?;
    let expected = membership.expected();
    asking.ask_protected(membership, remote, (request, Part::default())).await?;
    let end = asking.start.after(wait);
    while let Some((len, from)) = asking.receive(end).await {
        asking.take(membership, own, (len, from));
        while let Some(echo) = asking.members.challenges.pop() {
            let part = Part { echo: Some(&echo), ..Part::default() };
            asking.ask_protected(membership, remote, (request, part)).await?;
        }
    }
    let responded = asking.members.responded;
    membership.note_answers(&responded);
    Ok(AskedMembers::new(responded, expected, asking.members.challenged))
}

impl AskedMembers {
    /// Makes the result of a request. A member in `expected` that is not in `responded` is missing.
    pub(super) fn new(responded: Vec<IpAddr>, expected: Vec<IpAddr>, challenged: Vec<IpAddr>) -> Self {
        let without = |all: Vec<IpAddr>| all.into_iter().filter(|one| !responded.contains(one)).collect();
        let (missing, challenged) = (without(expected), without(challenged));
        Self { responded, missing, challenged }
    }
}

/// Sends several requests of one method to a group that Axiom protects, with a pause of `interval` between two
/// requests. Ignores the responses. Returns the number of requests.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user.
pub(super) async fn tell_members<R>(
    membership: &Membership,
    method: Code,
    interval: Duration,
    requests: impl Iterator<Item = R>,
    as_request: impl for<'a> Fn(&'a R) -> Request<'a>,
) -> Result<usize, ClientError> {
    let (mut asking, remote, _) = join(membership, (method, Duration::ZERO), 1, |_, _| {})?;
    let mut count = 0;
    for one in requests {
        if count > 0 {
            tokio::time::sleep(interval).await;
        }
        let request = as_request(&one);
        request.check()?;
        asking.ask_protected(membership, remote, (&request, Part::default())).await?;
        count += 1;
    }
    Ok(count)
}

/// Makes the node and the socket of a client of a protected group. The client accepts responses to a request until
/// `wait` has passed. At most `most` requests are open at the same time. Returns the client, the address of the group,
/// and the local address.
pub(super) fn join<F: FnMut(Member, Response)>(
    membership: &Membership,
    (method, wait): (Code, Duration),
    most: usize,
    on_reply: F,
) -> Result<(Asking<F, Memberships>, SocketAddr, SocketAddr), ClientError> {
    let port = membership.group().port();
    let unusable = |error: &dyn std::fmt::Display| ClientError::Group {
        group: membership.name().to_owned(),
        problem: error.to_string(),
    };
    let group = membership.multicast().map_err(|error| unusable(&error))?;
    let remote = group.at(port);
    let any = udp::any_of_family(remote.ip());
    let own = SocketAddr::new(membership.address().unwrap_or(any), port);
    let socket = group
        .socket(Some(own))
        .and_then(UdpSocket::from_std)
        .map_err(|error| match BindError::new(own, error) {
            BindError::InUse { address } => unusable(&format!(
                "a program on this machine uses {address}: end it (`ss -ulpn 'sport = :{port}'` names it), or join again with an \
                 address that no other member has"
            )),
            error => ClientError::Bind(error),
        })?;
    let groups = Memberships(vec![membership.clone()]);
    let mut asking = Asking::new(socket, (method, wait), (most, (), groups), on_reply)?;
    asking.members.membership = Some(membership.clone());
    Ok((asking, remote, own))
}

/// The peer table of a node that only sends requests to a group. It contains no peer.
type Table = OnePeer<Exchanges<Fixed<1, 0, 1, 1>>>;
type Asker<S, G> = Node<Table, ClientOnly, Parts<(), (), S, (), (), (), Requests, G>>;

/// The address of a member that responded, and the principal that OSCORE proved for this member.
pub(super) type Member = (SocketAddr, Principal);

/// A client of a group, which sends requests and waits for responses.
pub(super) struct Asking<F, G: Groups, S: Oscore = ()> {
    node: Asker<S, G>,
    pub(super) environment: Environment<HostCrypto>,
    socket: UdpSocket,
    pub(super) start: Instant,
    wait: Duration,
    pub(super) members: Members<F>,
    buffer: Box<[u8; MAX_DATAGRAM]>,
    out: Box<[u8; MAX_DATAGRAM]>,
}

impl<F: FnMut(Member, Response), G: Groups, S: Oscore> Asking<F, G, S> {
    pub(super) fn new(
        socket: UdpSocket,
        (method, wait): (Code, Duration),
        (most, oscore, groups): (usize, S, G),
        on_reply: F,
    ) -> Result<Self, ClientError> {
        let mut environment = Environment::new(HostCrypto::from_os().map_err(ClientError::System)?);
        let start = clock::now();
        let group_requests = Requests { open: Vec::new(), most, next: None };
        let parts =
            Parts { queue: (), pacing: (), oscore, observers: (), bodies: (), leisure: (), group_requests, groups };
        let endpoint = Endpoint::with_roles(&mut environment.at(start), Table::new(), Config::default(), ClientOnly);
        let is_repeatable = !matches!(method, Code::POST | Code::PATCH);
        let members = Members {
            start,
            responded: Vec::new(),
            challenged: Vec::new(),
            challenges: Vec::new(),
            echoes: Vec::new(),
            proved: HashMap::new(),
            membership: None,
            is_repeatable,
            round: None,
            on_reply,
        };
        Ok(Self {
            node: Node::with_features(endpoint, Fixed, parts),
            environment,
            socket,
            start,
            wait,
            members,
            buffer: Box::new([0; MAX_DATAGRAM]),
            out: Box::new([0; MAX_DATAGRAM]),
        })
    }

    /// Returns the OSCORE context that protects the requests.
    pub(super) const fn oscore(&mut self) -> &mut S {
        &mut self.node.features.oscore
    }

    /// Sends the request without protection, or protected by Group OSCORE. If `part` contains a token, the client accepts
    /// responses without a time limit, and the request replaces an earlier request with this token.
    pub(super) async fn ask(
        &mut self,
        (remote, head): (SocketAddr, RequestHead<'_>),
        (request, part): (&Request<'_>, Part<'_>),
    ) -> Result<(), ClientError> {
        let Self { node, environment, start, wait, out, .. } = self;
        // OSCORE has its space in front, and the rest behind.
        let out = out.get_mut(..MAX_MESSAGE + 2 * S::OVERHEAD).unwrap_or(&mut []);
        let cx = &mut environment.at(clock::now());
        let (head, until) = match part.token {
            Some(token) => (head.with_token(token), Instant::NEVER),
            None => (head, start.after(*wait)),
        };
        let sent = node.request_group(cx, until, head, |builder| request.write(builder, part), out);
        let (_, len) = sent.map_err(|error| refused(error, ""))?;
        self.send(remote, len).await
    }

    /// Reads the response of a member from the buffer. The request was not protected by Axiom.
    pub(super) async fn take_response(&mut self, group: SocketAddr, (len, from): (usize, SocketAddr)) {
        let path = Path { local: Address::from(group), remote: from.into() };
        let Self { node, environment, members, buffer, out, .. } = self;
        let (datagram, cx) = (buffer.get_mut(..len).unwrap_or(&mut []), &mut environment.at(clock::now()));
        if let Some(len @ 1..) = node.handle_member(cx, &path, datagram, members, &mut **out) {
            // A member that does not receive the acknowledgement sends its response again.
            let _ = self.socket.send_to(self.out.get(..len).unwrap_or(&[]), from).await;
        }
    }

    /// Sends the request with the protection of Axiom. `part` contains the values of the message that are not in
    /// `request`, such as the value of an Echo option. If `part` contains a token, the client accepts responses without
    /// a time limit, and the request replaces an earlier request with this token.
    pub(super) async fn ask_protected(
        &mut self,
        membership: &Membership,
        remote: SocketAddr,
        (request, part): (&Request<'_>, Part<'_>),
    ) -> Result<(), ClientError> {
        let Self { node, environment, start, wait, out, .. } = self;
        let group = membership.address_of_group();
        let (before, behind) = node.features.groups.overhead(group);
        let out = out.get_mut(..MAX_MESSAGE + before + behind).unwrap_or(&mut []);
        let (cx, head) = (&mut environment.at(clock::now()), RequestHead::new(request.method));
        let (head, until) = match part.token {
            Some(token) => (head.with_token(token), Instant::NEVER),
            None => (head, start.after(*wait)),
        };
        let sent = node.request_protected_group(cx, group, until, head, |builder| request.write(builder, part), out);
        match sent {
            Ok((_, len)) => self.send(remote, len).await,
            // Members whose Echo is not sent again do not serve this request.
            Err(SendError::Busy) => Ok(()),
            Err(error) => Err(refused(error, membership.name())),
        }
    }

    async fn send(&self, remote: SocketAddr, len: usize) -> Result<(), ClientError> {
        let sent = self.socket.send_to(self.out.get(..len).unwrap_or(&[]), remote).await;
        sent.map(drop).map_err(|source| ClientError::NoRoute { remote, source })
    }

    /// Reads a datagram of the protected group from the buffer.
    pub(super) fn take(&mut self, membership: &Membership, own: SocketAddr, (len, from): (usize, SocketAddr)) {
        let path = Path { local: own.into(), remote: from.into() };
        membership.note_epoch(self.buffer.get(..len).unwrap_or(&[]));
        let Self { node, environment, members, buffer, out, .. } = self;
        let mut records = Records::new(buffer.get_mut(..len).unwrap_or(&mut []));
        let cx = &mut environment.at(clock::now());
        while node.handle(cx, &path, &mut records, members, &mut **out).is_some() {}
    }

    /// Receives a datagram into the buffer. Returns the length and the sender, or `None` if no datagram came until
    /// `end`.
    pub(super) async fn receive(&mut self, end: Instant) -> Option<(usize, SocketAddr)> {
        loop {
            let left = end.since(clock::now());
            // An ICMP error concerns one member alone.
            if let Ok(received) = tokio::time::timeout(left, self.socket.recv_from(&mut *self.buffer)).await.ok()? {
                return Some(received);
            }
        }
    }
}

/// Returns the error for a request that could not be written.
fn refused(error: SendError, group: &str) -> ClientError {
    let group = group.to_owned();
    let problem = match error {
        SendError::TooLong | SendError::Oscore(ProtectError::Full) => {
            return ClientError::TooLong { max: MAX_MESSAGE };
        }
        SendError::Oscore(stop) => return unprotectable(stop),
        SendError::Group(SealRefused::NotASender) => {
            "this member has no SenderID, or it is evicted: join again as a member that sends"
        }
        SendError::Group(SealRefused::LeaseSpent) => {
            "no numbers for requests can be kept: see where the membership is kept"
        }
        SendError::Group(SealRefused::Exhausted) => {
            "the keys of this epoch have sealed as many requests as they may: let the controller rekey the group"
        }
        other => return ClientError::System(io::Error::other(other.to_string())),
    };
    ClientError::Group { group, problem: problem.to_owned() }
}

/// The application of the node of a client. It collects the responses, and passes them to the caller of the request.
pub(super) struct Members<F> {
    start: Instant,
    /// The members that responded.
    pub(super) responded: Vec<IpAddr>,
    /// Members that demanded an Echo option.
    pub(super) challenged: Vec<IpAddr>,
    /// The values of Echo options. The client still has to send the request again with each of them.
    pub(super) challenges: Vec<Vec<u8>>,
    /// The values of Echo options from members that use OSCORE. The request is sent again to each such member alone.
    pub(super) echoes: Vec<(Member, Vec<u8>)>,
    /// The members that OSCORE authenticated. The value is true after a response, and false if the member only demanded
    /// an Echo option.
    proved: HashMap<Principal, bool>,
    /// The membership in the group, if Axiom protects the request.
    membership: Option<Membership>,
    /// True if a member may execute the request twice.
    is_repeatable: bool,
    /// The current round of an observation: the time from one registration, which the client sends to all members, to
    /// the next one. `None` if the request does not register an observation.
    round: Option<Round>,
    on_reply: F,
}

impl<F> Members<F> {
    /// Begins a round of an observation, in which the registration is sent to all members: see [`Round`].
    pub(super) fn begin_round(&mut self, next: Round) {
        self.start = clock::now();
        self.responded.clear();
        self.challenged.clear();
        self.round = Some(match self.round.take() {
            Some(round) => round.followed_by(next),
            None => next,
        });
    }

    /// True if the client has to send the registration of the observation to all members of the group again.
    pub(super) fn is_round_over(&self) -> bool {
        self.round.as_ref().is_some_and(Round::is_over)
    }
}

impl<F: FnMut(Member, Response), X: OpenedRequest> Application<X> for Members<F> {
    fn on_member_response(&mut self, _: RequestId, (path, who): (&Path, Identity), response: &MessageRef<'_>) {
        let from = SocketAddr::from(path.remote);
        let (in_axiom, has_oscore) =
            (who.protection == Protection::GroupResponse, who.protection == Protection::Oscore);
        if (in_axiom || has_oscore)
            && response.code() == Code::UNAUTHORIZED
            && let Some(echo) = response.option(OptionNumber::ECHO)
        {
            if has_oscore {
                // A challenge after a response is for a request that an attacker repeated: the member would serve it twice.
                if let Entry::Vacant(first) = self.proved.entry(who.principal) {
                    first.insert(false);
                    self.echoes.push(((from, who.principal), echo.to_vec()));
                }
            } else if self.is_repeatable && !self.responded.contains(&from.ip()) {
                self.challenges.push(echo.to_vec());
            }
            return self.challenged.push(from.ip());
        }
        if has_oscore && self.proved.insert(who.principal, true) == Some(true) {
            return;
        }
        // A member may also respond to a repetition with the Echo of another member.
        let is_first = !self.responded.contains(&from.ip());
        if in_axiom && !is_first && self.round.is_none() {
            return;
        }
        // Without protection and without an observation, each response is of another member, perhaps at the same address.
        if is_first || (!in_axiom && self.round.is_none()) {
            self.responded.push(from.ip());
        }
        let round_trip = clock::now().since(self.start);
        let response = Response { round_trip, ..Response::new(response) };
        if self.round.as_mut().is_none_or(|round| round.is_news(from, &response)) {
            (self.on_reply)((from, who.principal), response);
        }
    }

    fn on_group_clash(&mut self, _: &Address, sender: Option<SenderId>) {
        if let Some(membership) = &self.membership {
            membership.note_clash(sender.map(SenderId::number));
        }
    }
}

/// The open requests to a group, and the members that responded to each.
struct Requests {
    open: Vec<Open>,
    /// Maximum number of requests to the group that wait for responses at the same time.
    most: usize,
    /// The number of the next request, with which the node identifies the request. `None` before the first request,
    /// because the node chooses the first number.
    next: Option<u32>,
}

struct Open {
    request: RequestId,
    token: Token,
    until: Instant,
    /// The address of the group, the epoch and the truncated sequence number of the request, if Axiom protects the
    /// request.
    sealed: Option<(Address, u16, u64)>,
    /// The members that sent a response. The value is the Observe number of the member's last response and the time at
    /// which this response came; `None` if the response had no Observe option.
    members: HashMap<Address, Option<Order>>,
    /// True if the request registers an observation at the members.
    observes: bool,
}

impl Requests {
    fn get(&self, request: RequestId) -> Option<&Open> {
        self.open.iter().find(|open| open.request == request)
    }

    fn get_mut(&mut self, request: RequestId) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.request == request)
    }
}

impl GroupRequests for Requests {
    const OBSERVES: bool = true;

    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy> {
        self.open.retain(|open| now < open.until);
        let again = self.open.iter().position(|open| open.token == token);
        if again.is_none() && self.open.len() >= self.most {
            return Err(Busy::Outstanding);
        }
        let request = RequestId(self.next.unwrap_or(first.into()));
        self.next = Some(request.0.wrapping_add(1));
        let new = Open { request, token, until, sealed: None, members: HashMap::new(), observes: false };
        let before = again.map(|at| self.open.swap_remove(at));
        self.open.push(before.map_or(new, |before| Open { request, until, ..before }));
        Ok(request)
    }

    fn find(&self, now: Instant, mut is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId> {
        let mut open = self.open.iter().filter(|open| now < open.until);
        open.find(|open| is_it(open.request, &open.token)).map(|open| open.request)
    }

    fn observe(&mut self, request: RequestId, registers: bool) {
        if let Some(open) = self.get_mut(request) {
            open.observes = registers;
            // Members that do not let their resource be observed respond to the request that is sent again, too.
            open.members.retain(|_, last| last.is_some());
        }
    }

    fn note(
        &mut self,
        request: RequestId,
        member: &Address,
        (number, now): (Option<u32>, Instant),
    ) -> Result<bool, Full> {
        let Open { members, observes, .. } = self.get_mut(request).ok_or(Full)?;
        if let Some(last) = members.get_mut(member) {
            return Ok(*observes && Order::follows(last, number, now));
        }
        if members.len() >= MAX_MEMBERS {
            return Err(Full);
        }
        members.insert(*member, number.map(|number| Order::new(number, now)));
        Ok(true)
    }

    fn protect(&mut self, request: RequestId, sealed: (Address, u16, u64)) -> Result<(), Full> {
        self.get_mut(request).ok_or(Full)?.sealed = Some(sealed);
        Ok(())
    }

    fn protection(&self, request: RequestId) -> Option<(Address, u16, u64)> {
        self.get(request)?.sealed
    }

    fn close(&mut self, request: RequestId) {
        self.open.retain(|open| open.request != request);
    }
}
