//! The operations: each reads its request completely before it changes anything.

use crate::api::{Admitted, Api, Operation};
use crate::keys::{NewKey, Principal};
use crate::problem::Problem;
use crate::replay::Kept;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_control::access::ace::trl::{Answer, Query};
use tegmen_control::access::policy::{self, OwnedParty, Policy, Question};
use tegmen_control::access::revocation::Requester;
use tegmen_control::audit::{Kind, Record};
use tegmen_control::service::ServiceError;
use tegmen_control::state::{Change, Credential, Device, NewDevice, StateError};
use tegmen_store::{Revision, Store};
use zeroize::Zeroizing;

/// Devices of a page, at most.
const MAX_PAGE: usize = 1000;

/// The answer to a request that changes nothing, or the change that it asks for.
pub(crate) type Parsed = Result<Reply, Write>;

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) revision: Option<Revision>,
    pub(crate) body: Option<Value>,
    /// A field of the body that only the first answer has.
    once: Option<&'static str>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, revision: None, body: Some(body), once: None }
    }

    fn created(body: Value) -> Self {
        Self { status: StatusCode::CREATED, ..Self::ok(body) }
    }

    fn done(revision: Option<Revision>) -> Self {
        Self { status: StatusCode::NO_CONTENT, revision, body: None, once: None }
    }

    fn at(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// The answer as it may be stored.
    pub(crate) fn kept(&self) -> Kept {
        let mut body = self.body.clone().unwrap_or(Value::Null);
        if let (Some(once), Some(fields)) = (self.once, body.as_object_mut()) {
            fields.remove(once);
        }
        Kept { status: self.status.as_u16(), revision: self.revision.map(|revision| revision.0), body }
    }

    pub(crate) fn of(kept: Kept) -> Self {
        let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let revision = kept.revision.map(Revision);
        Self { status, revision, body: Some(kept.body).filter(|body| !body.is_null()), once: None }
    }
}

/// A change that was read and checked.
pub(crate) enum Write {
    Add(NewDevice),
    Change(String, Option<Revision>, Change),
    Remove(String, Option<Revision>),
    Apply(PolicyFile, Option<Revision>),
    RevokeSession(String),
    RevokeToken { hash: Vec<u8>, expires: u64, concerned: Vec<String> },
    CreateKey(NewKey),
    DeleteKey(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    #[serde(default)]
    file: String,
    text: String,
}

impl PolicyFile {
    fn name(&self) -> &str {
        if self.file.is_empty() { "policy" } else { &self.file }
    }

    fn parse(&self) -> Result<Policy, Problem> {
        Ok(Policy::parse(self.name(), &self.text).map_err(StateError::from)?)
    }
}

/// The proof of a device in a request. No answer has its secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    kind: String,
    #[serde(default)]
    sha256: Option<String>,
    /// Hexadecimal digits.
    #[serde(default)]
    secret: Option<String>,
}

