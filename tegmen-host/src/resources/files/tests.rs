use super::*;

#[test]
fn a_file_that_nobody_observes_is_forgotten_and_leaves_its_place() {
    let files = Files::default();
    let stamp = Stamp { modified: SystemTime::UNIX_EPOCH, len: 0, inode: 0 };
    for n in 0..MAX_WATCHED {
        assert!(files.watch(&n.to_string(), Path::new("nowhere"), stamp));
    }
    assert!(!files.watch("one more", Path::new("nowhere"), stamp));
    assert!(files.watch("7", Path::new("nowhere"), stamp), "which is looked at");
    assert_eq!(files.look(|path| path == "7").len(), MAX_WATCHED, "all are gone from the disk");
    // Perhaps it was just asked for.
    assert_eq!(files.watched().len(), MAX_WATCHED);
    assert!(files.look(|path| path == "7").is_empty());
    assert_eq!(files.watched().keys().collect::<Vec<_>>(), ["7"]);
}
