//! Observing a resource (RFC 7641), at the client.

use super::connection::Part;
use super::transfer::download;
use super::{Ask, Client, ClientError, Reply};
use crate::clock;
use std::time::Duration;
use tegmen::coap::observe::{DEREGISTER, Order, REGISTER};
use tegmen::coap::{OptionNumber, RequestId};
use tegmen::crypto::Crypto as _;
use tegmen::time::Instant;

/// A resource that is observed. Dropping it forgets it: the server learns of that when it sends the next notification,
/// which is rejected. [`Self::cancel`] tells it at once.
pub struct Observation<'c> {
    client: &'c mut Client,
    ask: Ask<'c>,
    request: RequestId,
    token: [u8; 8],
    order: Option<Order>,
    /// When the representation is too old to be taken for the present one (RFC 7641, section 3.3.1).
    stale: Instant,
    first: Option<Reply>,
}

impl<'c> Observation<'c> {
    pub(super) async fn begin(client: &'c mut Client, ask: &Ask<'c>) -> Result<Self, ClientError> {
        let mut token = [0; 8];
        client.crypto.random(&mut token);
        let mut echo: Option<Vec<u8>> = None;
        let (request, reply) = loop {
            let register = part(&token, REGISTER, ask);
            let (request, reply) = client.converse(ask, Part { echo: echo.as_deref(), ..register }).await?;
            match reply.option(OptionNumber::ECHO) {
                Some(asked) if echo.is_none() && !reply.code.is_success() => echo = Some(asked.to_vec()),
                _ => break (request, reply),
            }
        };
        let number = reply.uint(OptionNumber::OBSERVE).filter(|_| reply.code.is_success());
        let order = number.map(|number| Order::new(number, clock::now()));
        let mut observation =
            Self { client, ask: ask.clone(), request, token, order, stale: Instant::NEVER, first: None };
        let reply = observation.whole(reply).await?;
        observation.first = Some(reply);
        Ok(observation)
    }

    /// True if the server sends notifications: it may have answered as if nothing but a GET had been asked.
    pub const fn is_registered(&self) -> bool {
        self.order.is_some()
    }

    /// The first response, then each newer representation; `None` after the last. Notifications that come late, behind
    /// newer ones, are left out. If the server is silent for longer than its representation is good for, it is asked
    /// again.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn next(&mut self) -> Result<Option<Reply>, ClientError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            if self.order.is_none() {
                return Ok(None);
            }
            let reply = match self.client.response_until(self.request, self.stale).await? {
                Some(reply) => reply,
                None => self.register_again().await?,
            };
            let Some(order) = &mut self.order else { return Ok(None) };
            let now = clock::now();
            match reply.uint(OptionNumber::OBSERVE).filter(|_| reply.code.is_success()) {
                // The last one: an error, or a response that observes nothing.
                None => self.order = None,
                Some(number) if !order.is_newer(number, now) => continue,
                Some(_) => {}
            }
            return self.whole(reply).await.map(Some);
        }
    }

    /// Ends the observation in order; what the server answers is the present representation.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn cancel(mut self) -> Result<Reply, ClientError> {
        let this = &mut self;
        this.client.forget(this.request);
        this.client.exchange(&this.ask, part(&this.token, DEREGISTER, &this.ask)).await
    }

    /// With the same token, so that the server keeps one entry.
    async fn register_again(&mut self) -> Result<Reply, ClientError> {
        self.client.forget(self.request);
        let (request, start) = self.client.begin(&self.ask, part(&self.token, REGISTER, &self.ask)).await?;
        self.request = request;
        let reply = self.client.response_to(request, start.after(self.client.config.timeout)).await?;
        if let Some(number) = reply.uint(OptionNumber::OBSERVE) {
            // A server that restarted counts from the beginning.
            self.order = Some(Order::new(number.wrapping_sub(1), clock::now()));
        }
        Ok(reply)
    }

    /// With the blocks behind the first.
    async fn whole(&mut self, reply: Reply) -> Result<Reply, ClientError> {
        let max_age = Duration::from_secs(reply.uint(OptionNumber::MAX_AGE).unwrap_or(DEFAULT_MAX_AGE).into());
        let mut random = [0; 1];
        self.client.crypto.random(&mut random);
        // Between 5 and 15 seconds more, so that a fleet does not ask at once.
        let spread = Duration::from_millis(5000 + 40 * u64::from(random[0]));
        self.stale = clock::now().after(max_age).after(spread);
        download(self.client, &self.ask, reply).await
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.client.forget(self.request);
    }
}

/// Max-Age of a response that does not say (RFC 7252, section 5.10.5), in seconds.
const DEFAULT_MAX_AGE: u32 = 60;

fn part<'a>(token: &'a [u8], observe: u32, ask: &Ask<'a>) -> Part<'a> {
    Part { payload: ask.payload, observe: Some(observe), token: Some(token), ..Part::default() }
}
