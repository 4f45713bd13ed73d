//! Server-sent events: the changes of the store.
//!
//! An event contains all changes of one transaction of the store, and its `id` is the revision of the transaction. A
//! client that connects again sends the id of the last complete event as `Last-Event-ID`. So it misses no event, and
//! gets no event twice. The server keeps no queue for a client. It reads further events from the store after the client
//! has read the sent events.

use crate::api::{Api, STREAMS};
use crate::groups::messages::{ShownConfig, ShownMember};
use crate::keys::{self, Listed};
use crate::messages::ShownDevice;
use crate::parts::{Sender, Since};
use crate::problem::{Code, Problem};
use crate::reply::Streamed;
use crate::scope::Scope;
use axum::response::sse::Event;
use futures_util::stream::unfold;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tegmen_base::hex::to_hex;
use tegmen_control::group::GroupHappened;
use tegmen_control::state::Happened;
use tegmen_store::store::answer::Answer;
use tegmen_store::store::{Changed, Changes};
use tegmen_store::{Revision, Store, StoreError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// The time without an event after which the server sends a comment, to show that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum duration of a stream. After this time the client connects again, and authenticates itself again.
const LONGEST: Duration = Duration::from_secs(3600);
/// Number of changes that the server reads from the store at once. The server reads a few more changes if this limit
/// would divide the changes of one revision. The rows of all these changes together have at most 5 MiB.
const MOST: usize = 64;

/// The changes of one transaction. It is the data of an event of the type `changes`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Changes")]
pub(crate) struct Batch {
    /// The revision of the transaction, which is also the ID of the event.
    revision: u64,
    changes: Vec<Change>,
}

/// One change.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "change", rename_all = "kebab-case")]
enum Change {
    /// A device was added.
    DeviceAdded { device: ShownDevice },
    /// A device was changed. The field `device` contains the device after the change.
    DeviceChanged { device: ShownDevice },
    /// The device of this name was removed.
    DeviceRemoved { name: String },
    /// A policy was applied. The field `at` is the time of this change, in seconds since 1970.
    PolicyApplied { file: String, by: String, at: u64 },
    /// A session identity was accepted. The server remembers it until the time `until`, in seconds since 1970.
    SessionAccepted { session: String, subscriber: String, until: u64 },
    /// A token was revoked. The fields have the same meaning as in the body of POST /v1/revocations.
    TokenRevoked { hash: String, expires: u64, concerned: Vec<String> },
    /// A revoked token expired, and was removed from the list.
    RevocationExpired { hash: String },
    /// An API key was created.
    KeyCreated { key: Listed },
    /// The API key of this ID was deleted.
    KeyDeleted { id: String },
    /// A group was created, in epoch 1.
    GroupCreated { group: String, config: ShownConfig },
    /// A group was deleted.
    GroupDeleted { group: String },
    /// A member was admitted to a group, or got new secrets.
    MemberAdmitted { group: String, member: ShownMember },
    /// The member of this name left a group or was evicted.
    MemberLeft { group: String, name: String },
    /// The epoch `epoch` of a group began. After it, the group can have `epochs_left` more epochs.
    EpochBegan { group: String, epoch: u16, epochs_left: u16 },
}

impl From<GroupHappened> for Change {
    fn from(happened: GroupHappened) -> Self {
        match happened {
            GroupHappened::Created { group, config } => Self::GroupCreated { group, config: (&config).into() },
            GroupHappened::Deleted { group } => Self::GroupDeleted { group },
            GroupHappened::Admitted { group, name, member } => {
                Self::MemberAdmitted { group, member: ShownMember::of(&name, &member) }
            }
            GroupHappened::Left { group, name } => Self::MemberLeft { group, name },
            GroupHappened::Epoch { group, epoch, epochs_left } => Self::EpochBegan { group, epoch, epochs_left },
        }
    }
}

impl Change {
    fn of(change: &Changed) -> Vec<Self> {
        if let Some((id, key)) = keys::changed(change) {
            return vec![key.map_or(Self::KeyDeleted { id }, |key| Self::KeyCreated { key })];
        }
        Happened::of(change).into_iter().map(Self::from).collect()
    }
}

impl From<Happened> for Change {
    fn from(happened: Happened) -> Self {
        match happened {
            Happened::DeviceAdded(device) => Self::DeviceAdded { device: (&device).into() },
            Happened::DeviceChanged(device) => Self::DeviceChanged { device: (&device).into() },
            Happened::DeviceRemoved(name) => Self::DeviceRemoved { name },
            Happened::PolicyApplied { file, by, at } => Self::PolicyApplied { file, by, at },
            Happened::SessionAccepted { identity, subscriber, until } => {
                Self::SessionAccepted { session: identity, subscriber, until }
            }
            Happened::TokenRevoked { hash, expires, concerned } => {
                Self::TokenRevoked { hash: to_hex(&hash), expires, concerned }
            }
            Happened::RevocationExpired(hash) => Self::RevocationExpired { hash: to_hex(&hash) },
        }
    }
}

impl Batch {
    /// Returns the events for changes, in the order of their revisions.
    fn all(changes: &[Changed]) -> VecDeque<Event> {
        let mut batches: VecDeque<Self> = VecDeque::new();
        for revision in changes.chunk_by(|one, next| one.revision == next.revision) {
            let mut known: Vec<Change> = revision.iter().flat_map(Change::of).collect();
            known.extend(GroupHappened::of(revision).into_iter().map(Change::from));
            let number = revision.first().map(|change| change.revision.0).filter(|_| !known.is_empty());
            batches.extend(number.map(|revision| Self { revision, changes: known }));
        }
        batches.iter().map(Self::event).collect()
    }

    fn event(&self) -> Event {
        // JSON has no line feed.
        let data = serde_json::to_string(self).unwrap_or_default();
        Event::default().event("changes").id(self.revision.to_string()).data(data)
    }
}

/// The reason why a stream ends. It is the data of an event of the type `end`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct End<'e> {
    /// A word for programs that stays the same in later versions: `resume`, or the code of a refusal.
    code: &'e str,
    /// The cause and the next step, for people.
    detail: &'e str,
}

