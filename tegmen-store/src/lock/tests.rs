use super::*;

#[test]
fn a_lock_ends_although_a_program_that_is_about_to_start_has_the_descriptor() {
    let path = std::env::temp_dir().join(format!("tegmen-lock-{}", std::process::id()));
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let locked = Locked::new(open()).unwrap();
    assert!(matches!(Locked::new(open()), Err(TryLockError::WouldBlock)));
    // As after a fork, until the new program replaces the copied process.
    let copied = locked.try_clone().unwrap();
    drop(locked);
    assert!(Locked::new(open()).is_ok());
    drop(copied);
    let _ = std::fs::remove_file(&path);
}
