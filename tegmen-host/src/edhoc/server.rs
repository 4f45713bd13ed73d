//! The EDHOC responder of a server. All shards of the server, which are threads with their own sockets, share the
//! responder.

use super::context_of;
use super::file::EdhocPeer;
use crate::contexts::{AgreedContexts, StoredContext};
use crate::credentials::Credentials;
use crate::provider::HostCrypto;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen::crypto::Crypto as _;
use tegmen::identity::Principal;
use tegmen_edhoc::transfer::Body;
use tegmen_edhoc::{ConnectionId, Credential, CredentialId, Failure, Identity, Responder};

/// Maximum number of sessions that wait for message_3. A further session replaces the oldest.
const MOST_WAITING: usize = 1024;
/// The time within which message_3 must arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of messages that wait for the thread of the responder. Further messages are answered with 5.03.
const MOST_QUEUED: usize = 256;
/// The EDHOC responder of a server. It answers requests to `/.well-known/edhoc`, and has the contexts on which it
/// agreed with clients. Clones refer to the same responder.
#[derive(Clone)]
pub struct EdhocServer(Arc<Shared>);

/// A client that posted an access token. The token contains the public key of the client.
pub struct TokenPeer {
    /// The credential of the client.
    pub credential: Credential,
    /// The name of the client.
    pub client: String,
    /// The principal of the client, which identifies its requests.
    pub principal: Principal,
    /// The remaining lifetime of the token.
    pub lifetime: Duration,
}

/// A function that takes the identification of a credential. It returns the clients that posted tokens with such a
/// credential. A kid can identify several clients.
pub type FindTokenPeer = dyn Fn(&CredentialId<'_>) -> Vec<TokenPeer> + Send + Sync;

/// The counts of a responder.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct EdhocTotals {
    /// The number of EDHOC sessions in which the client and the server proved their identities.
    pub agreed: u64,
    /// The number of EDHOC messages that the responder refused.
    pub refused: u64,
}

struct Shared {
    identity: Identity,
    peers: RwLock<Vec<(EdhocPeer, Principal)>>,
    state: Mutex<State>,
    /// The crypto provider for a message_3 in an OSCORE request. The shard (thread of the server) that received the
    /// request verifies this message itself, without the thread of the responder.
    crypto: Mutex<HostCrypto>,
    contexts: AgreedContexts,
    /// The function that finds the owners of credentials that are not in `peers`.
    tokens: OnceLock<Box<FindTokenPeer>>,
    work: SyncSender<Work>,
}

/// The body of a request to `/.well-known/edhoc`, and the function that sends the response.
type Work = (Vec<u8>, Respond);
type Respond = Box<dyn FnOnce(Option<Result<Vec<u8>, Failed>>) + Send>;

#[derive(Default)]
struct State {
    waiting: HashMap<Vec<u8>, (Instant, Responder)>,
    /// For each waiting session, the time at which it began to wait, and the connection identifier of the responder.
    /// The oldest session is first. The list can contain sessions that no longer wait.
    order: VecDeque<(Instant, Vec<u8>)>,
    totals: EdhocTotals,
}

/// The reason why the responder refused a message, which becomes an error message (RFC 9528, section 6).
pub(crate) struct Failed(pub(crate) Failure);

impl Failed {
    /// Returns the code of the response.
    pub(crate) const fn code(&self) -> Code {
        match self.0 {
            Failure::Unsupported => Code::INTERNAL_SERVER_ERROR,
            _ => Code::BAD_REQUEST,
        }
    }

    /// Returns the reason for the log of the server, with a next step. The client does not receive this text.
    pub(crate) const fn reason(&self) -> &'static str {
        match self.0 {
            Failure::Malformed => {
                "it is not valid, or it names no session: message_3 must follow within 60 s of message_1, and before a restart"
            }
            Failure::TooLong => "it is too long",
            Failure::Method => "the client wants another method: only method 3 (static keys) is possible",
            Failure::CipherSuite => "the client wants another cipher suite: only cipher suite 2 is possible",
            Failure::PublicKey => "its public key is not valid: make a new key there with `tegmen edhoc new`",
            Failure::ConnectionId => {
                "both sides chose the same connection identifier, or none is free; the client can try again"
            }
            Failure::UnknownCredential => {
                "the credential of the client is not known: add the output of `tegmen edhoc show` there to the file of --edhoc-clients"
            }
            Failure::NotAuthentic => {
                "the client did not prove that it has the private key of its credential; compare `tegmen edhoc show` there with the file of --edhoc-clients"
            }
            Failure::CriticalData => "it has critical external authorization data that are not supported",
            Failure::NoKid => "the credential of the server has no kid: make a new key with `tegmen edhoc new`",
            Failure::Unsupported => "the context cannot be made: the crypto provider lacks what it needs",
        }
    }

    /// Returns the EDHOC error message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut storage = [0; 64];
        self.0.write(&mut storage).map(<[u8]>::to_vec).unwrap_or_default()
    }
}

