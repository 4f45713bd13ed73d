//! A handle that an application keeps after it has returned, to respond later and to report changes.

use super::oscore::OscoreExchange;
use super::serve::{Source, path_of};
use super::signing::Worked;
use crate::credentials::StoredKey;
use crate::public_keys::PublicKeys;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap::handler::Response;
use tegmen::coap::{Block, Code, MessageRef, OptionNumber, Token};
use tegmen::endpoint::PeerId;
use tegmen::time::Instant;
use tokio::sync::mpsc;

/// What comes to a shard from outside its sockets.
pub(super) enum Command {
    Respond(Completion),
    /// There is something in [`Changes`].
    Changed,
    Key(FoundKey),
    /// A private key did what a handshake waits for.
    Worked {
        peer: PeerId,
        worked: Worked,
    },
    /// The keys with which the server proves itself from now on.
    Keys(Box<PublicKeys>),
    /// More numbers of a session may be used.
    Leased {
        peer: PeerId,
        end: u32,
        /// Or why not.
        result: Result<(), String>,
    },
}

/// What a store of keys says.
pub(super) struct FoundKey {
    pub(super) peer: PeerId,
    pub(super) identity: String,
    pub(super) found: Option<StoredKey>,
    pub(super) asked: Instant,
}

/// A deferred response.
pub(super) struct Completion {
    pub(super) ticket: Question,
    pub(super) code: Code,
    pub(super) content_format: Option<u16>,
    pub(super) payload: Vec<u8>,
    pub(super) cause: Option<String>,
}

/// Of a request, what its deferred response needs.
pub(super) struct Question {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) operation: u64,
    pub(super) to_group: bool,
    /// What protects the response, if the request protected itself.
    pub(super) oscore: Option<OscoreExchange>,
    pub(super) method: Code,
    /// The path, with a slash in front.
    pub(super) path: String,
    /// The Block2 option.
    pub(super) asked: Option<Block>,
    /// Bytes of the request's body.
    pub(super) received: usize,
}

impl Question {
    pub(super) fn new(from: &Source, message: &MessageRef<'_>) -> Self {
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        Self {
            peer: from.peer,
            token: Token::new(message.token()),
            operation: from.operation(message),
            to_group: from.to_group,
            oscore: from.oscore.clone(),
            method: message.code(),
            path: format!("/{}", path_of(message)),
            asked,
            received: message.payload().len(),
        }
    }
}

/// For what comes later than the response: the response itself, or news for those who observe.
pub struct Later<'a> {
    pub(super) from: &'a Source,
    pub(super) message: &'a MessageRef<'a>,
    pub(super) commands: &'a mpsc::UnboundedSender<Command>,
    pub(super) notifier: &'a Notifier,
    pub(super) cause: &'a Cell<Option<String>>,
}

impl Later<'_> {
    /// Defers the response; the request is acknowledged now.
    pub fn ticket(&self, response: &mut Response<'_, '_>) -> Ticket {
        response.defer();
        Ticket { question: Question::new(self.from, self.message), commands: self.commands.clone(), cause: None }
    }

    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    pub fn because(&self, cause: impl Into<String>) {
        self.cause.set(Some(cause.into()));
    }

    /// Tells those who observe `path` that its representation changed: see [`Notifier::changed`].
    pub fn changed(&self, path: &str) {
        self.notifier.changed(path);
    }

    /// A notifier to keep.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }
}

/// The right to respond to one request, once.
pub struct Ticket {
    question: Question,
    commands: mpsc::UnboundedSender<Command>,
    cause: Option<String>,
}

impl Ticket {
    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    #[must_use]
    pub fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// Sends the response; a payload that does not fit one message goes in blocks.
    pub fn respond(self, code: Code, content_format: Option<u16>, payload: Vec<u8>) {
        let completion = Completion { ticket: self.question, code, content_format, payload, cause: self.cause };
        // If the server ended meanwhile there is nobody to tell.
        let _ = self.commands.send(Command::Respond(completion));
    }
}

/// Paths whose representation changed since a shard looked last. However often one changes, it is here once.
pub(super) struct Changes {
    paths: Mutex<HashSet<Arc<str>>>,
    commands: mpsc::UnboundedSender<Command>,
    /// Paths that the shard's peers observe.
    pub(super) observed: Arc<ObservedPaths>,
}

pub(super) type ObservedPaths = Mutex<HashSet<Arc<str>>>;

impl Changes {
    pub(super) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { paths: Mutex::default(), commands, observed: Arc::default() }
    }

    fn add(&self, path: &str) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.contains(path) {
            return;
        }
        if paths.is_empty() {
            // If the server ended meanwhile there is nobody to tell.
            let _ = self.commands.send(Command::Changed);
        }
        paths.insert(path.into());
    }

    /// Sends a command to the same shard.
    pub(super) fn send(&self, command: Command) {
        // If the server ended meanwhile there is nobody to tell.
        let _ = self.commands.send(command);
    }

    pub(super) fn take(&self) -> HashSet<Arc<str>> {
        std::mem::take(&mut *self.paths.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells observers (RFC 7641) that what they observe has changed. It can be cloned and used from any thread.
#[derive(Clone)]
pub struct Notifier {
    pub(super) shards: Arc<[Changes]>,
}

impl Notifier {
    /// The representation at `path`, without a slash in front, changed. Each observer is sent the newest one: the
    /// application is asked for it again with the request that registered. Changes that come faster than a client
    /// acknowledges become one notification.
    pub fn changed(&self, path: &str) {
        for shard in &*self.shards {
            shard.add(path);
        }
    }

    /// True if somebody observes `path`, or did within the last minute.
    pub fn is_observed(&self, path: &str) -> bool {
        self.shards.iter().any(|shard| shard.observed.lock().unwrap_or_else(PoisonError::into_inner).contains(path))
    }
}

#[cfg(test)]
mod tests;
