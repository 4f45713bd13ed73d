//! The users in the store of the interface. A user is a person who logs in with a password.
//!
//! ```text
//! admin/user/NAME   a user: the hash of the password, whether the user is disabled, and the lifetime of a login. It is sealed
//! ```

pub(crate) mod messages;

use crate::api::Api;
use crate::keys::Principal;
use crate::parts::{Body, Name, Paging, wrong_cursor};
use crate::passwords::{self, Password};
use crate::problem::{Code, Problem};
use crate::reply::{Created, Shown};
use messages::{Changed, NewUser, ShownEnded, ShownUser, ShownUsers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tegmen_base::hex::to_hex;
use tegmen_control::audit::{Kind, Record};
use tegmen_control::service::ServiceError;
use tegmen_control::state::StateError;
use tegmen_store::store::{Entry, Scan};
use tegmen_store::{Revision, Store, Transaction, Value};
use zeroize::Zeroizing;

const USERS: &str = "admin/user/";
const SUBJECT: &str = "CN=";
/// The default lifetime of a login certificate in seconds.
pub(crate) const LIFETIME: u32 = 8 * 3600;
/// The lifetimes that an operator may set for a login certificate, in seconds: at least a minute, at most 30 days.
const LIFETIMES: std::ops::RangeInclusive<u32> = 60..=30 * 24 * 3600;
/// Maximum number of users.
const MOST: usize = 10_000;
/// Maximum number of rows that are read at once.
const PAGE: usize = 1000;

/// The content of the row of a user in the store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// The hash of the password, as a PHC string.
    pub(crate) hash: String,
    pub(crate) disabled: bool,
    /// The lifetime of a login certificate in seconds.
    pub(crate) lifetime: u32,
}

/// Returns true if a user may have this name. Such a name needs no escapes in the text of a subject (RFC 4514) or in a
/// path.
pub(crate) fn is_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(is_known)
        && name.bytes().all(|byte| is_known(byte) || b".-_@".contains(&byte))
}

/// Returns the name of the holder of a login certificate, in the form in which the policy uses it.
pub(crate) fn subject(name: &str) -> String {
    format!("{SUBJECT}{name}")
}

fn unknown() -> Problem {
    Problem::new(Code::UnknownUser, "there is no user of this name: list the users")
}

fn value(row: &Row) -> Value {
    Value::Secret(Zeroizing::new(serde_json::to_vec(row).unwrap_or_default()))
}

fn read(value: &Value) -> Option<Row> {
    match value {
        Value::Secret(bytes) => serde_json::from_slice(bytes).ok(),
        Value::Plain(_) | Value::Number(_) => None,
    }
}

fn shown(entry: &Entry) -> Option<ShownUser> {
    let name = std::str::from_utf8(&entry.key).ok()?.strip_prefix(USERS)?;
    let Row { disabled, lifetime, .. } = read(&entry.value)?;
    Some(ShownUser { name: name.to_owned(), disabled, lifetime })
}

/// Returns the row of a user in the store, and the revision of the row; `None` if there is no such user.
pub(crate) async fn find<S: Store>(store: &S, name: &str) -> Result<Option<(Row, Revision)>, Problem> {
    if !is_name(name) {
        return Ok(None);
    }
    let entry = store.read(format!("{USERS}{name}").as_bytes(), None).await?.entry;
    let Some(entry) = entry else { return Ok(None) };
    let row = read(&entry.value).ok_or_else(|| Problem::new(Code::Internal, "the row of the user cannot be read"))?;
    Ok(Some((row, entry.changed)))
}

/// Refuses a name for a new user, if a device, a delegated device, or the holder of another certificate already has
/// this name or the [`subject`] of this name.
pub(crate) async fn check_free<S: Store>(api: &Api<S>, name: &str) -> Result<(), Problem> {
    let taken = |by: &str| {
        let why = format!("{by} has the name {name}: its rights are not those of a user, so choose another name");
        Err(Problem::new(Code::NameTaken, why))
    };
    for device in [name, &subject(name)] {
        match api.service.state().find(device).await {
            Err(StateError::Unknown(_)) => {}
            Ok(_) => return taken("a device"),
            Err(error) => return Err(error.into()),
        }
        if api.service.state().view().enrolments(None).any(|enrolment| enrolment.party.party().name == device) {
            return taken("a device that may enrol");
        }
    }
    if api.delegations.as_ref().is_some_and(|delegations| delegations.show(name).is_ok()) {
        return taken("a delegated device");
    }
    let Some(logins) = api.logins.clone() else { return Ok(()) };
    let of = name.to_owned();
    let is_taken = tokio::task::spawn_blocking(move || logins.is_taken(&of)).await;
    match is_taken.map_err(|_| Problem::new(Code::Internal, "the authority of logins failed"))? {
        Ok(false) => Ok(()),
        Ok(true) => taken("the holder of another certificate of the authority"),
        Err(why) => Err(Problem::new(Code::Internal, why)),
    }
}

