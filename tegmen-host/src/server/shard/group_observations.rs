//! Group observations of a server (draft-ietf-core-observe-multicast-notifications-14, section 4): their beginning, the
//! informative responses, the notifications, and their end.

use super::Shard;
use crate::contexts::{MEMBER_OVERHEAD, SharedMember};
use crate::informative::{FORMAT, Informative, canonical, independent, with_feedback_divider};
use crate::server::Application;
use crate::server::command::GroupRegistration;
use crate::server::group_observations::{MAX_STARTED, Offer, Offers};
use crate::server::observer_count::ObserverCount;
use crate::server::reply::Reply;
use crate::udp::MAX_DATAGRAM;
use std::sync::Arc;
use std::time::Duration;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{self, Request, Served};
use tegmen::coap::observe::Observation;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto as _;
use tegmen::identity::Identity;
use tegmen::node::Observers as _;
use tegmen::oscore::group::GroupRequest;
use tegmen::time::Instant;

/// The minimum time between two notifications of a group observation (section 4.4).
const INTERVAL: Duration = Duration::from_secs(3);
/// Length of a token in bytes.
const TOKEN_LEN: usize = 4;

/// The group observations of a shard.
pub(super) struct GroupObservations {
    offers: Arc<Offers>,
    started: Vec<Started>,
}

/// A group observation that has started.
struct Started {
    /// The index in [`Offers::all`].
    offer: usize,
    /// The address of the server, from which the notifications are sent.
    local: Address,
    /// The phantom request without protection. Each notification is a response to this request.
    request: Vec<u8>,
    /// The phantom request in the form of the informative response, with its protection.
    phantom: Vec<u8>,
    /// The identity of the client that began the group observation. The policy decides on each notification as if this
    /// client had sent the request.
    identity: Identity,
    /// The context that protects the notifications, and the phantom request under this context; `None` for
    /// notifications in clear.
    protection: Option<(SharedMember, GroupRequest)>,
    observation: Observation,
    /// The newest notification in the form of the informative response.
    latest: Vec<u8>,
    message_id: u16,
    /// True if the representation has changed since the newest notification.
    is_changed: bool,
    /// The earliest time of the next notification.
    next: Instant,
    count: ObserverCount,
}

impl GroupObservations {
    pub(super) const fn new(offers: Arc<Offers>) -> Self {
        Self { offers, started: Vec::new() }
    }

    /// Marks the representation of `path` as changed for each group observation whose client `whom` selects.
    pub(super) fn mark(&mut self, path: &str, whom: impl Fn(&Identity) -> bool) {
        let Self { offers, started } = self;
        for observation in started {
            let is_it = offers.all.get(observation.offer).is_some_and(|offer| offer.settings.path == path);
            observation.is_changed |= is_it && whom(&observation.identity);
        }
    }

    /// Drops the group observations whose keys are no longer current: nothing is sent under these keys.
    fn drop_without_keys(&mut self) {
        let Self { offers, started } = self;
        started.retain(|started| offers.all.get(started.offer).is_some_and(|offer| started.has_current_keys(offer)));
    }

    /// Returns the index of a group observation of which a notification is due.
    fn due(&self, now: Instant) -> Option<usize> {
        self.started.iter().position(|observation| observation.is_changed && now >= observation.next)
    }

    /// Returns the index of the group observation of a registration, if it has started under the current keys.
    fn of(&self, registration: &GroupRegistration) -> Option<usize> {
        let GroupRegistration { offer, local, .. } = registration;
        self.started.iter().position(|started| started.offer == *offer && started.local == *local)
    }
}

impl Started {
    /// True if the keys of the OSCORE group are still those with which the group observation began, and have not expired.
    /// Under other keys, the clients could not open the notifications.
    fn has_current_keys(&self, offer: &Offer) -> bool {
        match (&self.protection, &offer.member) {
            (None, None) => true,
            (Some((member, _)), Some(followed)) => {
                followed.current().is_some_and(|current| current.gid() == member.gid() && !current.has_expired())
            }
            _ => false,
        }
    }

    /// Protects the notification in `frame`, if the group observation has a protection. Returns its bytes. Returns
    /// `None` if it cannot be protected.
    fn protected(&self, mut frame: Frame<'_>) -> Option<Vec<u8>> {
        if let Some((member, request)) = &self.protection {
            member.protect_response(request, None, &mut frame).ok()?;
        }
        Some(frame.bytes().to_vec())
    }

    fn next_id(&mut self) -> u16 {
        self.message_id = self.message_id.wrapping_add(1);
        self.message_id
    }

