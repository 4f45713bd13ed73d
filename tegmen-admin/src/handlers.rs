//! The functions that implement the operations.

use crate::api::Api;
use crate::keys::{NewKey, Principal};
use crate::messages::{
    Changes, Compared, Expected, Explain, Explained, ListedKeys, Listing, NamedProof, PolicyFile, Proof, Revoked,
    ShownDevice, ShownDevices, ShownEnrolment, ShownEnrolments, ShownKey, ShownPolicy, Tested,
};
use crate::parts::{Body, Name, Over, Paging, wrong_cursor};
use crate::problem::{Code, Problem};
use crate::reply::{Created, Done, Once, Shown, Tagged};
use crate::users;
use std::sync::Arc;
use tegmen_base::hex::to_hex;
use tegmen_control::access::policy::{self, OwnedParty, Question};
use tegmen_control::audit::{Kind, Record};
use tegmen_control::service::ServiceError;
use tegmen_control::state::{Change, Enrolment, NewDevice};
use tegmen_store::{Revision, Store};

pub(crate) async fn list_devices<S: Store>(api: Arc<Api<S>>, page: Paging) -> Result<Shown<ShownDevices>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let page = api.service.state().list(after.as_deref(), page.most).await?;
    let next = page.next.map(|name| to_hex(name.as_bytes()));
    Ok(Shown(ShownDevices { devices: page.devices.iter().map(ShownDevice::from).collect(), next }))
}

pub(crate) fn new_device(Body(proof): Body<NamedProof>) -> Result<NewDevice, Problem> {
    proof.device()
}

pub(crate) async fn add_device<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    device: NewDevice,
) -> Result<Tagged<Created<ShownDevice>>, Problem> {
    users::check_none(&api.store, device.device().name()).await?;
    let revision = api.service.add(&by.name, &device).await?;
    Ok(Tagged(Created(device.device().into()), revision))
}

pub(crate) async fn show_device<S: Store>(
    api: Arc<Api<S>>,
    Name(name): Name,
) -> Result<Tagged<Shown<ShownDevice>>, Problem> {
    let (device, revision) = api.service.state().find(&name).await?;
    Ok(Tagged(Shown((&device).into()), revision))
}

/// A change of a device: the name of the device, the revision of the device that the sender intends to change (`None`
/// if the sender accepts any revision), and the change.
pub(crate) type DeviceChange = (String, Option<Revision>, Change);

pub(crate) fn replacement(
    (Name(name), Body(proof), Over(over)): (Name, Body<Proof>, Over),
) -> Result<DeviceChange, Problem> {
    let change = Change { proof: Some(proof.device(&name)?), ..Change::default() };
    Ok((name, over, change))
}

pub(crate) fn changed(
    (Name(name), Body(changes), Over(over)): (Name, Body<Changes>, Over),
) -> Result<DeviceChange, Problem> {
    let Changes { tags, disabled } = changes;
    Ok((name, over, Change { proof: None, tags, disabled }))
}

pub(crate) async fn change_device<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (name, over, change): DeviceChange,
) -> Result<Tagged<Done>, Problem> {
    Ok(Tagged(Done, api.service.change(&by.name, &name, over, change).await?))
}

pub(crate) async fn remove_device<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (Name(name), Over(over)): (Name, Over),
) -> Result<Done, Problem> {
    api.service.remove(&by.name, &name, over).await?;
    Ok(Done)
}

pub(crate) async fn list_enrolments<S: Store>(
    api: Arc<Api<S>>,
    page: Paging,
) -> Result<Shown<ShownEnrolments>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let view = api.service.state().view();
    let mut rest = view.enrolments(after.as_deref()).map(ShownEnrolment::from);
    let enrolments: Vec<ShownEnrolment> = rest.by_ref().take(page.most).collect();
    let last = enrolments.last().filter(|_| rest.next().is_some());
    let next = last.map(|enrolment| to_hex(enrolment.name.as_bytes()));
    Ok(Shown(ShownEnrolments { enrolments, next }))
}

pub(crate) fn new_enrolment(Body(expected): Body<Expected>) -> Result<Enrolment, Problem> {
    expected.enrolment()
}

pub(crate) async fn create_enrolment<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    enrolment: Enrolment,
) -> Result<Once<Created<ShownEnrolment>>, Problem> {
    users::check_none(&api.store, enrolment.party.party().name).await?;
    let key = api.service.expect(&by.name, &enrolment).await?;
    let mut shown = ShownEnrolment::from(&enrolment);
    shown.key = Some(key.text().to_string());
    Ok(Once(Created(shown), "key"))
}

pub(crate) async fn delete_enrolment<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Done, Problem> {
    api.service.withdraw(&by.name, &name).await?;
    Ok(Done)
}

