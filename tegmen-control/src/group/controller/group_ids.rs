//! GroupIDs. A controller creates no two Axiom groups with the same GroupID at one port.
//!
//! A node finds the group of a response by its GroupID and its port. So each group reserves its GroupID with a row of
//! the store, in the transaction that creates the group. The transaction that deletes the group also deletes the row.
//! Groups that an earlier version of this program created have no such row, and several of them may have the same
//! GroupID. These groups keep their GroupID: [`Controller::reserve_existing`] writes its row, so that no new group gets
//! this GroupID.

use super::{AT_ONCE, Controller, PAGE, PLANS};
use crate::group::config::{GroupConfig, GroupError, Protocol};
use crate::group::rows::{self, Head, Row};
use std::collections::{BTreeMap, HashMap};
use tegmen_base::crypto::Crypto;
use tegmen_store::store::{Entry, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

impl<S: Store, C: Crypto> Controller<S, C> {
    /// Commits the last transaction of a new group, which `write` makes from the configuration with the GroupID of the
    /// group. A Group OSCORE group has no GroupID.
    pub(super) async fn commit_new(
        &self,
        (name, config): (&str, &GroupConfig),
        write: impl Fn(&GroupConfig) -> Transaction,
    ) -> Result<(), GroupError> {
        if config.protocol == Protocol::Oscore {
            return Ok(self.store.commit(write(&GroupConfig { group_id: None, ..*config })).await.map(drop)?);
        }
        // Groups that this controller creates at the same time do not choose the same GroupID.
        let mut are_reserved = self.group_ids.lock().await;
        if !*are_reserved {
            self.reserve_existing().await?;
            *are_reserved = true;
        }
        for _ in 0..PLANS {
            let id = self.free_group_id(config).await?;
            let row = rows::group_id(config.address.port(), id);
            let transaction = write(&GroupConfig { group_id: Some(id), ..*config });
            let transaction = transaction
                .require(row.as_str(), Revision::ABSENT)
                .put(row.as_str(), Value::Plain(name.as_bytes().to_vec()));
            match self.store.commit(transaction).await {
                // Another controller has given this GroupID to another group.
                Err(StoreError::Conflict { key, .. }) if key == row.as_bytes() => {}
                committed => return Ok(committed.map(drop)?),
            }
        }
        Err(GroupError::Changed(name.to_owned()))
    }

    /// Returns the GroupID of a new group: the GroupID in the configuration, or the lowest GroupID that no group at the
    /// port has.
    async fn free_group_id(&self, config: &GroupConfig) -> Result<u8, GroupError> {
        let port = config.address.port();
        let taken: HashMap<Vec<u8>, Value> =
            self.all(&rows::group_ids(port)).await?.into_iter().map(|Entry { key, value, .. }| (key, value)).collect();
        let holder = |id: u8| taken.get(rows::group_id(port, id).as_bytes());
        match config.group_id {
            None => (1..=u8::MAX).find(|id| holder(*id).is_none()).ok_or(GroupError::NoGroupId(port)),
            Some(id) => match holder(id) {
                None => Ok(id),
                Some(name) => {
                    let group = String::from_utf8_lossy(name.plain().unwrap_or_default()).into_owned();
                    Err(GroupError::GroupIdTaken { id, port, group })
                }
            },
        }
    }

    /// Adds to a transaction, which deletes the group `name`, the deletion of the row that reserves its GroupID. `head`
    /// is the value of the main row of the group. Also returns true if the row remains, because several groups have the
    /// GroupID. The caller must then call [`Self::reserve_again`] after the transaction.
    pub(super) async fn release_group_id(
        &self,
        transaction: Transaction,
        name: &str,
        head: &Value,
    ) -> Result<(Transaction, bool), GroupError> {
        let Some(row) = reservation(head) else { return Ok((transaction, false)) };
        let entry = self.store.read(row.as_bytes(), None).await?.entry;
        let at = entry.as_ref().map_or(Revision::ABSENT, |entry| entry.changed);
        let transaction = transaction.require(row.as_str(), at);
        let is_ours = entry.as_ref().is_some_and(|entry| entry.value.plain() == Some(name.as_bytes()));
        Ok(if is_ours { (transaction.delete(row), false) } else { (transaction, entry.is_some()) })
    }

    /// Makes the next creation of a group read the GroupIDs of all groups again. The creation then releases the GroupIDs
    /// that no group has any more.
    pub(super) async fn reserve_again(&self) {
        *self.group_ids.lock().await = false;
    }

    /// Writes the rows that reserve the GroupIDs of all existing groups. A row is already correct unless an earlier
    /// version of this program created or deleted a group. Rows that belong to no group are deleted.
    async fn reserve_existing(&self) -> Result<(), StoreError> {
        // The reservations are read before the groups. So if another controller creates or deletes a group meanwhile,
        // the requirement of the transaction below fails, because that controller has changed the row.
        let mut reserved: HashMap<Vec<u8>, Entry> =
            self.all(rows::GROUP_IDS).await?.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let mut holders: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let mut are_all_read = true;
        for names in self.all(rows::NAMES).await?.chunks(AT_ONCE) {
            let head = |entry: &Entry| {
                let prefix = rows::prefix(&rows::read_identity(&entry.value).ok()?);
                Some(self.store.read(Row::Head.key(&prefix).as_bytes(), None))
            };
            let heads: Vec<_> = names.iter().map(head).collect();
            for (name, head) in names.iter().zip(heads) {
                let head = match head {
                    Some(head) => head.await?.entry,
                    None => None,
                };
                are_all_read &= head.as_ref().is_some_and(|head| Head::read(&head.value).is_ok());
                if let Some(row) = head.and_then(|head| reservation(&head.value)) {
                    holders.entry(row).or_default().push(name.clone());
                }
            }
        }
        let mut answers = Vec::new();
        for (row, names) in holders {
            let found = reserved.remove(row.as_bytes());
            let at = found.as_ref().map_or(Revision::ABSENT, |found| found.changed);
            let mut transaction = Transaction::default().require(row.as_str(), at);
            let mut value = Vec::new();
            // If several groups have the GroupID, the value of the row is empty.
            if let [only] = names.as_slice() {
                transaction = transaction.require(only.key.as_slice(), only.changed);
                value = only.key.strip_prefix(rows::NAMES.as_bytes()).unwrap_or_default().to_vec();
            }
            if found.is_none_or(|found| found.value.plain() != Some(value.as_slice())) {
                answers.push(self.store.commit(transaction.put(row, Value::Plain(value))));
            }
        }
        if are_all_read {
            let delete = |Entry { key, changed, .. }: Entry| {
                self.store.commit(Transaction::default().require(key.as_slice(), changed).delete(key))
            };
            answers.extend(reserved.into_values().map(delete));
        }
        for answer in answers {
            match answer.await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns all rows whose keys begin with `prefix`.
    async fn all(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        let mut next = Some(Scan::of(prefix, PAGE));
        while let Some(scan) = next {
            let page = self.store.scan(scan.clone()).await?;
            next = scan.following(&page);
            entries.extend(page.entries);
        }
        Ok(entries)
    }
}

/// Returns the key of the row that reserves the GroupID of a group; `None` for a Group OSCORE group. `head` is the
/// value of the main row of the group.
fn reservation(head: &Value) -> Option<String> {
    let config = Head::read(head).ok()?.config;
    let id = config.group_id.filter(|_| config.protocol == Protocol::Axiom)?;
    Some(rows::group_id(config.address.port(), id))
}
