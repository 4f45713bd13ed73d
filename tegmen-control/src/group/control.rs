//! Requests of a Group Manager to the `control_uri` of the members of a Group OSCORE group (RFC 9594, sections 5 and 6.1).
//!
//! A member names this URI in its request to join. The Group Manager sends a POST request with a rekeying message to the
//! URI in each epoch, and a DELETE request after the member has left or was evicted. Each request has a session of its
//! own under a [key](control_key) that only this member can compute.
//!
//! A device cannot direct these requests to others: the host of its URI must be the address of its session. The Group
//! Manager sends at most [`ATTEMPTS`] requests to a member that does not respond, and then none before the next epoch. A
//! member that got no message asks for its keys.

use super::config::GroupError;
use super::control_uri::address;
use super::controller::Controller;
use super::observers::changed_groups;
use super::server::Authority;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_base::crypto::Crypto;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::controller::{CONTROL_IDENTITY, control_key};
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GROUPS};
use tegmen_host::uri::{Scheme, Uri};
use tegmen_store::Store;
use tokio::task::JoinSet;

/// Maximum number of requests of one epoch to a member that does not respond.
const ATTEMPTS: u32 = 4;
/// The time between the first request and the second one. Before each further request the time is four times as long.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of requests at the same time.
const AT_ONCE: usize = 64;
/// Maximum time for the handshake and the request together.
const PATIENCE: Duration = Duration::from_secs(20);

/// A member: the name of its group, and its own name.
type Target = (Arc<str>, Arc<str>);

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// POST with the keys of the current epoch.
    Rekeying,
    /// DELETE.
    Eviction,
}

/// A request that has to be sent now.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Due {
    target: Target,
    uri: Arc<str>,
    kind: Kind,
}

/// The outcome of a request.
#[derive(Debug)]
enum Outcome {
    /// The member has responded, or must get no request any more.
    Done,
    /// The member refuses the request. The value is the code of its response.
    Refused(Code),
    /// The request can be repeated. The value is the reason of the failure.
    Failed(String),
}

/// A member with a `control_uri`.
struct Reachable {
    uri: Arc<str>,
    kind: Kind,
    /// The time of the next request; `None` if no request has to be sent.
    due: Option<Instant>,
    /// The number of requests in sequence that failed.
    failures: u32,
    /// True if a request waits for its response.
    is_running: bool,
}

/// The members with a `control_uri`, and the times of the requests to them. There is at most one waiting request for each
/// member, and it has no payload: the keys are read when the request is sent.
#[derive(Default)]
struct Requests {
    members: BTreeMap<Target, Reachable>,
    /// The times in `members`, the earliest first.
    queue: BTreeSet<(Instant, Target)>,
    running: usize,
}

impl Requests {
    /// Plans a request to each member of a group after a change. `now` has the members with a `control_uri`. A member
    /// that is no longer among them gets a DELETE request.
    fn update(&mut self, group: &str, now: &BTreeMap<Arc<str>, Arc<str>>, at: Instant) {
        let group: Arc<str> = group.into();
        let of_group = self.members.range((Arc::clone(&group), Arc::from(""))..);
        let gone = of_group.take_while(|((of, _), _)| *of == group).filter(|((_, name), _)| !now.contains_key(name));
        let gone: Vec<Target> = gone.filter(|(_, to)| to.kind == Kind::Rekeying).map(|(to, _)| to.clone()).collect();
        for target in gone {
            if let Some(member) = self.members.get_mut(&target) {
                (member.kind, member.failures) = (Kind::Eviction, 0);
            }
            self.plan(&target, Some(at));
        }
        for (name, uri) in now {
            let target = (Arc::clone(&group), Arc::clone(name));
            let new =
                || Reachable { uri: Arc::clone(uri), kind: Kind::Rekeying, due: None, failures: 0, is_running: false };
            let member = self.members.entry(target.clone()).or_insert_with(new);
            if member.uri != *uri || member.kind != Kind::Rekeying {
                *member = Reachable { is_running: member.is_running, due: member.due, ..new() };
            }
            // A member that does not respond gets no additional requests if epochs follow quickly.
            if member.failures == 0 || member.due.is_none() {
                self.plan(&target, Some(at));
            }
        }
    }

    /// Sets the time of the next request to a member.
    fn plan(&mut self, target: &Target, due: Option<Instant>) {
        let Some(member) = self.members.get_mut(target) else { return };
        if let Some(before) = std::mem::replace(&mut member.due, due) {
            self.queue.remove(&(before, target.clone()));
        }
        if let Some(due) = due {
            self.queue.insert((due, target.clone()));
        }
    }

    /// Returns a request that has to be sent at `at`; otherwise the time of the next request. The second value is `None` if
    /// a running request has to end first.
    fn next(&mut self, at: Instant) -> Result<Due, Option<Instant>> {
        if self.running >= AT_ONCE {
            return Err(None);
        }
        let is_idle = |target: &Target| self.members.get(target).is_some_and(|member| !member.is_running);
        let Some((due, target)) = self.queue.iter().find(|(_, target)| is_idle(target)).cloned() else {
            return Err(None);
        };
        if due > at {
            return Err(Some(due));
        }
        self.plan(&target, None);
        self.running = self.running.saturating_add(1);
        let member = self.members.get_mut(&target).ok_or(None)?;
        member.is_running = true;
        Ok(Due { uri: Arc::clone(&member.uri), kind: member.kind, target })
    }