pub(crate) async fn show_policy<S: Store>(api: Arc<Api<S>>, (): ()) -> Result<Tagged<Shown<ShownPolicy>>, Problem> {
    let view = api.service.state().view();
    let policy = view.policy_text().map(|(file, text)| ShownPolicy { file: Some(file.to_owned()), text });
    let policy = policy.unwrap_or(ShownPolicy { file: None, text: String::new() });
    Ok(Tagged(Shown(policy), view.in_force().revision))
}

pub(crate) async fn apply_policy<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (Body(file), Over(over)): (Body<PolicyFile>, Over),
) -> Result<Tagged<Done>, Problem> {
    let text = (file.name(), file.text.as_str());
    Ok(Tagged(Done, api.service.apply_policy(&by.name, text, over).await?))
}

pub(crate) async fn test_policy<S: Store>(
    _: Arc<Api<S>>,
    Body(file): Body<PolicyFile>,
) -> Result<Shown<Tested>, Problem> {
    let policy = file.parse()?;
    let failed = policy.failed_tests().iter().map(ToString::to_string).collect();
    Ok(Shown(Tested { rules: policy.rules(), tests: policy.tests(), failed }))
}

pub(crate) async fn diff_policy<S: Store>(
    api: Arc<Api<S>>,
    Body(file): Body<PolicyFile>,
) -> Result<Shown<Compared>, Problem> {
    let newer = file.parse()?;
    let older = api.service.state().view().in_force().policy;
    // A comparison of large policies takes seconds.
    let diff = tokio::task::spawn_blocking(move || older.diff(&newer, &[])).await;
    let diff = diff.map_err(|_| Problem::new(Code::Internal, "the comparison failed"))?;
    let changes = diff.changes.iter().map(ToString::to_string).collect();
    Ok(Shown(Compared { removed: diff.removed, added: diff.added, changes, complete: diff.complete }))
}

pub(crate) async fn explain_policy<S: Store>(
    api: Arc<Api<S>>,
    Body(explain): Body<Explain>,
) -> Result<Shown<Explained>, Problem> {
    let party = |words: &[String]| OwnedParty::from_words(words.iter().map(String::as_str)).map_err(Problem::malformed);
    let (subject, publisher) = (party(&explain.subject)?, party(&explain.publisher)?);
    let (method, path) = policy::request(&explain.request).map_err(Problem::malformed)?;
    let question = Question { subject: subject.party(), publisher: publisher.party(), method, path };
    let explanation = api.service.state().view().in_force().policy.explain(&question);
    let near = explanation.near.iter().map(|near| near.message.clone()).collect();
    let decision = explanation.decision.code().to_owned();
    Ok(Shown(Explained { decision, message: explanation.message, near }))
}

pub(crate) async fn list_revocations<S: Store>(api: Arc<Api<S>>, page: Paging) -> Result<Shown<Listing>, Problem> {
    let (hashes, has_more) = api.service.state().view().revoked_page(page.after.as_deref(), page.most);
    let hashes: Vec<String> = hashes.iter().map(|hash| to_hex(hash)).collect();
    let next = hashes.last().filter(|_| has_more).cloned();
    Ok(Shown(Listing { hashes, next }))
}

pub(crate) async fn revoke<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    revoked: Revoked,
) -> Result<Created<Revoked>, Problem> {
    match &revoked {
        Revoked::Session(revoked) => api.service.revoke_session(&by.name, &revoked.session).await?,
        Revoked::Token(token) => {
            let concerned: Vec<&str> = token.concerned.iter().map(String::as_str).collect();
            api.service.revoke_token(&by.name, &token.hash()?, token.expires, &concerned).await?;
        }
    }
    Ok(Created(revoked))
}

pub(crate) async fn list_keys<S: Store>(api: Arc<Api<S>>, (): ()) -> Result<Shown<ListedKeys>, Problem> {
    Ok(Shown(ListedKeys { keys: api.keys.list().await? }))
}

pub(crate) fn new_key((by, Body(key)): (Principal, Body<NewKey>)) -> Result<NewKey, Problem> {
    key.check(&by).map(|()| key)
}

pub(crate) async fn create_key<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    key: NewKey,
) -> Result<Once<Created<ShownKey>>, Problem> {
    let audit = api.service.audit();
    audit.is_writable().map_err(ServiceError::from)?;
    let about = key.to_string();
    let (id, key) = api.keys.create(key, &by).await?;
    let message = format!("the API key {id} was created: {about}");
    let record = Record { kind: Kind::Key, who: by.name, code: "created", message };
    audit.write(record).await.map_err(ServiceError::from)?;
    Ok(Once(Created(ShownKey { id, key: Some(key.to_string()) }), "key"))
}

pub(crate) async fn delete_key<S: Store>(api: Arc<Api<S>>, by: Principal, Name(id): Name) -> Result<Done, Problem> {
    api.keys.delete(&id).await?;
    let message = format!("the API key {id} was deleted");
    api.service.audit().note(Record { kind: Kind::Key, who: by.name, code: "deleted", message });
    Ok(Done)
}
