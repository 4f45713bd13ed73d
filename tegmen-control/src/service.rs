//! An access control server without its sockets: decisions, state and audit log together.
//!
//! The service handles a request for rights in these steps: it checks that the log accepts records, makes the decision,
//! commits the state, writes the line of the log, and then answers. So the server never gives a key again after a
//! restart, and never gives a key without a line in the log. A change that takes rights away is acknowledged after the
//! commit of the state, and never waits for the log.

mod grants;

use crate::access::enrolment::OneTimeKey;
use crate::access::introspection::{Outcome, Reply, Upload, used_before};
use crate::access::revocation::token_hash;
use crate::audit::{AuditLog, Kind, NotWritten, Record, Then};
use crate::state::{AcceptedSession, Change, Enrolment, Grounds, NewDevice, NotEnrolled, State, StateError, View};
use crate::upload::{self, NotTaken, Uploads};
use grants::Grants;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tegmen_base::hex::to_hex;
use tegmen_base::secret::Secret;
use tegmen_base::time;
use tegmen_coap::Code;
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::Prepared;
use tegmen_store::clock::now_millis;
use tegmen_store::store::answer::{Promise, promise};
use tegmen_store::{Revision, Store};

/// Maximum number of decisions on one request. The server decides again if another server changed the policy or a
/// device meanwhile.
const DECISIONS: usize = 3;

/// The operator in the audit log and in the store, if the policy was applied from the configuration of the server.
const CONFIGURATION: &str = "the configuration";

/// The reason why an operator's change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The state refuses the change.
    #[error(transparent)]
    State(#[from] StateError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] NotWritten),
    /// No session with this identity was accepted.
    #[error(
        "the server has accepted no session identity {0}: correct the identity; if it is right, there is nothing to revoke"
    )]
    UnknownSession(String),
}

/// The path of a request: `/introspect` or `/token`.
#[derive(Clone, Copy)]
pub(crate) enum Path {
    Introspect,
    Token,
}

/// The sender of a request, who waits for the response.
pub(crate) trait Asker {
    /// Returns the function that takes the response.
    fn later(self) -> impl FnOnce(Reply) + Send + 'static;

    /// Prepares a response that must not be sent before a line of the audit log is durable. Either adds the response to
    /// `prepared`, which sends it at that time, or returns a function to call at that time.
    fn prepare(self, reply: Reply, prepared: &mut Prepared) -> Option<Then>;
}

impl Asker for Promise<Reply> {
    fn later(self) -> impl FnOnce(Reply) + Send + 'static {
        |reply| self.answer(Ok(reply))
    }

    fn prepare(self, reply: Reply, _: &mut Prepared) -> Option<Then> {
        let reply_to = |written: Result<(), NotWritten>| written.map_or_else(|error| Reply::later(&error), |()| reply);
        Some(Box::new(move |written| self.answer(Ok(reply_to(written)))))
    }
}

/// A decision on a request, before it is durable.
struct Decided {
    /// The device that sent the request; `None` for a peer that proved no identity, and if `session` has the device.
    who: Option<String>,
    outcome: Outcome,
    /// The session identity that was accepted, and the rows on which the decision depends.
    session: Option<(AcceptedSession, Grounds)>,
    now: time::Instant,
}

impl Decided {
    /// Returns the device that sent the request; an empty text for a peer that proved no identity.
    fn device(&self) -> &str {
        let of_session = self.session.as_ref().map(|(session, _)| session.subscriber.as_str());
        of_session.or(self.who.as_deref()).unwrap_or_default()
    }
}

/// An access control server without its sockets.
pub struct Service<S> {
    state: Arc<State<S>>,
    audit: AuditLog,
    /// The thread that makes grants durable. `None` if the store is shared with other servers: each grant is then
    /// stored by the task of its request.
    grants: Option<Grants>,
    crypto: Mutex<HostCrypto>,
    uploads: Uploads,
    start: (u64, Instant),
}

impl<S: Store> Service<S> {
    /// Makes the service from the state and the audit log.
    ///
    /// # Errors
    /// The error of the system if it has no randomness or no thread.
    pub fn new(state: State<S>, audit: AuditLog) -> std::io::Result<Self> {
        let crypto = Mutex::new(HostCrypto::from_os()?);
        let start = (now_millis(), Instant::now());
        let state = Arc::new(state);
        let grants = state.is_alone().then(|| Grants::start(&state, &audit)).transpose()?;
        Ok(Self { state, audit, grants, crypto, uploads: Uploads::default(), start })
    }

