//! Revocations of connections.

use super::changes::PLANS;
use super::connection::{ConnectionId, DelegatedConnection};
use super::connections::{epochs, read};
use super::error::DelegationError;
use super::memory::Device;
use super::numbers::Purpose;
use super::rows::{self, ConnectionRow, RefusedRow, Tag};
use super::server::{Delegations, fault};
use std::collections::BTreeSet;
use std::sync::Arc;
use tegmen_base::crypto::Crypto;
use tegmen_store::store::MAX_OPERATIONS;
use tegmen_store::{Revision, Store, Transaction};

/// Maximum number of rows of revoked connections in one transaction. The transaction also requires and writes the row
/// of the device, and requires the counter of the numbers for returning peers.
const MOST_ROWS: usize = MAX_OPERATIONS - 3;

/// The effects of a revocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The connections that are revoked: the connection that the operator named, the connection of the previous epoch
    /// that the named connection replaced, and each connection of the present epoch that replaces one of these two.
    pub connections: Vec<ConnectionId>,
    /// True if the revocation takes full effect at the device only when the next epoch begins. The reason is that the
    /// device's list of refused connections is full, that connections without a row in the store may also have to be
    /// revoked, or that one transaction of the store is too small for all connections.
    pub by_reset: bool,
}

/// The connections that one revocation concerns.
struct Family {
    /// The tag of the present epoch at the time at which these connections were found.
    present: Option<Tag>,
    refused: BTreeSet<(u16, Tag, u32)>,
    /// True if the revocation may have to cover further connections that have no row in the store. Such a connection
    /// exists if a server was killed after it gave the connection to a peer and before it wrote the row.
    is_uncertain: bool,
    /// The key of the counter of the numbers for returning peers, and the revision at which it was read. `None` if no
    /// returning peer can have a connection that must be revoked.
    counter: Option<(String, Revision)>,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Revokes a connection. If this connection replaced a connection of the previous epoch, the replaced connection is
    /// revoked too. All connections of the present epoch that replace a revoked connection are also revoked. The
    /// revocation is durable when this function returns. From the start of the call, the server opens no ticket of
    /// these connections. So no peer gets a new ticket while the server writes the revocation. The device receives the
    /// revocation when the server next contacts it. If the device's list of refused connections is full, the next epoch
    /// begins at that time.
    ///
    /// A connection number that was reserved can be revoked even if the [store has no connection with this
    /// number](Self::unaccounted). If the number was reserved for a peer that returned with a ticket of the previous
    /// epoch, the server does not know which connection of the previous epoch this peer had. So the server then accepts
    /// no ticket of the previous epoch any more, and requests the next epoch of the device. No connection of the
    /// present epoch continues in that next epoch. The server does the same if the revocation concerns more connections
    /// than one transaction of the store can revoke.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::NoConnection`], [`DelegationError::Changed`] or
    /// [`DelegationError::Store`]. The connection may then still be valid, but this server no longer replaces it.
    pub async fn revoke(&self, name: &str, id: ConnectionId, by: &str) -> Result<Revoked, DelegationError> {
        let device = self.known(name)?;
        let mut outrun = 0;
        let refused = loop {
            let (tag, family) = self.family(&device, id).await?;
            match self.refuse(&device, tag, &family, by).await {
                Ok(Some(revoked)) => break revoked,
                Ok(None) => {}
                Err(DelegationError::Changed(_)) if outrun < PLANS => outrun = outrun.saturating_add(1),
                Err(error) => return Err(error),
            }
        };
        let message = format!("the connection {id} of the device {name} is revoked");
        self.write_or_note(true, by, "connection-revoked", message).await?;
        Ok(refused)
    }

