//! The task of a proxy that sends requests to origins. It runs in the thread of the shard that sent its first job. So
//! if a server has one shard, a request that the cache cannot answer stays in one thread.

use super::Shared;
use super::answer::Answer;
use super::entry::Entry;
use super::failed::Failed;
use super::forwarded::Upstream;
use super::memory::Owner;
use super::pool::{Origin, Pool};
use super::protected::Cancellation;
use super::relay::Relay;
use super::state::Waiter;
use crate::client;
use crate::clock;
use crate::server::{Notifier, Responder};
use crate::target::TargetScheme;
use crate::uri::Scheme;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::coap::cache;
use tokio::sync::Notify;
use tokio::sync::mpsc;

/// The time limit of a response with all its blocks. It is less than the time that a server allows an application
/// ([`ServerCoap::response_timeout`](crate::server::ServerCoap::response_timeout)).
const LONGEST: Duration = Duration::from_secs(100);
/// The time between two checks whether a client still observes a resource.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The maximum number of workers that wait for a job.
const MOST_IDLE: usize = 256;
/// The minimum time between two requests for a resource whose origin permits no observation.
const SHORTEST_POLL: Duration = Duration::from_secs(5);

/// A request, its origin, and the purpose of its response.
pub(super) struct Job {
    pub(super) origin: Origin,
    pub(super) upstream: Upstream,
    pub(super) purpose: Purpose,
}

/// The purpose of a response, with the entry of the job in the state of the proxy.
pub(super) enum Purpose {
    /// The response is for all clients that wait for it, and for the cache.
    Fetch { id: u64, key: Arc<[u8]>, resource: usize, owner: Owner, entry: Entry },
    /// The response is the first response of an observation at the origin, for all clients that wait for it. The
    /// notifications that follow are for the cache, and for the observers of a path.
    Watch { key: Arc<[u8]>, resource: usize, owner: Owner, observers: (String, Notifier), entry: Entry },
    /// The response is only for one client. The request may make stored responses for the resource invalid. `prefix` is
    /// the path of the origin at the proxy.
    Pass { responder: Responder, resource: Vec<u8>, prefix: String, entry: Entry },
    /// The response is the first response of an observation. OSCORE protects the registration of this observation.
    Relay(Relay),
}

/// The channel to the task that executes jobs. Clones refer to the same task.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Option<mpsc::UnboundedSender<Job>>>>);

impl Jobs {
    /// Sends a job to the task. If there is no task, starts one in the runtime of the calling shard. There is no task
    /// before the first job, and after the server of the task has ended.
    pub(super) fn send(&self, shared: &Arc<Shared>, job: Job) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (to_task, received) = match jobs.take() {
            Some(to_task) => (to_task, None),
            None => {
                let (to_task, received) = mpsc::unbounded_channel();
                (to_task, Some(Received { jobs: received, sender: Arc::downgrade(&self.0) }))
            }
        };
        // The receiver exists: see the drop of `Received`.
        let _ = to_task.send(job);
        *jobs = Some(to_task);
        drop(jobs);
        if let Some(received) = received {
            tokio::spawn(run(shared.clone(), received));
        }
    }
}

/// The jobs that the task receives.
struct Received {
    jobs: mpsc::UnboundedReceiver<Job>,
    /// The sender of these jobs.
    sender: Weak<Mutex<Option<mpsc::UnboundedSender<Job>>>>,
}