    /// Returns the state.
    pub fn state(&self) -> &State<S> {
        &self.state
    }

    /// Returns the time since 1970. The system clock is read only at the start of the service, so later changes of this
    /// clock have no effect.
    pub fn now(&self) -> time::Instant {
        let (millis, start) = self.start;
        time::Instant::from_micros(millis.saturating_mul(1000)).after(start.elapsed())
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now().as_micros() / 1_000_000
    }

    /// Answers the payload of a request to `/introspect`. `subscriber` is the device that sent the request, or `None`
    /// for a peer that proved no identity.
    pub async fn introspect(&self, subscriber: Option<&str>, payload: &[u8]) -> Reply {
        self.answer(Path::Introspect, subscriber, payload).await
    }

    /// Answers the payload of a request to `/token`. `client` is the device that sent the request, or `None` for a peer
    /// that proved no identity.
    pub async fn token(&self, client: Option<&str>, payload: &[u8]) -> Reply {
        self.answer(Path::Token, client, payload).await
    }

    /// Decides as [`Self::introspect`] or [`Self::token`] does. `who` returns the name of the device that sent the
    /// request. `asker` gets the response as soon as it may be sent. This function starts a task only if a token must be
    /// uploaded, or if a session identity must be written to a shared store.
    pub(crate) fn answer_then(
        self: &Arc<Self>,
        path: Path,
        who: impl FnOnce(&View) -> Option<String>,
        payload: &[u8],
        asker: impl Asker,
    ) {
        let decided = match self.decide(path, who, payload) {
            Ok(decided) => decided,
            Err(reply) => return asker.later()(reply),
        };
        if let Some((decided, asker)) = self.finish_then(decided, asker) {
            let (service, payload, respond) = (Arc::clone(self), payload.to_vec(), asker.later());
            tokio::spawn(async move { respond(service.bind(path, &payload, decided).await) });
        }
    }

    async fn answer(&self, path: Path, who: Option<&str>, payload: &[u8]) -> Reply {
        match self.decide(path, |_| who.map(str::to_owned), payload) {
            Err(reply) => reply,
            Ok(decided) => {
                let (promise, answer) = promise();
                match self.finish_then(decided, promise) {
                    None => answer.await.unwrap_or_else(|error| Reply::later(&error)),
                    Some((decided, _)) => self.bind(path, payload, decided).await,
                }
            }
        }
    }

    /// Completes a decision: makes the accepted session identity durable if there is one, writes the line of the audit
    /// log, and gives the response to `asker`. Then returns `None`. There are two exceptions: the decision demands the
    /// upload of a token, or its session identity must be written to a store that other servers share. In these two
    /// cases this function does nothing, and returns `decided` and `asker` unchanged. The caller must then call
    /// [`Self::bind`].
    fn finish_then<A: Asker>(&self, decided: Decided, asker: A) -> Option<(Decided, A)> {
        let grants = self.grants.as_ref().filter(|_| decided.outcome.upload.is_none());
        match (decided, grants) {
            (Decided { session: None, who, outcome, .. }, _) => {
                self.note_then(who.unwrap_or_default(), outcome, asker);
                None
            }
            (Decided { session: Some((session, _)), outcome, now, .. }, Some(grants)) => {
                let Outcome { reply, message, .. } = outcome;
                let seconds = now.as_micros() / 1_000_000;
                grants.push(session, seconds, message, |prepared| asker.prepare(reply, prepared));
                None
            }
            (decided, None) => Some((decided, asker)),
        }
    }