    /// Notes the outcome of a request. Returns the reason, if this member gets no further request before the next epoch.
    fn done(&mut self, target: &Target, outcome: Outcome, at: Instant) -> Option<String> {
        self.running = self.running.saturating_sub(1);
        let member = self.members.get_mut(target)?;
        member.is_running = false;
        let given_up = match outcome {
            Outcome::Done => None,
            Outcome::Refused(code) => Some(format!("it answers {code}")),
            Outcome::Failed(why) => {
                member.failures = member.failures.saturating_add(1);
                if member.failures < ATTEMPTS {
                    let wait = RETRY.saturating_mul(4_u32.saturating_pow(member.failures.saturating_sub(1)));
                    self.plan(target, Some(at.checked_add(wait).unwrap_or(at)));
                    return None;
                }
                Some(why)
            }
        };
        member.failures = 0;
        // The next epoch may have begun during the request.
        if member.kind == Kind::Eviction && member.due.is_none() {
            self.members.remove(target);
        }
        given_up
    }
}

/// Sends the rekeying messages of Group OSCORE groups to the members with a `control_uri`, and a DELETE request to such a
/// member that has left or was evicted. At the start, sends the keys of the current epochs. `authority` has the keys and
/// the rights of the devices. The future runs until it is dropped.
///
/// A request that fails has no effect on the state of the group. An event of the crate `tracing` reports a member that
/// gets no further request before the next epoch.
pub async fn send_to_members<S: Store, C: Crypto + Send + 'static>(
    controller: &Arc<Controller<S, C>>,
    authority: &Arc<dyn Authority>,
) {
    let (mut requests, mut running, mut after) = (Requests::default(), JoinSet::new(), None);
    loop {
        let due = match requests.next(Instant::now()) {
            Ok(due) => {
                let (controller, authority) = (Arc::clone(controller), Arc::clone(authority));
                running.spawn(async move {
                    let outcome = request(&*controller, &*authority, &due).await;
                    (due, outcome)
                });
                continue;
            }
            Err(due) => due,
        };
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            groups = changed_groups(controller, &mut after) => {
                for group in groups {
                    match controller.control_uris(&group).await {
                        Ok(members) => requests.update(&group, &members, Instant::now()),
                        Err(error) => {
                            tracing::error!("groups: {group}: no rekeying messages are sent to its members: {error}");
                        }
                    }
                }
            }
            Some(Ok((Due { target, uri, .. }, outcome))) = running.join_next() => {
                if let Some(why) = requests.done(&target, outcome, Instant::now()) {
                    let (group, name) = target;
                    tracing::warn!(
                        "groups: {name} in {group} gets no message at {uri} before the next epoch: {why}: it has to ask for its keys"
                    );
                }
            }
            () = due => {}
        }
    }
}

/// Sends a request to a member.
async fn request<S: Store, C: Crypto>(controller: &Controller<S, C>, authority: &dyn Authority, due: &Due) -> Outcome {
    let Due { target: (group, name), uri, kind } = due;
    // The URI was checked when the member joined.
    let uri = Uri::parse(uri).ok().and_then(|uri| Some((address(&uri)?, uri.path.join("/"))));
    let (Some((to, path)), Some(key)) = (uri, authority.device_key(name)) else { return Outcome::Done };
    let payload = match kind {
        Kind::Eviction => None,
        // The device may have lost its right since it joined.
        Kind::Rekeying if !authority.device_may(name, Code::POST, &format!("/{GROUPS}/{group}")) => {
            return Outcome::Done;
        }
        Kind::Rekeying => match controller.oscore_rekeying(group, name).await {
            Ok(message) => Some(message.encode()),
            Err(GroupError::NoMember { .. } | GroupError::NoGroup(_)) => return Outcome::Done,
            Err(error) => return Outcome::Failed(error.to_string()),
        },
    };
    let asked = tokio::time::timeout(PATIENCE, async {
        let config = ClientConfig::psk(CONTROL_IDENTITY, control_key(&key, group).expose());
        let config = config.with(|config| config.recovery.reconnect = false);
        let session = Session::connect_to(to, Scheme::Coaps, config).await?;
        let response = match &payload {
            Some(payload) => session.post(&path, payload.as_slice()).content_format(GROUPCOMM_CBOR).await?,
            None => session.delete(&path).await?,
        };
        session.close();
        Ok::<_, ClientError>(response.code)
    });
    match asked.await {
        Ok(Ok(code)) if code.class() == 2 => Outcome::Done,
        Ok(Ok(code)) if code.class() == 5 => Outcome::Failed(format!("it answers {code}")),
        Ok(Ok(code)) => Outcome::Refused(code),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(_) => Outcome::Failed(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests;