impl Drop for Received {
    /// Removes the sender before the receiver is dropped, so that no job is sent to a task that has ended.
    fn drop(&mut self) {
        if let Some(sender) = self.sender.upgrade() {
            sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

/// Passes the jobs to workers until all senders of jobs are dropped, or until the server of the task ends.
async fn run(shared: Arc<Shared>, mut received: Received) {
    let workers =
        Arc::new(Workers { pool: Pool::new(&shared.config), shared, queue: Mutex::default(), arrived: Notify::new() });
    while let Some(job) = received.jobs.recv().await {
        workers.give(job);
    }
    workers.queue().is_over = true;
    workers.arrived.notify_waiters();
}

/// The tasks that execute jobs, each one job at a time. A task executes many jobs, because a new task for each job would
/// need new memory.
struct Workers {
    shared: Arc<Shared>,
    pool: Pool,
    queue: Mutex<Queue>,
    /// Wakes an idle worker.
    arrived: Notify,
}

/// The jobs that no worker has taken yet.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The number of workers that wait for a job, without those that are being woken.
    idle: usize,
    /// True if no job comes any more.
    is_over: bool,
}

impl Workers {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes an idle worker for a job. If all workers are busy, starts a new one.
    fn give(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue();
        queue.jobs.push_back(job);
        match queue.idle.checked_sub(1) {
            Some(idle) => {
                queue.idle = idle;
                self.arrived.notify_last();
            }
            None => drop(tokio::spawn(self.clone().work())),
        }
    }

    /// Executes jobs until no job comes any more, or until enough other workers are idle.
    async fn work(self: Arc<Self>) {
        loop {
            let next = {
                let mut queue = self.queue();
                let next = queue.jobs.pop_front();
                if next.is_none() && (queue.is_over || queue.idle >= MOST_IDLE) {
                    return;
                }
                queue.idle += usize::from(next.is_none());
                next
            };
            match next {
                Some(job) => job.execute(&self.shared, &self.pool).await,
                None => self.arrived.notified().await,
            }
        }
    }
}

impl Job {
    async fn execute(self, shared: &Shared, pool: &Pool) {
        let Self { origin, upstream, purpose } = self;
        // A worker has the memory for its largest future, so the rare futures are in boxes.
        match purpose {
            Purpose::Fetch { id, key, resource, owner, entry } => {
                fetch(shared, pool, (&origin, upstream), (id, &key, resource), (owner, entry)).await;
            }
            Purpose::Watch { key, resource, owner, observers, entry } => {
                Box::pin(watch(shared, pool, (&origin, &upstream), (&key, resource), (owner, entry), &observers)).await;
            }
            Purpose::Pass { responder, resource, prefix, entry } => {
                pass(shared, pool, (&origin, &upstream), (responder, entry), (&resource, &prefix)).await;
            }
            Purpose::Relay(relay) => {
                let relayed = Box::pin(relay.run(shared, pool, (&origin, &upstream), LONGEST)).await;
                for Cancellation { upstream, responder, entry } in relayed {
                    pass(shared, pool, (&origin, &upstream), (responder, entry), (&[], "")).await;
                }
            }
        }
    }
}

/// Requests a response from an origin for one client.
async fn pass(
    shared: &Shared,
    pool: &Pool,
    (origin, upstream): (&Origin, &Upstream),
    (responder, entry): (Responder, Entry),
    (resource, prefix): (&[u8], &str),
) {
    let answered = ask(shared, pool, origin, upstream).await;
    let code = answered.as_ref().map_or_else(|failed| failed.code, Answer::code);
    let changed = cache::changes(upstream.method, code).then_some(resource);
    shared.state().end_apart(changed, answered.is_err());
    entry.removed();
    responder.send(match answered {
        Ok(answer) => answer.reply(&[], prefix),
        Err(failed) => failed.reply(),
    });
}

/// Fetches a response that the cache may store. Sends the request to the origin, and the response to all clients that
/// wait for it.
async fn fetch(
    shared: &Shared,
    pool: &Pool,
    (origin, mut upstream): (&Origin, Upstream),
    (id, key, resource): (u64, &[u8], usize),
    (owner, entry): (Owner, Entry),
) {
    let mut answered = ask(shared, pool, origin, &upstream).await;
    if let Ok(valid) = &answered
        && valid.code() == Code::VALID
        && let Some(etag) = upstream.etag.take()
    {
        let revalidated = shared.state().revalidate(clock::now(), id, (key, resource), owner, (&etag, valid));
        if let Some((answer, waiters)) = revalidated {
            entry.removed();
            waiters.into_iter().for_each(|waiter| waiter.responder.send(answer.reply(&waiter.known, "")));
            return;
        }
        // The response has left the cache meanwhile.
        answered = Box::pin(ask(shared, pool, origin, &upstream)).await;
    }
    if answered.as_ref().is_ok_and(|answer| answer.code() == Code::VALID) {
        let cause = format!("{} answered 2.03 to a request without ETag", origin.host);
        answered = Err(Failed { code: Code::BAD_GATEWAY, cause });
    }
    let waiters = shared.state().end(clock::now(), id, (key, resource), owner, answered.as_ref().ok());
    entry.removed();
    for Waiter { responder, known } in waiters {
        responder.send(match &answered {
            Ok(answer) => answer.reply(&known, ""),
            Err(failed) => failed.reply(),
        });
    }
}

/// Observes a resource at its origin while a client of the proxy observes it. If the origin permits no observation,
/// requests the resource again each time the response is no longer fresh.
async fn watch(
    shared: &Shared,
    pool: &Pool,
    (origin, upstream): (&Origin, &Upstream),
    (key, resource): (&[u8], usize),
    (owner, entry): (Owner, Entry),
    (path, notifier): &(String, Notifier),
) {
    let failed = loop {
        let (code, cause) =
            match follow(shared, pool, (origin, upstream), (key, resource), owner, (path, notifier)).await {
                Ok(None) => break None,
                Ok(Some(max_age)) => {
                    tokio::time::sleep(max_age.max(SHORTEST_POLL)).await;
                    if notifier.is_observed(path) {
                        continue;
                    }
                    break None;
                }
                Err(Failed { code, cause }) => (code, cause),
            };
        break Some(Failed { code, cause });
    };
    let waiters = shared.state().end_watch(key);
    entry.removed();
    let failed =
        failed.unwrap_or_else(|| Failed { code: Code::GATEWAY_TIMEOUT, cause: "it is observed no more".to_owned() });
    waiters.into_iter().for_each(|waiter| waiter.responder.send(failed.reply()));
    // Those who observe still learn that they do not any more.
    notifier.changed(path);
}

/// Follows one observation. Returns `None` when no client of the proxy observes the resource any more. Returns the
/// Max-Age of the last response if the origin ended the observation or did not begin an observation.
async fn follow(
    shared: &Shared,
    pool: &Pool,
    (origin, upstream): (&Origin, &Upstream),
    (key, resource): (&[u8], usize),
    owner: Owner,
    (path, notifier): (&str, &Notifier),
) -> Result<Option<Duration>, Failed> {
    let Upstream { method, payload, .. } = upstream;
    let options = upstream.options();
    let TargetScheme::Coap(scheme) = origin.scheme else { return Ok(None) };
    let failed = |error| pool.failed(origin, &error);
    let session = pool.session(scheme, origin).await.map_err(failed)?;
    let request = client::Request::new(*method, "").options(&options).payload(payload).over(&session);
    let mut observation = request.observe().await.map_err(failed)?;
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut max_age = Duration::ZERO;
    loop {
        let next = tokio::select! {
            next = observation.next() => next.map_err(failed)?,
            _ = look.tick() => match max_age.is_zero() || notifier.is_observed(path) {
                true => continue,
                false => {
                    // The origin may be gone.
                    let _ = observation.cancel().await;
                    return Ok(None);
                }
            },
        };
        let Some(response) = next else { return Ok(Some(max_age)) };
        let answer = Answer::new(response, &shared.config.name).map_err(|why| Failed::unusable(&origin.host, &why))?;
        let waiters = shared.state().on_notification(clock::now(), (key, resource), owner, &answer);
        if waiters.is_empty() {
            notifier.changed(path);
        }
        waiters.into_iter().for_each(|waiter| waiter.responder.send(answer.reply(&waiter.known, "")));
        max_age = answer.max_age().max(Duration::from_secs(1));
        if !answer.code().is_success() {
            return Err(Failed { code: answer.code(), cause: format!("{}: the observation ended", origin.host) });
        }
    }
}

/// Sends a request to an origin, and returns its response.
async fn ask(shared: &Shared, pool: &Pool, origin: &Origin, upstream: &Upstream) -> Result<Answer, Failed> {
    let asking = async {
        match origin.scheme {
            TargetScheme::Coap(scheme) => ask_coap(shared, pool, (scheme, origin), upstream).await,
            TargetScheme::Http | TargetScheme::Https => Box::pin(ask_http(shared, origin, upstream)).await,
        }
    };
    match tokio::time::timeout(LONGEST, asking).await {
        Ok(answered) => answered,
        Err(_) => Err(pool.late(origin, LONGEST)),
    }
}

async fn ask_coap(
    shared: &Shared,
    pool: &Pool,
    (scheme, origin): (Scheme, &Origin),
    upstream: &Upstream,
) -> Result<Answer, Failed> {
    let Upstream { method, payload, .. } = upstream;
    let options = upstream.options();
    let asking = async {
        let session = pool.session(scheme, origin).await?;
        client::Request::new(*method, "").options(&options).payload(payload).over(&session).sent().await
    };
    match asking.await {
        Ok(response) => Answer::new(response, &shared.config.name).map_err(|why| Failed::unusable(&origin.host, &why)),
        Err(error) => Err(pool.failed(origin, &error)),
    }
}

#[cfg(feature = "http")]
async fn ask_http(shared: &Shared, origin: &Origin, upstream: &Upstream) -> Result<Answer, Failed> {
    use super::http::origin::{Answered, Asked, Site};
    let Upstream { method, payload, .. } = upstream;
    let options = upstream.options();
    let asked = Asked { method: *method, options: &options, payload };
    let site = Site { host: &origin.host, port: origin.port, is_secure: origin.scheme == TargetScheme::Https };
    let Answered { code, options, payload } = shared.http.ask(&site, &asked).await?;
    let options = || options.iter().map(|(number, value)| (*number, value.as_slice()));
    Answer::of(code, options, payload, &shared.config.name).map_err(|why| Failed::unusable(&origin.host, &why))
}

/// Returns an error, for builds without the feature `http`. In such a build no target has the scheme `http` or `https`.
#[cfg(not(feature = "http"))]
async fn ask_http(_: &Shared, origin: &Origin, _: &Upstream) -> Result<Answer, Failed> {
    Err(Failed::new(Code::PROXYING_NOT_SUPPORTED, format!("{}: HTTP is not spoken here", origin.host)))
}

#[cfg(test)]
mod tests;