impl Proof {
    fn device(self, name: &str) -> Result<NewDevice, Problem> {
        let invalid = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-device", why);
        let secret = self.secret.map(Zeroizing::new);
        let digest = match &self.sha256 {
            None => None,
            Some(digits) => {
                let digest = from_hex(digits).and_then(|digest| digest.try_into().ok());
                Some(digest.ok_or_else(|| invalid("sha256 has 64 hexadecimal digits".to_owned()))?)
            }
        };
        let kinds =
            "kind is certificate or public-key with sha256, or shared-key, protokey or protokey-paper with secret";
        let credential = Credential::of(&self.kind, digest).ok_or_else(|| invalid(kinds.to_owned()))?;
        let party = OwnedParty::new(name, self.tags).map_err(invalid)?;
        match secret {
            None => NewDevice::public(party, credential).map_err(invalid),
            Some(digits) => {
                let secret = from_hex(&digits).map(Zeroizing::new);
                let secret = secret.ok_or_else(|| invalid("secret has hexadecimal digits".to_owned()))?;
                NewDevice::secret(party, credential, &secret).map_err(invalid)
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    tags: Option<Vec<String>>,
    disabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explain {
    /// The words of a party: its name, and `tag:TAG`.
    subject: Vec<String>,
    publisher: Vec<String>,
    request: String,
}

/// A session that this server accepted, or a token by its hash.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoked {
    session: Option<String>,
    hash: Option<String>,
    expires: Option<u64>,
    concerned: Option<Vec<String>>,
}

impl Revoked {
    fn write(self) -> Result<Write, Problem> {
        let Self { session, hash, expires, concerned } = self;
        match (session, hash, expires, concerned) {
            (Some(session), None, None, None) => Ok(Write::RevokeSession(session)),
            (None, Some(hash), Some(expires), Some(concerned)) => {
                // The algorithm and its digest (RFC 9770, section 3): SHA-256 has 33 bytes.
                let hash = from_hex(&hash).filter(|hash| hash.len() == 33);
                let hash =
                    hash.ok_or_else(|| Problem::malformed("hash has the 66 hexadecimal digits of a token hash"))?;
                Ok(Write::RevokeToken { hash, expires, concerned })
            }
            _ => Err(Problem::malformed("a revocation has session, or hash, expires and concerned")),
        }
    }
}

fn body<T: DeserializeOwned>(admitted: &Admitted) -> Result<T, Problem> {
    // The place and the kind of a mistake, without what stood there: it may be a secret.
    serde_json::from_slice(&admitted.body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let fault = if error.is_data() { "a field is missing, unknown or of another type" } else { "it is not JSON" };
        Problem::malformed(format!(
            "the body cannot be read at line {line}, column {column}: {fault}: see docs/admin.md"
        ))
    })
}

fn shown(device: &Device) -> Value {
    let party = device.party.party();
    json!({
        "name": party.name,
        "tags": party.tags,
        "kind": device.credential.kind(),
        "sha256": device.credential.digest().map(|digest| to_hex(&digest)),
        "disabled": device.disabled,
    })
}

fn parties(words: &[String]) -> Result<OwnedParty, Problem> {
    OwnedParty::from_words(words.iter().map(String::as_str)).map_err(Problem::malformed)
}

impl<S: Store> Api<S> {
    /// Reads a request. Answers one that changes nothing, and returns the change of another.
    pub(crate) async fn read_request(&self, operation: Operation, admitted: &Admitted) -> Result<Parsed, Problem> {
        let name = admitted.name.clone();
        let over = || admitted.over.clone();
        Ok(match operation {
            Operation::ListDevices => Ok(self.list(&admitted.query).await?),
            Operation::ShowDevice => {
                let (device, revision) = self.service.state().find(&name).await?;
                Ok(Reply::ok(shown(&device)).at(revision))
            }
            Operation::AddDevice => {
                let mut proof: Proof = body(admitted)?;
                let name = proof.name.take().ok_or_else(|| Problem::malformed("a device needs a name"))?;
                Err(Write::Add(proof.device(&name)?))
            }
            Operation::ReplaceDevice => {
                let proof: Proof = body(admitted)?;
                let named = proof.name.clone().unwrap_or_else(|| name.clone());
                let change = Change { proof: Some(proof.device(&named)?), ..Change::default() };
                Err(Write::Change(name, over()?, change))
            }
            Operation::ChangeDevice => {
                let Changes { tags, disabled } = body(admitted)?;
                Err(Write::Change(name, over()?, Change { proof: None, tags, disabled }))
            }
            Operation::RemoveDevice => Err(Write::Remove(name, over()?)),
            Operation::ShowPolicy => Ok(self.show_policy()),
            Operation::ApplyPolicy => Err(Write::Apply(body(admitted)?, over()?)),
            Operation::TestPolicy => Ok(test(&body::<PolicyFile>(admitted)?.parse()?)),
            Operation::DiffPolicy => Ok(self.diff(body::<PolicyFile>(admitted)?.parse()?).await?),
            Operation::ExplainPolicy => Ok(self.explain(&body(admitted)?)?),
            Operation::ListRevocations => Ok(self.list_revocations()?),
            Operation::Revoke => Err(body::<Revoked>(admitted)?.write()?),
            Operation::ListKeys => Ok(Reply::ok(json!({ "keys": self.keys.list().await? }))),
            Operation::CreateKey => {
                let key: NewKey = body(admitted)?;
                key.check(&admitted.by)?;
                Err(Write::CreateKey(key))
            }
            Operation::DeleteKey => Err(Write::DeleteKey(name)),
        })
    }

    /// Makes a change.
    pub(crate) async fn make(&self, write: Write, by: &Principal) -> Result<Reply, Problem> {
        let who = by.name.as_str();
        Ok(match write {
            Write::Add(device) => {
                let revision = self.service.add(who, &device).await?;
                Reply::created(shown(device.device())).at(revision)
            }
            Write::Change(name, over, change) => {
                Reply::done(Some(self.service.change(who, &name, over, change).await?))
            }
            Write::Remove(name, over) => {
                self.service.remove(who, &name, over).await?;
                Reply::done(None)
            }
            Write::Apply(file, over) => {
                let text = (file.name(), file.text.as_str());
                Reply::done(Some(self.service.apply_policy(who, text, over).await?))
            }
            Write::RevokeSession(session) => {
                self.service.revoke_session(who, &session).await?;
                Reply::created(json!({ "session": session }))
            }
            Write::RevokeToken { hash, expires, concerned } => {
                let concerned: Vec<&str> = concerned.iter().map(String::as_str).collect();
                self.service.revoke_token(who, &hash, expires, &concerned).await?;
                Reply::created(json!({ "hash": to_hex(&hash), "expires": expires, "concerned": concerned }))
            }
            Write::CreateKey(key) => {
                self.service.audit().is_writable().map_err(ServiceError::from)?;
                let (id, key) = self.keys.create(key, by).await?;
                let message = format!("the API key {id} was created");
                let record = Record { kind: Kind::Key, who: who.to_owned(), code: "created", message };
                self.service.audit().write(record).await.map_err(ServiceError::from)?;
                Reply { once: Some("key"), ..Reply::created(json!({ "id": id, "key": *key })) }
            }
            Write::DeleteKey(id) => {
                self.keys.delete(&id).await?;
                let message = format!("the API key {id} was deleted");
                self.service.audit().note(Record { kind: Kind::Key, who: who.to_owned(), code: "deleted", message });
                Reply::done(None)
            }
        })
    }

    async fn list(&self, query: &str) -> Result<Reply, Problem> {
        let (mut most, mut after) = (100, None);
        for (name, value) in query.split('&').filter(|one| !one.is_empty()).filter_map(|one| one.split_once('=')) {
            match name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
                    most = limit.ok_or_else(|| Problem::malformed("limit is a number from 1 to 1000"))?;
                }
                // A cursor has hexadecimal digits, so that each name of a device goes into a query.
                "after" => {
                    let name = from_hex(value).and_then(|name| String::from_utf8(name).ok());
                    after = Some(name.ok_or_else(|| Problem::malformed("after is the next of the page before"))?);
                }
                _ => return Err(Problem::malformed("a list has the parameters limit and after")),
            }
        }
        let page = self.service.state().list(after.as_deref(), most).await?;
        let devices: Vec<Value> = page.devices.iter().map(shown).collect();
        Ok(Reply::ok(json!({ "devices": devices, "next": page.next.map(|name| to_hex(name.as_bytes())) })))
    }

