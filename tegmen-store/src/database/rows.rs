//! Rows with the sequence numbers of OSCORE contexts and of sessions, and the digests of these rows.

use super::Change;
use crate::numbers::Numbers;
use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

/// Makes changes of rows. `sum` is the XOR of the digests of all rows with sequence numbers. Returns the new value of
/// `sum`, and true if a change replaced an existing row.
pub(super) fn apply(connection: &Connection, changes: &[Change], mut sum: u128) -> rusqlite::Result<(u128, bool)> {
    if changes.is_empty() {
        return Ok((sum, false));
    }
    let mut find = connection.prepare("SELECT name, next, seen, sealed, peer, digest FROM numbers WHERE name = ?1")?;
    let mut put = connection.prepare("INSERT OR REPLACE INTO numbers VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let mut remove = connection.prepare("DELETE FROM numbers WHERE name = ?1")?;
    let mut moves = false;
    for change in changes {
        let (Change::Put(name, _) | Change::Move(name, ..) | Change::Remove(name)) = change;
        let old = find.query_row([name], |row| Ok((read(row)?, row.get::<_, [u8; 16]>(5)?))).optional()?;
        let before = old.as_ref().map_or(0, |(_, digest)| u128::from_be_bytes(*digest));
        let numbers = match (change, old) {
            (Change::Put(_, numbers), _) => numbers.clone(),
            (&Change::Move(_, next, window), Some((old, _))) => Numbers { next, window, ..old },
            (Change::Move(..), None) => continue,
            (Change::Remove(_), _) => {
                remove.execute([name])?;
                sum ^= before;
                continue;
            }
        };
        moves |= before != 0;
        let digest = digest(name, &numbers);
        sum ^= before ^ digest;
        let window = numbers.window.map(|[next, seen]| (u128::from(next) << 64 | u128::from(seen)).to_be_bytes());
        put.execute(params![name, numbers.next as i64, window, numbers.sealed, numbers.with, digest.to_be_bytes()])?;
    }
    Ok((sum, moves))
}

/// Returns the rows whose names begin with `prefix`.
pub(super) fn with_prefix(connection: &Connection, prefix: &str) -> rusqlite::Result<Vec<(String, Numbers)>> {
    let mut select = connection.prepare(
        "SELECT name, next, seen, sealed, peer, digest FROM numbers WHERE name >= ?1 AND name < ?1 || char(1114111) ORDER BY name",
    )?;
    let rows = select.query_map([prefix], |row| Ok((row.get(0)?, read(row)?)))?;
    rows.collect()
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Numbers> {
    let window = row.get::<_, Option<[u8; 16]>>(2)?.map(u128::from_be_bytes);
    Ok(Numbers {
        next: row.get::<_, i64>(1)? as u64,
        window: window.map(|both| [(both >> 64) as u64, both as u64]),
        sealed: row.get(3)?,
        with: row.get(4)?,
        ..Numbers::default()
    })
}

pub(super) fn digest(name: &str, numbers: &Numbers) -> u128 {
    let Numbers { next, window, sealed, with, .. } = numbers;
    let text = format!("{name}\n{next}\n{window:?}\n{sealed}\n{with}");
    let digest = Sha256::digest(text);
    u128::from_be_bytes(digest.first_chunk::<16>().copied().unwrap_or_default())
}
