//! Connections of the previous epoch that are not yet replaced by connections of the present epoch, and connections
//! whose scope the policy no longer allows.
//!
//! A peer with a ticket returns to the server and gets another ticket. In a session that the server opened between two
//! of its devices, neither device can get another ticket in this way, because neither of them authenticates itself at
//! the server. So the server makes a new session for the two devices.

use super::connection::{Carrier, ConnectionId, DelegatedConnection};
use super::decisions::Standing;
use super::error::DelegationError;
use super::memory::Device;
use super::rights;
use super::server::Delegations;
use std::collections::BTreeSet;
use std::sync::Arc;
use tegmen_base::crypto::Crypto;
use tegmen_store::Store;

/// A connection that has not expired, was not revoked, and is not replaced by another one. The connection is of the
/// previous epoch, or the policy no longer allows its scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reissue {
    /// The connection.
    pub before: DelegatedConnection,
    /// The way in which the connection continues.
    pub way: Way,
    /// The connection of the present epoch that replaces the connection in `before`; `None` if the server made no such
    /// connection.
    pub given: Option<ConnectionId>,
    /// The code of the reason why the server tried to replace the connection and failed; `None` if there was no
    /// failure. The code stays the same in later versions.
    pub failed: Option<&'static str>,
}

/// The way in which a connection of the previous epoch continues in the present epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The connection is between two devices of the server, and the server makes a new session for both. The scopes,
    /// the time of authentication and the expiry times stay the same.
    Again,
    /// The peer gets another ticket when it returns to the server.
    Returns,
    /// The connection does not continue. The peer authenticates itself again, or an operator opens the session again.
    Ends,
    /// The server does not replace the connection, because the policy no longer allows its scope. If the connection is of
    /// the previous epoch, a peer with a ticket may still return, until the connection is revoked. A connection of the
    /// present epoch is in use until it is revoked.
    NoRights,
}

impl Way {
    /// Returns the name of the way in which the connection continues.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Again => "again",
            Self::Returns => "returns",
            Self::Ends => "ends",
            Self::NoRights => "no-rights",
        }
    }
}

/// A connection, with the way in which it continues. If the server opened the session between two
/// of its devices, `counterpart` has the other device, and the connection of this other device in the same session.
struct Found {
    before: DelegatedConnection,
    way: Way,
    counterpart: Option<(Arc<Device>, DelegatedConnection)>,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Returns the connections of the previous epoch of a device, each with the way in which it continues in the present
    /// epoch, and the connections of the present epoch whose scope the policy no longer allows.
    ///
    /// # Errors
    /// The errors of [`Self::connections`].
    pub async fn preview_reissue(&self, name: &str) -> Result<Vec<Reissue>, DelegationError> {
        let found = self.to_reissue(&self.known(name)?).await?;
        let shown = |Found { before, way, .. }| Reissue { before, way, given: None, failed: None };
        Ok(found.into_iter().map(shown).collect())
    }

    /// Replaces the sessions of the previous epoch between the device `name` and other devices of the server by
    /// sessions of the present epoch. Each session has two connections, one at each device. A new connection has the
    /// scope, the time of authentication and the expiry time of the connection that it replaces. If the policy no
    /// longer allows the scope of one of the two connections, the server does not replace the session. The device that
    /// opens the new session receives it when the server next contacts this device.
    ///
    /// # Errors
    /// The errors of [`Self::preview_reissue`], and [`DelegationError::Audit`].
    pub async fn reissue(&self, name: &str, by: &str) -> Result<Vec<Reissue>, DelegationError> {
        let device = self.known(name)?;
        self.audit.is_writable()?;
        let mut reissued = Vec::new();
        for Found { before, way, counterpart } in self.to_reissue(&device).await? {
            let (mut given, mut failed) = (None, None);
            if let Some((peer, at_peer)) = counterpart.filter(|_| way == Way::Again) {
                match self.give_again_to_both((&device, &before), (&peer, &at_peer)) {
                    Ok(id) => given = Some(id),
                    Err(DelegationError::NotGiven { code, .. }) => failed = Some(code),
                    Err(error) => return Err(error),
                }
            }
            reissued.push(Reissue { before, way, given, failed });
        }
        self.write_made().await?;
        let count = reissued.iter().filter(|one| one.given.is_some()).count();
        let message = format!("{count} sessions of the device {name} with other devices are given again");
        self.write_or_note(false, by, "reissued", message).await?;
        Ok(reissued)
    }