    fn show_policy(&self) -> Reply {
        let view = self.service.state().view();
        let policy = view.policy_text().map(|(file, text)| json!({ "file": file, "text": text }));
        Reply::ok(policy.unwrap_or_else(|| json!({ "file": null, "text": "" }))).at(view.in_force().revision)
    }

    async fn diff(&self, newer: Policy) -> Result<Reply, Problem> {
        let older = self.service.state().view().in_force().policy;
        // A comparison of large policies takes seconds.
        let diff = tokio::task::spawn_blocking(move || older.diff(&newer, &[])).await;
        let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the comparison failed");
        let diff = diff.map_err(failed)?;
        let changes: Vec<String> = diff.changes.iter().map(ToString::to_string).collect();
        let (removed, added, complete) = (diff.removed, diff.added, diff.complete);
        Ok(Reply::ok(json!({ "removed": removed, "added": added, "changes": changes, "complete": complete })))
    }

    fn explain(&self, explain: &Explain) -> Result<Reply, Problem> {
        let (subject, publisher) = (parties(&explain.subject)?, parties(&explain.publisher)?);
        let (method, path) = policy::request(&explain.request).map_err(Problem::malformed)?;
        let question = Question { subject: subject.party(), publisher: publisher.party(), method, path };
        let explanation = self.service.state().view().in_force().policy.explain(&question);
        let near: Vec<&str> = explanation.near.iter().map(|near| near.message.as_str()).collect();
        let decision = explanation.decision.code();
        Ok(Reply::ok(json!({ "decision": decision, "message": explanation.message, "near": near })))
    }

    fn list_revocations(&self) -> Result<Reply, Problem> {
        let answer = self.service.state().view().revocations(Requester::Administrator, Query::default());
        let hashes = match answer {
            Ok(Answer::Full { hashes, .. }) => hashes,
            _ => return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the list has no answer")),
        };
        let hashes: Vec<String> = hashes.iter().map(|hash| to_hex(hash)).collect();
        Ok(Reply::ok(json!({ "hashes": hashes })))
    }
}

fn test(policy: &Policy) -> Reply {
    let failed: Vec<String> = policy.failed_tests().iter().map(ToString::to_string).collect();
    Reply::ok(json!({ "rules": policy.rules(), "tests": policy.tests(), "failed": failed }))
}