    /// Decides on a request. `who` returns the name of the device that sent the request. If no decision is possible now,
    /// the error is the 5.03 response to the request.
    fn decide(&self, path: Path, who: impl FnOnce(&View) -> Option<String>, payload: &[u8]) -> Result<Decided, Reply> {
        let is_writable = self.audit.is_writable();
        let has_space = self.grants.as_ref().is_none_or(Grants::has_space);
        let now = self.now();
        let mut view = self.state.view();
        let mut who = who(&view);
        let refused = match is_writable {
            Err(not_written) => {
                Some((Reply::later(&not_written), ("not-written", "a request, while the audit log cannot be written")))
            }
            Ok(()) if !has_space => Some((
                Reply::later(&"too many grants wait for the disk"),
                ("not-stored", "a request, while too many grants wait for the disk"),
            )),
            Ok(()) if who.is_some() && !view.is_current() => Some((
                Reply::later(&"the store does not answer"),
                ("out-of-date", "a request, while the store does not answer"),
            )),
            Ok(()) => None,
        };
        if let Some((reply, (code, request))) = refused {
            drop(view);
            self.refuse(who.as_deref(), code, request);
            return Err(reply);
        }
        let mut outcome = match path {
            Path::Introspect => view.introspect::<HostCrypto>(who.as_deref(), payload, now),
            Path::Token => {
                let mut crypto = self.crypto.lock().unwrap_or_else(PoisonError::into_inner);
                view.token(who.as_deref(), payload, now, &mut *crypto)
            }
        };
        let session = outcome.session.take().map(|identity| {
            let subscriber = who.take().unwrap_or_default();
            let grounds = view.grounds(&identity, &subscriber);
            let (until, token) = (view.session_until(now), outcome.token.take());
            (AcceptedSession { identity, subscriber, until, token }, grounds)
        });
        if let Some((session, _)) = &session
            && self.grants.is_some()
            && outcome.upload.is_none()
            && let Err(StateError::SessionUsed { of_another }) = view.bind(session)
        {
            let (subscriber, outcome) =
                (&session.subscriber, used_before(&session.subscriber, &session.identity, of_another));
            return Ok(Decided { who: Some(subscriber.clone()), outcome, session: None, now });
        }
        Ok(Decided { who, outcome, session, now })
    }

    /// Stores the session identity that the decision `decided` accepts, and writes the line about the decision into the
    /// audit log. Uploads the token if the decision demands an upload. Decides again if another server changed the
    /// policy or a device meanwhile.
    async fn bind(&self, path: Path, payload: &[u8], mut decided: Decided) -> Reply {
        for _ in 0..DECISIONS {
            let Decided { who, mut outcome, session, now } = decided;
            let Some((session, grounds)) = session else {
                return self.note(&who.unwrap_or_default(), outcome).await;
            };
            let (who, upload) = (session.subscriber.as_str(), outcome.upload.take());
            match self.state.bind(&session, &grounds, now.as_micros() / 1_000_000).await {
                Ok(()) => {
                    let reply = self.note(who, outcome).await;
                    return match upload {
                        Some(upload) if reply.code == Code::CREATED => {
                            // Few requests have an upload, and its future is large.
                            Box::pin(self.upload(who, &session.identity, upload, reply)).await
                        }
                        _ => reply,
                    };
                }
                Err(StateError::SessionUsed { of_another }) => {
                    return self.note(who, used_before(who, &session.identity, of_another)).await;
                }
                // The policy may refuse now.
                Err(StateError::Changed(_)) => match self.decide(path, |_| Some(who.to_owned()), payload) {
                    Ok(again) => decided = again,
                    Err(reply) => return reply,
                },
                Err(error) => {
                    self.refuse(Some(who), "not-stored", &format!("the session {}: {error}", session.identity));
                    return Reply::later(&error);
                }
            }
        }
        self.refuse(
            Some(decided.device()),
            "changed-meanwhile",
            "a request, while policy or devices changed each time",
        );
        Reply::later(&"policy or devices changed during each decision")
    }

    /// Uploads a token to its publisher, for the client `who` and the session `identity`. Returns the response to the
    /// client. If the publisher cannot be reached, the response is `unreachable`, which contains the token. If the
    /// upload fails for another reason, the token is revoked unless the revocation list is half full. So no client can
    /// fill the list of the operators.
    async fn upload(&self, who: &str, identity: &str, upload: Upload, unreachable: Reply) -> Reply {
        let Upload { address, key, request, taken } = upload;
        let result = match self.uploads.begin(who) {
            Some(_place) => upload::upload(address, key.expose(), &request).await,
            None => Err(NotTaken::TooMany),
        };
        let Err(not_taken) = result else { return taken };
        self.audit.note(Record {
            kind: Kind::Refusal,
            who: who.to_owned(),
            code: not_taken.code(),
            message: format!(
                "the publisher at {address} did not take the token of the session {identity}: {not_taken}"
            ),
        });
        let reply = match not_taken {
            NotTaken::Unreachable(_) => return unreachable,
            NotTaken::Busy { seconds } => Reply::busy(seconds, not_taken.to_string()),
            NotTaken::TooMany => Reply::busy(upload::RETRY_AFTER, not_taken.to_string()),
            NotTaken::Refused(_) => Reply::unauthorized_client(),
        };
        // Without the store, or if the list is half full, the token is not revoked. Neither end has it then: the publisher did
        // not take it, and no response has it.
        let is_half_full = self.state.view().is_revocation_list_half_full();
        if is_half_full {
            let message = format!(
                "the token of the session {identity}, which nobody has, is not revoked: the revocation list is half full"
            );
            self.audit.note(Record { kind: Kind::Refusal, who: who.to_owned(), code: "not-revoked", message });
        } else {
            let _ = self.revoke_session(who, identity).await;
        }
        reply
    }