    /// Revokes the connections of peers at all devices, as [`Self::revoke`] does. `peers` are the names that the peers
    /// have proved. Returns the revoked connections, each with the name of its device. The result does not contain
    /// connections that have expired or were revoked earlier.
    ///
    /// # Errors
    /// [`DelegationError::Fault`], and the errors of [`Self::revoke`]. After an error, some of the connections may be
    /// revoked, so the caller must repeat the call.
    pub async fn revoke_peers(&self, peers: &[&str], by: &str) -> Result<Vec<(String, ConnectionId)>, DelegationError> {
        // Waiting rows belong to connections that are already valid.
        self.write_made().await?;
        let now = self.now();
        let devices: Vec<_> = self.registry(|registry| registry.after(None).cloned().collect());
        let mut revoked = Vec::new();
        for device in devices {
            let mut connections = self.all_connections(&device).await?;
            connections
                .retain(|one| peers.contains(&one.peer.as_str()) && !one.revoked && u64::from(one.expires) > now);
            for DelegatedConnection { id, .. } in connections {
                match self.revoke(&device.name, id, by).await {
                    Ok(_) => revoked.push((device.name.clone(), id)),
                    // The connection has ended in the meantime.
                    Err(DelegationError::NoConnection { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(revoked)
    }

    /// Makes the revocation of the connections in `family` durable. Returns `None` if `family` must be found again,
    /// because another epoch began. `of` is the tag of the epoch of the connection that the operator named.
    async fn refuse(
        &self,
        device: &Arc<Device>,
        of: Tag,
        family: &Family,
        by: &str,
    ) -> Result<Option<Revoked>, DelegationError> {
        let (name, at) = (device.name.as_str(), self.now());
        let row = rows::plain(&RefusedRow { by: by.to_owned(), at, told: false });
        let new: Vec<_> = {
            let state = device.state();
            family.refused.iter().filter(|(_, tag, number)| !state.is_refused(Some(*tag), *number)).copied().collect()
        };
        let by_reset = self
            .change(device, |known| {
                let [present, _, before] = known.tags::<C>();
                let is_valid = |tag: Tag| [present, before].contains(&Some(tag));
                let (has_moved, is_alone) = (family.present != present, family.refused.len() == 1);
                if !is_valid(of) || has_moved && is_alone {
                    return Ok((None, Transaction::default()));
                }
                // Connections other than the named one may have been replaced in the new epoch before they were found.
                let is_uncertain = family.is_uncertain || has_moved || new.len() > MOST_ROWS;
                let refused = device.state().report().refused;
                let in_present = new.iter().filter(|(_, tag, _)| Some(*tag) == present).count();
                let is_full = refused.saturating_add(in_present) > known.config.places as usize;
                if is_full {
                    known.reset.get_or_insert_with(|| "the list of the device is full".to_owned());
                }
                if is_uncertain {
                    (known.before, known.forget) = (None, true);
                    known.reset.get_or_insert_with(|| by.to_owned());
                }
                let put = |rows: Transaction, (_, tag, number): &(u16, Tag, u32)| {
                    rows.put(rows::refused(name, tag, *number), row.clone())
                };
                // The connection of the previous epoch is the first one. The next epoch ends those that have no row.
                let rows = new.iter().filter(|(_, tag, _)| is_valid(*tag)).take(MOST_ROWS);
                let mut transaction = rows.fold(Transaction::default(), put);
                // Another server that reserves numbers in the meantime may give one of them to a peer whose connection
                // must be revoked.
                if let Some((counter, at)) = family.counter.as_ref().filter(|_| !is_uncertain) {
                    transaction = transaction.require(counter.as_str(), *at);
                }
                Ok((Some(is_full || is_uncertain), transaction))
            })
            .await?;
        let Some(by_reset) = by_reset else { return Ok(None) };
        let mut state = device.state();
        family.refused.iter().for_each(|(_, tag, number)| state.refuse(*tag, *number));
        drop(state);
        self.want(device);
        let connections =
            family.refused.iter().map(|(epoch, _, number)| ConnectionId { epoch: *epoch, number: *number });
        Ok(Some(Revoked { connections: connections.collect(), by_reset }))
    }

    /// Finds the connections that must be revoked together with the connection `id`: a connection of the previous
    /// epoch, and the connections of the present epoch that replace it. The connection `id` is one of these
    /// connections. From now on, no connection replaces one of them. Also returns the tag of the epoch of `id`.
    async fn family(&self, device: &Device, id: ConnectionId) -> Result<(Tag, Family), DelegationError> {
        let none = || DelegationError::NoConnection { name: device.name.clone(), id };
        // Otherwise a peer that returns while the server reads the rows would get a connection that the revocation does
        // not cover.
        let tag = {
            let mut state = device.state();
            let tag = state.tag_of(id).ok_or_else(none)?;
            state.ends(tag, id.number);
            tag
        };
        // Waiting rows belong to connections that are already valid.
        self.write_made().await?;
        let row = rows::connection(&device.name, &tag, id.number);
        let entry = self.store.read(row.as_bytes(), None).await?.entry;
        let purpose = Purpose::of_number(id.number);
        if entry.is_none() && !self.unaccounted_of(device, &tag, purpose).await?.0.contains(&id.number) {
            device.state().goes_on(tag, id.number);
            return Err(none());
        }
        let epochs = epochs(device);
        let present = epochs.last().map(|(_, present)| *present);
        let is_present = present == Some(tag);
        let row = entry.and_then(|entry| rows::read::<ConnectionRow>(&entry.value).ok());
        let old = match (is_present, &row) {
            (true, Some(row)) => row.of,
            (true, None) => None,
            (false, _) => Some(id.number),
        };
        let is_uncertain = is_present && row.is_none() && purpose == Purpose::Again;
        let refused = BTreeSet::from([(id.epoch, tag, id.number)]);
        let mut family = Family { present, refused, is_uncertain, counter: None };
        let ([(before, before_tag), present], Some(old)) = (epochs.as_slice(), old) else { return Ok((tag, family)) };
        device.state().ends(*before_tag, old);
        self.write_made().await?;
        family.refused.insert((*before, *before_tag, old));
        self.each(&rows::connections(&device.name, &present.1), |entry| {
            let connection = read(device, *present, entry)?;
            if connection.of.is_some_and(|of| of.number == old) {
                family.refused.insert((present.0, present.1, connection.id.number));
            }
            Ok(())
        })
        .await?;
        let (unaccounted, reserved) = self.unaccounted_of(device, &present.1, Purpose::Again).await?;
        family.is_uncertain |= !unaccounted.is_empty();
        family.counter = Some((rows::numbers(&device.name, &present.1, Purpose::Again), reserved));
        let mut state = device.state();
        family.refused.iter().for_each(|(_, tag, number)| state.ends(*tag, *number));
        drop(state);
        Ok((tag, family))
    }

    /// Returns the connections of the present epoch that the device must refuse and whose refusal it has not
    /// [acknowledged](Self::refused_by_device).
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`].
    pub fn to_refuse(&self, name: &str) -> Result<Vec<ConnectionId>, DelegationError> {
        let device = self.known(name)?;
        let state = device.state();
        let epoch = state.known.present.number;
        Ok(state.untold().into_iter().map(|number| ConnectionId { epoch, number }).collect())
    }

    /// Records durably that the device now refuses a connection. If the epoch of the connection is over, nothing
    /// changes.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::Fault`] or [`DelegationError::Store`].
    pub async fn refused_by_device(&self, name: &str, id: ConnectionId) -> Result<(), DelegationError> {
        let device = self.known(name)?;
        let Some(tag) = device.state().tag_of(id) else { return Ok(()) };
        let row = rows::refused(name, &tag, id.number);
        let Some(entry) = self.store.read(row.as_bytes(), None).await?.entry else { return Ok(()) };
        let read = rows::read::<RefusedRow>(&entry.value).map_err(|why| fault(&entry.key, why))?;
        let told = rows::plain(&RefusedRow { told: true, ..read });
        self.store.commit(Transaction::default().require(row.as_str(), entry.changed).put(row, told)).await?;
        let mut state = device.state();
        if let Some(told) = state.refused.get_mut(&tag).and_then(|refused| refused.get_mut(&id.number)) {
            *told = true;
        }
        drop(state);
        self.count(|counts| &mut counts.acknowledged);
        Ok(())
    }
}