/// The stream of one client.
struct Follower<S> {
    api: Arc<Api<S>>,
    by: Sender,
    after: Revision,
    pending: Answer<Changes>,
    ready: VecDeque<Event>,
    /// The time at which a comment is sent, if no event is sent before.
    mark_at: Instant,
    until: Instant,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl<S: Store> Follower<S> {
    /// Waits for the next event. Returns the event, and the rest of the stream; `None` after the last event.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        while self.ready.is_empty() {
            match timeout_at(self.mark_at, &mut self.pending).await {
                Ok(Ok(changes)) => {
                    self.after = changes.through;
                    self.ready = Batch::all(&changes.changes);
                    self.pending = self.api.store.changes(b"", self.after, MOST);
                }
                Ok(Err(error)) => return Some(self.refuse(&refused(error))),
                Err(_) => {}
            }
            if Instant::now() >= self.mark_at && self.ready.is_empty() {
                self.ready.push_back(mark(self.after));
            }
            // The right may have ended, and without it the client gets nothing more.
            if let Err(problem) = self.by.check(&self.api.keys, Scope::AuditRead).await {
                return Some(self.refuse(&problem));
            }
            if Instant::now() >= self.until {
                let detail = "a stream ends after an hour: connect again with Last-Event-ID";
                return Some(self.end(&End { code: "resume", detail }));
            }
        }
        self.mark_at = after(HEARTBEAT);
        let event = self.ready.pop_front()?;
        Some((Ok(event), self))
    }

    fn refuse(self, why: &Problem) -> (Result<Event, Infallible>, Self) {
        self.end(&End { code: why.code.name(), detail: &why.detail })
    }

    /// Returns the event that ends the stream, with the reason of the end.
    fn end(mut self, why: &End<'_>) -> (Result<Event, Infallible>, Self) {
        self.is_over = true;
        let data = serde_json::to_string(why).unwrap_or_default();
        (Ok(Event::default().event("end").data(data)), self)
    }
}

/// Returns the time that is `pause` later than now.
fn after(pause: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(pause).unwrap_or(now)
}

/// Returns an event without data. Its `id` is the revision up to which the client has received all events.
fn mark(at: Revision) -> Event {
    Event::default().id(at.0.to_string()).comment("")
}

/// Makes the problem document for a client, if the store failed to return the changes after a revision.
fn refused(error: StoreError) -> Problem {
    match error {
        StoreError::Compacted { .. } | StoreError::NotYet { .. } => {
            let next = "list devices, policy, revocations, keys and groups again, and follow without Last-Event-ID";
            Problem::new(Code::HistoryGone, format!("the store does not have the changes after Last-Event-ID: {next}"))
        }
        error => error.into(),
    }
}

pub(crate) async fn follow<S: Store>(
    api: Arc<Api<S>>,
    (by, Since(since)): (Sender, Since),
) -> Result<Streamed<Batch, End<'static>>, Problem> {
    let place = Arc::clone(&api.streams).try_acquire_owned();
    let place = place.map_err(|_| {
        Problem::new(Code::TooManyStreams, format!("{STREAMS} clients follow the events: end one, or try again later"))
    })?;
    // A revision that the store does not have is refused before the stream begins.
    let at = api.store.read(keys::BOOTSTRAP.as_bytes(), since).await.map_err(refused)?.at;
    let behind = since.unwrap_or(at);
    let pending = api.store.changes(b"", behind, MOST);
    let ready = [mark(behind)].into();
    let (mark_at, until) = (after(HEARTBEAT), after(LONGEST));
    let follower = Follower { api, by, after: behind, pending, ready, mark_at, until, is_over: false, _place: place };
    Ok(Streamed::new(unfold(follower, Follower::next)))
}
