//! Operations on Axiom groups.

pub(crate) mod messages;

use crate::api::Api;
use crate::keys::Principal;
use crate::parts::{Body, Member, Name, Over, Paging, wrong_cursor};
use crate::problem::{Code, Problem};
use crate::reply::{self, Done, Once, Shown, Tagged};
use messages::{
    Added, Created, Creation, ListedGroup, NewlyAdded, Rekeyed, ShownFile, ShownGroup, ShownGroups, ShownMember, Wanted,
};
use std::sync::Arc;
use tegmen_base::hex::to_hex;
use tegmen_control::audit::{Kind, Record};
use tegmen_control::group::{Controller, GroupError, NewMember, Rekeying};
use tegmen_control::service::ServiceError;
use tegmen_control::state::StateError;
use tegmen_store::Store;

/// Returns the controller of groups. Fails if the server has none.
fn controller<S: Store>(api: &Api<S>) -> Result<&Controller<S>, Problem> {
    let missing = "this server controls no groups: set group-controller in the section [groups] of its configuration";
    api.groups.as_deref().ok_or_else(|| Problem::new(Code::NoGroups, missing))
}

fn record(by: Principal, code: &'static str, message: String) -> Record {
    Record { kind: Kind::Group, who: by.name, code, message }
}

/// Makes the response to a change of a group. If the rekey messages of the change could not be signed, the change was
/// made all the same. The controller sends the messages later, and the response contains a warning.
async fn made<S: Store>(
    controller: &Controller<S>,
    group: &str,
    outcome: Result<Rekeying, GroupError>,
) -> Result<Rekeyed, Problem> {
    match outcome {
        Ok(Rekeying { epoch, warning, .. }) => Ok(Rekeyed { epoch, warning }),
        Err(unsigned @ GroupError::NotSigned) => {
            let epoch = controller.page(group, None, 0).await?.epoch;
            Ok(Rekeyed { epoch, warning: Some(unsigned.to_string()) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a new member that is not an enabled device of the server, because the controller would evict it.
async fn check_device<S: Store>(api: &Api<S>, member: &str) -> Result<(), Problem> {
    let refused = |code, why: &str, verb: &str| {
        let next = format!("{verb} it by tegmen device {verb} {member}");
        Err(Problem::new(code, format!("{member} is {why}, and the controller evicts such a member: {next}")))
    };
    match api.service.state().find(member).await {
        Ok((device, _)) if device.disabled => refused(Code::DeviceDisabled, "a disabled device", "enable"),
        Ok(_) => Ok(()),
        Err(StateError::Unknown(_)) => refused(Code::UnknownDevice, "no device of this server", "add"),
        Err(error) => Err(error.into()),
    }
}

/// Evicts a new member if its device was disabled or removed during the admission, and returns the refusal; otherwise
/// returns `None`. The controller itself does not evict such a member, because the device was not a member yet when it
/// was disabled.
async fn left_meanwhile<S: Store>(api: &Api<S>, group: &str, member: &str) -> Result<Option<Problem>, Problem> {
    match check_device(api, member).await {
        Ok(()) => Ok(None),
        Err(left) if [Code::DeviceDisabled, Code::UnknownDevice].contains(&left.code) => {
            match controller(api)?.evict(group, member).await {
                Ok(_) | Err(GroupError::NotSigned | GroupError::NoMember { .. }) => Ok(Some(left)),
                Err(error) => Err(error.into()),
            }
        }
        Err(problem) => Err(problem),
    }
}

pub(crate) async fn list<S: Store>(api: Arc<Api<S>>, page: Paging) -> Result<Shown<ShownGroups>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let controller = controller(&api)?;
    let mut names = controller.list(after.as_deref(), page.most.saturating_add(1)).await?;
    let has_more = names.len() > page.most;
    names.truncate(page.most);
    let next = names.last().filter(|_| has_more).map(|name| to_hex(name.as_bytes()));
    let mut groups = Vec::with_capacity(names.len());
    for name in names {
        match controller.epochs(&name).await {
            // It was deleted meanwhile.
            Err(GroupError::NoGroup(_)) => {}
            // The others are listed all the same.
            Err(fault @ GroupError::Fault { .. }) => groups.push(ListedGroup::unreadable(name, &fault)),
            epochs => groups.push(ListedGroup::of(name, epochs?)),
        }
    }
    Ok(Shown(ShownGroups { groups, next }))
}

pub(crate) fn new_group(Body(wanted): Body<Wanted>) -> Result<Creation, Problem> {
    wanted.check()
}

pub(crate) async fn create<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    new: Creation,
) -> Result<Tagged<Once<reply::Created<Created>>>, Problem> {
    let (controller, audit) = (controller(&api)?, api.service.audit());
    audit.is_writable().map_err(ServiceError::from)?;
    let Creation { name, config, members, controller: at } = new;
    for member in &members {
        check_device(&api, &member.name).await?;
    }
    controller.create(&name, config, &members).await?;
    let mut files = Vec::with_capacity(members.len());
    for member in &members {
        files.push(ShownFile::from(&controller.member_file(&name, (&member.name, 1), at.as_deref()).await?));
        // The file of a member that has left is useless.
        left_meanwhile(&api, &name, &member.name).await?;
    }
    let report = controller.page(&name, None, members.len()).await?;
    let message = format!("the group {name} was created at {} with {} members", config.address, members.len());
    audit.write(record(by, "created", message)).await.map_err(ServiceError::from)?;
    let group = ShownGroup::of(&name, &report, members.len());
    let files = (!files.is_empty()).then_some(files);
    Ok(Tagged(Once(reply::Created(Created { group, files }), "files"), report.revision))
}

pub(crate) async fn show<S: Store>(
    api: Arc<Api<S>>,
    (Name(name), page): (Name, Paging),
) -> Result<Tagged<Shown<ShownGroup>>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let report = controller(&api)?.page(&name, after.as_deref(), page.most.saturating_add(1)).await?;
    Ok(Tagged(Shown(ShownGroup::of(&name, &report, page.most)), report.revision))
}

pub(crate) async fn delete<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (Name(name), Over(over)): (Name, Over),
) -> Result<Done, Problem> {
    controller(&api)?.delete(&name, over).await?;
    api.service.audit().note(record(by, "deleted", format!("the group {name} was deleted")));
    Ok(Done)
}

pub(crate) async fn rekey<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Shown<Rekeyed>, Problem> {
    let controller = controller(&api)?;
    let rekeyed = made(controller, &name, controller.rekey(&name).await).await?;
    let message = format!("the group {name} began the epoch {}", rekeyed.epoch);
    api.service.audit().note(record(by, "rekeyed", message));
    Ok(Shown(rekeyed))
}

/// The addition of a member: the name of the group, the new member, and the URI for the file of the member if there is
/// one.
pub(crate) type Addition = (String, NewMember, Option<String>);

pub(crate) fn new_member((Name(group), Body(added)): (Name, Body<Added>)) -> Result<Addition, Problem> {
    let (member, at) = added.check()?;
    Ok((group, member, at))
}

pub(crate) async fn add_member<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (group, new, at): Addition,
) -> Result<Once<reply::Created<NewlyAdded>>, Problem> {
    let (controller, audit) = (controller(&api)?, api.service.audit());
    audit.is_writable().map_err(ServiceError::from)?;
    check_device(&api, &new.name).await?;
    let rekeyed = made(controller, &group, controller.add(&group, &new).await).await?;
    let message = format!("{} was admitted to the group {group} in the epoch {}", new.name, rekeyed.epoch);
    audit.write(record(by, "admitted", message)).await.map_err(ServiceError::from)?;
    let file = controller.member_file(&group, (&new.name, rekeyed.epoch), at.as_deref()).await?;
    if let Some(left) = left_meanwhile(&api, &group, &new.name).await? {
        return Err(left);
    }
    let member = ShownMember::admitted(new, (file.keys.leaf, file.keys.sender_id), rekeyed.epoch);
    Ok(Once(reply::Created(NewlyAdded { member, rekeyed, files: Some(vec![(&file).into()]) }), "files"))
}

pub(crate) async fn evict_member<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (Name(group), Member(member)): (Name, Member),
) -> Result<Shown<Rekeyed>, Problem> {
    let controller = controller(&api)?;
    let rekeyed = made(controller, &group, controller.evict(&group, &member).await).await?;
    let message = format!("{member} was evicted from the group {group} before the epoch {}", rekeyed.epoch);
    api.service.audit().note(record(by, "evicted", message));
    Ok(Shown(rekeyed))
}