    /// Returns the response to a registration of a client.
    fn informative(&self, offer: &Offer) -> Reply {
        let informative = Informative {
            server: canonical(self.local),
            group: offer.to(),
            token: self.observation.token,
            phantom: Some(self.phantom.clone()),
            latest: Some(self.latest.clone()),
        };
        Reply::new(Code::SERVICE_UNAVAILABLE)
            .uint(OptionNumber::CONTENT_FORMAT, FORMAT.into())
            .max_age(Duration::ZERO)
            .payload(informative.to_cbor())
            .because(format!("the client takes part in the group observation of {}", offer.settings.group))
    }
}

impl<A: Application> Shard<A> {
    /// Sends an informative response to a client. Begins the group observation if it has not started.
    pub(super) fn on_group_registration(&mut self, now: Instant, registration: GroupRegistration) {
        let offers = self.group_observations.offers.clone();
        let Some(offer) = offers.all.get(registration.offer) else { return };
        self.group_observations.drop_without_keys();
        let begun = match self.group_observations.of(&registration) {
            Some(at) => Ok(at),
            None if registration.confirms => Err(Reply::new(Code::SERVICE_UNAVAILABLE)),
            None => self.begin_group_observation(now, offer, &registration),
        };
        let started = begun.map(|at| self.group_observations.started.get_mut(at));
        let reply = match started {
            Ok(Some(started)) => {
                match registration.confirms {
                    true => started.count.on_confirmation(),
                    false => started.count.on_registration(),
                }
                started.informative(offer)
            }
            Ok(None) => Reply::new(Code::INTERNAL_SERVER_ERROR),
            Err(reply) => reply,
        };
        registration.respond(reply);
        self.publish_group_observed();
    }

    /// Publishes the paths of the group observations for [`Notifier::is_observed`](crate::server::Notifier::is_observed),
    /// and their addresses for [`Offers::find`].
    fn publish_group_observed(&self) {
        let GroupObservations { offers, started } = &self.group_observations;
        for (index, offer) in offers.all.iter().enumerate() {
            let of_offer = started.iter().filter(|started| started.offer == index);
            offer.set_started(of_offer.map(|started| started.local));
        }
        let paths = started.iter().filter_map(|started| offers.all.get(started.offer));
        let paths = paths.map(|offer| offer.settings.path.as_str().into()).collect();
        self.coap_server.resources.notifier.set_group_observed(paths);
    }

    /// Begins a group observation. Returns its index, or the error response to the client that registered.
    fn begin_group_observation(
        &mut self,
        now: Instant,
        offer: &Offer,
        registration: &GroupRegistration,
    ) -> Result<usize, Reply> {
        let failed = |cause: &str| Reply::new(Code::INTERNAL_SERVER_ERROR).because(cause);
        let GroupRegistration { offer: index, local, identity, .. } = *registration;
        let started = &self.group_observations.started;
        if started.iter().filter(|started| started.offer == index).count() >= MAX_STARTED {
            return Err(failed("the resource has a group observation for each of 4 other addresses of the server"));
        }
        let token = self.draw_group_token();
        let request = offer.message(&token).ok_or_else(|| failed("the phantom request is not valid"))?;
        let (mut storage, mut phantom) = (vec![0; request.len() + 2 * MEMBER_OVERHEAD], request.clone());
        let protection = match &offer.member {
            None => None,
            Some(followed) => {
                let member =
                    followed.current().ok_or_else(|| failed("the server was evicted from the OSCORE group"))?;
                let mut frame = Frame::new(&mut storage, MEMBER_OVERHEAD);
                let protected = frame.append(&request).ok().and_then(|()| member.protect_phantom(&mut frame).ok());
                let request = protected.ok_or_else(|| failed("the phantom request cannot be protected"))?;
                phantom = frame.bytes().to_vec();
                Some((member, request))
            }
        };
        let mut id = [0; 2];
        self.environment.crypto.random(&mut id);
        let number = self.node.features.observers.first_number(now);
        let mut started = Started {
            offer: index,
            local,
            request,
            phantom: independent(&phantom).ok_or_else(|| failed("the phantom request is not valid"))?,
            identity,
            protection,
            observation: Observation::new(token, number),
            latest: Vec::new(),
            message_id: u16::from_be_bytes(id),
            is_changed: false,
            next: now,
            count: ObserverCount::new(now),
        };
        let notification = self.group_notification(&mut started, None).map_err(|code| {
            Reply::new(code).because("the resource gives no first notification for its group observation at once")
        })?;
        started.latest = independent(&notification).unwrap_or_default();
        self.group_observations.started.push(started);
        Ok(self.group_observations.started.len() - 1)
    }

