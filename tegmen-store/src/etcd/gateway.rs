//! HTTP requests to the members of a cluster. If a member fails, the gateway sends the request to the next member.

use super::address::Address;
use super::wire::{Refusal, Streamed};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum time to open a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// Maximum time to wait for the answer to a request that may be sent again.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Maximum time for one call of the gateway, including all attempts to send the request.
const CALL: Duration = Duration::from_secs(5);
/// If a connection had no request for this time, the gateway does not use it again.
const IDLE: Duration = Duration::from_secs(5);
/// The pause after all members failed to answer a request. After the pause the gateway tries all members again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of requests at the same time; further requests wait.
const AT_ONCE: usize = 64;
/// Maximum number of bytes of a response, and of a message in a stream.
const LONGEST: usize = 256 << 20;
/// The gRPC status CANCELLED. With this status etcd reports that the result of a request is unknown.
const CANCELLED: u32 = 1;
const DEADLINE: u32 = 4;
const UNAVAILABLE: u32 = 14;

/// The reason why a call has no result.
pub(super) enum Fault {
    /// No member executed the request.
    NotDone(String),
    /// It is unknown if a member executed the request.
    Unknown(String),
    /// etcd refused the request.
    Refused(String),
}

impl Fault {
    fn not_done(member: &str, why: impl fmt::Display) -> Self {
        Self::NotDone(format!("{member}: {why}"))
    }

