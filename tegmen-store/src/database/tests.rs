use super::entries::Version;
use super::revisions::Revisions;
use super::{Database, Options, entries, writer};
use crate::StateError;
use crate::store::Value;
use rusqlite::StatementStatus;
use std::sync::Arc;

#[test]
fn a_recovery_without_a_clock_is_refused_and_touches_nothing() {
    let dir = std::env::temp_dir().join(format!("tegmen-store-{}-clock", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("state.db");
    drop(Database::open(&file).unwrap());
    let before = std::fs::read(&file).unwrap();
    // A machine without a battery begins at 1970.
    let refused = Database::begin(&file, true, Options { wall: Arc::new(|| 60_000), ..Options::default() });
    let after = std::fs::read(&file).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    assert!(matches!(refused, Err(StateError::Untrusted { why, .. }) if why.contains("clock")));
    assert_eq!(after, before);
}

#[test]
fn a_query_is_planned_once_for_all_keys() {
    let dir = std::env::temp_dir().join(format!("tegmen-store-{}-plan", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let connection = writer::connect(&dir.join("state.db"), &Options::default()).unwrap().unwrap();
    connection.execute_batch(entries::TABLES).unwrap();
    for key in [b"a", b"b", b"c"] {
        let mut select = connection.prepare_cached(entries::CURRENT).unwrap();
        assert!(entries::current(&mut select, key).unwrap().is_none());
    }
    let select = connection.prepare_cached(entries::CURRENT).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    assert_eq!((select.get_status(StatementStatus::Run), select.get_status(StatementStatus::RePrepare)), (3, 0));
}

#[test]
fn versions_of_many_rows_are_written_by_few_statements_and_each_can_be_read() {
    let dir = std::env::temp_dir().join(format!("tegmen-store-{}-many", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let connection = writer::connect(&dir.join("state.db"), &Options::default()).unwrap().unwrap();
    connection.execute_batch(entries::TABLES).unwrap();
    for count in [0, 1, 15, 16, 17, 40] {
        let key = |row: u8| vec![count, row];
        let plain = |row: u8| Value::Plain(vec![b'a' + row; usize::from(row)]);
        let version = |row: u8| Version::new(key(row), 7, plain(row), 0, None).unwrap();
        let versions: Vec<_> = (0..count).map(|row| version(row).of(3 + u64::from(row), None)).collect();
        Version::write_all(&connection, &versions).unwrap();
        for row in 0..count {
            let found = entries::read(&connection, &Revisions::after(7, 0), None, &key(row), None).unwrap();
            let entry = found.entry.unwrap_or_else(|| panic!("row {row} of {count}"));
            assert_eq!((entry.value, entry.created.0, entry.changed.0), (plain(row), 3 + u64::from(row), 7));
        }
        // A version that exists is not written again, not even among others.
        if let Some(last) = versions.last() {
            let again: Vec<_> = (0..16).map(|row| version(100 + row)).chain([last.clone()]).collect();
            assert!(Version::write_all(&connection, &again).is_err(), "{count}");
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
}
