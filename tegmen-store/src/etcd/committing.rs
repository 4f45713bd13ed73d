//! Transactions in etcd. A transaction of etcd compares the revisions of rows, and then either changes rows or reads
//! them. The driver keeps no rows in memory. So its first attempt assumes that all rows to write are new. If one of
//! these rows exists, etcd changes nothing and returns all rows that the transaction names. The driver then checks the
//! requirements, and the rules for rows with a [`Number`](crate::store::Number). It tries again with the revisions of
//! the returned rows.

use super::address::Address;
use super::cluster::{Cluster, NO_LEASE, unavailable};
use super::content;
use super::gateway::Fault;
use super::wire::{
    Base64, Compare, DeleteRequest, Int, KeyValue, Operation, PutRequest, RangeRequest, TxnRequest, TxnResponse,
};
use crate::clock::now_millis;
use crate::store::{Revision, StoreError, Transaction, Value, pace};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a transaction fails because other writers keep changing its rows.
const PATIENCE: Duration = Duration::from_secs(5);

/// A revision that no row ever has.
const NEVER: u64 = i64::MAX as u64;

/// The rows that a transaction names, with their content in the last answer of etcd; `None` for a row that does not
/// exist.
type Rows = BTreeMap<Vec<u8>, Option<KeyValue>>;

impl Cluster {
    /// Implements [`Store::commit`](crate::Store::commit).
    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<Revision, StoreError> {
        transaction.check()?;
        let is_secret = |value: &Value| matches!(value, Value::Secret(_));
        if self.sealer.is_none() && transaction.put.iter().any(|put| is_secret(&put.value)) {
            return Err(StoreError::Sealed);
        }
        let keys = transaction.require.iter().map(|(key, _)| key);
        let keys = keys.chain(transaction.put.iter().map(|put| &put.key)).chain(&transaction.delete);
        let mut rows: Rows = keys.map(|key| (key.clone(), None)).collect();
        let is_put = |key: &Vec<u8>| transaction.put.iter().any(|put| put.key == *key);
        for (key, row) in &mut rows {
            let required = transaction.require.iter().filter(|(of, _)| of == key).map(|(_, at)| at.0);
            let at = match required.collect::<Vec<_>>().as_slice() {
                [] | [0] => continue,
                [at] if !is_put(key) => *at,
                // A row that is there and that is to be written is read first.
                _ => NEVER,
            };
            *row = Some(KeyValue { mod_revision: Int(at), ..KeyValue::default() });
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let request = self.request(transaction, &rows)?;
            let response: TxnResponse = match self.gateway.call("/v3/kv/txn", &request, false).await {
                Ok(response) => response,
                Err(Fault::Refused(why)) if why.contains(NO_LEASE) => return Err(self.ended(transaction).await),
                Err(fault) => return Err(unavailable(fault)),
            };
            if response.succeeded {
                return Ok(Revision(response.header.revision.0));
            }
            let read = response.responses.into_iter().map(|part| part.response_range.unwrap_or_default().kvs.pop());
            rows.values_mut().zip(read).for_each(|(row, read)| *row = read);
            for (key, at) in &transaction.require {
                let found = rows.get(key).and_then(Option::as_ref).map_or(Revision::ABSENT, changed);
                if found != *at {
                    return Err(StoreError::Conflict { key: key.clone(), found });
                }
            }
            if Instant::now() >= end {
                return Err(StoreError::Unavailable {
                    why: "other writers keep changing these rows: try again".to_owned(),
                });
            }
        }
    }

    /// Makes the request for etcd. If the rows still have the revisions in `rows`, etcd makes the changes of the
    /// transaction. If not, etcd returns the current rows.
    fn request(&self, transaction: &Transaction, rows: &Rows) -> Result<TxnRequest, StoreError> {
        let now = now_millis();
        let Self { address, sealer, .. } = self;
        let mut success = Vec::new();
        for put in &transaction.put {
            let row = rows.get(&put.key).and_then(Option::as_ref);
            let since = pace::since(put, row.and_then(|row| content::number(&row.value.0)), now)?;
            let version = row.map_or(1, |row| row.version.0.saturating_add(1));
            success.push(Operation::Put(PutRequest {
                key: Base64(address.row(&put.key)),
                value: Base64(content::write(&put.key, version, &put.value, since, sealer.as_ref())?),
                lease: Int(put.lease.map_or(0, |lease| lease.0)),
            }));
        }
        for key in transaction.delete.iter().filter(|key| matches!(rows.get(*key), Some(Some(_)))) {
            success.push(Operation::Delete(DeleteRequest { key: Base64(address.row(key)) }));
        }
        let compare = |(key, row): (&Vec<u8>, &Option<KeyValue>)| {
            Compare::changed(Base64(address.row(key)), row.as_ref().map_or(0, |row| row.mod_revision.0))
        };
        let failure = rows.keys().map(|key| Operation::Range(whole(address, key))).collect();
        Ok(TxnRequest { compare: rows.iter().map(compare).collect(), success, failure })
    }

    /// Returns the error of a transaction after etcd reported that one of its leases has ended.
    async fn ended(&self, transaction: &Transaction) -> StoreError {
        for lease in transaction.put.iter().filter_map(|put| put.lease) {
            match self.has_ended(lease).await {
                Ok(true) => return StoreError::LeaseEnded(lease),
                Ok(false) => {}
                Err(error) => return error,
            }
        }
        transaction.put.iter().find_map(|put| put.lease).map_or_else(StoreError::closed, StoreError::LeaseEnded)
    }
}

fn whole(address: &Address, key: &[u8]) -> RangeRequest {
    RangeRequest { key: Base64(address.row(key)), ..RangeRequest::default() }
}

const fn changed(row: &KeyValue) -> Revision {
    Revision(row.mod_revision.0)
}
