//! The content of a row in etcd: one byte that names the kind of the value, and then the value.

use super::address::Address;
use super::wire::KeyValue;
use crate::sealing::Sealer;
use crate::store::{Entry, LeaseId, Number, Revision, StoreError, Value, pace};

const PLAIN: u8 = 1;
const SECRET: u8 = 2;
const NUMBER: u8 = 3;

/// Encodes a value as the content of a row. `version` is the number of changes of the row, including the change that
/// writes this value. If the value is a [`Number`](crate::store::Number), `since` is a time in milliseconds since 1970.
/// From this time on, the highest allowed value of the number grows by its `pace` each day.
///
/// The encryption of a secret also authenticates the key and the version of its row. The version replaces the revision
/// here, because etcd chooses the revision only later.
///
/// # Errors
/// [`StoreError::Sealed`] for a secret, if the store has no sealing key.
pub(super) fn write(
    key: &[u8],
    version: u64,
    value: &Value,
    since: u64,
    sealer: Option<&Sealer>,
) -> Result<Vec<u8>, StoreError> {
    Ok(match value {
        Value::Plain(bytes) => [&[PLAIN], bytes.as_slice()].concat(),
        Value::Secret(secret) => {
            let sealed = sealer.ok_or(StoreError::Sealed)?.seal(key, version, secret);
            [&[SECRET], sealed.map_err(|why| StoreError::Unavailable { why })?.as_slice()].concat()
        }
        Value::Number(number) => [&[NUMBER], pace::encode(*number, since).as_slice()].concat(),
    })
}

/// Returns the [`Number`](crate::store::Number) in the content of a row, and a time in milliseconds since 1970; `None`
/// if the row contains no number. From this time on, the highest allowed value of the number grows by its `pace` each
/// day.
pub(super) fn number(content: &[u8]) -> Option<(Number, u64)> {
    let (&NUMBER, bytes) = content.split_first()? else { return None };
    pace::decode(bytes)
}

/// Decodes a row.
///
/// # Errors
/// [`StoreError::Sealed`] for a secret, if the store has no sealing key. [`StoreError::Unavailable`] if the row is
/// damaged.
pub(super) fn read(row: &KeyValue, address: &Address, sealer: Option<&Sealer>) -> Result<Entry, StoreError> {
    let key = address.key(&row.key.0);
    let damaged = || StoreError::Unavailable {
        why: format!("the row {} is damaged: restore a snapshot of etcd", String::from_utf8_lossy(&key)),
    };
    let value = match row.value.0.split_first() {
        Some((&PLAIN, bytes)) => Value::Plain(bytes.to_vec()),
        Some((&SECRET, sealed)) => {
            let opened = sealer.ok_or(StoreError::Sealed)?.open(&key, row.version.0, sealed);
            Value::Secret(opened.ok_or_else(damaged)?)
        }
        _ => Value::Number(number(&row.value.0).ok_or_else(damaged)?.0),
    };
    let (created, changed) = (Revision(row.create_revision.0), Revision(row.mod_revision.0));
    let lease = Some(LeaseId(row.lease.0)).filter(|lease| lease.0 != 0);
    Ok(Entry { key, value, created, changed, lease })
}