    fn unknown(member: &str, why: impl fmt::Display) -> Self {
        Self::Unknown(format!("{member}: {why}"))
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// The members of a cluster, and the connections to them.
pub(super) struct Gateway {
    members: Vec<String>,
    /// The index of the member to which the gateway sends each request first. When this member fails, the index of the
    /// next member in `members` replaces it.
    first: AtomicUsize,
    /// Open connections on which no request waits for an answer. Each entry has the index of the member, the time of
    /// the last answer, and the connection.
    idle: Mutex<Vec<(usize, Instant, Connection)>>,
    places: Semaphore,
}

impl Gateway {
    pub(super) fn new(address: &Address) -> Self {
        Self {
            members: address.members.clone(),
            first: AtomicUsize::new(0),
            idle: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Sends a request to the members in turn until one answers. If `may_repeat` is false, the request is sent again
    /// only if the previous member certainly did not execute it.
    pub(super) async fn call<R: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        may_repeat: bool,
    ) -> Result<R, Fault> {
        let body = Bytes::from(serde_json::to_vec(request).map_err(|error| Fault::NotDone(error.to_string()))?);
        let end = Instant::now() + CALL;
        let Ok(Ok(_place)) = timeout_at(end, self.places.acquire()).await else {
            return Err(Fault::NotDone("too many requests wait".to_owned()));
        };
        let first = self.first.load(Ordering::Relaxed);
        let mut last = Fault::NotDone("there is no member".to_owned());
        for turn in 0.. {
            let member = (first + turn) % self.members.len().max(1);
            let until = if may_repeat { end.min(Instant::now() + ATTEMPT) } else { end };
            last = match self.ask(member, path, body.clone(), until).await {
                Ok(answer) => {
                    self.first.store(member, Ordering::Relaxed);
                    return serde_json::from_slice(&answer).map_err(|error| Fault::unknown(self.name(member), error));
                }
                Err(fault @ Fault::Refused(_)) => return Err(fault),
                Err(fault) => fault,
            };
            self.leave(member);
            if matches!(last, Fault::Unknown(_)) && !may_repeat {
                break;
            }
            let is_round = (turn + 1).is_multiple_of(self.members.len());
            if is_round && turn + 1 >= ROUNDS * self.members.len() || Instant::now() >= end {
                break;
            }
            if is_round {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(last)
    }

    /// Opens a stream of messages at a member. `turn` selects the member: 0 is the member to which requests are sent
    /// first, 1 is the next member, and so on.
    pub(super) async fn stream(&self, turn: usize, path: &str, request: &impl Serialize) -> Result<Stream, Fault> {
        let body = Bytes::from(serde_json::to_vec(request).map_err(|error| Fault::NotDone(error.to_string()))?);
        let member = (self.first.load(Ordering::Relaxed) + turn) % self.members.len().max(1);
        let sent = self.send(member, path, body, Instant::now() + ATTEMPT).await;
        let (_, response) = sent.inspect_err(|_| self.forget(member))?;
        if !response.status().is_success() {
            return Err(Fault::not_done(self.name(member), response.status()));
        }
        let name = self.name(member).to_owned();
        Ok(Stream { member, name, body: response.into_body(), received: Vec::new() })
    }

    /// Handles a failure of `member`. If the gateway sends each request to `member` first, it sends each request to the
    /// next member first from now on. Closes the idle connections to `member`.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len().max(1);
        // Another call may have left it already.
        if self.first.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::debug!("etcd: {} does not answer, and {} is asked first", self.name(member), self.name(next));
        }
        self.forget(member);
    }

    /// Closes the idle connections to this member, because the network may have cut them. A request on a cut connection
    /// would wait for a retransmission of TCP, even after the member is reachable again.
    pub(super) fn forget(&self, member: usize) {
        self.idle().retain(|(of, ..)| *of != member);
    }

    /// Returns the number of members.
    pub(super) const fn members(&self) -> usize {
        self.members.len()
    }

    fn name(&self, member: usize) -> &str {
        self.members.get(member).map_or("", String::as_str)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(usize, Instant, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, member: usize, path: &str, body: Bytes, until: Instant) -> Result<Bytes, Fault> {
        let unknown = |why: &dyn fmt::Display| Fault::unknown(self.name(member), why);
        let (connection, response) = self.send(member, path, body, until).await?;
        let status = response.status();
        let body = timeout_at(until, Limited::new(response.into_body(), LONGEST).collect()).await;
        let body = body.map_err(|_| unknown(&"no answer"))?.map_err(|error| unknown(&error))?.to_bytes();
        self.idle().push((member, Instant::now(), connection));
        if status.is_success() {
            return Ok(body);
        }
        let Ok(Refusal { error, code }) = serde_json::from_slice(&body) else { return Err(unknown(&status)) };
        Err(match code {
            UNAVAILABLE if error.ends_with("no leader") => Fault::not_done(self.name(member), error),
            CANCELLED | DEADLINE | UNAVAILABLE => unknown(&error),
            _ => Fault::Refused(error),
        })
    }

    /// Sends a request to a member. Returns the header of the response, with a body that is not read yet.
    async fn send(
        &self,
        member: usize,
        path: &str,
        body: Bytes,
        until: Instant,
    ) -> Result<(Connection, Response<Incoming>), Fault> {
        let name = self.name(member);
        loop {
            let (mut connection, is_new) = match self.reuse(member) {
                Some(connection) => (connection, false),
                None => (self.connect(name).await?, true),
            };
            let request =
                Request::post(path).header(header::HOST, name).header(header::CONTENT_TYPE, "application/json");
            // etcd ends a stream at a member that has lost its leader.
            let request = request.header("Grpc-Metadata-hasleader", "true").body(Full::new(body.clone()));
            let request = request.map_err(|error| Fault::not_done(name, error))?;
            match timeout_at(until, connection.try_send_request(request)).await {
                Ok(Ok(response)) => return Ok((connection, response)),
                // It was closed before it took the request.
                Ok(Err(error)) if error.message().is_some() && !is_new => {}
                Ok(Err(error)) if error.message().is_some() => return Err(Fault::not_done(name, error.error())),
                Ok(Err(error)) => return Err(Fault::unknown(name, error.error())),
                Err(_) => return Err(Fault::unknown(name, "no answer")),
            }
        }
    }

    fn reuse(&self, member: usize) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|(_, since, connection)| since.elapsed() < IDLE && !connection.is_closed());
        let at = idle.iter().rposition(|(of, _, connection)| *of == member && connection.is_ready())?;
        Some(idle.swap_remove(at).2)
    }

    async fn connect(&self, name: &str) -> Result<Connection, Fault> {
        let not_done = |why: &dyn fmt::Display| Fault::not_done(name, why);
        let stream = timeout(CONNECT, TcpStream::connect(name)).await.map_err(|_| not_done(&"no answer"))?;
        let stream = stream.map_err(|error| not_done(&error))?;
        stream.set_nodelay(true).map_err(|error| not_done(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| not_done(&error))?;
        // Its errors are those of the request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// The messages of one response, each on a separate line.
pub(super) struct Stream {
    pub(super) member: usize,
    name: String,
    body: Incoming,
    received: Vec<u8>,
}

impl Stream {
    /// Returns the next message. Fails if no complete message arrives within the time `within`.
    pub(super) async fn next<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, Fault> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let message: Streamed<T> =
                    serde_json::from_slice(&line).map_err(|error| Fault::unknown(&self.name, error))?;
                let why = message.error.map_or_else(|| "it ended".to_owned(), |error| error.message);
                return message.result.ok_or_else(|| Fault::unknown(&self.name, why));
            }
            if self.received.len() > LONGEST {
                return Err(Fault::unknown(&self.name, "a message is too long"));
            }
            let frame = timeout(within, self.body.frame()).await;
            let frame = frame.map_err(|_| Fault::unknown(&self.name, "no message"))?;
            let frame = frame.ok_or_else(|| Fault::unknown(&self.name, "the stream ended"))?;
            let frame = frame.map_err(|error| Fault::unknown(&self.name, error))?;
            if let Ok(data) = frame.into_data() {
                self.received.extend_from_slice(&data);
            }
        }
    }
}

/// The number of attempts at each member before a call fails.
const ROUNDS: usize = 2;