/// Refuses a name for a device or a delegated device, if it is the name of a user or the [`subject`] of a user.
/// Otherwise the device and the user would have the same rights, or the same subject in their certificates.
pub(crate) async fn check_none<S: Store>(store: &S, name: &str) -> Result<(), Problem> {
    let user = name.strip_prefix(SUBJECT).unwrap_or(name);
    match find(store, user).await? {
        None => Ok(()),
        Some(_) => Err(Problem::new(Code::NameTaken, format!("a user has the name {user}: choose another name"))),
    }
}

fn check_lifetime(lifetime: u32) -> Result<(), Problem> {
    match LIFETIMES.contains(&lifetime) {
        true => Ok(()),
        false => Err(Problem::new(Code::InvalidUser, "a login lasts 60 to 2592000 seconds, which are 30 days")),
    }
}

pub(crate) async fn list<S: Store>(api: Arc<Api<S>>, page: Paging) -> Result<Shown<ShownUsers>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let after = after.map(|after| format!("{USERS}{after}").into_bytes());
    let page = api.store.scan(Scan { after, ..Scan::of(USERS, page.most) }).await?;
    let users = page.entries.iter().filter_map(shown).collect();
    let next = page.next.as_deref().and_then(|key| key.strip_prefix(USERS.as_bytes())).map(to_hex);
    Ok(Shown(ShownUsers { users, next }))
}

/// A user to be added, whose name and password were checked.
pub(crate) struct Wanted {
    name: String,
    password: Password,
    lifetime: u32,
}

pub(crate) fn wanted(Body(new): Body<NewUser>) -> Result<Wanted, Problem> {
    let NewUser { name, password, lifetime } = new;
    let (password, lifetime) = (Zeroizing::new(password), lifetime.unwrap_or(LIFETIME));
    if !is_name(&name) {
        let why = "the name of a user has 1 to 64 lower-case letters, digits and . - _ @, and begins with a letter or a digit";
        return Err(Problem::new(Code::InvalidUser, why));
    }
    passwords::check(&password, &name)?;
    check_lifetime(lifetime)?;
    Ok(Wanted { name, password, lifetime })
}

/// Adds a user. If a request is repeated with the same `Idempotency-Key`, the server executes it again. To detect a
/// repetition, the server would have to store a hash of the body. This hash is fast to compute, so an attacker who
/// knows it could guess the password.
pub(crate) async fn add<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Wanted { name, password, lifetime }: Wanted,
) -> Result<Created<ShownUser>, Problem> {
    let audit = api.service.audit();
    audit.is_writable().map_err(ServiceError::from)?;
    let row = format!("{USERS}{name}");
    let taken = || Problem::new(Code::NameTaken, format!("there is a user {name}: change it, or choose another name"));
    if find(&api.store, &name).await?.is_some() {
        return Err(taken());
    }
    check_free(&api, &name).await?;
    if count(&api.store).await? >= MOST {
        return Err(Problem::new(Code::TooManyUsers, "there are 10000 users: remove some"));
    }
    let hash = api.passwords.hash(password).await?;
    let content = value(&Row { hash, disabled: false, lifetime });
    api.store.commit(Transaction::default().require(row.as_str(), Revision::ABSENT).put(row.as_str(), content)).await?;
    let message = format!("the user {name} was added");
    audit.write(record(by, "user-added", message)).await.map_err(ServiceError::from)?;
    Ok(Created(ShownUser { name, disabled: false, lifetime }))
}

/// Returns the number of users.
async fn count<S: Store>(store: &S) -> Result<usize, Problem> {
    let (mut count, mut next) = (0_usize, Some(Scan::of(USERS, PAGE)));
    while let Some(scan) = next {
        let page = store.scan(scan.clone()).await?;
        count = count.saturating_add(page.entries.len());
        next = scan.following(&page);
    }
    Ok(count)
}

