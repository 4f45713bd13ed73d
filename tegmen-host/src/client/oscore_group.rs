//! One request to all members of a group, and the responses of the members. Group OSCORE protects the messages (RFC
//! 10021).

use super::group::Asking;
use super::request::Part;
use super::session_context::no_group;
use super::{ClientError, Request, Response};
use crate::contexts::{ContextError, MEMBER_OVERHEAD, StoredMember, find_recipient, is_member};
use crate::group::Group;
use crate::provider::HostCrypto;
use crate::server::OscoreExchange;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, RequestId};
use tegmen::crypto::Crypto;
use tegmen::identity::Principal;
use tegmen::node::{Oscore, RequestHead, SendError};
use tegmen::oscore::group::{GroupPending, Mode, Replies};
use tegmen::oscore::{Id, ProtectError, UnprotectError};
use tokio::net::UdpSocket;

/// Maximum number of requests that wait for responses: one to the group, and one to each member that demanded an Echo
/// option.
const MAX_REQUESTS: usize = 1024;

/// The names of the other group members, divided into those that responded to a request and those that did not respond.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AskedByName {
    /// The members that responded.
    pub responded: BTreeSet<String>,
    /// The members that did not respond.
    pub missing: BTreeSet<String>,
}

/// Sends a request to all members of a group, in the group mode. `context` is the directory of the security context.
/// Calls `on_reply` with each response, and with the name and the address of the member that sent it. Returns after
/// `wait`. Members respond at a random time, usually within 5 seconds.
///
/// A member that does not know which requests it has executed, for example after a power cut, demands an Echo option
/// (RFC 9175). The client then sends the request with this option once more to this member alone, in the pairwise mode.
/// If the member has already responded, the client sends nothing.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn ask_oscore_group(
    context: &Path,
    (group, port): (&Group, u16),
    request: &Request<'_>,
    wait: Duration,
    mut on_reply: impl FnMut(&str, SocketAddr, Response),
) -> Result<AskedByName, ClientError> {
    request.check()?;
    if !is_member(context) {
        return Err(ClientError::Context(no_group(context, format!("the group {group}"))));
    }
    let oscore = GroupClient::open(context)?;
    let names: Vec<String> = oscore.members.iter().map(|(_, name)| name.clone()).collect();
    let remote = group.at(port);
    let unreachable = |source| ClientError::Unreachable { remote, source };
    let socket = group.socket(None).and_then(UdpSocket::from_std).map_err(unreachable)?;
    let mut responded = BTreeSet::new();
    let take = |(from, principal): (SocketAddr, Principal), response| {
        if let Some(name) = names.get(principal.0 as usize) {
            responded.insert(name.clone());
            on_reply(name, from, response);
        }
    };
    let mut asking = Asking::new(socket, (request.method, wait), (MAX_REQUESTS, oscore, ()), take)?;
    let head = || RequestHead::new(request.method).with_oscore();
    let asked = asking.ask((remote, head()), (request, Part::default())).await;
    asking.oscore().explain(asked)?;
    let end = asking.start.after(wait);
    while let Some(received) = asking.receive(end).await {
        asking.take_response(remote, received).await;
        while let Some(((from, principal), echo)) = asking.members.echoes.pop() {
            asking.oscore().to = Some(principal);
            let part = Part { echo: Some(&echo), ..Part::default() };
            // A member that cannot be asked again does not respond, and the others do.
            let _ = asking.ask((from, head()), (request, part)).await;
            if let Some(problem) = asking.oscore().problem.take() {
                return Err(ClientError::Context(problem));
            }
        }
    }
    drop(asking);
    let missing = names.iter().filter(|name| !responded.contains(*name)).cloned().collect();
    Ok(AskedByName { responded, missing })
}

/// The security context of a group at the client, and the requests that wait for responses.
struct GroupClient {
    stored: StoredMember,
    crypto: HostCrypto,
    /// The other members. The principal of a member is the index of the member in this list.
    members: Vec<(Id, String)>,
    /// The member to which the next request is sent; `None` for all members.
    to: Option<Principal>,
    asked: Vec<(RequestId, GroupPending<Vec<Replies>>)>,
    /// The reason why the context cannot be used, which [`ask_oscore_group`] returns as its error; `None` if the
    /// context can be used.
    problem: Option<ContextError>,
}

impl GroupClient {
    fn open(context: &Path) -> Result<Self, ClientError> {
        let stored = StoredMember::open(context).map_err(ClientError::Context)?;
        let members = stored.others().map(|(id, name, _)| (*id, name.to_owned())).collect();
        let crypto = HostCrypto::from_os().map_err(ClientError::System)?;
        Ok(Self { stored, crypto, members, to: None, asked: Vec::new(), problem: None })
    }

    /// Returns the result of a request. If the request failed because the context cannot be used, returns the error of
    /// the context.
    fn explain(&mut self, asked: Result<(), ClientError>) -> Result<(), ClientError> {
        asked.map_err(|error| self.problem.take().map_or(error, ClientError::Context))
    }

    fn protect(&mut self, request: RequestId, frame: &mut Frame<'_>) -> Result<(), ProtectError> {
        if let Err(problem) = self.stored.prepare() {
            self.problem = Some(problem);
            return Err(ProtectError::LeaseSpent);
        }
        let Self { stored: StoredMember { context, recipients, .. }, crypto, members, to, asked, .. } = self;
        let (mode, places) = match to.take() {
            None => (Mode::Group, members.len()),
            Some(to) => {
                let (id, _) = members.get(to.0 as usize).ok_or(ProtectError::Unsupported)?;
                (Mode::Pairwise(find_recipient(recipients, id)?), 1)
            }
        };
        let pending = context.protect_request(crypto, mode, vec![Replies::default(); places], frame)?;
        asked.push((request, pending));
        Ok(())
    }
}

impl Oscore for GroupClient {
    const OVERHEAD: usize = MEMBER_OVERHEAD;
    const GROUPS: bool = true;
    /// A client does not open protected requests, so it makes no value of this type.
    type Exchange = OscoreExchange;
    type Whole = [u8; 0];

    fn protect_group_request<C: Crypto>(
        &mut self,
        _: &mut C,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        Ok(self.protect(request, frame)?)
    }

    fn is_group_protected(&self, _: RequestId) -> bool {
        true
    }

    fn unprotect_member<'r, C: Crypto>(
        &mut self,
        _: &mut C,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, Principal), UnprotectError> {
        let Self { stored: StoredMember { context, recipients, .. }, crypto, members, asked, .. } = self;
        let (_, pending) = asked.iter_mut().find(|(of, _)| *of == request).ok_or(UnprotectError::UnknownContext)?;
        let (message, id) = context.unprotect_response(crypto, recipients.as_mut_slice(), pending, datagram)?;
        let place = members.iter().position(|(of, _)| *of == id).ok_or(UnprotectError::UnknownMember)?;
        Ok((message, Principal(place as u32)))
    }
}
