use super::{Database, Options, entries, writer};
use crate::StateError;
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