    /// Records an outcome in the log. Returns the response that may be sent: the response in the outcome, or a 5.03
    /// response if the log cannot be written.
    async fn note(&self, who: &str, outcome: Outcome) -> Reply {
        let (promise, answer) = promise();
        self.note_then(who.to_owned(), outcome, promise);
        answer.await.unwrap_or_else(|error| Reply::later(&error))
    }

    /// Records an outcome in the log. `asker` gets the response as soon as it may be sent.
    fn note_then(&self, who: String, outcome: Outcome, asker: impl Asker) {
        let Outcome { reply, refused, message, .. } = outcome;
        match refused {
            Some(reason) => {
                self.audit.note(Record { kind: Kind::Refusal, who, code: reason.code(), message });
                asker.later()(reply);
            }
            None => self.audit.write_then(&granted(who, message), |prepared| asker.prepare(reply, prepared)),
        }
    }

    /// Records in the audit log that a request was refused because its form is not valid. `who` is the device that sent
    /// the request, or `None` for a peer that proved no identity.
    pub(crate) fn refuse(&self, who: Option<&str>, code: &'static str, request: &str) {
        self.audit.note(Record::refused(who.unwrap_or_default(), code, request));
    }

    /// Adds a device on behalf of the operator `by`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn add(&self, by: &str, new: &NewDevice) -> Result<Revision, ServiceError> {
        self.audit.is_writable()?;
        let revision = self.state.add(new).await?;
        let device = new.device();
        let message = format!("the device {} was added, with a {}", device.party, device.credential.kind());
        self.audit.write(operator(Kind::Device, by, "added", message)).await?;
        Ok(revision)
    }

    /// Creates a one-time key with which a device enrols, on behalf of the operator `by`. If a one-time key for the
    /// name of this device exists already, the new key replaces it.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn expect(&self, by: &str, enrolment: &Enrolment) -> Result<OneTimeKey, ServiceError> {
        self.audit.is_writable()?;
        let party = &enrolment.party;
        let mut secret = Secret::zeroed();
        let no_randomness = |error: getrandom::Error| StateError::System(std::io::Error::other(error.to_string()));
        getrandom::fill(secret.expose_mut()).map_err(no_randomness)?;
        let key = OneTimeKey::new(party.party().name, secret);
        self.state.expect(enrolment, &key).await?;
        let message = format!("a one-time key was created for the device {party}, with a {}", enrolment.kind);
        self.audit.write(operator(Kind::Device, by, "expected", message)).await?;
        Ok(key)
    }

    /// Deletes the one-time key of a device, on behalf of the operator `by`.
    ///
    /// # Errors
    /// [`ServiceError::State`].
    pub async fn withdraw(&self, by: &str, name: &str) -> Result<(), ServiceError> {
        self.state.withdraw(name).await?;
        self.audit.note(operator(Kind::Device, by, "withdrawn", format!("the one-time key of the device {name}")));
        Ok(())
    }

    /// Answers the payload of a request to `/enrol`, which the device of this name sent.
    pub async fn enrol(&self, name: &str, payload: &[u8]) -> Reply {
        if let Err(not_written) = self.audit.is_writable() {
            self.refuse(Some(name), "not-written", "an enrolment, while the audit log cannot be written");
            return Reply::later(&not_written);
        }
        let error = match self.state.enrol(name, payload, self.seconds()).await {
            Ok(device) => {
                let message = format!("the device {} enrolled, with a {}", device.party, device.credential.kind());
                let record = Record { kind: Kind::Device, who: name.to_owned(), code: "enrolled", message };
                let written = self.audit.write(record).await;
                return written.map_or_else(|not_written| Reply::later(&not_written), |()| answer(Code::CREATED));
            }
            Err(error) => error,
        };
        let code = error.code();
        let message = format!("an enrolment: refused ({code}): {error}");
        self.audit.note(Record { kind: Kind::Refusal, who: name.to_owned(), code, message });
        match error {
            NotEnrolled::Malformed | NotEnrolled::Invalid(_) => answer(Code::BAD_REQUEST),
            NotEnrolled::NoKey | NotEnrolled::Expired | NotEnrolled::WrongProof => answer(Code::UNAUTHORIZED),
            NotEnrolled::OtherKind { .. }
            | NotEnrolled::State(StateError::NameTaken(_) | StateError::DigestTaken(_)) => answer(Code::FORBIDDEN),
            NotEnrolled::State(error) => Reply::later(&error),
        }
    }

    /// Enables a device again, on behalf of the operator `by`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn enable(&self, by: &str, name: &str) -> Result<Revision, ServiceError> {
        self.audit.is_writable()?;
        let revision = self.state.set_disabled(name, false).await?;
        self.audit.write(operator(Kind::Device, by, "enabled", format!("the device {name} was enabled"))).await?;
        Ok(revision)
    }

    /// Disables a device on behalf of the operator `by`, and revokes the keys of all sessions in which the device is
    /// publisher or subscriber. Returns the number of these sessions.
    ///
    /// # Errors
    /// [`ServiceError::State`]. Some keys may then still be valid.
    pub async fn disable(&self, by: &str, name: &str) -> Result<usize, ServiceError> {
        self.state.set_disabled(name, true).await?;
        self.audit.note(operator(Kind::Device, by, "disabled", format!("the device {name} was disabled")));
        self.revoke_sessions_of(by, name).await
    }

    async fn revoke_sessions_of(&self, by: &str, name: &str) -> Result<usize, ServiceError> {
        let concerned = |publisher: &str, subscriber: &str| publisher == name || subscriber == name;
        let sessions = self.state.view().sessions(|identity, subscriber| concerned(identity.publisher(), subscriber));
        for session in &sessions {
            self.revoke(by, session).await?;
        }
        Ok(sessions.len())
    }

    /// Changes a device on behalf of the operator `by`: see [`State::change`]. If the change disables the device, the
    /// keys of its sessions are revoked as in [`Self::disable`].
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn change(
        &self,
        by: &str,
        name: &str,
        over: Option<Revision>,
        change: Change,
    ) -> Result<Revision, ServiceError> {
        let is_disabled = change.disabled == Some(true);
        let gives = change.proof.is_some() || change.tags.is_some() || change.disabled == Some(false);
        if gives {
            self.audit.is_writable()?;
        }
        let message = format!("the device {name} was changed: {}", effects(&change));
        let revision = self.state.change(name, over, change).await?;
        let record = operator(Kind::Device, by, "changed", message);
        if is_disabled {
            self.audit.note(record);
            self.revoke_sessions_of(by, name).await?;
        } else {
            self.audit.write(record).await?;
        }
        Ok(revision)
    }

    /// Removes a device and revokes the keys of its sessions, on behalf of the operator `by`. If `over` is given, the
    /// device is removed only if `over` is its revision.
    ///
    /// # Errors
    /// [`ServiceError::State`]. Some keys may then still be valid.
    pub async fn remove(&self, by: &str, name: &str, over: Option<Revision>) -> Result<(), ServiceError> {
        self.state.remove(name, over).await?;
        self.audit.note(operator(Kind::Device, by, "removed", format!("the device {name} was removed")));
        self.revoke_sessions_of(by, name).await.map(drop)
    }

    /// Revokes a token by its hash, on behalf of the operator `by`: see [`State::revoke`].
    ///
    /// # Errors
    /// [`ServiceError::State`], with [`StateError::Unknown`] if there is no device of a name in `concerned`.
    pub async fn revoke_token(
        &self,
        by: &str,
        hash: &[u8],
        expires: u64,
        concerned: &[&str],
    ) -> Result<(), ServiceError> {
        let unknown = {
            let view = self.state.view();
            concerned.iter().find(|name| view.device(name).is_none())
        };
        if let Some(name) = unknown {
            return Err(StateError::Unknown((*name).to_owned()).into());
        }
        self.state.revoke(hash, expires, concerned).await?;
        let (hash, devices) = (to_hex(hash), concerned.join(", "));
        let message = format!("the token with the hash {hash}, until {expires}, at the devices: {devices}");
        self.audit.note(operator(Kind::Revocation, by, "revoked", message));
        Ok(())
    }

    /// Returns the audit log. If an operator makes a change that this service does not make, for example a change of a
    /// group, the caller writes the line about this change into the log.
    pub const fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// Revokes the key of a session on behalf of the operator `by`. The revocation is durable and in force when this
    /// function returns.
    ///
    /// # Errors
    /// [`ServiceError::UnknownSession`] or [`ServiceError::State`].
    pub async fn revoke_session(&self, by: &str, identity: &str) -> Result<(), ServiceError> {
        let session = self.state.view().sessions(|known, _| known.as_str() == identity).pop();
        let session = session.ok_or_else(|| ServiceError::UnknownSession(identity.to_owned()))?;
        self.revoke(by, &session).await
    }

    async fn revoke(&self, by: &str, session: &AcceptedSession) -> Result<(), ServiceError> {
        let AcceptedSession { identity, subscriber, until, token } = session;
        let hash = token.clone().unwrap_or_else(|| token_hash::<HostCrypto>(identity.as_bytes()));
        self.state.revoke(&hash, *until, &[session.publisher(), subscriber]).await?;
        self.audit.note(operator(Kind::Revocation, by, "revoked", format!("the session {identity} of {subscriber}")));
        Ok(())
    }

    /// Applies a policy on behalf of the operator `by`: see [`State::apply_policy`].
    ///
    /// # Errors
    /// [`ServiceError`]. The policy in force then stays the same, except perhaps after [`ServiceError::Audit`]: the new
    /// policy may then be in force without a line in the log.
    pub async fn apply_policy(
        &self,
        by: &str,
        file: (&str, &str),
        over: Option<Revision>,
    ) -> Result<Revision, ServiceError> {
        self.audit.is_writable()?;
        let revision = self.state.apply_policy(file, by, over, self.seconds()).await?;
        let message = format!("the policy {} is in force, revision {}", file.0.escape_debug(), revision.0);
        self.audit.write(operator(Kind::Policy, by, "applied", message)).await?;
        Ok(revision)
    }

    /// Applies the policy that the configuration of the server names, unless the policy in force has the same text, or an
    /// operator applied the policy in force after this text was last applied. In the second case, and if the policy of an
    /// operator is replaced, emits a warning to the subscriber of the crate `tracing`. `text` is the text of the policy,
    /// and `file` is the name of its file. Returns true if the policy was applied.
    ///
    /// # Errors
    /// The errors of [`Self::apply_policy`].
    pub async fn configure_policy(&self, file: &str, text: &str) -> Result<bool, ServiceError> {
        let is_remembered = self.state.is_configured(text).await?;
        let (is_in_force, by) = {
            let view = self.state.view();
            (view.has_policy(text), view.policy_by().filter(|by| *by != CONFIGURATION).map(str::to_owned))
        };
        let name = file.escape_debug();
        match by.filter(|_| !is_in_force) {
            Some(by) if is_remembered => {
                tracing::warn!(
                    "access control: the policy that {by} applied after {name} stays in force: to put the file in force, \
                     change it, or apply it with tegmen policy apply"
                );
                return Ok(false);
            }
            Some(by) => tracing::warn!("access control: {name} replaces the policy that {by} applied"),
            None => {}
        }
        if !is_in_force {
            self.apply_policy(CONFIGURATION, (file, text), None).await?;
        }
        if !is_remembered {
            self.state.remember_configured(text).await?;
        }
        Ok(!is_in_force)
    }

    /// Removes expired tokens from the revocation list, and expired one-time keys: see [`State::expire`].
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn expire(&self) -> Result<usize, StateError> {
        self.state.expire(self.seconds()).await
    }

    /// Returns true if the token with these bytes is revoked.
    pub fn is_revoked(&self, token: &[u8]) -> bool {
        self.state.view().is_revoked(&token_hash::<HostCrypto>(token))
    }
}

fn granted(who: String, message: String) -> Record {
    Record { kind: Kind::Grant, who, code: "granted", message }
}

fn operator(kind: Kind, by: &str, code: &'static str, message: String) -> Record {
    Record { kind, who: by.to_owned(), code, message }
}

/// Describes a change of a device, without its secret.
fn effects(change: &Change) -> String {
    let Change { proof, tags, disabled } = change;
    let mut effects = Vec::new();
    if let Some(proof) = proof {
        effects.push(format!("its credential is replaced by a {}", proof.device().credential.kind()));
    }
    let tags = tags.as_deref().or(proof.as_ref().map(|proof| proof.device().party.party().tags));
    if let Some(tags) = tags {
        effects.push(format!("its tags are [{}]", tags.join(", ")));
    }
    if let Some(is_disabled) = disabled {
        effects.push(if *is_disabled { "it is disabled" } else { "it is enabled" }.to_owned());
    }
    effects.join(", ")
}

/// Makes a response without payload.
fn answer(code: Code) -> Reply {
    Reply::new(code, Default::default())
}
