//! The resources whose observers get one notification together (draft-ietf-core-observe-multicast-notifications-14).
//!
//! The server makes a phantom request, which registers the group of all clients as one observer, and sends it to nobody.
//! The response to the registration of a client contains the phantom request, and the address and the token of the
//! notifications ([`crate::informative`]). The first shard starts the group observations and sends the notifications:
//! see [`super::shard`].

use super::group_observation::GroupObservation;
use super::{Listen, ServerConfig};
use crate::contexts::FollowedMember;
use crate::group::Group;
use crate::informative::{canonical, is_local, is_same, rebuilt};
use crate::request_uri;
use crate::uri::Scheme;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::identity::{Identity, Protection};

/// The reason why a server cannot offer a group observation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the group observation of /{path} with the group {group}: {problem}")]
pub struct GroupObservationError {
    path: String,
    group: Group,
    problem: &'static str,
}

/// Maximum number of group observations of one resource. Each has another address of the server.
pub(super) const MAX_STARTED: usize = 4;

/// A group observation that the server can start.
pub(super) struct Offer {
    pub(super) settings: GroupObservation,
    /// The context that protects the notifications; `None` for notifications in clear.
    pub(super) member: Option<FollowedMember>,
    /// The phantom request without protection, in the form of [`crate::informative::independent`].
    pub(super) phantom: Vec<u8>,
    /// The addresses of the server for which the group observation has started, or starts now.
    addresses: Mutex<Vec<Address>>,
}

/// The group observations that a server can start, and the ports for messages without DTLS.
#[derive(Default)]
pub(crate) struct Offers {
    pub(super) all: Vec<Offer>,
    ports: Vec<u16>,
}

impl Offers {
    /// Checks the settings of the group observations.
    ///
    /// # Errors
    /// [`GroupObservationError`].
    pub(super) fn new(config: &ServerConfig, addresses: &[Listen]) -> Result<Self, GroupObservationError> {
        let plain = || addresses.iter().filter(|listen| listen.scheme == Scheme::Coap).map(|listen| listen.address);
        let all = config.group_observations.iter().map(|settings| {
            let wrong = |problem| GroupObservationError {
                path: settings.path.clone(),
                group: settings.group.clone(),
                problem,
            };
            let member = match &settings.oscore {
                None => None,
                Some(name) => {
                    let member = config.oscore.members().iter().find(|member| member.is_of(name));
                    Some(member.ok_or_else(|| {
                        wrong("the server has no context of the OSCORE group, or is a monitor in it: serve the context of a member (--oscore)")
                    })?)
                }
            };
            let same = config.group_observations.iter().filter(|other| other.group.ip.is_ipv4() == settings.group.ip.is_ipv4());
            if same.into_iter().any(|other| other.group.interface != settings.group.interface) {
                return Err(wrong("another group has another network interface: name the same interface for all groups"));
            }
            if is_local(settings.group.ip) {
                return Err(wrong("the group has an address of one link, which the draft excludes: use a wider address, such as 239.255.79.1 or ff05::79:1"));
            }
            let answers = |own: SocketAddr| own.is_ipv4() == settings.group.ip.is_ipv4() || own.ip().is_unspecified();
            if !plain().any(answers) {
                return Err(wrong("the server has no address of the same family for messages without DTLS: listen at one"));
            }
            let phantom = phantom(&settings.path).ok_or_else(|| wrong("the path is not valid"))?;
            Ok(Offer { settings: settings.clone(), member: member.cloned(), phantom, addresses: Mutex::default() })
        });
        Ok(Self { all: all.collect::<Result<_, _>>()?, ports: plain().map(|address| address.port()).collect() })
    }

    /// Returns the index of the group observation that a request is for. `path` is the path of the request, and `local`
    /// is the address at which it arrived. Returns `None` if the client has to observe the resource alone, also because
    /// the resource already has a group observation for each of [`MAX_STARTED`] other addresses.
    pub(super) fn find(
        &self,
        path: &str,
        (request, identity): (&MessageRef<'_>, &Identity),
        local: &Address,
    ) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let ip = canonical(*local).ip();
        if ip.is_unspecified() || ip.is_multicast() || is_local(ip) || !self.ports.contains(&local.port) {
            return None;
        }
        let of_request = |offer: &Offer| {
            offer.settings.path == path
                && offer.settings.group.ip.is_ipv4() == matches!(ip, IpAddr::V4(_))
                && offer.is_for(identity)
                && offer
                    .message(&Token::new_empty())
                    .is_some_and(|phantom| MessageRef::parse(&phantom).is_ok_and(|phantom| is_same(&phantom, request)))
        };
        let index = self.all.iter().position(of_request)?;
        self.all.get(index).filter(|offer| offer.may_start_at(local)).map(|_| index)
    }
}

impl Offer {
    fn addresses(&self) -> MutexGuard<'_, Vec<Address>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the group observation has started for this address, or can start for it. The address then counts as
    /// started until the next call of [`Self::set_started`].
    fn may_start_at(&self, local: &Address) -> bool {
        let mut addresses = self.addresses();
        let is_new = !addresses.contains(local);
        if is_new && addresses.len() < MAX_STARTED {
            addresses.push(*local);
        }
        addresses.contains(local)
    }

    /// Sets the addresses of the server for which the group observation has started.
    pub(super) fn set_started(&self, started: impl Iterator<Item = Address>) {
        let mut addresses = self.addresses();
        addresses.clear();
        addresses.extend(started);
    }

    /// True if a client with this identity can take part in the group observation.
    fn is_for(&self, identity: &Identity) -> bool {
        match &self.member {
            None => identity.protection == Protection::Plain,
            Some(member) => {
                let current = member.current();
                identity.protection == Protection::Oscore
                    && current.is_some_and(|member| member.has(identity.principal))
            }
        }
    }

    /// Returns the phantom request with a token, without protection.
    pub(super) fn message(&self, token: &Token) -> Option<Vec<u8>> {
        rebuilt(&self.phantom, token).ok()
    }

    /// Returns the address to which the notifications are sent.
    pub(super) fn to(&self) -> SocketAddr {
        self.settings.group.at(self.settings.port)
    }
}

/// Returns the request that registers an observation of the resource at `path`, in the form of
/// [`crate::informative::independent`]. Returns `None` if the path is not valid.
fn phantom(path: &str) -> Option<Vec<u8>> {
    let mut storage = vec![0; 64 + 4 * path.len()];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::GET, 0, &[]).ok()?;
    builder.uint(OptionNumber::OBSERVE, REGISTER).ok()?;
    builder.path(path).ok()?;
    let mut read = String::new();
    request_uri::read(&MessageRef::parse(frame.bytes()).ok()?, &mut read).ok()?;
    if read == path { crate::informative::independent(frame.bytes()) } else { None }
}

#[cfg(test)]
mod tests;
