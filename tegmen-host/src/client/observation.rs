//! Observations of resources (RFC 7641) at the client.

use super::establish::Backoff;
use super::multicast::{Multicast, is_informative};
use super::request::{OwnedRequest, Part};
use super::transfer::{self, Taken};
use super::{ClientError, Request, Response, Session, TakenPlace};
use crate::clock;
use crate::digest::sha256;
use crate::informative::FEEDBACK_DIVIDER;
use crate::server::DEFAULT_LEISURE;
use std::time::Duration;
use tegmen::coap::OptionNumber;
use tegmen::coap::observe::{DEREGISTER, REGISTER};
use tegmen::crypto::Crypto as _;
use tegmen::node::{self, Notification};
use tegmen::time::Instant;

/// An observation of a resource. The session of the observation can be used for other requests at the same time. After
/// this value is dropped, the client rejects the next notification with Reset, and the server then ends the
/// observation. [`Self::cancel`] ends the observation at once.
pub struct Observation {
    session: Session,
    request: OwnedRequest,
    place: TakenPlace,
    token: [u8; 8],
    /// The values that show if a notification is newer than the earlier notifications, and the time from which the last
    /// representation is no longer fresh.
    state: node::Observation,
    /// The time of the next request with which the client checks that the server still knows the observation.
    alive: Instant,
    first: Option<Response>,
    /// The reception of notifications that the server sends to a group; `None` if it sends them to this client.
    multicast: Option<Multicast>,
    /// The time at which the client confirms to the server that it still takes part in the group observation.
    confirm: Instant,
    /// The digest of the last representation that the server sent.
    last: [u8; 32],
    /// The value of [`Session::reconnects`] when the observation was registered.
    since: u32,
}

impl Observation {
    pub(super) async fn begin(session: &Session, request: &Request<'_>) -> Result<Self, ClientError> {
        let mut token = [0; 8];
        session.with(|connection| connection.io.environment.crypto.random(&mut token));
        let since = session.reconnects();
        let (place, taken, _) = send(session, request, &token, REGISTER).await?;
        session.with(|connection| connection.entry.observations += 1);
        let (session, request) = (session.clone(), OwnedRequest::of(request));
        let (state, alive) = (unregistered(&session), Instant::NEVER);
        let mut observation = Self {
            session,
            request,
            place,
            token,
            state,
            alive,
            first: None,
            multicast: None,
            confirm: Instant::NEVER,
            last: [0; 32],
            since,
        };
        observation.on_response(&taken.response);
        observation.first = observation.registered(taken).await?;
        observation.last = observation.first.as_ref().map_or([0; 32], digest);
        Ok(observation)
    }

    /// True if the server sends notifications. If it is false, the server answered the registration as a simple GET
    /// request.
    pub fn is_registered(&self) -> bool {
        self.multicast.is_some() || self.state.refresh_at() < Instant::NEVER
    }

    /// True if the server sends the notifications to a group of clients
    /// (draft-ietf-core-observe-multicast-notifications-14).
    pub const fn is_in_group(&self) -> bool {
        self.multicast.is_some()
    }

    /// Returns the time of the next registration.
    fn refresh_at(&self) -> Instant {
        match (&self.multicast, self.state.refresh_at()) {
            (Some(multicast), Instant::AT_ONCE) => multicast.refresh_at(),
            (_, refresh) => refresh,
        }
    }

    /// Returns the number of times that the client replaced an ended session: see [`Session::reconnects`].
    pub fn reconnects(&self) -> u32 {
        self.session.reconnects()
    }

