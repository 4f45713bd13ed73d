//! Files that hold secrets.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file as `options` say, readable for its owner alone from then on, also if it existed.
pub(crate) fn open(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let file = options.open(file)?;
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

/// The permission bits of a file that others than its owner may read or write.
#[cfg(unix)]
pub(crate) fn exposed(file: &File) -> io::Result<Option<u32>> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata()?.permissions()) & 0o777;
    Ok(Some(mode).filter(|mode| mode & 0o077 != 0))
}

/// Nothing is known of others here.
#[cfg(not(unix))]
pub(crate) fn exposed(_: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
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
}