    /// Returns a random token that no group observation uses.
    fn draw_group_token(&mut self) -> Token {
        loop {
            let mut token = [0; TOKEN_LEN];
            self.environment.crypto.random(&mut token);
            let token = Token::new(&token);
            if self.group_observations.started.iter().all(|started| started.observation.token != token) {
                return token;
            }
        }
    }

    /// Asks the policy and the application for the next notification. Returns the notification with its protection, or
    /// the code of an error response. If the application allows no observation, or does not respond at once, returns
    /// the code 5.00. `divider` is the value of the Feedback-Divider option; `None` for a notification without it.
    fn group_notification(&mut self, started: &mut Started, divider: Option<u8>) -> Result<Vec<u8>, Code> {
        let failed = Code::INTERNAL_SERVER_ERROR;
        let Self { coap_server, .. } = self;
        let (number, id) = (started.observation.next(), started.next_id());
        let message = MessageRef::parse(&started.request).map_err(|_| failed)?;
        // The path was valid when the server began.
        coap_server.resources.begin(&message).map_err(|_| failed)?;
        let request = Request::new(message, started.identity).observable(number);
        let mut storage = vec![0; MAX_DATAGRAM];
        let mut frame = Frame::new(&mut storage, MEMBER_OVERHEAD);
        let mut limited = frame.reserving(MEMBER_OVERHEAD);
        let served = handler::serve(request, &coap_server.policy, &mut coap_server.resources, id, &mut limited);
        let (_, end) = limited.place();
        frame.end_at(end);
        match served {
            Served::Responded { observed: true, .. } => {
                if let Some(divider) = divider {
                    let with = with_feedback_divider(frame.bytes(), divider).ok_or(failed)?;
                    frame.truncate(0);
                    frame.append(&with).map_err(|_| failed)?;
                }
                started.protected(frame).ok_or(failed)
            }
            Served::Responded { code, .. } if !code.is_success() => Err(code),
            _ => Err(failed),
        }
    }

    /// Sends the notifications that are due. Ends a group observation if the application or the policy gives an error,
    /// or if no client takes part any more.
    pub(super) fn notify_groups(&mut self, now: Instant) {
        self.group_observations.drop_without_keys();
        let unwatched = |observation: &mut Started| observation.count.conclude(now);
        for started in self.group_observations.started.extract_if(.., unwatched).collect::<Vec<_>>() {
            if let Some(offer) = self.group_observations.offers.clone().all.get(started.offer) {
                self.end_group_observation(offer, started);
            }
        }
        while let Some(at) = self.group_observations.due(now) {
            let offers = self.group_observations.offers.clone();
            let mut started = self.group_observations.started.swap_remove(at);
            let Some(offer) = offers.all.get(started.offer) else { continue };
            (started.is_changed, started.next) = (false, now.after(INTERVAL));
            let divider = started.count.ask(now);
            let notification = match self.group_notification(&mut started, divider) {
                Ok(notification) => notification,
                // The client that began the group observation has lost its right. The others register again.
                Err(Code::UNAUTHORIZED | Code::FORBIDDEN) => continue,
                Err(_) => {
                    self.end_group_observation(offer, started);
                    continue;
                }
            };
            self.send_to_group(offer, &started, &notification);
            started.latest = independent(&notification).unwrap_or_default();
            self.group_observations.started.push(started);
        }
        if !self.group_observations.offers.all.is_empty() {
            self.publish_group_observed();
        }
    }

    fn send_to_group(&mut self, offer: &Offer, started: &Started, datagram: &[u8]) {
        self.outbox.push(Path { local: started.local, remote: offer.to().into() }, datagram);
    }

    /// Ends a group observation: sends 5.03 without a payload to the group (section 4.5).
    fn end_group_observation(&mut self, offer: &Offer, mut started: Started) {
        let mut storage = vec![0; MAX_DATAGRAM];
        let mut frame = Frame::new(&mut storage, MEMBER_OVERHEAD);
        let (id, token) = (started.next_id(), started.observation.token);
        let (message_type, code) = (MessageType::NonConfirmable, Code::SERVICE_UNAVAILABLE);
        let is_built = Builder::new(&mut frame, message_type, code, id, token.as_bytes()).is_ok();
        // Without the message, the clients register again when Max-Age has passed.
        if is_built && let Some(last) = started.protected(frame) {
            self.send_to_group(offer, &started, &last);
        }
    }

    /// Ends all group observations, because the server ends.
    pub(super) fn end_group_observations(&mut self) {
        self.group_observations.drop_without_keys();
        let offers = self.group_observations.offers.clone();
        for started in std::mem::take(&mut self.group_observations.started) {
            if let Some(offer) = offers.all.get(started.offer) {
                self.end_group_observation(offer, started);
            }
        }
    }
}