    /// Returns the first response, then each newer representation, and `None` after the last one. A notification that
    /// arrives after a newer notification is skipped. If no notification comes until the representation is no longer
    /// fresh, or for the time in [`ClientRecovery::alive`](super::ClientRecovery::alive), the client registers again.
    /// If the server restarted or cannot be reached, this function waits until the server answers, and registers again
    /// (see [`ClientRecovery::reconnect`](super::ClientRecovery::reconnect)). But a registration that another client
    /// protected with OSCORE is never sent again, because the server would refuse it as a replay.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn next(&mut self) -> Result<Option<Response>, ClientError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            if !self.is_registered() {
                return Ok(None);
            }
            let is_protected = self.request.request().is_protected();
            let until = if is_protected { Instant::NEVER } else { self.refresh_at().min(self.alive) };
            let received = match &mut self.multicast {
                None => self.session.response_until(&self.place, until).await,
                Some(multicast) => Ok(multicast.next(&self.session, until.min(self.confirm)).await),
            };
            if matches!(received, Ok(None)) && self.confirm <= clock::now() {
                self.confirm = Instant::NEVER;
                let part = Part { observe: Some(REGISTER), confirms: true, ..Part::default() };
                self.session.tell(&self.request.request(), part).await;
                continue;
            }
            let (reply, is_refreshed) = match received {
                Ok(Some(reply)) => {
                    match self.on_response(&reply) {
                        Notification::Late => continue,
                        Notification::Last => (self.multicast, self.confirm) = (None, Instant::NEVER),
                        _ => self.confirm_by_chance(&reply),
                    }
                    let taken = Taken::notified(&self.session, &self.request.request(), reply)?;
                    (Some(self.whole(taken).await?), false)
                }
                Ok(None) if is_protected => {
                    let seconds = self.session.config().coap.timeout.as_secs();
                    return Err(ClientError::NoResponse { remote: self.session.remote(), seconds });
                }
                Err(error) if is_protected || !self.session.may_try_again(&error, self.since) => return Err(error),
                Ok(None) | Err(_) => {
                    let was_fresh = clock::now() < self.refresh_at();
                    let (taken, is_new) = self.register_again().await?;
                    (self.registered(taken).await?, was_fresh && !is_new)
                }
            };
            let Some(reply) = reply else { continue };
            let last = std::mem::replace(&mut self.last, digest(&reply));
            // Nothing but a sign of life.
            if is_refreshed && last == self.last && self.is_registered() {
                continue;
            }
            return Ok(Some(reply));
        }
    }

    /// Ends the observation with a deregistration. Returns the response of the server, which contains the current
    /// representation.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn cancel(mut self) -> Result<Response, ClientError> {
        let this = &mut self;
        this.session.with(|connection| connection.forget(this.place.at()));
        let request = this.request.request();
        let part = Part { observe: Some(DEREGISTER), token: Some(&this.token), ..Part::default() };
        this.session.exchange(&request, part).await
    }

    /// Ends an observation that another client registered under OSCORE. `request` is the deregistration, which that
    /// client also protected.
    pub(crate) async fn cancel_with(self, request: Request<'_>) -> Result<Response, ClientError> {
        self.session.with(|connection| connection.forget(self.place.at()));
        let (_, taken, _) = send(&self.session, &request, &self.token, DEREGISTER).await?;
        self.whole(taken).await
    }

    /// Registers again with the same token, so that the server keeps only one entry for the observation. If the session
    /// has ended, registers in a new session. Returns the response, and true if the session is new or if the server
    /// demanded an Echo option.
    async fn register_again(&mut self) -> Result<(Taken, bool), ClientError> {
        self.session.with(|connection| connection.forget(self.place.at()));
        let before = self.since;
        let mut backoff = Backoff::new();
        let (place, taken, is_challenged) = loop {
            if self.session.config().recovery.reconnect && self.session.with(|connection| connection.is_over()) {
                self.session.reconnect(Instant::NEVER).await?;
            }
            self.since = self.session.reconnects();
            match send(&self.session, &self.request.request(), &self.token, REGISTER).await {
                Err(error) if !self.session.may_try_again(&error, self.since) => return Err(error),
                Err(_) if self.session.was_lost(self.since) => {}
                Err(_) => backoff.pause(&self.session).await,
                Ok(registered) => break registered,
            }
        };
        self.place = place;
        // A server that restarted counts from the beginning.
        self.state = unregistered(&self.session);
        self.on_response(&taken.response);
        Ok((taken, is_challenged || self.since > before))
    }

    /// Handles a response, and sets the times at which the client asks the server again. These times are partly random,
    /// so that many clients do not ask at the same time.
    fn on_response(&mut self, reply: &Response) -> Notification {
        let mut random = [0; 1];
        self.session.with(|connection| connection.io.environment.crypto.random(&mut random));
        let [random] = random;
        let now = clock::now();
        let notification = self.state.on_response(now, reply.code, |number| reply.option(number), random);
        if notification != Notification::Late {
            let spread = |alive: Duration| now.after(alive).after(alive.mul_f64(f64::from(random) / 1024.0));
            self.alive = self.session.config().recovery.alive.map_or(Instant::NEVER, spread);
        }
        notification
    }

    /// If a notification to the group has the Feedback-Divider option Q, plans a confirmation with the probability 2^-Q,
    /// after a random part of the leisure (draft-ietf-core-observe-multicast-notifications-14, section 7.2).
    fn confirm_by_chance(&mut self, reply: &Response) {
        let Some(divider) = reply.uint(FEEDBACK_DIVIDER).filter(|_| self.multicast.is_some()) else { return };
        let mut random = [0; 12];
        self.session.with(|connection| connection.io.environment.crypto.random(&mut random));
        let [drawn @ .., wait0, wait1, wait2, wait3] = random;
        let drawn = u64::from_be_bytes(drawn);
        if divider < 64 && drawn & ((1 << divider) - 1) == 0 {
            let part = f64::from(u32::from_be_bytes([wait0, wait1, wait2, wait3])) / f64::from(u32::MAX);
            self.confirm = clock::now().after(DEFAULT_LEISURE.mul_f64(part));
        }
    }

    /// Handles the response to a registration. Returns the representation. If the server sends the notifications to a
    /// group, joins the group, and returns the newest notification; `None` if the server did not send it.
    async fn registered(&mut self, taken: Taken) -> Result<Option<Response>, ClientError> {
        let reply = self.whole(taken).await?;
        let before = self.multicast.take();
        self.confirm = Instant::NEVER;
        if !is_informative(&reply) {
            return Ok(Some(reply));
        }
        let (multicast, latest) = Multicast::join(&self.session, &self.request.request(), &reply, before)?;
        self.state = unregistered(&self.session);
        self.multicast = Some(multicast);
        match latest {
            None => Ok(None),
            Some(latest) => {
                self.on_response(&latest);
                let taken = Taken::notified(&self.session, &self.request.request(), latest)?;
                self.whole(taken).await.map(Some)
            }
        }
    }

    /// Requests the remaining blocks of a response. Returns the whole response.
    async fn whole(&self, taken: Taken) -> Result<Response, ClientError> {
        taken.complete(&self.session, &self.request.request()).await
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.session.with(|connection| connection.entry.observations -= 1);
    }
}

