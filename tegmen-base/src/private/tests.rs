use std::format;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_file_that_others_could_read_is_closed_to_them() {
    let file = std::env::temp_dir().join(format!("tegmen-private-{}", std::process::id()));
    std::fs::write(&file, b"old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    super::open(std::fs::File::options().append(true), &file).unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(mode & 0o777, 0o600);
}
