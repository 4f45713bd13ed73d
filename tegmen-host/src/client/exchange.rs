//! The exchange of one request and its response, each in one message.

use super::connection::{Connection, Message, Turn};
use super::establish::is_idempotent;
use super::request::{Part, Request};
use super::{ClientError, Response, Session, TakenPlace};
use crate::clock;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::identity::Protection;
use tegmen::time::Instant;

impl Session {
    /// Sends one message and waits for its response.
    pub(super) async fn exchange(&self, request: &Request<'_>, part: Part<'_>) -> Result<Response, ClientError> {
        self.converse(request, part).await.map(|(_, response)| response)
    }

    /// Does the same as [`Self::exchange`]. In addition, returns a handle, with which the caller receives further
    /// responses to the request.
    pub(super) async fn converse(
        &self,
        request: &Request<'_>,
        part: Part<'_>,
    ) -> Result<(TakenPlace, Response), ClientError> {
        let message = Message::Request(request, part);
        let mut is_again = false;
        loop {
            let place = self.place();
            let start = match self.begin(&place, &message).await? {
                Turn::Sent(start) => start,
                Turn::KeysLost => {
                    Box::pin(self.rederive()).await?;
                    continue;
                }
            };
            let answer = self.response_to(&place, start).await;
            let again =
                self.with(|connection| connection.entry.places.get(place.at()).is_some_and(|place| place.again));
            // Nothing protects a refusal: the server may have executed the request all the same.
            let may_repeat = answer.is_ok() || is_idempotent(request.method);
            if is_again || !again || !may_repeat {
                let round_trip = clock::now().since(start);
                return answer.map(|response| (place, Response { round_trip, ..response }));
            }
            is_again = true;
        }
    }

    /// Derives new OSCORE keys, or agrees on new keys by EDHOC. The first message of a derivation, request #1, is a GET
    /// without a payload. Such a request changes nothing, even if the server passes it to its application. Only one
    /// request at a time derives keys. Other requests wait until the derivation has ended.
    pub(super) async fn rederive(&self) -> Result<(), ClientError> {
        let _one = self.0.renewal.lock().await;
        if let Some(keys) = &self.config().edhoc
            && self.config().oscore.is_none()
        {
            return match self.with(|connection| connection.has_lost_keys()) {
                true => Box::pin(self.agree(keys)).await,
                false => Ok(()),
            };
        }
        let is_begun = self.with(|Connection { io, entry }| match io.node.features.oscore.get_mut(entry.key) {
            Some(oscore) if oscore.is_lost() => oscore.begin_rederivation(&mut io.environment.crypto).map(|()| true),
            _ => Ok(false),
        })?;
        if !is_begun {
            return Ok(());
        }
        let place = self.place();
        let request = Request::new(Code::GET, "");
        let answer = match self.begin(&place, &Message::Rederivation(&request)).await? {
            Turn::Sent(start) => self.response_to(&place, start).await.map(drop),
            Turn::KeysLost => Ok(()),
        };
        match self.with(|connection| connection.has_lost_keys()) {
            true => Err(answer.err().unwrap_or(ClientError::NoNewKeys { remote: self.remote() })),
            false => Ok(()),
        }
    }

    /// Waits until the queue and NSTART permit a message, and then sends it. Use this only for a message to which the
    /// server responds.
    pub(super) async fn begin(&self, place: &TakenPlace, message: &Message<'_>) -> Result<Turn, ClientError> {
        let start = clock::now();
        // A message that nobody acknowledges waits for PROBING_RATE, however long that takes.
        let deadline =
            if self.config().coap.confirmable { start.after(self.config().coap.timeout) } else { Instant::NEVER };
        let sent = self.wait(place, deadline, |connection, at| connection.try_send(at, message).transpose()).await;
        let seconds = clock::now().since(start).as_secs();
        sent.unwrap_or_else(|| Err(ClientError::NotSent { remote: self.remote(), seconds }))
    }

    /// Sends a request to which the server sends no response, because the request has the No-Response option (RFC 7967).
    /// The request is not confirmable, and may be lost.
    pub(super) async fn tell(&self, request: &Request<'_>, part: Part<'_>) {
        let part = Part { wants_nothing: true, ..part };
        // When the place is given back, the client stops waiting for a response.
        let _ = self.begin(&self.place(), &Message::Request(request, part)).await;
    }

    /// Sends an empty confirmable message, which the server answers with Reset ("CoAP ping"; RFC 7252, section 4.3).
    /// Returns the round-trip time.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn ping(&self) -> Result<Duration, ClientError> {
        let place = self.place();
        let Turn::Sent(start) = self.begin(&place, &Message::Ping).await? else { return Ok(Duration::ZERO) };
        match self.response_to(&place, start).await {
            Err(ClientError::Reset { .. }) | Ok(_) => Ok(clock::now().since(start)),
            Err(error) => Err(error),
        }
    }

    /// Waits for the response to a request. `place` has the index of the request in the table of waiting requests. The
    /// request was sent at `start`.
    pub(super) async fn response_to(&self, place: &TakenPlace, start: Instant) -> Result<Response, ClientError> {
        let deadline = start.after(self.config().coap.timeout);
        if let Some(response) = self.response_until(place, deadline).await? {
            return Ok(response);
        }
        let remote = self.remote();
        let seconds = clock::now().since(start).as_secs();
        Err(self.with(|connection| {
            connection.forget(place.at());
            let is_untried = connection.entry.kept.as_ref().is_some_and(|kept| kept.untried);
            let ended = |detail: &str| ClientError::Ended { remote, detail: detail.to_owned() };
            match connection.entry.protection {
                Protection::Dtls if connection.is_over() && !is_untried => {
                    ended("it answers nothing: it restarted without its sessions, or cannot be reached")
                }
                Protection::Plain => ClientError::Silence { remote, seconds },
                _ if is_untried => {
                    connection.forget_session();
                    ended("it does not know the session that was kept, which is forgotten now")
                }
                _ => ClientError::NoResponse { remote, seconds },
            }
        }))
    }

    /// Waits for the response to a request, or for the next notification. `place` has the index of the request in the
    /// table of waiting requests. Returns `None` if no response comes until the deadline, or if the server does not
    /// acknowledge the request.
    pub(super) async fn response_until(
        &self,
        place: &TakenPlace,
        deadline: Instant,
    ) -> Result<Option<Response>, ClientError> {
        let arrived = self.wait(place, deadline, |connection, at| connection.arrived(at)).await;
        match arrived.unwrap_or(Ok(None)) {
            Ok(Some(response)) => self.uncut(place, response).await.map(Some),
            other => {
                if other.is_err() {
                    self.with(|connection| connection.forget(place.at()));
                }
                other
            }
        }
    }
}
