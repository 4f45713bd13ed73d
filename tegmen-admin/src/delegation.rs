//! Operations on delegated sessions.

pub(crate) mod messages;

use crate::api::Api;
use crate::keys::Principal;
use crate::parts::{Body, Member, Name, Over, Paging, wrong_cursor};
use crate::problem::{Code, Problem};
use crate::reply::{Created, Done, Once, Shown, Tagged};
use crate::users;
use messages::{
    Changed, Compromised, Imprinted, Introduction, ShownConnections, ShownDevice, ShownDevices, ShownDrill,
    ShownIntroduction, ShownPreview, ShownReissues, ShownRevoked, ShownSession, Unaccounted, Wanted, WantedConfig,
    WantedSession,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen_base::hex::to_hex;
use tegmen_control::delegation::{ConnectionId, Delegations, DeviceConfig};
use tegmen_store::Store;

/// Maximum time for which the answer to a revocation waits for the confirmation of the device.
const CONFIRMATION: Duration = Duration::from_secs(2);

/// Returns the part of this server that delegates sessions to devices. Fails if the configuration of this server has no
/// such part.
fn delegations<S: Store>(api: &Api<S>) -> Result<&Delegations<S>, Problem> {
    let missing = "this server delegates no sessions: set delegation-ca or delegation-acme in the section [delegation] of its \
                   configuration";
    api.delegations.as_deref().ok_or_else(|| Problem::new(Code::NoDelegation, missing))
}

pub(crate) async fn list<S: Store>(api: Arc<Api<S>>, page: Paging) -> Result<Shown<ShownDevices>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let mut devices = delegations(&api)?.list(after.as_deref(), page.most.saturating_add(1));
    let has_more = devices.len() > page.most;
    devices.truncate(page.most);
    let next = devices.last().filter(|_| has_more).map(|last| to_hex(last.name.as_bytes()));
    Ok(Shown(ShownDevices { devices: devices.into_iter().map(ShownDevice::from).collect(), next }))
}

pub(crate) fn new_device(Body(wanted): Body<Wanted>) -> Result<(String, DeviceConfig), Problem> {
    Ok((wanted.name, wanted.config.into()))
}

pub(crate) async fn imprint<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (name, config): (String, DeviceConfig),
) -> Result<Once<Created<Imprinted>>, Problem> {
    let delegations = delegations(&api)?;
    users::check_none(&api.store, &name).await?;
    let key = delegations.imprint(&name, config, &by.name).await?;
    Ok(Once(Created(Imprinted::new(name, &key)), "key"))
}

pub(crate) async fn imprint_again<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Once<Created<Imprinted>>, Problem> {
    let key = delegations(&api)?.imprint_again(&name, &by.name).await?;
    Ok(Once(Created(Imprinted::new(name, &key)), "key"))
}

pub(crate) async fn show<S: Store>(api: Arc<Api<S>>, Name(name): Name) -> Result<Tagged<Shown<ShownDevice>>, Problem> {
    let report = delegations(&api)?.show(&name)?;
    let revision = report.revision;
    Ok(Tagged(Shown(report.into()), revision))
}

pub(crate) fn new_config(
    (Name(name), Over(over), Body(config)): (Name, Over, Body<WantedConfig>),
) -> Result<(String, Over, DeviceConfig), Problem> {
    Ok((name, Over(over), config.into()))
}

pub(crate) async fn configure<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (name, Over(over), config): (String, Over, DeviceConfig),
) -> Result<Done, Problem> {
    delegations(&api)?.configure(&name, config, over, &by.name).await?;
    Ok(Done)
}

pub(crate) async fn set_disabled<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (Name(name), Body(Changed { disabled })): (Name, Body<Changed>),
) -> Result<Done, Problem> {
    delegations(&api)?.set_disabled(&name, disabled, &by.name).await?;
    Ok(Done)
}