impl<'a> Request<'a, &'a Session> {
    /// Observes the resource (RFC 7641). The observation gives the first response, and a notification after each change
    /// of the representation.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn observe(self) -> Result<Observation, ClientError> {
        self.check()?;
        Observation::begin(self.session, &self.without_session()).await
    }
}

/// Returns the state of an observation that is not registered.
fn unregistered(session: &Session) -> node::Observation {
    match session.with(|connection| connection.oscore().is_some()) {
        true => node::Observation::default().with_oscore(),
        false => node::Observation::default(),
    }
}

/// Sends a registration, or a deregistration, and waits for the response. If the server demands an Echo option (RFC
/// 9175), sends the request again with this option. Returns the handle of the request, the response, and true if the
/// request was sent more than once.
async fn send(
    session: &Session,
    request: &Request<'_>,
    token: &[u8; 8],
    observe: u32,
) -> Result<(TakenPlace, Taken, bool), ClientError> {
    let (mut transfer, mut is_challenged) = (transfer::begin(session, request)?, false);
    loop {
        transfer::draw(session, &mut transfer);
        let part = Part { observe: Some(observe), token: Some(token), transfer: Some(&transfer), ..Part::default() };
        let (place, response) = session.converse(request, part).await?;
        let taken = Taken::new(session, transfer, response)?;
        if !taken.is_before_answer() {
            return Ok((place, taken, is_challenged));
        }
        (transfer, is_challenged) = (taken.transfer, true);
    }
}

/// Returns a digest that identifies a representation.
pub(super) fn digest(reply: &Response) -> [u8; 32] {
    let mut text = vec![reply.code.0];
    text.extend(reply.option(OptionNumber::ETAG).unwrap_or(&[]));
    text.push(0);
    text.extend(&reply.payload);
    sha256(&text)
}
