//! Follows observations at origins. OSCORE protects the registrations of these observations: see
//! [`protected`](super::protected).

use super::Shared;
use super::answer::Answer;
use super::entry::Entry;
use super::failed::Failed;
use super::forwarded::Upstream;
use super::pool::{Origin, Pool};
use super::protected::{Cancellation, Newest};
use crate::client::{Observation, Request};
use crate::contexts::MAX_UNFRAGMENTED_SIZE;
use crate::server::Notifier;
use crate::target::TargetScheme;
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tokio::sync::mpsc;
use tokio::time;

/// The time between two checks whether the client still observes the resource.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A registration that the proxy forwards to an origin.
pub(super) struct Relay {
    pub(super) key: Arc<[u8]>,
    /// The drop of the entry comes before that of `cancellations`. So while the observation has an entry, its task
    /// receives the cancellations.
    pub(super) entry: Entry,
    pub(super) cancellations: mpsc::UnboundedReceiver<Cancellation>,
    /// The path of the resource that the client observes at the proxy.
    pub(super) path: String,
    pub(super) notifier: Notifier,
}

impl Relay {
    /// Follows the observation until the client or the origin ends it. `longest` is the time limit of a response.
    /// Returns the cancellations that were not sent to the origin.
    pub(super) async fn run(
        mut self,
        shared: &Shared,
        pool: &Pool,
        (origin, upstream): (&Origin, &Upstream),
        longest: Duration,
    ) -> Vec<Cancellation> {
        let failed = match self.follow(shared, pool, (origin, upstream), longest).await {
            Ok(()) => Failed::new(Code::GATEWAY_TIMEOUT, "it is observed no more"),
            Err(failed) => failed,
        };
        let waiters = shared.state().protected.end(&self.key);
        self.entry.removed();
        waiters.into_iter().for_each(|responder| responder.send(failed.reply()));
        // A client that still observes learns that it does not any more.
        self.notifier.changed(&self.path);
        std::iter::from_fn(|| self.cancellations.try_recv().ok()).collect()
    }

    async fn follow(
        &mut self,
        shared: &Shared,
        pool: &Pool,
        (origin, upstream): (&Origin, &Upstream),
        longest: Duration,
    ) -> Result<(), Failed> {
        let failed = |error| pool.failed(origin, &error);
        let late = |_| pool.late(origin, longest);
        let TargetScheme::Coap(scheme) = origin.scheme else { return Ok(()) };
        let options = upstream.options();
        let registering = async {
            let session = pool.session(scheme, origin).await?;
            let request = Request::new(upstream.method, "").options(&options).payload(&upstream.payload);
            request.over(&session).observe().await
        };
        let mut observation = time::timeout(longest, registering).await.map_err(late)?.map_err(failed)?;
        let mut look = time::interval(LOOK_EVERY);
        loop {
            let next = tokio::select! {
                next = observation.next() => next.map_err(failed)?,
                cancellation = self.cancellations.recv() => {
                    if let Some(cancellation) = cancellation {
                        let answered = cancel((shared, pool), observation, (origin, &cancellation.upstream), longest).await;
                        shared.state().end_apart(None, answered.is_err());
                        cancellation.entry.removed();
                        cancellation.responder.send(answered.map_or_else(|failed| failed.reply(), |answer| answer.reply(&[], "")));
                    }
                    return Ok(());
                }
                _ = look.tick() => match self.notifier.is_observed(&self.path) || !self.is_answered(shared) {
                    true => continue,
                    false => return Ok(()),
                },
            };
            let Some(mut response) = next else { return Ok(()) };
            if response.payload.len() > MAX_UNFRAGMENTED_SIZE {
                return Err(Failed::new(Code::BAD_GATEWAY, format!("{}: the response is too long", origin.host)));
            }
            let is_last = !observation.is_registered();
            if is_last && response.code.is_success() {
                // The code outside is 2.05 for a notification, and 2.04 for another response (RFC 8613, section 4.2).
                response.code = Code::CHANGED;
            }
            let answer = Answer::new(response, &shared.config.name);
            let answer = Arc::new(answer.map_err(|why| Failed::unusable(&origin.host, &why))?);
            let newest = Newest { answer: answer.clone(), is_last };
            let waiters = shared.state().protected.on_response(&self.key, newest);
            if waiters.is_empty() {
                self.notifier.changed(&self.path);
            }
            waiters.into_iter().for_each(|responder| responder.send(answer.reply(&[], "")));
            // The client is sent the last response before it is forgotten.
            while is_last && self.notifier.is_observed(&self.path) {
                look.tick().await;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// True if the first response has arrived.
    fn is_answered(&self, shared: &Shared) -> bool {
        shared.state().protected.newest(&self.key).is_some()
    }
}

/// Sends `upstream`, the request with which a client cancels `observation`, to the origin. So the observation also ends
/// at the origin. Returns the response of the origin.
async fn cancel(
    (shared, pool): (&Shared, &Pool),
    observation: Observation,
    (origin, upstream): (&Origin, &Upstream),
    longest: Duration,
) -> Result<Answer, Failed> {
    let options = upstream.options();
    let request = Request::new(upstream.method, "").options(&options).payload(&upstream.payload);
    match time::timeout(longest, observation.cancel_with(request)).await {
        Ok(Ok(response)) => {
            let answer = Answer::new(response, &shared.config.name);
            answer.map_err(|why| Failed::unusable(&origin.host, &why))
        }
        Ok(Err(error)) => Err(pool.failed(origin, &error)),
        Err(_) => Err(pool.late(origin, longest)),
    }
}