pub(crate) async fn connections<S: Store>(
    api: Arc<Api<S>>,
    (Name(name), page): (Name, Paging),
) -> Result<Shown<ShownConnections>, Problem> {
    let after = page.after.map(String::from_utf8).transpose().map_err(|_| wrong_cursor())?;
    let after: Option<ConnectionId> = after.map(|after| after.parse().map_err(|_| wrong_cursor())).transpose()?;
    Ok(Shown(delegations(&api)?.connections(&name, after, page.most).await?.into()))
}

pub(crate) async fn unaccounted<S: Store>(api: Arc<Api<S>>, Name(name): Name) -> Result<Shown<Unaccounted>, Problem> {
    Ok(Shown(delegations(&api)?.unaccounted(&name).await?.into()))
}

pub(crate) fn named((Name(device), Member(id)): (Name, Member)) -> Result<(String, ConnectionId), Problem> {
    let id = id.parse().map_err(|why: String| Problem::new(Code::UnknownConnection, why))?;
    Ok((device, id))
}

pub(crate) async fn revoke<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    (name, id): (String, ConnectionId),
) -> Result<Shown<ShownRevoked>, Problem> {
    let delegations = delegations(&api)?;
    let revoked = delegations.revoke(&name, id, &by.name).await?;
    let since = Instant::now();
    // The revocation is durable, so an error here is no reason to refuse the request.
    let is_confirmed = || {
        let untold = delegations.to_refuse(&name);
        !revoked.by_reset && untold.is_ok_and(|untold| !revoked.connections.iter().any(|one| untold.contains(one)))
    };
    while !revoked.by_reset && !is_confirmed() && since.elapsed() < CONFIRMATION {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Shown(ShownRevoked::new(&revoked, is_confirmed())))
}

pub(crate) async fn preview<S: Store>(api: Arc<Api<S>>, Name(name): Name) -> Result<Shown<ShownPreview>, Problem> {
    Ok(Shown(delegations(&api)?.preview_reset(&name).await?.into()))
}

pub(crate) async fn reset<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Shown<ShownPreview>, Problem> {
    let delegations = delegations(&api)?;
    let preview = delegations.preview_reset(&name).await?;
    delegations.reset(&name, &by.name).await?;
    Ok(Shown(preview.into()))
}

pub(crate) async fn preview_reissue<S: Store>(
    api: Arc<Api<S>>,
    Name(name): Name,
) -> Result<Shown<ShownReissues>, Problem> {
    Ok(Shown(delegations(&api)?.preview_reissue(&name).await?.into()))
}

pub(crate) async fn reissue<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    Name(name): Name,
) -> Result<Shown<ShownReissues>, Problem> {
    Ok(Shown(delegations(&api)?.reissue(&name, &by.name).await?.into()))
}

pub(crate) async fn introduce<S: Store>(
    api: Arc<Api<S>>,
    _: Principal,
    Body(Introduction { opener, other }): Body<Introduction>,
) -> Result<Created<ShownIntroduction>, Problem> {
    Ok(Created(delegations(&api)?.introduce(&opener, &other).await?.into()))
}

pub(crate) async fn open_session<S: Store>(
    api: Arc<Api<S>>,
    _: Principal,
    Body(WantedSession { device, address, server_name }): Body<WantedSession>,
) -> Result<Created<ShownSession>, Problem> {
    Ok(Created(delegations(&api)?.open_at(&device, address, &server_name).await?.into()))
}

pub(crate) fn compromised(Body(compromised): Body<Compromised>) -> Result<Vec<String>, Problem> {
    compromised.check()
}

pub(crate) async fn server_compromised<S: Store>(
    api: Arc<Api<S>>,
    by: Principal,
    names: Vec<String>,
) -> Result<Once<Shown<ShownDrill>>, Problem> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reachable = delegations(&api)?.server_compromised(&names, &by.name).await?;
    Ok(Once(Shown(reachable.into()), "devices"))
}