    /// Finds the connections of the previous epoch that are not replaced in the present epoch, and the connections of the
    /// present epoch whose scope the policy no longer allows.
    async fn to_reissue(&self, device: &Arc<Device>) -> Result<Vec<Found>, DelegationError> {
        self.write_made().await?;
        let connections = self.all_connections(device).await?;
        let (epoch, now) = (device.state().known.present.number, self.now());
        let mut used = BTreeSet::new();
        let mut found = Vec::new();
        for before in open_now(&connections, now) {
            if before.id.epoch == epoch {
                if !self.stands(device, before) {
                    found.push(Found { before: before.clone(), way: Way::NoRights, counterpart: None });
                }
                continue;
            }
            let counterpart = self.counterpart(device, before, &used).await?;
            if let Some((peer, connection)) = &counterpart {
                used.insert((peer.id, connection.id));
            }
            let stands = self.stands(device, before)
                && counterpart.as_ref().is_none_or(|(peer, connection)| self.stands(peer, connection));
            let way = match (before.carrier, &counterpart) {
                _ if !stands => Way::NoRights,
                (_, Some(_)) => Way::Again,
                (Carrier::Ticket, None) => Way::Returns,
                (Carrier::Id | Carrier::Device, None) => Way::Ends,
            };
            found.push(Found { before: before.clone(), way, counterpart });
        }
        Ok(found)
    }

    /// Finds the other connection of a session between two devices of this server. `of` is the connection of `device`
    /// in this session. Returns the other device, and its connection in the session. Skips the connections in `used`,
    /// which were already found for other sessions.
    async fn counterpart(
        &self,
        device: &Device,
        of: &DelegatedConnection,
        used: &BTreeSet<(u32, ConnectionId)>,
    ) -> Result<Option<(Arc<Device>, DelegatedConnection)>, DelegationError> {
        let wanted = match of.carrier {
            Carrier::Ticket => Carrier::Device,
            Carrier::Device => Carrier::Ticket,
            Carrier::Id => return Ok(None),
        };
        let Some(peer) = self.named(&of.peer) else { return Ok(None) };
        let connections = self.all_connections(&peer).await?;
        let is_it = |one: &&DelegatedConnection| {
            one.peer == device.name
                && one.carrier == wanted
                && one.since == of.since
                && !used.contains(&(peer.id, one.id))
        };
        let found = open_now(&connections, self.now()).find(is_it).cloned();
        Ok(found.map(|found| (peer, found)))
    }

    fn stands(&self, device: &Device, connection: &DelegatedConnection) -> bool {
        let state = device.state();
        let party = state.known.party.party();
        rights::stands(&*self.rights, &connection.peer, &party, &state.known.config, connection.scope)
    }

    /// Makes a new session for the two devices of an earlier session: `device`, which had the connection `before`, and
    /// `peer`, which had the connection `at_peer`. Returns the new connection of `device`.
    fn give_again_to_both(
        &self,
        (device, before): (&Arc<Device>, &DelegatedConnection),
        (peer, at_peer): (&Arc<Device>, &DelegatedConnection),
    ) -> Result<ConnectionId, DelegationError> {
        let (own, others) = (as_it_was(before), as_it_was(at_peer));
        match before.carrier {
            Carrier::Device => {
                let given = self.open_between([device, peer], before.since, Some([own, others]))?;
                self.want(device);
                Ok(given.opener)
            }
            Carrier::Ticket | Carrier::Id => {
                let given = self.open_between([peer, device], before.since, Some([others, own]))?;
                self.want(peer);
                Ok(given.other)
            }
        }
    }
}

/// Returns the connections that have not expired, were not revoked, and are not replaced by another connection in the
/// list.
fn open_now(connections: &[DelegatedConnection], now: u64) -> impl Iterator<Item = &DelegatedConnection> {
    let continued: BTreeSet<_> = connections.iter().filter_map(|connection| connection.of).collect();
    let is_open = move |connection: &&DelegatedConnection| {
        !connection.revoked && u64::from(connection.expires) > now && !continued.contains(&connection.id)
    };
    connections.iter().filter(is_open)
}

fn as_it_was(connection: &DelegatedConnection) -> Standing<'_> {
    let DelegatedConnection { id, peer, scope, since, expires, .. } = connection;
    Standing { peer, scope: *scope, since: *since, expires: *expires, id: *id }
}