impl EdhocServer {
    /// The path of the resource, without a leading slash.
    pub const PATH: &str = tegmen_edhoc::transfer::PATH;

    /// Returns a responder with this key. `learn` takes the name and the rights of a peer, and returns the principal of
    /// the peer, as [`Credentials::learn`](crate::credentials::Credentials::learn) does. Starts a thread that answers
    /// the requests to `/.well-known/edhoc`.
    ///
    /// # Errors
    /// The error of the system, if it provides no thread or no randomness.
    pub fn new(
        identity: Identity,
        peers: Vec<EdhocPeer>,
        mut learn: impl FnMut(&str, Option<&[String]>) -> Principal,
    ) -> io::Result<Self> {
        let peers = peers.into_iter().map(|peer| {
            let principal = learn(&peer.name, peer.allow.as_deref());
            (peer, principal)
        });
        let (work, received) = sync_channel(MOST_QUEUED);
        let shared = Arc::new(Shared {
            identity,
            peers: RwLock::new(peers.collect()),
            state: Mutex::default(),
            contexts: AgreedContexts::default(),
            tokens: OnceLock::new(),
            crypto: Mutex::new(HostCrypto::from_os()?),
            work,
        });
        let (weak, crypto) = (Arc::downgrade(&shared), HostCrypto::from_os()?);
        std::thread::Builder::new().name("edhoc".to_owned()).spawn(move || run(&weak, crypto, &received))?;
        Ok(Self(shared))
    }

    /// Makes the responder also accept clients that posted tokens, in addition to its configured peers. A second call
    /// has no effect.
    pub fn accept_tokens(&self, find: Box<FindTokenPeer>) {
        let _ = self.0.tokens.set(find);
    }

    /// Replaces the configured peers. A peer that is the same in `peers`, with its credential and its rights, keeps its
    /// contexts. The contexts of all other peers end. `credentials` are those of the server.
    pub fn set_peers(&self, peers: Vec<EdhocPeer>, credentials: &Credentials) {
        // No session completes meanwhile: it would get a context for a peer that is no longer configured.
        let mut current = self.0.peers.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *current);
        for peer in peers {
            let known = before.iter().position(|(known, _)| *known == peer).map(|at| before.swap_remove(at));
            current.push(known.unwrap_or_else(|| {
                let principal = credentials.learn(&peer.name, peer.allow.as_deref());
                (peer, principal)
            }));
        }
        for (_, principal) in before {
            self.0.contexts.remove(principal);
            credentials.forget(principal);
        }
    }

    /// Returns the counts.
    pub fn totals(&self) -> EdhocTotals {
        self.0.state().totals
    }

    /// Returns the contexts on which the responder and its clients agreed.
    pub fn contexts(&self) -> AgreedContexts {
        self.0.contexts.clone()
    }

    /// Passes the body of a request to the thread of the responder. The thread calls `respond` with the message of the
    /// response, or with the reason why it refuses the request. If too many messages wait, this function calls `respond`
    /// with `None` at once.
    pub(crate) fn answer(&self, body: &[u8], respond: impl FnOnce(Option<Result<Vec<u8>, Failed>>) + Send + 'static) {
        let work: Work = (body.to_vec(), Box::new(respond));
        if let Err(TrySendError::Full((_, respond)) | TrySendError::Disconnected((_, respond))) =
            self.0.work.try_send(work)
        {
            respond(None);
        }
    }

    /// Verifies message_3 of a combined EDHOC and OSCORE request, and makes the context that the request names.
    ///
    /// # Errors
    /// The error response to the request.
    pub(crate) fn finish(&self, recipient_id: &[u8], message_3: &[u8]) -> Result<(), Failed> {
        let mut crypto = self.0.crypto.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.finish(&mut crypto, recipient_id, message_3).map(drop).map_err(|failure| self.0.refuse(failure))
    }
}

