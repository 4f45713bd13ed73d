//! Observing a resource (RFC 7641), at the client.

use super::connection::Part;
use super::establish::Backoff;
use super::transfer::download;
use super::{Client, ClientError, Request, Response};
use crate::clock;
use crate::digest::sha256;
use std::time::Duration;
use tegmen::coap::observe::{DEREGISTER, Order, REGISTER};
use tegmen::coap::{OptionNumber, RequestId};
use tegmen::crypto::Crypto as _;
use tegmen::identity::Protection;
use tegmen::time::Instant;

/// A resource under observation. If it is dropped, the server learns of it when the client rejects the next
/// notification. [`Self::cancel`] tells the server at once.
pub struct Observation<'c> {
    client: &'c mut Client,
    ask: Request<'c>,
    request: RequestId,
    token: [u8; 8],
    order: Option<Order>,
    /// When the representation is too old to be taken for the present one (RFC 7641, section 3.3.1).
    stale: Instant,
    /// When the server is asked for a sign of life.
    alive: Instant,
    first: Option<Response>,
    /// Of the last representation.
    last: [u8; 32],
}

impl<'c> Observation<'c> {
    pub(super) async fn begin(client: &'c mut Client, ask: &Request<'c>) -> Result<Self, ClientError> {
        let mut token = [0; 8];
        client.crypto.random(&mut token);
        let (request, reply, _) = register(client, ask, &token).await?;
        client.finds_silence = true;
        let number = reply.uint(OptionNumber::OBSERVE).filter(|_| reply.code.is_success());
        let order = number.map(|number| Order::new(number, clock::now()));
        let (stale, alive) = (Instant::NEVER, Instant::NEVER);
        let mut observation =
            Self { client, ask: ask.clone(), request, token, order, stale, alive, first: None, last: [0; 32] };
        let reply = observation.whole(reply).await?;
        observation.last = digest(&reply);
        observation.first = Some(reply);
        Ok(observation)
    }

    /// True if the server sends notifications: it may have answered as if nothing but a GET had been asked.
    pub const fn is_registered(&self) -> bool {
        self.order.is_some()
    }

    /// Number of sessions begun in place of others: see [`Client::reconnects`].
    pub const fn reconnects(&self) -> u32 {
        self.client.reconnects()
    }

    /// The first response, then each newer representation; `None` after the last. Notifications that come late, behind
    /// newer ones, are left out. If the server is silent for longer than its representation is good for, or than
    /// [`ClientConfig::alive`](super::ClientConfig::alive), it is asked again. Where a server restarted or cannot be reached,
    /// this waits until it is back and registers again (see [`ClientConfig::reconnect`](super::ClientConfig::reconnect)).
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn next(&mut self) -> Result<Option<Response>, ClientError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            if self.order.is_none() {
                return Ok(None);
            }
            let (reply, is_refreshed) = match self.client.response_until(self.request, self.stale.min(self.alive)).await
            {
                Ok(Some(reply)) => (reply, false),
                Err(error) if !self.client.may_try_again(&error) => return Err(error),
                Ok(None) | Err(_) => {
                    let was_fresh = clock::now() < self.stale;
                    let (reply, is_new) = self.register_again().await?;
                    (reply, was_fresh && !is_new)
                }
            };
            let Some(order) = &mut self.order else { return Ok(None) };
            let now = clock::now();
            match reply.uint(OptionNumber::OBSERVE).filter(|_| reply.code.is_success()) {
                // The last one: an error, or a response that observes nothing.
                None => self.order = None,
                Some(number) if !order.is_newer(number, now) => continue,
                Some(_) => {}
            }
            let reply = self.whole(reply).await?;
            let last = std::mem::replace(&mut self.last, digest(&reply));
            // Nothing but a sign of life.
            if is_refreshed && last == self.last && self.order.is_some() {
                continue;
            }
            return Ok(Some(reply));
        }
    }

    /// Ends the observation in order; what the server answers is the present representation.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn cancel(mut self) -> Result<Response, ClientError> {
        let this = &mut self;
        this.client.forget(this.request);
        this.client.exchange(&this.ask, part(&this.token, DEREGISTER, &this.ask)).await
    }

    /// With the same token, so that the server keeps one entry; in another session if the one before is over. True if the
    /// server did not know us as it did before.
    async fn register_again(&mut self) -> Result<(Response, bool), ClientError> {
        self.client.forget(self.request);
        let reconnects = self.client.reconnects;
        let mut backoff = Backoff::new();
        let (request, reply, is_challenged) = loop {
            if self.client.config.reconnect && self.client.is_over() {
                self.client.reconnect(Instant::NEVER).await?;
            }
            match register(self.client, &self.ask, &self.token).await {
                Err(error) if !self.client.may_try_again(&error) => return Err(error),
                Err(_) if self.client.is_over() => {}
                Err(_) => backoff.pause(&mut self.client.crypto).await,
                Ok(registered) => break registered,
            }
        };
        self.request = request;
        if let Some(number) = reply.uint(OptionNumber::OBSERVE) {
            // A server that restarted counts from the beginning.
            self.order = Some(Order::new(number.wrapping_sub(1), clock::now()));
        }
        Ok((reply, is_challenged || self.client.reconnects > reconnects))
    }

    /// With the blocks behind the first.
    async fn whole(&mut self, reply: Response) -> Result<Response, ClientError> {
        let max_age = Duration::from_secs(reply.uint(OptionNumber::MAX_AGE).unwrap_or(DEFAULT_MAX_AGE).into());
        let mut random = [0; 1];
        self.client.crypto.random(&mut random);
        // Between 5 and 15 seconds more, so that a fleet does not ask at once.
        let spread = Duration::from_millis(5000 + 40 * u64::from(random[0]));
        let now = clock::now();
        self.stale = now.after(max_age).after(spread);
        self.alive = self
            .client
            .config
            .alive
            .map_or(Instant::NEVER, |alive| now.after(alive).after(alive.mul_f64(f64::from(random[0]) / 1024.0)));
        download(self.client, &self.ask, reply).await
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.client.forget(self.request);
        self.client.finds_silence = self.client.protection == Protection::Dtls;
    }
}

/// Max-Age of a response that does not say (RFC 7252, section 5.10.5), in seconds.
const DEFAULT_MAX_AGE: u32 = 60;

/// Registers; a server that wants proof of our address or of freshness gets it (RFC 9175). True if it wanted it.
async fn register(
    client: &mut Client,
    ask: &Request<'_>,
    token: &[u8; 8],
) -> Result<(RequestId, Response, bool), ClientError> {
    let mut echo: Option<Vec<u8>> = None;
    loop {
        let register = part(token, REGISTER, ask);
        let (request, reply) = client.converse(ask, Part { echo: echo.as_deref(), ..register }).await?;
        match reply.option(OptionNumber::ECHO) {
            Some(asked) if echo.is_none() && !reply.code.is_success() => echo = Some(asked.to_vec()),
            _ => return Ok((request, reply, echo.is_some())),
        }
    }
}

/// Identifies a representation.
fn digest(reply: &Response) -> [u8; 32] {
    let mut text = vec![reply.code.0];
    text.extend(reply.option(OptionNumber::ETAG).unwrap_or(&[]));
    text.push(0);
    text.extend(&reply.payload);
    sha256(&text)
}

fn part<'a>(token: &'a [u8], observe: u32, ask: &Request<'a>) -> Part<'a> {
    Part { payload: ask.payload, observe: Some(observe), token: Some(token), ..Part::default() }
}