fn record(by: Principal, code: &'static str, message: String) -> Record {
    Record { kind: Kind::User, who: by.name, code, message }
}

/// A change of a user, whose password and lifetime were checked.
pub(crate) struct Change {
    name: String,
    password: Option<Password>,
    disabled: Option<bool>,
    lifetime: Option<u32>,
}

pub(crate) fn changed((Name(name), Body(changed)): (Name, Body<Changed>)) -> Result<Change, Problem> {
    let Changed { password, disabled, lifetime } = changed;
    let password = password.map(Zeroizing::new);
    password.as_ref().map_or(Ok(()), |password| passwords::check(password, &name))?;
    lifetime.map_or(Ok(()), check_lifetime)?;
    Ok(Change { name, password, disabled, lifetime })
}

/// Changes a user. A new password ends all earlier logins, and so does disabling the user.
pub(crate) async fn change<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Change { name, password, disabled, lifetime }: Change,
) -> Result<Shown<ShownEnded>, Problem> {
    let (mut row, at) = find(&api.store, &name).await?.ok_or_else(unknown)?;
    let has_other_password = password.is_some();
    let is_right = row.disabled && disabled == Some(false) || has_other_password;
    if is_right {
        api.service.audit().is_writable().map_err(ServiceError::from)?;
    }
    if let Some(password) = password {
        row.hash = api.passwords.hash(password).await?;
    }
    row.disabled = disabled.unwrap_or(row.disabled);
    row.lifetime = lifetime.unwrap_or(row.lifetime);
    let key = format!("{USERS}{name}");
    api.store.commit(Transaction::default().require(key.as_str(), at).put(key, value(&row))).await?;
    let what = match (has_other_password, disabled) {
        (true, _) => "has another password",
        (false, Some(true)) => "is disabled",
        (false, Some(false)) => "is enabled",
        (false, None) => "has another lifetime of logins",
    };
    api.service.audit().note(record(by.clone(), "user-changed", format!("the user {name} {what}")));
    match row.disabled || has_other_password {
        true => end(&api, &by, &name).await.map(Shown),
        false => Ok(Shown(ShownEnded::default())),
    }
}

/// Removes a user, and ends the user's certificates and connections. If an error occurs during the removal, the user
/// remains, but is disabled, and the operator can repeat the request.
pub(crate) async fn remove<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Shown<ShownEnded>, Problem> {
    let (row, at) = find(&api.store, &name).await?.ok_or_else(unknown)?;
    let key = format!("{USERS}{name}");
    let disabled = Row { disabled: true, ..row };
    let at =
        api.store.commit(Transaction::default().require(key.as_str(), at).put(key.as_str(), value(&disabled))).await?;
    let ended = end(&api, &by, &name).await?;
    api.store.commit(Transaction::default().require(key.as_str(), at).delete(key)).await?;
    api.service.audit().note(record(by, "user-removed", format!("the user {name} was removed")));
    Ok(Shown(ended))
}

/// Revokes the certificates of a user, and the connections of the user to delegated devices.
/// Returns the number of certificates and the list of connections.
async fn end<S: Store>(api: &Api<S>, by: &Principal, name: &str) -> Result<ShownEnded, Problem> {
    let mut ended = ShownEnded { certificates: revoke_certificates(api, name).await?, connections: Vec::new() };
    let Some(delegations) = &api.delegations else { return Ok(ended) };
    let revoked = delegations.revoke_peers(&[&subject(name)], &by.name).await?;
    ended.connections = revoked.into_iter().map(|(device, id)| format!("{device} {id}")).collect();
    Ok(ended)
}

/// Revokes the certificates of a user. Handshakes that have already begun with such a certificate fail. Returns the
/// number of certificates.
pub(crate) async fn revoke_certificates<S: Store>(api: &Api<S>, name: &str) -> Result<usize, Problem> {
    let Some(logins) = api.logins.clone() else { return Ok(0) };
    let of = name.to_owned();
    let revoked = tokio::task::spawn_blocking(move || logins.revoke(&of)).await;
    let failed = |why: String| {
        let next = format!("the certificates of the user {name} are not revoked: {why}: repeat the request");
        Problem::new(Code::Internal, next)
    };
    let ends = revoked.unwrap_or_else(|error| Err(error.to_string())).map_err(failed)?;
    if let Some(delegations) = &api.delegations {
        delegations.refuse_certificates(&subject(name), &ends);
    }
    Ok(ends.len())
}
