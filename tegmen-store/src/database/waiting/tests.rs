use super::Waiting;
use crate::database::calls::Watcher;
use crate::database::entries::TABLES;
use crate::database::revisions::Revisions;
use crate::store::Revision;
use crate::store::answer::promise;
use rusqlite::Connection;

#[test]
fn calls_whose_callers_are_gone_are_dropped_before_the_next_commit() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(TABLES).unwrap();
    let (revisions, mut waiting) = (Revisions::after(0, 0), Waiting::default());
    let mut answers = Vec::new();
    for call in 0..100 {
        let (promise, answer) = promise();
        let watcher = Watcher { prefix: b"a/".to_vec(), after: Revision(0), most: 1, promise };
        waiting.ask(&connection, &revisions, None, watcher);
        // Every tenth caller waits on.
        if call % 10 == 0 {
            answers.push(answer);
        }
    }
    // The last call was kept before its caller left.
    assert!(waiting.0.len() <= answers.len() + 1, "{} calls wait", waiting.0.len());
}
