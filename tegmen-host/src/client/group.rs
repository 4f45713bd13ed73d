//! One request to a group of servers, and the responses of its members (RFC 7252, section 8).

use super::request::Part;
use super::{ClientError, Request, Response};
use crate::clock;
use crate::group::Group;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::address::{Address, Path};
use tegmen::buf::Full;
use tegmen::coap::{Busy, Exchanges, Fixed, MessageRef, RequestId, Token};
use tegmen::cx::Environment;
use tegmen::dtls::{ClientOnly, Config};
use tegmen::endpoint::{Endpoint, OnePeer};
use tegmen::identity::Identity;
use tegmen::node::{Application, GroupRequests, Node, Parts, SendError};
use tegmen::time::Instant;
use tokio::net::UdpSocket;

/// Most bytes of a message to a group: every node can receive it (RFC 7252, section 4.6).
const MAX_MESSAGE: usize = 1152;
/// Most members whose responses are taken.
const MAX_MEMBERS: usize = 65_536;

/// Sends a request to a group, in clear and not confirmable, and gives each response to `on_reply` as it comes, until `wait`
/// has passed: members respond at a random time, usually within 5 seconds. A response in blocks is given as its first block.
/// Returns the number of members that responded.
///
/// # Errors
/// [`ClientError`], whose text names the next step. It is no error if no member responds.
pub async fn ask_group(
    group: &Group,
    port: u16,
    request: &Request<'_>,
    wait: Duration,
    on_reply: impl FnMut(SocketAddr, Response),
) -> Result<usize, ClientError> {
    let remote = group.at(port);
    let unreachable = |source| ClientError::Unreachable { remote, source };
    let socket = group.socket().and_then(UdpSocket::from_std).map_err(unreachable)?;
    request.check()?;
    let mut environment = Environment::new(HostCrypto::from_os().map_err(ClientError::System)?);
    let start = clock::now();
    let parts = Parts::<(), (), (), (), (), (), OneRequest>::default();
    let endpoint = Endpoint::with_roles(&mut environment.at(start), Table::new(), Config::default(), ClientOnly);
    let mut node = Node::with_features(endpoint, Fixed, parts);
    let mut out = [0; MAX_MESSAGE];
    let sent = node.request_group(
        &mut environment.at(start),
        start.after(wait),
        request.method,
        |builder| request.write(builder, Part::default()),
        &mut out,
    );
    let (_, len) = sent.map_err(|error| match error {
        SendError::TooLong => ClientError::TooLong { max: MAX_MESSAGE },
        other => ClientError::System(io::Error::other(other.to_string())),
    })?;
    socket.send_to(out.get(..len).unwrap_or(&[]), remote).await.map_err(unreachable)?;
    let mut members = Members { start, responded: 0, on_reply };
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let left = wait.saturating_sub(clock::now().since(start));
        let Ok(received) = tokio::time::timeout(left, socket.recv_from(&mut buffer)).await else {
            return Ok(members.responded);
        };
        // An ICMP error concerns one member alone.
        let Ok((len, from)) = received else { continue };
        let path = Path { local: Address::from(remote), remote: from.into() };
        let (datagram, cx) = (buffer.get(..len).unwrap_or(&[]), &mut environment.at(clock::now()));
        if let Some(len @ 1..) = node.handle_member(cx, &path, datagram, &mut members, &mut out) {
            // A member that does not receive the acknowledgement sends its response again.
            let _ = socket.send_to(out.get(..len).unwrap_or(&[]), from).await;
        }
    }
}

/// A node that asks a group has no peers.
type Table = OnePeer<Exchanges<Fixed<1, 0, 1, 0>>>;

/// Gives responses to their owner.
struct Members<F> {
    start: Instant,
    responded: usize,
    on_reply: F,
}

impl<F: FnMut(SocketAddr, Response)> Application for Members<F> {
    fn on_member_response(&mut self, _: RequestId, (path, _): (&Path, Identity), response: &MessageRef<'_>) {
        self.responded += 1;
        let round_trip = clock::now().since(self.start);
        (self.on_reply)(path.remote.into(), Response { round_trip, ..Response::new(response) });
    }
}

/// The only request to a group, and the members that sent their responses.
#[derive(Default)]
struct OneRequest {
    open: Option<(RequestId, Token, Instant)>,
    members: HashSet<Address>,
}

impl GroupRequests for OneRequest {
    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy> {
        if self.open.is_some_and(|(_, _, until)| now < until) {
            return Err(Busy::Outstanding);
        }
        let request = RequestId(first.into());
        *self = Self { open: Some((request, token, until)), members: HashSet::new() };
        Ok(request)
    }

    fn find(&self, now: Instant, mut is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId> {
        let (request, token, until) = self.open?;
        (now < until && is_it(request, &token)).then_some(request)
    }

    fn note(&mut self, _: RequestId, member: &Address) -> Result<bool, Full> {
        if self.members.len() >= MAX_MEMBERS && !self.members.contains(member) {
            return Err(Full);
        }
        Ok(self.members.insert(*member))
    }

    fn close(&mut self, _: RequestId) {
        self.open = None;
    }
}