/// Answers the requests in `received`, until the responder is dropped. The thread of the responder runs this function.
fn run(shared: &Weak<Shared>, mut crypto: HostCrypto, received: &Receiver<Work>) {
    while let Ok((body, respond)) = received.recv() {
        let Some(shared) = shared.upgrade() else { return };
        let answered = match Body::parse(&body) {
            None => Err(Failure::Malformed),
            Some(Body::First(message)) => shared.begin(&mut crypto, message),
            Some(Body::Third(id, message)) => shared.finish(&mut crypto, id.as_bytes(), message),
        };
        respond(Some(answered.map_err(|failure| shared.refuse(failure))));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused message.
    fn refuse(&self, failure: Failure) -> Failed {
        self.state().totals.refused += 1;
        Failed(failure)
    }

    /// Reads message_1, and returns message_2.
    fn begin(&self, crypto: &mut HostCrypto, message_1: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut random = [0; 64];
        crypto.random(&mut random);
        let choose = |theirs: &ConnectionId| self.state().choose(&self.contexts, &random, theirs);
        let (responder, message_2) = Responder::begin(crypto, message_1, &self.identity, choose)?;
        self.state().wait(responder);
        Ok(message_2.as_bytes().to_vec())
    }

    /// Verifies message_3, makes the context, and returns message_4.
    fn finish(&self, crypto: &mut HostCrypto, recipient_id: &[u8], message_3: &[u8]) -> Result<Vec<u8>, Failure> {
        let (begun, responder) = self.state().waiting.remove(recipient_id).ok_or(Failure::Malformed)?;
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Malformed);
        }
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let (agreed, message_4) = responder.finish(crypto, message_3, |id| {
            found = self.find(&peers, id);
            found.iter().map(Found::credential).collect::<Vec<_>>()
        })?;
        let proved = found.into_iter().find(|found| found.credential() == agreed.peer);
        let is_taken = match proved.ok_or(Failure::UnknownCredential)? {
            Found::Peer(peer, principal) => {
                let stored = StoredContext::of_agreed(&context_of(&agreed, peer.allow.clone()));
                self.contexts.take(stored.map_err(|_| Failure::Unsupported)?, &peer.name, *principal)
            }
            Found::Token(peer) => {
                let file = context_of(&agreed, None);
                self.contexts.take_of_token(&file, &peer.client, peer.principal, peer.lifetime)
            }
        };
        // Another session may have chosen the identifier after this one stopped waiting.
        if !is_taken {
            return Err(Failure::ConnectionId);
        }
        self.state().totals.agreed += 1;
        Ok(message_4.as_bytes().to_vec())
    }
}

/// A client that an ID_CRED_I names.
enum Found<'p> {
    Peer(&'p EdhocPeer, &'p Principal),
    Token(Box<TokenPeer>),
}

impl Found<'_> {
    fn credential(&self) -> Credential {
        match self {
            Self::Peer(peer, _) => peer.credential,
            Self::Token(peer) => peer.credential,
        }
    }
}

impl Shared {
    /// Returns the clients that an ID_CRED_I names: first the peers, and then the clients with tokens.
    fn find<'p>(&self, peers: &'p [(EdhocPeer, Principal)], id: &CredentialId<'_>) -> Vec<Found<'p>> {
        let peers = peers.iter().filter(|(peer, _)| peer.credential.is_meant_by(id));
        let peers = peers.map(|(peer, principal)| Found::Peer(peer, principal));
        let tokens = self.tokens.get().map_or_else(Vec::new, |find| find(id));
        let found = peers.chain(tokens.into_iter().map(|peer| Found::Token(Box::new(peer))));
        // An end is never its own peer: an attacker could return its messages to it (RFC 9528, section 9.1).
        found.filter(|found| found.credential() != *self.identity.credential()).collect()
    }
}

impl State {
    /// Chooses a connection identifier that is not in use, and differs from the client's identifier `theirs`. The
    /// identifier has 1, 2 or 4 bytes: with more contexts, longer identifiers are needed. Returns `None` if `random`
    /// contains no such identifier.
    fn choose(&mut self, contexts: &AgreedContexts, random: &[u8; 64], theirs: &ConnectionId) -> Option<ConnectionId> {
        self.forget_old();
        let len = match contexts.len() + self.waiting.len() {
            0..64 => 1,
            64..16_384 => 2,
            _ => 4,
        };
        let is_free = |id: &ConnectionId| !contexts.has(id.as_bytes()) && !self.waiting.contains_key(id.as_bytes());
        random.chunks_exact(len).filter_map(ConnectionId::new).find(|id| id != theirs && is_free(id))
    }

    /// Stores a session until message_3 arrives.
    fn wait(&mut self, responder: Responder) {
        let (now, id) = (Instant::now(), responder.recipient_id().as_bytes().to_vec());
        self.order.push_back((now, id.clone()));
        self.waiting.insert(id, (now, responder));
        while self.order.len() > MOST_WAITING
            && let Some((begun, oldest)) = self.order.pop_front()
        {
            self.stop_waiting(begun, &oldest);
        }
    }

    /// Ends the EDHOC session with this `id` if it began at `begun` and its message_3 has not arrived yet.
    fn stop_waiting(&mut self, begun: Instant, id: &[u8]) {
        if self.waiting.get(id).is_some_and(|(waits_since, _)| *waits_since == begun) {
            self.waiting.remove(id);
        }
    }

    /// Removes sessions whose message_3 did not arrive in time.
    fn forget_old(&mut self) {
        while let Some((begun, id)) = self.order.pop_front_if(|(begun, _)| begun.elapsed() > PATIENCE) {
            self.stop_waiting(begun, &id);
        }
    }
}
