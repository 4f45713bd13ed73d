//! Lists the connections of a device for an operator.

use super::connection::{Carrier, ConnectionId, ConnectionPage, DelegatedConnection};
use super::error::DelegationError;
use super::memory::Device;
use super::numbers::{EACH, Free, Purpose};
use super::rows::{self, ConnectionRow, Tag};
use super::server::{Delegations, PAGE, fault};
use std::collections::BTreeSet;
use tegmen_base::crypto::Crypto;
use tegmen_store::store::{Entry, Scan};
use tegmen_store::{Revision, Store, Value};

/// Returns the epochs in which connections of the device are still valid: the previous epoch, if there is one, and then
/// the present epoch. Each epoch is given by its number and its tag.
pub(super) fn epochs(device: &Device) -> Vec<(u16, Tag)> {
    let state = device.state();
    let before = state.known.before.as_ref().map(|before| before.number).zip(state.tag_before);
    let present = state.tag.map(|tag| (state.known.present.number, tag));
    before.into_iter().chain(present).collect()
}

/// Reads a connection from its row. `epoch` and `tag` are the number and the tag of its epoch. Returns the fault as
/// text if the row is not valid.
pub(super) fn read(device: &Device, (epoch, tag): (u16, Tag), entry: &Entry) -> Result<DelegatedConnection, String> {
    let prefix = rows::connections(&device.name, &tag);
    let last = std::str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(&prefix));
    let number = last.and_then(rows::number).ok_or("it names no connection")?;
    let ConnectionRow { peer, scope, since, expires, carrier, of } = rows::read(&entry.value)?;
    let carrier = Carrier::of(&carrier).ok_or("it has no known carrier")?;
    let of = of.map(|number| ConnectionId { epoch: epoch.saturating_sub(1), number });
    let revoked = device.state().is_refused(Some(tag), number);
    let id = ConnectionId { epoch, number };
    Ok(DelegatedConnection { id, peer, scope, since, expires, carrier, of, revoked })
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Returns at most `most` connections of a device, beginning after the connection `after`. The connections belong
    /// to the previous epoch or to the present one. A peer with a connection of the previous epoch may still return to
    /// the server. The server then replaces this connection by a new one. The rows of new connections that still wait in
    /// memory are written first, so the list contains every connection that this server has made.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::Fault`] or [`DelegationError::Store`].
    pub async fn connections(
        &self,
        name: &str,
        after: Option<ConnectionId>,
        most: usize,
    ) -> Result<ConnectionPage, DelegationError> {
        let device = self.known(name)?;
        self.write_made().await?;
        let mut connections: Vec<DelegatedConnection> = Vec::new();
        for (epoch, tag) in epochs(&device) {
            if after.is_some_and(|after| after.epoch > epoch) {
                continue;
            }
            let left = most.saturating_sub(connections.len());
            if left == 0 {
                break;
            }
            let of_epoch = after.filter(|after| after.epoch == epoch);
            let key = of_epoch.map(|after| rows::connection(name, &tag, after.number).into_bytes());
            let scan = Scan { after: key, ..Scan::of(rows::connections(name, &tag), left) };
            for entry in self.store.scan(scan).await?.entries {
                let read = read(&device, (epoch, tag), &entry);
                connections.push(read.map_err(|why| fault(&entry.key, why))?);
            }
        }
        let next = connections.last().filter(|_| connections.len() >= most.max(1)).map(|last| last.id);
        Ok(ConnectionPage { connections, next })
    }

    /// Returns all connections of a device.
    pub(super) async fn all_connections(&self, device: &Device) -> Result<Vec<DelegatedConnection>, DelegationError> {
        let mut connections = Vec::new();
        for of in epochs(device) {
            self.each(&rows::connections(&device.name, &of.1), |entry| {
                connections.push(read(device, of, entry)?);
                Ok(())
            })
            .await?;
        }
        Ok(connections)
    }

    /// Returns the connection numbers of the present epoch that were reserved, and that no connection in the store has.
    /// A server that was killed may have given these numbers to peers. Each number can be [revoked](Self::revoke).
    ///
    /// # Errors
    /// The errors of [`Self::connections`].
    pub async fn unaccounted(&self, name: &str) -> Result<Vec<ConnectionId>, DelegationError> {
        let device = self.known(name)?;
        let (epoch, tag) = {
            let state = device.state();
            (state.known.present.number, state.tag)
        };
        let Some(tag) = tag else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for purpose in Purpose::ALL {
            let (numbers, _) = self.unaccounted_of(&device, &tag, purpose).await?;
            all.extend(numbers.into_iter().map(|number| ConnectionId { epoch, number }));
        }
        Ok(all)
    }

    /// Returns the connection numbers that were reserved for one [`Purpose`], and that no connection in the store has.
    /// Also returns the revision at which the last of these numbers were reserved.
    pub(super) async fn unaccounted_of(
        &self,
        device: &Device,
        tag: &Tag,
        purpose: Purpose,
    ) -> Result<(Vec<u32>, Revision), DelegationError> {
        // Numbers of this server are in memory until their rows are durable, so memory is read before the rows. The
        // numbers in memory belong to the present epoch.
        let (free, unwritten) = {
            let mut state = device.state();
            match state.tag == Some(*tag) {
                true => (state.free(purpose).clone(), state.unwritten.clone()),
                false => (Free::default(), BTreeSet::new()),
            }
        };
        let row = rows::numbers(&device.name, tag, purpose);
        let entry = self.store.read(row.as_bytes(), None).await?.entry;
        let reserved = entry.as_ref().map_or(Revision::ABSENT, |entry| entry.changed);
        let end = match entry.map(|entry| entry.value) {
            Some(Value::Number(number)) => u32::try_from(number.next).unwrap_or(EACH).min(EACH),
            _ => 0,
        };
        let prefix = rows::connections(&device.name, tag);
        let mut scan = Scan {
            after: purpose.first().checked_sub(1).map(|last| rows::connection(&device.name, tag, last).into_bytes()),
            ..Scan::of(prefix.as_str(), PAGE)
        };
        let mut with_row = BTreeSet::new();
        loop {
            let page = self.store.scan(scan.clone()).await?;
            for entry in &page.entries {
                let last = std::str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(&prefix));
                with_row.extend(last.and_then(rows::number));
            }
            let is_behind = with_row.last().is_some_and(|last| Purpose::of_number(*last) != purpose);
            match scan.following(&page).filter(|_| !is_behind) {
                Some(next) => scan = next,
                None => break,
            }
        }
        let numbers = purpose.first()..purpose.first().saturating_add(end);
        let is_without = |number: &u32| !with_row.contains(number) && !free.has(*number) && !unwritten.contains(number);
        Ok((numbers.filter(is_without).collect(), reserved))
    }
}
